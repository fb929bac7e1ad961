#include "reference/ragged.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

namespace tessera::reference {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::int64_t longest_of(const std::vector<QueryRange>& ranges) {
  std::int64_t longest = 0;
  for (const QueryRange& range : ranges) longest = std::max(longest, range.end - range.begin);
  return longest;
}

}  // namespace

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> starts{0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

std::vector<QueryRange> ranges_of(const TensorView& cu_seqlens_q, std::int64_t queries) {
  const auto at = [&](std::int64_t i) {
    return std::clamp<std::int64_t>(std::llround(cu_seqlens_q.at(i)), 0, queries);
  };
  std::vector<QueryRange> ranges;
  for (std::int64_t b = 0; b + 1 < cu_seqlens_q.shape[0]; ++b) ranges.push_back({at(b), std::max(at(b), at(b + 1))});
  return ranges;
}

Tensor equal_sequences(const TensorView& packed, const std::vector<QueryRange>& ranges) {
  const std::int64_t longest = longest_of(ranges), heads = packed.shape[1], columns = packed.shape[2];
  Tensor tensor(packed.dtype, {static_cast<std::int64_t>(ranges.size()), longest, heads, columns});
  const auto bytes = static_cast<std::size_t>(dtype_bytes(packed.dtype));
  std::byte* to = tensor.bytes.data();
  for (const QueryRange& range : ranges)
    for (std::int64_t query = range.begin; query < range.begin + longest; ++query)
      for (std::int64_t head = 0; head < heads; ++head)
        for (std::int64_t column = 0; column < columns; ++column, to += bytes)
          if (query < range.end)
            std::memcpy(
                to,
                packed.data + bytes * static_cast<std::size_t>(query * packed.strides[0] + head * packed.strides[1] +
                                                               column * packed.strides[2]),
                bytes);
  return tensor;
}

Tensor equal_statistics(const TensorView& packed, const std::vector<QueryRange>& ranges, double behind) {
  const std::int64_t longest = longest_of(ranges), heads = packed.shape[0];
  Tensor tensor(packed.dtype, {static_cast<std::int64_t>(ranges.size()), heads, longest});
  const auto bytes = static_cast<std::size_t>(dtype_bytes(packed.dtype));
  std::int64_t to = 0;
  for (const QueryRange& range : ranges)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t query = range.begin; query < range.begin + longest; ++query, ++to) {
        tensor.set(to, behind);
        if (query < range.end)
          std::memcpy(
              tensor.bytes.data() + bytes * static_cast<std::size_t>(to),
              packed.data + bytes * static_cast<std::size_t>(head * packed.strides[0] + query * packed.strides[1]),
              bytes);
      }
  return tensor;
}

Comparison check_ragged_fmha(const FmhaInputs& inputs, const TensorView& cu_seqlens_q, const FmhaOutputs& outputs,
                             const FmhaCheck& check) {
  const std::vector<QueryRange> ranges = ranges_of(cu_seqlens_q, inputs.q.shape[0]);
  const Tensor q = equal_sequences(inputs.q, ranges), o = equal_sequences(outputs.o, ranges);
  Tensor lengths(DType::s32, {static_cast<std::int64_t>(ranges.size())});
  for (std::size_t b = 0; b < ranges.size(); ++b)
    lengths.set(static_cast<std::int64_t>(b), static_cast<double>(ranges[b].end - ranges[b].begin));
  Tensor lse, row_max, row_sum;
  FmhaOutputs equal{o.view(), {}, {}, {}};
  const auto statistic = [&](const std::optional<TensorView>& packed, double behind, Tensor& tensor,
                             std::optional<TensorView>& view) {
    if (!packed) return;
    tensor = equal_statistics(*packed, ranges, behind);
    view = tensor.view();
  };
  statistic(outputs.lse, -kInfinity, lse, equal.lse);
  statistic(outputs.row_max, -kInfinity, row_max, equal.row_max);
  statistic(outputs.row_sum, 0, row_sum, equal.row_sum);
  FmhaCheck of_equal = check;
  for (const QueryRange& range : ranges) of_equal.tree_starts.push_back(range.begin);
  FmhaInputs of_sequences = inputs;
  of_sequences.q = q.view();
  of_sequences.seqused_q = lengths.view();
  return check_fmha(of_sequences, equal, of_equal);
}

}  // namespace tessera::reference
