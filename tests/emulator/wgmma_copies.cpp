// Copies of registers that a wgmma still writes: compilers move them before the wait, and the assembler gives both one
// place.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::wgmma_copies_test {
namespace {

struct Result {
  std::vector<EmulatorFinding> findings;
  std::vector<float> values;
};

/// A product of ones, so that every element of D is 16; `before` the wait, then `after` it, which stores f4.
Result run(const std::string& before, const std::string& after, Schedule schedule) {
  const std::string ptx = fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred no;\n.reg .b32 r<8>;\n.reg .f32 f<8>;\n.reg .b64 out, desc, at;\n.shared .align 1024 .b8 "
      "smem[4096];\n"
      "ld.param.u64 out, [buffer];\nsetp.ne.u32 no, 0, 0;\nmov.b32 f0, 0;\nmov.b32 f1, 0;\nmov.b32 f2, 0;\nmov.b32 f3, "
      "0;\n"
      "mov.b32 f4, 0;\nmov.u32 r0, %tid.x;\nshl.b32 r0, r0, 4;\nmov.u32 r1, smem;\nadd.u32 r0, r0, r1;\n"
      "mov.b32 r2, 0x3f803f80;\nst.shared.v4.b32 [r0], {{r2, r2, r2, r2}};\nst.shared.v4.b32 [r0+2048], {{r2, r2, r2, "
      "r2}};\n"
      "fence.proxy.async;\nbar.sync 0;\nshr.u32 r1, r1, 4;\ncvt.u64.u32 desc, r1;\nor.b64 desc, desc, "
      "0x0000001000080000;\n"
      "wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{f0, f1, f2, f3}}, desc, desc, no, 1, 1, 0, 0;\n"
      "wgmma.commit_group.sync.aligned;\n{}\nwgmma.wait_group.sync.aligned 0;\n{}\n"
      "mov.u32 r0, %tid.x;\nmul.wide.u32 at, r0, 4;\nadd.u64 out, out, at;\nst.global.f32 [out], f4;\nret;\n}}\n",
      before, after);
  DeviceOptions options;
  options.schedule = schedule;
  EmulatedDevice device(options);
  Result result;
  result.values.assign(128, -1);
  result.findings = tessera::testing::run_test_entry(device, ptx, result.values, 128);
  return result;
}

}  // namespace

TEST_CASE("a copy of a register in flight has the product after the wait, and is in flight until then") {
  const std::string product =
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, desc, desc, no, 1, 1, 0, 0;\n"
      "wgmma.commit_group.sync.aligned;\n";
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    CAPTURE(static_cast<int>(schedule));
    const auto is_right = [&](const std::string& before, const std::string& after, float value) {
      const Result result = run(before, after, schedule);
      return result.findings.empty() && result.values == std::vector<float>(128, value);
    };
    const auto is_found = [&](const std::string& before) {
      const Result result = run(before, "", schedule);
      return result.findings.size() == 1 && result.findings[0].name == "wgmma-register-in-flight";
    };
    CHECK(is_right("mov.b32 r3, f0;", "mov.b32 f4, r3;", 16));
    CHECK(is_right("mov.b32 r3, f0;\nmov.b32 f4, r3;", "", 16));
    CHECK(is_right("mov.f32 f4, f2;", "add.f32 f4, f4, f3;", 32));
    CHECK(is_right("mov.b32 f4, r2;\nmov.f32 f4, f1;", "", 16));
    CHECK(is_found("add.f32 f4, f0, f1;"));
    CHECK(is_found("mov.b32 r3, f0;\nadd.u32 r4, r3, r3;"));  // the copy is used
    CHECK(is_found("mov.b32 f1, f4;"));                       // written while in flight
    CHECK(is_found("mov.b32 f1, f0;"));
    CHECK(is_found("mov.b32 r3, f0;\n" + product));  // which of the two products was copied?
  }
}

}  // namespace tessera::emulator::wgmma_copies_test
