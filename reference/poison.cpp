#include "reference/poison.h"

#include <fmt/format.h>

namespace tessera::reference {

PoisonCount count_poisoned(const TensorView& view) {
  PoisonCount count;
  const std::int64_t elements = element_count(view.shape);
  const auto rank = view.shape.size();
  const int bytes = dtype_bytes(view.dtype);
  const std::uint64_t poison = bytes == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * bytes)) - 1;
  std::vector<std::int64_t> at(rank, 0);
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    if (view.bits_at(offset) == poison) {
      if (count.poisoned == 0) count.first = i;
      ++count.poisoned;
    }
    for (std::size_t d = rank; d-- > 0;) {
      offset += view.strides[d];
      if (++at[d] < view.shape[d]) break;
      offset -= view.strides[d] * view.shape[d];
      at[d] = 0;
    }
  }
  return count;
}

std::string guard_problem(std::string_view output, std::string_view side, std::span<const std::byte> guard) {
  std::size_t overwritten = 0, nearest = guard.size();
  const bool is_before = side == "before";
  for (std::size_t i = 0; i < guard.size(); ++i) {
    if (guard[i] == std::byte{kPoisonByte}) continue;
    ++overwritten;
    nearest = std::min(nearest, is_before ? guard.size() - i : i + 1);
  }
  if (overwritten == 0) return {};
  return fmt::format("{}: {} byte{} {} it overwritten, the nearest {} away", output, overwritten,
                     overwritten == 1 ? "" : "s", side, nearest);
}

}  // namespace tessera::reference
