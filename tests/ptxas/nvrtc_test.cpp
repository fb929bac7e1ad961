// Default kernels through NVRTC: no spill, no stack, no warning, no note of the assembler that it serialised wgmma or
// ignored setmaxnreg, and the parameters that the plan says. TESSERA_PTXAS_ALL=1 in the environment compiles every
// legal candidate instead (minutes).
#include "runtime/nvrtc.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>

#include "generator/attention/fmha_mma_operator.h"
#include "generator/attention/fmha_nvfp4_operator.h"
#include "generator/attention/fmha_operator.h"
#include "generator/candidates.h"
#include "generator/copy2d/copy2d_operator.h"
#include "generator/embedded_templates.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"
#include "tests/ptxas/complaint.h"

using namespace tessera;

namespace {

bool compiles_all() {
  const char* const all = std::getenv("TESSERA_PTXAS_ALL");
  return all != nullptr && std::string_view(all) == "1";
}

template <class Operator>
void add_candidates(const Fmha& facts, std::map<std::string, Problem>& kernels) {
  for (const auto& candidate : choose<Operator>(facts).candidates) {
    if (!candidate.verdict.ok()) continue;
    Fmha pinned = facts;
    pinned.tile_m = candidate.config.tile_m;
    pinned.tile_n = candidate.config.tile_n;
    pinned.stages = candidate.config.stages;
    if constexpr (requires { candidate.config.swizzle; }) pinned.swizzle = candidate.config.swizzle;
    kernels.try_emplace(planned_kernel(pinned), pinned);
  }
}

/// By kernel, so that each is compiled once.
std::map<std::string, Problem> problems_to_compile() {
  std::map<std::string, Problem> kernels;
  for (const Problem& problem : every_fact()) {
    const Fmha* const fmha = problem.get_if<Fmha>();
    if (compiles_all() && fmha != nullptr) {
      is_nvfp4_attention(problem) ? add_candidates<FmhaNvfp4Operator>(*fmha, kernels)
      : is_mma_attention(problem) ? add_candidates<FmhaMmaOperator>(*fmha, kernels)
                                  : add_candidates<FmhaOperator>(*fmha, kernels);
    } else {
      kernels.try_emplace(planned_kernel(problem), problem);
    }
  }
  return kernels;
}

}  // namespace

TEST_CASE("nvrtc: planned kernels compile without spill, stack, warning or note") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  const std::map<std::string, Problem> kernels = problems_to_compile();
  check_all(*compiler, kernels, 48);
  CHECK(kernels.size() >= 80);
}

// Of what 400 drawn problems showed (scripts/nightly spills) the kernels that had spilled: head_dim 256, whose O takes
// most registers, with schedules of ragged queries and dealt keys.
TEST_CASE("nvrtc: attention by mma.sync with long heads and many facts compiles without spill") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  Fmha of_pages{.arch = Arch::parse("sm_120a"), .head_dim = 256, .mask = Mask::causal, .seqused = UsedLengths::k};
  of_pages.q_layout = QueryLayout::ragged;
  of_pages.kv_layout = KvLayout::paged;
  of_pages.page_size = 16;
  of_pages.split_kv = SplitKv::dealt;
  Fmha of_8_bits = of_pages;
  of_8_bits.dtype = DType::e4m3;
  std::map<std::string, Problem> kernels;
  for (const Fmha& problem : {of_pages, of_8_bits}) kernels.try_emplace(planned_kernel(problem), problem);
  CHECK(kernels.size() == 2);
  check_all(*compiler, kernels, 1);
}

// Packed heads beside three warpgroups' accumulators, and beside O of 256 columns; O of fp32 in 192 rows.
TEST_CASE("nvrtc: attention over e4m3 with packed heads, and with sums that are not divided, compiles without spill") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  Fmha packed{.head_dim = 128, .mask = Mask::causal, .pack_gqa = 4};
  packed.dtype = DType::e4m3;
  Fmha narrow = packed;
  narrow.head_dim = 64;
  Fmha packed_raw = packed;
  packed_raw.output = Output::unnormalized;
  Fmha wide = packed;
  wide.head_dim = 256;
  wide.sink = Sink::per_head;
  Fmha raw{.head_dim = 192, .head_dim_v = 128, .output = Output::unnormalized};
  raw.dtype = DType::e4m3;
  std::map<std::string, Problem> kernels;
  for (const Fmha& problem : {packed, narrow, packed_raw, wide, raw})
    kernels.try_emplace(planned_kernel(problem), problem);
  CHECK(kernels.size() == 5);
  check_all(*compiler, kernels, 1);
}

TEST_CASE("nvrtc: pieces of kernels that are short of registers are joined") {
  const std::unique_ptr<Compiler> compiler = find_nvrtc() ? make_nvrtc_compiler() : nullptr;
  if (compiler == nullptr || compiler->identity().major_version < 13) {
    MESSAGE("not run: no NVRTC 13 here");
    return;
  }
  Fmha all_facts{.head_dim = 128, .mask = Mask::causal};
  all_facts.window = Window::sliding;
  all_facts.q_layout = QueryLayout::ragged;
  all_facts.kv_layout = KvLayout::paged;
  all_facts.page_size = 16;
  all_facts.softcap = Softcap::tanh;
  all_facts.alibi = Alibi::per_head;
  all_facts.sink = Sink::per_head;
  all_facts.split_kv = SplitKv::dealt;
  Fmha scaled_keys{.head_dim = 128, .mask = Mask::causal};
  scaled_keys.q_layout = QueryLayout::ragged;
  scaled_keys.kv_layout = KvLayout::paged;
  scaled_keys.page_size = 16;
  scaled_keys.kv_format = KvFormat::nvfp4;
  for (const Fmha& problem : {all_facts, scaled_keys}) {
    const Plan plan = make_plan(problem);
    CAPTURE(plan.kernel);
    const Image image = compiler->compile(emit(plan));
    CHECK(image.report.log.find("tessera: compiled whole") == std::string::npos);
    // What makes the assembler choose as it does for whole kernels: common/pieces.cuh.
    const std::size_t leaves = image.ptx.find("bra.uni $L__piece_2;");
    REQUIRE(leaves != std::string::npos);
    CHECK((image.ptx.substr(leaves, 80).find("wgmma.commit_group") != std::string::npos) ==
          (problem.kv_format != KvFormat::plain));
  }
}

// Names of static members say which classes were instantiated.
TEST_CASE("nvrtc: a piece instantiates nothing of the other one") {
  const std::unique_ptr<Compiler> compiler = find_nvrtc() ? make_nvrtc_compiler() : nullptr;
  if (compiler == nullptr || compiler->identity().major_version < 13) {
    MESSAGE("not run: no NVRTC 13 here");
    return;
  }
  Fmha of_step{.head_dim = 128, .mask = Mask::causal};
  of_step.q_layout = QueryLayout::ragged;
  of_step.kv_layout = KvLayout::paged;
  of_step.page_size = 16;
  of_step.kv_dtype = DType::e4m3;
  of_step.split_kv = SplitKv::dealt;
  const Fmha latent{.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .pack_gqa = 16};
  for (const Fmha& problem : {of_step, latent}) {
    const SourceBundle bundle = emit(make_plan(problem));
    CAPTURE(planned_kernel(problem));
    REQUIRE(bundle.pieces.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      SourceBundle piece = bundle;
      piece.merge = nullptr;
      piece.pieces.clear();
      for (SourceFile& header : piece.headers)
        if (header.path == bundle.pieces[i].header.path) header.text = bundle.pieces[i].header.text;
      const std::string ptx = compiler->compile(piece).ptx;
      CHECK((ptx.find("ConsumerI") != std::string::npos) == (i == 1));
      if (problem.v_is_k == VIsK::off) CHECK((ptx.find("KeyLoadI") != std::string::npos) == (i == 0));
    }
  }
}

TEST_CASE("nvrtc: consumers that spill where they keep their values are compiled once more, and do not") {
  const std::unique_ptr<Compiler> compiler = find_nvrtc() ? make_nvrtc_compiler() : nullptr;
  if (compiler == nullptr || compiler->identity().major_version != 13 || compiler->identity().minor_version != 0) {
    MESSAGE("not run: no NVRTC 13.0, of which this kernel is known to spill");
    return;
  }
  Fmha problem{.head_dim = 64, .mask = Mask::causal};
  problem.window = Window::sliding;
  problem.seqused = UsedLengths::k;
  problem.split_kv = SplitKv::dealt;
  SourceBundle bundle = emit(make_plan(problem));
  bundle.merge = nullptr;
  CHECK_FALSE(bundle.pieces.at(1).keeps_values);
  const Image plain = compiler->compile(bundle);
  bundle.pieces.at(1).keeps_values = true;
  const Image image = compiler->compile(bundle);
  CHECK(image.report.log.find("tessera: piece 2 spills with, so it is compiled without, "
                              "-Xnvvm -disable-nvvm-remat\n") != std::string::npos);
  for (const EntryReport& entry : image.report.entries) CHECK(entry.spill_store_bytes + entry.spill_load_bytes == 0);
  CHECK(image.cubin == plain.cubin);
}

TEST_CASE("nvrtc: pages of eight keys leave an indexer's loading warp its registers") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  std::map<std::string, Problem> kernels;
  // 32 registers a thread load beside three consumers (two queries of 64 heads), 40 beside two, 56 where keys are
  // widened.
  for (const int next_n : {2, 4})
    for (const IndexFormat format : {IndexFormat::e4m3, IndexFormat::mxfp4}) {
      const Problem problem = Indexer{.format = format, .kv_layout = KvLayout::paged, .page_size = 8, .next_n = next_n};
      kernels.try_emplace(planned_kernel(problem), problem);
    }
  check_all(*compiler, kernels, 1);
}

// What a merge's Config leaves out of its kernel's is nothing that a merge reads: else its code would be another.
TEST_CASE("nvrtc: a merge is what it would be with all of its kernel's Config") {
  if (!nvrtc_or_skip()) return;
  const auto compiler = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  const auto instructions = [&](SourceBundle bundle, const std::string& config) {
    for (SourceFile& header : bundle.headers)
      if (header.path == "merge_config.cuh" && !config.empty()) header.text = config;
    const std::string ptx = compiler->compile(bundle).ptx;
    std::string kept;
    for (std::size_t at = ptx.find(".entry "), last = ptx.find("\n}\n", at); at < last;) {
      const std::size_t end = ptx.find('\n', at) + 1;
      const std::string_view line = std::string_view(ptx).substr(at, end - at);
      if (line.find(".loc") == std::string_view::npos && line.find("//") == std::string_view::npos) kept += line;
      at = end;
    }
    return kept;
  };
  using Fields = std::vector<std::pair<std::string, std::string>>;
  const Fields ragged{
      {"mask", "causal"}, {"q_layout", "ragged"}, {"kv_layout", "paged"}, {"page_size", "64"}, {"split_kv", "dealt"}};
  const Fields latent{{"head_dim", "576"}, {"head_dim_v", "512"}, {"v_is_k", "on"}, {"split_kv", "dealt"}};
  const auto with = [](Fields fields, const Fields& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  for (const Fields& fields :
       {with(ragged, {{"head_dim", "256"}, {"window", "sliding"}, {"sink", "per_head"}, {"softcap", "tanh"}}),
        with(ragged, {{"dtype", "e4m3"}, {"alibi", "per_head"}}), with(ragged, {{"kv_dtype", "e4m3"}}),
        with(ragged, {{"split_size", "512"}, {"window", "chunked"}}),
        with(ragged, {{"arch", "sm_120a"}, {"head_dim", "256"}}),
        Fields{{"head_dim", "192"},
               {"head_dim_v", "128"},
               {"mask", "causal"},
               {"window", "sliding"},
               {"split_kv", "dealt"}},
        Fields{{"kv_layout", "ragged"}, {"q_layout", "ragged"}, {"kv_dtype", "e4m3"}, {"split_kv", "dealt"}},
        Fields{{"kv_layout", "paged"},
               {"page_size", "16"},
               {"heads_q", "32"},
               {"heads_kv", "8"},
               {"seqlen_q", "1"},
               {"seqlen_k", "4096"},
               {"batch", "8"},
               {"split_kv", "dealt"}},
        with(latent, {{"kv_layout", "paged"}, {"page_size", "64"}, {"mask", "causal"}}),
        with(latent, {{"kv_dtype", "e4m3"}}), with(latent, {{"kv_pools", "sparse_window"}, {"kv_cache", "mla_656"}}),
        Fields{{"window", "sliding"}, {"split_kv", "on"}, {"output", "unnormalized"}},
        Fields{{"arch", "sm_100a"}, {"head_dim", "64"}, {"split_kv", "on"}, {"kv_dtype", "e4m3"}},
        Fields{{"arch", "sm_120a"}, {"dtype", "nvfp4"}, {"split_kv", "on"}, {"softcap", "tanh"}}}) {
    const SourceBundle bundle = emit(make_plan(problem_of("fmha", fields)));
    REQUIRE(bundle.merge != nullptr);
    CAPTURE(bundle.entries.front());
    std::string config;
    for (const SourceFile& header : bundle.headers)
      if (header.path == "config.cuh") config = header.text;
    const std::string name = " kConfig{";
    REQUIRE(config.find(name) != std::string::npos);
    config.replace(config.find(name), name.size(), " kMergeConfig{");
    const std::string own = instructions(*bundle.merge, {});
    CHECK(own.size() > 1000);
    CHECK(own == instructions(*bundle.merge, config));
  }
}

TEST_CASE("nvrtc: a single file compiles by itself, with the bundle's options") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  for (const Problem& problem : {Problem(Copy2d{}), Problem(Fmha{.head_dim = 64, .output = Output::unnormalized})}) {
    const Plan plan = make_plan(problem);
    SourceBundle bundle = emit(plan);
    bundle.text = emit_single_file(plan);
    bundle.headers.clear();
    const Image image = compiler->compile(bundle);
    CHECK(image.report.log.find("warning") == std::string::npos);
    CHECK(image.report.entries.at(0).name == plan.kernel);
  }
}

TEST_CASE("nvrtc: each kernel.cu of the templates compiles with the Config that it has") {
  if (!nvrtc_or_skip()) return;
  // What the assembler says of planned kernels stands above.
  const auto compiler =
      make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = testing::takes_all_cases()});
  std::size_t kernels = 0;
  for (const EmbeddedTemplate& file : embedded_templates()) {
    if (!file.path.ends_with("/kernel.cu")) continue;
    const std::string folder(file.path.substr(0, file.path.find('/')));
    CAPTURE(folder);
    const Arch arch = Arch::parse(folder.ends_with("_tcgen05") ? "sm_100a"
                                  : folder.ends_with("_nvfp4") ? "sm_120a"
                                                               : "sm_90a");
    SourceBundle bundle = emit(make_plan(Gemm{.arch = arch}));  // for its options
    bundle.text = file.text;
    bundle.headers.clear();
    for (const EmbeddedTemplate& header : embedded_templates()) {
      bundle.headers.push_back({std::string(header.path), std::string(header.text)});
      if (const std::string beside = folder + "/default/"; header.path.starts_with(beside))
        bundle.headers.push_back({std::string(header.path.substr(beside.size())), std::string(header.text)});
    }
    std::string problem;
    try {
      // Of moe_route both steps.
      const std::string ptx = compiler->compile(bundle).ptx;
      std::size_t entries = 0;
      for (std::size_t at = ptx.find(".entry "); at != std::string::npos; at = ptx.find(".entry ", at + 1)) ++entries;
      CHECK(entries == (folder == "moe_route" ? 2 : 1));
    } catch (const Error& error) {
      problem = error.what();
    }
    CHECK(problem == "");
    ++kernels;
  }
  CHECK(kernels == 23);
}

TEST_CASE("nvrtc: an illegal Config fails with its rule and both numbers in the message") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  SourceBundle bundle = emit(make_plan(Copy2d{}));
  for (SourceFile& header : bundle.headers) {
    if (header.path != "config.cuh") continue;
    const std::size_t at = header.text.find("{32, 128, 1, 1, 1}");
    REQUIRE(at != std::string::npos);
    header.text.replace(at, 18, "{30, 128, 1, 1, 1}");
  }
  std::string text;
  try {
    compiler->compile(bundle);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    text = error.what();
    for (const std::string& note : error.notes()) text += "\n" + note;
  }
  CAPTURE(text);
  CHECK(text.find("IllegalConfig") != std::string::npos);
  CHECK(text.find("120LL, 16LL") != std::string::npos);
}
