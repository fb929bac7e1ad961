// NVFP4 attention of sequences that have lengths of their own: attention_quantize of ragged, padded and paged tensors,
// and attention of what it wrote, each sequence against float64 of itself. In the emulator, under each of its schedules
// and the race detector. Nothing here ran on Blackwell hardware.
#include "reference/nvfp4_sequences.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/emulator/device.h"
#include "tests/emulated/compiler.h"
#include "tests/support/fmha_nvfp4_cases.h"
#include "tests/support/sample.h"

namespace tessera::nvfp4_sequences_test {
namespace {

using emulator::EmulatedDevice;
using emulator::Schedule;
using reference::Tensor;
using testing::find_compiler;

struct Target {
  Plan plan;
  EmulatedDevice device;
  Launcher launcher;
  Target(const Problem& problem, Compiler& compiler)
      : plan(make_plan(problem)),
        device{{.arch = "sm_120a", .detects_races = true}},
        launcher(device, plan.launch, compiler.compile(emit(plan))) {}
};

Tensor numbers(const std::vector<std::int64_t>& values, std::vector<std::int64_t> shape) {
  Tensor tensor(DType::s32, std::move(shape));
  for (std::size_t i = 0; i < values.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return tensor;
}
Tensor starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  return numbers(starts, {static_cast<std::int64_t>(starts.size())});
}

/// NaNs in the rows of [batch, rows, ..] behind a sequence's own.
void hide_behind(Tensor& tensor, const std::vector<std::int64_t>& lengths) {
  const std::int64_t row = tensor.shape[2] * tensor.shape[3];
  for (std::size_t i = 0; i < lengths.size(); ++i)
    for (std::int64_t at = lengths[i] * row; at < tensor.shape[1] * row; ++at)
      tensor.set(static_cast<std::int64_t>(i) * tensor.shape[1] * row + at, std::numeric_limits<double>::quiet_NaN());
}

/// Lengths of queries and keys; one sequence has none of either.
struct Sequences {
  std::vector<std::int64_t> queries, keys;
};

/// Tensors of a launch, and what they are.
struct Inputs {
  reference::Tensors tensors;
  reference::Nvfp4Layout layout;
  NamedSizes sizes;
};

constexpr std::int64_t kHeadsQ = 4, kHeadsKv = 2, kPageSize = 16, kSparePages = 2;

Inputs inputs_of(const AttentionQuantize& problem, const Sequences& of, std::uint64_t seed) {
  Inputs in;
  const auto sum = [](const std::vector<std::int64_t>& lengths) {
    return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  };
  const auto batch = static_cast<std::int64_t>(of.queries.size());
  const std::int64_t most_keys = *std::max_element(of.keys.begin(), of.keys.end());
  reference::Nvfp4Layout& layout = in.layout;
  layout.batch = batch;
  layout.seqlen_q = *std::max_element(of.queries.begin(), of.queries.end());
  layout.seqlen_k = most_keys + 3;
  std::vector<std::int64_t> used_keys = of.keys;
  if (problem.seqused == UsedLengths::qk) {
    layout.seqlen_q += 9;
    in.tensors.emplace("seqused_q", numbers(of.queries, {batch}));
  }
  std::vector<std::int64_t> q_shape{batch, layout.seqlen_q, kHeadsQ, problem.head_dim};
  std::vector<std::int64_t> k_shape{batch, layout.seqlen_k, kHeadsKv, problem.head_dim};
  if (problem.q_layout == QueryLayout::ragged) {
    layout.seqlen_q = sum(of.queries) + 5;  // rows that no sequence has
    q_shape = {layout.seqlen_q, kHeadsQ, problem.head_dim};
    in.tensors.emplace("cu_seqlens_q", starts_of(of.queries));
  }
  if (problem.kv_layout == KvLayout::ragged) {
    layout.tokens_k = sum(of.keys) + 7;
    k_shape = {layout.tokens_k, kHeadsKv, problem.head_dim};
    in.tensors.emplace("cu_seqlens_k", starts_of(of.keys));
    for (std::int64_t& keys : used_keys) keys -= keys / 3;
  }
  if (problem.kv_layout != KvLayout::ragged || problem.seqused != UsedLengths::none)
    in.tensors.emplace("seqused_k", numbers(used_keys, {batch}));
  in.sizes = {{"batch", batch},
              {"heads_q", kHeadsQ},
              {"heads_kv", kHeadsKv},
              {"seqlen_q", layout.seqlen_q},
              {"seqlen_k", layout.seqlen_k},
              {"num_sms", 3}};
  if (problem.kv_layout == KvLayout::ragged) in.sizes["tokens_k"] = layout.tokens_k;
  if (problem.kv_layout == KvLayout::paged) {
    const std::int64_t max_pages = ceil_div(layout.seqlen_k, kPageSize), pages = batch * max_pages + kSparePages;
    layout.page_size = kPageSize;
    k_shape = {pages, kPageSize, kHeadsKv, problem.head_dim};
    // Pages of all sequences shuffled, one entry that is none of the pool.
    std::vector<std::int64_t> entries;
    for (std::int64_t i = 0; i < batch * max_pages; ++i) entries.push_back((7 * i + 3) % pages);
    entries[1] = pages + 100;
    in.tensors.emplace("block_table", numbers(entries, {batch, max_pages}));
    in.sizes["pages"] = pages;
    in.sizes["max_pages"] = max_pages;
  }
  std::uint64_t stream = 0;
  for (const auto& [name, shape] : {std::pair("q", &q_shape), std::pair("k", &k_shape), std::pair("v", &k_shape)}) {
    Tensor tensor(problem.dtype, *shape);
    reference::fill(tensor, reference::Fill::normal, seed, stream++);
    if (shape == &q_shape && problem.seqused == UsedLengths::qk) hide_behind(tensor, of.queries);
    if (shape == &k_shape && problem.kv_layout == KvLayout::dense) hide_behind(tensor, of.keys);
    in.tensors.emplace(name, std::move(tensor));
  }
  for (const auto& [name, slot] :
       {std::pair("cu_seqlens_q", &layout.cu_seqlens_q), std::pair("cu_seqlens_k", &layout.cu_seqlens_k),
        std::pair("seqused_q", &layout.seqused_q), std::pair("seqused_k", &layout.seqused_k),
        std::pair("block_table", &layout.block_table)})
    if (const auto found = in.tensors.find(name); found != in.tensors.end()) *slot = found->second.view();
  return in;
}

void check(const AttentionQuantize& quantizes, Fmha attends, Compiler& compiler, const Sequences& of,
           std::uint64_t seed) {
  Target quantize(quantizes, compiler), attention(attends, compiler);
  CAPTURE(quantize.plan.kernel);
  CAPTURE(attention.plan.kernel);
  const Inputs in = inputs_of(quantizes, of, seed);
  std::vector<std::string> problems;
  for (const Schedule schedule : {Schedule::fair, Schedule::adversarial}) {
    quantize.device.set_schedule(schedule, seed);
    const reference::Tensors units =
        launch_once(quantize.device, quantize.launcher, in.sizes, {}, in.tensors, problems);
    const auto view = [](const reference::Tensors& of_all, const char* name) { return of_all.at(name).view(); };
    const reference::AttentionTensors x{view(in.tensors, "q"), view(in.tensors, "k"), view(in.tensors, "v")};
    const reference::Comparison quantized = reference::check_quantized_sequences(x, in.layout, units, 1);
    for (const std::string& text : quantized.problems) FAIL_CHECK(text);
    CHECK(quantized.rows_checked > 0);

    attention.device.set_schedule(schedule, seed);
    reference::Tensors operands = nvfp4_operands(units);
    for (const char* const name : {"cu_seqlens_q", "cu_seqlens_k", "seqused_q", "seqused_k"})
      if (const auto found = in.tensors.find(name); found != in.tensors.end()) operands.emplace(name, found->second);
    const Nvfp4Launch by = nvfp4_launch(attention.launcher, attention.plan, in.sizes,
                                        {.window_size_left = 37, .window_size_right = 5}, of.queries, operands);
    const reference::Tensors outputs =
        launch_once(attention.device, attention.launcher, by.sizes, by.scalars, operands, problems);
    const reference::Comparison attended =
        reference::check_nvfp4_sequences({view(operands, "q"), view(operands, "k"), view(operands, "v"),
                                          view(operands, "delta_s"), view(operands, "row_shift")},
                                         in.layout, nvfp4_outputs(outputs), by.check);
    for (const std::string& text : attended.problems) FAIL_CHECK(text);
    CHECK(attended.rows_checked > 0);
    // Rows of no sequence are nobody's.
    if (quantizes.q_layout == QueryLayout::ragged)
      for (std::int64_t i = outputs.at("o").elements() - 5 * kHeadsQ * attends.head_dim; i < outputs.at("o").elements();
           ++i)
        if (outputs.at("o").view().bits_at(i) != 0xFFFF) FAIL_CHECK("a row that no sequence has was written");
  }
  for (const std::string& text : problems) FAIL_CHECK(text);
}

struct Case {
  QueryLayout q_layout;
  KvLayout kv_layout;
  UsedLengths seqused;
};

}  // namespace

TEST_CASE("nvfp4: ragged queries, ragged keys, used lengths and pages") {
  const std::unique_ptr<Compiler> compiler = find_compiler();
  if (!compiler) return;
  const Sequences kSequences[] = {{{130, 0, 5, 64}, {200, 17, 0, 129}}, {{1, 1, 150}, {300, 128, 1}}};
  using enum UsedLengths;
  constexpr Case kCases[] = {{QueryLayout::ragged, KvLayout::ragged, none}, {QueryLayout::ragged, KvLayout::dense, k},
                             {QueryLayout::ragged, KvLayout::paged, k},     {QueryLayout::dense, KvLayout::paged, k},
                             {QueryLayout::dense, KvLayout::ragged, none},  {QueryLayout::dense, KvLayout::dense, k},
                             {QueryLayout::ragged, KvLayout::ragged, k},    {QueryLayout::dense, KvLayout::dense, qk},
                             {QueryLayout::dense, KvLayout::ragged, qk},    {QueryLayout::dense, KvLayout::paged, qk}};
  testing::Sample sample(4);
  std::uint64_t seed = 1;
  for (const Case& one : kCases)
    for (const Mask mask : {Mask::causal, Mask::none}) {
      const int head_dim = seed % 2 == 0 ? 64 : 128;
      AttentionQuantize quantizes{.arch = Arch::parse("sm_120a"), .head_dim = head_dim};
      quantizes.q_layout = one.q_layout;
      quantizes.kv_layout = one.kv_layout;
      if (one.kv_layout == KvLayout::paged) quantizes.page_size = static_cast<int>(kPageSize);
      Fmha attends{.arch = quantizes.arch, .head_dim = head_dim, .format = BlockFormat::nvfp4};
      attends.mask = mask;
      attends.q_layout = one.q_layout;
      // What was in pages lies dense.
      attends.kv_layout = one.kv_layout == KvLayout::ragged ? KvLayout::ragged : KvLayout::dense;
      quantizes.seqused = attends.seqused = one.seqused;
      if (seed % 3 == 0) attends.window = Window::sliding;
      if (seed % 4 == 1) attends.tile_m = 64;
      if (seed % 3 == 1) attends.split_kv = SplitKv::on;
      if (seed % 4 >= 2) attends.sink = Sink::per_head;
      if (seed % 5 >= 3) attends.softcap = Softcap::tanh;
      if (seed % 5 == 2) attends.alibi = Alibi::per_head;
      if (mask == Mask::none && attends.window == Window::none) attends.tree_mask = TreeMask::bits;
      if (sample.takes() || one.seqused == qk) check(quantizes, attends, *compiler, kSequences[seed / 2 % 2], seed);
      ++seed;
    }
}

}  // namespace tessera::nvfp4_sequences_test
