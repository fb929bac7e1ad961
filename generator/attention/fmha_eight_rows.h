// Tiles of eight rows, whose products are transposed (spec/fmha_warps.h): which facts of a problem have no code there,
// in words.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "generator/words.h"
#include "spec/fmha.h"

namespace tessera {

/// Each fact that Rule::facts_of_eight_rows is about, as its field is called and what it says.
inline std::vector<std::string> facts_against_eight_rows(const fmha::Config& c) {
  const AttentionFacts& f = c.facts;
  std::vector<std::string> list;
  const auto add = [&](bool is_there, std::string words) {
    if (is_there) list.push_back(std::move(words));
  };
  add(c.sm_smem_bytes != kSmemBytesOfSm, "another target than sm_90a");
  add(!fmha::is_split(c), "split_kv off");
  add(f.kv_layout != KvLayout::paged, fmt::format("kv_layout {}", to_word(f.kv_layout)));
  add(c.kv_copy != KvCopy::tma, fmt::format("kv_copy {}", to_word(c.kv_copy)));
  add(has_key_scales(f), fmt::format("kv_format {}", to_word(f.kv_format)));
  add(f.head_dim % 32 != 0, fmt::format("head_dim {} (a multiple of 32 needed)", f.head_dim));
  add(f.head_dim != f.head_dim_v, fmt::format("head_dim_v {} (head_dim {})", f.head_dim_v, f.head_dim));
  add(f.window != Window::none, fmt::format("window {}", to_word(f.window)));
  add(f.seqused == UsedLengths::qk, "seqused qk");
  add(has_split_size(f), fmt::format("split_size {}", f.split_size));
  add(is_ragged(f), "q_layout ragged");
  add(f.softcap != Softcap::none, fmt::format("softcap {}", to_word(f.softcap)));
  add(f.alibi != Alibi::none, fmt::format("alibi {}", to_word(f.alibi)));
  add(f.tree_mask != TreeMask::none, fmt::format("tree_mask {}", to_word(f.tree_mask)));
  add(has_sink(f), fmt::format("sink {}", to_word(f.sink)));
  add(fmha::copies_q(c), fmt::format("pack_gqa {} (1, 2, 4 or a multiple of 8 needed)", c.pack_gqa));
  add(f.output != Output::normalized, fmt::format("output {}", to_word(f.output)));
  return list;
}

inline std::string explain_eight_rows(const fmha::Config& c) {
  return fmt::format("tile_m {} with {}: tiles of eight rows have no code for it: take tile_m {}", c.tile_m,
                     fmt::join(facts_against_eight_rows(c), ", "), fmha::kRowsOfWarpMma);
}

}  // namespace tessera
