// Candidates are the tiles of the spec's table for this head_dim, with both ways for P and every swizzle, and the tiles
// of the other head_dims, so that a reader sees why a tile that is good elsewhere is not taken here. A pin replaces the
// table's value; where the table has nothing for the pins, tiles of fewer keys follow.
//
// Scores order candidates by a rough model, since no device was there to measure on: the table's first tile of a
// head_dim counts 1, any other less by what its shape costs (fmha_tile_cost.h); P in shared memory is written and read
// once more. Where a hint says that sequences are short, the share of
// useful rows and keys of their tiles multiplies the score. Where all sizes are known the score is a model of the time
// (fmha_tcgen05_cost.h), which follows predictions.
#include "generator/attention/fmha_tcgen05_operator.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "generator/attention/fmha_explain.h"
#include "generator/attention/fmha_facts.h"
#include "generator/attention/fmha_slots.h"
#include "generator/attention/fmha_tcgen05_cost.h"
#include "generator/attention/fmha_tile_cost.h"
#include "generator/candidates.h"
#include "generator/facts.h"
#include "generator/operator_words.h"
#include "generator/words.h"
#include "spec/fmha_tcgen05_tiles.h"

namespace tessera::fmha_tcgen05 {

namespace {

constexpr Swizzle kSwizzles[] = {Swizzle::b128, Swizzle::b64, Swizzle::b32, Swizzle::none};

constexpr double kSharedPCost = 0.1;   // share of the work: P written to and read from shared memory
constexpr Hint kFewQueries = 64;       // of a product's 128 rows: with so many, half are idle, and tiles are few
constexpr Hint kEnoughTiles = 512;     // for every device at hand
constexpr double kNearDefault = 0.95;  // a model says too little of less: the default stays
constexpr double kOtherPair = 0.9;     // 512 rows in a pair are predicted 3 to 13 % slower than 256 in a CTA

/// With the queries of one sequence.
Fmha of_one_sequence(const Fmha& p) { return with_equal_queries(known_of_kernel(p)); }

/// Heads that are packed where the caller does not say: all of a key head's, if queries are known to be few.
int packed_heads_of(const Fmha& p, const Config& c) {
  // As with pools: all heads have their keys in common.
  if (has_pools(c.facts) || fmha_tcgen05::is_latent(c)) return packed_heads_of_pools(p);
  const Hint heads = packable_heads(p, kFewQueries);
  return heads <= kShortLength ? static_cast<int>(heads) : 1;
}

/// Split where few tiles would leave a device idle beside long walks over the keys.
SplitKv split_of(const Fmha& p, const Config& c) {
  if (p.split_size > 0) return SplitKv::on;
  if (has_pools(c.facts)) return fmha_tcgen05::gathers(c) && is_list_of_few(p) ? SplitKv::on : SplitKv::off;
  if (p.seqlen_q < 0 || p.seqlen_q > kFewQueries) return SplitKv::off;
  if (const Hint keys = expected_keys(p); keys >= 0 && keys < kManyKeys) return SplitKv::off;
  return has_tiles(p, c.pack_gqa, kEnoughTiles) ? SplitKv::off : SplitKv::on;
}

Config config_of(const Fmha& problem, const Tile& tile, Swizzle swizzle, ProbabilityPath p_path) {
  Config c{.facts = attention_facts(problem)};
  c.mma_kind = fmha_tcgen05::mma_kind_of(c.facts);
  c.tile_m = problem.tile_m.value_or(tile.tile_m);
  c.tile_n = problem.tile_n.value_or(tile.tile_n);
  c.stages = problem.stages.value_or(tile.stages);
  c.swizzle = problem.swizzle.value_or(swizzle);
  c.kv_copy =
      problem.kv_copy.value_or(fmha_tcgen05::gathers(c)     ? KvCopy::cp_async
                               : fmha_tcgen05::is_latent(c) ? KvCopy::tma
                                                            : default_kv_copy(c.facts.kv_layout, c.facts.page_size));
  c.p_path = problem.p_path.value_or(p_path);
  c.cta_pair = problem.cta_group ? *problem.cta_group == 2 : tile.cta_pair;
  c.pack_gqa = problem.pack_gqa ? *problem.pack_gqa : packed_heads_of(problem, c);
  c.split_kv = problem.split_kv ? *problem.split_kv : split_of(problem, c);
  return c;
}

double modelled_cost(const Config& c) { return tile_cost(c, c.p_path == ProbabilityPath::smem ? kSharedPCost : 0); }

/// With the widest swizzle, and P in Tensor Memory.
Config shape_of(Config c) {
  c.swizzle = fmha_tcgen05::widest_swizzle(c);
  c.p_path = ProbabilityPath::tmem;
  return c;
}

Config default_of(const Config& c) {
  Config standard = fmha_tcgen05::default_config(c.facts);
  standard.pack_gqa = c.pack_gqa;
  standard.split_kv = c.split_kv;
  standard.kv_copy = c.kv_copy;
  if (!has_pools(c.facts)) return standard;
  // The first tile that is one query.
  for (const Tile& tile : fmha_tcgen05::tiles_of(c.facts)) {
    if (tile.head_dim != c.facts.head_dim || tile.head_dim_v != c.facts.head_dim_v) continue;
    standard.tile_m = tile.tile_m;
    standard.tile_n = tile.tile_n;
    standard.stages = tile.stages;
    standard.p_path = tile.p_path;
    standard.cta_pair = tile.cta_pair;
    if (fmha_tcgen05::q_tiles(standard) == 1) break;
  }
  return standard;
}

double expected_share(const Config& c) {
  const Config standard = default_of(c);
  return c == standard ? 1 : share_of_default(modelled_cost(c), modelled_cost(standard));
}

/// Which part of its tiles is work. With pools a query walks over its list and its window, however many rows there are.
double useful_work(const Config& c, const Fmha& problem) {
  if (!has_pools(c.facts)) return useful_part(c, problem);
  const double rows = static_cast<double>(c.pack_gqa) /
                      (fmha_tcgen05::parts_of_query(c) * static_cast<double>(fmha_tcgen05::rows_per_cta(c)));
  if (problem.topk < 0 || problem.seqlen_swa < 0) return rows;
  const Hint listed = std::min(problem.topk, kShortLength), window = std::min(problem.seqlen_swa, kShortLength);
  if (listed + window == 0 || listed + window >= kShortLength) return rows;
  return rows * static_cast<double>(listed + window) /
         static_cast<double>(round_up(listed, c.tile_n) + round_up(window, c.tile_n));
}

bool is_own(const Tile& tile, const Fmha& problem) {
  return tile.head_dim == problem.head_dim && tile.head_dim_v == problem.head_dim_v.value_or(problem.head_dim);
}

/// ", CTA pair, 16 heads packed, keys split": what a Config has besides its tile.
std::string traits(const Config& c) {
  std::string text = c.cta_pair ? ", CTA pair" : "";
  if (c.pack_gqa != 1) text += fmt::format(", {} heads packed", c.pack_gqa);
  if (fmha_tcgen05::is_split(c)) text += ", keys split";
  if (has_split_size(c.facts)) text += fmt::format(" in parts of {}", c.facts.split_size);
  if (has_pools(c.facts)) text += ", two pools of keys";
  if (fmha_tcgen05::is_latent(c)) text += ", keys that are values too";
  if (has_cache(c.facts)) text += fmt::format(" in {}, pages of {}", to_word(c.facts.kv_cache), c.facts.page_size);
  return text;
}

/// What there are kernels for of 8-bit keys, under 16-bit queries or 8-bit ones.
void require_8_bit_keys(const Fmha& problem) {
  const auto refuse = [&](const std::string& with) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for {} e4m3 with {}",
                                                    is_8_bit(attention_facts(problem)) ? "dtype" : "kv_dtype", with));
  };
  const fmha_tcgen05::Tiles tiles = fmha_tcgen05::tiles_of(attention_facts(problem));
  if (std::none_of(tiles.begin(), tiles.end(), [&](const Tile& tile) { return is_own(tile, problem); }))
    refuse("head_dim " + head_dims_text(problem.head_dim, problem.head_dim_v.value_or(problem.head_dim)));
  if (has_pools(attention_facts(problem))) refuse("kv_pools");
}

/// What there are kernels for of keys that are values too.
void require_latent(const Fmha& problem) {
  const auto refuse = [&](std::string_view field, std::string_view value) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for {} {} with v_is_k", field, value));
  };
  if (dtype_bytes(problem.dtype) == 1) refuse("dtype", to_word(problem.dtype));
}

}  // namespace

void FmhaTcgen05Operator::require_facts(const Fmha& problem) {
  const auto is_asked = [&](const Tile& tile) { return is_own(tile, problem); };
  if (problem.v_is_k == VIsK::on) require_latent(problem);
  if (problem.v_is_k == VIsK::off &&
      std::none_of(std::begin(fmha_tcgen05::kTiles), std::end(fmha_tcgen05::kTiles), is_asked)) {
    std::vector<std::string> known;
    for (const Tile& tile : fmha_tcgen05::kTiles) {
      const std::string text = head_dims_text(tile.head_dim, tile.head_dim_v);
      if (std::find(known.begin(), known.end(), text) == known.end()) known.push_back(text);
    }
    const std::string last = known.back();
    known.pop_back();
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for head_dim {} on {}: there are kernels for {} and {}",
                            head_dims_text(problem.head_dim, problem.head_dim_v.value_or(problem.head_dim)),
                            problem.arch.to_string(), fmt::join(known, ", "), last));
  }
  require_dtype(problem);
  const auto refuse = [&](std::string_view field, std::string_view value) {
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for {} {} on {}: take sm_90a", field, value, problem.arch.to_string()));
  };
  if (problem.promote_every.value_or(0) != 0) refuse("promote_every", fmt::format("{}", *problem.promote_every));
  require_queries(problem);
  require_facts_of_scores(problem);
  require_sizes_of_facts(problem);
  require_split(problem, "on");
  if (has_descales(attention_facts(problem))) require_8_bit_keys(problem);
  if (problem.split_kv == SplitKv::dealt) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for split_kv dealt on {}: take on, or sm_90a",
                                                    problem.arch.to_string()));
  }
  const MmaKind kind = fmha_tcgen05::mma_kind_of(attention_facts(problem));
  if (problem.mma_kind && *problem.mma_kind != kind) {
    throw Error(ErrorKind::unsupported, fmt::format("fmha has no kernel for mma_kind {} with dtype {} on {}: take {}",
                                                    to_word(*problem.mma_kind), to_word(problem.dtype),
                                                    problem.arch.to_string(), to_word(kind)));
  }
  if (problem.cta_group && *problem.cta_group != 1 && *problem.cta_group != 2) {
    throw Error(ErrorKind::unsupported,
                fmt::format("fmha has no kernel for cta_group {}: 1 or 2 CTAs share a tile", *problem.cta_group));
  }
}

std::vector<Config> FmhaTcgen05Operator::candidates(const Fmha& asked) {
  const Fmha problem = of_one_sequence(asked);
  const fmha_tcgen05::Tiles tiles = fmha_tcgen05::tiles_of(attention_facts(problem));
  std::vector<Config> list;
  const auto widest_of = [&](const Tile& tile) {
    return fmha_tcgen05::widest_swizzle(config_of(problem, tile, Swizzle::none, tile.p_path));
  };
  for (const bool is_first : {true, false}) {
    for (const Tile& tile : tiles) {
      if (!is_own(tile, problem)) continue;
      if (is_first) {
        const Config c = config_of(problem, tile, widest_of(tile), tile.p_path);
        // A tile of pools is one query: what is wrong with the others would hide what is wrong with the problem.
        if (!has_pools(c.facts) || fmha_tcgen05::q_tiles(c) == 1) list.push_back(c);
        continue;
      }
      for (const Swizzle swizzle : kSwizzles)
        for (const ProbabilityPath p_path : {ProbabilityPath::tmem, ProbabilityPath::smem})
          list.push_back(config_of(problem, tile, swizzle, p_path));
    }
  }
  for (const Tile& tile : tiles)
    if (!is_own(tile, problem)) list.push_back(config_of(problem, tile, widest_of(tile), tile.p_path));
  const auto is_legal = [](const Config& c) { return fmha_tcgen05::why_invalid(c).ok(); };
  if (problem.tile_n || std::any_of(list.begin(), list.end(), is_legal)) return list;
  // Pins that no tile of the table bears, like many stages, may leave room for fewer keys.
  for (const Tile& tile : tiles) {
    if (!is_own(tile, problem)) continue;
    Tile narrower = tile;
    for (narrower.tile_n /= 2; narrower.tile_n >= 32; narrower.tile_n /= 2)
      list.push_back(config_of(problem, narrower, widest_of(narrower), narrower.p_path));
  }
  return list;
}

double FmhaTcgen05Operator::score(const Config& config, const Fmha& problem) {
  const Fmha one = of_one_sequence(problem);
  if (!has_fmha_tcgen05_cost(one)) return expected_share(config) * useful_work(config, one);
  // What the tile costs beside its shape is a share of the work.
  const double beside =
      config == default_of(config) ? 1 : kNearDefault * modelled_cost(shape_of(config)) / modelled_cost(config);
  const double pair = config.cta_pair && !default_of(config).cta_pair ? kOtherPair : 1;
  return beside * pair / fmha_tcgen05_cycles(config, one);
}

std::string FmhaTcgen05Operator::merit(const Config& config, const Fmha& problem) {
  const Fmha one = of_one_sequence(problem);
  const bool is_default = config == default_of(config);
  const int slots = widens_keys(config.facts) ? fmha_tcgen05::load_stages(config) : most_slots(config);
  if (has_fmha_tcgen05_cost(one)) {
    const double share = fmha_tcgen05_cycles(default_of(config), one) / fmha_tcgen05_cycles(config, one);
    return (is_default
                ? std::string("the default tile for these lengths, not measured on a device")
                : fmt::format("modelled (never measured) at {:.2f} of the default tile's speed for these lengths",
                              share)) +
           slots_text(config, slots);
  }
  std::string text = is_default ? fmt::format("the default for head_dim {}, not measured on a device",
                                              head_dims_text(config.facts.head_dim, config.facts.head_dim_v))
                                : fmt::format("modelled at {:.2f} of the default's speed", expected_share(config));
  const double useful = useful_work(config, one);
  if (useful < 1) text += fmt::format(", {:.1f} % of its tiles is work for these lengths", 100 * useful);
  return text + slots_text(config, slots);
}

std::string FmhaTcgen05Operator::label(const Config& config) {
  return fmt::format("tile {}x{}, {}, {}, P in {}{}", config.tile_m, config.tile_n, counted(config.stages, "stage"),
                     to_word(config.swizzle), to_word(config.p_path), traits(config));
}

std::string FmhaTcgen05Operator::subject(const Config& config) {
  return fmt::format("head_dim {}, tile {}x{}, {}{}", head_dims_text(config.facts.head_dim, config.facts.head_dim_v),
                     config.tile_m, config.tile_n, counted(config.stages, "stage"), traits(config));
}

std::string FmhaTcgen05Operator::explain(const Config& config, const Verdict& verdict) {
  const std::string found = grouped(verdict.found);
  const std::string bound = grouped(verdict.bound);
  switch (verdict.rule) {
    case Rule::head_dim_not_multiple_of_8:
      return fmt::format("head_dim {}, a multiple of {} needed ({})", found, bound,
                         verdict.bound == 32 ? "tcgen05 K and N" : "16 bytes, tensor map");
    case Rule::head_dim_out_of_range:
      return fmt::format("head_dim {}, at most {} allowed (shared memory for Q and K)", found, bound);
    case Rule::tile_m_not_whole_products:
      return fmt::format("tile_m {}, a multiple of {} needed (rows of a product)", found, bound);
    case Rule::tile_m_out_of_range:
      return fmt::format("tile_m {}, at most {} allowed (two products)", found, bound);
    case Rule::tile_n_not_multiple_of_32:
      return fmt::format("tile_n {}, a multiple of {} needed (columns that a softmax thread loads at once)", found,
                         bound);
    case Rule::tile_n_out_of_range:
      return fmt::format("tile_n {}, at most {} allowed (scores in a softmax thread's registers)", found, bound);
    case Rule::head_dim_v_needs_pair:
      return fmt::format("head_dim_v {} in one CTA, {} allowed (Tensor Memory for O and S): take a pair of CTAs", found,
                         bound);
    case Rule::folded_p_in_tmem:
      return fmt::format("P in Tensor Memory with {} rows a CTA, {} needed: take P in shared memory", found, bound);
    case Rule::pools_need_one_q_tile:
      return fmt::format("{} products of rows in a tile, {} allowed with two pools of keys: take a smaller tile_m",
                         found, bound);
    case Rule::pools_need_wider_swizzle:
      return fmt::format("a swizzle span of {} bytes, {} or more needed with two pools of keys (gather4)", found,
                         bound);
    case Rule::latent_head_dim:
      return fmt::format("head_dim {} with v_is_k, {} needed (keys that are values too have {} columns)", found, bound,
                         bound);
    case Rule::latent_head_dim_of_pools:
      return fmt::format("head_dim {}, {} or 576 needed (listed keys that are values too)", found, bound);
    case Rule::gathered_keys_tile:
      return fmt::format("tile_n {}, {} needed (listed keys that are values too, 16 of each warp)", found, bound);
    case Rule::gathered_keys_swizzle:
      return fmt::format("a swizzle span of {} bytes, {} needed for listed keys that are values too: take 128B", found,
                         bound);
    case Rule::gathered_keys_need_threads:
      return "kv_copy tma with listed keys that are values too: threads gather them, take cp_async";
    case Rule::head_dim_not_of_cache:
      return fmt::format("head_dim {}, {} needed (columns of a token of kv_cache {})", found, bound,
                         to_word(config.facts.kv_cache));
    case Rule::cache_not_beside_bf16:
      return fmt::format("kv_cache {} beside dtype {}: its rotations are bf16, take bf16",
                         to_word(config.facts.kv_cache), to_word(config.facts.dtype));
    case Rule::latent_head_dim_v:
      return fmt::format("head_dim_v {} with v_is_k, {} needed (values are the first {} columns of a key)", found,
                         bound, bound);
    case Rule::latent_in_pair:
      return fmt::format(
          "v_is_k in a tile of {} CTAs, {} allowed (one product wants half of the keys there, the other half of the "
          "columns): take cta_group 1",
          found, bound);
    case Rule::latent_needs_two_stages:
      return fmt::format("{} with v_is_k, at least {} needed (a block is kept until both products have read it)",
                         counted(verdict.found, "stage"), bound);
    case Rule::latent_needs_plain_facts:
      return "v_is_k with output unnormalized, v_layout k, kv_layout ragged or kv_copy cp_async: take none of these";
    case Rule::widened_keys_in_pair:
      return fmt::format("keys in e4m3 in a tile of {} CTAs, {} allowed: take cta_group 1", found, bound);
    case Rule::descaled_keys_need_mn_major:
      return "v_layout k with keys in e4m3: take v_layout mn";
    case Rule::widened_keys_of_two_q_tiles:
      return fmt::format(
          "tile_n {} with keys in e4m3 and two products of rows in a tile, at most {} allowed (registers of softmax "
          "threads): take it, or tile_m 128",
          found, bound);
    case Rule::placed_keys_in_pair:
      return fmt::format("keys that do not lie dense in a tile of {} CTAs, {} allowed: take cta_group 1", found, bound);
    case Rule::tensor_memory_exceeded:
      return fmt::format("{} columns of Tensor Memory, {} allowed: take a smaller tile", found, bound);
    default:
      return explain_shared_rule(config, verdict);
  }
}

std::string FmhaTcgen05Operator::kernel_name(Arch arch, const Config& config) {
  std::string name =
      fmt::format("tessera_fmha_{}_{}_{}x{}_s{}_{}_{}_{}", arch_name(arch.to_string()), head_dims_name(config.facts),
                  config.tile_m, config.tile_n, config.stages, swizzle_name(config.swizzle),
                  config.facts.mask == Mask::none ? "full" : to_word(config.facts.mask), to_word(config.facts.dtype));
  name += places_name(config.facts);
  if (config.kv_copy == KvCopy::cp_async) name += "_cpasync";
  if (config.p_path == ProbabilityPath::smem) name += "_psmem";
  if (config.facts.v_layout == Layout::k_major) name += "_vk";
  if (config.cta_pair) name += "_pair";
  if (fmha_tcgen05::is_packed(config)) name += fmt::format("_pack{}", config.pack_gqa);
  if (fmha_tcgen05::is_split(config)) name += "_split";
  if (has_pools(config.facts)) name += "_pools";
  if (config.facts.output == Output::unnormalized) name += "_unnormalized";
  return name;
}

}  // namespace tessera::fmha_tcgen05
