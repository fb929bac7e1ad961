// What takes how long: growth and ratios, by the CPU time of this process, the least of several runs.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::cost_test {
namespace {

std::string entry(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{\n"
         ".reg .pred p; .reg .b32 r<16>; .reg .b64 d<8>; .reg .f32 f<16>;\n.shared .align 128 .b8 smem[32768];\n"
         "ld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\nmov.u32 r1, smem;\nshl.b32 r2, r0, 2;\nadd.u32 r3, r1, "
         "r2;\n" +
         body + "\nret;\n}\n";
}

double seconds_of(const std::string& body, const DeviceOptions& options, std::uint32_t threads) {
  double least = 1e9;
  for (int i = 0; i < 3; ++i) {
    EmulatedDevice device(options);
    std::vector<std::uint32_t> values(1024);
    const std::clock_t start = std::clock();
    CHECK(tessera::testing::run_test_entry(device, entry(body), values, threads).empty());
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST_CASE("cost: many small cp.async under way take time by their number") {
  const auto copies = [](int count) {
    return fmt::format(
        "mov.u32 r4, 0;\nAGAIN: cp.async.ca.shared.global [r3], [d0], 4;\nadd.u32 r4, r4, 1;\nsetp.lt.u32 p, r4, {};\n"
        "@p bra AGAIN;\ncp.async.wait_all;",
        count);
  };
  for (const Schedule schedule : {Schedule::fair, Schedule::lazy}) {
    DeviceOptions options;
    options.schedule = schedule;
    const double few = seconds_of(copies(2000), options, 32), many = seconds_of(copies(16000), options, 32);
    MESSAGE("2,000 and 16,000 of them: ", 1e3 * few, " and ", 1e3 * many, " ms");
    CHECK(many < 20 * few);  // 8; with the square 64
  }
}

// Four broadcasts, a row and their products, as a product of matrices in shared memory has them.
TEST_CASE("cost: the race detector on a kernel that lives in shared memory") {
  std::string body =
      "and.b32 r5, r0, 31;\nshl.b32 r5, r5, 2;\nadd.u32 r5, r1, r5;\nshr.u32 r6, r0, 5;\nshl.b32 r6, r6, 7;\n"
      "add.u32 r6, r1, r6;\nmov.u32 r4, 0;\nAGAIN:\n";
  for (int i = 0; i < 8; ++i) body += fmt::format("st.shared.b32 [r3+{}], r0;\n", 1024 * i);
  body += "bar.sync 0;\n";
  for (int q = 0; q < 32; ++q) {
    body += fmt::format("ld.shared.f32 f1, [r5+{}];\n", 128 * q);
    for (int i = 0; i < 4; ++i)
      body += fmt::format("ld.shared.f32 f2, [r6+{}];\nfma.rn.f32 f{}, f1, f2, f{};\n", 4096 + 1024 * i + 4 * q, 4 + i,
                          i == 0 ? 1 : 2);
  }
  body += "bar.sync 0;\nadd.u32 r4, r4, 1;\nsetp.lt.u32 p, r4, 40;\n@p bra AGAIN;";
  DeviceOptions options;
  const double without = seconds_of(body, options, 256);
  options.detects_races = true;
  const double with = seconds_of(body, options, 256);
  MESSAGE("a product in shared memory: ", 1e3 * without, " ms, with the race detector ", 1e3 * with);
  CHECK(with < 6 * without);  // 2.9 to 4.5 in quiet runs
}

}  // namespace
}  // namespace tessera::emulator::cost_test
