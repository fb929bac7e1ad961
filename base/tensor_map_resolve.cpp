#include "base/tensor_map_resolve.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/error.h"

namespace tessera {
namespace {

void check_count(const TensorMapRecipe& recipe, std::string_view array, std::size_t found, std::size_t needed) {
  if (found == needed) return;
  throw Error(ErrorKind::usage, fmt::format("tensor map '{}': {} has {} {}: rank {} needs {}", recipe.name, array,
                                            found, found == 1 ? "entry" : "entries", recipe.dims.size(), needed));
}

BoundExpression bound(const TensorMapRecipe& recipe, std::string_view array, std::size_t i,
                      const Expression& expression, std::span<const std::string> slot_names) {
  try {
    return BoundExpression(expression, slot_names);
  } catch (const Error& error) {
    throw Error(ErrorKind::usage, fmt::format("tensor map '{}': {}[{}]: {}", recipe.name, array, i, error.what()));
  }
}

std::uint64_t value_of(const std::string& map, const char* array, std::size_t i, const BoundExpression& expression,
                       std::span<const std::int64_t> slots) {
  std::int64_t value = 0;
  try {
    value = expression.evaluate(slots);
  } catch (const Error& error) {
    throw Error(ErrorKind::usage, fmt::format("tensor map '{}': {}[{}]: {}", map, array, i, error.what()));
  }
  if (value >= 0) return static_cast<std::uint64_t>(value);
  throw Error(ErrorKind::usage, fmt::format("tensor map '{}': {}[{}] = '{}' is {}: must be at least 0", map, array, i,
                                            expression.text(), value));
}

}  // namespace

BoundTensorMap::BoundTensorMap(const TensorMapRecipe& recipe, std::span<const std::string> slot_names)
    : name_(recipe.name), buffer_(recipe.buffer) {
  const std::size_t rank = recipe.dims.size();
  if (rank < 1 || rank > kMaxTensorMapRank)
    throw Error(ErrorKind::usage, fmt::format("tensor map '{}': dims has {} entries: must have 1 to 5", name_, rank));
  check_count(recipe, "strides_bytes", recipe.strides_bytes.size(), rank - 1);
  check_count(recipe, "box", recipe.box.size(), rank);
  check_count(recipe, "element_strides", recipe.element_strides.size(), rank);
  fixed_.type = recipe.type;
  fixed_.rank = static_cast<std::uint32_t>(rank);
  std::copy(recipe.box.begin(), recipe.box.end(), fixed_.box.begin());
  std::copy(recipe.element_strides.begin(), recipe.element_strides.end(), fixed_.element_strides.begin());
  fixed_.interleave = recipe.interleave;
  fixed_.swizzle = recipe.swizzle;
  fixed_.l2_promotion = recipe.l2_promotion;
  fixed_.fill = recipe.fill;
  for (std::size_t i = 0; i < rank; ++i) dims_[i] = bound(recipe, "dims", i, recipe.dims[i], slot_names);
  for (std::size_t i = 0; i + 1 < rank; ++i)
    strides_[i] = bound(recipe, "strides_bytes", i, recipe.strides_bytes[i], slot_names);
}

ResolvedTensorMap BoundTensorMap::resolve(std::span<const std::int64_t> slots, std::uint64_t address) const {
  ResolvedTensorMap map = fixed_;
  map.address = address;
  for (std::size_t i = 0; i < map.rank; ++i) map.dims[i] = value_of(name_, "dims", i, dims_[i], slots);
  for (std::size_t i = 0; i + 1 < map.rank; ++i)
    map.strides_bytes[i] = value_of(name_, "strides_bytes", i, strides_[i], slots);
  return map;
}

ResolvedTensorMap resolve(const TensorMapRecipe& recipe, std::span<const std::string> names,
                          std::span<const std::int64_t> values, std::uint64_t address) {
  return BoundTensorMap(recipe, names).resolve(values, address);
}

}  // namespace tessera
