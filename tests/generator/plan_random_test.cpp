// Planning as a function: any Problem gives a sound plan or an Error, the same one every time, and fast.
#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/candidates.h"
#include "generator/plan_json.h"
#include "generator/products/gemm_operator.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"
#include "tests/support/sample.h"

using namespace tessera;
namespace plan_random_test {

namespace {

/// A field's value: mostly a plausible one, sometimes the ends of its range.
std::string random_text(const Selector& selector, std::mt19937_64& random) {
  const auto pick = [&](const auto& list) { return std::string(list[random() % std::size(list)]); };
  // Every operator refuses sm_80, some take sm_100a.
  if (selector.key == "arch") return random() % 5 == 0 ? "sm_80" : random() % 8 == 0 ? "sm_100a" : "sm_90a";
  // What only tcgen05 has, and sm_90a refuses.
  if ((selector.key == "accumulators" || selector.key == "interleave") && random() % 16 != 0) return "auto";
  if (selector.key == "gate" && random() % 8 != 0) return "none";
  if (selector.key == "gate_activation" && random() % 8 != 0) return "silu";
  if (selector.key == "gate_limit") return random() % 8 != 0 ? "0" : "7";
  if (selector.kind == SelectorKind::pin && random() % 2 == 0) return "auto";
  // Half of the types that are drawn are ones that products take.
  constexpr const char* kTypes[] = {"bf16", "f16", "e4m3", "e5m2"};
  if (selector.key == "b_dtype" && random() % 4 != 0) return "auto";
  // What only tcgen05 has is refused on sm_90a.
  if ((selector.key == "p_path" || selector.key == "cta_group") && random() % 8 != 0) return "auto";
  for (const char* const key : {"pack_gqa", "split_kv", "kv_dtype", "o_dtype", "promote_every"})
    if (selector.key == key && random() % 16 != 0) return "auto";
  for (const char* const key : {"window", "seqused", "gather", "a_scale_block", "b_scale_block", "d_scale_block"})
    if (selector.key == key && random() % 16 != 0) return "none";
  if (selector.key == "d_scale_values" && random() % 16 != 0) return "any";
  for (const char* const key : {"sink", "softcap", "alibi", "tree_mask"})
    if (selector.key == key && random() % 2 == 0) return "none";
  const bool has_dense = std::find(selector.words.begin(), selector.words.end(), "dense") != selector.words.end();
  for (const char* const key : {"kv_pools", "kv_layout"})
    if (selector.key == key && has_dense && random() % 16 != 0) return "dense";
  if (selector.key == "v_is_k" && random() % 16 != 0) return "off";
  if (selector.key == "kv_cache" && random() % 16 != 0) return "rows";
  if (selector.key == "kv_format" && random() % 16 != 0) return "plain";
  if (selector.key == "page_size" && selector.kind == SelectorKind::fact) return random() % 4 != 0 ? "64" : "32";
  if ((selector.key == "page_size" || selector.key == "kv_copy") && random() % 16 != 0) return "auto";
  for (const char* const key :
       {"window_size_left", "window_size_right", "topk", "seqlen_swa", "pages", "max_pages", "tokens_k"})
    if (selector.key == key && random() % 32 != 0) return "unknown";
  for (const char* const key : {"expert_groups", "topk_groups", "alignment", "next_n"})
    if (selector.key == key && random() % 2 == 0) return "1";
  if (selector.key == "v_layout" && random() % 8 != 0) return "mn";
  if (selector.key == "mma_kind" && random() % 8 != 0) return "wgmma.f16";
  if (selector.key == "score_dtype" && random() % 8 != 0) return "f32";
  if (selector.key.ends_with("dtype") && random() % 2 == 0) return pick(kTypes);
  if (selector.key == "heads" && random() % 8 != 0) return random() % 2 == 0 ? "32" : "64";
  if ((selector.key == "tile_q" || selector.key == "consumers") && random() % 2 == 0) return "2";
  if (selector.key == "tile_m" && random() % 2 == 0) return random() % 2 == 0 ? "64" : "128";
  constexpr const char* kChains[] = {"rmsnorm+same",
                                     "residual(store)",
                                     "gate(silu)+nvfp4",
                                     "rope(halves)+bf16(scatter)",
                                     "gather+layernorm+e4m3(row)",
                                     "rope(0..63)+mxfp4(64..127,tile)+f32",
                                     "hadamard(64)+e4m3(128)+f16",
                                     "factor+nvfp4(tile)"};
  if (selector.key == "chain") return pick(kChains);
  // What goes with int4 alone.
  if (selector.key == "b_group" || selector.key == "group") return random() % 8 == 0 ? "64" : "128";
  if (selector.key == "zero_points") return random() % 8 == 0 ? "given" : "none";
  if (!selector.words.empty()) return pick(selector.words);
  if (random() % 8 == 0) return std::to_string(random() % 2 == 0 ? selector.min : selector.max);
  if (selector.key.starts_with("cluster_") || selector.key == "split_k") return std::to_string(1 << random() % 3 / 2);
  constexpr const char* kNumbers[] = {"1",  "2",  "3",  "4",   "5",   "8",   "16",  "48",
                                      "64", "80", "96", "128", "192", "256", "512", "4096"};
  constexpr const char* kHeadDims[] = {"128", "64", "96", "72", "192", "256", "512"};
  if (selector.key == "head_dim") return pick(kHeadDims);
  if (selector.key == "head_dim_v") return kHeadDims[0];  // beside 192; refused beside most others
  if (selector.key == "stages" || selector.key == "rank") return std::to_string(1 + random() % 5);
  return pick(kNumbers);
}

Problem random_problem(std::string_view op, std::mt19937_64& random) {
  Problem problem = default_problem(op);
  for (const Selector& selector : selectors(op))
    if (random() % 3 != 0) set_field(problem, selector.key, random_text(selector, random));
  return problem;
}

/// The plan's whole JSON, or the error with its notes.
std::string outcome(const Problem& problem, bool& is_plan) {
  try {
    const Plan plan = make_plan(problem);
    check_launch_plan(plan.launch);
    is_plan = true;
    return to_json(plan, true).dump();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::unsupported);
    is_plan = false;
    std::string text = error.what();
    for (const std::string& note : error.notes()) text += "\n" + note;
    return text;
  }
}

/// With swap_ab a Config's m is the product's n; its facts are the product's own.
std::string of_swapped(std::string_view key) {
  constexpr std::pair<const char*, const char*> kPairs[] = {{"tile_m", "tile_n"}, {"cluster_m", "cluster_n"}};
  for (const auto& [a, b] : kPairs)
    if (key == a || key == b) return key == a ? b : a;
  return std::string(key);
}

}  // namespace

TEST_CASE("random problems: a sound plan or a refusal, the same one twice") {
  std::mt19937_64 random(1);
  const int count = testing::takes_all_cases() ? 5000 : 2000;
  for (const std::string_view op : operator_names()) {
    int plans = 0;
    int refusals = 0;
    for (int i = 0; i < count; ++i) {
      const Problem problem = random_problem(op, random);
      bool is_plan = false;
      bool is_plan_again = false;
      const std::string first = outcome(problem, is_plan);
      ++(is_plan ? plans : refusals);
      if (i % 10 == 0) CHECK(outcome(problem, is_plan_again) == first);
      if (!is_plan) continue;
      // Pins are obeyed: whatever was pinned is what the Config has.
      const OrderedJson config = OrderedJson::parse(first)["config"];
      for (const Selector& selector : selectors(op)) {
        const std::string text = selector.text(problem);
        if (selector.kind == SelectorKind::hint || text == "auto" || !config.contains(selector.key)) continue;
        const bool is_quantized =
            selector.key == "d_dtype" && config.contains("d_format") && config["d_format"] != "plain";
        const bool is_swapped = config.contains("swap_ab") && config["swap_ab"] == "on";
        const std::string key = is_quantized ? "d_format"
                                : is_swapped ? of_swapped(selector.key)
                                             : std::string(selector.key);
        const OrderedJson& value = config[key];
        if (selector.key == "mma_kind" && text == "mma.f16") {  // by pin: mma.sync, whatever the operands
          CHECK(value.get<std::string>().starts_with("mma."));
          continue;
        }
        CHECK((value.is_string() ? value.get<std::string>() : value.dump()) == text);
      }
    }
    CHECK(plans > count * 3 / 50);
    CHECK(refusals > count * 3 / 50);
  }
}

TEST_CASE("random attention on tcgen05: whatever its facts ask for, a sound plan with them or a refusal") {
  std::mt19937_64 random(2);
  int plans = 0, refusals = 0;
  for (int i = 0; i < 3000; ++i) {
    const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
    constexpr int kHeadDims[] = {16, 64, 72, 128, 256, 512};
    constexpr int kPacked[] = {1, 2, 7, 16, 100, 128, 192, 256, 2147483647};
    constexpr Hint kHints[] = {kUnknownHint, kUnknownHint, 0, 1, 64, 128, 5000, std::int64_t{1} << 40};
    Fmha problem{.arch = Arch::parse("sm_100a"), .head_dim = pick(kHeadDims)};
    problem.mask = random() % 2 == 0 ? Mask::none : Mask::causal;
    problem.window = pick(kWindowWords).value;
    problem.softcap = random() % 4 == 0 ? Softcap::tanh : Softcap::none;
    problem.alibi = random() % 4 == 0 ? Alibi::per_head : Alibi::none;
    problem.seqused = pick(kUsedLengthsWords).value;
    problem.kv_pools = random() % 4 == 0 ? KvPools::sparse_window : KvPools::dense;
    problem.sink = random() % 4 == 0 ? Sink::per_head : Sink::none;
    problem.output = random() % 4 == 0 ? Output::unnormalized : Output::normalized;
    problem.v_layout = random() % 4 == 0 ? Layout::k_major : Layout::mn_major;
    if (random() % 2 == 0) problem.pack_gqa = pick(kPacked);
    if (random() % 2 == 0) problem.split_kv = pick(kSplitKvWords).value;
    if (random() % 2 == 0) problem.cta_group = 1 + static_cast<int>(random() % 2);
    for (Hint* const hint : {&problem.batch, &problem.heads_q, &problem.heads_kv, &problem.seqlen_q, &problem.seqlen_k})
      *hint = pick(kHints);
    bool is_plan = false;
    outcome(problem, is_plan);
    ++(is_plan ? plans : refusals);
    if (!is_plan) continue;
    const fmha_tcgen05::Config config = chosen_config<FmhaTcgen05Operator>(problem);
    CHECK(config.facts.window == problem.window);
    CHECK(config.facts.seqused == problem.seqused);
    CHECK(config.facts.kv_pools == problem.kv_pools);
    CHECK(config.facts.sink == problem.sink);
    CHECK(config.pack_gqa == problem.pack_gqa.value_or(config.pack_gqa));
    CHECK(config.split_kv == problem.split_kv.value_or(config.split_kv));
  }
  CHECK(plans > 300);
  CHECK(refusals > 300);
}

TEST_CASE("random products: no score is above its bound, and the kernel that is named is the one that is planned") {
  std::mt19937_64 random(3);
  const auto pick = [&](const auto& list) { return list[random() % std::size(list)]; };
  const auto number = [&](std::int64_t max) {
    return 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(max));
  };
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::e4m3},
                  kResults[] = {DType::bf16, DType::f32, DType::e4m3};
  constexpr Layout kLayouts[] = {Layout::k_major, Layout::k_major, Layout::mn_major};
  for (int i = 0; i < 400; ++i) {
    Gemm problem{.dtype = pick(kTypes), .d_dtype = pick(kResults)};
    if (problem.dtype != DType::e4m3) {
      problem.a_layout = pick(kLayouts);
      problem.b_layout = pick(kLayouts);
    }
    if (random() % 4 == 0) problem.activation = Activation::gelu;
    if (random() % 8 == 0) problem.split_k = static_cast<int>(number(4));
    if (random() % 8 == 0) problem.stages = static_cast<int>(number(8));
    if (random() % 8 != 0) problem.m = number(random() % 2 == 0 ? 128 : 20'000);
    if (random() % 8 != 0) problem.n = number(20'000);
    if (random() % 8 != 0) problem.k = random() % 2 == 0 ? 64 * number(300) : number(20'000);
    if (random() % 8 == 0) problem.l = number(100);
    const std::vector<gemm::Config> candidates = GemmOperator::candidates(problem);
    bool is_any_legal = false;
    for (std::size_t c = 0; c < candidates.size(); ++c) {
      CHECK(std::find(candidates.begin(), candidates.begin() + static_cast<std::ptrdiff_t>(c), candidates[c]) ==
            candidates.begin() + static_cast<std::ptrdiff_t>(c));
      if (!why_invalid(candidates[c]).ok()) continue;
      is_any_legal = true;
      CHECK(GemmOperator::most_score(candidates[c], problem) >=
            GemmOperator::score(candidates[c], problem) * (1 - 1e-12));
    }
    if (!is_any_legal) continue;
    const Plan plan = make_plan(problem);
    CHECK(planned_kernel(problem) == plan.kernel);
    CHECK(to_json(make_bare_plan(problem), false) == to_json(plan, false));
  }
}

#ifdef TESSERA_EMULATED_HOST
constexpr double kMostSeconds = 40;
#else
constexpr double kMostSeconds = 4;
#endif

TEST_CASE("counting the kernels of many problems takes less than a millisecond each") {
  const std::clock_t start = std::clock();
  std::size_t bytes = 0;
  for (int i = 0; i < 4000; ++i)
    bytes +=
        planned_kernel(Fmha{.head_dim = 128, .mask = i % 2 == 0 ? Mask::none : Mask::causal, .seqlen_q = i}).size();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  CHECK(bytes > 0);
  // 340 microseconds of processor time each on a busy machine; 1.7 milliseconds on a processor that is emulated there.
  CHECK(seconds < kMostSeconds);
}

}  // namespace plan_random_test
