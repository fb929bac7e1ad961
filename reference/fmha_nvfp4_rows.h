// One row of attention of NVFP4 operands in float64: what fmha_nvfp4.h derives, for its checks.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "reference/attention_quantize.h"
#include "reference/fmha_nvfp4.h"
#include "spec/nvfp4_units.h"

namespace tessera::reference {

struct Nvfp4Sizes {
  std::int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_k, head_dim;
  std::int64_t q_blocks() const { return ceil_div(seqlen_q, nvfp4::kBlockRows); }
  std::int64_t key_blocks() const { return ceil_div(seqlen_k, nvfp4::kBlockRows); }
};

/// K and V of one head of one sequence.
struct Nvfp4KeyHead {
  UnitHead k, v;
  std::vector<double> k_norms;
};

/// Those that a query head reads.
Nvfp4KeyHead keys_of(const Nvfp4Inputs& in, const Nvfp4Sizes& s, std::int64_t batch, std::int64_t head);

/// A row's result, and how much it may err.
struct Nvfp4Row {
  std::vector<double> o, bound;
  double lse = -std::numeric_limits<double>::infinity(), lse_bound = 0;
  double row_max = -std::numeric_limits<double>::infinity(), row_max_bound = 0, row_sum = 0, row_sum_bound = 0;
};

Nvfp4Row nvfp4_row(const Nvfp4Inputs& in, const Nvfp4Sizes& s, const Nvfp4Check& check, const UnitHead& q,
                   const Nvfp4KeyHead& keys, std::int64_t batch, std::int64_t head, std::int64_t row);

}  // namespace tessera::reference
