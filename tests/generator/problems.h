// Problems that several tests walk over.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generator/selectors.h"
#include "generator/words.h"
#include "spec/fmha_tiles.h"
#include "tessera/problem.h"

namespace tessera {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// The operator's default Problem with these fields set.
inline Problem problem_of(std::string_view op, const Fields& fields = {}) {
  Problem problem = default_problem(op);
  for (const auto& [key, text] : fields) set_field(problem, key, text);
  return problem;
}

/// Products on tcgen05: every pair of types that an instruction takes, few rows and many, targets in turn.
inline void add_tcgen05_products(std::vector<Problem>& problems) {
  constexpr const char* kTargets[] = {"sm_100a", "sm_103a", "sm_100f", "sm_103f"};
  constexpr const char* kOutputs[] = {"bf16", "f32", "f16"};
  std::size_t turn = 0;
  for (const Word<OperandType>& a : kOperandTypeWords)
    for (const Word<OperandType>& b : kOperandTypeWords) {
      layout::Tcgen05Kind kind{};
      if (!find_kind(a.value, b.value, kind)) continue;
      for (const Fields& sizes : {Fields{}, Fields{{"m", "64"}, {"n", "4096"}, {"k", "7168"}},
                                  Fields{{"m", "128"}, {"n", "7168"}, {"k", "16384"}}}) {
        Fields fields = sizes;
        const bool is_integer = kind == layout::Tcgen05Kind::i8;  // sm_100a alone
        fields.emplace_back("arch", is_integer ? "sm_100a" : kTargets[turn % 4]);
        fields.emplace_back("dtype", std::string(a.text));
        fields.emplace_back("b_dtype", std::string(b.text));
        fields.emplace_back("d_dtype", is_integer && turn % 2 == 0 ? "s32" : kOutputs[turn % 3]);
        ++turn;
        problems.push_back(problem_of("gemm", fields));
      }
    }
  for (const char* const dtype : {"bf16", "nvfp4"})
    for (const char* const d_dtype : {"bf16", "f32", "nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"})
      for (const char* const gate : {"none", "dual", "interleaved"})
        problems.push_back(problem_of(
            "gemm", {{"arch", "sm_100a"}, {"dtype", dtype}, {"d_dtype", d_dtype}, {"gate", gate}, {"m", "256"}}));
  for (const Activation activation : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    problems.push_back(Gemm{.arch = {.number = 100, .suffix = 'a'},
                            .format = BlockFormat::nvfp4,
                            .c = Addend::matrix,
                            .bias = Bias::column,
                            .activation = activation});
}

/// Products by mma.sync: on the targets that have nothing else, and on sm_90a where they are asked for.
inline bool is_mma_product(const Problem& problem) {
  const Gemm* const facts = problem.get_if<Gemm>();
  return facts != nullptr && (facts->mma_kind == MmaKind::mma_f16 || facts->arch.compute_major() == 12);
}
inline void add_mma_products(std::vector<Problem>& problems) {
  constexpr const char* kTargets[] = {"sm_120a", "sm_90a", "sm_120f", "sm_121a", "sm_90a"};
  std::size_t turn = 0;
  const auto add = [&](Fields fields) {
    const std::string_view arch = kTargets[turn++ % 5];
    fields.emplace_back("arch", arch);
    if (arch == "sm_90a") fields.emplace_back("mma_kind", "mma.f16");
    problems.push_back(problem_of("gemm", fields));
  };
  for (const char* const dtype : {"bf16", "f16"})
    for (const char* const a_layout : {"k", "mn"})
      for (const char* const b_layout : {"k", "mn"})
        for (const char* const d_dtype : {"bf16", "f32", "f16"})
          add({{"dtype", dtype}, {"d_dtype", d_dtype}, {"a_layout", a_layout}, {"b_layout", b_layout}});
  for (const auto& [a, b] : {std::pair("e4m3", "e4m3"), std::pair("e4m3", "e5m2"), std::pair("e5m2", "e5m2"),
                             std::pair("s8", "s8"), std::pair("u8", "s8"), std::pair("u8", "u8")})
    for (const char* const d_dtype : {"bf16", "f32", "s32"})
      if (d_dtype != std::string_view("s32") || a == std::string_view("u8") || a == std::string_view("s8"))
        add({{"dtype", a}, {"b_dtype", b}, {"d_dtype", d_dtype}});
  for (const auto& [a, b] :
       {std::pair("nvfp4", "nvfp4"), std::pair("mxfp4", "mxfp4"), std::pair("mxfp8_e4m3", "mxfp8_e4m3"),
        std::pair("mxfp8_e4m3", "mxfp8_e5m2"), std::pair("mxfp8_e5m2", "mxfp8_e5m2"), std::pair("mxfp8_e4m3", "mxfp4"),
        std::pair("mxfp4", "mxfp8_e5m2")})
    for (const char* const arch : {"sm_120a", "sm_121f"})
      problems.push_back(problem_of("gemm", {{"arch", arch}, {"dtype", a}, {"b_dtype", b}}));
  // Gates, groups, and few rows: transposed, k in parts.
  for (const char* const dtype : {"bf16", "e4m3", "s8"}) {
    for (const char* const grouping : {"contiguous", "masked"}) add({{"dtype", dtype}, {"grouping", grouping}});
    add({{"dtype", dtype}, {"grouping", "contiguous"}, {"gather", "rows"}});
    for (const char* const interleave : {"1", "2", "4", "8", "16"})
      add({{"dtype", dtype}, {"gate", "interleaved"}, {"interleave", interleave}});
    add({{"dtype", dtype}, {"gate", "dual"}, {"m", "16"}});
    for (const char* const m : {"1", "16", "64"}) add({{"dtype", dtype}, {"m", m}, {"n", "4096"}, {"k", "4096"}});
  }
  for (const char* const dtype : {"nvfp4", "mxfp4", "mxfp8_e5m2"})
    for (const Fields& fields :
         {Fields{{"gate", "dual"}, {"scale_form", "plain"}},
          Fields{{"gate", "interleaved"}, {"grouping", "contiguous"}},
          Fields{{"grouping", "masked"}, {"gather", "rows"}, {"scale_form", "plain"}},
          Fields{{"grouping", "masked"}, {"gate", "dual"}, {"m", "16"}}, Fields{{"m", "8"}, {"swap_ab", "on"}},
          Fields{{"d_dtype", "nvfp4"}, {"gate", "interleaved"}}, Fields{{"d_dtype", "mxfp8_e4m3"}, {"c", "matrix"}}}) {
      Fields all{{"arch", "sm_120a"}, {"dtype", dtype}};
      all.insert(all.end(), fields.begin(), fields.end());
      problems.push_back(problem_of("gemm", all));
    }
  for (const char* const activation : {"relu", "gelu", "gelu_tanh", "silu"})
    for (const char* const m : {"16", "4096"})
      add({{"c", "matrix"}, {"bias", "column"}, {"activation", activation}, {"m", m}});
}

/// Gates of products by wgmma, dense and in groups.
inline void add_wgmma_gates(std::vector<Problem>& problems) {
  problems.push_back(problem_of("gemm", {{"gate", "interleaved"}, {"interleave", "8"}, {"m", "4096"}}));
  problems.push_back(problem_of("gemm", {{"gate", "interleaved"}, {"interleave", "32"}, {"d_dtype", "f32"}}));
  problems.push_back(problem_of("gemm", {{"dtype", "e4m3"},
                                         {"a_scale_block", "1x128"},
                                         {"b_scale_block", "128x128"},
                                         {"gate", "interleaved"},
                                         {"interleave", "8"},
                                         {"grouping", "contiguous"},
                                         {"gather", "rows"}}));
  // An e4m3 d with factors: 128 columns of d for a CTA.
  const auto add = [&](std::vector<std::pair<std::string, std::string>> fields) {
    fields.emplace_back("d_dtype", "e4m3");
    fields.emplace_back("d_scale_block", "1x128");
    problems.push_back(problem_of("gemm", fields));
  };
  for (const char* const m : {"64", "4096"})
    for (const char* const dtype : {"bf16", "e4m3"}) {
      add({{"dtype", dtype}, {"m", m}});
      add({{"dtype", dtype}, {"m", m}, {"bias", "column"}, {"activation", "gelu"}, {"c", "matrix"}});
      add({{"dtype", dtype}, {"m", m}, {"gate", "dual"}, {"d_scale_values", "pow2"}});
      add({{"dtype", dtype}, {"m", m}, {"gate", "interleaved"}, {"interleave", "8"}, {"bias", "column"}});
    }
  for (const char* const grouping : {"contiguous", "masked"})
    add({{"dtype", "e4m3"},
         {"a_scale_block", "1x128"},
         {"b_scale_block", "128x128"},
         {"gate", "interleaved"},
         {"interleave", "8"},
         {"grouping", grouping},
         {"gather", "rows"}});
}

inline bool has_weights(const Problem& problem) {
  const Gemm* const facts = problem.get_if<Gemm>();
  return facts != nullptr && has_family(facts->arch, MmaFamily::wgmma) && !facts->format &&
         (facts->b_int4 || facts->b_format);
}

inline void add_quantized_blocks(std::vector<Problem>& problems) {
  const auto add = [&](const char* arch, const char* dtype, const char* block, const char* values) {
    problems.push_back(problem_of(
        "quantize_blocks", {{"arch", arch}, {"dtype", dtype}, {"scale_block", block}, {"scale_values", values}}));
  };
  for (const char* const dtype : {"bf16", "f16", "f32"})
    for (const char* const block : {"128x128", "1x128"}) add("sm_90a", dtype, block, "any");
  add("sm_100a", "bf16", "128x128", "pow2");
  add("sm_120a", "f16", "1x128", "pow2");
}

/// Weights of four bits: packed, and under products of few rows and many.
inline void add_weights(std::vector<Problem>& problems) {
  for (const char* const form : {"plain", "tile"})
    for (const char* const format : {"mxfp4", "nvfp4"})
      problems.push_back(problem_of("pack_weights", {{"format", format}, {"scale_form", form}}));
  for (const char* const dtype : {"bf16", "f16"})
    for (const char* const group : {"32", "64", "128"})
      for (const char* const zeros : {"none", "given"}) {
        problems.push_back(problem_of(
            "pack_weights", {{"format", "int4"}, {"dtype", dtype}, {"group", group}, {"zero_points", zeros}}));
        problems.push_back(problem_of("gemm", {{"dtype", dtype},
                                               {"b_dtype", "int4"},
                                               {"b_group", group},
                                               {"zero_points", zeros},
                                               {"m", group},
                                               {"n", "4096"},
                                               {"k", "4096"}}));
      }
  for (const char* const b : {"mxfp4", "nvfp4"})
    for (const char* const m : {"1", "64", "4096"})
      problems.push_back(
          problem_of("gemm", {{"b_dtype", b}, {"m", m}, {"bias", "column"}, {"activation", "gelu"}, {"c", "matrix"}}));
  problems.push_back(problem_of("gemm", {{"dtype", "f16"}, {"d_dtype", "f16"}, {"b_dtype", "nvfp4"}}));
}

/// Attention by mma.sync, likewise.
inline bool is_mma_attention(const Problem& problem) {
  const Fmha* const facts = problem.get_if<Fmha>();
  return facts != nullptr && (facts->mma_kind == MmaKind::mma_f16 || facts->arch.compute_major() == 12);
}
/// With operands in block-scaled formats: a family of its own there.
inline bool is_nvfp4_attention(const Problem& problem) {
  const Fmha* const facts = problem.get_if<Fmha>();
  return facts != nullptr && facts->format.has_value();
}
inline void add_mma_attention(std::vector<Problem>& problems) {
  constexpr const char* kTargets[] = {"sm_120a", "sm_90a", "sm_121f"};
  std::size_t turn = 0;
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    for (const bool has_8_bit_keys : {false, true}) {
      if (dims.head_dim == 512 || (has_8_bit_keys && dims.head_dim == 72)) continue;
      Fmha p{.arch = Arch::parse(kTargets[turn++ % 3]), .head_dim = dims.head_dim, .head_dim_v = dims.head_dim_v};
      if (p.arch.number == 90) p.mma_kind = MmaKind::mma_f16;
      p.mask = turn % 2 == 0 ? Mask::causal : Mask::none;
      if (has_8_bit_keys) p.kv_dtype = DType::e4m3;
      problems.push_back(p);
      if (!has_8_bit_keys || dims.head_dim % 64 != 0 || turn % 3 == 2) continue;
      p.kv_dtype = {};
      p.dtype = DType::e4m3;
      problems.push_back(p);
    }
  for (const int head_dim : {64, 128})
    for (const Mask mask : {Mask::none, Mask::causal})
      for (const Window window : {Window::none, Window::sliding})
        problems.push_back(Fmha{.arch = Arch::parse(kTargets[turn++ % 2 * 2]),
                                .head_dim = head_dim,
                                .format = BlockFormat::nvfp4,
                                .mask = mask,
                                .window = window,
                                .o_dtype = window == Window::none ? std::nullopt : std::optional(DType::f16)});
  for (const QueryLayout q_layout : {QueryLayout::dense, QueryLayout::ragged})
    for (const KvLayout kv_layout : {KvLayout::dense, KvLayout::ragged})
      problems.push_back(Fmha{.arch = Arch::parse("sm_120a"),
                              .format = BlockFormat::nvfp4,
                              .mask = Mask::causal,
                              .seqused = kv_layout == KvLayout::dense ? UsedLengths::k : UsedLengths::none,
                              .q_layout = q_layout,
                              .kv_layout = kv_layout});
  problems.push_back(Fmha{.arch = Arch::parse("sm_120a"), .format = BlockFormat::nvfp4, .seqused = UsedLengths::qk});
}

/// Attention over keys that are values too: on sm_90a it has a family of its own.
inline bool is_latent(const Problem& problem) {
  const Fmha* const facts = problem.get_if<Fmha>();
  return facts != nullptr && facts->v_is_k == VIsK::on;
}

/// Every fact of every operator that has a kernel, nothing pinned; of an operator without a line here its default.
inline std::vector<Problem> every_fact() {
  std::vector<Problem> problems;
  for (const std::string_view op : operator_names()) problems.push_back(default_problem(op));
  for (const Word<DType>& dtype : kDTypeWords)
    for (int rank = 1; rank <= 5; ++rank) problems.push_back(Copy2d{.dtype = dtype.value, .rank = rank});
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    for (const DType dtype : {DType::bf16, DType::f16})
      for (const Mask mask : {Mask::none, Mask::causal})
        for (const Output output : {Output::normalized, Output::unnormalized})
          problems.push_back(Fmha{.head_dim = dims.head_dim,
                                  .head_dim_v = dims.head_dim_v,
                                  .dtype = dtype,
                                  .mask = mask,
                                  .output = output});
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Mask mask : {Mask::none, Mask::causal})
      problems.push_back(Fmha{.head_dim = 576, .head_dim_v = 512, .dtype = dtype, .mask = mask, .v_is_k = VIsK::on});
  problems.push_back(Fmha{.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .kv_dtype = DType::e4m3});
  for (const char* const target : {"sm_90a", "sm_100a", "sm_120a"})
    for (const KvFormat format : {KvFormat::nvfp4, KvFormat::mxfp8})
      for (const int head_dim : {64, 128, 256})
        problems.push_back(Fmha{.arch = Arch::parse(target),
                                .head_dim = head_dim,
                                .mask = head_dim == 128 ? Mask::causal : Mask::none,
                                .kv_layout = KvLayout::paged,
                                .page_size = head_dim == 64 ? 16 : 64,
                                .kv_format = format});
  for (const Word<KvCache>& cache : kKvCacheWords)
    for (const int head_dim : {512, 576})
      if (cache.value == KvCache::rows || (head_dim == 576) == (cache.value == KvCache::mla_656))
        problems.push_back(Fmha{.head_dim = head_dim,
                                .head_dim_v = 512,
                                .mask = head_dim == 512 ? Mask::causal : Mask::none,
                                .kv_pools = KvPools::sparse_window,
                                .kv_cache = cache.value,
                                .v_is_k = VIsK::on});
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    for (const DType dtype : {DType::bf16, DType::f16})
      if (dims.head_dim >= 64 && dims.head_dim <= 256 && dims.head_dim % 32 == 0 && dims.head_dim != 160)
        problems.push_back(
            Fmha{.head_dim = dims.head_dim, .head_dim_v = dims.head_dim_v, .dtype = dtype, .kv_dtype = DType::e4m3});
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    if (dims.head_dim % 64 == 0 && dims.head_dim <= 256)
      problems.push_back(Fmha{.head_dim = dims.head_dim,
                              .head_dim_v = dims.head_dim_v,
                              .dtype = DType::e4m3,
                              .mask = dims.head_dim == 128 ? Mask::none : Mask::causal});
  for (const fmha::HeadDims& dims : fmha::kHeadDims)
    for (const int heads : {16, 128})
      problems.push_back(Fmha{.head_dim = dims.head_dim,
                              .head_dim_v = dims.head_dim_v,
                              .mask = heads == 16 ? Mask::none : Mask::causal,
                              .kv_pools = KvPools::sparse_window,
                              .pack_gqa = heads});
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const Word<BlockFormat>& format : kBlockFormatWords)
      for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
        problems.push_back(Quantize{.dtype = dtype, .format = format.value, .scale_form = form});
        problems.push_back(Dequantize{.dtype = dtype, .format = format.value, .scale_form = form});
        if (format.value == BlockFormat::nvfp4) {
          problems.push_back(Quantize{.dtype = dtype, .scale_form = form, .global_scale = GlobalScale::given});
          problems.push_back(Dequantize{.dtype = dtype, .scale_form = form, .global_scale = GlobalScale::given});
          problems.push_back(Gemv{.dtype = dtype, .scale_form = form});
        } else {
          problems.push_back(Quantize{
              .dtype = dtype, .format = format.value, .scale_form = form, .scale_rounding = ScaleRounding::floor});
        }
      }
  for (const ScaleForm to : {ScaleForm::plain, ScaleForm::tile}) problems.push_back(ConvertScales{.to = to});
  add_weights(problems);
  add_quantized_blocks(problems);
  add_wgmma_gates(problems);
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const DType o_dtype : {DType::f32, DType::f16, DType::bf16})
      for (const Sink sink : {Sink::none, Sink::per_head})
        problems.push_back(Merge{.dtype = dtype, .o_dtype = o_dtype, .sink = sink});
  for (const char* const chain :
       {"gate(silu,limit=10)+nvfp4(tile)", "gather+rope(448..511,inverse)+nvfp4(0..447,global)+bf16(448..511)",
        "layernorm+hadamard(128)+e4m3(columns)+e4m3(row,pow2)",
        "factor+rmsnorm+rope(0..127,halves,yarn=16)+e4m3(tensor,scatter)", "rmsnorm+rope(448..511)+mla_584",
        "mhc_post+rmsnorm+mxfp8_e4m3", "mhc_pre+softmax+sqrt_softplus(0..63)+softcap(30)+f32", "mhc_mix(0..23)+f32",
        "append_kv(256,halves)", "combine(8)+rmsnorm+same", "compress(4,overlap)+rmsnorm+rope(448..511)+bf16",
        "gather+dequant(nvfp4,tile)+f32", "dequant(e4m3)+rmsnorm+mxfp4"})
    for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"})
      problems.push_back(problem_of("rows", {{"arch", arch}, {"columns", "512"}, {"chain", chain}}));
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const char* const scoring : {"softmax", "sigmoid", "sqrt_softplus"})
      for (const char* const grouping : {"none", "contiguous", "masked"})
        problems.push_back(problem_of("moe_route", {{"arch", dtype == DType::f32 ? "sm_90a" : "sm_100a"},
                                                    {"dtype", std::string(to_word(dtype))},
                                                    {"experts", dtype == DType::f16 ? "512" : "384"},
                                                    {"scoring", scoring},
                                                    {"bias", dtype == DType::bf16 ? "none" : "column"},
                                                    {"grouping", grouping}}));
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"})
    for (const char* const dtype : {"f32", "f16", "bf16"})
      for (const char* const range : {"all", "lengths", "starts"})
        for (const char* const index_form : {"columns", "pages", "offsets"}) {
          const bool is_f32 = dtype == std::string_view("f32"), is_all = range == std::string_view("all");
          problems.push_back(problem_of("topk", {{"arch", arch},
                                                 {"dtype", dtype},
                                                 {"k", is_f32 ? "2048" : "300"},
                                                 {"ties", is_all ? "larger" : "smaller"},
                                                 {"order", is_f32 != is_all ? "value" : "index"},
                                                 {"range", range},
                                                 {"index_form", index_form},
                                                 {"values", is_f32 ? "off" : "on"},
                                                 {"m", is_all ? "1" : "unknown"}}));
        }
  for (const int heads : {8, 16, 32, 64})
    for (const int head_dim : {32, 64, 128})
      for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"}) {
        const bool is_even = (heads / 8 + head_dim / 32) % 2 == 0;
        Indexer facts{.arch = Arch::parse(arch), .heads = heads, .head_dim = head_dim};
        facts.score_dtype = is_even ? DType::f32 : DType::bf16;
        facts.outside = heads == 16 ? Outside::unwritten : Outside::minus_inf;
        facts.score_columns = head_dim == 64 ? ScoreColumns::compressed : ScoreColumns::keys;
        problems.push_back(facts);
        facts.score_columns = ScoreColumns::keys;
        facts.kv_layout = KvLayout::paged;
        facts.page_size = heads == 8 ? 16 : heads == 16 ? 256 : 64;
        facts.next_n = head_dim / 32;
        facts.context_lengths = is_even ? ContextLengths::query : ContextLengths::sequence;
        problems.push_back(facts);
        if (head_dim == 32) continue;
        facts.format = IndexFormat::mxfp4;
        problems.push_back(facts);
        problems.push_back(Indexer{.arch = facts.arch, .heads = heads, .head_dim = head_dim, .format = facts.format});
      }
  problems.push_back(Indexer{.mma_kind = MmaKind::mma_f16});
  problems.push_back(Indexer{.format = IndexFormat::mxfp4, .mma_kind = MmaKind::mma_f16});
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const int head_dim : {64, 128}) problems.push_back(AttentionQuantize{.head_dim = head_dim, .dtype = dtype});
  for (const KvLayout kv_layout : {KvLayout::dense, KvLayout::ragged, KvLayout::paged}) {
    AttentionQuantize facts{.q_layout = QueryLayout::ragged, .kv_layout = kv_layout};
    if (kv_layout == KvLayout::paged) facts.page_size = 16;
    if (kv_layout == KvLayout::dense) facts.seqused = UsedLengths::k;
    problems.push_back(facts);
    facts.q_layout = QueryLayout::dense;
    facts.seqused = UsedLengths::qk;
    problems.push_back(facts);
  }
  const auto add_product = [&](const Gemm& facts) {
    problems.push_back(facts);
    // Few rows get other tiles.
    Gemm narrow = facts;
    narrow.m = 64;
    narrow.n = 4096;
    narrow.k = 7168;
    problems.push_back(narrow);
  };
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Layout a_layout : {Layout::k_major, Layout::mn_major})
      for (const Layout b_layout : {Layout::k_major, Layout::mn_major})
        for (const DType d_dtype : {DType::f32, DType::bf16, DType::f16, DType::e4m3})
          add_product({.dtype = dtype, .d_dtype = d_dtype, .a_layout = a_layout, .b_layout = b_layout});
  for (const Grouping grouping : {Grouping::contiguous, Grouping::masked}) {
    add_product({.c = Addend::matrix, .bias = Bias::column, .activation = Activation::gelu, .grouping = grouping});
    add_product({.dtype = DType::f16, .d_dtype = DType::f32, .grouping = grouping});
    add_product({.dtype = DType::e4m3, .d_dtype = DType::e5m2, .grouping = grouping});
    add_product({.dtype = DType::f16, .bias = Bias::group, .grouping = grouping, .gather = Gather::rows});
    add_product({.dtype = DType::e4m3,
                 .grouping = grouping,
                 .gather = grouping == Grouping::masked ? Gather::rows : Gather::none,
                 .a_scale_block = ScaleBlock::of_row,
                 .b_scale_block = ScaleBlock::square});
  }
  for (const DType dtype : {DType::e4m3, DType::e5m2})
    for (const DType b_dtype : {DType::e4m3, DType::e5m2})
      for (const Accumulation accumulation : {Accumulation::fast, Accumulation::promoted})
        for (const DType d_dtype : {DType::f32, DType::bf16, DType::e5m2})
          add_product({.dtype = dtype, .b_dtype = b_dtype, .d_dtype = d_dtype, .accumulation = accumulation});
  for (const ScaleBlock a_block : {ScaleBlock::of_row, ScaleBlock::square})
    for (const ScaleBlock b_block : {ScaleBlock::of_row, ScaleBlock::square})
      for (const DType d_dtype : {DType::f32, DType::bf16, DType::e4m3})
        add_product({.dtype = DType::e4m3, .d_dtype = d_dtype, .a_scale_block = a_block, .b_scale_block = b_block});
  for (const Activation activation : {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
    add_product({.c = Addend::matrix, .bias = Bias::column, .activation = activation});
  add_tcgen05_products(problems);
  add_mma_products(problems);
  add_mma_attention(problems);
  return problems;
}

}  // namespace tessera
