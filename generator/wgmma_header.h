// The one piece of device code that is generated as text: wgmma instructions with their long lists of registers.
#pragma once

#include <span>
#include <string>

#include "spec/wgmma_shape.h"

namespace tessera {

/// A complete header, "wgmma_shapes.cuh", that specialises ptx::Wgmma for each shape; duplicates are written once.
/// Precondition: n is a multiple of 8 from 8 to 256; dtype f16 or bf16, or e4m3 or e5m2, which are K-major and in
/// shared memory.
std::string wgmma_header(std::span<const WgmmaShape> shapes);

}  // namespace tessera
