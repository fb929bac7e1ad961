// An indexer's scores in float64, and how wrong a right one may be: s_j sum_h w_ih max(q_ih . k_j, 0).
//
// With u = 2^-24, S = head_dim / 32 groups of products, and for each head t the largest product, or sum of whole
// groups:
//   q . k         a group's products and the sum before are cut to F fraction bits of the largest, and the sum to F:
//                 at most 34 2^-F t for each group; F is 13 with wgmma, at least 24 with mma.sync
//   scores        the sum over heads of |s w| times that, and (heads / 4 + 8) u |s| sum |w| max(q . k, 0) for fp32
//                 sums and products; bf16: half an ulp more
// Errors of random numbers: 2^-F t sqrt(12 S) of a head, and roots of sums of squares.
//
// mxfp4: q and k are code times scale, and s is 1. In bf16 steps have 16 products, whose terms are cut to 25 fraction
// bits of the largest and the sum to 23: 5.25 2^-23 of every partial sum (see fmha_bound.h); sm_120 has steps of 64,
// with no more of either. Which products are a step's is not said, so partial sums are at most A, the sum of all
// products' magnitudes, and a head errs by at most head_dim / 16 times 5.25 2^-23 A.
//
// All rows are compared, or a sample: the first, the last, and some between. What columns outside of ranges hold, and
// that every column within is written, is looked at in all rows.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/spec/indexer_types.h"

namespace tessera::reference {

struct IndexerRun {
  std::int64_t heads = 64, head_dim = 128;
  IndexFormat format = IndexFormat::e4m3;
  bool is_paged = false;
  std::int64_t page_size = 64, next_n = 1;
  ContextLengths context_lengths = ContextLengths::sequence;
  ScoreColumns score_columns = ScoreColumns::keys;
  Outside outside = Outside::minus_inf;
  DType score_dtype = DType::f32;
  int fraction_bits = 13;
  std::int64_t m = 0;  ///< queries: of all sequences
  std::int64_t n = 0;  ///< keys that lie one behind the other
  std::int64_t columns = 0, pages = 0, max_pages = 0;
  bool is_usual = false;  ///< of inputs: causal ranges from key 0 on, whole contexts, pages that exist
  std::int64_t max_multiply_adds = 40'000'000'000;  ///< of a comparison
};

/// Bytes of a key, and of a head of q, without scales: which are four for each key, whatever the format.
constexpr std::int64_t index_row_bytes(const IndexerRun& run) {
  return run.format == IndexFormat::mxfp4 ? run.head_dim / 2 : run.head_dim;
}

/// Keys of a query: [begin, end), none as 0 and 0.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};
KeyRange indexer_range(const IndexerRun& run, const std::map<std::string, Tensor>& inputs, std::int64_t query);

/// Inputs of each buffer. Ranges and lengths are such as break kernels: empty, of one key, of a tile and one, beyond
/// what there is, least and largest numbers, and, mostly, causal ones. A page's keys that no query sees are NaN, and
/// some entries of the table are no pages. mxfp4: codes of all kinds, scales mostly about 1, some least ones.
std::map<std::string, Tensor> indexer_inputs(const IndexerRun& run, Fill kind, std::uint64_t seed);

/// scores [m, columns], poisoned before the launch. A mistake under which wrong scores become right is named. Throws
/// Error{usage} for shapes that do not fit.
Comparison check_indexer(const IndexerRun& run, const std::map<std::string, Tensor>& inputs, const TensorView& scores,
                         int jobs = 0);

}  // namespace tessera::reference
