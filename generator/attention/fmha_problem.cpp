#include "tessera/fmha_problem.h"

#include "generator/attention/fmha_latent_operator.h"
#include "generator/attention/fmha_mma_operator.h"
#include "generator/attention/fmha_nvfp4_operator.h"
#include "generator/attention/fmha_operator.h"
#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/facts.h"
#include "generator/family.h"
#include "generator/field_table.h"

namespace tessera {

namespace {

constexpr int kCachePage = 64;                     // keys of a kv_cache's page, if the caller does not say
constexpr std::int64_t kWholeWindow = 2147418112;  // no sequence is longer

// Keys of a window on one side: -1 says, as at launch, that there is no bound. In the Problem -1 is what nobody knows,
// so the largest size of a launch, which hides nothing either, stands for it there.
template <auto Member>
Selector window_field(std::string_view flag, std::string_view key, std::string_view help) {
  Selector selector = field<Member>(flag, key, help);
  selector.min = -1;
  selector.max = kWholeWindow;
  selector.set = [](Problem& problem, const Selector& of, std::string_view text) {
    Hint keys = kUnknownHint;
    if (text != kUnknownText) {
      keys = parse_number(of, text);
      if (keys < 0) keys = kWholeWindow;
    }
    problem.edit<Fmha>().*Member = keys;
  };
  selector.text = [](const Problem& problem) {
    const Hint keys = problem.as<Fmha>().*Member;
    return keys == kWholeWindow ? std::string("-1") : Field<Member>::value_text(keys);
  };
  return selector;
}

/// The type of q, k and v: an element type or a block-scaled format, two members of the Problem behind one field.
Selector dtype_field() {
  using OfType = Field<&Fmha::dtype>;
  using OfFormat = Field<&Fmha::format>;
  Selector selector =
      field<&Fmha::dtype>("dtype", "dtype", "type of q, k and v: e4m3 with descales, nvfp4 from attention_quantize");
  selector.words = {"bf16", "f16", "e4m3", "nvfp4"};
  selector.set = [](Problem& problem, const Selector& of, std::string_view text) {
    DType element = Fmha{}.dtype;  // beside a format it says nothing
    BlockFormat format{};
    const bool is_format = from_word(text, format);
    if (!is_format && !from_word(text, element)) refuse_word(problem, of, text);
    Fmha& facts = problem.edit<Fmha>();
    facts.dtype = element;
    facts.format = is_format ? std::optional(format) : std::nullopt;
  };
  selector.text = [](const Problem& problem) {
    const auto& format = problem.as<Fmha>().format;
    return format ? std::string(to_word(*format)) : OfType::text(problem);
  };
  selector.hash = [](const void* facts) noexcept { return 31 * OfType::hash(facts) + OfFormat::hash(facts); };
  return selector;
}

Selector split_size_field() {
  Selector selector = field<&Fmha::split_size>(
      "split-size", "split_size",
      "keys of a part of split keys, so that a sequence's bits depend on nothing else in the batch; 0: any");
  selector.min = 0;
  return selector;
}

Selector promotion_field() {
  Selector selector = field<&Fmha::promote_every>(
      "promote-every", "promote_every",
      "keys whose products 8-bit tensor cores sum, with 13 fraction bits, before fp32 takes them; 0: all (e4m3 only)");
  selector.min = 0;
  return selector;
}

}  // namespace

std::span<const Selector> fmha_fields() {
  static const std::vector<Selector> table = {
      field<&Fmha::arch>("arch", "arch", kArchHelp),
      field<&Fmha::head_dim>(
          "head-dim", "head_dim",
          "elements of a head of q and k: 16, 32, 64, 72, 80, 96, 128, 160, 192, 256 or 512; 576 with v_is_k"),
      field<&Fmha::head_dim_v>("head-dim-v", "head_dim_v", "elements of a head of v and o (auto: head_dim)"),
      dtype_field(),
      field<&Fmha::mask>("mask", "mask", "which keys a query sees; causal is bottom-right aligned"),
      field<&Fmha::window>("window", "window",
                           "whether keys further away than a window are hidden, or those before a query's chunk"),
      field<&Fmha::seqused>("seqused", "seqused",
                            "valid lengths of each sequence in memory: of keys (k), of both (qk)"),
      field<&Fmha::q_layout>("q-layout", "q_layout",
                             "how queries of sequences lie: each in seqlen_q places, or one after the other (ragged)"),
      field<&Fmha::kv_pools>("kv-pools", "kv_pools", "where keys lie: dense, or by a list of rows beside a window's"),
      field<&Fmha::kv_layout>("kv-layout", "kv_layout",
                              "how keys lie: dense, in pages of a pool (paged), packed with cu_seqlens_k (ragged)"),
      field<&Fmha::page_size>("page-size", "page_size", "keys of a page: 1, 8, 16, 32, 64, 128 or 256"),
      field<&Fmha::kv_cache>("kv-cache", "kv_cache",
                             "what keys of kv_pools are made of: rows of kv_dtype, or a narrower cache's tokens"),
      field<&Fmha::v_is_k>("v-is-k", "v_is_k",
                           "whether values are the first head_dim_v columns of k, without a v (576/512, or 512)"),
      field<&Fmha::sink>("sink", "sink", "whether each head has a logit that joins the sum that o is divided by"),
      field<&Fmha::softcap>("softcap", "softcap", "whether scores are capped: cap * tanh(score / cap)"),
      field<&Fmha::alibi>("alibi", "alibi", "whether slopes of heads lower scores by their keys' distance"),
      field<&Fmha::tree_mask>("tree-mask", "tree_mask",
                              "whether bits say which of the last keys, those of the queries, a query sees"),
      offer(field<&Fmha::kv_dtype>("kv-dtype", "kv_dtype",
                                   "type of k and v (auto: dtype); e4m3: with descales, widened exactly"),
            {"bf16", "f16", "e4m3"}),
      field<&Fmha::kv_format>("kv-format", "kv_format",
                              "scales beside k and v in pages: none, e2m1 with ue4m3 for 16 columns (nvfp4), e4m3 with "
                              "ue8m0 for 32 (mxfp8)"),
      split_size_field(),
      offer(
          field<&Fmha::o_dtype>("o-dtype", "o_dtype", "type of a normalised o (auto: dtype, bf16 for e4m3 and nvfp4)"),
          {"bf16", "f16"}),
      field<&Fmha::output>("output", "output", "rows divided by their sums, or fp32 rows with maximum and sum"),
      field<&Fmha::v_layout>("v-layout", "v_layout", "contiguous dimension of v: mn, the head's; k, the keys'"),
      field<&Fmha::tile_m>("tile-m", "tile_m", "query rows of one CTA"),
      field<&Fmha::tile_n>("tile-n", "tile_n", "keys of one step"),
      field<&Fmha::stages>("stages", "stages", "slots of the ring of key and value tiles"),
      field<&Fmha::swizzle>("swizzle", "swizzle", "how TMA permutes a tile in shared memory"),
      offer(field<&Fmha::mma_kind>(
                "mma-kind", "mma_kind",
                "matrix instruction, as plan shows it (wgmma.f16, tcgen05.f16, mma.f16, mma.mxf4nvf4, ..)"),
            {"wgmma.f16", "tcgen05.f16", "tcgen05.f8f6f4", "mma.f16", "mma.f8", "mma.mxf4nvf4"}),
      field<&Fmha::p_path>("p-path", "p_path", "how probabilities reach the second product (tcgen05 only)"),
      field<&Fmha::cta_group>("cta-group", "cta_group", "CTAs that share a tile: 1 or 2 (tcgen05 only)"),
      field<&Fmha::pack_gqa>("pack-gqa", "pack_gqa", "query heads of a key head that share a tile's rows; 1: none"),
      field<&Fmha::kv_copy>("kv-copy", "kv_copy", "what loads keys in pages, or ragged ones: TMA, or threads"),
      field<&Fmha::split_kv>(
          "split-kv", "split_kv",
          "whether CTAs share a tile's keys, for a second kernel to merge: num_splits to each (on), or dealt by the "
          "lengths in memory (dealt, not on sm_100 and sm_103)"),
      promotion_field(),
      field<&Fmha::batch>("batch", "batch", "expected number of sequences"),
      field<&Fmha::heads_q>("heads-q", "heads_q", "expected number of query heads"),
      field<&Fmha::heads_kv>("heads-kv", "heads_kv", "expected number of key and value heads"),
      field<&Fmha::seqlen_q>("seqlen-q", "seqlen_q", "expected number of queries"),
      field<&Fmha::seqlen_k>("seqlen-k", "seqlen_k", "expected number of keys"),
      field<&Fmha::num_splits>("num-splits", "num_splits", "expected parts of split keys"),
      field<&Fmha::topk>("topk", "topk", "expected rows that a query lists"),
      field<&Fmha::seqlen_swa>("seqlen-swa", "seqlen_swa", "expected keys of the window beside a list"),
      field<&Fmha::pages>("pages", "pages", "expected pages of a pool"),
      field<&Fmha::max_pages>("max-pages", "max_pages", "expected entries of a sequence in the table of pages"),
      field<&Fmha::tokens_k>("tokens-k", "tokens_k", "expected keys of all sequences together, where they are ragged"),
      window_field<&Fmha::window_size_left>("window-size-left", "window_size_left",
                                            "expected keys of a window before a query; -1: no bound"),
      window_field<&Fmha::window_size_right>("window-size-right", "window_size_right",
                                             "expected keys of a window behind a query; -1: no bound"),
  };
  return table;
}

namespace {

constexpr FamilyRow kFmhaFamilies[] = {
    family_row<FmhaNvfp4Operator>("mma_nvfp4", kMmaTargets),
    family_row<FmhaLatentOperator>("wgmma_latent", kWgmmaTargets), family_row<FmhaOperator>("wgmma", kWgmmaTargets),
    family_row<FmhaTcgen05Operator>("tcgen05", kTcgen05Targets), family_row<FmhaMmaOperator>("mma", kMmaTargets)};
constexpr OperatorType kFmha = make_operator_type<Fmha>(fmha_fields, kFmhaFamilies);

}  // namespace

UsedLengths used_lengths(const Fmha& problem) {
  const bool needs_lengths = problem.kv_layout == KvLayout::paged && problem.seqused == UsedLengths::none;
  return needs_lengths ? UsedLengths::k : problem.seqused;
}

AttentionFacts attention_facts(const Fmha& problem) {
  return {.head_dim = problem.head_dim,
          .head_dim_v = problem.head_dim_v.value_or(problem.head_dim),
          .dtype = problem.dtype,
          .mask = problem.mask,
          .window = problem.window,
          .seqused = used_lengths(problem),
          .kv_pools = problem.kv_pools,
          .kv_layout = problem.kv_layout,
          .page_size = problem.page_size.value_or(problem.kv_cache == KvCache::rows ? 0 : kCachePage),
          .sink = problem.sink,
          .softcap = problem.softcap,
          .alibi = problem.alibi,
          .tree_mask = problem.tree_mask,
          .output = problem.output,
          .v_layout = problem.v_layout,
          .q_layout = problem.q_layout,
          .v_is_k = problem.v_is_k,
          .kv_dtype = problem.kv_format == KvFormat::nvfp4   ? DType::u8
                      : problem.kv_format == KvFormat::mxfp8 ? DType::e4m3
                                                             : problem.kv_dtype.value_or(problem.dtype),
          .split_size = problem.split_size,
          .o_dtype = problem.o_dtype.value_or(dtype_bytes(problem.dtype) == 1 ? DType::bf16 : problem.dtype),
          .kv_cache = problem.kv_cache,
          .kv_format = problem.kv_format};
}

template <>
const OperatorType& operator_type<Fmha>() noexcept {
  return kFmha;
}

}  // namespace tessera
