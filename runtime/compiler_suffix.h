// What stands behind the build id of NVRTC in a compiler's identity, so that equal identities give equal bytes.
//
//   ID+ID2    pieces that keep their values were, or would be, compiled by a second NVRTC, of build id ID2
//   ID-alone  without their option, as there is no second NVRTC that takes it
//   ID-whole  whole, as a piece failed where the whole kernel does not: memory, most likely
//
// Kernels without such pieces have ID, or ID-whole.
#pragma once

#include <string>
#include <string_view>

#include "tessera/image.h"
#include "tessera/source_bundle.h"

namespace tessera {

inline constexpr std::string_view kAlone = "-alone", kWhole = "-whole";

/// Whether a compiler with everything makes faster kernels.
bool is_lesser(const CompilerIdentity& compiler);
/// The compiler as far as this bundle depends on it.
CompilerIdentity compiler_of(const SourceBundle& bundle, CompilerIdentity compiler);
std::string entry_key(const std::string& source_key, const CompilerIdentity& compiler);

}  // namespace tessera
