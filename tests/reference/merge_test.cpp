// The merge's reference: its bound holds for sums in fp32 and finds what a wrong merge gives.
#include "reference/merge.h"

#include <doctest/doctest.h>

#include <functional>

namespace tessera::reference {
namespace {

constexpr MergeSizes kSizes{.parts = 6, .batch = 2, .heads_q = 3, .seqlen_q = 20, .head_dim_v = 16};

struct Slip {
  float lse_scale = 1;      // of the logarithms: as if they were to base 2
  bool uses_first = false;  // the reference is the first part's logarithm, not the largest
  bool adds_empty = false;  // parts without keys are added with a weight of 0
  float sinks = 1;          // how often the sink counts
  bool lse_has_sink = false;
};

/// Merged in fp32, all parts at once.
std::pair<Tensor, Tensor> merged(const std::map<std::string, Tensor>& in, const Slip& slip) {
  const MergeSizes& s = kSizes;
  Tensor o(DType::f32, {s.batch, s.seqlen_q, s.heads_q, s.head_dim_v}),
      lse(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t head = 0; head < s.heads_q; ++head)
      for (std::int64_t query = 0; query < s.seqlen_q; ++query) {
        const std::int64_t row = (b * s.heads_q + head) * s.seqlen_q + query, rows = s.batch * s.heads_q * s.seqlen_q;
        const auto lse_at = [&](std::int64_t i) {
          return slip.lse_scale * static_cast<float>(in.at("lse_parts").at(i * rows + row));
        };
        float max = slip.uses_first ? lse_at(0) : -INFINITY, sum = 0;
        for (std::int64_t i = 0; i < s.parts && !slip.uses_first; ++i) max = std::fmax(max, lse_at(i));
        if (std::isinf(max)) max = 0;
        for (std::int64_t i = 0; i < s.parts; ++i) sum += std::exp(lse_at(i) - max);
        const float sink = slip.sinks * std::exp(static_cast<float>(in.at("sink").at(head)) - max);
        const float whole = sum + sink;
        for (std::int64_t c = 0; c < s.head_dim_v; ++c) {
          float value = 0;
          for (std::int64_t i = 0; i < s.parts; ++i) {
            const std::int64_t at = (((i * s.batch + b) * s.seqlen_q + query) * s.heads_q + head) * s.head_dim_v + c;
            if (slip.adds_empty || !std::isinf(lse_at(i)))
              value += std::exp(lse_at(i) - max) * static_cast<float>(in.at("o_parts").at(at));
          }
          o.set(((b * s.seqlen_q + query) * s.heads_q + head) * s.head_dim_v + c,
                whole == 0 ? 0.0 : static_cast<double>(value / whole));
        }
        lse.set(row, static_cast<double>(max + std::log(slip.lse_has_sink ? whole : sum)));
      }
  return {std::move(o), std::move(lse)};
}

bool passes(Fill fill, const Slip& slip) {
  const std::map<std::string, Tensor> in = merge_inputs(kSizes, DType::f32, true, fill, 5);
  const auto [o, lse] = merged(in, slip);
  return check_merge({in.at("o_parts").view(), in.at("lse_parts").view(), in.at("sink").view()}, {o.view(), lse.view()},
                     1)
      .pass;
}

}  // namespace

TEST_CASE("merge: sums in fp32 are within the bound, for all inputs") {
  for (const Fill fill : {Fill::standard, Fill::normal, Fill::uniform, Fill::integer}) CHECK(passes(fill, {}));
}

TEST_CASE("merge: the standard inputs show what a wrong merge gives") {
  CHECK(!passes(Fill::standard, {.lse_scale = 1.442695F}));
  CHECK(!passes(Fill::standard, {.uses_first = true}));
  CHECK(passes(Fill::normal, {.uses_first = true}));  // which has no part that is far above the first
  CHECK(!passes(Fill::standard, {.adds_empty = true}));
  CHECK(!passes(Fill::standard, {.sinks = 2}));
  CHECK(!passes(Fill::standard, {.lse_has_sink = true}));
}

}  // namespace tessera::reference
