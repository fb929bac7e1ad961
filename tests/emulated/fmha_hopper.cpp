// Attention on wgmma: windows, valid lengths, packed heads and split keys beside each other, drawn, in the emulator
// against float64. Each alone: fmha_window.cpp, fmha_split.cpp.
#include <doctest/doctest.h>

#include <random>

#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_hopper_test {
namespace {

using emulator::Schedule;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t operator()(std::int64_t first, std::int64_t last) {
    return std::uniform_int_distribution<std::int64_t>(first, std::max(first, last))(random_);
  }

 private:
  std::mt19937_64 random_;
};

struct Case {
  Fmha problem;
  reference::FmhaSizes sizes;
  testing::FmhaLaunchFacts facts;
};

Case draw_case(std::uint64_t seed) {
  constexpr int kHeadDims[][2] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}, {512, 512},
                                  {16, 16}, {32, 32}, {72, 72},   {80, 80},   {160, 160}};
  Draw draw(seed);
  Case c;
  const auto& dims = kHeadDims[draw(0, 10)];
  Fmha& problem = c.problem;
  problem.head_dim = dims[0];
  problem.head_dim_v = dims[1];
  problem.dtype = draw(0, 1) == 0 ? DType::bf16 : DType::f16;
  problem.mask = draw(0, 1) == 0 ? Mask::none : Mask::causal;
  problem.window = draw(0, 1) == 0 ? Window::none : Window::sliding;
  problem.seqused = static_cast<UsedLengths>(draw(0, 2));
  problem.output = draw(0, 3) == 0 ? Output::unnormalized : Output::normalized;
  problem.split_kv = draw(0, 1) == 0 ? SplitKv::off : draw(0, 1) == 0 ? SplitKv::on : SplitKv::dealt;
  problem.pack_gqa = 1 << (draw(0, 1) * draw(1, 4));
  if (draw(0, 1) == 0) problem.tile_m = 64;
  if (problem.output == Output::normalized && draw(0, 1) == 0) problem.sink = Sink::per_head;

  reference::FmhaSizes& sizes = c.sizes;
  sizes.batch = draw(1, 3);
  sizes.heads_kv = draw(1, 2);
  sizes.heads_q = sizes.heads_kv * *problem.pack_gqa;
  sizes.seqlen_q = draw(1, 300 / *problem.pack_gqa);
  sizes.seqlen_k = draw(0, 4) == 0 ? draw(0, 3) : draw(1, 500);
  sizes.head_dim = dims[0];
  sizes.head_dim_v = dims[1];
  testing::FmhaLaunchFacts& facts = c.facts;
  facts.input_seed = seed;
  if (problem.window == Window::sliding) {
    facts.window_size_left = draw(0, 3) == 0 ? -1 : draw(0, sizes.seqlen_k);
    facts.window_size_right = draw(0, 3) == 0 ? -1 : draw(0, 200);
  }
  const auto used = [&](std::int64_t length) {
    std::vector<std::int64_t> lengths;
    while (static_cast<std::int64_t>(lengths.size()) < sizes.batch)
      lengths.push_back(draw(0, 3) == 0 ? 0 : draw(0, length));
    return lengths;
  };
  if (problem.seqused == UsedLengths::qk) facts.seqused_q = used(sizes.seqlen_q);
  if (problem.seqused != UsedLengths::none) facts.seqused_k = used(sizes.seqlen_k);
  if (problem.split_kv == SplitKv::on) facts.num_splits = draw(1, 6);
  return c;
}

TEST_CASE("attention on wgmma: what a launch can ask for, together") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    const Case c = draw_case(seed);
    testing::check_runs(c.problem, c.sizes, *compiler, {Schedule::lazy, Schedule::adversarial}, 1, c.facts);
  }
}

}  // namespace
}  // namespace tessera::fmha_hopper_test
