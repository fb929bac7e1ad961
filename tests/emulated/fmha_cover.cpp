#include "tests/emulated/fmha_cover.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <numeric>

#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/candidates.h"
#include "reference/random.h"
#include "spec/fmha_tcgen05.h"
#include "tessera/error.h"
#include "tessera/plan.h"

namespace tessera::testing {

namespace {

using fmha_tcgen05::Config;

struct HeadDims {
  int head_dim, head_dim_v, cta_group;
};
constexpr HeadDims kHeadDims[] = {{16, 16, 1},   {32, 32, 1},   {64, 64, 1},   {72, 72, 1},   {80, 80, 1},
                                  {96, 96, 1},   {128, 128, 1}, {160, 160, 1}, {192, 128, 1}, {192, 192, 1},
                                  {256, 256, 1}, {512, 512, 2}, {128, 128, 2}, {256, 256, 2}};
struct Heads {
  int heads, packed;
};
// The cover's; behind them those that only drawn kernels have.
constexpr Heads kHeads[] = {{1, 1}, {8, 1}, {3, 3}, {8, 8}, {128, 128}, {96, 96}, {20, 20}, {131, 131}};
constexpr int kHeadsOfCover = 5;
constexpr FmhaCombination kExtents{std::size(kHeadDims), 2, 4, 2, 2, 2, 2, 2, 3, kHeadsOfCover, 2, 2, 2, 2, 1, 3};
constexpr FmhaAxis kCoreAxes[] = {kAxisHeadDims, kAxisMask, kAxisSwizzle, kAxisPath, kAxisType};
/// No rule asks for these: every value goes with every legal combination.
constexpr FmhaAxis kFreeAxes[] = {kAxisMask, kAxisType, kAxisShape};

Fmha problem_of(const FmhaCombination& at) {
  const HeadDims& dims = kHeadDims[at[kAxisHeadDims]];
  Fmha problem;
  problem.arch = Arch::parse("sm_100a");
  problem.head_dim = dims.head_dim;
  problem.head_dim_v = dims.head_dim_v;
  problem.cta_group = dims.cta_group;
  problem.mask = at[kAxisMask] == 0 ? Mask::none : Mask::causal;
  problem.swizzle = static_cast<Swizzle>(at[kAxisSwizzle]);
  problem.p_path = at[kAxisPath] == 0 ? ProbabilityPath::tmem : ProbabilityPath::smem;
  problem.dtype = at[kAxisType] == 0 ? DType::bf16 : DType::f16;
  problem.output = at[kAxisOutput] == 0 ? Output::normalized : Output::unnormalized;
  problem.v_layout = at[kAxisVLayout] == 0 ? Layout::mn_major : Layout::k_major;
  problem.window = at[kAxisWindow] == 0 ? Window::none : Window::sliding;
  problem.seqused = at[kAxisUsed] == 0 ? UsedLengths::none : at[kAxisUsed] == 1 ? UsedLengths::k : UsedLengths::qk;
  problem.pack_gqa = kHeads[at[kAxisHeads]].packed;
  problem.split_kv = at[kAxisSplit] == 0 ? SplitKv::off : SplitKv::on;
  problem.kv_pools = at[kAxisPools] == 0 ? KvPools::dense : KvPools::sparse_window;
  problem.sink = at[kAxisSink] == 0 ? Sink::none : Sink::per_head;
  problem.q_layout = at[kAxisQueries] == 0 ? QueryLayout::dense : QueryLayout::ragged;
  if (at[kAxisKeys] == 1) problem.kv_dtype = DType::e4m3;
  if (at[kAxisKeys] == 2) {
    problem.o_dtype = problem.dtype;
    problem.dtype = DType::e4m3;
  }
  return problem;
}

/// Steps through the values of some axes; false behind the last.
template <typename Axes>
bool step(FmhaCombination& at, const Axes& axes) {
  for (const FmhaAxis axis : axes) {
    if (++at[axis] < kExtents[axis]) return true;
    at[axis] = 0;
  }
  return false;
}

/// Legal combinations with 0 on the free axes.
const std::vector<FmhaCombination>& legal_facts() {
  static const std::vector<FmhaCombination> legal = [] {
    std::vector<FmhaAxis> axes;
    for (int axis = 0; axis < kNumFmhaAxes; ++axis)
      if (std::find(std::begin(kFreeAxes), std::end(kFreeAxes), axis) == std::end(kFreeAxes))
        axes.push_back(static_cast<FmhaAxis>(axis));
    std::vector<FmhaCombination> found;
    FmhaCombination at{};
    do {
      if (is_legal(at)) found.push_back(at);
    } while (step(at, axes));
    return found;
  }();
  return legal;
}

/// Pairs of values of two axes, each value numbered through all axes.
class Pairs {
 public:
  Pairs() {
    for (std::size_t axis = 1; axis < kNumFmhaAxes; ++axis)
      first_[axis] = first_[axis - 1] + static_cast<std::size_t>(kExtents[axis - 1]);
    count_ = first_.back() + static_cast<std::size_t>(kExtents.back());
    is_open_.resize(count_ * count_, 0);
  }
  /// Calls visit with each pair's flag.
  template <typename Visit>
  void each(const FmhaCombination& at, Visit visit) {
    for (std::size_t a = 0; a < kNumFmhaAxes; ++a)
      for (std::size_t b = a + 1; b < kNumFmhaAxes; ++b)
        visit(is_open_[(first_[a] + static_cast<std::size_t>(at[a])) * count_ + first_[b] +
                       static_cast<std::size_t>(at[b])]);
  }
  void open(const FmhaCombination& at) {
    each(at, [](char& flag) { flag = 1; });
  }
  void close(const FmhaCombination& at) {
    each(at, [](char& flag) { flag = 0; });
  }
  int count(const FmhaCombination& at) {
    int count = 0;
    each(at, [&](char flag) { count += flag; });
    return count;
  }
  bool is_any_open() const { return std::find(is_open_.begin(), is_open_.end(), 1) != is_open_.end(); }

 private:
  std::array<std::size_t, kNumFmhaAxes> first_{};
  std::size_t count_ = 0;
  std::vector<char> is_open_;
};

/// Random numbers that depend on a combination and a seed alone.
class Draw {
 public:
  Draw(const FmhaCombination& at, std::uint64_t seed) : random_(mixed(at, seed), 1) {}
  /// first ... last
  std::int64_t operator()(std::int64_t first, std::int64_t last) {
    return random_.integer(turn_++, first, std::max(first, last));
  }

 private:
  static std::uint64_t mixed(const FmhaCombination& at, std::uint64_t seed) {
    std::uint64_t mixed = seed;
    for (const int value : at) mixed = mixed * 131 + static_cast<std::uint64_t>(value) + 7;
    return mixed;
  }
  reference::CounterRandom random_;
  std::uint64_t turn_ = 0;
};

/// Queries and keys by the axis of shapes.
void draw_lengths(const Config& c, int shape, std::int64_t slots, Draw& draw, reference::FmhaSizes& sizes) {
  const std::int64_t queries =
      std::max(1, fmha_tcgen05::used_rows_of_tile(c) / fmha_tcgen05::padded_heads(c));  // of a tile
  const std::int64_t wrapped = 2 * c.stages + 1;  // steps after which every slot was used twice
  if (shape == 2) {
    sizes.seqlen_k = draw(1, std::min<std::int64_t>(2 * c.tile_n - 1, 3 * queries));
    sizes.seqlen_q = sizes.seqlen_k + draw(1, std::min<std::int64_t>(queries, 64));
    return;
  }
  std::int64_t tiles = 1;
  sizes.seqlen_q = draw(1, queries == 1 ? 2 : queries - 1);
  if (shape == 1) {
    tiles = slots < 8 ? draw(2, 3) : 2;
    sizes.seqlen_q = (tiles - 1) * queries + draw(1, std::max<std::int64_t>(queries - 1, 1));
  }
  const std::int64_t steps = std::clamp<std::int64_t>(ceil_div(wrapped, slots * tiles), 2, wrapped);
  sizes.seqlen_k = steps * c.tile_n - draw(1, c.tile_n - 1);
}

/// Valid lengths of each sequence, none and one among them.
std::vector<std::int64_t> draw_used(std::int64_t batch, std::int64_t length, Draw& draw) {
  std::vector<std::int64_t> used{draw(length / 2, length)};
  while (static_cast<std::int64_t>(used.size()) < batch) {
    const std::int64_t kind = draw(0, 3);
    used.push_back(kind == 0 ? 0 : kind == 1 ? std::min<std::int64_t>(length, 1) : draw(0, length));
  }
  return used;
}

}  // namespace

FmhaCombination fmha_extents() { return kExtents; }

bool is_legal(const FmhaCombination& at) {
  const Heads& heads = kHeads[at[kAxisHeads]];
  if (at[kAxisPools] != 0 && heads.heads != heads.packed) return false;  // its launch wants all heads in a tile
  try {
    planned_kernel(problem_of(at));
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<FmhaCombination> fmha_core() {
  std::vector<FmhaCombination> all;
  FmhaCombination at{};
  do {
    if (is_legal(at)) all.push_back(at);
  } while (step(at, kCoreAxes));
  return all;
}

std::vector<FmhaCombination> fmha_cover() {
  const std::vector<FmhaCombination>& legal = legal_facts();
  Pairs pairs;
  for (const FmhaCombination& facts : legal) {
    FmhaCombination at = facts;
    do pairs.open(at);
    while (step(at, kFreeAxes));
  }
  // Each time the best of some that are drawn; where these have nothing new, the next one that has.
  std::vector<FmhaCombination> cover;
  constexpr int kDrawn = 2000;
  Draw draw({}, 1);
  const auto last = static_cast<std::int64_t>(legal.size()) - 1;
  const auto drawn = [&](std::int64_t index) {
    FmhaCombination at = legal[static_cast<std::size_t>(index)];
    for (const FmhaAxis axis : kFreeAxes) at[axis] = static_cast<int>(draw(0, kExtents[axis] - 1));
    return at;
  };
  while (pairs.is_any_open()) {
    FmhaCombination best{};
    int most = 0;
    const auto judge = [&](const FmhaCombination& at) {
      const int fresh = pairs.count(at);
      if (fresh > most) best = at;
      most = std::max(most, fresh);
    };
    for (int i = 0; i < kDrawn; ++i) judge(drawn(draw(0, last)));
    for (std::int64_t i = 0; most == 0 && i <= last; ++i) {
      FmhaCombination at = legal[static_cast<std::size_t>(i)];
      do judge(at);
      while (step(at, kFreeAxes));
    }
    pairs.close(best);
    cover.push_back(best);
  }
  return cover;
}

FmhaCombination with_drawn_facts(const FmhaCombination& core, std::uint64_t seed) {
  Draw draw(core, seed);
  for (;;) {
    FmhaCombination at = core;
    for (int axis = kAxisOutput; axis < kAxisShape; ++axis) {
      const int values = axis == kAxisHeads  ? static_cast<int>(std::size(kHeads))
                         : axis == kAxisKeys ? 3
                                             : kExtents[static_cast<std::size_t>(axis)];
      at[static_cast<std::size_t>(axis)] = static_cast<int>(draw(0, values - 1));
    }
    // Pools go with few others: drawn by themselves they would hardly ever appear.
    if (at[kAxisPools] != 0)
      for (const FmhaAxis axis :
           {kAxisOutput, kAxisVLayout, kAxisWindow, kAxisUsed, kAxisSplit, kAxisSink, kAxisQueries, kAxisKeys})
        at[axis] = 0;
    if (is_legal(at)) return at;
  }
}

FmhaCase draw_case(const FmhaCombination& at, std::uint64_t seed) {
  FmhaCase result{problem_of(at), {}, {}};
  const Config c = chosen_config<FmhaTcgen05Operator>(result.problem);
  const HeadDims& dims = kHeadDims[at[kAxisHeadDims]];
  const Heads& heads = kHeads[at[kAxisHeads]];
  Draw draw(at, seed);
  reference::FmhaSizes& sizes = result.sizes;
  FmhaLaunchFacts& facts = result.facts;
  sizes.head_dim = dims.head_dim;
  sizes.head_dim_v = dims.head_dim_v;
  sizes.batch = at[kAxisUsed] != 0 || at[kAxisQueries] != 0 ? draw(2, 3) : draw(0, 3) == 0 ? 2 : 1;
  sizes.heads_kv = at[kAxisPools] == 0 && heads.heads < 8 && draw(0, 2) == 0 ? 2 : 1;
  sizes.heads_q = sizes.heads_kv * heads.heads;
  const std::int64_t slots = sizes.batch * sizes.heads_q / heads.packed;
  draw_lengths(c, at[kAxisShape], slots, draw, sizes);
  if (at[kAxisPools] != 0) {
    sizes.seqlen_q = draw(1, 3);
    facts.topk = draw(0, 4) == 0 ? 0 : draw(1, 3 * c.tile_n);
    facts.seqlen_swa = draw(0, 2 * c.tile_n);
    sizes.seqlen_k = facts.topk + draw(1, 200);
  }
  facts.has_sink = draw(0, 3) != 0;
  if (at[kAxisWindow] != 0) {
    facts.window_size_left = draw(0, 3) == 0 ? -1 : draw(0, sizes.seqlen_k);
    facts.window_size_right = draw(0, 3) == 0 ? -1 : draw(0, 200);
  }
  if (at[kAxisQueries] != 0) {
    // The first has as many as one sequence would, some others none; some rows are behind the last.
    facts.query_lengths = draw_used(sizes.batch, sizes.seqlen_q, draw);
    facts.query_lengths.front() = sizes.seqlen_q;
    sizes.seqlen_q = std::accumulate(facts.query_lengths.begin(), facts.query_lengths.end(), draw(0, 5));
  }
  if (at[kAxisUsed] == 2) facts.seqused_q = draw_used(sizes.batch, sizes.seqlen_q, draw);
  if (at[kAxisUsed] != 0) facts.seqused_k = draw_used(sizes.batch, sizes.seqlen_k, draw);
  if (at[kAxisSplit] != 0) facts.num_splits = draw(1, 4);
  if (at[kAxisKeys] != 0) facts.descales = static_cast<FmhaLaunchFacts::Descales>(draw(0, 2));
  if (seed % 2 == 0) facts.softmax_scale = 1.0;
  facts.num_sms = draw(0, 1) == 0 ? 1 : 4;
  facts.input_seed = static_cast<std::uint64_t>(draw(1, 1 << 30));
  return result;
}

}  // namespace tessera::testing
