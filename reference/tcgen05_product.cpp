#include "reference/tcgen05_product.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>

#include "reference/gemm_gated.h"
#include "reference/gemm_tcgen05.h"
#include "reference/operand_source.h"
#include "reference/quantize.h"
#include "reference/scale_padding.h"
#include "reference/tcgen05_suspects.h"
#include "spec/gemm_tcgen05_facts.h"

namespace tessera::reference {

namespace {

/// An operand as [l, rows, k], whichever dimension is contiguous.
TensorView with_k_last(TensorView view, Layout layout) {
  if (layout == Layout::mn_major) {
    std::swap(view.shape[1], view.shape[2]);
    std::swap(view.strides[1], view.strides[2]);
  }
  return view;
}

std::span<const std::byte> bytes_of(const TensorView& dense, std::int64_t from, std::int64_t count) {
  return {dense.data + from, static_cast<std::size_t>(count)};
}

class Product {
 public:
  Product(const ProductFacts& facts, const ProductTiles& tiles, const Buffers& buffers, std::int64_t k, GemmCheck check)
      : facts_(facts), tiles_(tiles), buffers_(buffers), k_(k), check_(std::move(check)) {
    buffers_["a"] = with_k_last(buffers_.at("a"), facts_.a_layout);
    for (const char* const name : {"b", "b2"})
      if (const auto found = buffers_.find(name); found != buffers_.end())
        found->second = with_k_last(found->second, facts_.b_layout);
    for (const char* const name : {"sfa", "sfb", "sfb2"}) tile_scales(name);
    if (gemm_tcgen05::stores_sums(facts_)) {
      check_.alpha = 1;
      check_.is_exact = true;
    }
    alpha_ = check_.alpha;
    check_.alpha = alpha_ * factor("scale_a") * factor("scale_b");
    check_.facts = facts_;
    check_.split_k = tiles_.split_k;
    if (!check_.sums) check_.sums = tensor_sums(facts_);
    check_.tile_m = tiles_.tile_m;
    check_.tile_n = tiles_.tile_n;
  }

  Comparison all() const {
    const TensorView& d = buffers_.at("d");
    return check(0, d.shape[0], whole("a", "sfa", facts_.a_type), d, std::nullopt);
  }

  Comparison groups() const {
    return check_groups(facts_.grouping, buffers_.at("groups"), buffers_.at("d"),
                        [&](std::int64_t number, std::int64_t matrix, const GroupRows& group, const TensorView& d) {
                          const auto list = buffers_.find("indices");
                          if (list == buffers_.end()) {
                            if (!has_plain_scales_ || facts_.grouping != Grouping::contiguous)
                              return check(number, 1, rows_of_group(number, group), d, group);
                            // Of one matrix of plain scales, as if a list named its rows.
                            const Tensor in_order = rows_in_order(group);
                            const ListedRows rows = rows_of_list(in_order.view(), 0, group.rows);
                            return check(number, 1, rows.source, d, group);
                          }
                          const std::int64_t first = matrix * buffers_.at("d").shape[1] + group.first;
                          const ListedRows listed = rows_of_list(list->second, first, group.rows);
                          Comparison result = check(number, 1, listed.source, d, group);
                          add_list_not_followed(number, group, d, result);
                          add_other_scales(number, group, list->second, first, d, result);
                          return result;
                        });
  }

 private:
  double factor(const char* name) const {
    const auto found = buffers_.find(name);
    return found == buffers_.end() ? 1 : found->second.at(0);
  }

  /// Matrix `matrix` of an operand, or all of them (matrix < 0), rows `first` to first + rows; its scales begin at row
  /// tile `tile`.
  OperandSource source(const char* values, const char* scales, OperandType type, std::int64_t matrix,
                       std::int64_t first, std::int64_t rows, std::int64_t tile) const {
    const TensorView& all = buffers_.at(values);
    OperandSource of{type, matrix < 0 ? all : rows_of(all, matrix, first, rows), {}, ScaleForm::tile, k_};
    const auto found = buffers_.find(scales);
    if (found == buffers_.end()) return of;
    of.scales = bytes_of(found->second, 0, element_count(found->second.shape));
    of.scales_begin = tile * found->second.shape[2] * kTileBytes;
    return of;
  }
  OperandSource whole(const char* values, const char* scales, OperandType type) const {
    return source(values, scales, type, -1, 0, 0, 0);
  }
  /// A masked group's is the whole matrix: its scales are those of m rows.
  OperandSource rows_of_group(std::int64_t number, const GroupRows& group) const {
    if (facts_.grouping == Grouping::contiguous)
      return source("a", "sfa", facts_.a_type, 0, group.first, group.rows, group.first_scales);
    return matrix_of("a", "sfa", facts_.a_type, number);
  }
  OperandSource matrix_of(const char* values, const char* scales, OperandType type, std::int64_t matrix) const {
    const std::int64_t rows = buffers_.at(values).shape[1];
    return source(values, scales, type, matrix, 0, rows, matrix * ceil_div(rows, kTileRows));
  }
  /// Scales in the plain form, [l, rows, blocks], become tiles.
  void tile_scales(const std::string& name) {
    const auto found = buffers_.find(name);
    if (found == buffers_.end() || found->second.shape.size() != 3) return;
    has_plain_scales_ = true;
    const TensorView plain = found->second;
    const std::int64_t l = plain.shape[0], rows = plain.shape[1], blocks = plain.shape[2];
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(plain.data);
    const std::vector<std::uint8_t> tiles = convert_scales({bytes, static_cast<std::size_t>(l * rows * blocks)},
                                                           ScaleForm::plain, ScaleForm::tile, l, rows, blocks);
    Tensor& tiled = tiled_[name] =
        Tensor(DType::u8, {l, ceil_div(rows, kTileRows), ceil_div(blocks, kTileBlocks), 32, 4, 4});
    std::memcpy(tiled.bytes.data(), tiles.data(), tiles.size());
    found->second = tiled.view();
  }
  static Tensor rows_in_order(const GroupRows& group) {
    Tensor rows(DType::s32, {group.rows});
    for (std::int64_t r = 0; r < group.rows; ++r) rows.set(r, static_cast<double>(group.first + r));
    return rows;
  }
  /// Rows of a that a list names, with their scales in tiles of their own.
  struct ListedRows {
    Tensor values, scales;
    OperandSource source;
  };
  /// scale_row: of a, whose scales row r of the group takes; empty: those of the row that the list names.
  ListedRows rows_of_list(
      const TensorView& list, std::int64_t first, std::int64_t count,
      const std::function<std::int64_t(std::int64_t r, std::int64_t listed)>& scale_row = {}) const {
    const OperandType type = facts_.a_type;
    ListedRows listed{rows_by_list(buffers_.at("a"), list, first, count), Tensor(DType::u8, {0}), {}};
    if (const auto found = buffers_.find("sfa"); found != buffers_.end()) {
      const OperandSource all = matrix_of("a", "sfa", type, 0);
      listed.scales = Tensor(DType::u8, {scale_bytes(ScaleForm::tile, 1, count, all.blocks())});
      for (std::int64_t r = 0; r < count; ++r) {
        const auto listed_row = static_cast<std::int64_t>(list.at(first + r));
        const std::int64_t row = scale_row && listed_row >= 0 ? scale_row(r, listed_row) : listed_row;
        for (std::int64_t j = 0; row >= 0 && row < all.rows() && j < all.blocks(); ++j)
          listed.scales.bytes[static_cast<std::size_t>(scale_offset(ScaleForm::tile, count, all.blocks(), 0, r, j))] =
              all.scales[static_cast<std::size_t>(all.scale_place(0, row, j))];
      }
    }
    listed.source = {type, listed.values.view(), listed.scales.bytes, ScaleForm::tile, k_};
    return listed;
  }
  /// Says so where rows are wrong that are right with rows first to first + rows of a.
  void add_list_not_followed(std::int64_t number, const GroupRows& group, const TensorView& d,
                             Comparison& result) const {
    if (result.mismatches.empty() || gemm_tcgen05::is_quantized(facts_)) return;
    if (group.first + group.rows > buffers_.at("a").shape[1]) return;
    const Tensor in_order = rows_in_order(group);
    const ListedRows unlisted = rows_of_list(in_order.view(), 0, group.rows);
    if (check(number, 1, unlisted.source, d, group).problems.empty())
      result.problems.emplace_back("the list of rows is not followed: row i of d has row i of a");
  }
  /// The likely cause where rows are right with values of the list's rows and scales of others.
  void add_other_scales(std::int64_t number, const GroupRows& group, const TensorView& list, std::int64_t first,
                        const TensorView& d, Comparison& result) const {
    if (result.mismatches.empty() || gemm_tcgen05::is_quantized(facts_) || buffers_.count("sfa") == 0) return;
    struct Wrong {
      const char* cause;
      std::function<std::int64_t(std::int64_t, std::int64_t)> row;
    };
    const Wrong all[] = {
        {"rows by a list have the scales of the rows at their own places",
         [&](std::int64_t r, std::int64_t) { return group.first + r; }},
        {"rows by a list have the scales of the rows at their places in the group",
         [](std::int64_t r, std::int64_t) { return r; }},
        {"rows by a list take their scales from the first tile of 128 rows: the tile is not that of the row of a",
         [](std::int64_t, std::int64_t listed) { return listed % kTileRows; }},
    };
    for (const Wrong& wrong : all) {
      const ListedRows rows = rows_of_list(list, first, group.rows, wrong.row);
      if (!check(number, 1, rows.source, d, group).problems.empty()) continue;
      result.problems.push_back(fmt::format("likely cause: {} (gives all elements of the group)", wrong.cause));
      return;
    }
  }
  /// Matrices first to first + count of an operand b.
  OperandSource of_b(const char* values, const char* scales, std::int64_t first, std::int64_t count) const {
    return count == buffers_.at(values).shape[0] ? whole(values, scales, facts_.b_type)
                                                 : matrix_of(values, scales, facts_.b_type, first);
  }
  Tensor decoded(const OperandSource& from) const {
    std::span<const std::byte> scales = from.scales;
    // Of groups, the part that is theirs.
    if (from.matrices() == 1 && !scales.empty()) {
      const std::int64_t bytes = scale_bytes(ScaleForm::tile, 1, from.rows(), from.blocks());
      scales = scales.subspan(static_cast<std::size_t>(from.scales_begin), static_cast<std::size_t>(bytes));
    }
    return decode_operand(from.type, from.values, scales, k_);
  }

  Comparison check(std::int64_t first, std::int64_t count, const OperandSource& of_a, const TensorView& d,
                   const std::optional<GroupRows>& group) const {
    const OperandSource of_b_gate = of_b("b", "sfb", first, count);
    const Tensor a = decoded(of_a), b = decoded(of_b_gate);
    GatedInputs in{.product = {a.view(), b.view(), {}, {}}, .up = {}, .check = check_};
    if (group) in.product.a.shape[1] = group->rows;
    if (const auto found = buffers_.find("c"); found != buffers_.end())
      in.product.c =
          group ? rows_of(found->second, facts_.grouping == Grouping::contiguous ? 0 : first, group->first, group->rows)
                : found->second;
    if (const auto found = buffers_.find("bias"); found != buffers_.end())
      in.product.bias = bias_of_group(found->second, first);
    Tensor gate, up, bias, bias_up;
    in.alpha_up = check_.alpha;
    std::optional<OperandSource> of_b_up;
    if (facts_.gate == Gate::dual) {
      of_b_up = of_b("b2", "sfb2", first, count);
      up = decoded(*of_b_up);
      in.alpha_up = alpha_ * factor("scale_a") * factor("scale_b2");
    } else if (facts_.gate == Gate::interleaved) {
      gate = rows_in_turn(b, facts_.interleave, false);
      up = rows_in_turn(b, facts_.interleave, true);
      in.product.b = gate.view();
      if (in.product.bias) {
        bias = bias_in_turn(*in.product.bias, facts_.interleave, false);
        bias_up = bias_in_turn(*in.product.bias, facts_.interleave, true);
        in.product.bias = bias.view();
        in.bias_up = bias_up.view();
      }
    }
    if (facts_.gate != Gate::none) in.up = up.view();
    Comparison result = gemm_tcgen05::is_quantized(facts_) ? check_quantized(in, d, first, group)
                        : facts_.gate == Gate::none        ? check_gemm(in.product, d, check_)
                                                           : check_gated(in, d);
    if (!result.mismatches.empty()) {
      const ProductFactors factors{alpha_, factor("scale_a"), factor("scale_b"), factor("scale_b2")};
      const std::string cause =
          likely_cause(result.mismatches, tcgen05_suspects(facts_, tiles_, in, factors, {of_a, of_b_gate, of_b_up}, d));
      if (!cause.empty()) result.problems.push_back(cause);
    }
    return result;
  }

  Comparison check_quantized(const GatedInputs& in, const TensorView& d, std::int64_t first,
                             const std::optional<GroupRows>& group) const {
    const TensorView& sfd = buffers_.at("sfd");
    if (!group)
      return check_quantized_product(in, block_format(facts_.d_format), factor("scale_d"), d,
                                     bytes_of(sfd, 0, element_count(sfd.shape)));
    // A masked group's scales begin those of a matrix of m rows.
    const std::int64_t of_tile = sfd.shape[2] * kTileBytes;
    const std::int64_t begin = facts_.grouping == Grouping::contiguous
                                   ? group->first_scales
                                   : first * ceil_div(buffers_.at("d").shape[1], kTileRows);
    return check_quantized_product(in, block_format(facts_.d_format), factor("scale_d"), d,
                                   bytes_of(sfd, begin * of_tile, ceil_div(group->rows, kTileRows) * of_tile));
  }

  ProductFacts facts_;
  ProductTiles tiles_;
  Buffers buffers_;
  std::map<std::string, Tensor> tiled_;  ///< what were plain scales
  bool has_plain_scales_ = false;
  std::int64_t k_;
  GemmCheck check_;
  double alpha_ = 1;
};

}  // namespace

Comparison check_tcgen05_product(const ProductFacts& facts, const ProductTiles& tiles, const Buffers& buffers,
                                 std::int64_t k, GemmCheck check) {
  const Product product(facts, tiles, buffers, k, std::move(check));
  return facts.grouping == Grouping::none ? product.all() : product.groups();
}

Tensor random_group_scales(OperandType type, const std::vector<GroupRows>& groups, std::int64_t tiles, std::int64_t k,
                           Fill fill, std::uint64_t seed, std::uint64_t stream) {
  const BlockFormat format = block_format(type);
  const std::int64_t k_tiles = ceil_div(k / block_elements(format), kTileBlocks);
  Tensor scales(DType::u8, {1, tiles, k_tiles, 32, 4, 4});
  fill_scale_padding(scales, scale_type(format), seed, stream);
  std::uint64_t number = 0;
  for (const GroupRows& group : groups) {
    ++number;
    if (group.rows == 0) continue;
    const Tensor of_group = random_operand_scales(type, 1, group.rows, k, fill, seed, stream + 1000 * number);
    std::memcpy(scales.bytes.data() + group.first_scales * k_tiles * kTileBytes, of_group.bytes.data(),
                of_group.bytes.size());
  }
  return scales;
}

}  // namespace tessera::reference
