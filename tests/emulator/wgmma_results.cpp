// What a wgmma reads too early matters only if somebody uses its result.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::wgmma_results_test {
namespace {

// A product of shared memory that nobody has written, then `after`.
std::vector<EmulatorFinding> run(const std::string& after, bool detects_races) {
  const std::string product =
      "wgmma.fence.sync.aligned;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{f0, f1, f2, f3}}, desc, desc, {}, 1, 1, 0, 0;\n"
      "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  std::string body = fmt::format(fmt::runtime(product), "no");
  for (std::size_t at = 0; at < after.size(); ++at) {
    if (after[at] == 'w') {  // fill the operands, as they must be, when all warps have read them
      body += "bar.sync 0;\n";
      body += "mov.u32 r0, %tid.x;\nshl.b32 r0, r0, 4;\nmov.u32 r1, smem;\nadd.u32 r0, r0, r1;\n";
      body += "st.shared.v4.b32 [r0], {0, 0, 0, 0};\nfence.proxy.async;\nbar.sync 0;\n";
    }
    if (after[at] == 's') {
      std::string other = fmt::format(fmt::runtime(product), "no");
      for (std::size_t i = 0; (i = other.find("{f0, f1, f2, f3}", i)) != std::string::npos;)
        other.replace(i, 16, "{f4, f5, f6, f7}");
      body += other + "mov.b32 r1, f4;\n";
    }
    if (after[at] == 'n') body += fmt::format(fmt::runtime(product), "no");
    if (after[at] == 'a') body += fmt::format(fmt::runtime(product), "yes");
    if (after[at] == 'u')
      body += "mov.u32 r0, %tid.x;\nmul.wide.u32 desc, r0, 4;\nadd.u64 out, out, desc;\nst.global.f32 [out], f3;\n";
  }
  const std::string ptx = fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred no, yes;\n.reg .b32 r<4>;\n.reg .f32 f<8>;\n.reg .b64 out, desc;\n.shared .align 1024 .b8 "
      "smem[4096];\nld.param.u64 out, [buffer];\nsetp.ne.u32 no, 0, 0;\nsetp.eq.u32 yes, 0, 0;\nmov.b32 f0, 0;\n"
      "mov.b32 f1, 0;\nmov.b32 f2, 0;\nmov.b32 f3, 0;\nmov.b32 f4, 0;\nmov.b32 f5, 0;\nmov.b32 f6, 0;\nmov.b32 f7, 0;\n"
      // LBO 128, SBO 256 bytes, no swizzle, at the first byte of smem.
      "mov.u32 r0, smem;\nshr.u32 r0, r0, 4;\ncvt.u64.u32 desc, r0;\nor.b64 desc, desc, "
      "0x0000001000080000;\n{}ret;\n}}\n",
      body);
  DeviceOptions options;
  options.detects_races = detects_races;
  EmulatedDevice device(options);
  std::vector<float> values(128);
  return tessera::testing::run_test_entry(device, ptx, values, 128);
}

TEST_CASE("early reads of a wgmma whose result nobody uses") {
  for (const bool races : {false, true}) {
    CAPTURE(races);
    const auto names = [&](const std::string& after) {
      std::string text;
      for (const EmulatorFinding& finding : run(after, races)) text += finding.name + " ";
      return text;
    };
    CHECK(names("") == "");
    CHECK(names("u") == "smem-uninitialised ");
    CHECK(names("wn") == "");
    CHECK(names("wnu") == "");
    CHECK(names("wa") == "");
    CHECK(names("wan") == "");
    CHECK(names("wau") == "smem-uninitialised ");
    CHECK(names("n") == "");
    CHECK(names("nu") == "smem-uninitialised ");
    // Another product's registers are read, this one's are not.
    CHECK(names("wsn") == "");
  }
}

}  // namespace
}  // namespace tessera::emulator::wgmma_results_test
