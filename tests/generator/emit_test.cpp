#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "generator/embedded_templates.h"
#include "generator/include_scan.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/generator/golden.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace emit_test {

namespace {

/// The generated files of a bundle: what no template holds.
std::string generated_text(const SourceBundle& bundle) {
  std::string text = "==== " + bundle.program + "\n" + bundle.text;
  for (const SourceFile& header : bundle.headers) {
    const auto all = embedded_templates();
    const bool is_template =
        std::any_of(all.begin(), all.end(), [&](const EmbeddedTemplate& t) { return t.path == header.path; });
    text += is_template ? "==== " + header.path + ": a template\n" : "==== " + header.path + "\n" + header.text;
  }
  text += "==== " + bundle.arch;
  for (const std::string& option : bundle.options) text += " " + option;
  return text + "\n";
}

std::string compile_error(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("bundles are what they were: golden") {
  check_golden(
      "bundle_quantize_nvfp4_tile_amax.txt",
      generated_text(emit(make_plan(problem_of("quantize", {{"scale_form", "tile"}, {"global_scale", "amax"}})))));
  check_golden("bundle_gemv_nvfp4.txt", generated_text(emit(make_plan(problem_of("gemv")))));
  check_golden("bundle_copy2d_r2_f32.txt", generated_text(emit(make_plan(problem_of("copy2d")))));
  check_golden(
      "bundle_copy2d_r5_u8_swnone.txt",
      generated_text(emit(make_plan(problem_of("copy2d", {{"rank", "5"}, {"dtype", "u8"}, {"swizzle", "none"}})))));
  check_golden("bundle_fmha_d128_causal.txt",
               generated_text(emit(make_plan(problem_of("fmha", {{"mask", "causal"}})))));
  check_golden(
      "bundle_gemm_e4m3.txt",
      generated_text(emit(make_plan(problem_of(
          "gemm", {{"dtype", "e4m3"}, {"c", "matrix"}, {"bias", "column"}, {"tile_m", "64"}, {"tile_n", "16"}})))));
  check_golden("bundle_gemm_mxfp8_mxfp4.txt", generated_text(emit(make_plan(problem_of("gemm", {{"arch", "sm_103a"},
                                                                                                {"dtype", "mxfp8_e4m3"},
                                                                                                {"b_dtype", "mxfp4"},
                                                                                                {"c", "matrix"},
                                                                                                {"bias", "column"},
                                                                                                {"tile_n", "64"}})))));
  check_golden("bundle_fmha_d64_unnormalized_f16.txt",
               generated_text(emit(
                   make_plan(problem_of("fmha", {{"head_dim", "64"}, {"output", "unnormalized"}, {"dtype", "f16"}})))));
}

TEST_CASE("single files are what they were: golden") {
  check_golden("single_copy2d_r2_f32.cu", emit_single_file(make_plan(problem_of("copy2d"))));
}

TEST_CASE("a bundle holds exactly the headers that are included, sorted, each once") {
  for (const Problem& problem : every_fact()) {
    const SourceBundle bundle = emit(make_plan(problem));
    CAPTURE(bundle.program);
    std::set<std::string> provided;
    for (const SourceFile& header : bundle.headers) CHECK(provided.insert(header.path).second);
    CHECK(std::is_sorted(bundle.headers.begin(), bundle.headers.end(),
                         [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; }));
    std::set<std::string> included;
    for (const std::string& name : included_names(bundle.text)) included.insert(name);
    for (const SourceFile& header : bundle.headers)
      for (const std::string& name : included_names(header.text)) included.insert(name);
    CHECK(included == provided);
    CHECK(provided.count("config.cuh") == 1);
    CHECK(bundle.program.starts_with("/tessera/"));
    CHECK(bundle.arch == arch_of(problem).to_string());
    CHECK(std::count(bundle.entries.begin(), bundle.entries.end(), planned_kernel(problem)) == 1);
    CHECK(bundle.entries.size() + (bundle.merge == nullptr ? 0 : 1) == make_plan(problem).launch.steps.size());
    if (bundle.merge == nullptr) continue;
    std::set<std::string> of_merge;
    for (const std::string& name : included_names(bundle.merge->text)) of_merge.insert(name);
    for (const SourceFile& header : bundle.merge->headers)
      for (const std::string& name : included_names(header.text)) of_merge.insert(name);
    CHECK(bundle.merge->headers.size() == of_merge.size());
    for (const SourceFile& header : bundle.merge->headers) CHECK(of_merge.contains(header.path));
    CHECK(bundle.merge->entries.size() == 1);
    CHECK(bundle.merge->arch == bundle.arch);
    CHECK(bundle.merge->options == bundle.options);
  }
}

namespace {
using Fields = std::vector<std::pair<std::string, std::string>>;
/// All that the compiler reads of a problem's merge.
std::string merge_text(Fields fields, const Fields& more) {
  fields.insert(fields.end(), more.begin(), more.end());
  const SourceBundle bundle = emit(make_plan(problem_of("fmha", fields)));
  REQUIRE(bundle.merge != nullptr);
  std::string text = bundle.merge->program + bundle.merge->text;
  for (const SourceFile& header : bundle.merge->headers) text += header.path + "\n" + header.text;
  return text;
}
}  // namespace

TEST_CASE("kernels whose parts and output are alike have one merge") {
  const Fields step{{"mask", "causal"}, {"q_layout", "ragged"}, {"kv_layout", "paged"},
                    {"tile_m", "128"},  {"split_kv", "dealt"},  {"page_size", "16"}};
  const std::string merge = merge_text(step, {});
  CHECK(merge.find("_merge(") != std::string::npos);
  for (const Fields& alike : {Fields{{"page_size", "64"}}, Fields{{"window", "sliding"}}, Fields{{"softcap", "tanh"}},
                              Fields{{"kv_dtype", "e4m3"}}, Fields{{"mask", "none"}, {"tree_mask", "bits"}},
                              Fields{{"dtype", "e4m3"}}, Fields{{"alibi", "per_head"}}, Fields{{"tile_n", "64"}}}) {
    CAPTURE(alike.front().second);
    CHECK(merge_text(step, alike) == merge);
  }
  for (const Fields& other : {Fields{{"head_dim", "64"}}, Fields{{"dtype", "f16"}}, Fields{{"output", "unnormalized"}},
                              Fields{{"sink", "per_head"}}, Fields{{"tile_m", "64"}}, Fields{{"split_size", "512"}}}) {
    CAPTURE(other.front().first);
    CHECK(merge_text(step, other) != merge);
  }
  // Parts by number: tiles do not matter either.
  const Fields split{{"mask", "causal"}, {"split_kv", "on"}};
  CHECK(merge_text(split, {{"tile_m", "64"}}) == merge_text(split, {{"window", "sliding"}, {"seqused", "k"}}));
  CHECK(merge_text(split, {{"output", "unnormalized"}}) != merge_text(split, {}));
  // Dealt keys of queries that are not ragged: what rows see is counted again.
  const Fields dealt{{"mask", "causal"}, {"split_kv", "dealt"}, {"tile_m", "128"}, {"tile_n", "64"}};
  CHECK(merge_text(dealt, {{"softcap", "tanh"}}) == merge_text(dealt, {}));
  CHECK(merge_text(dealt, {{"window", "sliding"}}) != merge_text(dealt, {}));
  CHECK(merge_text(dealt, {{"tile_n", "80"}}) != merge_text(dealt, {}));
}

TEST_CASE("attention by wgmma is compiled in pieces, of which those keep their values that are faster so") {
  // "1-": two pieces, the first one keeps its values; "": whole.
  const auto pieces_of = [](const Fields& fields, const std::vector<SourceFile>& overrides = {}) {
    const SourceBundle bundle = emit(make_plan(problem_of("fmha", fields)), overrides);
    CHECK(bundle.is_changed == !overrides.empty());
    std::string kept;
    for (const SourcePiece& piece : bundle.pieces) {
      CHECK(piece.header.path == "common/piece.cuh");
      CHECK(std::count_if(bundle.headers.begin(), bundle.headers.end(),
                          [&](const SourceFile& header) { return header.path == piece.header.path; }) == 1);
      kept += piece.keeps_values ? std::to_string(kept.size() + 1) : "-";
    }
    return kept;
  };
  const Fields paged{{"head_dim", "256"}, {"kv_layout", "paged"}, {"page_size", "16"}};
  const auto of_cache = [](const char* cache, const char* heads) {
    return Fields{
        {"head_dim", "512"}, {"v_is_k", "on"}, {"kv_pools", "sparse_window"}, {"kv_cache", cache}, {"heads_q", heads}};
  };
  const auto with = [&](Fields fields, const Fields& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  const Fields dealt{{"split_kv", "dealt"}, {"tile_m", "128"}}, pools{{"kv_pools", "sparse_window"}};
  const Fields window{{"head_dim", "64"}, {"mask", "causal"}, {"window", "sliding"}, {"seqused", "k"}};
  CHECK(pieces_of({{"mask", "causal"}}) == "-2");
  CHECK(pieces_of({{"dtype", "e4m3"}}) == "-2");
  CHECK(pieces_of(window) == "-2");
  CHECK(pieces_of({{"q_layout", "ragged"}}) == "1-");
  CHECK(pieces_of(paged) == "1-");
  CHECK(pieces_of(with(paged, {{"dtype", "e4m3"}})) == "12");
  CHECK(pieces_of({{"kv_dtype", "e4m3"}}) == "12");
  CHECK(pieces_of(dealt) == "12");
  // Four warpgroups of consumers.
  CHECK(pieces_of(with(window, {{"split_kv", "dealt"}, {"tile_m", "256"}})) == "1-");
  CHECK(pieces_of(pools) == "--");
  CHECK(pieces_of(with(paged, {{"head_dim", "128"}, {"kv_format", "nvfp4"}})) == "--");
  CHECK(pieces_of({{"head_dim", "576"}, {"head_dim_v", "512"}, {"v_is_k", "on"}}) == "--");
  CHECK(pieces_of(of_cache("mla_584", "128")) == "--");
  CHECK(pieces_of(of_cache("mla_384", "128")) == "--");
  for (const Fields& whole : {Fields{{"arch", "sm_120a"}, {"q_layout", "ragged"}}, Fields{{"arch", "sm_100a"}},
                              of_cache("mla_584", "64"), of_cache("mla_384", "64")}) {
    CAPTURE(whole.front().second);
    CHECK(pieces_of(whole).empty());
  }
  // Code before the roles runs in each piece, which a kernel.cuh of somebody's own need not know.
  CHECK(pieces_of(paged, {{"fmha/kernel.cuh", "// mine\n"}}).empty());
  CHECK(pieces_of(paged, {{"fmha/softmax.cuh", "// mine\n"}}) == "1-");
}

TEST_CASE("a merge is a translation unit of its own, and in one file the last part") {
  const Plan plan = make_plan(problem_of("fmha", {{"mask", "causal"}, {"split_kv", "dealt"}}));
  const SourceBundle bundle = emit(plan);
  REQUIRE(plan.launch.steps.size() == 2);
  const std::string kernel = "    " + plan.kernel + "(", merge = "    " + plan.launch.steps[1].entry + "(";
  CHECK(plan.launch.steps[1].is_merge);
  REQUIRE(bundle.merge != nullptr);
  CHECK(bundle.merge->program == "/tessera/fmha/merge.cu");
  CHECK(bundle.merge->text.find(merge) != std::string::npos);
  CHECK(bundle.merge->text.find(kernel) == std::string::npos);
  CHECK(bundle.text.find(kernel) != std::string::npos);
  CHECK(bundle.text.find(merge) == std::string::npos);
  CHECK(bundle.entries == std::vector<std::string>{plan.kernel});
  const std::string file = emit_single_file(plan);
  CHECK(file.find(kernel) < file.find(merge));
  CHECK(file.find(merge) != std::string::npos);
}

TEST_CASE("a single file includes nothing and says how it is compiled") {
  for (const Problem& problem : every_fact()) {
    const std::string kernel = planned_kernel(problem);
    const std::string text = emit_single_file(make_plan(problem));
    CHECK(text.starts_with("// nvcc -std=c++20 -arch=" + arch_of(problem).to_string() + " -cubin -lineinfo -o " +
                           kernel + ".cubin " + kernel + ".cu\n"));
    CHECK(text.find("#include") == std::string::npos);
    CHECK(text.find("#pragma once") == std::string::npos);
    CHECK(text.find("#line") == std::string::npos);
    CHECK(text.find("\n\n\n") == std::string::npos);
    CHECK(text.find("__launch_bounds__") != std::string::npos);
  }
}

TEST_CASE("an override replaces a template by its virtual path, and brings its own includes") {
  const Plan plan = make_plan(problem_of("copy2d"));
  const std::vector<SourceFile> overrides{{"copy2d/kernel.cuh", "#include \"mine.cuh\"\n"}, {"mine.cuh", "// mine\n"}};
  const SourceBundle bundle = emit(plan, overrides);
  std::vector<std::string> paths;
  for (const SourceFile& header : bundle.headers) paths.push_back(header.path);
  CHECK(paths == std::vector<std::string>{"config.cuh", "copy2d/kernel.cuh", "mine.cuh", "spec/copy2d.h",
                                          "spec/limits.h", "tessera/spec/types.h"});
  CHECK(bundle.headers.at(1).text == "#include \"mine.cuh\"\n");
  CHECK(bundle.text == emit(plan).text);
  CHECK(emit_single_file(plan, overrides).find("\n// mine\n") != std::string::npos);
  CHECK(emit_single_file(plan).find("// mine") == std::string::npos);
}

TEST_CASE("includes that nothing has, and circles, are refused") {
  const Plan plan = make_plan(problem_of("copy2d"));
  CHECK(compile_error([&] {
          emit(plan, {{"copy2d/kernel.cuh", "  #  include \"gone.cuh\"\n"}});
        }) == "copy2d/kernel.cuh includes \"gone.cuh\", which is not a template");
  CHECK(compile_error([&] {
          emit(plan, {{"copy2d/kernel.cuh", "#include \"a\""}, {"a", "#include \"b\""}, {"b", "#include \"a\""}});
        }) == "a includes itself: /tessera/copy2d/entry.cu -> copy2d/kernel.cuh -> a -> b -> a");
}

TEST_CASE("include lines") {
  const std::vector<std::string> none;
  CHECK(included_names("#include \"a/b.cuh\"\n\t# include\t\"c.h\" // why\n#include \"d\"") ==
        std::vector<std::string>{"a/b.cuh", "c.h", "d"});
  CHECK(included_names("") == none);
  CHECK(included_names("#include <cuda.h>\n// #include \"x\"\n#includ \"x\"\n#include \"x\n#define X \"x\"\n") == none);
}

}  // namespace emit_test
