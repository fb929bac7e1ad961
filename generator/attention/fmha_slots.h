// What the format of keys in pages buys: bytes that a block has in memory, and how many slots of such blocks fit.
#pragma once

#include <fmt/format.h>

#include <string>

#include "generator/candidates.h"
#include "spec/attention_facts.h"
#include "spec/fmha.h"

namespace tessera {

/// The most stages with which a legal Config stays legal.
template <class Config>
int most_slots(Config config) {
  do ++config.stages;
  while (why_invalid(config).ok());
  return config.stages - 1;
}

/// Of what loads bring. 8-bit keys that warps widen come to slots of their own, as many as there is room for.
inline int loaded_slots(const fmha::Config& config) {
  return fmha::has_widening_warps(config) ? fmha::raw_stages(config) : most_slots(config);
}

/// "; a block of 64 keys has 9,216 bytes of K and V in memory, and 8 slots of it fit"; empty but for keys in pages.
template <class Config>
std::string slots_text(const Config& config, int slots) {
  const AttentionFacts& facts = config.facts;
  if (facts.kv_layout != KvLayout::paged || facts.v_is_k == VIsK::on) return "";
  const double bytes = bytes_of_keys(facts, facts.head_dim) + bytes_of_keys(facts, facts.head_dim_v);
  return fmt::format("; a block of {} keys has {} bytes of K and V in memory, and {} of it fit", config.tile_n,
                     grouped(static_cast<long long>(bytes * config.tile_n)), counted(slots, "slot"));
}

}  // namespace tessera
