// Values of registers that a thread has not written: reported where they matter, and nowhere else.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"

namespace tessera::emulator::unwritten_registers_test {
namespace {

std::vector<EmulatorFinding> run(const std::string& body, bool is_on = true) {
  DeviceOptions options;
  options.detects_unwritten_registers = is_on;
  options.max_warp_instructions = 100000;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(
      fmt::format(".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
                  ".reg .pred p, q, s;\n.reg .b16 h<4>;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n.reg .f32 f<16>;\n"
                  ".shared .align 128 .b8 smem[1024];\nld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\n"
                  "setp.lt.u32 p, r0, 4;\nmul.wide.u32 d1, r0, 4;\nadd.u64 d3, d0, d1;\nadd.u64 d3, d3, d1;\nadd.u64 "
                  "d0, d0, d1;\n{}\nret;\n}}\n",
                  body),
      "test.ptx");
  DevicePointer buffer = device.allocate(256);
  device.set_bytes(buffer, 0, 256);
  void* parameters[] = {&buffer};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {32, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  return device.take_findings();
}

bool is_found(const std::string& body) {
  const std::vector<EmulatorFinding> findings = run(body);
  for (const EmulatorFinding& finding : findings) CHECK(finding.name == "unwritten-register");
  return !findings.empty();
}

// Tuples with a register that no path writes are found when the module is loaded (register-uninitialised).
const std::string kNoMore = "setp.ne.u32 q, r0, r0;\n@q mov.u32 r2, 0;\n@q cvt.u16.u32 h1, r0;\n";
const std::string kStore = "st.global.b32 [d0], r1;\n";

TEST_CASE("a value that nobody wrote is named where it is used") {
  const auto stored = run("add.u32 r1, r2, 1;\n" + kStore);
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].name == "unwritten-register");
  CHECK_FALSE(stored[0].is_failure);
  CHECK(stored[0].ptx_line == 20);
  CHECK(stored[0].message ==
        "an operand depends on a register that this thread has not written when PTX line 19 reads it");
  CHECK(run("add.u32 r1, r2, 1;\n" + kStore, false).empty());
}

TEST_CASE("a pair of which one half was never written") {
  const std::string low = "mov.b64 {r1, r4}, d4;\n" + kStore, high = "mov.b64 {r4, r1}, d4;\n" + kStore;
  // LLVM's code has such pairs, of which it uses the other half; no path writes r2.
  CHECK(run("mov.b64 d4, {r2, r0};\n" + high, false).empty());
  CHECK(run("mov.b64 d4, {r2, r0};\n" + high).empty());
  CHECK(is_found("mov.b64 d4, {r2, r0};\n" + low));
  const auto none = run("mov.b64 d4, {r2, r3};\n" + low, false);
  REQUIRE(none.size() == 1);
  CHECK(none[0].name == "register-uninitialised");
}

TEST_CASE("guards, branches and barriers") {
  const auto guarded = run("@p mov.u32 r1, 5;\n" + kStore);
  REQUIRE(guarded.size() == 1);
  CHECK(guarded[0].lane == 4);  // the first that the guard leaves out
  CHECK_FALSE(is_found("@p mov.u32 r1, 5;\n@!p mov.u32 r1, 6;\n" + kStore));
  CHECK_FALSE(is_found("@p mov.u32 r1, 5;\n@p st.global.b32 [d0], r1;"));
  CHECK(is_found("@q bra OUT;\nadd.u32 r1, r0, 1;\nOUT:"));
  CHECK(is_found("@q st.global.b32 [d0], r0;"));
  CHECK(is_found("mov.u32 r1, 0;\n@q mov.u32 r1, 1;\n" + kStore));
  CHECK(is_found("mad.lo.u32 r1, r2, 0, 32;\nbar.sync 1, r1;"));
  // One of two paths writes it.
  CHECK(is_found("@p bra ELSE;\nmov.u32 r1, 1;\nELSE:\n" + kStore));
  CHECK_FALSE(is_found("@p bra ELSE;\nmov.u32 r1, 1;\nbra.uni END;\nELSE: mov.u32 r1, 2;\nEND:\n" + kStore));
}

TEST_CASE("reads that do not matter") {
  CHECK_FALSE(is_found("mov.u32 r1, r2;\nadd.u32 r3, r1, r2;"));
  CHECK_FALSE(is_found("setp.ge.u32 q, r0, 0;\nselp.b32 r1, r0, r2, q;\n" + kStore));
  CHECK(is_found("selp.b32 r1, r0, r2, p;\n" + kStore));
  CHECK_FALSE(is_found("add.u32 r1, r2, 1;\nmov.u32 r1, 3;\n" + kStore));
  CHECK_FALSE(is_found("atom.global.add.u32 r1, [d0], r0;\n" + kStore));
}

TEST_CASE("bytes of a register that nobody wrote stay apart from those that somebody did") {
  const std::string half = kNoMore + "mov.b64 d2, {r0, r2};\n";  // the upper half is nobody's
  CHECK_FALSE(is_found(half + "cvt.u32.u64 r1, d2;\n" + kStore));
  CHECK_FALSE(is_found(half + "mov.b64 {r1, _}, d2;\n" + kStore));
  CHECK_FALSE(is_found(half + "mov.b64 {r1, r3}, d2;\n" + kStore));
  CHECK(is_found(half + "mov.b64 {r3, r1}, d2;\n" + kStore));
  CHECK_FALSE(is_found(half + "shl.b64 d2, d2, 32;\nshr.u64 d2, d2, 32;\ncvt.u32.u64 r1, d2;\n" + kStore));
  CHECK(is_found(half + "shr.u64 d2, d2, 31;\ncvt.u32.u64 r1, d2;\n" + kStore));
  CHECK_FALSE(is_found(half + "and.b64 d2, d2, 0xFFFFFFFF;\nst.global.b64 [d3], d2;"));
  CHECK(is_found(half + "and.b64 d2, d2, 0xFFFFFFFFFF;\nst.global.b64 [d3], d2;"));
  CHECK_FALSE(is_found(half + "add.u64 d2, d2, d1;\ncvt.u32.u64 r1, d2;\n" + kStore));
  CHECK(is_found(kNoMore + "mov.b64 d2, {r2, r0};\nadd.u64 d2, d2, d1;\nshr.u64 d2, d2, 32;\ncvt.u32.u64 r1, d2;\n" +
                 kStore));
  CHECK_FALSE(is_found(kNoMore + "cvt.u16.u32 h0, r0;\nmov.b32 r3, {h0, h1};\nprmt.b32 r1, r3, 0, 0x4410;\n" + kStore));
  CHECK(is_found(kNoMore + "cvt.u16.u32 h0, r0;\nmov.b32 r3, {h0, h1};\nprmt.b32 r1, r3, 0, 0x4420;\n" + kStore));
  CHECK_FALSE(is_found(kNoMore + "cvt.u16.u32 h0, r0;\nmov.b32 r3, {h0, h1};\nst.global.b16 [d0], r3;"));
  CHECK_FALSE(is_found(kNoMore + "cvt.u16.u32 h0, r0;\nmov.b32 r3, {h0, h1};\nbfe.u32 r1, r3, 3, 13;\n" + kStore));
  CHECK(is_found(kNoMore + "cvt.u16.u32 h0, r0;\nmov.b32 r3, {h0, h1};\nbfe.u32 r1, r3, 4, 13;\n" + kStore));
}

TEST_CASE("a condition that is decided without the unwritten one") {
  const std::string use = "selp.b32 r1, 1, 2, q;\n" + kStore;
  CHECK_FALSE(is_found("setp.lt.u32 q, r0, 0;\nand.pred q, q, s;\n" + use));
  CHECK(is_found("setp.ge.u32 q, r0, 0;\nand.pred q, q, s;\n" + use));
  CHECK_FALSE(is_found("setp.ge.u32 q, r0, 0;\nor.pred q, q, s;\n" + use));
  CHECK(is_found("setp.lt.u32 q, r0, 0;\nor.pred q, q, s;\n" + use));
}

TEST_CASE("a lane's value goes where shfl takes it") {
  // Lanes 4 and up have none; lanes 0 and 1 take from 0 to 3.
  const std::string exchange = "@p mov.u32 r1, 5;\nshfl.sync.bfly.b32 r1, r1, 2, 31, 0xFFFFFFFF;\n";
  CHECK_FALSE(is_found(exchange + "@p " + kStore));
  const auto taken = run(exchange + kStore);
  REQUIRE(taken.size() == 1);
  CHECK(taken[0].lane == 4);
  CHECK(is_found("@p mov.u32 r1, 5;\nredux.sync.add.u32 r1, r1, 0xFFFFFFFF;\n@p " + kStore));
}

TEST_CASE("a loop whose first round reads what it will not use") {
  CHECK_FALSE(
      is_found("mov.u32 r2, 0;\nLOOP: setp.gt.u32 q, r2, 0;\nselp.b32 r1, r3, r0, q;\nadd.u32 r3, r1, 1;\n"
               "add.u32 r2, r2, 1;\nsetp.lt.u32 q, r2, 3;\n@q bra LOOP;\n" +
               kStore));
}

}  // namespace
}  // namespace tessera::emulator::unwritten_registers_test
