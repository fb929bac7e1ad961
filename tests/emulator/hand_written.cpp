// What hand-written assembly and other compilers write where NVCC's own output does not: vector registers, blanks
// before modifiers, attributes of pointer parameters.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::hand_written_test {
namespace {

constexpr const char* kHead = ".version 9.0\n.target sm_90a\n.address_size 64\n";

/// Eight words that one lane of an entry wrote: `parameters` stand before the buffer's, `body` has its address in d0.
std::vector<std::uint32_t> words(const std::string& parameters, const std::string& body,
                                 std::vector<void*> arguments = {}) {
  EmulatedDevice device;
  const auto image =
      device.load_ptx(fmt::format("{}.visible .entry test({}.param .u64 .ptr .global .align 1 buffer)\n"
                                  "{{\n.reg .pred p;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n.reg .f32 f<8>;\n"
                                  "ld.param.u64 d0, [buffer];\n{}\nret;\n}}\n",
                                  kHead, parameters, body),
                      "test.ptx");
  std::vector<std::uint32_t> values(8, 0xDEADBEEF);
  DevicePointer buffer = device.allocate(32);
  device.copy_to_device(buffer, values.data(), 32);
  arguments.push_back(&buffer);
  LaunchRequest request;
  request.entry = image->entry("test");
  request.parameters = arguments.data();
  device.launch(request, {});
  for (const EmulatorFinding& finding : device.take_findings()) FAIL_CHECK(finding.message);
  device.copy_to_host(values.data(), buffer, 32);
  return values;
}

std::string problem(const std::string& body) {
  try {
    words("", body);
  } catch (const Error& error) {
    return error.what() + (error.notes().empty() ? "" : "\n" + error.notes().front());
  }
  return {};
}

TEST_CASE("hand-written: the alignment in .ptr is of what a parameter points to, not of the parameter") {
  std::uint64_t first = 0x1111222233334444;
  std::uint32_t second = 7;
  std::uint8_t third = 9;
  const auto values = words(".param .u64 .ptr .global .align 1 first, .param .u32 second, .param .u8 third, ",
                            "ld.param.u64 d1, [first];\nst.global.u64 [d0], d1;\nld.param.u32 r1, [second];\n"
                            "st.global.u32 [d0+8], r1;\nld.param.u8 r2, [third];\nst.global.u32 [d0+12], r2;",
                            {&first, &second, &third});
  CHECK(values[0] == 0x33334444);
  CHECK(values[1] == 0x11112222);
  CHECK(values[2] == 7);
  CHECK(values[3] == 9);
}

TEST_CASE("hand-written: vector registers are lists of their elements") {
  const auto values = words("", R"(
    .reg .v2 .b32 pair;
    .reg .v4 .f32 four<2>;
    mov.b64 pair, 0x0000000500000003;
    add.u32 pair.x, pair.x, pair.y;         // 8
    st.global.v2.b32 [d0], pair;            // 8 5
    ld.global.v2.b32 pair, [d0];
    sub.u32 r1, pair.r, pair.g;             // 3
    st.global.u32 [d0+8], r1;
    mov.f32 four1.x, 0f3F800000;
    mov.f32 four1.y, 0f40000000;
    mov.f32 four1.z, 0f40400000;
    max.f32 four1.w, four1.x, four1.z;      // 3
    mov.f32 four0.w, four1.y;               // 2
    {
      .reg .v2 .b32 pair;                   // another one
      mov.b32 pair.x, 77;
    }
    add.f32 f1, four1.w, four0.w;           // 5
    st.global.f32 [d0+12], f1;
    st.global.v4.f32 [d0+16], four1;)");
  CHECK(values == std::vector<std::uint32_t>{8, 5, 3, 0x40A00000, 0x3F800000, 0x40000000, 0x40400000, 0x40400000});
  CHECK(problem(".reg .v2 .b32 pair;\nmov.b32 pair.z, 1;").find("'pair.z' is not a register") != std::string::npos);
  CHECK(problem(".reg .v2 .b32 pair;\nadd.u32 r1, pair, 1;").find("expected a register here") != std::string::npos);
  CHECK(problem("mov.b32 r1.x, 1;").find("'r1.x' is not a register") != std::string::npos);
}

TEST_CASE("hand-written: blanks stand between an opcode and its modifiers") {
  const auto values = words("",
                            "mov .u32 r1, 12;\nlop3 .b32 r2, r1, 10, 0, 0xC0;\nsetp .eq .u32 p, r2, 8;\n"
                            "selp .b32 r3, 1, 2, p;\nst .global .u32 [d0], r2;\n@p st .global.u32 [d0+4], r3;");
  CHECK(values[0] == 8);
  CHECK(values[1] == 1);
  CHECK(problem("add .u33 r1, r1, 1;").find("'add.u33'") != std::string::npos);
}

TEST_CASE("a fence of a tensor map that is nowhere acquires nothing, and is reported") {
  for (const char* const address : {"0", "0x123456789000"}) {
    EmulatedDevice device;
    const auto image = device.load_ptx(fmt::format("{}.visible .entry test()\n{{\n.reg .b64 d0;\nmov.b64 d0, {};\n"
                                                   "fence.proxy.tensormap::generic.acquire.gpu [d0], 128;\nret;\n}}\n",
                                                   kHead, address),
                                       "test.ptx");
    LaunchRequest request;
    request.entry = image->entry("test");
    device.launch(request, {});
    const auto findings = device.take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].name == "tensormap-fence-nowhere");
    CHECK_FALSE(findings[0].is_failure);
  }
}

TEST_CASE("hand-written: an unpacking mov leaves out elements of any width") {
  const auto values = words("", R"(
    mov.b64 d1, 0x0000000700000005;
    mov.b64 {r1, _}, d1;
    mov.b64 {_, r2}, d1;
    st.global.v2.u32 [d0], {r1, r2};
    {
      .reg .b16 h<4>;
      mov.b64 {_, _, h1, _}, d1;
      mov.b32 {h2, _}, r2;
      mov.b32 r3, {h1, h2};
    }
    st.global.u32 [d0+8], r3;)");
  CHECK(values[0] == 5);
  CHECK(values[1] == 7);
  CHECK(values[2] == 0x00070007);
}

TEST_CASE("hand-written: f16 and bf16 convert into each other to nearest where no rounding is named") {
  const auto values = words("",
                            "{\n.reg .b16 h<4>;\nmov.b16 h0, 0xB075;\ncvt.bf16.f16 h1, h0;\ncvt.rn.bf16.f16 h2, h0;\n"
                            "mov.b32 r1, {h1, h2};\nst.global.u32 [d0], r1;\nmov.b16 h0, 0x4049;\n"
                            "cvt.f16.bf16 h1, h0;\ncvt.rn.f16.bf16 h2, h0;\nmov.b32 r1, {h1, h2};\n"
                            "st.global.u32 [d0+4], r1;\n}");
  CHECK(values[0] == 0xBE0FBE0F);  // 0xB075: -0.13928
  CHECK(values[1] == 0x42484248);
  CHECK(problem("{\n.reg .b16 h;\ncvt.f16.f32 h, f1;\n}").find("no such form") != std::string::npos);
}

}  // namespace
}  // namespace tessera::emulator::hand_written_test
