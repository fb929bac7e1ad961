// Choices that attention alone has, and the facts of an attention kernel, whichever target's. Words for them in flags
// and JSON: generator/words.h.
#pragma once

#include "spec/types.h"

namespace tessera {

// Which keys besides the mask's a query sees: all, or those from window_size_left before it to window_size_right behind
// it, counted from the key that stands beside the query (bottom-right aligned, as the causal mask).
enum class Window { none, sliding };

// Whose valid length of each batch is read from memory: nobody's, the keys', or the keys' and the queries'.
enum class UsedLengths { none, k, qk };

// How the queries of sequences lie: each sequence has seqlen_q places (dense), or they follow each other, a sequence's
// from cu_seqlens_q[sequence] to cu_seqlens_q[sequence + 1] (ragged).
enum class QueryLayout { dense, ragged };

// Whether the keys of a query are shared out among CTAs whose partial results another kernel merges: num_splits to a
// tile (on), or so that all CTAs have the same number of key blocks, as the lengths in memory are (dealt).
enum class SplitKv { off, on, dealt };
// Of a CTA of that kernel: a warp for each row of the output.
inline constexpr int kMergeRows = 4;

// Where a query's keys lie: all side by side in k and v (dense); or some scattered in one pool, by a list of their rows
// for each query, and those of a sliding window in another (sparse_window).
enum class KvPools { dense, sparse_window };

// What is computed, for callers and references: everything else about a kernel is a choice. What each field means:
// Fmha in generator/problem.h.
struct AttentionFacts {
  int head_dim = 128;    // of q and k
  int head_dim_v = 128;  // of v and o
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  Window window = Window::none;
  UsedLengths seqused = UsedLengths::none;
  KvPools kv_pools = KvPools::dense;
  Output output = Output::normalized;
  Layout v_layout = Layout::mn_major;
  QueryLayout q_layout = QueryLayout::dense;

  TESSERA_HD friend constexpr bool operator==(const AttentionFacts&, const AttentionFacts&) = default;
};

}  // namespace tessera
