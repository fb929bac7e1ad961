// What wmma.load, wmma.store and wmma.mma share: fragments by number, their maps made once. Internal to exec_wmma*.cpp
// and wmma_access.cpp, but for wmma_accesses, which statistics call.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/math/wmma_layout.h"
#include "emulator/syntax/isa.h"

namespace tessera::emulator {

/// A fragment and the place of each of its elements, as rows and columns that fit a byte.
struct WmmaMap {
  struct SmallPlace {
    std::uint8_t row = 0;
    std::uint8_t column = 0;
  };
  math::WmmaFragment fragment;
  int per_register = 0;
  int registers = 0;
  std::vector<SmallPlace> places;  ///< by lane, register, element

  const SmallPlace* of(int lane, int r) const {
    return places.data() + static_cast<std::size_t>((lane * registers + r) * per_register);
  }
};

/// 0 to 20: one for every shape and matrix, times the width of an element. Instructions keep this number.
std::uint32_t wmma_number(int shape, math::WmmaMatrix matrix, int bits);
const WmmaMap& wmma_map(std::uint32_t number);

/// What the number of a wmma.load or wmma.store says: the fragment's (8 bits) | .row << 8 | Space << 12 | aligned
/// << 16.
struct WmmaInstruction {
  const WmmaMap* map = nullptr;
  bool is_row = false;
  std::uint32_t space = 0;    ///< Space
  std::uint32_t aligned = 0;  ///< bytes of the widest access that hardware makes of a line
};
inline WmmaInstruction decode_wmma(const Instruction& in) {
  return {&wmma_map(in.number & 0xFF), (in.number >> 8 & 1) != 0, in.number >> 12 & 15, in.number >> 16};
}
inline std::uint32_t encode_wmma(std::uint32_t number, bool is_row, std::uint32_t space, std::uint32_t aligned) {
  return number | (is_row ? 1u << 8 : 0u) | space << 12 | aligned << 16;
}

/// Index into math::kWmmaShapes of the opcode's shape; -1 without one.
int wmma_shape(const Decoded& d);
/// Registers of a thread that PTX wants: f16 factors have 8 always.
int wmma_registers(const WmmaMap& map, Type type);
/// Elements of a list, 1 of a register.
inline int wmma_count(const Operand& op) { return op.kind == Operand::Kind::list ? op.count : 1; }
inline std::uint32_t wmma_offset(const Operand& op, int i) {
  return op.kind == Operand::Kind::list ? op.elements[i].offset : op.offset;
}

/// A part of an access, of one lane.
struct WmmaPiece {
  std::uint64_t address = 0;
  std::uint32_t bytes = 0;
};
/// The accesses that an sm_90 makes of a wmma.load or wmma.store, those lanes together that are served at once.
std::vector<std::vector<WmmaPiece>> wmma_accesses(const Warp& warp, const Instruction& in);

}  // namespace tessera::emulator
