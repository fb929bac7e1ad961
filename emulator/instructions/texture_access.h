// What exec_texture.cpp and exec_surface.cpp share: the object behind a handle, and its texels in global memory.
#pragma once

#include "emulator/instructions/lanes.h"
#include "emulator/memory/access.h"
#include "emulator/memory/texture.h"

namespace tessera::emulator {

/// The geometry word of an instruction; false: it has none.
bool geometry_of(const Decoded& d, TextureGeometry& out);

/// The object that the lane's handle names. Null after a report: it names none, one that was destroyed, or one of the
/// other kind.
const TextureDescription* find_object(Warp& w, const Instruction& in, int lane, const Operand& handle, bool is_surface);

/// Reports an instruction of another geometry than the object's.
Step report_geometry(Warp& w, const Instruction& in, int lane, const TextureDescription& object, bool is_surface);

/// Bytes of the object at this address. False after a report: the memory was freed. What nobody has written and what
/// this launch has are reported and read.
bool locate_texel(Warp& w, const Instruction& in, int lane, const TextureDescription& object, std::uint64_t address,
                  std::size_t bytes, bool is_write, Target& out);

}  // namespace tessera::emulator
