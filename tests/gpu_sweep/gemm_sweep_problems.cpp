// Types x layouts x epilogues of products, each with the planner's choice and with pinned tiles in turn: those that
// Hopper's warpgroups multiply, mma.sync's, and products of narrow weights, plain, gated and in groups.
#include "tests/gpu_sweep/gemm_sweep_problems.h"

#include <iterator>
#include <optional>

namespace tessera {
namespace {

/// Groups of every type, with epilogues and tiles in turn.
void add_groups(std::vector<Gemm>& list) {
  constexpr int kTiles[][6] = {// tile_m, tile_n, cluster_m, cluster_n, stages, ping-pong
                               {0, 0, 0, 0, 0, 0},     {128, 192, 1, 1, 0, 0}, {64, 64, 1, 1, 2, 0},
                               {256, 128, 1, 2, 0, 0}, {128, 128, 2, 1, 0, 1}, {64, 128, 1, 1, 0, 0},
                               {192, 80, 1, 1, 0, 0},  {128, 64, 2, 1, 3, 0}};
  constexpr DType kTypes[] = {DType::bf16, DType::f16, DType::e4m3, DType::e5m2};
  constexpr DType kResults[] = {DType::bf16, DType::f32, DType::f16, DType::e4m3};
  std::size_t turn = 0;
  for (const Grouping grouping : {Grouping::contiguous, Grouping::masked})
    for (const DType dtype : kTypes)
      for (const ScaleBlock b_block : {ScaleBlock::none, ScaleBlock::square, ScaleBlock::of_row})
        for (int i = 0; i < 4; ++i, ++turn) {
          if (b_block != ScaleBlock::none && dtype_bytes(dtype) == 2) continue;
          Gemm p{.dtype = dtype, .d_dtype = kResults[turn % 4], .grouping = grouping, .b_scale_block = b_block};
          const bool has_squares = grouping == Grouping::masked && i == 3;
          if (b_block != ScaleBlock::none) p.a_scale_block = has_squares ? ScaleBlock::square : ScaleBlock::of_row;
          if (grouping == Grouping::masked && dtype_bytes(dtype) == 2 && i == 2) p.a_layout = Layout::mn_major;
          p.c = turn % 3 == 1 ? Addend::matrix : Addend::none;
          p.bias = turn % 5 == 2 ? Bias::column : turn % 5 == 4 ? Bias::group : Bias::none;
          p.activation = turn % 4 == 3 ? Activation::silu : Activation::none;
          if (const auto& tile = kTiles[turn % std::size(kTiles)]; tile[0] != 0) {
            p.tile_m = tile[0];
            p.tile_n = tile[1];
            p.cluster_m = tile[2];
            p.cluster_n = tile[3];
            if (tile[4] != 0) p.stages = tile[4];
            p.kernel_schedule = tile[5] != 0 ? KernelSchedule::ping_pong : KernelSchedule::cooperative;
          }
          list.push_back(p);
          p.gather = Gather::rows;
          const bool is_refused =
              p.a_layout == Layout::mn_major || p.a_scale_block == ScaleBlock::square || p.cluster_n.value_or(1) > 1;
          if (!is_refused) list.push_back(p);
        }
}

/// Gates of wgmma's products of every type, with and without groups, a bias and factors of blocks.
void add_gates(std::vector<Gemm>& list) {
  constexpr int kTiles[][3] = {
      // tile_m, tile_n, interleave
      {0, 0, 8}, {64, 64, 8}, {128, 128, 16}, {256, 96, 8}, {192, 64, 16}, {128, 128, 64}, {64, 128, 32}, {0, 0, 64}};
  constexpr GateActivation kActivations[] = {GateActivation::silu, GateActivation::gpt_oss, GateActivation::gelu};
  constexpr DType kResults[] = {DType::bf16, DType::f32, DType::e4m3};
  std::size_t turn = 0;
  for (const DType dtype : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2})
    for (const Grouping grouping : {Grouping::none, Grouping::contiguous, Grouping::masked})
      for (const bool has_blocks : {false, true})
        for (int i = 0; i < 3; ++i) {
          if (has_blocks && dtype_bytes(dtype) == 2) continue;
          const auto& tile = kTiles[turn % std::size(kTiles)];
          Gemm p{.dtype = dtype, .d_dtype = kResults[turn % 3], .grouping = grouping};
          if (has_blocks) p.a_scale_block = ScaleBlock::of_row;
          if (has_blocks) p.b_scale_block = turn % 2 == 0 ? ScaleBlock::square : ScaleBlock::of_row;
          p.bias = turn % 3 == 0                                 ? Bias::none
                   : grouping != Grouping::none && turn % 3 == 1 ? Bias::group
                                                                 : Bias::column;
          p.gate = Gate::interleaved;
          p.interleave = tile[2];
          p.gate_activation = kActivations[turn / 2 % 3];
          p.gate_limit = turn % 4 == 1 ? 7 : 0;
          if (tile[0] != 0) {
            p.tile_m = tile[0];
            p.tile_n = tile[1];
          }
          ++turn;
          list.push_back(p);
        }
}

/// An e4m3 d with factors of its blocks: every type of operands, groups, gates, lists of rows, epilogues in turn.
void add_factors_of_d(std::vector<Gemm>& list) {
  constexpr int kTiles[][3] = {// tile_m, tile_n, interleave
                               {0, 0, 8},
                               {128, 128, 8},
                               {64, 256, 16},
                               {64, 128, 8},
                               {128, 256, 64}};
  constexpr GateActivation kGates[] = {GateActivation::gpt_oss, GateActivation::silu, GateActivation::gelu};
  std::size_t turn = 0;
  for (const DType dtype : {DType::bf16, DType::f16, DType::e4m3, DType::e5m2})
    for (const Grouping grouping : {Grouping::none, Grouping::contiguous, Grouping::masked})
      for (const ScaleBlock b_block : {ScaleBlock::none, ScaleBlock::square, ScaleBlock::of_row})
        for (const bool is_gated : {false, true}) {
          if (b_block != ScaleBlock::none && dtype_bytes(dtype) == 2) continue;
          const auto& tile = kTiles[turn % std::size(kTiles)];
          Gemm p{.dtype = dtype, .d_dtype = DType::e4m3, .grouping = grouping, .b_scale_block = b_block};
          if (b_block != ScaleBlock::none) p.a_scale_block = ScaleBlock::of_row;
          p.d_scale_block = ScaleBlock::of_row;
          p.d_scale_values = turn % 2 == 0 ? ScaleValues::any : ScaleValues::pow2;
          p.bias = turn % 3 == 0 ? Bias::none : grouping != Grouping::none ? Bias::group : Bias::column;
          if (is_gated) {
            p.gate = Gate::interleaved;
            p.interleave = tile[2];
            p.gate_activation = kGates[turn / 2 % std::size(kGates)];
            p.gate_limit = turn % 4 == 1 ? 7 : 0;
          } else {
            p.c = turn % 4 == 2 ? Addend::matrix : Addend::none;
            p.activation = turn % 5 == 3 ? Activation::silu : Activation::none;
          }
          // A gate leaves half of a tile's columns.
          if (tile[0] != 0) p.tile_m = tile[0];
          if (tile[1] != 0) p.tile_n = is_gated ? 256 : b_block == ScaleBlock::none ? tile[1] : 128;
          ++turn;
          list.push_back(p);
          if (grouping != Grouping::contiguous) continue;
          p.gather = Gather::rows;
          list.push_back(p);
        }
}

/// Weights of four bits, with epilogues and tiles in turn.
void add_weights(std::vector<Gemm>& list) {
  constexpr int kTiles[][4] = {// tile_m, tile_n, split_k, mma.f16
                               {0, 0, 0, 0},     {16, 64, 1, 0},  {16, 64, 2, 0},  {16, 128, 3, 0},  {32, 128, 1, 0},
                               {32, 256, 2, 0},  {16, 256, 4, 0}, {64, 128, 2, 0}, {128, 256, 1, 0}, {192, 128, 1, 0},
                               {256, 128, 1, 0}, {96, 64, 1, 0},  {8, 128, 1, 1},  {8, 256, 3, 1},   {16, 128, 2, 1},
                               {16, 256, 1, 1},  {8, 64, 2, 1},   {32, 128, 1, 1}, {8, 128, 2, 0},   {24, 192, 2, 0},
                               {32, 384, 1, 0},  {8, 512, 2, 0},  {32, 128, 2, 0}, {8, 192, 1, 0}};
  struct Weights {
    DType dtype;
    std::optional<BlockFormat> format;
    int group;
    ZeroPoints zeros;
  };
  constexpr Weights kWeights[] = {{DType::bf16, BlockFormat::mxfp4, 128, ZeroPoints::none},
                                  {DType::bf16, BlockFormat::nvfp4, 128, ZeroPoints::none},
                                  {DType::f16, BlockFormat::nvfp4, 128, ZeroPoints::none},
                                  {DType::bf16, {}, 128, ZeroPoints::none},
                                  {DType::bf16, {}, 64, ZeroPoints::given},
                                  {DType::f16, {}, 32, ZeroPoints::given},
                                  {DType::f16, {}, 32, ZeroPoints::none},
                                  {DType::e4m3, BlockFormat::mxfp4, 128, ZeroPoints::none},
                                  {DType::e4m3, BlockFormat::nvfp4, 128, ZeroPoints::none},
                                  {DType::e4m3, {}, 32, ZeroPoints::given},
                                  {DType::e5m2, {}, 128, ZeroPoints::none}};
  constexpr DType kResults[] = {DType::bf16, DType::f32, DType::f16};
  constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::silu};
  std::size_t turn = 0;
  for (const Weights& w : kWeights)
    for (const auto& tile : kTiles) {
      Gemm p{.dtype = w.dtype,
             .b_format = w.format,
             .b_int4 = !w.format,
             .b_group = w.group,
             .zero_points = w.zeros,
             .d_dtype = kResults[turn % 3]};
      p.c = turn % 2 == 1 ? Addend::matrix : Addend::none;
      p.bias = turn / 2 % 2 == 1 ? Bias::column : Bias::none;
      p.activation = kActivations[turn++ % 3];
      if (tile[0] != 0) {
        p.tile_m = tile[0];
        p.tile_n = tile[1];
        p.split_k = tile[2];
        p.mma_kind = tile[3] != 0 ? MmaKind::mma_f16 : MmaKind::wgmma_f16;
      }
      list.push_back(p);
    }
}

/// The same of groups, with and without a list of rows.
void add_weight_groups(std::vector<Gemm>& list) {
  constexpr int kTiles[][4] = {// tile_m, tile_n, split_k, mma.f16
                               {0, 0, 0, 0},     {16, 64, 1, 0},  {32, 128, 2, 0},  {8, 128, 1, 1},
                               {64, 256, 1, 0},  {16, 256, 2, 1}, {128, 256, 1, 0}, {16, 64, 1, 1},
                               {192, 128, 1, 0}, {8, 384, 1, 0},  {24, 192, 2, 0},  {32, 256, 1, 0}};
  constexpr GateActivation kGateActivations[] = {GateActivation::silu, GateActivation::gpt_oss, GateActivation::gelu,
                                                 GateActivation::gelu_tanh};
  constexpr std::optional<BlockFormat> kFormats[] = {BlockFormat::mxfp4, BlockFormat::nvfp4, {}};
  constexpr DType kResults[] = {DType::bf16, DType::f32, DType::f16};
  std::size_t turn = 0;
  for (const std::optional<BlockFormat> format : kFormats)
    for (const Grouping grouping : {Grouping::contiguous, Grouping::masked})
      for (const Gather gather : {Gather::none, Gather::rows})
        for (const auto& tile : kTiles) {
          Gemm p{.b_format = format, .b_int4 = !format, .d_dtype = kResults[turn % 3], .grouping = grouping};
          p.gather = gather;
          if (turn % 4 == 3) p.dtype = DType::e4m3;
          if (p.b_int4) {
            p.b_group = turn % 2 == 0 ? 32 : 128;
            p.zero_points = turn % 4 < 2 ? ZeroPoints::given : ZeroPoints::none;
          }
          p.c = turn % 4 == 1 ? Addend::matrix : Addend::none;
          p.bias = turn % 5 == 2 ? Bias::column : turn % 5 == 4 ? Bias::group : Bias::none;
          p.activation = turn++ % 7 == 3 ? Activation::silu : Activation::none;
          if (turn % 3 == 0) {
            p.gate = Gate::interleaved;
            p.interleave = 8;
            p.gate_activation = kGateActivations[turn / 3 % 4];
            p.gate_limit = turn / 3 % 3 == 0 ? 0 : 7;
            p.c = Addend::none;
            p.activation = Activation::none;
          }
          if (tile[0] != 0) {
            p.tile_m = tile[0];
            p.tile_n = tile[1];
            p.split_k = tile[2];
            p.mma_kind = tile[3] != 0 ? MmaKind::mma_f16 : MmaKind::wgmma_f16;
          }
          list.push_back(p);
        }
}

/// The kernels of sm_120, compiled for this target.
void add_mma(std::vector<Gemm>& list) {
  constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                         Activation::silu};
  // tile_m, tile_n, stages; those with fewer than 64 rows are refused with an MN-major operand.
  constexpr int kTiles[][3] = {{0, 0, 0},    {128, 256, 2}, {128, 128, 3}, {256, 128, 2}, {64, 64, 2},
                               {64, 256, 2}, {256, 64, 2},  {128, 64, 4},  {64, 128, 2},  {32, 128, 4},
                               {16, 256, 2}, {16, 64, 8},   {32, 256, 2},  {64, 64, 6}};
  std::size_t turn = 0;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Layout a : {Layout::k_major, Layout::mn_major})
      for (const Layout b : {Layout::k_major, Layout::mn_major})
        for (const DType d : {DType::f32, DType::bf16, DType::f16})
          for (int i = 0; i < 3; ++i, ++turn) {
            const auto& tile = kTiles[turn % std::size(kTiles)];
            Gemm p{.dtype = dtype, .d_dtype = d, .a_layout = a, .b_layout = b, .mma_kind = MmaKind::mma_f16};
            p.c = turn % 2 == 1 ? Addend::matrix : Addend::none;
            p.bias = turn / 2 % 2 == 1 ? Bias::column : Bias::none;
            p.activation = kActivations[turn % std::size(kActivations)];
            if (tile[0] != 0) {
              p.tile_m = tile[0];
              p.tile_n = tile[1];
              p.stages = tile[2];
            }
            list.push_back(p);
          }
  for (const DType dtype : {DType::e4m3, DType::e5m2})
    for (const DType b_dtype : {DType::e4m3, DType::e5m2})
      for (const DType d : {DType::f32, DType::bf16})
        list.push_back({.dtype = dtype, .b_dtype = b_dtype, .d_dtype = d, .mma_kind = MmaKind::mma_f16});
  // Groups, with and without a list of rows.
  constexpr int kTilesOfGroups[][3] = {{0, 0, 0},    {128, 256, 2}, {64, 64, 6},  {16, 64, 8},
                                       {256, 64, 2}, {32, 128, 4},  {128, 128, 3}};
  for (const DType dtype : {DType::bf16, DType::f16, DType::e4m3})
    for (const Grouping grouping : {Grouping::contiguous, Grouping::masked})
      for (const Gather gather : {Gather::none, Gather::rows})
        for (int i = 0; i < 3; ++i, ++turn) {
          Gemm p{.dtype = dtype, .grouping = grouping, .mma_kind = MmaKind::mma_f16};
          p.gather = gather;
          if (turn % 3 == 0) {
            p.gate = Gate::interleaved;
            p.interleave = 8;
          } else {
            p.c = turn % 2 == 1 ? Addend::matrix : Addend::none;
            p.bias = turn % 5 == 2 ? Bias::column : turn % 5 == 4 ? Bias::group : Bias::none;
          }
          if (const auto& tile = kTilesOfGroups[turn % std::size(kTilesOfGroups)]; tile[0] != 0) {
            p.tile_m = tile[0];
            p.tile_n = tile[1];
            p.stages = tile[2];
          }
          list.push_back(p);
        }
  // Few rows: D transposed and as it is, k in parts.
  for (const DType dtype : {DType::bf16, DType::f16, DType::e4m3})
    for (const auto& [swap_ab, tile_m] :
         {std::pair(SwapAb::on, 8), std::pair(SwapAb::on, 32), std::pair(SwapAb::off, 16)})
      for (const int split_k : {1, 2, 3, 8}) {
        Gemm p{.dtype = dtype, .mma_kind = MmaKind::mma_f16};
        p.swap_ab = swap_ab;
        p.tile_m = tile_m;
        p.tile_n = 64;
        p.split_k = split_k;
        p.c = split_k == 2 ? Addend::matrix : Addend::none;
        list.push_back(p);
      }
}

}  // namespace

std::vector<Gemm> gemm_sweep_problems() {
  std::vector<Gemm> list;
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Layout a : {Layout::k_major, Layout::mn_major})
      for (const Layout b : {Layout::k_major, Layout::mn_major})
        for (const DType d : {DType::f32, DType::bf16, DType::f16, DType::e4m3})
          list.push_back({.dtype = dtype, .d_dtype = d, .a_layout = a, .b_layout = b});
  for (const DType dtype : {DType::e4m3, DType::e5m2})
    for (const DType b_dtype : {DType::e4m3, DType::e5m2})
      for (const Accumulation accumulation : {Accumulation::fast, Accumulation::promoted})
        for (const DType d : {DType::f32, DType::bf16, DType::e5m2})
          list.push_back({.dtype = dtype, .b_dtype = b_dtype, .d_dtype = d, .accumulation = accumulation});
  for (const DType b_dtype : {DType::e4m3, DType::e5m2})
    for (const ScaleBlock a_block : {ScaleBlock::of_row, ScaleBlock::square})
      for (const ScaleBlock b_block : {ScaleBlock::of_row, ScaleBlock::square})
        for (const DType d : {DType::f32, DType::bf16, DType::f16})
          list.push_back({.dtype = DType::e4m3,
                          .b_dtype = b_dtype,
                          .d_dtype = d,
                          .a_scale_block = a_block,
                          .b_scale_block = b_block});
  // Epilogues and tiles in turn over all of these.
  constexpr Activation kActivations[] = {Activation::none, Activation::relu, Activation::gelu, Activation::gelu_tanh,
                                         Activation::silu};
  constexpr int kTiles[][7] = {// tile_m, tile_n, cluster_m, cluster_n, split_k, stages, ping-pong
                               {0, 0, 0, 0, 0, 0, 0},     {128, 256, 2, 1, 1, 0, 0}, {64, 128, 1, 1, 4, 0, 0},
                               {128, 128, 2, 1, 1, 0, 1}, {256, 128, 1, 2, 1, 0, 0}, {64, 64, 1, 1, 1, 2, 0},
                               {128, 64, 1, 2, 2, 0, 0},  {64, 192, 1, 1, 1, 0, 1},  {128, 128, 1, 1, 8, 0, 0},
                               {64, 192, 1, 1, 3, 0, 0},  {128, 192, 1, 2, 1, 0, 1}, {128, 168, 1, 1, 1, 0, 1},
                               {192, 88, 1, 1, 1, 0, 0}};
  // The same, of tiles of D transposed; with both operands MN-major some are refused.
  constexpr int kSwapped[][7] = {{48, 128, 1, 1, 1, 0, 0},  {176, 64, 1, 1, 1, 0, 0},  {96, 128, 1, 2, 1, 0, 0},
                                 {128, 64, 2, 1, 1, 0, 0},  {80, 128, 1, 1, 1, 0, 1},  {144, 64, 1, 1, 3, 0, 0},
                                 {64, 256, 1, 1, 1, 0, 0},  {128, 192, 1, 1, 1, 0, 0}, {160, 64, 1, 1, 5, 2, 0},
                                 {256, 128, 1, 1, 2, 0, 0}, {16, 64, 1, 1, 1, 0, 0},   {40, 128, 1, 1, 1, 0, 0},
                                 {200, 128, 1, 1, 1, 0, 0}};
  const std::size_t unswapped = list.size();
  for (std::size_t i = 0; i < unswapped; ++i)
    if (dtype_bytes(list[i].d_dtype) == 2) list.push_back(list[i]);
  for (std::size_t i = 0; i < list.size(); ++i) {
    Gemm& p = list[i];
    p.c = i % 2 == 1 ? Addend::matrix : Addend::none;
    p.bias = i / 2 % 2 == 1 ? Bias::column : Bias::none;
    p.activation = kActivations[i % std::size(kActivations)];
    p.swap_ab = i < unswapped ? SwapAb::off : SwapAb::on;
    const auto& tile = i < unswapped ? kTiles[i % std::size(kTiles)] : kSwapped[i % std::size(kSwapped)];
    if (tile[0] == 0) continue;
    // A width that is no multiple of 16 only where columns may be left over.
    const bool is_plain = dtype_bytes(p.d_dtype) > 1 && p.a_scale_block == ScaleBlock::none &&
                          p.activation != Activation::gelu && (p.c == Addend::none || p.activation == Activation::none);
    const auto width = [&](int columns) { return is_plain ? columns : static_cast<int>(round_up(columns, 16)); };
    p.tile_m = width(tile[0]);
    p.tile_n = width(tile[1]);
    p.cluster_m = tile[2];
    p.cluster_n = tile[3];
    p.split_k = tile[4];
    if (tile[5] != 0) p.stages = tile[5];
    p.kernel_schedule = tile[6] != 0 ? KernelSchedule::ping_pong : KernelSchedule::cooperative;
  }
  add_groups(list);
  add_gates(list);
  add_factors_of_d(list);
  add_mma(list);
  add_weights(list);
  add_weight_groups(list);
  return list;
}

}  // namespace tessera
