// What the tests of attention over narrow keys and values share: set-ups, and what differs from one turn to the next.
#pragma once

#include "tests/emulated/fmha_run.h"

namespace tessera::testing {

inline void check_narrow(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                         const FmhaLaunchFacts& facts = {}) {
  check_runs(problem, sizes, compiler, {emulator::Schedule::lazy, emulator::Schedule::adversarial}, 1, facts);
}

/// Inputs, descales, the pool's layout and whether pages of others are there: by the turn.
inline FmhaLaunchFacts facts_of_turn(int turn) {
  FmhaLaunchFacts facts;
  facts.input_seed = static_cast<std::uint64_t>(turn);
  facts.descales = static_cast<FmhaLaunchFacts::Descales>(turn % 3);
  facts.pool_layout = static_cast<FmhaLaunchFacts::PoolLayout>(turn % 3);
  facts.has_foreign_pages = turn % 3 == 0;
  return facts;
}

/// Lengths on the device; page_size 0: no pages.
inline void use_lengths(Fmha& problem, int page_size) {
  problem.seqused = UsedLengths::k;
  if (page_size == 0) return;
  problem.kv_layout = KvLayout::paged;
  problem.page_size = page_size;
}

/// Decoding by tiles of 64 x 64: the last of causal queries, heads packed four to a row of keys, three sequences of
/// 300, 131 and no keys.
inline Fmha decoding(Fmha problem, SplitKv split, int page_size) {
  problem.mask = Mask::causal;
  problem.split_kv = split;
  problem.pack_gqa = 4;
  problem.tile_m = 64;
  problem.tile_n = 64;
  use_lengths(problem, page_size);
  return problem;
}
inline FmhaLaunchFacts facts_of_decoding(const Fmha& problem, int turn) {
  FmhaLaunchFacts facts = facts_of_turn(turn);
  facts.seqused_k = {300, 131, 0};
  if (problem.split_kv == SplitKv::on) facts.num_splits = 3;
  return facts;
}
inline void check_decoding(const Fmha& problem, Compiler& compiler, const FmhaLaunchFacts& facts) {
  check_narrow(problem, {3, 2 * *problem.pack_gqa, 2, 3, 320, problem.head_dim}, compiler, facts);
}

/// A sliding window over queries and keys of their own lengths.
inline void check_window(Fmha problem, Compiler& compiler) {
  problem.window = Window::sliding;
  problem.seqused = UsedLengths::qk;
  problem.swizzle = Swizzle::b64;
  check_narrow(problem, {3, 2, 1, 90, 300, problem.head_dim}, compiler,
               {.window_size_left = 70,
                .window_size_right = 5,
                .seqused_q = {90, 0, 41},
                .seqused_k = {300, 17, 161},
                .descales = FmhaLaunchFacts::Descales::each});
}

/// Causal ragged queries of four sequences, one of which has none.
inline void check_ragged(Fmha problem, const reference::FmhaSizes& sizes, Compiler& compiler) {
  problem.q_layout = QueryLayout::ragged;
  problem.mask = Mask::causal;
  check_narrow(
      problem, sizes, compiler,
      {.seqused_k = {176, 0, 1, 177}, .query_lengths = {70, 3, 0, 120}, .descales = FmhaLaunchFacts::Descales::each});
}

}  // namespace tessera::testing
