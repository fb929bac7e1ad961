// What wmma.load and wmma.store ask of memory on sm_90, for statistics: the accesses of the machine code that ptxas
// makes of them. ldmatrix and the 32-bit loads that are transposed in registers both touch the 8 lines of 16 bytes that
// a register's 32 lanes hold, so a register is a group in either case.
#include <algorithm>

#include "emulator/instructions/exec_wmma.h"
#include "emulator/memory/access.h"

namespace tessera::emulator {

std::vector<std::vector<WmmaPiece>> wmma_accesses(const Warp& warp, const Instruction& in) {
  const WmmaInstruction wmma = decode_wmma(in);
  const WmmaMap& map = *wmma.map;
  const bool is_load = in.op[0].kind != Operand::Kind::address;
  const std::uint64_t base = lane_address(warp, in.op[is_load ? 1 : 0], 0);
  const bool has_stride = in.op[2].kind != Operand::Kind::none;
  const int length = wmma.is_row ? map.fragment.columns() : map.fragment.rows();
  const std::uint64_t stride =
      has_stride ? read_lane<std::uint32_t>(warp, in.op[2], 0) : static_cast<std::uint64_t>(length);
  const int bits = map.fragment.bits;
  const int bytes = std::max(bits / 8, 1);
  const auto address_of = [&](WmmaMap::SmallPlace place) {
    const std::uint64_t line = wmma.is_row ? place.row : place.column;
    const std::uint64_t position = wmma.is_row ? place.column : place.row;
    return base + (line * stride + position) * static_cast<std::uint64_t>(bits) / 8;
  };
  // Two accumulators side by side are one access; bytes across lines are accesses of their own.
  const int registers_at_once = bits >= 32 && wmma.aligned == static_cast<std::uint32_t>(2 * bytes) ? 2 : 1;
  const int elements_at_once = wmma.aligned == 1 ? 1 : map.per_register;
  const int piece_bytes = registers_at_once == 2 ? 2 * bytes : bits < 8 ? 4 : bytes;
  const int lanes_at_once = piece_bytes == 16 ? 8 : piece_bytes == 8 ? 16 : kLanes;
  std::vector<std::vector<WmmaPiece>> groups;
  for (int r = 0; r < map.registers; r += registers_at_once)
    for (int e0 = 0; e0 < map.per_register; e0 += elements_at_once)
      for (int first = 0; first < kLanes; first += lanes_at_once) {
        groups.emplace_back();
        for (int lane = first; lane < first + lanes_at_once; ++lane)
          for (int e = e0; e < e0 + (bits < 8 ? 1 : elements_at_once); ++e)
            groups.back().push_back({address_of(map.of(lane, r)[e]), static_cast<std::uint32_t>(piece_bytes)});
      }
  return groups;
}

}  // namespace tessera::emulator
