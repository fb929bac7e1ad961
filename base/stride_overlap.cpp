// Two indices share a place when their difference d, with |d_i| below extent i, has sum d_i stride_i = 0. Dimensions
// are taken by falling stride: what the later ones can still make up for bounds the difference in the next. Where
// strides nest that is always 0.
#include "base/stride_overlap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace tessera {
namespace {

constexpr int kMaxSearch = 1 << 18;
// More than any memory has, and little enough for sums of two.
constexpr std::int64_t kFar = std::int64_t{1} << 61;

struct Dimension {
  std::int64_t stride = 0;
  std::int64_t most = 0;   // of the difference
  std::int64_t reach = 0;  // of the dimensions behind it
  std::size_t index = 0;
};

std::int64_t floor_div(std::int64_t x, std::int64_t y) { return x / y - (x % y < 0 ? 1 : 0); }

class Search {
 public:
  Search(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides) {
    for (std::size_t i = 0; i < extents.size(); ++i)
      if (extents[i] > 1) insert({std::min(strides[i] < 0 ? -strides[i] : strides[i], kFar), extents[i] - 1, 0, i});
    std::int64_t reach = 0;
    for (std::size_t i = count_; i-- > 0;) {
      Dimension& dimension = dimensions_[i];
      dimension.reach = reach;
      nests_ = nests_ && dimension.stride > reach;
      const bool is_far = dimension.stride > 0 && dimension.most > (kFar - reach) / dimension.stride;
      reach = is_far ? kFar : reach + dimension.most * dimension.stride;
    }
  }

  bool nests() const { return nests_; }

  /// Whether the differences behind `at` can make `sum` 0, not all of them 0 where `is_zero` says that those before
  /// are.
  bool find(std::size_t at, std::int64_t sum, bool is_zero) {
    if (at == count_) return sum == 0 && !is_zero;
    if (++steps_ > kMaxSearch) return false;
    const Dimension& dimension = dimensions_[at];
    std::int64_t low = -dimension.most, high = dimension.most;
    if (dimension.stride > 0) {
      low = std::max(low, -floor_div(dimension.reach + sum, dimension.stride));
      high = std::min(high, floor_div(dimension.reach - sum, dimension.stride));
    }
    if (is_zero) low = 0;  // the opposite difference is the same overlap
    for (std::int64_t d = low; d <= high && steps_ <= kMaxSearch; ++d) {
      difference_[dimension.index] = d;
      if (find(at + 1, sum + d * dimension.stride, is_zero && d == 0)) return true;
    }
    difference_[dimension.index] = 0;
    return false;
  }

  bool is_over() const { return steps_ > kMaxSearch; }

  StrideOverlap overlap(std::span<const std::int64_t> strides) const {
    StrideOverlap result;
    for (std::size_t i = 0; i < strides.size(); ++i) {
      const std::int64_t d = strides[i] < 0 ? -difference_[i] : difference_[i];
      result.first[i] = std::max<std::int64_t>(d, 0);
      result.second[i] = std::max<std::int64_t>(-d, 0);
    }
    return result;
  }

 private:
  /// The largest stride first. (g++ 13 warns of std::sort over part of an array.)
  void insert(const Dimension& dimension) {
    std::size_t at = count_++;
    for (; at > 0 && dimensions_[at - 1].stride < dimension.stride; --at) dimensions_[at] = dimensions_[at - 1];
    dimensions_[at] = dimension;
  }

  std::array<Dimension, kMaxBufferRank> dimensions_{};
  std::array<std::int64_t, kMaxBufferRank> difference_{};
  std::size_t count_ = 0;
  bool nests_ = true;
  int steps_ = 0;
};

}  // namespace

std::optional<StrideOverlap> find_overlap(std::span<const std::int64_t> extents,
                                          std::span<const std::int64_t> strides) noexcept {
  if (std::any_of(extents.begin(), extents.end(), [](std::int64_t extent) { return extent <= 0; })) return std::nullopt;
  Search search(extents, strides);
  if (search.nests()) return std::nullopt;
  if (search.find(0, 0, true)) return search.overlap(strides);
  if (!search.is_over()) return std::nullopt;
  StrideOverlap unproven;
  unproven.is_proven = false;
  return unproven;
}

std::string overlap_message(const BufferSpec& buffer, std::span<const std::int64_t> strides,
                            const StrideOverlap& overlap) {
  std::vector<std::string> named;
  for (std::size_t i = 0; i < strides.size(); ++i) {
    const Expression& stride = buffer.strides[i];
    if (stride.is_constant() || (overlap.is_proven && overlap.first[i] == overlap.second[i])) continue;
    named.push_back(fmt::format("{} = {}", stride.text(), strides[i]));
  }
  const std::string values = fmt::format("{}", fmt::join(named, " and "));
  if (!overlap.is_proven)
    return fmt::format(
        "{} may overlap itself: {}: that its elements lie apart was not proven in {} steps; take strides "
        "of which each is more than what the smaller ones reach",
        buffer.name, values, kMaxSearch);
  const auto at = [&](const std::array<std::int64_t, kMaxBufferRank>& index) {
    return fmt::format("[{}]",
                       fmt::join(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(strides.size()), ", "));
  };
  return fmt::format("{} overlaps itself: {}: elements {} and {} lie at one place; what is written must not overlap",
                     buffer.name, values, at(overlap.first), at(overlap.second));
}

}  // namespace tessera
