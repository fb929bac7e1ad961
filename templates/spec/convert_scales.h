// Scales from the plain form to tiles of 128 rows by 4 blocks, or back; the forms: tessera/spec/block_scale.h. Codes
// are copied as they are. Written tiles have 0 in their padding bytes; padding that is read reaches nothing.
//
// A thread has four scales of a row: one word of a tile. Entry parameters: const void* from, void* to, int rows, int
// blocks. Launch: grid {ceil(ceil(blocks / 4) / kTilesOfCta), ceil(rows / 128), l}, block {256, 1, 1}.
#pragma once

#include "tessera/spec/block_scale.h"

namespace tessera::convert_scales {

inline constexpr int kTilesOfCta = 2;
inline constexpr int kNumThreads = kTilesOfCta * kTileRows;

struct Config {
  ScaleForm to = ScaleForm::tile;  // from: the other one

  TESSERA_HD friend constexpr bool operator==(const Config&, const Config&) = default;
};

enum class Rule { ok };  // every Config is legal

TESSERA_HD constexpr Verdict<Rule> why_invalid(const Config&) { return {}; }

}  // namespace tessera::convert_scales
