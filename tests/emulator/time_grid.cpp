// What of a grid runs on which multiprocessor, and what its memory takes: emulator/time/whole.cpp.
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

}  // namespace tessera::emulator
