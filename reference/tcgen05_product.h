// The verdict over a product on tcgen05 from the buffers of its launch, whatever its facts: scales, gates,
// block-scaled results, groups. What `tessera run` and the tests have in common.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/gemm.h"
#include "reference/tensor.h"
#include "spec/product_facts.h"

namespace tessera::reference {

/// Views by the names of the plan's buffers, as they are stored; buffers that were left out are not among them.
using Buffers = std::map<std::string, TensorView>;

/// check: alpha, beta, is_exact, judges_rel_error, seed, jobs; the rest follows from the facts and tiles. Rows of d
/// that belong to no group must still be poisoned.
Comparison check_tcgen05_product(const ProductFacts& facts, const ProductTiles& tiles, const Buffers& buffers,
                                 std::int64_t k, GemmCheck check);

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

/// sfa of contiguous groups, [1, tiles, k tiles, 32, 4, 4]: each group's in tiles of its own. NaN codes elsewhere.
Tensor random_group_scales(OperandType type, const std::vector<GroupRows>& groups, std::int64_t tiles, std::int64_t k,
                           Fill fill, std::uint64_t seed, std::uint64_t stream);

}  // namespace tessera::reference
