// Groups of rows with a matrix b each (gemm's `grouping`): which rows they have, and the verdict over all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "reference/gemm.h"
#include "reference/tensor.h"
#include "tessera/spec/operand_type.h"

namespace tessera::reference {

/// A group's rows: in a and d where groups stand one behind the other, else in its own matrix.
struct GroupRows {
  std::int64_t first = 0, rows = 0;
  std::int64_t first_scales = 0;  ///< row tile of sfa, contiguous groups
};
std::vector<GroupRows> group_rows(Grouping grouping, const TensorView& groups, std::int64_t m);

/// s32: what a launch takes for groups of so many rows.
Tensor groups_of(Grouping grouping, const std::vector<std::int64_t>& rows);

/// s32: offsets of l groups in m rows, in ascending order, some empty, with rows left over; or numbers of rows up to m.
Tensor random_groups(Grouping grouping, std::int64_t l, std::int64_t m, std::uint64_t seed);

/// Matrix `matrix` of a view [l, m, ...], rows `first` to first + rows.
TensorView rows_of(const TensorView& view, std::int64_t matrix, std::int64_t first, std::int64_t rows);

/// The verdicts of all groups that have rows, each with its number, its matrix of a and d, its rows, and those of d;
/// and whether rows of no group are still poisoned.
using CheckGroup =
    std::function<Comparison(std::int64_t number, std::int64_t matrix, const GroupRows& rows, const TensorView& d)>;
Comparison check_groups(Grouping grouping, const TensorView& groups, const TensorView& d, const CheckGroup& check);

/// [1, count, columns] of the rows of [1, rows, columns] that elements first to first + count of a list name: zeros for
/// other numbers.
Tensor rows_by_list(const TensorView& from, const TensorView& list, std::int64_t first, std::int64_t count);

/// The bias of a group: row `number` of one [groups, n], or all of one [n].
TensorView bias_of_group(const TensorView& bias, std::int64_t number);

/// check_plain_or_gated of each group: of contiguous ones a, sfa, c and d have one matrix, b and sfb one for each
/// group. indices, [matrices of d, m], where rows have those of a, and of sfa, that they name: of one matrix, zeros for
/// other numbers.
Comparison check_grouped_gemm(Grouping grouping, const TensorView& groups, const GemmInputs& inputs,
                              const TensorView& d, const GemmCheck& check,
                              const std::optional<TensorView>& indices = std::nullopt);

}  // namespace tessera::reference
