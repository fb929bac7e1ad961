// Candidates are 16 rows that four warps share, and tiles of 64 to 256 rows, each warp with rows of its own, with what
// keys and slots there is room for. Pins replace these values. The score is a model of the time; see fmha_mma_cost.h.
#include "generator/attention/fmha_mma_operator.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "generator/attention/fmha_choice.h"
#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_mma_cost.h"
#include "generator/attention/fmha_slots.h"
#include "generator/candidates.h"
#include "generator/words.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera {

namespace {

constexpr int kRowsOfTiles[] = {128, 256, 64};
constexpr int kKeysOfSteps[] = {64, 128, 96, 80, 48, 32, 16};
constexpr int kMostRegisters = 255;
constexpr int kMostExplained = 1024;  // columns of heads that a refusal counts registers and bytes of
constexpr double kSpilledShare = 0.01;
constexpr double kOneSlotShare = 0.93;  // of the speed: loads wait for the last warp
constexpr double kFewKeysShare = 0.99;  // where all slots together have fewer than 128 keys

Fmha of_mma(Fmha p) {
  p.mma_kind = MmaKind::mma_f16;
  return fmha_of_one_sequence(p);
}

/// Registers of a thread that the assembler may not find: such tiles are legal, but nobody's default while there is
/// another, and that with the fewest is where there is none. Found by compiling drawn kernels (scripts/nightly spills).
int missing_registers(const fmha::Config& c) {
  if (fmha::shares_blocks(c)) {
    // With one slot 128 keys have no advantage; above 128 columns, and beside those that widen keys, they spill.
    const bool bears_128 =
        c.stages > 1 && std::max(c.facts.head_dim, c.facts.head_dim_v) <= 128 && !widens_keys(c.facts);
    return std::max(c.tile_n - (bears_128 ? 128 : 64), 0);
  }
  int beside = 40;
  if (fmha::row_blocks(c) == 2) beside += 32;
  if (fmha::has_pools(c) && fmha::row_blocks(c) == 2 && c.tile_n > 96) beside += 16;  // words of bits
  if (fmha::ctas_per_sm(c) == 2) beside += 24;
  if (widens_keys(c.facts)) beside += 32;
  if (is_8_bit(c.facts)) beside += 8;
  if (alters_scores(c.facts)) beside += 16;
  if (c.facts.tree_mask != TreeMask::none) beside += 16;
  if (fmha::is_split(c) || reads_lengths(c.facts)) beside += 8;
  if (fmha::is_dealt(c)) beside += 16;
  if (fmha::has_whole_tiles(c)) beside += 16;
  return std::max(fmha::registers_of_warp(c) + beside - fmha::register_budget(c).consumer, 0);
}

/// Under the widest swizzle, or the one that is pinned.
fmha::Config widest_config(const Fmha& p, int tile_m, int tile_n, int stages) {
  const fmha::Tile tile{p.head_dim, p.head_dim_v.value_or(p.head_dim), tile_m, tile_n, stages};
  const fmha::Config c = fmha_config(p, tile, Swizzle::none, MmaKind::mma_f16);
  return fmha_config(p, tile, fmha::widest_swizzle(c), MmaKind::mma_f16);
}

/// What the smallest tile would take of registers and shared memory, of heads that are too long for a thread's
/// registers; else empty. Values that are keys lie in the keys' slots.
std::string needs_of_smallest(const Fmha& asked) {
  const auto is_sane = [](int columns) { return columns > 0 && columns <= kMostExplained; };
  if (!is_sane(asked.head_dim) || !is_sane(asked.head_dim_v.value_or(asked.head_dim))) return {};
  fmha::Config least;
  int least_bytes = 0;
  for (const int tile_m : {fmha::kRowsOfWarpMma, fmha::kRowsPerWarpgroup}) {
    fmha::Config c;
    c.facts = attention_facts(asked);
    c.mma_kind = MmaKind::mma_f16;
    c.tile_m = tile_m;
    c.tile_n = fmha::shares_blocks(c) ? 16 * fmha::kConsumerWarps : 32 / dtype_bytes(c.facts.dtype);
    c.stages = 1;
    c.swizzle = fmha::widest_swizzle(c);
    const fmha::SmemLayout layout = fmha::smem_layout(c);
    const int bytes = layout.total_bytes - (asked.v_is_k == VIsK::on ? layout.v.bytes : 0);
    if (least_bytes > 0 && bytes >= least_bytes) continue;
    least = c;
    least_bytes = bytes;
  }
  if (fmha::registers_of_warp(least) <= kMostRegisters) return {};
  return fmt::format(
      " (of the smallest tile, {}x{} with 1 stage, a thread would hold {} registers of S and O, {} there are; it would "
      "take {} bytes of shared memory, {} there are)",
      least.tile_m, least.tile_n, fmha::registers_of_warp(least), kMostRegisters, grouped(least_bytes),
      grouped(smem_bytes_of(asked.arch)));
}

}  // namespace

bool FmhaMmaOperator::serves(const Fmha& problem) {
  if (has_family(problem.arch, MmaFamily::tcgen05)) return false;
  return !has_family(problem.arch, MmaFamily::wgmma) || is_mma_sync(problem.mma_kind);
}

void FmhaMmaOperator::require_facts(const Fmha& problem) {
  const bool is_hopper = has_family(problem.arch, MmaFamily::wgmma);
  const auto refuse = [&](std::string_view what, std::string_view remedy) {
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for {} {}{}{}", what,
                            is_hopper ? fmt::format("with mma_kind {}", to_word(*problem.mma_kind))
                                      : "on " + problem.arch.to_string(),
                            is_hopper || !remedy.empty() ? ": take " : "", is_hopper ? "wgmma.f16" : remedy));
  };
  const MmaKind own = mma_sync_kind(attention_facts(problem));
  if (problem.mma_kind && !names_mma_sync(*problem.mma_kind, own, problem.arch))
    throw Error(
        ErrorKind::unsupported,
        fmt::format("fmha has no kernel for mma_kind {} with dtype {} on {}: take {}{}", to_word(*problem.mma_kind),
                    to_word(problem.dtype), problem.arch.to_string(), is_hopper ? "wgmma.f16 or " : "", to_word(own)));
  Fmha of_family = problem;
  of_family.mma_kind = MmaKind::mma_f16;
  const int columns = problem.head_dim_v.value_or(problem.head_dim);
  if (problem.v_is_k == VIsK::on || columns > 256)
    refuse((problem.v_is_k == VIsK::on ? "v_is_k" : fmt::format("head_dim_v {}", columns)) + needs_of_smallest(problem),
           "");
  FmhaOperator::require_facts(of_family);
  if (is_8_bit(attention_facts(problem)) && problem.tile_m == fmha::kRowsOfWarpMma)
    refuse("dtype e4m3 with tile_m 16", "tile_m 64");
  if (problem.tile_m == fmha::kRowsOfWarpMma && problem.kv_pools != KvPools::dense)
    refuse("kv_pools with tile_m 16", "tile_m 64");
  if (problem.tile_m == fmha::kRowsOfWarpMma && problem.v_layout == Layout::k_major)
    refuse("v_layout k with tile_m 16", "tile_m 64");
}

std::vector<fmha::Config> FmhaMmaOperator::candidates(const Fmha& asked) {
  const Fmha problem = of_mma(asked);
  std::vector<Config> list;
  for (const int tile_m : kRowsOfTiles)
    for (const int tile_n : kKeysOfSteps)
      for (const int stages : {2, 1, 4, 3}) list.push_back(widest_config(problem, tile_m, tile_n, stages));
  // With more rows in all, keys and values would come from the L2 far too often.
  const Hint few = fmha::kRowsPerWarpgroup;
  const bool has_few = problem.seqlen_q >= 0 && problem.seqlen_q <= few && problem.seqlen_q * list[0].pack_gqa <= few;
  if (has_few || problem.tile_m)
    for (const int tile_n : {64, 128})
      for (const int stages : {2, 1}) list.push_back(widest_config(problem, fmha::kRowsOfWarpMma, tile_n, stages));
  return list;
}

double FmhaMmaOperator::score(const Config& config, const Fmha& problem) {
  // A slot of few keys is soon empty again.
  const int ahead = config.stages * config.tile_n;
  const double slots = config.stages == 1 ? kOneSlotShare : ahead < 128 ? kFewKeysShare : 1;
  const int missing = missing_registers(config);
  return (missing > 0 ? kSpilledShare / missing : 1) * slots * 1e6 /
         fmha_mma_cost(config, of_mma(problem), mma_device_of(problem.arch)).cycles;
}

std::string FmhaMmaOperator::merit(const Config& config, const Fmha& problem) {
  std::string text;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const FmhaMmaCost cost = fmha_mma_cost(config, of_mma(problem), device);
    text += text.empty() ? "modelled (never measured) at " : ", ";
    text += modelled_text(cost_sheet(device, cost.us, cost.work), cost.tensor_share);
  }
  return text + slots_text(config, most_slots(config));
}

std::vector<CostSheet> FmhaMmaOperator::costs(const Config& config, const Fmha& problem) {
  std::vector<CostSheet> sheets;
  for (const MmaDevice& device : mma_devices_of(problem.arch)) {
    const FmhaMmaCost cost = fmha_mma_cost(config, of_mma(problem), device);
    sheets.push_back(cost_sheet(device, cost.us, cost.work));
  }
  return sheets;
}

}  // namespace tessera
