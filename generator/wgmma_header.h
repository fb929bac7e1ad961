// The one piece of device code that is generated as text: wgmma instructions with their long lists of registers.
#pragma once

#include <span>
#include <string>

#include "spec/fmha.h"

namespace tessera {

/// A complete header, "wgmma_shapes.cuh", that specialises ptx::Wgmma for each shape; duplicates are written once.
/// Precondition: n is a multiple of 8 from 8 to 256, dtype f16 or bf16.
std::string wgmma_header(std::span<const fmha::WgmmaShape> shapes);

}  // namespace tessera
