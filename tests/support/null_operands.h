// Operands without elements have null pointers, as frameworks give them (or pointers of memory that was freed): cases
// for every operator and family, and what runs one on a device. What sums of nothing are is known, so is every output.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/bound_expression.h"
#include "generator/selectors.h"
#include "reference/number.h"
#include "reference/tensor.h"
#include "tessera/compiler.h"
#include "tessera/device.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"

namespace tessera::nulls {

using reference::Tensor;
using Fields = std::vector<std::pair<std::string, std::string>>;

inline constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct Case {
  std::string name;
  Problem problem;
  Fields fields;
  std::map<std::string, std::int64_t> sizes;
  std::vector<std::string> nulls;                       ///< buffers that must be among the empty ones
  std::map<std::string, double> outputs;                ///< every element of an output; the others must be written
  std::map<std::string, std::vector<double>> inputs{};  ///< all ones where nothing is given
  int num_sms = 4;
};

inline Plan plan_of(const Case& test) {
  Problem problem = test.problem;
  for (const auto& [key, text] : test.fields) set_field(problem, key, text);
  return make_plan(problem);
}

/// One kernel with its buffers: those without elements are null, or where a freed allocation was.
class Run {
 public:
  Run(const Case& test, const Plan& plan, const Image& image, Device& device, bool is_freed)
      : test_(test), plan_(plan.launch), device_(device), launcher_(device, plan.launch, image) {
    std::vector<std::string> names;
    for (const SizeSpec& size : plan_.sizes) {
      const auto given = test.sizes.find(size.name);
      sizes_.push_back(given != test.sizes.end() ? given->second : kUseDefault);
      names.push_back(size.name);
    }
    arguments_.sizes = sizes_;
    sizes_ = launcher_.resolve_sizes(arguments_);
    arguments_.sizes = sizes_;
    for (const ScalarSpec& scalar : plan_.scalars)
      scalars_.push_back(scalar.name == "beta" ? 2 : scalar.default_value.value_or(1));
    for (const BufferSpec& spec : plan_.buffers) {
      std::int64_t extent = 1, elements = 1;
      for (std::size_t i = 0; i < spec.shape.size(); ++i) {
        const std::int64_t shape = BoundExpression(spec.shape[i], names).evaluate(sizes_);
        extent *= shape;
        elements += (shape - 1) * BoundExpression(spec.strides[i], names).evaluate(sizes_);
      }
      add(spec, extent == 0 ? 0 : elements, is_freed);
    }
    arguments_.scalars = scalars_;
    arguments_.buffers = pointers_;
    arguments_.workspace_bytes = launcher_.workspace_bytes(arguments_);
    if (arguments_.workspace_bytes > 0)
      arguments_.workspace = allocate(static_cast<std::size_t>(arguments_.workspace_bytes));
  }

  /// poison(pointer, bytes) before each launch; are_written(pointer, bytes) behind it.
  template <class Poison, class AreWritten>
  void run_and_check(const Poison& poison, const AreWritten& are_written) {
    for (const auto& [name, output] : outputs_) poison(output.first, output.second.bytes.size());
    launcher_.launch({}, arguments_);
    for (const Finding& finding : device_.synchronize()) FAIL_CHECK(finding.message);
    for (auto& [name, output] : outputs_) {
      CAPTURE(name);
      auto& [pointer, tensor] = output;
      CHECK(are_written(pointer, tensor.bytes.size()));
      device_.copy_to_host(tensor.bytes.data(), pointer, tensor.bytes.size());
      const auto expected = test_.outputs.find(name);
      if (expected == test_.outputs.end()) continue;
      std::int64_t wrong = 0;
      for (std::int64_t i = 0; i < tensor.shape[0]; ++i) wrong += tensor.at(i) == expected->second ? 0 : 1;
      CHECK(wrong == 0);
    }
  }

  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    for (const DevicePointer pointer : allocated_) device_.free(pointer);
  }

  bool is_empty(const std::string& name) const { return empty_.count(name) != 0; }

 private:
  void add(const BufferSpec& spec, std::int64_t elements, bool is_freed) {
    Tensor tensor(*reference::dtype_from_name(spec.dtype), {elements});
    if (elements == 0) {
      empty_[spec.name] = true;
      pointers_.push_back(0);
      if (!is_freed) return;
      pointers_.back() = device_.allocate(4096);
      device_.free(pointers_.back());
      return;
    }
    pointers_.push_back(allocate(tensor.bytes.size()));
    if (spec.role == BufferRole::output) {
      outputs_.emplace(spec.name, std::pair(pointers_.back(), std::move(tensor)));
      return;
    }
    const auto given = test_.inputs.find(spec.name);
    for (std::int64_t i = 0; i < elements; ++i)
      tensor.set(i, given == test_.inputs.end() ? 1 : given->second.at(static_cast<std::size_t>(i)));
    device_.copy_to_device(pointers_.back(), tensor.bytes.data(), tensor.bytes.size());
  }

  DevicePointer allocate(std::size_t bytes) {
    allocated_.push_back(device_.allocate(bytes));
    return allocated_.back();
  }

  const Case& test_;
  const LaunchPlan plan_;
  Device& device_;
  const Launcher launcher_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<DevicePointer> pointers_, allocated_;
  std::map<std::string, bool> empty_;
  std::map<std::string, std::pair<DevicePointer, Tensor>> outputs_;
  LaunchArguments arguments_;
};

template <class Op>
Op on(const char* arch) {
  Op problem;
  problem.arch = Arch::parse(arch);
  return problem;
}

inline const std::map<std::string, double> kNoKeys{{"o", 0}, {"lse", kMinusInfinity}};
inline const std::vector<std::string> kKeys{"k", "v"};

inline std::map<std::string, std::int64_t> lengths(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv,
                                                   std::int64_t seqlen_q, std::int64_t seqlen_k) {
  return {
      {"batch", batch}, {"heads_q", heads_q}, {"heads_kv", heads_kv}, {"seqlen_q", seqlen_q}, {"seqlen_k", seqlen_k}};
}

inline std::vector<Case> cases_of_attention() {
  const Fmha fmha = on<Fmha>("sm_90a");
  std::vector<Case> cases;
  for (const char* const head_dim : {"64", "128", "256", "512"})
    cases.push_back({"every head_dim", fmha, {{"head_dim", head_dim}}, lengths(2, 2, 1, 200, 0), kKeys, kNoKeys});
  for (const char* const head_dim : {"64", "512"})
    cases.push_back({"causal, many rounds",
                     fmha,
                     {{"head_dim", head_dim}, {"mask", "causal"}},
                     lengths(3, 4, 2, 300, 0),
                     kKeys,
                     kNoKeys});
  cases.push_back({"packed heads", fmha, {{"pack_gqa", "8"}}, lengths(3, 16, 2, 3, 0), kKeys, kNoKeys});
  cases.push_back({"un-normalised output",
                   fmha,
                   {{"output", "unnormalized"}},
                   lengths(1, 2, 1, 100, 0),
                   kKeys,
                   {{"o", 0}, {"lse", kMinusInfinity}, {"row_max", kMinusInfinity}, {"row_sum", 0}}});
  for (const char* const page_size : {"16", "1"}) {
    cases.push_back({"no page",
                     fmha,
                     {{"kv_layout", "paged"}, {"page_size", page_size}},
                     lengths(2, 2, 1, 200, 32),
                     kKeys,
                     {},
                     {{"seqused_k", {32, 5}}, {"block_table", std::vector<double>(page_size[1] == 0 ? 64 : 4, 0.0)}}});
    cases.back().sizes["pages"] = 0;
    cases.back().sizes["max_pages"] = page_size[1] == 0 ? 32 : 2;
    cases.back().outputs = {{"o", 0}};  // keys of zeros
  }
  cases.push_back({"no token",
                   fmha,
                   {{"kv_layout", "ragged"}},
                   lengths(2, 2, 1, 200, 32),
                   kKeys,
                   kNoKeys,
                   {{"cu_seqlens_k", {0, 0, 0}}}});
  cases.back().sizes["tokens_k"] = 0;
  cases.push_back({"no sequence", fmha, {}, lengths(0, 2, 1, 200, 300), {"q", "k", "v", "o", "lse"}, {}});
  cases.push_back({"no query", fmha, {}, lengths(2, 2, 1, 0, 300), {"q", "o", "lse"}, {}});
  return cases;
}

inline std::vector<Case> cases_of_attention_tcgen05() {
  const Fmha fmha = on<Fmha>("sm_100a");
  std::vector<Case> cases;
  for (const char* const head_dim : {"64", "128", "512"})
    cases.push_back({"every head_dim", fmha, {{"head_dim", head_dim}}, lengths(2, 2, 1, 300, 0), kKeys, kNoKeys});
  cases.push_back({"causal", fmha, {{"mask", "causal"}}, lengths(3, 4, 2, 300, 0), kKeys, kNoKeys});
  cases.push_back({"keys split",
                   fmha,
                   {{"split_kv", "on"}, {"pack_gqa", "1"}, {"head_dim", "64"}},
                   lengths(1, 2, 1, 5, 0),
                   kKeys,
                   kNoKeys});
  cases.back().sizes["num_splits"] = 3;
  cases.push_back({"v with keys side by side", fmha, {{"v_layout", "k"}}, lengths(1, 2, 1, 70, 0), kKeys, kNoKeys});
  cases.push_back({"used lengths",
                   fmha,
                   {{"seqused", "qk"}, {"head_dim", "64"}},
                   lengths(2, 2, 1, 70, 0),
                   kKeys,
                   kNoKeys,
                   {{"seqused_q", {70, 3}}, {"seqused_k", {0, 0}}}});
  return cases;
}

inline std::vector<Case> cases_of_pools() {
  std::vector<Case> cases;
  const auto pools = [&](const char* head_dim, const char* heads, std::int64_t rows, std::int64_t topk,
                         std::int64_t window, std::vector<std::string> nulls) {
    Case test{fmt::format("{} rows, a list of {}, a window of {}", rows, topk, window),
              on<Fmha>("sm_100a"),
              {{"kv_pools", "sparse_window"}, {"head_dim", head_dim}, {"pack_gqa", heads}},
              lengths(2, std::stoi(heads), 1, 3, rows),
              std::move(nulls),
              {}};
    test.sizes["topk"] = topk;
    test.sizes["seqlen_swa"] = window;
    test.inputs["swa_lens"] = std::vector<double>(2, static_cast<double>(window));
    if (window == 0 && (rows == 0 || topk == 0)) test.outputs = kNoKeys;
    cases.push_back(test);
    test.problem = on<Fmha>("sm_90a");
    cases.push_back(std::move(test));
  };
  pools("64", "16", 0, 50, 0, {"k", "v", "swa_k", "swa_v"});
  pools("512", "128", 0, 50, 0, {"k", "v", "swa_k"});
  pools("64", "16", 0, 0, 0, {"k", "v", "swa_k", "indices"});
  pools("64", "16", 200, 0, 0, {"swa_k", "indices"});
  pools("64", "16", 0, 50, 100, {"k", "v"});
  pools("64", "16", 0, 0, 100, {"k", "v", "indices"});
  pools("64", "16", 200, 150, 0, {"swa_k", "swa_v"});
  return cases;
}

inline std::vector<Case> cases_of_products() {
  const Gemm gemm = on<Gemm>("sm_90a");
  const Fields one{{"tile_m", "64"}, {"tile_n", "64"}, {"cluster_m", "1"}, {"cluster_n", "1"}, {"stages", "3"}};
  const auto with = [](Fields fields, const Fields& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  const std::vector<std::string> nulls{"a", "b"};
  const Fields pair_m{{"cluster_m", "2"}, {"cluster_n", "1"}, {"split_k", "1"}, {"tile_m", "128"}, {"tile_n", "64"}};
  return {
      {"the default", gemm, {}, {{"m", 300}, {"n", 200}, {"k", 0}}, nulls, {{"d", 0}}},
      {"ping-pong, many rounds, two matrices",
       gemm,
       with(one, {{"split_k", "1"}, {"kernel_schedule", "ping_pong"}}),
       {{"m", 500}, {"n", 300}, {"k", 0}, {"l", 2}},
       nulls,
       {{"d", 0}}},
      {"a cluster, many rounds, twice c",
       gemm,
       with(pair_m, {{"c", "matrix"}}),
       {{"m", 700}, {"n", 400}, {"k", 0}},
       nulls,
       {{"d", 2}}},
      {"a cluster along n",
       gemm,
       {{"cluster_m", "1"}, {"cluster_n", "2"}, {"split_k", "1"}, {"tile_m", "64"}, {"tile_n", "96"}},
       {{"m", 70}, {"n", 500}, {"k", 0}},
       nulls,
       {{"d", 0}}},
      {"k in four parts", gemm, with(one, {{"split_k", "4"}}), {{"m", 70}, {"n", 130}, {"k", 0}}, nulls, {{"d", 0}}},
      {"e4m3, mn-major, a bias",
       gemm,
       {{"dtype", "e4m3"}, {"bias", "column"}},
       {{"m", 64}, {"n", 128}, {"k", 0}},
       nulls,
       {{"d", 1}}},
      {"both mn-major, transposed tiles",
       gemm,
       {{"a_layout", "mn"}, {"b_layout", "mn"}, {"swap_ab", "on"}},
       {{"m", 64}, {"n", 256}, {"k", 0}},
       nulls,
       {{"d", 0}}},
      {"rows that are padded all the same",
       gemm,
       {},
       {{"m", 64}, {"n", 64}, {"k", 0}, {"lda", 64}, {"ldb", 64}},
       nulls,
       {{"d", 0}}},
      {"by mma.sync, a bias, many rounds",
       gemm,
       {{"mma_kind", "mma.f16"}, {"tile_m", "64"}, {"tile_n", "64"}, {"bias", "column"}},
       {{"m", 300}, {"n", 300}, {"k", 0}},
       nulls,
       {{"d", 1}}},
      {"no row", gemm, {}, {{"m", 0}, {"n", 200}, {"k", 64}}, {"a", "d"}, {}},
      {"no matrix", gemm, {}, {{"m", 64}, {"n", 64}, {"k", 64}, {"l", 0}}, {"a", "b", "d"}, {}}};
}

inline std::vector<Case> cases_of_products_tcgen05() {
  const Gemm gemm = on<Gemm>("sm_100a");
  const std::vector<std::string> nulls{"a", "b"}, scaled{"a", "b", "sfa", "sfb"};
  const Fields pair{{"tile_m", "128"}, {"tile_n", "128"}, {"cluster_m", "2"}};
  const auto with = [](Fields fields, const Fields& more) {
    fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  };
  return {{"the default", gemm, {}, {{"m", 300}, {"n", 200}, {"k", 0}}, nulls, {{"d", 0}}},
          {"a pair of CTAs, many rounds", gemm, pair, {{"m", 700}, {"n", 400}, {"k", 0}, {"l", 2}}, nulls, {{"d", 0}}},
          {"a pair along n",
           gemm,
           {{"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "2"}},
           {{"m", 70}, {"n", 500}, {"k", 0}},
           nulls,
           {{"d", 0}}},
          {"k in two parts",
           gemm,
           {{"tile_m", "64"}, {"tile_n", "128"}, {"cluster_n", "1"}, {"split_k", "2"}},
           {{"m", 70}, {"n", 200}, {"k", 0}},
           nulls,
           {{"d", 0}}},
          {"nvfp4", gemm, {{"dtype", "nvfp4"}}, {{"m", 200}, {"n", 200}, {"k", 0}}, scaled, {{"d", 0}}},
          {"nvfp4, a pair of CTAs",
           gemm,
           with(pair, {{"dtype", "nvfp4"}}),
           {{"m", 700}, {"n", 400}, {"k", 0}},
           scaled,
           {{"d", 0}}},
          {"mxfp8 by mxfp4, padded to 8 bits",
           gemm,
           {{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}},
           {{"m", 70}, {"n", 70}, {"k", 0}},
           scaled,
           {{"d", 0}}},
          {"dual, nvfp4",
           gemm,
           {{"dtype", "nvfp4"}, {"gate", "dual"}, {"tile_m", "128"}, {"tile_n", "64"}},
           {{"m", 70}, {"n", 128}, {"k", 0}},
           {"a", "b", "b2", "sfa", "sfb", "sfb2"},
           {{"d", 0}}},
          {"masked groups",
           gemm,
           {{"grouping", "masked"}},
           {{"m", 70}, {"n", 128}, {"k", 0}, {"l", 2}},
           nulls,
           {{"d", 0}},
           {{"groups", {70, 70}}}},
          {"contiguous groups, a pair of CTAs",
           gemm,
           with(pair, {{"grouping", "contiguous"}}),
           {{"m", 300}, {"n", 128}, {"k", 0}, {"l", 2}},
           nulls,
           {{"d", 0}},
           {{"groups", {0, 170, 300}}}},
          {"contiguous groups without a row",
           gemm,
           {{"grouping", "contiguous"}},
           {{"m", 0}, {"n", 128}, {"k", 64}, {"l", 2}},
           {"a", "d"},
           {},
           {{"groups", {0, 0, 0}}}},
          {"no row", gemm, {}, {{"m", 0}, {"n", 200}, {"k", 64}}, {"a", "d"}, {}}};
}

inline std::vector<Case> cases_of_rows() {
  std::vector<Case> cases;
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_120a"})
    for (const char* const form : {"plain", "tile"}) {
      for (const auto& [rows, k] : {std::pair(0, 64), std::pair(5, 0)}) {
        const std::map<std::string, std::int64_t> sizes{{"rows", rows}, {"k", k}};
        const Fields fields{{"scale_form", form}};
        cases.push_back({"quantize", on<Quantize>(arch), fields, sizes, {"x", "values", "scales"}, {}});
        cases.push_back({"dequantize", on<Dequantize>(arch), fields, sizes, {"y", "values", "scales"}, {}});
        cases.push_back({"quantize, the global scale found",
                         on<Quantize>(arch),
                         {{"scale_form", form}, {"format", "nvfp4"}, {"global_scale", "amax"}},
                         sizes,
                         {"x", "values", "scales"},
                         {}});
      }
      cases.push_back({"gemv",
                       on<Gemv>(arch),
                       {{"scale_form", form}},
                       {{"m", 37}, {"k", 0}},
                       {"a", "b", "sfa", "sfb"},
                       {{"c", 0}}});
      cases.push_back({"gemv", on<Gemv>(arch), {{"scale_form", form}}, {{"m", 0}, {"k", 64}}, {"a", "sfa", "c"}, {}});
      cases.push_back({"convert_scales",
                       on<ConvertScales>(arch),
                       {{"to", form}},
                       {{"rows", 9}, {"blocks", 0}},
                       {"from", "to"},
                       {}});
      cases.push_back({"convert_scales",
                       on<ConvertScales>(arch),
                       {{"to", form}},
                       {{"rows", 0}, {"blocks", 9}},
                       {"from", "to"},
                       {}});
    }
  cases.push_back({"merge of no part",
                   on<Merge>("sm_90a"),
                   {},
                   {{"parts", 0}, {"heads_q", 2}, {"seqlen_q", 9}},
                   {"o_parts", "lse_parts"},
                   kNoKeys});
  cases.push_back({"merge of no row",
                   on<Merge>("sm_100a"),
                   {},
                   {{"parts", 3}, {"heads_q", 2}, {"seqlen_q", 0}},
                   {"o_parts", "lse_parts", "o", "lse"},
                   {}});
  cases.push_back({"copy2d", on<Copy2d>("sm_90a"), {}, {{"dim0", 0}, {"dim1", 9}}, {"x", "y"}, {}});
  cases.push_back({"copy2d", on<Copy2d>("sm_90a"), {}, {{"dim0", 32}, {"dim1", 0}}, {"x", "y"}, {}});
  return cases;
}

}  // namespace tessera::nulls
