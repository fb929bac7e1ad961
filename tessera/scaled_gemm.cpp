#include "tessera/scaled_gemm.h"

#include <fmt/format.h>

#include "generator/words.h"
#include "tessera/error.h"

namespace tessera::block_scale {

std::int64_t require_group_tiles(BlockFormat format, std::int64_t values_bytes, std::int64_t scales_bytes,
                                 std::int64_t rows, std::int64_t k, std::int64_t pitch) {
  const int block = block_elements(format);
  if (rows < 0 || k < 0 || k % block != 0)
    throw Error(ErrorKind::usage,
                fmt::format("[{}, {}]: extents of at least 0, the last a multiple of {}, needed", rows, k, block));
  const std::int64_t apart = pitch == 0 ? k : pitch;
  if (apart < k || apart % values_of_whole_bytes(format) != 0)
    throw Error(ErrorKind::usage,
                fmt::format("rows that lie {} elements apart: at least k = {} and whole bytes needed", apart, k));
  if (const std::int64_t wanted = value_bytes(format, rows * apart); values_bytes != wanted)
    throw Error(ErrorKind::usage,
                fmt::format("values of {} bytes: [{}, {}] of {}{} takes {}", values_bytes, rows, k, to_word(format),
                            apart == k ? "" : fmt::format(", rows {} elements apart,", apart), wanted));
  const std::int64_t of_tile = ceil_div(k / block, kTileBlocks) * kTileBytes;
  if (of_tile == 0) return 0;
  if (scales_bytes < 0 || scales_bytes % of_tile != 0)
    throw Error(
        ErrorKind::usage,
        fmt::format("scales of {} bytes: 128 rows of k = {} take {}, and each group begins with a tile of its own",
                    scales_bytes, k, of_tile));
  return scales_bytes / of_tile;
}

void require_groups(const GroupRows& groups, Grouping grouping) {
  const std::int64_t numbers = groups.groups + (grouping == Grouping::contiguous ? 1 : 0);
  if (groups.groups < 0 || groups.bytes != 4 * numbers)
    throw Error(ErrorKind::usage, fmt::format("groups of {} bytes: {} {} groups take {} numbers of s32, {} bytes",
                                              groups.bytes, groups.groups, to_word(grouping), numbers, 4 * numbers));
}

}  // namespace tessera::block_scale
