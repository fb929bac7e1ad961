// The time model: what loads and copies by lanes wait for in the L1 and beside others that are under way.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>

#include "tests/emulator/time_run.h"

namespace tessera::emulator::time_test {
namespace {

/// Each lane's place so many bytes behind the one before, in d1; what lies there has come.
std::string places(int apart) {
  return fmt::format(
      "mul.wide.u32 d1, r0, {};\nadd.u64 d1, d0, d1;\nld.global.ca.u32 r5, [d1];\nst.shared.u32 [r3], r5;\nbar.sync "
      "0;\n",
      apart);
}

}  // namespace

TEST_CASE("time: the L1 hands out a word of each bank a cycle, and a warp's next load waits for more") {
  const auto load = [](int apart) { return each("ld.global.ca.u32 r5, [d1];\n", 32, places(apart)); };
  const double alone = load(4);
  CHECK(load(128) - alone == doctest::Approx(31 * h200().l1_wavefront_of_warp).epsilon(0.1));
  CHECK(load(64) - alone == doctest::Approx(15 * h200().l1_wavefront_of_warp).epsilon(0.1));  // two banks
  const auto by_16_warps = [](int apart) { return each("ld.global.ca.u32 r5, [d1];\n", 512, places(apart)) / 16; };
  CHECK(by_16_warps(8) == doctest::Approx(2).epsilon(0.1));
}

TEST_CASE("time: copies of four bytes that lie in a sector come from the L1 after the first") {
  const auto copies = [](int apart, const char* way, int bytes) {
    std::string body = "and.b32 r4, r0, 31;\nshl.b32 r4, r4, 4;\nadd.u32 r4, r1, r4;\n" + places(64);
    for (int i = 0; i < 8; ++i)
      body += fmt::format("cp.async.{}.shared.global [r4], [d1+{}], {};\ncp.async.wait_all;\n", way, apart * i, bytes);
    return cycles(body);
  };
  // Seven of eight wait for the L1, not for the L2 or the memory.
  CHECK(copies(4, "ca", 4) < copies(64, "ca", 4) - 5 * h200().l2_latency);
  CHECK(copies(0, "cg", 16) > copies(4, "ca", 4) + 5 * h200().l2_latency);  // those by-pass it
}

TEST_CASE("time: a load waits longer where others of its multiprocessor are under way") {
  // Each warp of all multiprocessors loads 512 bytes, waits, and loads the next ones.
  const auto hops = [](std::uint32_t threads, int count) {
    std::string body = fmt::format(
        "mov.u32 r5, %ctaid.x;\nmul.wide.u32 d1, r5, {};\nmul.wide.u32 d2, r0, 16;\nadd.u64 d1, d1, d2;\n"
        "add.u64 d1, d0, d1;\n",
        threads * 16 * 16);
    for (int i = 0; i < count; ++i)
      body += fmt::format(
          "ld.global.cg.v4.u32 {{r6, r7, r8, r9}}, [d1];\nadd.u32 r6, r6, {};\ncvt.u64.u32 d2, r6;\n"
          "add.u64 d1, d1, d2;\n",
          threads * 16);
    return time_of_grid(body + "st.shared.u64 [r1], d1;\n", threads, 132, 132 * 512 * 16 * 4).cycles;
  };
  const auto hop = [&](std::uint32_t threads) { return (hops(threads, 12) - hops(threads, 4)) / 8; };
  const double takes = 512 * 16 * 132 / h200().hbm_bytes_per_us * h200().clock_mhz;  // those of 16 warps
  CHECK(hop(512) - hop(32) > 0.8 * h200().hbm_behind * takes);
  CHECK(hop(512) < h200().hbm_latency + 2 * takes);
}

}  // namespace tessera::emulator::time_test
