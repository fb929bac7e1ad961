// Choices that attention alone has, and the facts of an attention kernel, whichever target's. Words for them in flags
// and JSON: generator/words.h.
#pragma once

#include "tessera/spec/types.h"

namespace tessera {

// Which keys besides the mask's a query sees: all, or those from window_size_left before it to window_size_right behind
// it, counted from the key that stands beside the query (bottom-right aligned, as the causal mask); or those of its
// chunk: keys come in chunks of attention_chunk, and a query has that of the key beside it.
enum class Window { none, sliding, chunked };

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
// Dealt parts with a size of their own: CTAs for a tile with so many rows. Each warp has one of up to 16; where there
// are more, most tiles are whole, and CTAs that find nothing to do would take longer than rows one after the other.
TESSERA_HD constexpr int merge_ctas_of_tile(int rows) {
  const int of_rows = (rows + kMergeRows - 1) / kMergeRows, of_few = (rows + 15) / 16;
  return of_rows < 4 ? of_rows : of_few > 4 ? of_few : 4;
}

// Where a query's keys lie: all side by side in k and v (dense); or some scattered in one pool, by a list of their rows
// for each query, and those of a sliding window in another (sparse_window).
enum class KvPools { dense, sparse_window };

// Whether values are the first head_dim_v columns of their keys, so that there is no v (latent attention, MLA).
enum class VIsK { off, on };

// What the keys of kv_pools are made of: rows of kv_dtype, or tokens of a cache that is narrower, whose bytes
// tessera/spec/row_cache.h has.
enum class KvCache { rows, mla_656, mla_584, mla_384 };

// Scales beside the codes of k and v, in pages of their own: none (plain); or a block of columns of a key shares one:
// e2m1, two a byte, with ue4m3 for 16 (nvfp4); e4m3 with ue8m0 for 32 (mxfp8).
enum class KvFormat { plain, nvfp4, mxfp8 };

// How the keys of sequences lie in k and v: [batch, seqlen_k, ..] (dense); in pages of page_size keys each of a pool,
// which a table lists for each sequence (paged); packed one behind the other, cu_seqlens_k says where (ragged).
enum class KvLayout { dense, paged, ragged };
// What brings keys that do not lie dense to shared memory: TMA boxes where whole boxes of keys lie side by side, or
// cp.async, 16 bytes at a time.
enum class KvCopy { tma, cp_async };
// Keys of a page: these.
inline constexpr int kPageSizes[] = {1, 8, 16, 32, 64, 128, 256};
TESSERA_HD constexpr bool is_page_size(int keys) {
  for (const int known : kPageSizes)
    if (keys == known) return true;
  return false;
}
// Pages that no TMA box of whole swizzle patterns fits come by cp.async.
TESSERA_HD constexpr KvCopy default_kv_copy(KvLayout layout, int page_size) {
  return layout == KvLayout::paged && page_size < 8 ? KvCopy::cp_async : KvCopy::tma;
}

// Keys that lie side by side in memory as in a block of `keys`: all, or what a page and the block have in common.
TESSERA_HD constexpr int box_keys(KvLayout layout, int page_size, int keys) {
  if (layout != KvLayout::paged) return keys;
  while (keys % page_size != 0) page_size /= 2;
  return page_size;
}

// Whether a head has a logit of its own beside its keys': one that no value belongs to, so that it joins the sum that o
// is divided by, and nothing else.
enum class Sink { none, per_head };

// Whether scores, times softmax_scale, go through cap * tanh(. / cap).
enum class Softcap { none, tanh };

// Whether scores are lowered by their key's distance from the key beside the query, times a slope of the head.
enum class Alibi { none, per_head };

// Whether bits in memory say which of the keys of its sequence's queries, the last ones, a query sees: drafts of tokens
// that form a tree.
enum class TreeMask { none, bits };

// What is computed, for callers and references: everything else about a kernel is a choice. What each field means:
// Fmha in tessera/problem.h.
struct AttentionFacts {
  int head_dim = 128;    // of q and k
  int head_dim_v = 128;  // of v and o
  DType dtype = DType::bf16;
  Mask mask = Mask::none;
  Window window = Window::none;
  UsedLengths seqused = UsedLengths::none;
  KvPools kv_pools = KvPools::dense;
  KvLayout kv_layout = KvLayout::dense;
  int page_size = 0;  // of kv_layout paged, or of a kv_cache
  Sink sink = Sink::none;
  Softcap softcap = Softcap::none;
  Alibi alibi = Alibi::none;
  TreeMask tree_mask = TreeMask::none;
  Output output = Output::normalized;
  Layout v_layout = Layout::mn_major;
  QueryLayout q_layout = QueryLayout::dense;
  VIsK v_is_k = VIsK::off;
  DType kv_dtype = DType::bf16;  // of k and v: dtype, or 8 bits that the kernel widens to those of dtype
  int split_size = 0;            // keys of a part of split keys, whatever else is in the batch; 0: any
  DType o_dtype = DType::bf16;   // of a normalised o where dtype has 8 bits; else that is dtype
  KvCache kv_cache = KvCache::rows;
  KvFormat kv_format = KvFormat::plain;  // with scales kv_dtype is that of the bytes: u8, e4m3

  TESSERA_HD friend constexpr bool operator==(const AttentionFacts&, const AttentionFacts&) = default;
};

}  // namespace tessera
