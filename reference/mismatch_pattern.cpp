#include "reference/mismatch_pattern.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

namespace tessera::reference {

namespace {

constexpr std::size_t kFewest = 8;        // fewer wrong elements show no pattern
constexpr double kRatioTolerance = 0.05;  // several roundings of bf16
constexpr int kNoExponent = std::numeric_limits<int>::min();

template <class Predicate>
bool all(const std::vector<Mismatch>& mismatches, Predicate predicate) {
  return std::all_of(mismatches.begin(), mismatches.end(), predicate);
}

std::optional<std::size_t> find_axis(const std::vector<Axis>& axes, std::string_view name) {
  for (std::size_t a = 0; a < axes.size(); ++a)
    if (axes[a].name == name) return a;
  return std::nullopt;
}

/// "0..3, 8" of a set of numbers.
std::string ranges(const std::set<std::int64_t>& numbers) {
  std::vector<std::string> parts;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    while (++it != numbers.end() && *it == last + 1) last = *it;
    parts.push_back(first == last ? fmt::format("{}", first) : fmt::format("{}..{}", first, last));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

/// log2 of |found / expected| where that is near a whole number; the sign is told apart.
int exponent_of(const Mismatch& mismatch) {
  const double ratio = std::fabs(mismatch.found / mismatch.expected);
  if (!std::isfinite(ratio) || ratio == 0) return kNoExponent;
  const double exponent = std::nearbyint(std::log2(ratio));
  if (std::fabs(ratio / std::exp2(exponent) - 1) > kRatioTolerance) return kNoExponent;
  return static_cast<int>(exponent);
}

/// Elements large enough that roundings do not blur their ratio: the upper half by expected magnitude.
std::vector<Mismatch> weighty(const std::vector<Mismatch>& mismatches) {
  std::vector<double> sizes;
  for (const Mismatch& m : mismatches)
    if (std::isfinite(m.expected)) sizes.push_back(std::fabs(m.expected));
  if (sizes.empty()) return {};
  const auto middle = sizes.begin() + static_cast<std::ptrdiff_t>(sizes.size() / 2);
  std::nth_element(sizes.begin(), middle, sizes.end());
  std::vector<Mismatch> kept;
  for (const Mismatch& m : mismatches)
    if (std::fabs(m.expected) >= *middle && m.expected != 0) kept.push_back(m);
  return kept;
}

/// The largest block along `axis` within which every element is off by the same power of two; 0: none, or no block has
/// two wrong elements.
std::int64_t scale_block(const std::vector<Mismatch>& mismatches, std::size_t axis) {
  for (const std::int64_t block : {128, 64, 32, 16}) {
    std::map<Coordinates, int> exponents;
    bool is_shared = false, is_constant = true;
    for (const Mismatch& m : mismatches) {
      Coordinates at = m.at;
      at[axis] /= block;
      const auto [it, is_new] = exponents.emplace(at, exponent_of(m));
      is_shared = is_shared || !is_new;
      is_constant = is_constant && it->second == exponent_of(m);
    }
    if (is_constant && is_shared) return block;
  }
  return 0;
}

std::string ratio_text(int exponent) {
  return exponent >= 0 ? fmt::format("{}", std::int64_t{1} << std::min(exponent, 62))
                       : fmt::format("1/{}", std::int64_t{1} << std::min(-exponent, 62));
}

void append_values(const std::vector<Mismatch>& mismatches, const std::vector<Axis>& axes,
                   std::vector<std::string>& out) {
  if (all(mismatches, [](const Mismatch& m) { return m.found == 0; }))
    return out.push_back("every wrong element is 0: never added, or masked away");
  if (all(mismatches, [](const Mismatch& m) { return std::isnan(m.found); }))
    return out.push_back("every wrong element is NaN: never written, or computed from what was never written");
  if (all(mismatches,
          [](const Mismatch& m) { return std::fabs(m.found + m.expected) <= kRatioTolerance * std::fabs(m.expected); }))
    return out.push_back("found is the expected value with its sign flipped");
  const std::vector<Mismatch> large = weighty(mismatches);
  if (large.size() < kFewest / 2) return;
  std::set<int> exponents;
  for (const Mismatch& m : large) exponents.insert(exponent_of(m));
  if (exponents.contains(kNoExponent)) return;
  if (exponents.size() == 1 && *exponents.begin() != 0)
    return out.push_back(fmt::format("found is {} times what is expected", ratio_text(*exponents.begin())));
  if (exponents.size() == 1) return;
  for (std::size_t a = axes.size(); a-- > 0;) {
    const std::int64_t block = scale_block(large, a);
    if (block == 0) continue;
    return out.push_back(
        fmt::format("scale blocks: along {} each block of {} is off by one power of two, {} to {} times", axes[a].name,
                    block, ratio_text(*exponents.begin()), ratio_text(*exponents.rbegin())));
  }
  out.push_back(fmt::format("found is off by powers of two, {} to {} times", ratio_text(*exponents.begin()),
                            ratio_text(*exponents.rbegin())));
}

/// Few wrong rows are in few warps and lanes whatever the reason.
bool has_many_rows(const std::vector<Mismatch>& mismatches, std::size_t row) {
  std::set<std::int64_t> rows;
  for (const Mismatch& m : mismatches) rows.insert(m.at[row]);
  return rows.size() >= kFewest;
}

void append_warps(const std::vector<Mismatch>& mismatches, const std::vector<Axis>& axes, Accumulator accumulator,
                  std::vector<std::string>& out) {
  const auto row = find_axis(axes, "row");
  if (!row || !has_many_rows(mismatches, *row)) return;
  // wgmma gives each warp of a group 16 rows of 64, tensor memory 32 lanes of 128.
  for (const std::int64_t rows : {16, 32}) {
    if (axes[*row].extent < 4 * rows || (rows == 16 && accumulator == Accumulator::tensor_memory)) continue;
    std::set<std::int64_t> warps;
    for (const Mismatch& m : mismatches) warps.insert(m.at[*row] / rows % 4);
    if (warps.size() < 4)
      out.push_back(fmt::format("warp {} of each 4, if a warp owns {} rows{}", ranges(warps), rows,
                                rows == 16 ? " (wgmma)" : " (tensor memory)"));
  }
}

void append_lanes(const std::vector<Mismatch>& mismatches, const std::vector<Axis>& axes,
                  std::vector<std::string>& out) {
  const auto row = find_axis(axes, "row"), column = find_axis(axes, "column");
  if (!row || !column || axes[*row].extent < 8 || axes[*column].extent < 8 || mismatches.size() < 4 * kFewest) return;
  if (!has_many_rows(mismatches, *row)) return;
  std::set<std::int64_t> lanes;
  for (const Mismatch& m : mismatches) lanes.insert(m.at[*row] % 8 * 4 + m.at[*column] % 8 / 2);
  if (lanes.size() <= 16) out.push_back(fmt::format("lanes {} of the accumulator's layout", ranges(lanes)));
}

}  // namespace

std::vector<std::string> mismatch_patterns(const std::vector<Mismatch>& mismatches, const std::vector<Axis>& axes,
                                           Accumulator accumulator) {
  std::vector<std::string> patterns;
  if (mismatches.size() < kFewest) return patterns;
  append_values(mismatches, axes, patterns);
  append_warps(mismatches, axes, accumulator, patterns);
  if (accumulator == Accumulator::any) append_lanes(mismatches, axes, patterns);  // a lane of Tensor Memory is a row
  return patterns;
}

}  // namespace tessera::reference
