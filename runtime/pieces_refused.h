// What joins pieces of a kernel says where it can't, and the mark that the first piece has for each other one.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

namespace tessera {

/// Thrown within joining; ends in join_cubins() and join_ptx().
struct PiecesRefused {
  std::string reason;
};
template <class... Args>
[[noreturn]] void refuse_to_join(fmt::format_string<Args...> text, Args&&... args) {
  throw PiecesRefused{fmt::format(text, std::forward<Args>(args)...)};
}

/// The operand of nanosleep that go_on_in_piece<I>() of templates/common/pieces.cuh has.
constexpr std::size_t mark_of_piece(std::size_t number) {
  constexpr std::size_t kFirst = 0x5e55e00;
  return kFirst + number;
}

/// What join() gives, or why it does not.
template <class Joined, class Join>
Joined joined_or_refused(const Join& join) {
  try {
    return {.code = join()};
  } catch (const PiecesRefused& refused) {
    return {.refused = refused.reason};
  }
}

}  // namespace tessera
