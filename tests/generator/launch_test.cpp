// The launch as data: expressions give the values that they should, and for every candidate and many sizes the tensor
// maps obey the driver's rules and their boxes have the bytes that the kernel lays out and waits for.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <random>
#include <type_traits>

#include "base/bound_expression.h"
#include "base/tensor_map_copy.h"
#include "base/tensor_map_resolve.h"
#include "generator/attention/fmha_mma_operator.h"
#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "generator/copy2d/copy2d_operator.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace launch_test {

namespace {

using Sizes = std::map<std::string, std::int64_t>;

/// A launch's sizes in the plan's order, defaults evaluated, and what follows from them.
struct Bound {
  std::vector<std::string> names;
  std::vector<std::int64_t> values;

  Bound(const LaunchPlan& launch, const Sizes& given) {
    for (const SizeSpec& size : launch.sizes) {
      const auto found = given.find(size.name);
      const std::int64_t number = found != given.end() ? found->second : value(size.default_value.value());
      CHECK(number >= size.min);
      CHECK(number <= size.max);
      names.push_back(size.name);
      values.push_back(number);
    }
  }
  std::int64_t value(const Expression& expression) const { return BoundExpression(expression, names).evaluate(values); }
  std::vector<std::int64_t> all(const std::vector<Expression>& list) const {
    std::vector<std::int64_t> result;
    for (const Expression& expression : list) result.push_back(value(expression));
    return result;
  }
  bool holds(const DomainRule& rule) const {
    const std::int64_t lhs = value(rule.lhs);
    const std::int64_t rhs = value(rule.rhs);
    switch (rule.relation) {
      case Relation::at_least:
        return lhs >= rhs;
      case Relation::at_most:
        return lhs <= rhs;
      case Relation::equal:
        return lhs == rhs;
      case Relation::multiple_of:
        return lhs % rhs == 0;
    }
    return false;
  }
  /// The map of this name, resolved; it must break no rule.
  ResolvedTensorMap map(const LaunchPlan& launch, std::string_view name) const {
    for (const TensorMapRecipe& recipe : launch.tensor_maps) {
      if (recipe.name != name) continue;
      const ResolvedTensorMap resolved = resolve(recipe, names, values, 0x7f0000000000);
      for (const TensorMapViolation& violation : broken_rules(resolved, name)) FAIL_CHECK(violation.message);
      return resolved;
    }
    FAIL("no tensor map " << name);
    return {};
  }
};

template <class Operator, class Visit>
void for_each_legal(const Visit& visit) {
  for (const Problem& problem : every_fact()) {
    const auto* const facts = problem.get_if<typename Operator::Problem>();
    if (facts == nullptr || is_latent(problem) || is_nvfp4_attention(problem)) continue;
    if (is_mma_attention(problem) != std::is_same_v<Operator, FmhaMmaOperator>) continue;
    for (const auto& candidate : choose<Operator>(*facts).candidates)
      if (candidate.verdict.ok()) visit(candidate.config);
  }
}

template <class Operator>
Plan described(const typename Operator::Config& config) {
  Plan plan;
  plan.kernel = Operator::kernel_name(plan.arch, config);
  Operator::describe(config, plan);
  return plan;
}

Sizes attention_sizes(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv, std::int64_t seqlen_q,
                      std::int64_t seqlen_k) {
  return {{"batch", batch},       {"heads_q", heads_q},   {"heads_kv", heads_kv},
          {"seqlen_q", seqlen_q}, {"seqlen_k", seqlen_k}, {"num_sms", 132}};
}

/// Two pools of keys: threads load them, and a tile is one query or a part of one.
void check_launch_of_pools(const fmha::Config& config, const LaunchPlan& launch) {
  Sizes sizes = attention_sizes(3, config.pack_gqa, 1, 77, 1001);
  sizes["topk"] = 500;
  sizes["seqlen_swa"] = 40;
  const Bound bound(launch, sizes);
  for (const DomainRule& rule : launch.domain) CHECK(bound.holds(rule));
  CHECK(launch.tensor_maps.size() == 2);
  const int panels = fmha::qk_columns(config) / fmha::span_elements(config);
  CHECK(panels * static_cast<int>(smem_box_bytes(bound.map(launch, "q"))) == fmha::q_slot_bytes(config));
  CHECK(static_cast<int>(smem_box_bytes(bound.map(launch, "o"))) * panels <= fmha::q_slot_bytes(config));
  const std::int64_t tiles = 3 * 77 * ceil_div(config.pack_gqa, config.tile_m);
  const std::int64_t places = config.cta_pair ? 66 : 132 * fmha::ctas_per_sm(config);
  CHECK(bound.value(launch.steps.at(0).grid[0]) == fmha::ctas_per_tile(config) * std::min(places, tiles));
  sizes["swa_v_stride_batch"] = 12;
  CHECK(std::any_of(launch.domain.begin(), launch.domain.end(),
                    [&](const DomainRule& rule) { return !Bound(launch, sizes).holds(rule); }));
}

}  // namespace

TEST_CASE("sizes, strides and grid of a dense attention") {
  const LaunchPlan launch = make_plan(Fmha{.head_dim = 64}).launch;
  Sizes sizes = attention_sizes(2, 6, 3, 500, 0);
  sizes["num_sms"] = 10;
  const Bound bound(launch, sizes);
  const TensorMapRecipe& q = launch.tensor_maps.at(0);
  const TensorMapRecipe& k = launch.tensor_maps.at(1);
  CHECK(bound.all(q.dims) == std::vector<std::int64_t>{64, 500, 1, 6, 2});
  CHECK(bound.all(q.strides_bytes) == std::vector<std::int64_t>{6 * 128, 128, 128, 500 * 6 * 128});
  CHECK(bound.all(k.dims) == std::vector<std::int64_t>{64, 1, 1, 3, 2});
  CHECK(bound.all(k.strides_bytes) == std::vector<std::int64_t>{3 * 128, 128, 128, 3 * 128});
  CHECK(bound.value(launch.steps.at(0).grid[0]) == 10);  // more tiles than multiprocessors
  CHECK(launch.scalars.at(0).default_value == 0.125);
  CHECK(Bound(launch, attention_sizes(2, 6, 3, 0, 9)).value(launch.steps.at(0).grid[0]) == 0);
}

TEST_CASE("attention: keys are split by default as far as a window shows some") {
  const auto parts = [](Mask mask, std::int64_t left, std::int64_t right) {
    Fmha problem{.mask = mask, .window = Window::sliding};
    problem.arch = Arch::parse("sm_100a");
    problem.split_kv = SplitKv::on;
    Sizes sizes = attention_sizes(1, 1, 1, 1, 65536);
    sizes["window_size_left"] = left;
    sizes["window_size_right"] = right;
    const Bound bound(make_plan(problem).launch, sizes);
    return bound.value(Expression::parse("num_splits"));
  };
  const std::int64_t all = parts(Mask::none, -1, -1);
  CHECK(all > 100);
  CHECK(parts(Mask::none, 127, 0) <= 2);
  CHECK(parts(Mask::none, 127, -1) == all);
  CHECK(parts(Mask::none, -1, 0) == all);
  CHECK(parts(Mask::causal, 127, -1) <= 2);
  CHECK(parts(Mask::causal, 127, 4096) <= 2);
  CHECK(parts(Mask::causal, -1, -1) == all);
  CHECK(parts(Mask::none, 100000, 100000) == all);
}

TEST_CASE("attention: dealt keys take a grid and a workspace that lengths in memory have no part in") {
  Fmha problem{.seqused = UsedLengths::k, .tile_m = 64, .tile_n = 64, .pack_gqa = 4, .split_kv = SplitKv::dealt};
  const LaunchPlan launch = make_plan(problem).launch;
  REQUIRE(launch.steps.size() == 2);
  const auto check = [&](Sizes sizes, std::int64_t ctas, std::int64_t rows_of_part) {
    const Bound bound(launch, std::move(sizes));
    CHECK(bound.value(launch.steps[0].grid[0]) == ctas);
    CHECK(bound.value(launch.steps[1].grid[0]) == (ctas - 1) * ceil_div(rows_of_part, 4));
    CHECK(bound.value(launch.workspace.bytes) == 2 * ctas * rows_of_part * (128 + 2) * 4);
  };
  const std::int64_t places = Bound(launch, attention_sizes(64, 8, 2, 1, 65536)).value(launch.steps[0].grid[0]);
  check(attention_sizes(64, 8, 2, 1, 65536), places, 4);
  check(attention_sizes(64, 8, 2, 50, 65536), places, 64);
  check(attention_sizes(1, 4, 1, 1, 129), 3, 4);  // no more CTAs than blocks
  problem.arch = Arch::parse("sm_100a");
  CHECK_THROWS_WITH(make_plan(problem), "fmha has no kernel for split_kv dealt on sm_100a: take on, or sm_90a");
}

TEST_CASE("attention: maps obey the rules and boxes fill the ring slots, for every candidate and many sizes") {
  const Sizes cases[] = {attention_sizes(1, 1, 1, 0, 0), attention_sizes(0, 1, 1, 1, 1),
                         attention_sizes(1, 8, 8, 1, 4096), attention_sizes(3, 12, 4, 77, 1001),
                         attention_sizes(1, 65536, 1, 4096, 131072)};
  const auto check = [&](const fmha::Config& config) {
    const LaunchPlan launch = described<FmhaOperator>(config).launch;
    CAPTURE(launch.steps.at(0).entry);
    if (fmha::has_pools(config)) return check_launch_of_pools(config, launch);
    const bool is_paged = config.facts.kv_layout == KvLayout::paged;
    const auto with_pages = [&](Sizes sizes) {
      if (is_paged) {
        sizes["max_pages"] = ceil_div(sizes["seqlen_k"], config.facts.page_size);
        sizes["pages"] = sizes["batch"] * sizes["max_pages"];
      }
      return sizes;
    };
    for (const Sizes& of_case : cases) {
      const Sizes sizes = with_pages(of_case);
      const Bound bound(launch, sizes);
      for (const DomainRule& rule : launch.domain) CHECK(bound.holds(rule));
      for (const TensorMapRecipe& map : launch.tensor_maps) bound.map(launch, map.name);
    }
    const Bound bound(launch, with_pages(cases[3]));
    // Where columns are padded a box is one panel.
    const auto bytes = [&](const char* name) {
      const int columns = *name == 'v' ? fmha::v_columns(config) : fmha::qk_columns(config);
      int boxes = is_padded(config.facts) ? columns / fmha::span_elements(config) : 1;
      // A box of a part of a block's keys has one panel.
      if (is_paged && *name != 'q' && fmha::box_keys(config) != config.tile_n)
        boxes = config.tile_n / fmha::box_keys(config) * key_row_bytes(config.facts, columns) /
                key_span_bytes(config.facts, config.swizzle, columns);
      return boxes * static_cast<int>(smem_box_bytes(bound.map(launch, name)));
    };
    const fmha::SmemLayout layout = fmha::smem_layout(config);
    CHECK(bytes("q") == fmha::q_slot_bytes(config));
    CHECK(bytes("q") * fmha::row_groups(config) * config.q_stages == layout.q.bytes);
    const bool is_widened = fmha::has_widening_warps(config), is_raw_v = is_widened || fmha::transposes_v(config);
    CHECK(bytes("k") == fmha::load_ring(config, false).slot_bytes);
    CHECK(bytes("k") * fmha::load_stages(config, false) == (is_widened ? layout.raw_k : layout.k).bytes);
    CHECK(bytes("v") == fmha::load_ring(config, true).slot_bytes);
    CHECK(bytes("v") * fmha::load_stages(config, true) == (is_raw_v ? layout.raw_v : layout.v).bytes);
    const bool has_o = !fmha::leaves_from_registers(config);
    const bool is_8_bit_on_hopper = is_8_bit(config.facts) && config.sm_smem_bytes == kSmemBytesOfSm;
    CHECK(has_o == (!has_descales(config.facts) || (fmha::owns_rows(config) && !is_8_bit_on_hopper)));
    const int parts = fmha::has_page_parts(config) ? config.facts.page_size / fmha::box_keys(config) : 1;
    for (int i = 2; i <= parts; ++i)
      for (const std::string tensor : {"k", "v"}) {
        const ResolvedTensorMap part = bound.map(launch, fmt::format("{}_{}", tensor, i * fmha::box_keys(config)));
        CHECK(static_cast<int>(smem_box_bytes(part)) ==
              i * static_cast<int>(smem_box_bytes(bound.map(launch, tensor))));
      }
    CHECK(static_cast<int>(launch.tensor_maps.size()) == (has_o ? 4 : 3) + 2 * (parts - 1));
    if (has_o) CHECK(static_cast<int>(smem_box_bytes(bound.map(launch, "o"))) <= fmha::q_slot_bytes(config));
  };
  for_each_legal<FmhaOperator>(check);
  for_each_legal<FmhaMmaOperator>(check);
}

TEST_CASE("copy2d: maps obey the rules and a box is the tile that the kernel waits for") {
  std::mt19937_64 random(1);
  for_each_legal<Copy2dOperator>([&](const copy2d::Config& config) {
    const LaunchPlan launch = described<Copy2dOperator>(config).launch;
    CAPTURE(launch.steps.at(0).entry);
    for (int i = 0; i < 4; ++i) {
      Sizes sizes;
      std::int64_t tiles = 1;
      for (int d = 0; d < config.rank; ++d) {
        // Dense strides must come to a multiple of 16 bytes: dimension 0 is a multiple of 16 elements. 0 and 1 occur.
        const auto extent = static_cast<std::int64_t>(i == 0   ? 0
                                                      : i == 1 ? 1
                                                               : random() % (config.rank > 3 ? 40 : 300));
        sizes["dim" + std::to_string(d)] = d == 0 ? 16 * extent : extent;
        tiles *= ceil_div(d == 0 ? 16 * extent : extent, config.box[d]);
      }
      const Bound bound(launch, sizes);
      CHECK(bound.value(launch.steps.at(0).grid[0]) == tiles);
      for (const DomainRule& rule : launch.domain) CHECK(bound.holds(rule));
      for (const char* const name : {"x", "y"}) {
        const ResolvedTensorMap map = bound.map(launch, name);
        CHECK(static_cast<long long>(smem_box_bytes(map)) == copy2d::smem_layout(config).tile_bytes);
        CHECK(static_cast<long long>(transaction_bytes(map)) == copy2d::transfer_bytes(config));
        CHECK(static_cast<int>(smem_row_pitch_bytes(map)) == copy2d::row_pitch_bytes(config));
      }
    }
  });
}

TEST_CASE("a domain names what it refuses, before a product leaves 64 bits") {
  const LaunchPlan launch = make_plan(Fmha{}).launch;
  const auto first_broken = [&](const Sizes& sizes) -> std::string {
    const Bound bound(launch, sizes);
    for (const DomainRule& rule : launch.domain)
      if (!bound.holds(rule)) return rule.message;
    return {};
  };
  constexpr std::int64_t kMax = 2147418112;
  CHECK(first_broken(attention_sizes(1, 6, 4, 1, 1)) == "heads_q must be a multiple of heads_kv");
  CHECK(first_broken(attention_sizes(1, 1, 1, kMax, 1)) == "seqlen_q + seqlen_k must be at most 2147418112");
  CHECK(first_broken(attention_sizes(kMax, 2, 1, 1, 1)) == "heads_q * batch must be at most 2147418112");
  CHECK(first_broken(attention_sizes(40000, 40000, 1, 4096, 1)) ==
        "the number of query tiles must be at most 2147418112");
  CHECK(first_broken(attention_sizes(1, 1, 1, kMax, 0)) == "");

  const LaunchPlan copy = make_plan(Copy2d{.rank = 5}).launch;
  Sizes sizes;
  for (int d = 0; d < 5; ++d) sizes["dim" + std::to_string(d)] = 1LL << 20;
  for (const char* const tensor : {"x", "y"})
    for (int d = 1; d < 5; ++d) sizes[tensor + ("_stride" + std::to_string(d))] = 1LL << 30;
  const Bound bound(copy, sizes);
  CHECK(bound.holds(copy.domain.at(0)));
  CHECK(!bound.holds(copy.domain.at(1)));
  CHECK(copy.domain.at(1).message == "the tiles along dimensions 0 to 1 must be at most 2,147,483,647 (grid)");
}

TEST_CASE("a copy takes only rows of whole 16-byte units, which is what a tensor store writes") {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    const LaunchPlan copy = make_plan(Copy2d{.dtype = dtype}).launch;
    const std::int64_t unit = 16 / dtype_bytes(dtype);
    for (std::int64_t dim0 = 0; dim0 <= 4 * unit; ++dim0) {
      const Bound bound(copy, {{"dim0", dim0}, {"dim1", 3}, {"x_stride1", 64}, {"y_stride1", 64}});
      CHECK(bound.holds(copy.domain.at(0)) == (dim0 % unit == 0));
    }
  }
  CHECK(make_plan(Copy2d{}).launch.domain.at(0).message.starts_with("dim0 must be a multiple of 4 (16 bytes): "));
}

}  // namespace launch_test
