#include "reference/quantize_blocks.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "reference/likely_cause.h"
#include "reference/parallel.h"
#include "reference/quantize.h"

namespace tessera::reference {

namespace {

constexpr float kLargestE4m3 = 448;

/// Rows and columns of a block at (row, column).
struct BlockPart {
  std::int64_t row = 0, column = 0, rows = 0, columns = 0;
};

struct BlockGrid {
  std::int64_t l = 0, rows = 0, k = 0, height = 0;

  BlockGrid(const std::vector<std::int64_t>& shape, ScaleBlock block)
      : l(shape[0]), rows(shape[1]), k(shape[2]), height(block == ScaleBlock::square ? kScaleBlock : 1) {}
  std::int64_t down() const { return (rows + height - 1) / height; }
  std::int64_t across() const { return (k + kScaleBlock - 1) / kScaleBlock; }
  BlockPart part(std::int64_t i, std::int64_t j) const {
    const std::int64_t row = i * height, column = j * kScaleBlock;
    return {row, column, std::min(height, rows - row), std::min<std::int64_t>(kScaleBlock, k - column)};
  }
};

/// What people get wrong: other numbers for factors, another block's, blocks of the other shape.
std::vector<Suspect> suspects_of(const TensorView& x, QuantizeBlocksRule facts, bool are_factors) {
  std::vector<Suspect> list;
  const auto made_by = [&](QuantizeBlocksRule wrong) {
    return std::make_shared<QuantizedBlocks>(quantize_blocks(x, wrong));
  };
  const BlockGrid blocks({x.shape.begin(), x.shape.end()}, facts.block);
  const auto right = made_by(facts);
  const ScaleValues other = facts.numbers == ScaleValues::any ? ScaleValues::pow2 : ScaleValues::any;
  const auto add_other_rule = [&](const char* cause, QuantizeBlocksRule wrong) {
    list.push_back({cause, [made = made_by(wrong), right, are_factors, wrong, facts](const Coordinates& at) {
                      const Tensor& of = are_factors ? made->factors : made->values;
                      // Squares of rows: the factor of their first one.
                      const std::int64_t row =
                          are_factors && facts.block == ScaleBlock::square && wrong.block == ScaleBlock::of_row
                              ? at[1] * kScaleBlock
                          : are_factors && facts.block == ScaleBlock::of_row && wrong.block == ScaleBlock::square
                              ? at[1] / kScaleBlock
                              : at[1];
                      return Guess{of.at((at[0] * of.shape[1] + row) * of.shape[2] + at[2]), 0};
                    }});
  };
  add_other_rule(other == ScaleValues::pow2 ? "factors are powers of two" : "factors are not powers of two",
                 {facts.block, other});
  if (facts.block == ScaleBlock::square)
    add_other_rule("a factor is that of one row, not of 128", {ScaleBlock::of_row, facts.numbers});
  else
    add_other_rule("a factor is that of 128 rows, not of one", {ScaleBlock::square, facts.numbers});
  // The factor of a block so many blocks of rows and of k away.
  const auto add_moved = [&](const char* cause, std::int64_t down, std::int64_t across) {
    list.push_back({cause, [x, right, are_factors, blocks, down, across](const Coordinates& at) {
                      const std::int64_t i = (are_factors ? at[1] : at[1] / blocks.height) + down;
                      const std::int64_t j = (are_factors ? at[2] : at[2] / kScaleBlock) + across;
                      if (i < 0 || i >= blocks.down() || j < 0 || j >= blocks.across()) return Guess{};
                      const double factor = right->factors.at((at[0] * blocks.down() + i) * blocks.across() + j);
                      if (are_factors) return Guess{factor, 0};
                      const auto value = static_cast<float>(x.at((at[0] * blocks.rows + at[1]) * blocks.k + at[2]));
                      const float scaled = value * (1.0F / static_cast<float>(factor));
                      return Guess{decode_value(ValueType::e4m3, encode_value(ValueType::e4m3, scaled)), 0};
                    }});
  };
  add_moved("the factor of the next 128 of k", 0, 1);
  add_moved("the factor of the 128 of k before", 0, -1);
  add_moved("the factor of the next block of rows", 1, 0);
  add_moved("the factor of the block of rows before", -1, 0);
  return list;
}

/// A code or factor beside the expected one: equal bits, or any two NaN of fp32.
Element element_of_bits(double found, double expected, bool is_same, Coordinates at) {
  Element element{.at = at};
  if (!is_same) {
    element.found = found;
    element.expected = expected;
    element.bound = -1;
  }
  return element;
}

/// Whether all bits are the expected ones.
bool has_bits(const TensorView& found, const TensorView& wanted, std::int64_t columns) {
  std::atomic<bool> is_same = true;
  parallel_for(wanted.shape[0] * wanted.shape[1], 0, [&](std::int64_t row) {
    for (std::int64_t i = row * columns; i < (row + 1) * columns; ++i)
      if (found.bits_at(i) != wanted.bits_at(i)) is_same = false;
  });
  return is_same;
}

/// `suspects` are made for what is wrong only: they cost a reference each.
void compare_bits(const char* name, const TensorView& found, const Tensor& expected, const char* row,
                  const char* column, const std::function<std::vector<Suspect>()>& suspects, Comparison& result) {
  const TensorView wanted = expected.view();
  const std::int64_t columns = expected.shape[2];
  if (has_bits(found, wanted, columns)) return;
  ElementSums sums;
  for (std::int64_t i = 0; i < expected.elements(); ++i)
    sums.add(element_of_bits(found.at(i), wanted.at(i), found.bits_at(i) == wanted.bits_at(i),
                             {i / columns / expected.shape[1], i / columns % expected.shape[1], i % columns}));
  result.rel_error = std::max(result.rel_error, sums.rel_error());
  result.max_abs_error = std::max(result.max_abs_error, sums.max_abs_error);
  result.cosine = std::min(result.cosine, sums.cosine());
  if (sums.mismatched == 0) return;
  result.problems.push_back(describe_mismatches(
      name, sums,
      {{"matrix", expected.shape[0], {}}, {row, expected.shape[1], {16, 128}}, {column, columns, {8, 128}}}));
  if (std::string cause = likely_cause(sums.mismatches, suspects()); !cause.empty())
    result.problems.push_back(std::move(cause));
  result.mismatches = sums.mismatches;
}

}  // namespace

float block_factor(float amax, ScaleValues numbers) {
  const float most = std::min(std::max(amax, 1e-4F), std::numeric_limits<float>::max());
  const float factor = most / kLargestE4m3;
  if (numbers == ScaleValues::any) return factor;
  int exponent = 0;
  const double fraction = std::frexp(static_cast<double>(most) / kLargestE4m3, &exponent);  // in [0.5, 1)
  return static_cast<float>(std::ldexp(1.0, fraction == 0.5 ? exponent - 1 : exponent));
}

QuantizedBlocks quantize_blocks(const TensorView& x, QuantizeBlocksRule facts) {
  const BlockGrid blocks({x.shape.begin(), x.shape.end()}, facts.block);
  QuantizedBlocks made{Tensor(DType::e4m3, {blocks.l, blocks.rows, blocks.k}),
                       Tensor(DType::f32, {blocks.l, blocks.down(), blocks.across()})};
  parallel_for(blocks.l * blocks.down(), 0, [&](std::int64_t strip) {
    const std::int64_t l = strip / blocks.down(), i = strip % blocks.down();
    for (std::int64_t j = 0; j < blocks.across(); ++j) {
      const BlockPart part = blocks.part(i, j);
      const auto index = [&](std::int64_t r, std::int64_t c) {
        return (l * blocks.rows + part.row + r) * blocks.k + part.column + c;
      };
      float amax = 0;
      for (std::int64_t r = 0; r < part.rows; ++r)
        for (std::int64_t c = 0; c < part.columns; ++c) {
          const float magnitude = std::fabs(static_cast<float>(x.at(index(r, c))));
          if (!std::isnan(magnitude)) amax = std::max(amax, magnitude);
        }
      const float factor = block_factor(amax, facts.numbers), inverse = 1.0F / factor;
      made.factors.set((l * blocks.down() + i) * blocks.across() + j, factor);
      for (std::int64_t r = 0; r < part.rows; ++r)
        for (std::int64_t c = 0; c < part.columns; ++c) {
          const float scaled = static_cast<float>(x.at(index(r, c))) * inverse;
          made.values.bytes[static_cast<std::size_t>(index(r, c))] =
              static_cast<std::byte>(encode_value(ValueType::e4m3, scaled));
        }
    }
  });
  return made;
}

Comparison check_quantize_blocks(const TensorView& x, QuantizeBlocksRule facts, const TensorView& values,
                                 const TensorView& factors) {
  const QuantizedBlocks expected = quantize_blocks(x, facts);
  Comparison result;
  result.rows_checked = result.rows_total = x.shape[0] * x.shape[1];
  compare_bits(
      "factors", factors, expected.factors, "block of rows", "block of k", [&] { return suspects_of(x, facts, true); },
      result);
  compare_bits(
      "values", values, expected.values, "row", "k", [&] { return suspects_of(x, facts, false); }, result);
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
