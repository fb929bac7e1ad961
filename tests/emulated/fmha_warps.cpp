// Attention by mma.sync, of few queries, four warps sharing each block's keys, and of many, warps with rows of their
// own. 16-bit keys and e4m3 ones, every head_dim that there are registers for, beside what else a launch can ask for.
#include <doctest/doctest.h>

#include <array>
#include <random>

#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_warps_test {
namespace {

using emulator::Schedule;
using Descales = testing::FmhaLaunchFacts::Descales;
using PoolLayout = testing::FmhaLaunchFacts::PoolLayout;

Fmha of_warps(int head_dim, bool has_8_bit_keys, DType dtype = DType::bf16) {
  Fmha problem;
  problem.head_dim = head_dim;
  problem.dtype = dtype;
  problem.mma_kind = MmaKind::mma_f16;
  problem.tile_m = 16;
  if (has_8_bit_keys) problem.kv_dtype = DType::e4m3;
  return problem;
}

TEST_CASE("attention by warps: every head_dim, either type of queries and keys, 1 to 40 rows") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{16, 16}, {32, 32}, {64, 64}, {80, 80}, {96, 96}, {128, 128}, {160, 160}, {192, 128}};
  int turn = 0;
  for (const auto& dims : kHeadDims)
    for (const bool has_8_bit_keys : {false, true}) {
      ++turn;
      Fmha problem = of_warps(dims[0], has_8_bit_keys, turn % 3 == 0 ? DType::f16 : DType::bf16);
      problem.head_dim_v = dims[1];
      problem.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
      problem.output = turn % 5 == 0 ? Output::unnormalized : Output::normalized;
      problem.tile_n = turn % 4 == 0 ? 128 : 64;
      problem.pack_gqa = turn % 3 == 1 ? 2 : 1;
      const std::int64_t queries = turn % 3 == 2 ? 40 : 1 + turn % 7;
      testing::check_runs(problem, {2, 4, 2, queries, 131 + 9 * turn, dims[0], dims[1]}, *compiler,
                          {Schedule::lazy, Schedule::adversarial}, 1,
                          {.descales = has_8_bit_keys ? static_cast<Descales>(turn % 3) : Descales::none,
                           .input_seed = static_cast<std::uint64_t>(turn)});
    }
}

// Eight rows of keys that are not dealt: the merge's CTAs would take places from the next launch's, which asks for its
// keys ahead.
TEST_CASE("attention by warps: where the kernel lets its merge begin") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  const std::pair<DType, SplitKv> cases[] = {
      {DType::bf16, SplitKv::on}, {DType::e4m3, SplitKv::on}, {DType::bf16, SplitKv::dealt}};
  for (const auto& [keys, split] : cases) {
    Fmha problem = of_warps(128, keys == DType::e4m3);
    problem.tile_m = 8;
    problem.kv_layout = KvLayout::paged;
    problem.page_size = 64;
    problem.split_kv = split;
    SourceBundle bundle = emit(make_plan(problem));
    CAPTURE(bundle.entries.front());
    bundle.merge = nullptr;
    const std::string ptx = compiler->compile(bundle).ptx;
    // At once where the kernel before has ended, or behind waits for Q and blocks of keys.
    std::vector<bool> are_late;
    for (std::size_t launch = ptx.find("griddepcontrol.launch_dependents"); launch != std::string::npos;
         launch = ptx.find("griddepcontrol.launch_dependents", launch + 1)) {
      const std::size_t wait = ptx.rfind("griddepcontrol.wait", launch);
      REQUIRE(wait != std::string::npos);
      are_late.push_back(ptx.substr(wait, launch - wait).find("mbarrier.try_wait") != std::string::npos);
    }
    // 8-bit keys have both places, and the number of CTAs says which.
    const bool is_dealt = split == SplitKv::dealt;
    CHECK(are_late == (is_dealt              ? std::vector<bool>{false}
                       : keys == DType::e4m3 ? std::vector<bool>{false, true}
                                             : std::vector<bool>{true}));
  }
}

TEST_CASE("attention by warps: columns that no two passes halve") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr Schedule kSchedules[] = {Schedule::lazy};
  constexpr std::uint64_t kSeeds[] = {1};
  for (const bool has_8_bit_keys : {false, true})
    for (const SplitKv split : {SplitKv::off, SplitKv::dealt}) {
      Fmha problem = of_warps(80, has_8_bit_keys);
      problem.split_kv = split;
      problem.pack_gqa = 2;
      const testing::FmhaVerdict verdict =
          testing::run_fmha(problem, {1, 2, 1, 5, 150, 80}, *compiler, kSchedules, kSeeds, {});
      CAPTURE(verdict.kernel);
      for (const std::string& failure : verdict.failures) FAIL_CHECK(failure);
      CHECK(verdict.runs == 1);
    }
}

TEST_CASE("attention by warps: decode in pages, split and dealt, lengths of nothing and of one key") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  int turn = 0;
  for (const int page_size : {0, 1, 16, 64, 256})
    for (const SplitKv split : {SplitKv::on, SplitKv::dealt})
      for (const bool has_8_bit_keys : {true, false}) {
        ++turn;
        Fmha problem = of_warps(turn % 3 == 0 ? 64 : 128, has_8_bit_keys);
        problem.mask = Mask::causal;
        problem.split_kv = split;
        problem.pack_gqa = 4;
        problem.stages = turn % 4 == 0 ? 1 : 2;
        problem.seqused = UsedLengths::k;
        if (turn % 5 == 0) problem.sink = Sink::per_head;
        if (page_size > 0) {
          problem.kv_layout = KvLayout::paged;
          problem.page_size = page_size;
        }
        testing::FmhaLaunchFacts facts;
        facts.seqused_k = {300, 131, 0, 1};
        if (has_8_bit_keys) facts.descales = turn % 3 == 0 ? Descales::one : Descales::each;
        if (split == SplitKv::on) facts.num_splits = 3;
        facts.has_foreign_pages = turn % 3 == 0;
        facts.pool_layout = static_cast<PoolLayout>(turn % 3);
        testing::check_runs(problem, {4, 8, 2, 2, 320, problem.head_dim}, *compiler,
                            {Schedule::lazy, Schedule::adversarial}, 1, facts);
      }
}

TEST_CASE("attention by warps: tiles of eight rows, every head_dim and type, scales that cannot be folded") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[] = {128, 64, 128, 96, 128, 32, 128, 160};
  constexpr int kPageSizes[] = {64, 16, 256, 8, 32};
  constexpr int kPacked[] = {4, 8, 2, 1, 16};
  constexpr double kScales[] = {0.09, -0.2, 1e-33, 0.5};
  int turn = 0;
  for (const int head_dim : kHeadDims)
    for (const SplitKv split : {SplitKv::on, SplitKv::dealt})
      for (const bool has_8_bit_keys : {true, false}) {
        ++turn;
        const int shifted = turn + turn / 4;  // for what must meet both kinds of splits, and of keys
        Fmha problem = of_warps(head_dim, has_8_bit_keys, turn % 3 == 0 ? DType::f16 : DType::bf16);
        problem.tile_m = 8;
        problem.mask = shifted % 4 == 3 ? Mask::none : Mask::causal;
        problem.split_kv = split;
        problem.pack_gqa = kPacked[turn % 5];
        problem.tile_n = turn % 7 == 0 ? 128 : 64;
        problem.stages = turn % 6 == 0 ? 1 : 2;
        problem.seqused = UsedLengths::k;
        problem.kv_layout = KvLayout::paged;
        problem.page_size = kPageSizes[turn % 5];
        testing::FmhaLaunchFacts facts;
        facts.seqused_k = {300, 131, 0, 1};
        if (shifted % 2 == 0) facts.softmax_scale = kScales[shifted / 2 % 4];
        if (has_8_bit_keys) facts.descales = static_cast<Descales>(turn / 2 % 3);
        if (split == SplitKv::on) facts.num_splits = 1 + turn / 4 % 3;
        facts.has_foreign_pages = turn % 3 == 0;
        facts.pool_layout = static_cast<PoolLayout>(turn % 3);
        const std::int64_t heads_kv = problem.pack_gqa == 16 ? 1 : 2;
        testing::check_runs(problem,
                            {4, heads_kv * *problem.pack_gqa, heads_kv, shifted % 4 == 0 ? 1 : 3, 320, head_dim},
                            *compiler, {Schedule::lazy, Schedule::adversarial}, 1, facts);
      }
}

// The results on both sides of kMostCtasOfLate; where the merge begins: the test above.
TEST_CASE("attention by warps: results of eight rows in few CTAs and in many") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (const bool has_8_bit_keys : {true, false})
    for (const std::int64_t batch : {3, 70}) {
      Fmha problem = of_warps(64, has_8_bit_keys);
      problem.tile_m = 8;
      problem.tile_n = 64;
      problem.split_kv = SplitKv::on;
      problem.pack_gqa = 4;
      problem.seqused = UsedLengths::k;
      problem.kv_layout = KvLayout::paged;
      problem.page_size = 64;
      testing::FmhaLaunchFacts facts;
      facts.num_sms = 150;
      facts.num_splits = 2;
      for (std::int64_t b = 0; b < batch; ++b) facts.seqused_k.push_back(b * 37 % 150);
      testing::check_runs(problem, {batch, 8, 2, 1, 150, 64}, *compiler, {Schedule::lazy, Schedule::adversarial}, 1,
                          facts);
    }
}

TEST_CASE("attention by warps: dealt pages, head by head and as one row") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  const auto check = [&](std::int64_t heads_kv, int num_sms, std::vector<std::int64_t> lengths, std::int64_t queries) {
    CAPTURE(heads_kv);
    CAPTURE(num_sms);
    Fmha problem = of_warps(64, num_sms % 2 == 0);
    problem.mask = Mask::causal;
    problem.split_kv = SplitKv::dealt;
    problem.pack_gqa = 4;
    problem.seqused = UsedLengths::k;
    problem.kv_layout = KvLayout::paged;
    problem.page_size = 16;
    testing::FmhaLaunchFacts facts;
    facts.num_sms = num_sms;
    const auto batch = static_cast<std::int64_t>(lengths.size());
    facts.seqused_k = std::move(lengths);
    testing::check_runs(problem, {batch, 4 * heads_kv, heads_kv, queries, 900, 64}, *compiler,
                        {Schedule::lazy, Schedule::adversarial}, 1, facts);
  };
  check(2, 4, {900, 1, 0, 333, 640}, 1);  // four ranges of each head
  check(2, 3, {512, 512, 512}, 1);        // three, which end where tiles do
  check(3, 5, {700, 129, 64}, 5);         // three of each, one CTA without a range; two tiles of a sequence
  check(6, 2, {500, 70}, 1);              // fewer CTAs than heads: one row
  check(5, 4, {130, 700, 0, 65}, 1);      // three CTAs of eight would go without: one row
  check(2, 60, {300, 65}, 1);             // more CTAs than blocks
  std::vector<std::int64_t> many;
  for (std::int64_t b = 0; b < 70; ++b) many.push_back(b * 37 % 150);  // three sequences to a lane
  check(2, 5, std::move(many), 1);
}

TEST_CASE("attention by warps: windows, scores that are capped or lowered, trees, odd heads, ragged queries and keys") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (int turn = 0; turn < 12; ++turn) {
    Fmha problem = of_warps(turn % 2 == 0 ? 128 : 64, turn % 4 < 2, turn % 5 == 0 ? DType::f16 : DType::bf16);
    problem.pack_gqa = turn % 3 == 0 ? 3 : 4;
    testing::FmhaLaunchFacts facts;
    if (problem.kv_dtype) facts.descales = Descales::each;
    reference::FmhaSizes sizes{3, 2 * *problem.pack_gqa, 2, 4, 280, problem.head_dim};
    if (turn % 4 == 0) {
      problem.window = Window::sliding;
      facts.window_size_left = 100;
      facts.window_size_right = turn % 8 == 0 ? 0 : 7;
    }
    if (turn % 4 == 1) problem.softcap = Softcap::tanh;
    if (turn % 6 < 2) problem.alibi = Alibi::per_head;
    if (turn % 4 == 2) problem.tree_mask = TreeMask::bits;
    if (turn % 3 == 1) {
      problem.seqused = UsedLengths::qk;
      facts.seqused_q = {4, 0, 1};
      facts.seqused_k = {280, 60, 5};
    }
    if (turn % 3 == 2) {
      problem.q_layout = QueryLayout::ragged;
      problem.kv_layout = KvLayout::ragged;
      problem.split_kv = SplitKv::dealt;
      if (turn % 2 == 0) problem.split_size = 128;
      sizes.seqlen_q = 9;
      facts.query_lengths = {1, 5, 2};
      facts.seqused_k = {280, 130, 2};
    }
    testing::check_runs(problem, sizes, *compiler, {Schedule::eager, Schedule::adversarial}, 1, facts);
  }
}

/// Every head_dim by warps with rows of their own, on targets that have nothing else, and on sm_90a.
enum class Kind { bits_16, keys_8, all_8 };
void check_rows(Kind kind, int turn) {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  constexpr int kHeadDims[][2] = {{128, 128}, {64, 64},   {96, 96},   {16, 16},   {192, 128}, {80, 80},
                                  {72, 72},   {256, 256}, {160, 160}, {192, 192}, {32, 32}};
  constexpr const char* kArchs[] = {"sm_90a", "sm_120a", "sm_121a", "sm_120f"};
  for (const auto& dims : kHeadDims) {
    const bool has_8_bit_keys = kind == Kind::keys_8, is_8_bit = kind == Kind::all_8;
    if ((has_8_bit_keys && dims[0] == 72) || (is_8_bit && dims[0] % 64 != 0)) continue;
    Fmha problem = of_warps(dims[0], has_8_bit_keys, turn % 3 == 0 ? DType::f16 : DType::bf16);
    problem.head_dim_v = dims[1];
    problem.arch = Arch::parse(kArchs[turn % 4]);
    problem.tile_m = {};
    if (is_8_bit) {
      problem.dtype = DType::e4m3;
      problem.mma_kind = MmaKind::mma_f8;
    }
    if (turn % 4 == 0 && dims[1] <= 128) {  // two groups of rows to a warp
      problem.tile_m = 256;
      if (dims[0] <= 64) problem.tile_n = is_8_bit ? 96 : 80;
    }
    problem.mask = turn % 5 < 2 ? Mask::causal : Mask::none;
    problem.output = turn % 6 == 5 ? Output::unnormalized : Output::normalized;
    problem.pack_gqa = turn % 7 == 3 ? 2 : turn % 7 == 5 ? 3 : 1;
    const std::int64_t queries = turn % 5 == 4 ? 300 : 131 + turn;
    testing::check_runs(problem, {1, *problem.pack_gqa, 1, queries, 150 + 9 * turn, dims[0], dims[1]}, *compiler,
                        {Schedule::lazy, Schedule::adversarial}, 1,
                        {.descales = kind == Kind::bits_16 ? Descales::none : static_cast<Descales>(turn % 3),
                         .num_sms = 3,
                         .input_seed = static_cast<std::uint64_t>(turn)});
    ++turn;
  }
}
TEST_CASE("attention by warps with rows of their own: every head_dim") { check_rows(Kind::bits_16, 1); }
TEST_CASE("attention by warps with rows of their own: e4m3 keys") { check_rows(Kind::keys_8, 4); }
TEST_CASE("attention by warps with rows of their own: 8 bits in all") { check_rows(Kind::all_8, 3); }

// Rows of facts; every two stand together in one of them: random ones, each with about half of what there is.
TEST_CASE("attention by mma.sync on sm_120: facts in pairs") {
  const std::unique_ptr<Compiler> compiler = testing::find_compiler();
  if (!compiler) return;
  for (std::uint64_t turn = 0; turn < 48; ++turn) {
    std::mt19937_64 random(turn);
    const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
    Fmha problem = of_warps(std::array{64, 128, 96, 256}[pick(4)], pick(3) == 0);
    problem.arch = Arch::parse(std::array{"sm_120a", "sm_121f", "sm_90a"}[pick(3)]);
    problem.tile_m = {};
    if (pick(3) == 0 && problem.head_dim <= 128) problem.tile_m = 16;
    if (pick(3) == 0 && problem.head_dim <= 96) problem.tile_m = 256;
    problem.pack_gqa = std::array{1, 4, 3}[pick(3)];
    testing::FmhaLaunchFacts facts{.num_sms = 3, .input_seed = turn};
    if (problem.tile_m != 16 && problem.head_dim != 96 && pick(4) == 0) {
      problem.kv_dtype = {};
      problem.dtype = DType::e4m3;
      problem.mma_kind = MmaKind::mma_f8;
    }
    if (problem.kv_dtype || problem.dtype == DType::e4m3) facts.descales = static_cast<Descales>(pick(3));
    reference::FmhaSizes sizes{3, *problem.pack_gqa, 1, 46, 150, problem.head_dim};
    const std::vector<std::int64_t> keys = {150, 70, 2};
    if (pick(2) == 0) problem.mask = Mask::causal;
    if (pick(3) == 0) {
      problem.window = Window::sliding;
      facts.window_size_left = static_cast<std::int64_t>(pick(120));
      facts.window_size_right = pick(2) == 0 ? -1 : static_cast<std::int64_t>(pick(40));
    } else if (problem.mask == Mask::none && pick(3) == 0) {
      problem.tree_mask = TreeMask::bits;
    }
    if (pick(3) == 0) problem.softcap = Softcap::tanh;
    if (pick(3) == 0) problem.alibi = Alibi::per_head;
    if (pick(3) == 0) problem.output = Output::unnormalized;
    if (problem.output == Output::normalized && pick(2) == 0) problem.sink = Sink::per_head;
    if (pick(3) == 0) {
      problem.q_layout = QueryLayout::ragged;
      facts.query_lengths = {30, 0, 16};
    }
    const bool is_ragged = problem.q_layout == QueryLayout::ragged;
    switch (pick(4)) {
      case 0:
        problem.kv_layout = KvLayout::paged;
        problem.page_size = std::array{1, 16, 64, 256}[pick(4)];
        problem.seqused = UsedLengths::k;
        facts.pool_layout = static_cast<PoolLayout>(pick(3));
        break;
      case 1:
        problem.kv_layout = KvLayout::ragged;
        break;
      case 2:
        problem.seqused = is_ragged || pick(2) == 0 ? UsedLengths::k : UsedLengths::qk;
        if (problem.seqused == UsedLengths::qk) facts.seqused_q = {46, 0, 17};
        break;
      default:
        break;
    }
    if (problem.seqused != UsedLengths::none || problem.kv_layout == KvLayout::ragged) facts.seqused_k = keys;
    if (const std::size_t split = pick(3); split > 0) {
      problem.split_kv = split == 1 && !is_ragged ? SplitKv::on : SplitKv::dealt;
      if (pick(3) == 0) problem.split_size = 192;
      if (problem.split_kv == SplitKv::on && problem.split_size == 0) facts.num_splits = 3;
    }
    testing::check_runs(problem, sizes, *compiler, {Schedule::eager, Schedule::adversarial}, 1, facts);
  }
}

TEST_CASE("attention by warps is what few rows get") {
  Fmha decode;
  decode.batch = 8;
  decode.heads_q = 32;
  decode.heads_kv = 8;
  decode.seqlen_q = 1;
  decode.seqlen_k = 8192;
  const auto kind_of = [](const Fmha& problem) { return chosen_config<FmhaOperator>(problem).mma_kind; };
  CHECK(kind_of(decode) == MmaKind::mma_f16);
  decode.kv_layout = KvLayout::paged;
  decode.page_size = 64;
  decode.seqused = UsedLengths::k;
  CHECK(chosen_config<FmhaOperator>(decode).tile_m == 8);
  decode.seqlen_q = 2;
  CHECK(chosen_config<FmhaOperator>(decode).tile_m == 8);
  decode.softcap = Softcap::tanh;
  CHECK(chosen_config<FmhaOperator>(decode).tile_m == 16);
  decode.softcap = Softcap::none;
  decode.seqlen_q = 3;
  decode.kv_dtype = DType::e4m3;  // 12 rows
  CHECK(chosen_config<FmhaOperator>(decode).tile_m == 16);
  decode.kv_dtype = {};
  decode.kv_layout = KvLayout::dense;
  decode.page_size = 0;
  decode.seqused = UsedLengths::none;
  decode.seqlen_q = 1;
  CHECK(chosen_config<FmhaOperator>(decode).tile_m == 16);
  decode.seqlen_q = 2;  // 8 rows
  CHECK(kind_of(decode) == MmaKind::mma_f16);
  decode.seqlen_q = 3;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.seqlen_q = 4;
  decode.kv_dtype = DType::e4m3;
  CHECK(kind_of(decode) == MmaKind::mma_f16);
  decode.seqlen_q = 5;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.kv_dtype = {};
  decode.seqlen_q = kUnknownHint;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.seqlen_q = 1;
  decode.tile_m = 64;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
  decode.tile_m = {};
  decode.v_layout = Layout::k_major;
  CHECK(kind_of(decode) == MmaKind::wgmma_f16);
}

}  // namespace
}  // namespace tessera::fmha_warps_test
