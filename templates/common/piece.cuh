// Which piece of a kernel is compiled (pieces.cuh). Whoever compiles pieces side by side puts a header with another
// number in the place of this one.
#pragma once

namespace tessera::common {

inline constexpr int kPiece = 0;  // 0: the whole kernel

}  // namespace tessera::common
