// The k largest elements of rows, by sorting, and what a wrong choice looks like.
//
// Elements are compared as float64 numbers, which those of every type are exactly; -0 equals +0, a NaN stands behind
// every number. Every index and every value's bits have to agree: nothing here rounds.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/spec/topk_types.h"
#include "tessera/spec/types.h"

namespace tessera::reference {

struct TopkRun {
  DType dtype = DType::f32;
  std::int64_t m = 0, n = 0, k = 512;
  Ties ties = Ties::smaller;
  ResultOrder order = ResultOrder::index;
  RowRange range = RowRange::all;
  IndexForm index_form = IndexForm::columns;
  WithValues values = WithValues::off;
  WithGuesses guesses = WithGuesses::off;
  std::int64_t page_size = 64, max_pages = 0, sequences = 0;
  bool is_usual = false;  ///< of inputs: rows of ordinary numbers alone
};

/// What the launch reads. Rows take turns: numbers of the kind; equals at the k-th place; numbers that rise, and fall;
/// all equal; zeros of both signs; NaNs and infinities; fewer numbers than k among -inf. Lengths are 0, around k, all
/// and random ones, some beyond the row; tables have pages that are none, and sequences that are none. Guesses are the
/// k-th value, somewhat less, much less, more, NaN and infinities.
std::map<std::string, Tensor> topk_inputs(const TopkRun& run, Fill kind, std::uint64_t seed);

/// Every element of every output is compared; the main output is indices. Names the mistake under which results become
/// right, if it knows one.
Comparison check_topk(const TopkRun& run, const std::map<std::string, Tensor>& in,
                      const std::map<std::string, Tensor>& out, int jobs = 0);

}  // namespace tessera::reference
