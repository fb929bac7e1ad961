// Attention kernels for tcgen05 in the emulator: planned, compiled, launched, compared with float64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reference/fmha.h"
#include "tessera/compiler.h"
#include "tessera/emulator/device.h"
#include "tessera/problem.h"
#include "tests/emulated/compiler.h"

namespace tessera::testing {

/// What a launch takes besides its lengths. What lies behind used lengths is NaN in memory.
struct FmhaLaunchFacts {
  std::optional<double> softmax_scale{};
  std::int64_t window_size_left = -1, window_size_right = -1;
  std::int64_t attention_chunk = 8192;  ///< with a window of chunks
  std::int64_t tree_words = -1;         ///< below 0: enough for all queries
  double softcap = 5;                   ///< where scores are capped: such that it bends many of them
  std::optional<std::int64_t> num_splits{};
  std::vector<std::int64_t> seqused_q{}, seqused_k{};  ///< ragged keys: those of each sequence, too
  std::vector<std::int64_t> query_lengths{};           ///< ragged queries: of each sequence; together seqlen_q or less
  /// Keys in pages: how a pool's lie, pages that nobody uses, whether some of the entries in use are none of the pool.
  enum class PoolLayout { token_major, head_major, one_pool };
  PoolLayout pool_layout = PoolLayout::token_major;
  std::int64_t spare_pages = 3;
  bool has_foreign_pages = false;
  std::int64_t topk = 0, seqlen_swa = 0;  ///< two pools of keys: seqlen_k are the pool's rows
  bool has_sink = true;                   ///< where the problem has sinks: else the pointer is null
  double sink = 0;                        ///< instead of random ones where it is not 0
  /// Of bf16 keys: those that a format with scales makes of what is drawn.
  KvFormat rounded_to = KvFormat::plain;
  /// 8-bit keys, and q: none, which is 1; one for each sequence and key head; one for all.
  enum class Descales { none, each, one };
  Descales descales = Descales::none;
  int num_sms = 4;
  std::uint64_t input_seed = 11;
  /// Whose inputs each sequence has: one of several that are drawn with so many queries and keys each. Else its own.
  std::vector<std::int64_t> sources{};
  std::int64_t source_queries = 0, source_keys = 0;
  /// Of a launch before, over the same workspace: lengths in place of seqused_k. Nobody looks at its outputs.
  std::vector<std::int64_t> earlier_k{};
  /// A text of a file of the kernel's and what stands there instead: a fault.
  struct Edit {
    std::string file, from, to;
  };
  std::optional<Edit> edit{};
  std::int64_t watched_bytes = 0;  ///< at the workspace's end: FmhaVerdict::watched
};

/// What some runs of one kernel and shape came to.
struct FmhaVerdict {
  std::string kernel;
  std::int64_t runs = 0;
  double error_share = 0;  ///< relative error, as a part of what independent roundings explain
  double cosine = 1;
  std::vector<std::string> failures;  ///< findings, wrong rows, bits that differ
  int spill_bytes = 0;                ///< where the assembler was asked
  double reference_seconds = 0, run_seconds = 0;
  std::vector<std::vector<std::byte>> sequences;  ///< of the first run: what its valid queries have of all outputs
  std::vector<std::vector<std::byte>> watched;    ///< behind each launch, an earlier one too
};

/// Under each schedule and each seed of it, with the race detector: nothing is reported, rows are right, bits are
/// equal.
FmhaVerdict run_fmha(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                     std::span<const emulator::Schedule> schedules, std::span<const std::uint64_t> seeds,
                     const FmhaLaunchFacts& facts);
/// For captions: "batch 1, heads 8/1, lengths 70 600, ...".
std::string text_of(const reference::FmhaSizes& sizes, const FmhaLaunchFacts& facts);
/// doctest's verdict over seeds 1 to `seeds`.
void check_runs(const Fmha& problem, const reference::FmhaSizes& sizes, Compiler& compiler,
                std::initializer_list<emulator::Schedule> schedules, std::uint64_t seeds,
                const FmhaLaunchFacts& facts = {});

}  // namespace tessera::testing
