// Attention on wgmma and by mma.sync over a V whose keys are contiguous, in the emulator against float64. On tcgen05 it
// is an axis of fmha_cover.cpp.
#include <doctest/doctest.h>

#include "tests/emulated/fmha_run.h"
#include "tests/support/sample.h"

namespace tessera::fmha_k_major_test {
namespace {

using emulator::Schedule;

Fmha k_major(int head_dim, int head_dim_v, Mask mask) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.head_dim_v = head_dim_v;
  problem.mask = mask;
  problem.v_layout = Layout::k_major;
  return problem;
}

// Keys of a tile in parts: of equal size, dealt, dealt to ragged queries.
template <class Check>
void check_split_keys(const Check& check) {
  Fmha other = k_major(128, 128, Mask::none);
  other.split_kv = SplitKv::on;
  other.pack_gqa = 4;
  other.sink = Sink::per_head;
  check(other, {2, 8, 2, 5, 700}, {.num_splits = 3});
  other.split_kv = SplitKv::dealt;
  check(other, {2, 8, 2, 5, 700}, {.num_sms = 3});
  other.q_layout = QueryLayout::ragged;
  check(other, {3, 8, 2, 40, 300}, {.query_lengths = {20, 0, 17}, .num_sms = 3});
}

TEST_CASE("attention on wgmma: a V whose keys are contiguous") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  const auto check = [&](const Fmha& problem, reference::FmhaSizes sizes, const testing::FmhaLaunchFacts& facts = {}) {
    sizes.head_dim = problem.head_dim;
    sizes.head_dim_v = *problem.head_dim_v;
    testing::check_runs(problem, sizes, *compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  constexpr int kHeadDims[][2] = {{16, 16},   {32, 32},   {64, 64},   {72, 72},   {80, 80},   {96, 96},
                                  {128, 128}, {160, 160}, {192, 128}, {192, 192}, {256, 256}, {512, 512}};
  for (const auto& dims : kHeadDims)
    for (const Mask mask : {Mask::none, Mask::causal}) check(k_major(dims[0], dims[1], mask), {2, 4, 2, 70, 261});
  // More queries than keys: tiles that see none, behind a last key that no box may begin at.
  check(k_major(64, 64, Mask::causal), {2, 2, 1, 500, 131});
  check(k_major(128, 128, Mask::none), {1, 2, 1, 5, 0});
  Fmha narrow = k_major(64, 64, Mask::causal);
  narrow.swizzle = Swizzle::b32;
  narrow.tile_n = 48;
  narrow.dtype = DType::f16;
  narrow.output = Output::unnormalized;
  check(narrow, {1, 2, 1, 100, 200});
  narrow.swizzle = Swizzle::none;
  narrow.window = Window::sliding;
  check(narrow, {1, 2, 1, 100, 300}, {.window_size_left = 70, .window_size_right = 5});
  check_split_keys(check);
}

TEST_CASE("attention by mma.sync: a V whose keys are contiguous") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  testing::Sample sample(5);
  std::uint64_t seed = 1;
  const auto check = [&](Fmha problem, reference::FmhaSizes sizes, const testing::FmhaLaunchFacts& facts = {}) {
    problem.arch = Arch::parse(++seed % 3 == 0 ? "sm_90a" : "sm_120a");
    if (problem.arch.number == 90) problem.mma_kind = MmaKind::mma_f16;
    sizes.head_dim = problem.head_dim;
    sizes.head_dim_v = *problem.head_dim_v;
    if (sample.takes())
      testing::check_runs(problem, sizes, *compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  constexpr int kHeadDims[][2] = {{64, 64},   {16, 16},   {32, 32},   {72, 72},   {80, 80},  {96, 96},
                                  {128, 128}, {160, 160}, {192, 128}, {192, 192}, {256, 256}};
  for (const auto& dims : kHeadDims)
    for (const Mask mask : {Mask::none, Mask::causal})
      for (const int tile_m : {64, 128, 256}) {
        Fmha problem = k_major(dims[0], dims[1], mask);
        if (dims[0] <= 128 || tile_m < 256) problem.tile_m = tile_m;
        check(problem, {2, 4, 2, 150, 261});
      }
  // Every swizzle, scores of every kind, more queries than keys, split keys.
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128}) {
    Fmha narrow = k_major(64, 64, Mask::causal);
    narrow.swizzle = swizzle;
    narrow.tile_n = 64;
    narrow.dtype = DType::f16;
    narrow.output = Output::unnormalized;
    check(narrow, {1, 2, 1, 300, 131});
    narrow.window = Window::sliding;
    narrow.softcap = Softcap::tanh;
    check(narrow, {1, 2, 1, 100, 300}, {.window_size_left = 70, .window_size_right = 5});
  }
  check_split_keys(check);
}

}  // namespace
}  // namespace tessera::fmha_k_major_test
