// Candidates are the tiles of the spec's table for this head_dim under every swizzle, and the tiles of the other
// head_dims under the widest one, so that a reader sees why a tile that is good elsewhere is not taken here. A pin
// replaces the table's value.
//
// Scores: where batch, heads and lengths are expected ones, a model of the time (fmha_cost.h). Else a default tile that
// was measured to be best counts 1; any other is placed below it by a rough model of what its shape costs
// (fmha_tile_cost.h). Which tile was best may depend on the number of keys: a hint then changes the default. Where a
// hint says that sequences are short, the share of useful rows and keys of their tiles multiplies the score; for long
// ones that share says less than the model's error, and the measured default stays.
#include "generator/attention/fmha_operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "generator/attention/fmha_choice.h"
#include "generator/attention/fmha_cost.h"
#include "generator/attention/fmha_eight_rows.h"
#include "generator/attention/fmha_explain.h"
#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_slots.h"
#include "generator/attention/fmha_tile_cost.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/words.h"

namespace tessera::fmha {
namespace {

constexpr Swizzle kSwizzles[] = {Swizzle::b128, Swizzle::b64, Swizzle::b32, Swizzle::none};

constexpr double kSmallBoxShare = 0.983;   // of the speed, for each halving of a page's box: more of them
constexpr double kSmallBoxOfAll = 0.954;   // the same where ragged queries see all keys, on an H200
constexpr double kPagePartsShare = 0.987;  // beside packed keys, where a block is parts of two pages, on an H200
constexpr double kThirdSlotGain = 1.004;   // where keys are looked up: loads have further to go ahead
constexpr double kWholePagesGain = 1.02;   // and the slot is a page: chosen before 128 x 128, as fast where timed
constexpr double kLastResort = 0.01;
constexpr double kSpilled = kLastResort * kLastResort;  // behind every other last resort
constexpr double kUnlikely = 0.5;
constexpr int kMostOfSplit = 184;  // registers for S, P and O of a thread

MmaKind mma_kind_of(const Fmha& p);

Config config_of(const Fmha& problem, const Tile& tile, Swizzle swizzle) {
  return fmha_config(problem, tile, swizzle, mma_kind_of(problem));
}

/// mma.sync where a sequence has few rows and nothing that is pinned speaks against its tile: for up to 16 over 8-bit
/// keys 1.03 to 1.37 times the speed of wgmma on an H100, over 16-bit ones 1.01 in the mean up to 8, but 0.98 for 16
/// (bench/results/fmha-few-queries.md).
MmaKind mma_kind_of(const Fmha& p) {
  if (p.mma_kind) return *p.mma_kind;
  const int most_rows = widens_keys(attention_facts(p)) ? fmha::kRowsOfWarpMma : fmha::kRowsOfWarpMma / 2;
  if (p.seqlen_q < 1 || p.seqlen_q > most_rows || fmha_may_be_step(p)) return MmaKind::wgmma_f16;
  if (fmha_head_dims(p).head_dim_v > 128) return MmaKind::wgmma_f16;  // not measured
  const int pack_gqa = p.pack_gqa.value_or(fmha_packed_heads(p));
  if (p.seqlen_q * pack_gqa > most_rows) return MmaKind::wgmma_f16;
  Fmha few = p;
  few.mma_kind = MmaKind::mma_f16;
  const Config config = config_of(few, fmha::tile_of_warps(attention_facts(p)), Swizzle::none);
  return fmha::shares_blocks(config) && fmha::why_invalid(config).ok() ? MmaKind::mma_f16 : MmaKind::wgmma_f16;
}

/// The default where `keys` are expected.
Config default_of(const Config& c, Hint keys) {
  if (fmha::shares_blocks(c)) return c;
  Config standard = fmha::default_config(c.facts, c.pack_gqa, keys, c.promote_every != 0 || !is_8_bit(c.facts));
  standard.kv_copy = c.kv_copy;
  standard.split_kv = c.split_kv;
  standard.promote_every = c.promote_every;
  return standard;
}

/// Of the default's speed.
double expected_share(const Config& c, Hint keys) {
  const Config standard = default_of(c, keys);
  return c == standard ? 1 : share_of_default(tile_cost(c), tile_cost(standard));
}

/// Which part of its tiles is work. With pools a query walks over its list and its window, however many rows there are.
double useful_work(const Config& c, const Fmha& problem) {
  if (!fmha::has_pools(c)) return useful_part(c, problem);
  const double rows = static_cast<double>(c.pack_gqa) / static_cast<double>(fmha::padded_heads(c));
  if (problem.topk < 0 || problem.seqlen_swa < 0) return rows;
  const auto few = [](Hint keys) { return std::min(keys, kShortLength); };
  return rows * useful_share(few(problem.topk) + few(problem.seqlen_swa), c.tile_n);
}

/// Where rows of Q are copied one by one; found with three packed heads.
bool spills_beside_copied_rows(const Config& c) {
  if (c.tile_m != 128 || c.facts.head_dim < 192) return false;
  const bool is_raw = c.facts.output == Output::unnormalized;
  if (c.stages > 2 && (is_raw || c.facts.head_dim == 256)) return true;
  if (c.facts.head_dim == 512) return is_raw && c.tile_n > 32;
  if (c.facts.head_dim == 256) return c.tile_n > 48;
  return c.facts.head_dim_v == 128 ? is_raw && c.tile_n > 96 : c.tile_n > (is_raw ? 80 : 96);
}

/// Of 8 bits, where scores are capped, lowered or hidden by a tree; found with every kind of these under masks, windows
/// and used lengths.
bool spills_beside_altered_scores(const Config& c) {
  if (!alters_scores(c.facts) && c.facts.tree_mask == TreeMask::none) return false;
  const bool has_window = c.facts.window != Window::none;
  if (c.tile_m > 128)
    return c.facts.head_dim > 64 && (c.tile_n > 64 || has_window || c.facts.seqused != UsedLengths::none);
  return c.facts.alibi != Alibi::none && has_window && c.tile_n > (c.facts.head_dim == 192 ? 96 : 128);
}

/// Tiles that the assembler does not find registers for: legal, but nobody's default. No sum of accumulators tells them
/// from tiles that fit: a list, found by compiling every tile under both masks and outputs. What
/// tests/ptxas/random_kernels_test.cpp draws anew each time would show another.
bool spills(const Config& c) {
  if (fmha::copies_q(c) && spills_beside_copied_rows(c)) return true;
  if (is_8_bit(c.facts)) {
    if (fmha::is_dealt(c) && c.tile_m > 128) return true;
    if (!fmha::fits_8_bit(c.facts, c, c.tile_m, c.tile_n)) return true;
    if (spills_beside_altered_scores(c)) return true;
  }
  // Where a part leaves from registers, beside the next tile's first scores.
  if (fmha::shares_blocks(c)) return false;
  if (fmha::is_split(c)) {
    const bool is_wide = (c.facts.head_dim == 256 && c.tile_n > 48) ||
                         (c.facts.head_dim == 192 && c.facts.head_dim_v == 128 && c.tile_n >= 128);
    if (c.q_stages != 2 && !(has_raw_tiles(c) && c.tile_m == 64)) return true;
    if (fmha::accumulator_registers(c) > kMostOfSplit || (c.tile_m > 64 && is_wide)) return true;
  }
  const bool is_raw = c.facts.output == Output::unnormalized;
  if (widens_keys(c.facts) && c.tile_m == 64 && c.facts.head_dim == 192 && c.tile_n == 96) return true;
  if (widens_keys(c.facts) && c.tile_m == 64 && c.facts.head_dim == 256 && c.stages > 1 && is_raw) return true;
  if (widens_keys(c.facts) && c.tile_m == 128 && c.facts.head_dim_v <= 128 &&
      c.tile_n > fmha::most_keys_of_widened(c.facts, fmha::copies_q(c)))
    return true;
  if (fmha::has_pools(c) && c.tile_m == 128 && c.tile_n > (c.facts.head_dim < 32 ? 96 : 128)) return true;
  // Where what is left of a step is kept beside the walk of widening warps.
  if (fmha::has_whole_tiles(c) && widens_keys(c.facts) && c.tile_m == 128 && c.tile_n == 128) return true;
  // Where loads of pages, or of Q, leave fewer registers.
  if (fmha::has_busy_loads(c) && c.tile_m <= 128) {
    const int most = c.tile_m == 64                                        ? (fmha::ctas_per_sm(c) == 2 ? 160 : 184)
                     : c.facts.head_dim > 128 && c.facts.head_dim_v <= 128 ? 144
                                                                           : 164;
    if (fmha::accumulator_registers(c) > most) return true;
  }
  // Where rows of bits are looked at beside the accumulators of three warpgroups.
  if (c.facts.tree_mask != TreeMask::none && c.tile_m == 192 && fmha::accumulator_registers(c) > 124) return true;
  // Where a row's own bounds, or a tile's last key, are looked up beside accumulators that leave few registers.
  const bool has_own_keys = c.facts.window != Window::none || c.facts.seqused != UsedLengths::none;
  if (c.facts.head_dim == 256 && c.tile_m == 64 && c.tile_n == 96 && has_own_keys) return true;
  const bool is_full_of_64 = c.facts.head_dim == 64 && ((c.tile_m == 192 && c.tile_n == 128) || c.tile_m == 256);
  if (is_full_of_64 && c.facts.output == Output::unnormalized && c.facts.seqused != UsedLengths::none) return true;
  const bool is_of_192_128 = c.facts.head_dim == 192 && c.facts.head_dim_v == 128 && c.tile_m == 192;
  const bool is_of_256 = c.facts.head_dim == 256 && c.tile_m == 128;
  if (is_of_192_128 && c.tile_n == 80 && c.facts.window != Window::none) return true;
  return c.facts.mask == Mask::causal && c.tile_n == 80 && (is_of_192_128 || is_of_256);
}

/// Long prefills whose tiles are passed on for speed.
bool is_ragged_prefill(const Config& c) { return fmha::passes_prefills(c) && c.facts.window == Window::none; }
/// And whose rows see all keys of their sequence.
bool sees_all_of_ragged(const Config& c) { return is_ragged_prefill(c) && c.facts.mask == Mask::none; }

/// What is left of the speed where a page comes in parts, because it and a block share few keys.
double share_of_boxes(const Config& c) {
  if (c.facts.kv_layout != KvLayout::paged || c.kv_copy != KvCopy::tma) return 1;
  if (fmha::has_page_parts(c)) return kPagePartsShare;
  const double of_half = sees_all_of_ragged(c) ? kSmallBoxOfAll : kSmallBoxShare;
  double share = 1;
  for (int keys = fmha::box_keys(c); keys < std::min(c.facts.page_size, 64); keys *= 2) share *= of_half;
  return share;
}

constexpr Tile kTileOfPages{128, 128, 192, 64, 3};

/// Three slots of 64 keys, in tiles of 192 rows, over pages longer than that, of which 80 keys would be boxes of 16.
bool has_blocks_of_pages(const Config& c) {
  return is_ragged_prefill(c) && c.facts.kv_layout == KvLayout::paged && c.facts.page_size > 64 &&
         c.facts.head_dim == kTileOfPages.head_dim && c.facts.head_dim_v == kTileOfPages.head_dim_v &&
         c.tile_m == kTileOfPages.tile_m && c.tile_n == kTileOfPages.tile_n && c.stages == kTileOfPages.stages;
}

bool is_causal_of_64(const Config& c) {
  return c.stages == 3 && c.facts.head_dim == 64 && c == default_config(c.facts);
}

/// What a third slot gains over two, which the model of the time does not tell: bench/results/fmha-serving.md.
double share_of_slots(const Config& c) {
  if (is_causal_of_64(c)) return kThirdSlotGain;
  if (has_blocks_of_pages(c)) return kWholePagesGain;
  return c.facts.kv_layout != KvLayout::dense && c.tile_m == 192 && c.stages == 3 ? kThirdSlotGain : 1;
}

std::span<const Tile> tiles_of(const AttentionFacts& facts) {
  if (is_8_bit(facts)) return fmha::kTilesOf8Bit;
  return fmha::kTiles;
}

/// Whether the model of the time may choose this tile: those of its head_dim, and small ones, for problems with few
/// tiles or few keys. The model was fitted to more; of them hardly one was ever the fastest. All are candidates for
/// pins, and for readers.
bool is_modelled(const Config& c) {
  if (c.facts.head_dim == 256 && c.tile_m == 128 && c.tile_n == 80) return false;  // no faster than 128x64 by over 2 %
  if (fmha::shares_blocks(c) || (has_raw_tiles(c) && is_tile_of_singles(c))) return true;
  if (fmha::has_whole_tiles(c) && c.facts.head_dim == 256 && c.tile_m == 128 && c.tile_n == 48) return true;
  const Tile keys = fmha::tile_of_widened(c.facts, fmha::copies_q(c));  // the default of 8-bit keys
  if (widens_keys(c.facts) && c.stages > 1 && c.tile_m == keys.tile_m && c.tile_n == keys.tile_n) return true;
  const bool is_small = c.facts.head_dim <= 256 && c.tile_m == 64 && c.stages == 2 &&
                        (c.tile_n == 48 || c.tile_n == 64 || c.tile_n == 96 || c.tile_n == 128);
  const std::span<const Tile> tiles = tiles_of(c.facts);
  return is_small || has_blocks_of_pages(c) || is_causal_of_64(c) ||
         std::any_of(tiles.begin(), tiles.end(), [&](const Tile& tile) {
           return tile.head_dim == c.facts.head_dim && tile.head_dim_v == c.facts.head_dim_v &&
                  tile.tile_m == c.tile_m && tile.tile_n == c.tile_n && tile.stages == c.stages;
         });
}

/// ", 8 heads packed, keys split": what a Config has besides its tile.
std::string traits_of(const Config& c) {
  std::string text = c.pack_gqa == 1 ? "" : fmt::format(", {} heads packed", c.pack_gqa);
  if (c.facts.kv_layout == KvLayout::paged) text += fmt::format(", pages of {}", c.facts.page_size);
  if (c.facts.kv_layout == KvLayout::ragged) text += ", ragged keys";
  if (widens_keys(c.facts))
    text +=
        fmt::format(", keys in {}", has_key_scales(c.facts) ? to_word(c.facts.kv_format) : to_word(c.facts.kv_dtype));
  if (fmha::has_pools(c)) text += ", two pools of keys";
  if (fmha::uses_mma_sync(c)) text += ", mma.sync";
  if (c.kv_copy == KvCopy::cp_async) text += " by cp.async";
  if (fmha::is_split(c)) text += fmha::is_dealt(c) ? ", keys dealt" : ", keys split";
  if (has_split_size(c.facts)) text += fmt::format(" in parts of {}", c.facts.split_size);
  return text;
}

/// Of the speed, in a step of prefills and single queries: the model of the time takes all sequences for equal. On an
/// H100 128 x 128 was fastest from 128 rows of a sequence on, in the mean, 64 x 64 below (docs/performance.md).
double share_of_step(const Config& c, const Fmha& problem) {
  if (problem.seqlen_q * c.pack_gqa < least_rows_of_large(c)) return is_tile_of_singles(c) ? 1 : kUnlikely;
  return c.tile_m == 64 || is_tile_of_singles(c) ? kLastResort : 1;
}

/// What there are kernels for of e4m3 q, k and v.
void require_8_bit(const Fmha& problem) {
  const fmha::HeadDims facts = fmha_head_dims(problem);
  const auto refuse = [&](const std::string& with) {
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for dtype {} with {}", to_word(problem.dtype), with));
  };
  constexpr int kKnown[] = {64, 128, 192, 256};
  if (std::find(std::begin(kKnown), std::end(kKnown), facts.head_dim) == std::end(kKnown))
    refuse("head_dim " + head_dims_text(facts.head_dim, facts.head_dim_v));
  if (problem.kv_pools != KvPools::dense) refuse("kv_pools");
}

}  // namespace

void FmhaOperator::require_facts(const Fmha& problem) {
  const fmha::HeadDims facts = fmha_head_dims(problem);
  const auto is_asked = [&](const fmha::HeadDims& h) {
    return h.head_dim == facts.head_dim && h.head_dim_v == facts.head_dim_v;
  };
  if (std::none_of(std::begin(fmha::kHeadDims), std::end(fmha::kHeadDims), is_asked)) {
    std::vector<std::string> known;
    for (const fmha::HeadDims& h : fmha::kHeadDims) known.push_back(head_dims_text(h.head_dim, h.head_dim_v));
    const std::string last = known.back();
    known.pop_back();
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for head_dim {}: there are kernels for {} and {}",
                            head_dims_text(facts.head_dim, facts.head_dim_v), fmt::join(known, ", "), last));
  }
  require_dtype(problem);
  const auto refuse = [&](std::string_view field, std::string_view value) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for {} {} on {}: take sm_100a or sm_103a",
                                                    field, value, problem.arch.to_string()));
  };
  if (problem.q_layout == QueryLayout::ragged && problem.split_kv == SplitKv::on)
    throw Error(ErrorKind::unsupported, "split_kv on with q_layout ragged: sequences differ; take dealt");
  if (dtype_bytes(problem.dtype) == 1) require_8_bit(problem);
  if (problem.kv_dtype && *problem.kv_dtype != problem.dtype) {
    const auto refuse_widening = [&](const std::string& with) {
      throw Error(ErrorKind::unsupported,
                  fmt::format("fmha has no kernel for kv_dtype {} with {}", to_word(*problem.kv_dtype), with));
    };
    // Boxes of 8 columns of 8 bits lie 8 bytes apart, which no tensor map takes; a pair of CTAs has no raw slots.
    if (facts.head_dim == 72 || facts.head_dim == 512)
      refuse_widening("head_dim " + head_dims_text(facts.head_dim, facts.head_dim_v));
    if (problem.kv_pools != KvPools::dense) refuse_widening("kv_pools");
  }
  require_queries(problem);
  require_facts_of_scores(problem);
  require_sizes_of_facts(problem);
  require_split(problem, "dealt");
  if (problem.p_path) refuse("p_path", to_word(*problem.p_path));
  const MmaKind kind = problem.mma_kind.value_or(MmaKind::wgmma_f16);
  if (kind != MmaKind::wgmma_f16 && kind != MmaKind::mma_f16) refuse("mma_kind", to_word(kind));
  if (problem.cta_group) refuse("cta_group", fmt::format("{}", *problem.cta_group));
}

namespace {

/// Whether a sequence's rows are the eight of a tile whose products are transposed, where such a kernel is there, and
/// was measured.
bool has_eight_rows_at_most(const Fmha& problem) {
  Tile tile = fmha::tile_of_warps(attention_facts(problem));
  tile.tile_m = fmha::kRowsOfTransposed;
  const Config c = config_of(problem, tile, Swizzle::none);
  return problem.seqlen_q >= 1 && problem.seqlen_q * c.pack_gqa <= fmha::kRowsOfTransposed && c.facts.head_dim == 128 &&
         fmha::has_eight_rows(c) && fmha::why_invalid(c).ok();
}

/// Dealt e4m3 keys in pages have three slots. H200, head_dim 128, one query, pages of 16, microseconds with two, three
/// and four: 8 x 32,768 keys 137.8, 134.9, 141.4; 128 x 4,096 272.6 and 266.2; 64 drawn lengths 183.4 and 179.0. Of
/// bf16 two are faster: 128 x 4,096 490.4 and 497.9 (bench/results/fmha-few-queries.md).
Tile tile_of_warps(const Fmha& problem) {
  Tile tile = fmha::tile_of_warps(attention_facts(problem));
  if (has_eight_rows_at_most(problem)) tile.tile_m = fmha::kRowsOfTransposed;
  const Config c = config_of(problem, tile, Swizzle::none);
  if (fmha::asks_ahead(c) && fmha::is_dealt(c) && widens_keys(c.facts) && c.facts.head_dim == 128) tile.stages = 3;
  return tile;
}

/// One tile, under every swizzle of q.
std::vector<Config> candidates_of_warps(const Fmha& problem) {
  const Tile tile = tile_of_warps(problem);
  std::vector<Config> list{config_of(problem, tile, fmha::widest_swizzle(config_of(problem, tile, Swizzle::none)))};
  for (const Swizzle swizzle : kSwizzles) list.push_back(config_of(problem, tile, swizzle));
  return list;
}

}  // namespace

std::vector<Config> FmhaOperator::candidates(const Fmha& asked) {
  const Fmha problem = fmha_of_one_sequence(asked);
  const fmha::HeadDims facts = fmha_head_dims(problem);
  if (mma_kind_of(problem) == MmaKind::mma_f16) return candidates_of_warps(problem);
  const int pack_gqa = problem.pack_gqa.value_or(fmha_packed_heads(problem));
  const Tile standard = fmha::standard_tile(attention_facts(problem), pack_gqa, problem.seqlen_k);
  const Swizzle widest = fmha::widest_swizzle(config_of(problem, standard, Swizzle::none));
  const auto is_own = [&](const Tile& tile) {
    return tile.head_dim == facts.head_dim && tile.head_dim_v == facts.head_dim_v;
  };
  std::vector<Config> list;
  list.push_back(config_of(problem, standard, widest));
  const std::span<const Tile> tiles = tiles_of(attention_facts(problem));
  for (const Swizzle swizzle : kSwizzles) {
    for (const Tile& tile : tiles)
      if (is_own(tile)) list.push_back(config_of(problem, tile, swizzle));
  }
  const Config of_pages = config_of(problem, kTileOfPages, widest);
  if (has_blocks_of_pages(of_pages)) list.push_back(of_pages);
  for (const Tile& tile : tiles)
    if (!is_own(tile)) list.push_back(config_of(problem, tile, widest));
  return list;
}

namespace {

/// `cost`: fmha_cost, or less.
double score_by(double (*cost)(const Config&, const Fmha&), const Config& config, const Fmha& asked) {
  const Fmha problem = fmha_of_one_sequence(asked);
  const double spilled = spills(config) ? kSpilled : 1;
  double share = spilled * share_of_boxes(config) * share_of_slots(config);
  if (fmha::has_whole_tiles(config) && fmha_may_be_step(problem)) share *= share_of_step(config, problem);
  if (has_fmha_cost(problem))
    return 1e6 / cost(config, problem) * (is_modelled(config) ? share : spilled * kLastResort);
  return expected_share(config, problem.seqlen_k) * useful_work(config, problem) * share;
}

}  // namespace

double FmhaOperator::score(const Config& config, const Fmha& problem) { return score_by(fmha_cost, config, problem); }

double FmhaOperator::most_score(const Config& config, const Fmha& problem) {
  return score_by(least_fmha_cost, config, problem);
}

std::string FmhaOperator::merit(const Config& config, const Fmha& asked) {
  const Fmha problem = fmha_of_one_sequence(asked);
  if (has_fmha_cost(problem))
    return fmt::format("modelled at {:.1f} us", fmha_cost_us(fmha_cost(config, problem))) +
           slots_text(config, loaded_slots(config));
  std::string text;
  if (config == default_of(config, problem.seqlen_k)) {
    text = fmt::format("the default for head_dim {}", head_dims_text(config.facts.head_dim, config.facts.head_dim_v));
    if (config != default_of(config, kUnknownHint)) text += fmt::format(" and {} keys", grouped(problem.seqlen_k));
  } else {
    text = fmt::format("modelled at {:.2f} of the default's speed", expected_share(config, problem.seqlen_k));
  }
  const double useful = useful_work(config, problem);
  if (useful < 1) text += fmt::format(", {:.1f} % of its tiles is work for these lengths", 100 * useful);
  return text + slots_text(config, loaded_slots(config));
}

std::string FmhaOperator::label(const Config& config) {
  return fmt::format("tile {}x{}, {}, {}{}", config.tile_m, config.tile_n, counted(config.stages, "stage"),
                     to_word(config.swizzle), traits_of(config));
}

std::string FmhaOperator::subject(const Config& config) {
  return fmt::format("head_dim {}, tile {}x{}, {}{}", head_dims_text(config.facts.head_dim, config.facts.head_dim_v),
                     config.tile_m, config.tile_n, counted(config.stages, "stage"), traits_of(config));
}

std::string FmhaOperator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::head_dim_not_multiple_of_8:
      return fmt::format("head_dim {}, a multiple of {} needed ({})", found, bound,
                         config.cta_pair ? "wgmma K" : "16 bytes, tensor map");
    case Rule::head_dim_out_of_range:
      return fmt::format("head_dim {}, at most {} allowed (wgmma N)", found, bound);
    case Rule::tile_m_not_multiple_of_64:
      return fmt::format("tile_m {}, a multiple of {} needed (wgmma M)", found, bound);
    case Rule::tile_m_out_of_range:
      return fmt::format("tile_m {}, at most {} allowed (consumer warpgroups)", found, bound);
    case Rule::promotion_not_of_tiles:
      return fmt::format("promote_every {}, a multiple of {} needed (tile_n)", found, bound);
    case Rule::promotion_of_16_bit:
      return fmt::format("promote_every {} with dtype {}, whose sums are fp32: take 0", found,
                         to_word(config.facts.dtype));
    case Rule::tile_n_not_multiple_of_16:
      return fmt::format("tile_n {}, a multiple of {} needed ({} K of P V)", found, bound,
                         fmha::uses_mma_sync(config) ? "mma.sync" : "wgmma");
    case Rule::tile_n_out_of_range:
      return fmt::format("tile_n {}, at most {} allowed (wgmma N)", found, bound);
    case Rule::q_stages_out_of_range:
      return fmt::format("{} for Q, 1 to {} allowed", counted(verdict.found, "stage"), bound);
    case Rule::ping_pong_needs_two_warpgroups:
      return fmt::format("{} taking turns, {} needed: take a larger tile_m",
                         counted(verdict.found, "consumer warpgroup"), bound);
    case Rule::accumulators_exceed_registers:
      return fmt::format("{} registers a thread for S, P and O, {} allowed: take a smaller {}", found, bound,
                         config.tile_m > 128 ? "tile_m or tile_n" : "tile_n");
    case Rule::instruction_exceeds_registers:
      return fmt::format("{} accumulator registers a thread for one wgmma, {} allowed: take a smaller {}", found, bound,
                         config.tile_n > fmha::v_columns(config) ? "tile_n" : "tile_m");
    case Rule::dtype_not_16_bit:
      return fmt::format("{} elements of {} bytes: take bf16, f16 or e4m3", to_word(config.facts.dtype), found);
    case Rule::widened_keys_of_cta_pairs:
      return fmt::format("head_dim {} with kv_dtype e4m3, at most {} allowed (registers beside the exchange)", found,
                         bound);
    case Rule::tile_m_of_warps:
      return fmt::format("tile_m {} by mma.sync, {} or {}, 64, 128 or 256 needed", found, fmha::kRowsOfTransposed,
                         bound);
    case Rule::facts_of_warps:
      if (fmha::has_pools(config) || config.facts.v_layout == Layout::k_major)
        return fmt::format("tile_m 16 with {}: warps that share a block's keys have no code for it: take tile_m 64",
                           fmha::has_pools(config) ? "two pools of keys" : "v_layout k");
      return fmt::format("tile_m 16 with head_dim {}, a multiple of 16 needed: take tile_m 64",
                         head_dims_text(config.facts.head_dim, config.facts.head_dim_v));
    case Rule::facts_of_eight_rows:
      return explain_eight_rows(config);
    case Rule::pools_need_cp_async:
      return "kv_copy tma, rows of two pools of keys come by threads: take cp_async";
    case Rule::k_major_v_of_placed_keys:
      return "v_layout k with kv_layout paged or ragged, or with keys in e4m3: take v_layout mn";
    default:
      return explain_shared_rule(config, verdict);
  }
}

std::string FmhaOperator::kernel_name(Arch arch, const Config& config) {
  std::string name =
      fmt::format("tessera_fmha_{}_{}_{}x{}_s{}_{}_{}_{}", arch_name(arch.to_string()), head_dims_name(config.facts),
                  config.tile_m, config.tile_n, config.stages, swizzle_name(config.swizzle),
                  config.facts.mask == Mask::none ? "full" : to_word(config.facts.mask), to_word(config.facts.dtype));
  name += places_name(config.facts);
  if (config.kv_copy == KvCopy::cp_async) name += "_cpasync";
  if (config.facts.v_layout == Layout::k_major) name += "_vk";
  if (config.facts.output == Output::unnormalized) name += "_unnormalized";
  if (config.promote_every != fmha::default_promotion(config)) name += fmt::format("_promote{}", config.promote_every);
  if (fmha::is_packed(config)) name += fmt::format("_pack{}", config.pack_gqa);
  if (fmha::is_split(config)) name += fmha::is_dealt(config) ? "_dealt" : "_split";
  if (fmha::has_pools(config)) name += "_pools";
  if (fmha::uses_mma_sync(config)) name += "_mma";
  return name;
}

}  // namespace tessera::fmha
