// The operators that `run` and `tune` know, and the sizes of a launch of theirs.
#include "cli/run_operator.h"

#include <fmt/format.h>

#include <algorithm>

#include "generator/selectors.h"
#include "tessera/error.h"

namespace tessera::cli {

// Each in a file of its own.
std::unique_ptr<RunOperator> make_run_copy2d();
std::unique_ptr<RunOperator> make_run_fmha();
std::unique_ptr<RunOperator> make_run_merge();
std::unique_ptr<RunOperator> make_run_attention_quantize();
std::unique_ptr<RunOperator> make_run_gemm();
std::unique_ptr<RunOperator> make_run_pack_weights();
std::unique_ptr<RunOperator> make_run_quantize_blocks();
std::unique_ptr<RunOperator> make_run_rows();
std::unique_ptr<RunOperator> make_run_mhc_product();
std::unique_ptr<RunOperator> make_run_moe_route();
std::unique_ptr<RunOperator> make_run_topk();
std::unique_ptr<RunOperator> make_run_indexer();
std::unique_ptr<RunOperator> make_run_block_scale(std::string_view op);

namespace {

/// A row for each operator that has a reference.
constexpr RunRow kRows[] = {{"copy2d", make_run_copy2d, "--shape", true},
                            {"fmha", make_run_fmha, "--softmax-scale, --softcap-value, --lengths, --inputs rising"},
                            {"merge", make_run_merge, ""},
                            {"attention_quantize", make_run_attention_quantize, ""},
                            {"gemm", make_run_gemm, "--alpha, --beta"},
                            {"quantize", [] { return make_run_block_scale("quantize"); }, ""},
                            {"dequantize", [] { return make_run_block_scale("dequantize"); }, ""},
                            {"convert_scales", [] { return make_run_block_scale("convert_scales"); }, "", true},
                            {"gemv", [] { return make_run_block_scale("gemv"); }, "--alpha"},
                            {"pack_weights", make_run_pack_weights, "", true},
                            {"quantize_blocks", make_run_quantize_blocks, ""},
                            {"rows", make_run_rows, ""},
                            {"mhc_product", make_run_mhc_product, ""},
                            {"moe_route", make_run_moe_route, ""},
                            {"topk", make_run_topk, ""},
                            {"indexer", make_run_indexer, ""}};

bool takes(const RunRow& row, std::string_view flag) {
  return fmt::format(", {},", row.flags).find(fmt::format(", {},", flag)) != std::string::npos;
}

/// "a", "a and b", "a, b and c".
std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text;
}

/// The flags of an operator's sizes, the first few by name.
std::vector<std::string> size_flags(std::string_view op) {
  constexpr std::size_t kNamed = 4;
  std::vector<std::string> flags;
  for (const Selector& field : selectors(op))
    if (field.kind == SelectorKind::hint) flags.push_back(fmt::format("--{}", field.flag));
  if (flags.size() > kNamed) {
    flags.resize(kNamed - 1);
    flags.emplace_back("others");
  }
  return flags;
}

}  // namespace

const RunRow& run_row(std::string_view op) {
  for (const RunRow& row : kRows)
    if (row.op == op) return row;
  throw Error(ErrorKind::unsupported, fmt::format("run has no reference for {}", op));
}

std::unique_ptr<RunOperator> make_run_operator(std::string_view op) { return run_row(op).make(); }

void require_flag(std::string_view op, std::string_view flag) {
  std::vector<std::string> owners;
  bool is_known = false;
  for (const RunRow& row : kRows) {
    if (takes(row, flag) && row.op == op) return;
    if (takes(row, flag)) owners.emplace_back(row.op);
    is_known = is_known || row.op == op;
  }
  std::string text = fmt::format("{}: is for {}", flag, listed(owners));
  if (flag == "--shape" && is_known && !size_flags(op).empty())
    text += fmt::format("; {} has {}", op, listed(size_flags(op)));
  throw Error(ErrorKind::usage, text);
}

std::vector<std::int64_t> sizes_of_run(const RunOperator& op, const Plan& plan, const RunFlags& flags,
                                       const DeviceInfo& device, ErrorKind refusal) {
  const LaunchSizes launch(plan.launch);
  std::vector<GivenSize> given = with_sizes(op.sizes(plan, flags), flags.given_sizes);
  const auto is_num_sms = [](const auto& size) { return size.name == "num_sms"; };
  if (std::any_of(plan.launch.sizes.begin(), plan.launch.sizes.end(), is_num_sms) &&
      std::none_of(given.begin(), given.end(), is_num_sms))
    given.push_back({"num_sms", device.num_sms});
  if (flags.pads_rows)
    for (const GivenSize& pitch : launch.padded_pitches(given)) given.push_back(pitch);
  std::optional<std::vector<std::int64_t>> sizes = launch.complete(given);
  if (!sizes) throw Error(ErrorKind::usage, fmt::format("not all sizes of {} are known", plan.op));
  if (const auto problems = launch.problems(*sizes); !problems.empty())
    throw Error(refusal, problems.front(), {problems.begin() + 1, problems.end()});
  return std::move(*sizes);
}

}  // namespace tessera::cli
