// The rules of matrix product Configs, and what follows from a legal one.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "spec/gemm.h"

namespace tessera::gemm {
namespace {

std::vector<Config> legal_configs() {
  std::vector<Config> configs;
  for (const DType d_dtype : {DType::f32, DType::bf16, DType::e4m3})
    for (const bool is_8_bit_product : {false, true})
      for (const int tile_m : {64, 128, 192, 256})
        for (const int tile_n : {16, 24, 48, 56, 64, 112, 128, 160, 168, 200, 256})
          for (const int cluster_m : {1, 2})
            for (const int split_k : {1, 2, 3, 4, 5, 7})
              for (const KernelSchedule schedule : {KernelSchedule::cooperative, KernelSchedule::ping_pong})
                for (const SwapAb swap_ab : {SwapAb::off, SwapAb::on})
                  for (const Layout b_layout : {Layout::k_major, Layout::mn_major}) {
                    Config c{.facts = {.b_layout = b_layout, .d_dtype = d_dtype}, .tile_m = tile_m, .tile_n = tile_n};
                    if (is_8_bit_product) {
                      c.facts.a_type = c.facts.b_type = OperandType::e4m3;
                      c.facts.accumulation = Accumulation::promoted;
                    }
                    c.cluster_m = cluster_m;
                    c.split_k = split_k;
                    c.kernel_schedule = schedule;
                    c.swap_ab = swap_ab;
                    c.stages = most_stages(c);
                    if (why_invalid(c).ok()) configs.push_back(c);
                  }
  return configs;
}

TEST_CASE("products: squares of factors that a tile may touch, which begins at a multiple of its width") {
  for (int extent = 16; extent <= 256; extent += 16) {
    int most = 0;
    for (int tile = 0; tile < kScaleBlock; ++tile) {
      const int first = tile * extent, last = first + extent - 1;
      most = std::max(most, last / kScaleBlock - first / kScaleBlock + 1);
      CHECK(first % kScaleBlock % unit_of_offsets(extent) == 0);
    }
    CAPTURE(extent);
    CHECK(joined_squares({.tile_n = extent}) == most);
  }
}

void check_rule(const Config& c, Rule rule, long long found, long long bound) {
  const Verdict<Rule> verdict = why_invalid(c);
  CHECK(static_cast<int>(verdict.rule) == static_cast<int>(rule));
  CHECK(verdict.found == found);
  CHECK(verdict.bound == bound);
}

TEST_CASE("the default is legal, and so are many others") {
  check_rule(Config{}, Rule::ok, 0, 0);
  CHECK(legal_configs().size() > 300);
}

TEST_CASE("each rule names what it found and its bound") {
  check_rule({.facts = {.d_format = OutputFormat::nvfp4}}, Rule::facts_of_tcgen05, 1, 0);
  check_rule({.facts = {.bias = Bias::column, .gate = Gate::dual}}, Rule::dual_gate, 1, 0);
  check_rule({.facts = {.c = Addend::matrix, .gate = Gate::interleaved}}, Rule::gate_and_addend, 1, 0);
  check_rule({.facts = {.gate = Gate::interleaved, .interleave = 12}}, Rule::interleave_of_gate, 12, 128);
  check_rule({.facts = {.gate = Gate::interleaved, .interleave = 8}, .swap_ab = SwapAb::on}, Rule::swap_of_gate, 1, 0);
  check_rule({.facts = {.gate = Gate::interleaved, .interleave = 8}, .split_k = 2}, Rule::split_k_of_gate, 2, 1);
  check_rule({.facts = {.gate = Gate::interleaved, .interleave = 8}, .tile_n = 80}, Rule::tile_n_of_gate, 80, 32);
  check_rule({.facts = {.gate = Gate::interleaved, .interleave = 64}, .tile_n = 192}, Rule::tile_n_of_gate, 192, 128);
  check_rule({.facts = {.a_type = OperandType::nvfp4, .b_type = OperandType::nvfp4}}, Rule::operand_type, 1, 4);
  check_rule({.facts = {.a_type = OperandType::tf32, .b_type = OperandType::tf32}}, Rule::operand_type, 8, 4);
  check_rule({.facts = {.b_type = OperandType::f16}}, Rule::operand_type, 4, 4);
  check_rule({.facts = {.d_dtype = DType::s32}}, Rule::output_type, 4, 4);
  check_rule({.facts = {.a_type = OperandType::e4m3, .b_type = OperandType::e5m2, .a_layout = Layout::mn_major}},
             Rule::layout_needs_16_bit, 1, 2);
  check_rule({.facts = {.accumulation = Accumulation::promoted}}, Rule::promotion_needs_8_bit, 2, 1);
  check_rule({.tile_m = 96}, Rule::tile_m_not_multiple_of_64, 96, 64);
  check_rule({.tile_m = 320}, Rule::tile_m_out_of_range, 320, 256);
  check_rule({.tile_m = 192, .tile_n = 64, .kernel_schedule = KernelSchedule::ping_pong}, Rule::tile_m_out_of_range,
             192, 128);
  check_rule({.tile_n = 68}, Rule::tile_n_not_multiple, 68, 8);
  check_rule({.tile_n = 8}, Rule::tile_n_not_multiple, 8, 16);
  // What has no columns that are left over.
  check_rule({.facts = {.activation = Activation::gelu}, .tile_n = 72}, Rule::tile_n_not_multiple, 72, 16);
  check_rule({.facts = {.d_dtype = DType::e4m3}, .tile_n = 72}, Rule::tile_n_not_multiple, 72, 16);
  check_rule({.tile_n = 72, .split_k = 2}, Rule::tile_n_not_multiple, 72, 16);
  check_rule({.tile_n = 272}, Rule::tile_n_out_of_range, 272, 256);
  check_rule({.stages = 1}, Rule::stages_out_of_range, 1, 16);
  check_rule({.stages = 17}, Rule::stages_out_of_range, 17, 16);
  check_rule({.cluster_m = 3}, Rule::cluster_too_large, 3, 8);
  check_rule({.cluster_m = 8, .split_k = 2}, Rule::cluster_too_large, 16, 8);
  check_rule({.split_k = 9}, Rule::split_k_out_of_range, 9, 8);
  check_rule({.split_k = 0}, Rule::split_k_out_of_range, 0, 8);
  check_rule({.split_k = 3}, Rule::part_of_d_too_small, 85, 16);
  check_rule({.facts = {.d_dtype = DType::f32}, .swap_ab = SwapAb::on}, Rule::swap_needs_16_bit_output, 4, 2);
  check_rule({.facts = {.d_dtype = DType::e4m3}, .swap_ab = SwapAb::on}, Rule::swap_needs_16_bit_output, 1, 2);
  check_rule({.tile_m = 64, .tile_n = 64, .split_k = 2, .kernel_schedule = KernelSchedule::ping_pong},
             Rule::split_k_and_ping_pong, 2, 1);
  check_rule({.raster = 0}, Rule::raster_out_of_range, 0, 1024);
  check_rule({.facts = {.a_layout = Layout::mn_major, .grouping = Grouping::contiguous}}, Rule::layout_of_groups, 1, 0);
  check_rule({.facts = {.a_type = OperandType::e4m3,
                        .b_type = OperandType::e4m3,
                        .accumulation = Accumulation::promoted,
                        .grouping = Grouping::contiguous,
                        .a_scale_block = ScaleBlock::square,
                        .b_scale_block = ScaleBlock::square}},
             Rule::squares_of_groups, 1, 0);
  check_rule({.facts = {.d_scale_block = ScaleBlock::of_row}}, Rule::type_of_d_factors, 2, 1);
  check_rule({.facts = {.d_dtype = DType::e5m2, .d_scale_block = ScaleBlock::of_row}}, Rule::type_of_d_factors, 1, 1);
  check_rule({.facts = {.d_dtype = DType::e4m3, .d_scale_block = ScaleBlock::square}}, Rule::squares_of_d, 1, 0);
  check_rule({.facts = {.d_dtype = DType::e4m3, .d_scale_block = ScaleBlock::of_row}, .tile_n = 192},
             Rule::columns_of_d_factors, 192, 128);
  check_rule({.facts = {.d_dtype = DType::e4m3, .d_scale_block = ScaleBlock::of_row}, .tile_n = 128, .split_k = 2},
             Rule::columns_of_d_factors, 64, 128);
  check_rule({.facts = {.d_dtype = DType::e4m3,
                        .gate = Gate::interleaved,
                        .interleave = 8,
                        .d_scale_block = ScaleBlock::of_row},
              .tile_n = 128},
             Rule::columns_of_d_factors, 64, 128);
  check_rule({.facts = {.gather = Gather::rows}}, Rule::gather_without_groups, 1, 0);
  check_rule({.facts = {.a_layout = Layout::mn_major, .grouping = Grouping::masked, .gather = Gather::rows}},
             Rule::layout_of_gather, 1, 0);
  check_rule({.facts = {.grouping = Grouping::masked, .gather = Gather::rows}, .cluster_m = 1, .cluster_n = 2},
             Rule::cluster_n_of_gather, 2, 1);
  check_rule({.facts = {.grouping = Grouping::masked}, .swap_ab = SwapAb::on}, Rule::swap_of_groups, 1, 0);
  check_rule({.facts = {.grouping = Grouping::masked}, .split_k = 2}, Rule::split_k_of_groups, 2, 1);
  check_rule({.facts = {.a_layout = Layout::mn_major}, .tile_m = 64, .cluster_m = 1, .cluster_n = 2},
             Rule::part_of_a_too_small, 32, 64);
  check_rule({.tile_n = 112, .cluster_m = 4}, Rule::part_of_b_too_small, 28, 8);
  check_rule({.facts = {.b_layout = Layout::mn_major}, .tile_n = 160, .cluster_m = 2}, Rule::part_of_b_too_small, 96,
             64);
  check_rule({.tile_n = 112, .split_k = 2}, Rule::part_of_d_too_small, 56, 16);
  check_rule({.tile_m = 256}, Rule::accumulators_exceed_registers, 256, 196);
  check_rule({.tile_m = 192, .tile_n = 208, .stages = 3}, Rule::accumulators_exceed_registers, 104, 102);
  check_rule({.stages = 2, .split_k = 2}, Rule::partial_sums_exceed_ring, 131072, 98304);
  check_rule({.stages = 5}, Rule::shared_memory_exceeded, 5 * 49152 + 32768 + 80, 232448);
}

TEST_CASE("shared memory: regions follow each other, slots and panels start on a repeat of the swizzle") {
  for (const Config& c : legal_configs()) {
    const SmemLayout layout = smem_layout(c);
    CHECK(layout.a.offset == 0);
    CHECK(layout.b.offset == layout.a.bytes);
    CHECK(layout.d.offset == layout.b.offset + layout.b.bytes);
    CHECK(layout.barriers.offset == layout.d.offset + layout.d.bytes);
    CHECK(layout.total_bytes == layout.barriers.offset + 16 * c.stages + (c.split_k > 1 ? 8 : 0));
    CHECK(layout.total_bytes <= kMaxSmemBytes);
    CHECK(a_slot_bytes(c) % 1024 == 0);
    CHECK(b_slot_bytes(c) % 1024 == 0);
    CHECK(b_slot_bytes(c) / c.cluster_m % 1024 == 0);
    CHECK(staging_slot_bytes(c) % swizzle_repeat_bytes(d_swizzle(c)) == 0);
    CHECK(layout.d.offset % 1024 == 0);
  }
}

TEST_CASE("products with factors of blocks stage all panels of a tile of 16-bit d, others two in turn") {
  const Config scaled{.facts = {.a_type = OperandType::e4m3,
                                .b_type = OperandType::e4m3,
                                .accumulation = Accumulation::promoted,
                                .a_scale_block = ScaleBlock::of_row,
                                .b_scale_block = ScaleBlock::square}};
  const auto slots = [&](int tile_m, int tile_n, const auto& change) {
    Config c = scaled;
    c.tile_m = tile_m, c.tile_n = tile_n;
    change(c);
    CHECK(smem_layout(c).d.bytes == consumer_warpgroups(c) * staging_slots(c) * staging_slot_bytes(c));
    return staging_slots(c);
  };
  const auto same = [](Config&) {};
  CHECK(slots(256, 128, same) == 4);
  CHECK(slots(128, 192, same) == 3);
  CHECK(slots(64, 128, same) == kStagingSlots);
  CHECK(slots(256, 112, same) == kStagingSlots);  // panels of 16 columns
  CHECK(slots(256, 128, [](Config& c) { c.facts.d_dtype = DType::f32; }) == kStagingSlots);
  CHECK(slots(128, 128, [](Config& c) { c.split_k = 2; }) == kStagingSlots);
  CHECK(slots(128, 128, [](Config& c) { c.swap_ab = SwapAb::on; }) == kStagingSlots);
  CHECK(slots(256, 128, [](Config& c) { c.facts.a_scale_block = ScaleBlock::none; }) == kStagingSlots);
}

TEST_CASE("parts of k send each other their sums where little comes, into the memory of d's panels") {
  const auto staged = [](ScaleBlock block, int tile_m, int tile_n, int split_k, bool sends) {
    const Config c{.facts = {.a_type = OperandType::e4m3,
                             .b_type = OperandType::e4m3,
                             .accumulation = Accumulation::promoted,
                             .a_scale_block = block,
                             .b_scale_block = block},
                   .tile_m = tile_m,
                   .tile_n = tile_n,
                   .stages = 3,
                   .cluster_m = 1,
                   .split_k = split_k};
    REQUIRE(why_invalid(c).ok());
    CHECK(sends_sums(c) == sends);
    return smem_layout(c).d.bytes;
  };
  CHECK(staged(ScaleBlock::of_row, 64, 64, 1, false) == 2 * 64 * 128);
  CHECK(staged(ScaleBlock::of_row, 64, 64, 2, true) == 64 * 32 * 4);  // as many bytes as two panels
  CHECK(staged(ScaleBlock::of_row, 64, 64, 4, true) == 3 * 64 * 16 * 4);
  CHECK(staged(ScaleBlock::of_row, 128, 128, 2, true) == 128 * 64 * 4);
  CHECK(staged(ScaleBlock::of_row, 128, 128, 4, false) == 2 * 128 * 64);  // 48 KB would come
  CHECK(staged(ScaleBlock::of_row, 256, 64, 2, false) == 2 * 128 * 64);   // two blocks a warpgroup
  CHECK(staged(ScaleBlock::none, 64, 64, 4, false) == 2 * 64 * 32);
}

TEST_CASE("32 KB of weights and less than a step more come to the L2 ahead") {
  const auto steps = [](int tile_n, int cluster_m, SwapAb swap_ab) {
    return prefetched_steps({.facts = {.a_type = OperandType::e4m3, .b_type = OperandType::e4m3},
                             .tile_m = 64,
                             .tile_n = tile_n,
                             .stages = 3,
                             .cluster_m = cluster_m,
                             .swap_ab = swap_ab});
  };
  CHECK(steps(64, 1, SwapAb::off) == 3);  // no more than there are slots
  CHECK(steps(128, 1, SwapAb::off) == 2);
  CHECK(steps(192, 1, SwapAb::off) == 2);
  CHECK(steps(256, 1, SwapAb::off) == 1);
  CHECK(steps(256, 2, SwapAb::off) == 2);  // a CTA's part
  CHECK(steps(256, 1, SwapAb::on) == 3);   // tile_m is the weights'
}

TEST_CASE("boxes fill their slots, panels of d its columns") {
  for (const Config& c : legal_configs()) {
    const TmaBox a = a_box(c), b = b_box(c), d = d_box(c);
    CHECK(a_slot_bytes(c) / c.cluster_n % (a.extents[0] * a.extents[1] * element_bytes(c)) == 0);
    CHECK(b_slot_bytes(c) / c.cluster_m % (b.extents[0] * b.extents[1] * element_bytes(c)) == 0);
    CHECK(c.tile_m / c.cluster_n % a_box_rows(c) == 0);
    CHECK(b_slot_rows(c) / c.cluster_m % b_box_rows(c) == 0);
    CHECK(b_slot_rows(c) >= c.tile_n);
    CHECK(b_slot_rows(c) - c.tile_n < b_box_rows(c));
    CHECK(d.extents[0] * dtype_bytes(c.facts.d_dtype) == d_span_bytes(c));
    const int along = is_swapped(c) ? 1 : 0;  // the tile's columns
    CHECK(stored_columns(c) % d.extents[along] == rest_columns(c));
    CHECK((rest_columns(c) == 0 || may_have_rest(c)));
    CHECK(rest_columns(c) * dtype_bytes(c.facts.d_dtype) % 16 == 0);
    CHECK((rest_columns(c) + 15) / 16 * 16 <= std::max(d.extents[along], 16));  // staged as a panel is
    CHECK(d.extents[along] % 8 == 0);                                           // four values of a thread
    CHECK(d.extents[1 - along] == kBlockRows);
    for (const TmaBox& box : {a, b, d})
      for (const int extent : box.extents) CHECK((extent >= 1 && extent <= 256));
  }
}

TEST_CASE("registers and threads fit the SM, warpgroups own the tile") {
  for (const Config& c : legal_configs()) {
    const RegisterBudget budget = register_budget(c);
    const int groups = consumer_warpgroups(c);
    CHECK(budget.entry * num_threads(c) <= 65536);
    CHECK((budget.producer + groups * budget.consumer) * kWarpgroupThreads <= budget.entry * num_threads(c));
    CHECK(accumulator_registers(c) <= budget.consumer - registers_beside_accumulators(c));
    CHECK(blocks(c) * kBlockRows * (is_ping_pong(c) ? 1 : groups) == c.tile_m);
    int next = 0;
    for (int i = 0; i < num_roles(c); ++i) {
      CHECK(role(c, i).first_warp == next);
      next += role(c, i).warps;
    }
    CHECK(next * 32 == num_threads(c));
  }
}

TEST_CASE("the lines of b leave the L2 first where few rows of clusters read them, and b is not long") {
  const Config alone{.cluster_m = 1}, shared{.cluster_m = 2};
  for (const int rows : {1, 2}) {
    CHECK(is_streamed(alone, rows, 4096, 7168, 1));
    CHECK(is_streamed(shared, rows, 37888, 3584, 1));  // 272 MB
    CHECK(!is_streamed(alone, rows, 8192, 28672, 1));  // 470 MB
    CHECK(!is_streamed(alone, rows, 4096, 7168, 64));
  }
  CHECK(is_streamed(alone, 4, 4096, 7168, 1));
  CHECK(!is_streamed(shared, 3, 4096, 7168, 1));
  CHECK(!is_streamed(alone, 5, 4096, 7168, 1));
  // Half as many bytes.
  CHECK(is_streamed({.facts = {.a_type = OperandType::e4m3, .b_type = OperandType::e4m3}}, 1, 8192, 28672 / 2, 1));
  constexpr int kMost = 2147418112;
  CHECK(!is_streamed(alone, 1, kMost, kMost, kMost));
  CHECK(!is_streamed(alone, 1, 64, 64, kMost));
}

}  // namespace
}  // namespace tessera::gemm
