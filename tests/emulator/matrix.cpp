// mma.sync where it must say no: shapes, selectors, stray bits; and forms that load and stop by name.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::matrix_test {
namespace {

std::string entry(const std::string& target, const std::string& body) {
  return fmt::format(
      ".version 9.0\n.target {}\n.address_size 64\n.visible .entry test()\n{{\n.reg .pred p;\n.reg .b16 h;\n"
      ".reg .b32 r<16>;\nmov.b32 r0, 0;\nmov.b32 r1, 0;\nmov.b32 r2, 0;\nmov.b32 r3, 0;\nmov.b32 r4, 0;\nmov.b32 r5, "
      "0;\nmov.b32 r6, 0;\n{}\nret;\n}}\n",
      target, body);
}

std::vector<EmulatorFinding> run(const std::string& target, const std::string& body) {
  DeviceOptions options;
  options.arch = target;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(entry(target, body), "test.ptx");
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {32, 1, 1};
  device.launch(request, {});
  return device.take_findings();
}

std::string load_problem(const std::string& target, const std::string& body) {
  EmulatedDevice device;
  try {
    device.load_ptx(entry(target, body), "test.ptx");
  } catch (const Error& error) {
    return error.what() + (error.notes().empty() ? "" : "\n" + error.notes().front());
  }
  return {};
}

const std::string kOperands = "{r0, r1, r2, r3}, {r0, r1, r2, r3}, {r4, r5}, {r0, r1, r2, r3}";
const std::string kMxf4 =
    "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 ";

TEST_CASE("mma.sync refuses what PTX has not") {
  CHECK(load_problem("sm_90a", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " + kOperands + ";").empty());
  // B row-major, accumulators of two types, too few registers, a shape of another type, a target without the kind.
  for (const char* opcode :
       {"m16n8k16.col.row.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.f16.f16.f16", "m16n8k8.row.col.f32.bf16.bf16.f32",
        "m16n8k16.row.col.f32.tf32.tf32.f32", "kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m1.f32"}) {
    CAPTURE(opcode);
    const std::string problem = load_problem("sm_90a", fmt::format("mma.sync.aligned.{} {};", opcode, kOperands));
    CHECK(problem.find(opcode) != std::string::npos);
  }
}

TEST_CASE("block scale selectors") {
  const auto with = [](const char* ids_a, const char* ids_b) {
    return run("sm_120a", kMxf4 + kOperands + fmt::format(", {{r6}}, {{{}}}, {{r6}}, {{{}}};", ids_a, ids_b));
  };
  CHECK(with("0, 1", "2, 3").empty());
  const auto byte = with("1, 0", "0, 0");
  REQUIRE(byte.size() == 1);
  CHECK(byte[0].name == "mma-scale-id");
  CHECK(byte[0].message == "byte-id-a = 1: must be 0 or 2");
  const auto thread = run("sm_120a", "mov.b16 h, 4;\n" + kMxf4 + kOperands + ", {r6}, {0, 0}, {r6}, {0, h};");
  REQUIRE(thread.size() == 1);
  CHECK(thread[0].message == "thread-id-b = 4: must be 0 to 3");
}

TEST_CASE("values beside their place in a byte") {
  const std::string opcode = "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m1.e2m3.f32 ";
  CHECK(run("sm_120a", "mov.b32 r0, 0x3C043C00;\nmov.b32 r4, 0x3F3F0001;\n" + opcode + kOperands + ";").empty());
  const auto stray = run("sm_120a", "mov.b32 r2, 0x00020000;\n" + opcode + kOperands + ";");
  REQUIRE(stray.size() == 1);
  CHECK(stray[0].name == "mma-container-bits");
  CHECK(!stray[0].is_failure);
  CHECK(stray[0].cause == "e2m1 stands in bits 5 to 2 of its byte: shift by 2 after ldmatrix");
}

TEST_CASE("padding behind narrow values need not have been written, the values must") {
  // Lane i writes so many bytes of row i of 128, in whole words; x1 takes the rows of the first eight.
  const auto loaded = [](const char* format, int words) {
    std::string body = ".shared .align 16 .b8 rows[512];\nmov.u32 r7, %tid.x;\nshl.b32 r7, r7, 4;\n";
    for (int i = 0; i < words; ++i)
      body += fmt::format("mov.u32 r8, rows;\nadd.s32 r8, r8, r7;\nst.shared.b32 [r8+{}], r0;\n", 4 * i);
    body += "bar.warp.sync -1;\nmov.u32 r8, rows;\nadd.s32 r8, r8, r7;\n";
    return run("sm_120a", body + fmt::format("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.{} {{r1}}, [r8];", format));
  };
  CHECK(loaded("b4x16_p64", 2).empty());
  CHECK(loaded("b6x16_p32", 3).empty());
  for (const auto& [format, words] : {std::pair("b4x16_p64", 1), std::pair("b6x16_p32", 2)}) {
    const auto findings = loaded(format, words);
    REQUIRE(!findings.empty());
    CHECK(findings[0].name == "smem-uninitialised");
  }
}

TEST_CASE("forms that load and stop by name") {
  const std::string sparse = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32 ";
  CHECK(run("sm_90a", "setp.ne.b32 p, r0, 0;\n@p " + sparse + kOperands + ", r6, 0;").empty());  // never reached
  const auto reached = run("sm_90a", sparse + kOperands + ", r6, 0;");
  REQUIRE(reached.size() == 1);
  CHECK(reached[0].name == "not-supported");
  CHECK(reached[0].is_failure);
  CHECK(reached[0].message.find("semantics unknown: sparse products of 8-bit floats") != std::string::npos);
}

TEST_CASE("metadata of a sparse product that names no two places") {
  const std::string sparse =
      "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {r0, r1, r2, r3}, {r0, r1, r2, r3}, {r4, r5, r4, r5}, "
      "{r0, r1, r2, r3}, r6, ";
  CHECK(run("sm_90a", "mov.b32 r6, 0x4E8D9C44;\n" + sparse + "1;").empty());
  const auto wrong = run("sm_90a", "mov.b32 r6, 0x44444454;\n" + sparse + "1;");
  REQUIRE(wrong.size() == 1);
  CHECK(wrong[0].name == "mma-metadata");
  CHECK(wrong[0].message.find("lane 2: bits 7..4 of the metadata are 0x5: the second index must be above the first") !=
        std::string::npos);
  const auto selector = run("sm_90a", "mov.b32 r6, 0x44444444;\n" + sparse + "2;");
  REQUIRE(selector.size() == 1);
  CHECK(selector[0].message.find("sparsity selector 2: must be below 2 here") != std::string::npos);
}

}  // namespace
}  // namespace tessera::emulator::matrix_test
