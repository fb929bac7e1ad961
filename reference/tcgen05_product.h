// The verdict over a product on tcgen05 from the buffers of its launch, whatever its facts: scales, gates,
// block-scaled results, groups. What `tessera run` and the tests have in common.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "reference/gemm.h"
#include "reference/groups.h"
#include "reference/tensor.h"
#include "spec/product_facts.h"

namespace tessera::reference {

/// Views by the names of the plan's buffers, as they are stored; buffers that were left out are not among them.
using Buffers = std::map<std::string, TensorView>;

/// check: alpha, beta, is_exact, judges_rel_error, seed, jobs; the rest follows from the facts and tiles. Rows of d
/// that belong to no group must still be poisoned.
Comparison check_tcgen05_product(const ProductFacts& facts, const ProductTiles& tiles, const Buffers& buffers,
                                 std::int64_t k, GemmCheck check);

/// sfa of contiguous groups, [1, tiles, k tiles, 32, 4, 4]: each group's in tiles of its own. NaN codes elsewhere.
Tensor random_group_scales(OperandType type, const std::vector<GroupRows>& groups, std::int64_t tiles, std::int64_t k,
                           Fill fill, std::uint64_t seed, std::uint64_t stream);

}  // namespace tessera::reference
