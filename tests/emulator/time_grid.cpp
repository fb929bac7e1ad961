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

TEST_CASE("time: warps of small CTAs go to all sub-cores, also where one takes the place of another") {
  const auto kernel = [](std::uint32_t threads, std::uint32_t ctas) {
    return time_of_grid("mov.u32 r6, 20;\n" + busy_loop("r6", 0), threads, ctas).cycles;
  };
  // Six CTAs a multiprocessor, 12 rounds: of two warps half as long as of four.
  const double two = kernel(64, 12 * 6 * 132), four = kernel(128, 12 * 6 * 132);
  CHECK(two == doctest::Approx(four / 2).epsilon(0.15));
}

}  // namespace tessera::emulator
