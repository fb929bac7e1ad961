// One kernel of pieces that were compiled side by side (templates/common/pieces.cuh): the machine code of the first,
// behind it that of the others, and in the place of each go_on_in_piece() of the first a branch to that piece.
//
// That holds because a piece is a whole kernel with the same parameters, bounds and shared memory: it starts with
// nothing in registers, its branches are relative, and the branch to it waits for all that the first piece has under
// way. What a cubin says of its kernel (registers, barriers, places of instructions that the driver and tools look
// for) is joined with it. Written against cubins of NVRTC 13.0 for sm_90a; whatever is not known from there is refused,
// and the kernel compiled whole. PTX keeps its lines; machine code has none: its
// sections of debug information come out empty.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/image.h"

namespace tessera {

/// What joining gives: code, or why there is none.
template <class Bytes>
struct Joined {
  Bytes code{};
  std::string refused{};  ///< empty where there is code
};

/// One cubin of those of the pieces, the first one first, each with the kernel `entry` alone.
Joined<std::vector<std::byte>> join_cubins(const std::vector<std::vector<std::byte>>& pieces, std::string_view entry);

/// Likewise their PTX: the other pieces' bodies stand in scopes of their own at the end of the first one's.
Joined<std::string> join_ptx(const std::vector<std::string>& pieces, std::string_view entry);

/// The image of a kernel from those of its pieces: both kinds of code, and one report of what all of them take.
/// Nothing where they can't be joined; `refused` says why.
std::optional<Image> join_pieces(const std::vector<Image>& pieces, std::string_view entry, std::string& refused);

}  // namespace tessera
