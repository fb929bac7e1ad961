// The facts of a matrix product, whichever target's kernel makes it, and the extents of a tile. What each fact means:
// Gemm in tessera/problem.h.
#pragma once

#include "tessera/spec/operand_type.h"
#include "tessera/spec/types.h"

namespace tessera {

// What is computed, for callers and references: everything else about a kernel is a choice.
struct ProductFacts {
  OperandType a_type = OperandType::bf16;
  OperandType b_type = OperandType::bf16;
  Layout a_layout = Layout::k_major;
  Layout b_layout = Layout::k_major;
  DType d_dtype = DType::bf16;  // of c and bias too, where d is block-scaled
  Accumulation accumulation = Accumulation::fast;
  Addend c = Addend::none;
  Bias bias = Bias::none;
  Activation activation = Activation::none;
  Gate gate = Gate::none;
  int interleave = 1;  // columns of the gate that stand together
  GateActivation gate_activation = GateActivation::silu;
  int gate_limit = 0;  // the gate is at most this, up within +- this; 0: any
  OutputFormat d_format = OutputFormat::plain;
  Grouping grouping = Grouping::none;
  ScaleBlock a_scale_block = ScaleBlock::none;  // of 8-bit elements: who shares an fp32 factor
  ScaleBlock b_scale_block = ScaleBlock::none;
  Gather gather = Gather::none;
  ScaleBlock d_scale_block = ScaleBlock::none;    // of an e4m3 d: which elements share an fp32 factor
  ScaleValues d_scale_values = ScaleValues::any;  // of these factors

  TESSERA_HD friend constexpr bool operator==(const ProductFacts&, const ProductFacts&) = default;
};

// Of what may be added, and applied, to a sum.
TESSERA_HD constexpr bool has_bias_alone(const ProductFacts& f) {
  return f.bias != Bias::none && f.c == Addend::none && f.activation == Activation::none;
}

// Of the product, whichever operand gives a matrix instruction its rows.
struct ProductTiles {
  int tile_m = 0;  // rows of d that a CTA works on at a time
  int tile_n = 0;  // columns
  int cluster_m = 1;
  int cluster_n = 1;
  int split_k = 1;   // CTAs that share the K of a tile
  int k_groups = 1;  // of their warps: steps of K in turn, each with sums of its own

  TESSERA_HD friend constexpr bool operator==(const ProductTiles&, const ProductTiles&) = default;
};

}  // namespace tessera
