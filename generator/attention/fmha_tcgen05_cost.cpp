#include "generator/attention/fmha_tcgen05_cost.h"

#include <algorithm>
#include <cmath>

#include "generator/attention/fmha_explain.h"
#include "generator/attention/fmha_tile_cost.h"
#include "generator/attention/fmha_walk.h"
#include "generator/model_device.h"

namespace tessera::fmha_tcgen05 {

namespace {

// Cycles of one CTA of a B200 over 2,048 and 4,096 keys, bf16, as predicted; the formulas are within 6 % of them:
//
//   head_dim     64           128                 192        256
//   two Q tiles  1,921 (128)  2,534 (128)         1,920 (64) 2,048 (128, a pair)
//                             1,310 (64)
//   one          1,445 (128)  1,464 (128)         1,117 (64) 1,316 (64)
constexpr double kProductsPerCycle = 8192;             // 16-bit multiply-adds count twice
constexpr double kWaitCycles = 260, kWaitOfKey = 1.5;  // of a block: what neither products nor exponentials cover
constexpr double kSoftmax = 320, kSoftmaxOfOne = 8.4;  // one Q tile: of a block, and of a key
constexpr double kSoftmaxOfTwo = 15;                   // two: of a key
// e4m3, whose scores pass through more instructions. One Q tile 2,000 (128) and 1,170 (64) at every head_dim; two 3,007
// and 1,646 at 64, 3,861 and 1,649 at 128, 3,994 and 1,652 at 192/128; 2,396 (64) at 192, whose O leaves Tensor Memory
// for one S of each.
constexpr double k8Bit = 340, k8BitOfOne = 12.9;
constexpr double k8BitOfTwo = 30.2, k8BitOfTwoShort = 23.5, k8BitOfTwoFew = 25.7;  // of short rows; of few keys
constexpr double k8BitOfTwoAlone = 37.4;
constexpr int kFewKeys = 64, kShortRows = 64;
constexpr double kOneSlotCycles = 1200;  // of a block that is loaded when the one before has been read
constexpr double kStartCycles = 2500, kStartOfColumn = 26, kStartOfTile = 1000;  // of a tile's ends: first loads, O
constexpr double kStartOfPair = 1500;
constexpr double kLanesOfTile = 128, kIdleTile = 0.1;       // rows of a Q tile; of the work
constexpr double kUncovered = 0.2, kUncoveredOfMany = 0.1;  // of the lesser of computing and memory; with three slots
constexpr double kLaunchCycles = 4500;
constexpr double kMergeCycles = 3000, kMergeOfPart = 110;  // a second kernel, which reads what the parts have written

/// Of a block, what those that widen keys do not hide: beside one Q tile 417 (128 keys) and 250 (64) of e4m3 at
/// head_dim 64, 657 and 315 at 128; of MXFP8 612, 413, 1,558 and 891; of NVFP4 380, 294, 1,093 and 624.
double widen_cycles(const Config& c) {
  struct Widen {
    double of_block, of_key_short, of_key;
  };
  if (!widens_keys(c.facts)) return 0;
  const Widen widen = c.facts.kv_format == KvFormat::plain   ? Widen{40, 2.8, 4.8}
                      : c.facts.kv_format == KvFormat::mxfp8 ? Widen{220, 3.1, 10.4}
                                                             : Widen{180, 1.6, 7.2};
  const bool is_short = c.facts.head_dim <= kShortRows;
  return widen.of_block + c.tile_n * (is_short ? widen.of_key_short : widen.of_key * c.facts.head_dim / 128);
}

double softmax_cycles(const Config& c, bool has_two) {
  if (!has_two) return is_8_bit(c.facts) ? k8Bit + k8BitOfOne * c.tile_n : kSoftmax + kSoftmaxOfOne * c.tile_n;
  if (!is_8_bit(c.facts)) return kSoftmaxOfTwo * c.tile_n;
  const double of_key = c.facts.head_dim_v > 128         ? k8BitOfTwoAlone
                        : c.tile_n <= kFewKeys           ? k8BitOfTwoFew
                        : c.facts.head_dim <= kShortRows ? k8BitOfTwoShort
                                                         : k8BitOfTwo;
  return of_key * c.tile_n;
}

double block_cycles(const Config& c) {
  const bool has_two = fmha_tcgen05::q_tiles(c) == 2;
  const double columns = fmha_tcgen05::qk_columns(c) + fmha_tcgen05::v_columns(c);
  const double rate = kProductsPerCycle * (is_8_bit(c.facts) ? 2 : 1);
  const double products = 2.0 * c.tile_m / (c.cta_pair ? 2 : 1) * c.tile_n * columns / rate;
  const double waits = kWaitCycles + kWaitOfKey * c.tile_n;
  return std::max(products + waits, softmax_cycles(c, has_two)) + widen_cycles(c) +
         (c.stages == 1 ? kOneSlotCycles : 0);
}

double size_of(Hint hint) { return static_cast<double>(std::max<Hint>(hint, 1)); }

}  // namespace

bool has_fmha_tcgen05_cost(const Fmha& p) {
  return p.batch >= 0 && p.heads_q > 0 && p.heads_kv > 0 && p.seqlen_q >= 0 && expected_keys(p) >= 0 &&
         p.kv_pools == KvPools::dense && p.v_is_k == VIsK::off && p.split_size == 0;
}

double fmha_tcgen05_cycles(const Config& c, const Fmha& p) {
  const double batch = size_of(p.batch), heads = size_of(p.heads_q) / c.pack_gqa;
  const double queries = size_of(p.seqlen_q), keys = size_of(expected_keys(p));
  const double tiles_of_head = std::ceil(queries * c.pack_gqa / c.tile_m), tiles = tiles_of_head * heads * batch;
  const double ctas = c.cta_pair ? 2 : 1, places = std::floor(kBlackwell.sms / ctas);

  // Blocks of a head's last tile and of its first one: with a causal mask that one sees fewer keys.
  const double most = std::ceil(keys / c.tile_n);
  const bool is_causal = c.facts.mask == Mask::causal && c.facts.window == Window::none;
  const double hidden = is_causal ? std::min(keys, queries * (1 - 1 / tiles_of_head)) : 0;
  const double least = std::max(1.0, std::ceil((keys - hidden) / c.tile_n));

  double parts = 1;
  if (fmha_tcgen05::is_split(c))
    parts = std::max(1.0, std::min(std::ceil((kBlackwell.sms - tiles * ctas + 1) / (tiles * ctas)),
                                   std::ceil(keys / (2 * c.tile_n))));
  const double rounds = std::ceil(tiles * parts / places), block = block_cycles(c);
  const double start = kStartCycles + kStartOfColumn * c.facts.head_dim +
                       kStartOfTile * (fmha_tcgen05::q_tiles(c) - 1) + (c.cta_pair ? kStartOfPair : 0) +
                       widen_cycles(c);
  double computed = rounds * (start + std::ceil(most / parts) * block);
  if (is_causal && parts == 1) {
    const auto blocks_of = [&](double tile) {
      const double behind = std::floor(tile / (heads * batch)) * c.tile_m / c.pack_gqa;  // queries behind its last one
      return std::ceil(std::max(keys - behind, 1.0) / c.tile_n);
    };
    const double grid = std::min(tiles, places);
    computed = 0;
    for (double cta = 0; cta < grid; ++cta) {
      const FmhaWalk walk = walk_of_uneven(tiles, cta, grid, blocks_of);
      computed = std::max(computed, walk.tiles * start + walk.steps * block);
    }
  }

  const double of_head = keys * bytes_of_keys(c.facts, fmha_tcgen05::qk_columns(c) + fmha_tcgen05::v_columns(c));
  const double read = tiles * (most + least) / (2 * most) * of_head / ctas;  // out of the L2, by all tiles
  const double loaded =
      std::max(batch * size_of(p.heads_kv) * of_head / kBlackwellMemoryBytes, read / kBlackwellL2Bytes);
  // A second Q tile, or a second CTA, that has no rows.
  const double idle = queries * c.pack_gqa <= kLanesOfTile ? kIdleTile * (c.tile_m / kLanesOfTile - 1) : 0;
  return kLaunchCycles + (1 + std::max(idle, 0.0)) * std::max(computed, loaded) +
         (c.stages > 2 ? kUncoveredOfMany : kUncovered) * std::min(computed, loaded) +
         (parts > 1 ? kMergeCycles + kMergeOfPart * parts : 0);
}

}  // namespace tessera::fmha_tcgen05
