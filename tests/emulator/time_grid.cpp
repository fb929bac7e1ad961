// What of a grid runs on which multiprocessor, and what its memory takes: emulator/time/whole.cpp.
#include <cmath>

#include "emulator/time/whole.h"
#include "tests/emulator/time_run.h"

namespace tessera::emulator {
namespace {

using namespace time_test;

/// A loop of multiply-adds that do not wait for each other, `turns` (a register) times; its label has a number.
std::string busy_loop(const char* turns, int number) {
  return fmt::format("mov.u32 r4, 0;\nL{0}:\n{1}add.u32 r4, r4, 1;\nsetp.lt.u32 q, r4, {2};\n@q bra L{0};\n", number,
                     multiply_adds(64), turns);
}

}  // namespace

TEST_CASE("time: CTAs that are there at once are dealt round all multiprocessors, then round them again") {
  const auto kernel = [](const char* is_long) {
    return time_of_grid(fmt::format("mov.u32 r5, %ctaid.x;\nmov.u32 r6, 4;\n{}\n@p mov.u32 r6, 40;\n{}", is_long,
                                    busy_loop("r6", 0)),
                        512, 264)
        .cycles;
  };
  const double all = kernel("setp.ge.u32 p, r5, 0;");
  CHECK(kernel("setp.lt.u32 p, r5, 132;") < 0.65 * all);  // each multiprocessor has a long one and a short one
  CHECK(kernel("and.b32 r7, r5, 1;\nsetp.eq.u32 p, r7, 0;") == doctest::Approx(all).epsilon(0.02));  // or two long ones
}

TEST_CASE("time: warps of small CTAs go to all sub-cores, also where one takes the place of another") {
  const auto kernel = [](std::uint32_t threads, std::uint32_t ctas) {
    return time_of_grid("mov.u32 r6, 20;\n" + busy_loop("r6", 0), threads, ctas).cycles;
  };
  // Six CTAs a multiprocessor, 12 rounds: of two warps half as long as of four.
  const double two = kernel(64, 12 * 6 * 132), four = kernel(128, 12 * 6 * 132);
  CHECK(two == doctest::Approx(four / 2).epsilon(0.15));
}

TEST_CASE("time: a grid that the memory binds begins with what comes before it, and ends when what it wrote is taken") {
  // 64 KiB read by each of 1,056 CTAs, with multiply-adds before, which a round of CTAs does before it reads first.
  const auto kernel = [](int work) {
    std::string body =
        "mov.u32 r5, %ctaid.x;\nmul.wide.u32 d1, r5, 65536;\nmul.wide.u32 d2, r0, 16;\nadd.u64 d1, d1, d2;\n"
        "add.u64 d1, d0, d1;\n" +
        repeated("fma.rn.f32 f6, f6, f6, f6;\n", work) + "bar.sync 0;\n";
    for (int i = 0; i < 4; ++i)
      body += fmt::format("ld.global.cg.v4.f32 {{f2, f3, f4, f5}}, [d1+{}];\nadd.f32 f6, f6, f2;\n", i * 16384);
    return time_of_grid(body + "st.shared.f32 [r3], f6;\n", 1024, 1056, 1056 * 16384);
  };
  const LaunchTime some = kernel(200);
  const double memory = some.hbm_bytes / h200().hbm_bytes_per_us * h200().clock_mhz;
  CHECK(some.cycles > memory + h200().first_access + 200 * h200().class_of("fma32").latency);
  // 132 CTAs that write 64 KiB each, all at once, and those that write 128: as long as the memory takes for the others.
  const auto writes = [](int count) {
    std::string body = fmt::format(
        "mov.u32 r5, %ctaid.x;\nmul.wide.u32 d1, r5, {};\nmul.wide.u32 d2, r0, 16;\nadd.u64 d1, d1, d2;\n"
        "add.u64 d1, d0, d1;\nmov.f32 f2, 0f00000000;\n",
        count * 16384);
    for (int i = 0; i < count; ++i) body += fmt::format("st.global.v4.f32 [d1+{}], {{f2, f2, f2, f2}};\n", i * 16384);
    return time_of_grid(body, 1024, 132, 132 * 8 * 4096).cycles;
  };
  const double more = 132 * 65536.0 / h200().hbm_bytes_per_us * h200().clock_mhz;
  CHECK(writes(8) - writes(4) > 0.9 * more);
}

TEST_CASE("time: a grid that waits for the memory about as long as for itself takes longer than either") {
  CHECK(softened(1000, 0, 800, 4) == doctest::Approx(1000));  // what it takes alone does not matter
  CHECK(softened(900, 500, 1000, 4) == doctest::Approx(1000 * std::pow(1.0625, 0.25)));
  CHECK(softened(1100, 1000, 1000, 2) == doctest::Approx(1100 + 1000 * (std::sqrt(2.0) - 1)));
  CHECK(softened(900, 1000, 950, 0) == doctest::Approx(950));  // not known
}

TEST_CASE("time: what a grid reads is the mean of its CTAs, not what the middle one reads") {
  // CTAs from 50 on read 16 KiB, those before them 64 KiB.
  std::string body =
      "mov.u32 r5, %ctaid.x;\nsetp.lt.u32 p, r5, 50;\nmul.wide.u32 d1, r5, 65536;\nmul.wide.u32 d2, r0, 16;\nadd.u64 "
      "d1, d1, d2;\nadd.u64 d1, d0, d1;\n"
      "ld.global.cg.v4.f32 {f2, f3, f4, f5}, [d1];\n";
  for (int i = 1; i < 4; ++i) body += fmt::format("@p ld.global.cg.v4.f32 {{f2, f3, f4, f5}}, [d1+{}];\n", i * 16384);
  CHECK(time_of_grid(body, 1024, 132, 132 * 16384).global_read_bytes ==
        doctest::Approx((50 * 4 + 82) * 16384).epsilon(0.1));
}

TEST_CASE(
    "time: what a grid moves is what its CTAs do on their multiprocessors, where a second one finds in the L1 what the "
    "first read") {
  // CTAs of 128 threads that read the same 16 KiB and 2 KiB of their own, and write 2 KiB.
  const auto moved = [](std::uint32_t ctas) {
    std::string body =
        "mov.u32 r5, %ctaid.x;\nmul.wide.u32 d2, r0, 16;\nadd.u64 d3, d0, d2;\nmul.wide.u32 d1, r5, 2048;\n"
        "add.u64 d1, d1, d3;\n";
    for (int i = 0; i < 8; ++i) body += fmt::format("ld.global.ca.v4.f32 {{f2, f3, f4, f5}}, [d3+{}];\n", i * 2048);
    body += "ld.global.ca.v4.f32 {f6, f7, f8, f9}, [d1+16384];\nst.global.v4.f32 [d1+1048576], {f6, f7, f8, f9};\n";
    return time_of_grid(body, 128, ctas, 1 << 19);
  };
  for (const std::uint32_t ctas : {132U, 200U, 264U}) {
    CAPTURE(ctas);
    const LaunchTime time = moved(ctas);
    CHECK(time.global_written_bytes == doctest::Approx(ctas * 2048.0).epsilon(0.001));
    CHECK(time.global_read_bytes == doctest::Approx(132 * 16384.0 + ctas * 2048.0).epsilon(0.001));
  }
}

}  // namespace tessera::emulator
