// Products by mma.sync, compiled for sm_120a, which no such hardware has run, and for sm_90a, in the emulator, against
// float64.
#include <doctest/doctest.h>

#include "emulator/observers/statistics.h"
#include "tests/emulated/gemm_run.h"

namespace tessera::gemm_mma_test {
namespace {

using namespace gemm_run;

const Case kCases[] = {
    {"one step a tile and more tiles than CTAs, a ring that is never full",
     {{"arch", "sm_120a"}, {"tile_m", "64"}, {"tile_n", "64"}, {"stages", "3"}},
     {{"m", 150}, {"n", 133}, {"k", 56}, {"ldd", 136}, {"num_sms", 4}}},
    {"eight warps with 64 rows and columns each, two slots, c and a bias, rows of d that end within 16 bytes",
     {{"arch", "sm_120f"},
      {"tile_m", "128"},
      {"tile_n", "256"},
      {"c", "matrix"},
      {"bias", "column"},
      {"activation", "relu"}},
     {{"m", 131}, {"n", 203}, {"k", 136}, {"ldd", 208}, {"ldc", 205}, {"num_sms", 1}}},
    {"both operands mn-major, blocks of 32 rows in panels of 64, f16 to f16",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"dtype", "f16"},
      {"d_dtype", "f16"},
      {"a_layout", "mn"},
      {"b_layout", "mn"},
      {"tile_m", "64"},
      {"tile_n", "64"}},
     {{"m", 70}, {"n", 90}, {"k", 200}, {"lda", 72}, {"ldb", 96}, {"l", 2}}},
    {"a mn-major over two panels, b k-major, fp32 out, rows of odd length",
     {{"arch", "sm_121a"}, {"a_layout", "mn"}, {"d_dtype", "f32"}, {"tile_m", "128"}, {"tile_n", "64"}},
     {{"m", 136}, {"n", 67}, {"k", 72}, {"ldd", 69}}},
    {"b mn-major over two panels, few rows, gelu",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"b_layout", "mn"},
      {"activation", "gelu"},
      {"tile_m", "16"},
      {"tile_n", "128"}},
     {{"m", 21}, {"n", 200}, {"k", 72}},
     Fill::standard},
    {"d over c, two matrices, tiles of 32 rows",
     {{"arch", "sm_120a"}, {"c", "matrix"}, {"tile_m", "32"}, {"tile_n", "64"}},
     {{"m", 50}, {"n", 136}, {"k", 72}, {"ldc", 144}, {"ldd", 144}, {"l", 2}},
     Fill::integer,
     true},
    {"d by tensor map, many tiles a CTA, steps of two tiles in the ring, rows that end within a block of 16",
     {{"arch", "sm_120a"}, {"tile_m", "128"}, {"tile_n", "128"}, {"split_k", "1"}, {"stages", "3"}},
     {{"m", 203}, {"n", 200}, {"k", 136}, {"l", 2}, {"ldd", 208}, {"num_sms", 2}}},
    {"the same where rows of d are no multiples of 16 bytes",
     {{"arch", "sm_120a"}, {"tile_m", "256"}, {"tile_n", "64"}, {"split_k", "1"}, {"bias", "column"}},
     {{"m", 270}, {"n", 67}, {"k", 136}, {"ldd", 69}, {"num_sms", 1}}},
    {"fp32 d by tensor map in two panels, one block of a warp at a time, two slots",
     {{"arch", "sm_90a"},
      {"mma_kind", "mma.f16"},
      {"d_dtype", "f32"},
      {"tile_m", "256"},
      {"tile_n", "128"},
      {"split_k", "1"}},
     {{"m", 270}, {"n", 132}, {"k", 72}, {"num_sms", 1}},
     Fill::standard},
    {"nothing to add up",
     {{"arch", "sm_120a"}, {"bias", "column"}, {"activation", "silu"}, {"tile_m", "32"}, {"tile_n", "64"}},
     {{"m", 40}, {"n", 64}, {"k", 0}}},
};

}  // namespace

TEST_CASE("products by mma.sync") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  using enum EmulatorSchedule;
  for (const Case& test : kCases)
    check(test, *compiler,
          &test == kCases ? std::vector{fair, eager, lazy, adversarial, split, weak} : std::vector{fair, adversarial});
}

TEST_CASE("products by mma.sync: what ldmatrix reads at once lies in different banks, in every layout") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  for (const char* const a : {"k", "mn"})
    for (const char* const b : {"k", "mn"}) {
      const Case test{"banks",
                      {{"arch", "sm_120a"}, {"a_layout", a}, {"b_layout", b}, {"tile_m", "64"}, {"tile_n", "64"}},
                      {{"m", 64}, {"n", 64}, {"k", 64}}};
      emulator::DeviceOptions options;
      options.arch = "sm_120a";
      EmulatedDevice device(options);
      emulator::StatisticsObserver observer;
      device.set_observer(&observer);
      GemmRun run(test, *compiler, device);
      std::vector<Finding> findings;
      run.run(findings);
      device.set_observer(nullptr);
      CHECK(run.compare().pass);
      const emulator::AccessCounts& fetched = observer.accesses.at("ldmatrix");
      CHECK(fetched.conflicts == 0);
      CHECK(fetched.wavefronts == fetched.instructions * 4);
    }
}

}  // namespace tessera::gemm_mma_test
