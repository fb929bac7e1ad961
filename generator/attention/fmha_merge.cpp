#include "generator/attention/fmha_merge.h"

#include "base/assert.h"
#include "spec/attention_facts.h"

namespace tessera {

AttentionFacts merged_facts(const AttentionFacts& f) {
  AttentionFacts merged{.head_dim = f.head_dim_v, .head_dim_v = f.head_dim_v};
  if (f.output == Output::normalized) merged.dtype = o_dtype(f);
  merged.sink = has_sink(f) ? Sink::per_head : Sink::none;
  merged.output = f.output;
  merged.q_layout = f.q_layout;
  return merged;
}

fmha::Config merge_config(const fmha::Config& c) {
  fmha::Config merge{.facts = merged_facts(c.facts)};
  // Whose warps own rows: attention/merge.cuh.
  if (fmha::owns_rows(c)) merge.mma_kind = c.mma_kind;
  merge.split_kv = c.split_kv;
  if (!fmha::is_dealt(c)) return merge;
  merge.tile_m = c.tile_m;
  merge.mma_kind = fmha::uses_mma_sync(c) ? c.mma_kind : merge.mma_kind;
  merge.pack_gqa = c.pack_gqa;
  merge.facts.split_size = c.facts.split_size;
  if (fmha::has_whole_tiles(c)) return merge;  // cuts say where parts lie, whatever made them
  // Else they are counted again.
  merge.tile_n = c.tile_n;
  merge.facts.mask = c.facts.mask;
  merge.facts.window = c.facts.window;
  merge.facts.seqused = c.facts.seqused;
  merge.facts.kv_layout = c.facts.kv_layout;
  if (c.facts.kv_layout == KvLayout::paged) merge.facts.page_size = 16;
  if (fmha::asks_ahead(merge) != fmha::asks_ahead(c)) merge.kv_copy = KvCopy::cp_async;
  TESSERA_ASSERT(fmha::asks_ahead(merge) == fmha::asks_ahead(c), "asks_ahead");
  return merge;
}

fmha_latent::Config merge_config(const fmha_latent::Config& c) {
  fmha_latent::Config merge;
  merge.facts.head_dim_v = c.facts.head_dim_v;
  merge.facts.dtype = c.facts.dtype;
  merge.facts.seqused = c.facts.seqused;
  merge.facts.kv_pools = c.facts.kv_pools;
  merge.facts.sink = c.facts.sink;
  if (fmha_latent::gathers(c)) merge.facts.mask = c.facts.mask;
  if (fmha_latent::widens(c)) merge.facts.kv_dtype = c.facts.kv_dtype;
  merge.tile_m = c.tile_m;
  merge.pack_gqa = c.pack_gqa;
  merge.split_kv = c.split_kv;
  return merge;
}

fmha_nvfp4::Config merge_config(const fmha_nvfp4::Config& c) {
  fmha_nvfp4::Config merge{.facts = merged_facts(c.facts), .split_kv = c.split_kv};
  merge.facts.o_dtype = merge.facts.dtype;  // which names tell apart
  return merge;
}

fmha_tcgen05::Config merge_config(const fmha_tcgen05::Config& c) {
  fmha_tcgen05::Config merge{.facts = merged_facts(c.facts)};
  merge.split_kv = c.split_kv;
  return merge;
}

std::string_view merge_header(const AttentionFacts& facts, bool is_dealt) {
  if (!is_dealt) return "attention/merge.cuh";
  return facts.v_is_k == VIsK::on ? "fmha_latent/merge.cuh" : "fmha/merge_dealt.cuh";
}

}  // namespace tessera
