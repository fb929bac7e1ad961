// What a field offers is what its operator has kernels for: neither less nor more.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "generator/selectors.h"
#include "generator/words.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tessera/targets.h"

using namespace tessera;
namespace offered_words_test {

namespace {

/// Every word that some field can spell.
std::set<std::string_view> all_words() {
  std::set<std::string_view> words;
  for (const std::string_view op : operator_names())
    for (const Selector& selector : selectors(op)) words.insert(selector.words.begin(), selector.words.end());
  for (const Word<DType>& word : kDTypeWords) words.insert(word.text);
  for (const Word<BlockFormat>& word : kBlockFormatWords) words.insert(word.text);
  return words;
}

/// There is a kernel, on some target, with this value: beside the defaults, or beside them and one other field's word.
bool plans(std::string_view op, const Selector& selector, std::string_view word) {
  std::vector<std::pair<const Selector*, std::string_view>> others = {{nullptr, ""}};
  for (const Selector& other : selectors(op))
    for (const std::string_view value : other.words) others.emplace_back(&other, value);
  for (const auto& [other, value] : others)
    for (const TargetRow& row : target_rows()) {
      if (other == &selector) continue;
      Problem problem = default_problem(op);
      set_field(problem, "arch", row.target);
      selector.set(problem, selector, word);
      if (other != nullptr) other->set(problem, *other, value);
      const bool has_layouts = op == "fmha" || op == "attention_quantize";
      if (has_layouts && field_text(problem, "kv_layout") == "paged") set_field(problem, "page_size", "16");
      if (selector.key.starts_with("d_scale")) {
        set_field(problem, "d_dtype", "e4m3");
        if (selector.key == "d_scale_values") set_field(problem, "d_scale_block", "1x128");
      } else if (selector.key.ends_with("_scale_block")) {  // of 8-bit operands, both
        set_field(problem, "dtype", "e4m3");
        set_field(problem, selector.key == "a_scale_block" ? "b_scale_block" : "a_scale_block", word);
      }
      if (selector.key == "kv_format" && word != "plain") {
        set_field(problem, "kv_layout", "paged");
        set_field(problem, "page_size", "16");
      }
      if (selector.key == "kv_cache" && word != "rows") {
        set_field(problem, "kv_pools", "sparse_window");
        set_field(problem, "v_is_k", "on");
        set_field(problem, "head_dim", "512");
      }
      if (op == "fmha" && field_text(problem, "v_is_k") == "on" && (selector.key != "kv_cache" || word == "mla_656")) {
        set_field(problem, "head_dim", "576");
        set_field(problem, "head_dim_v", "512");
      }
      try {
        make_plan(problem);
        return true;
      } catch (const Error& error) {
        REQUIRE(error.kind() == ErrorKind::unsupported);
      }
    }
  return false;
}

std::string complaint(std::string_view op, std::string_view key, std::string_view text) {
  Problem problem = default_problem(op);
  try {
    set_field(problem, key, text);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("each word that a field offers plans somewhere, and each that plans is offered") {
  for (const std::string_view op : operator_names())
    for (const Selector& selector : selectors(op)) {
      if (selector.words.empty()) continue;
      for (const std::string_view word : all_words()) {
        Problem problem = default_problem(op);
        const bool is_offered = std::find(selector.words.begin(), selector.words.end(), word) != selector.words.end();
        try {
          selector.set(problem, selector, word);
        } catch (const Error&) {
          CHECK_FALSE(is_offered);
          continue;
        }
        INFO(op << " " << selector.key << " " << word);
        CHECK(plans(op, selector, word) == is_offered);
      }
    }
}

TEST_CASE("a word that a field lacks is refused with those that it has, and with what was meant") {
  CHECK(complaint("fmha", "dtype", "fp16") == "dtype = fp16: must be one of bf16, f16, e4m3, nvfp4, did you mean f16?");
  CHECK(complaint("fmha", "dtype", "half") == "dtype = half: must be one of bf16, f16, e4m3, nvfp4, did you mean f16?");
  CHECK(complaint("fmha", "mask", "casual") == "mask = casual: must be one of none, causal, did you mean causal?");
  CHECK(complaint("gemm", "dtype", "fp8").ends_with(", did you mean e4m3 or e5m2?"));
  CHECK(complaint("gemm", "dtype", "int8").ends_with(", did you mean s8?"));
  CHECK(complaint("gemm", "dtype", "bfloat16").ends_with(", did you mean bf16?"));
  CHECK(complaint("gemm", "dtype", "BF16").ends_with(", did you mean bf16?"));
  CHECK(complaint("gemv", "dtype", "nvfp4") ==
        "dtype = nvfp4: must be one of f32, f16, bf16; nvfp4 is a value of format");
  CHECK(complaint("gemv", "format", "int4") == "format = int4: must be one of nvfp4, mxfp4, mxfp8_e4m3, mxfp8_e5m2");
  CHECK(
      complaint("fmha", "arch", "h100") ==
      "arch = h100: must be sm_, a compute capability times ten, and an optional 'a' or 'f', like sm_90a, did you mean "
      "sm_90a?");
  for (const auto& [word, target] :
       {std::pair("H200", "sm_90a"), std::pair("hopper", "sm_90a"), std::pair("B200", "sm_100a"),
        std::pair("rtx5090", "sm_120a"), std::pair("RTX_5090", "sm_120a"), std::pair("RTX PRO 6000", "sm_120a"),
        std::pair("pro6000", "sm_120a"), std::pair("sm90a", "sm_90a")})
    CHECK(complaint("gemv", "arch", word).find(std::string("did you mean ") + target) != std::string::npos);
  CHECK(complaint("fmha", "mma_kind", "mma.f8f6f4").ends_with(", did you mean mma.f8?"));
  CHECK(complaint("gemm", "mma_kind", "mxf4nvf4").ends_with(", did you mean mma.mxf4nvf4?"));
  CHECK(complaint("gemv", "arch", "blackwell").ends_with(", did you mean sm_100a or sm_103a or sm_120a?"));
  // What a file may hold stays one short line.
  const std::string long_one = complaint("fmha", "arch", std::string(100000, '\n'));
  CHECK(long_one.find('\n') == std::string::npos);
  CHECK(long_one.size() < 300);
}

}  // namespace offered_words_test
