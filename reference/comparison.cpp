// Sums are kept per piece of work and merged. What the wrong elements share is told axis by axis: all indices, a
// range, the same range within every block, or a few values.
#include "reference/comparison.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <span>

#include "reference/mismatch_pattern.h"

namespace tessera::reference {

void ElementSums::add(const Element& element) {
  ++checked;
  const double error = element.found == element.expected ? 0.0 : std::fabs(element.found - element.expected);
  // NaN compares false with everything: it is a mismatch whatever the bound is.
  const bool is_right = error <= element.bound;
  if (!is_right) {
    ++mismatched;
    if (mismatches.size() < kMaxKept)
      mismatches.push_back({element.at, element.found, element.expected, element.bound});
  }
  if (std::isinf(element.expected)) return;
  const double finite_error = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
  error_square += finite_error * finite_error;
  expected_value_square += element.expected * element.expected;
  found_square += element.found * element.found;
  dot += element.found * element.expected;
  allowed_square += element.expected_square;
  max_abs_error = std::max(max_abs_error, finite_error);
}

void ElementSums::merge(const ElementSums& other) {
  checked += other.checked;
  mismatched += other.mismatched;
  error_square += other.error_square;
  expected_value_square += other.expected_value_square;
  found_square += other.found_square;
  dot += other.dot;
  allowed_square += other.allowed_square;
  max_abs_error = std::max(max_abs_error, other.max_abs_error);
  const std::size_t room = kMaxKept - std::min(kMaxKept, mismatches.size());
  const std::size_t taken = std::min(room, other.mismatches.size());
  mismatches.insert(mismatches.end(), other.mismatches.begin(),
                    other.mismatches.begin() + static_cast<std::ptrdiff_t>(taken));
}

double ElementSums::rel_error() const {
  return std::sqrt(error_square) / (expected_value_square > 0 ? std::sqrt(expected_value_square) : 1.0);
}

double ElementSums::rel_bound() const {
  return std::sqrt(allowed_square) / (expected_value_square > 0 ? std::sqrt(expected_value_square) : 1.0);
}

double ElementSums::cosine() const {
  if (found_square == 0 && expected_value_square == 0) return 1;
  return dot / std::sqrt(found_square * expected_value_square);
}

namespace {

// "all", "7", "64..127", "3, 5, 9" or, when a block size explains it, "64..127 of each 128".
std::string describe_axis(const std::set<std::int64_t>& hit, const Axis& axis) {
  const std::int64_t low = *hit.begin(), high = *hit.rbegin();
  const auto count = static_cast<std::int64_t>(hit.size());
  if (count == axis.extent) return "all";
  if (count == 1) return fmt::format("{}", low);
  if (high - low + 1 == count) return fmt::format("{}..{}", low, high);
  // An operator's own tiles may be hit in part; a period of the hardware must explain every element.
  const auto of_each = [&](std::int64_t block, bool must_cover) -> std::string {
    if (block <= 1 || high / block == low / block) return {};
    std::set<std::int64_t> inside, blocks;
    for (const std::int64_t value : hit) {
      inside.insert(value % block);
      blocks.insert(value / block);
    }
    // Two rows far apart are no period.
    if (static_cast<std::int64_t>(blocks.size()) * 2 < high / block - low / block + 1) return {};
    const std::int64_t first = *inside.begin(), last = *inside.rbegin();
    const auto width = static_cast<std::int64_t>(inside.size());
    if (width * 2 > block || last - first + 1 != width) return {};
    const std::int64_t rest = std::clamp<std::int64_t>(axis.extent % block - first, 0, width);
    if (must_cover && count != axis.extent / block * width + rest) return {};
    return first == last ? fmt::format("{} of each {}", first, block)
                         : fmt::format("{}..{} of each {}", first, last, block);
  };
  for (const std::int64_t block : axis.blocks)
    if (const std::string text = of_each(block, false); !text.empty()) return text;
  for (const std::int64_t block : kLayoutPeriods)
    if (const std::string text = of_each(block, true); !text.empty()) return text;
  if (count <= 6) return fmt::format("{}", fmt::join(hit, ", "));
  return fmt::format("{} values from {} to {}", count, low, high);
}

}  // namespace

std::string describe_mismatches(std::string_view output, const ElementSums& sums, const std::vector<Axis>& axes,
                                Accumulator accumulator) {
  std::vector<std::string> parts;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    std::set<std::int64_t> hit;
    for (const Mismatch& mismatch : sums.mismatches) hit.insert(mismatch.at[a]);
    if (axes[a].extent > 1) parts.push_back(fmt::format("{} {}", axes[a].name, describe_axis(hit, axes[a])));
  }
  const Mismatch& first = sums.mismatches.front();
  const std::span<const std::int64_t> at(first.at.data(), axes.size());
  std::string text = fmt::format(
      "{}: {} of {} checked elements wrong; {}{}first at [{}]: found {:.9g}, expected {:.9g}, bound {:.3g}", output,
      sums.mismatched, sums.checked, fmt::join(parts, ", "), parts.empty() ? "" : "; ", fmt::join(at, ", "),
      std::isnan(first.found) ? std::fabs(first.found) : first.found, first.expected, first.bound);
  for (const std::string& pattern : mismatch_patterns(sums.mismatches, axes, accumulator)) text += "; " + pattern;
  return text;
}

}  // namespace tessera::reference
