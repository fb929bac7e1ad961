// From a recipe and the caller's sizes to the arguments of one encode. A BoundTensorMap has names turned into slots
// once, so that resolving allocates nothing (the launch path); resolve() does both for planning, `check` and tests.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/bound_expression.h"
#include "tessera/tensor_map.h"

namespace tessera {

class BoundTensorMap {
 public:
  BoundTensorMap() = default;
  /// Throws Error{usage} when the recipe's counts do not fit (rank 1 to 5 entries in dims, box and element_strides,
  /// rank
  /// - 1 in strides_bytes) or an expression uses a name that slot_names lacks; the message names map, array and index.
  BoundTensorMap(const TensorMapRecipe& recipe, std::span<const std::string> slot_names);

  /// The arguments under the given slots. Throws Error{usage} that names the map, the dimension and its expression when
  /// a value is negative or overflows: "tensor map 'q': dims[1] = 'seqlen_q - 8' is -3: must be at least 0". Breaks no
  /// rule by itself: a dim of 0 is for first_broken_rule to refuse.
  ResolvedTensorMap resolve(std::span<const std::int64_t> slots, std::uint64_t address) const;

  const std::string& name() const noexcept { return name_; }
  const std::string& buffer() const noexcept { return buffer_; }

 private:
  std::string name_;
  std::string buffer_;
  ResolvedTensorMap fixed_;  // all that needs no size
  std::array<BoundExpression, kMaxTensorMapRank> dims_;
  std::array<BoundExpression, kMaxTensorMapRank - 1> strides_;
};

/// One resolve: names[i] has the value values[i].
ResolvedTensorMap resolve(const TensorMapRecipe& recipe, std::span<const std::string> names,
                          std::span<const std::int64_t> values, std::uint64_t address);

}  // namespace tessera
