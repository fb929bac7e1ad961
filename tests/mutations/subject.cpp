#include "tests/mutations/subject.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numbers>
#include <optional>
#include <sstream>

#include "generator/facts.h"
#include "generator/selectors.h"
#include "reference/block_scale_run.h"
#include "reference/gemm_tcgen05.h"
#include "reference/merge.h"
#include "reference/random.h"
#include "reference/tcgen05_product.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/launcher.h"

namespace tessera::mutations {
namespace {

using emulator::EmulatedDevice;

Problem problem_of(const std::string& words) {
  std::istringstream stream(words);
  std::string word;
  stream >> word;
  Problem problem = default_problem(word);
  while (stream >> word) {
    const std::size_t equal = word.find('=');
    set_field(problem, word.substr(0, equal), word.substr(equal + 1));
  }
  return problem;
}

// Of l groups in m rows the first has most, the second none; one row is in no group.
std::vector<std::int64_t> group_rows_of(std::int64_t m, std::int64_t l) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(l), 0);
  rows.front() = 2 * m / 3;
  rows.back() = m - 1 - rows.front();
  return rows;
}

bool is_attention(const Plan& plan) { return plan.problem.get_if<Fmha>() != nullptr; }

// Scales of a product in tiles, NaN codes where no block is, and rows of groups; nothing for other buffers.
std::optional<reference::Tensor> make_scales(const Plan& plan, const std::string& buffer,
                                             const std::function<std::int64_t(const char*)>& size) {
  const auto* const problem = plan.problem.get_if<Gemm>();
  if (problem == nullptr) return std::nullopt;
  const ProductFacts facts = product_facts(*problem);
  if (facts.grouping != Grouping::none && (buffer == "groups" || buffer == "sfa")) {
    reference::Tensor groups = reference::groups_of(facts.grouping, group_rows_of(size("m"), size("l")));
    if (buffer == "groups") return groups;
    if (facts.grouping == Grouping::contiguous)
      return reference::random_group_scales(facts.a_type,
                                            reference::group_rows(facts.grouping, groups.view(), size("m")),
                                            size("group_tiles"), size("k"), reference::Fill::integer, 5, 0);
  }
  if (buffer != "sfa" && buffer != "sfb" && buffer != "sfb2") return std::nullopt;
  const bool is_of_b = buffer != "sfa";
  return reference::random_operand_scales(is_of_b ? facts.b_type : facts.a_type, size("l"), size(is_of_b ? "n" : "m"),
                                          size("k"), reference::Fill::integer, 5, buffer == "sfb2" ? 2 : is_of_b);
}

// Inputs of the block-scaled operators; nothing for the others.
reference::Tensors block_inputs(const Plan& plan, const std::function<std::int64_t(const char*)>& size) {
  using reference::Range;
  reference::BlockRun run{.l = size("l"), .rows = size("rows"), .k = size("k"), .b_rows = size("b_rows"), .seed = 5};
  if (const auto* const p = plan.problem.get_if<Quantize>()) {
    run.format = p->format;
    run.dtype = p->dtype;
    return reference::quantize_inputs(run, Range::edge);
  }
  if (const auto* const p = plan.problem.get_if<Dequantize>()) {
    run.format = p->format;
    run.form = p->scale_form;
    return reference::dequantize_inputs(run, Range::normal);
  }
  if (const auto* const p = plan.problem.get_if<ConvertScales>()) {
    run.form = p->to;
    run.k = size("blocks");
    return reference::convert_scales_inputs(run);
  }
  if (const auto* const p = plan.problem.get_if<Gemv>()) {
    run.format = p->format;
    run.b_format = p->b_format;
    run.form = p->scale_form;
    run.rows = size("m");
    return reference::gemv_inputs(run, Range::normal);
  }
  return {};
}

// Parts of attention; nothing for other operators.
reference::Tensors merge_inputs(const Plan& plan, const std::function<std::int64_t(const char*)>& size) {
  const auto* const p = plan.problem.get_if<Merge>();
  if (p == nullptr) return {};
  return reference::merge_inputs({size("parts"), size("batch"), size("heads_q"), size("seqlen_q"), p->head_dim_v},
                                 p->dtype, p->sink != Sink::none, reference::Fill::standard, 5);
}

// Every other row of the first operand with few entries. Of q: scores near 0, where keys that should be hidden would
// count; under the large scores of the rows between them references move. Of a: gates near 0, whose sigmoid is not 0 or
// 1 either way.
void calm_every_other_row(reference::Tensor& tensor) {
  reference::Tensor calm(tensor.dtype, tensor.shape);
  reference::fill(calm, reference::Fill::sparse_integer, 6, 0);
  const auto rows = static_cast<std::ptrdiff_t>(tensor.elements() / tensor.shape.back());
  const std::ptrdiff_t row_bytes = static_cast<std::ptrdiff_t>(tensor.bytes.size()) / rows;
  for (std::ptrdiff_t row = 0; row < rows; row += 2)
    std::copy_n(calm.bytes.begin() + row * row_bytes, row_bytes, tensor.bytes.begin() + row * row_bytes);
}

// NVFP4 operands of attention: any lower nibble, a higher one from 1 to 2; as ue4m3 from 1/4 to 2. Nothing for others.
std::optional<reference::Tensor> make_nvfp4_units(const Plan& plan, const std::string& buffer,
                                                  const std::vector<std::int64_t>& shape) {
  const auto* const problem = plan.problem.get_if<Fmha>();
  if (problem == nullptr || problem->format != BlockFormat::nvfp4) return std::nullopt;
  if (buffer != "q" && buffer != "k" && buffer != "v") return std::nullopt;
  reference::Tensor units(DType::u8, shape);
  const reference::CounterRandom random(5, static_cast<std::uint64_t>(buffer[0]));
  for (std::size_t i = 0; i < units.bytes.size(); ++i)
    units.bytes[i] = static_cast<std::byte>(0x28 + random.bits(i) % 0x19);
  return units;
}

// Whether it is the first operand of attention, or of a product with a gate.
bool is_calmed(const Plan& plan, const std::string& buffer) {
  if (const auto* const problem = plan.problem.get_if<Fmha>())
    return buffer == "q" && problem->format != BlockFormat::nvfp4;
  const auto* const product = plan.problem.get_if<Gemm>();
  return product != nullptr && product->gate != Gate::none && buffer == "a";
}

// Lengths of sequences and lists of rows of attention, all of them within what they count; nothing for other buffers.
std::optional<reference::Tensor> make_indices(const std::string& buffer, const std::vector<std::int64_t>& shape,
                                              const std::function<std::int64_t(const char*)>& size) {
  if (buffer ==
      "cu_seqlens_q") {  // one query for each sequence but the first, which has the others; one row is nobody's
    reference::Tensor starts(DType::s32, shape);
    const std::int64_t batch = size("batch"), all = size("seqlen_q") - 1;
    for (std::int64_t i = 1; i <= batch; ++i) starts.set(i, static_cast<double>(all - batch + i));
    return starts;
  }
  const bool is_list = buffer == "indices" || buffer == "swa_indices" || buffer == "block_table";
  const char* const counted = buffer == "seqused_q"   ? "seqlen_q"
                              : buffer == "seqused_k" ? "seqlen_k"
                              : buffer == "swa_lens"  ? "seqlen_swa"
                              : buffer == "topk_lens" ? "topk"
                                                      : nullptr;
  if (counted == nullptr && !is_list) return std::nullopt;
  reference::Tensor tensor(DType::s32, shape);
  const std::int64_t count = reference::element_count(shape);
  const bool is_product = is_list && size("a_rows") != 0;
  const std::int64_t most = size(is_product                ? "a_rows"
                                 : buffer == "block_table" ? "pages"
                                 : buffer == "swa_indices" ? "swa_rows"
                                 : is_list                 ? "seqlen_k"
                                                           : counted);
  for (std::int64_t i = 0; i < count; ++i)
    tensor.set(i, static_cast<double>(is_list ? (i % 9 == 8 ? -1 : i * 7 % most) : most - i % 3 * (most / 3) - i % 3));
  return tensor;
}

// Buffers in the plan's order: whole numbers in the inputs, poison in the outputs, optional ones left out.
struct Buffers {
  std::vector<DevicePointer> pointers;
  std::vector<std::pair<DevicePointer, std::size_t>> outputs;
};

Buffers make_buffers(const Plan& whole, const std::vector<std::int64_t>& sizes, EmulatedDevice& device) {
  const LaunchPlan& plan = whole.launch;
  const auto size = [&](const char* name) {
    for (std::size_t i = 0; i < plan.sizes.size(); ++i)
      if (plan.sizes[i].name == name) return sizes[i];
    return std::int64_t{0};
  };
  Buffers buffers;
  reference::Tensors of_rows = block_inputs(whole, size);
  of_rows.merge(merge_inputs(whole, size));
  for (const BufferSpec& spec : plan.buffers) {
    if (spec.is_optional && !is_attention(whole) && whole.problem.get_if<Merge>() == nullptr) {
      buffers.pointers.push_back(0);
      continue;
    }
    std::vector<std::int64_t> shape;
    for (const Expression& extent : spec.shape) {
      std::vector<std::int64_t> values;
      for (const std::string& name : extent.names())
        for (std::size_t i = 0; i < plan.sizes.size(); ++i)
          if (plan.sizes[i].name == name) values.push_back(sizes[i]);
      shape.push_back(extent.evaluate(values));
    }
    reference::Tensor tensor(*reference::dtype_from_name(spec.dtype), shape);
    reference::fill(tensor, reference::Fill::integer, 5, buffers.pointers.size());
    if (std::optional<reference::Tensor> scales = make_scales(whole, spec.name, size)) tensor = std::move(*scales);
    if (const auto found = of_rows.find(spec.name); found != of_rows.end()) tensor = found->second;
    if (std::optional<reference::Tensor> units = make_nvfp4_units(whole, spec.name, shape)) tensor = std::move(*units);
    if (is_calmed(whole, spec.name)) calm_every_other_row(tensor);
    if (std::optional<reference::Tensor> indices = make_indices(spec.name, shape, size)) tensor = std::move(*indices);
    const DevicePointer pointer = device.allocate(tensor.bytes.size());
    if (spec.role == BufferRole::output) {
      std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0xFF});
      buffers.outputs.emplace_back(pointer, tensor.bytes.size());
    }
    device.copy_to_device(pointer, tensor.bytes.data(), tensor.bytes.size());
    buffers.pointers.push_back(pointer);
  }
  return buffers;
}

/// A merge's module behind the kernel's: mutants are of both.
Image in_one(Image image) {
  if (!image.merge.ptx.empty()) image.ptx += "\n" + image.merge.ptx;
  image.merge = {};
  return image;
}

}  // namespace

Subject::Subject(const std::string& words, std::map<std::string, std::int64_t> sizes, Compiler& compiler)
    : plan_(make_plan(problem_of(words))), image_(in_one(compiler.compile(emit(plan_)))), given_(std::move(sizes)) {}

Family Subject::family() const {
  for (const char* const op : {"gemv", "quantize", "dequantize", "convert_scales", "merge"})
    if (plan_.op == op) return Family::blocks;
  return Family::products;
}

Verdict Subject::run(const std::string& ptx, emulator::Schedule schedule, std::uint64_t seed, bool is_strict) const {
  emulator::DeviceOptions options;
  options.arch = plan_.arch.to_string();
  options.detects_races = true;
  options.detects_unwritten_registers = is_strict;
  options.schedule = schedule;
  options.seed = seed;
  options.max_warp_instructions = 2000000;
  options.num_sms = 1;  // one persistent CTA: every slot of every ring is used again
  EmulatedDevice device(options);
  Image image = image_;
  image.ptx = ptx;
  Verdict verdict;
  try {
    const Launcher launcher(device, plan_.launch, image);
    std::vector<std::int64_t> sizes;
    for (const SizeSpec& size : plan_.launch.sizes)
      sizes.push_back(given_.count(size.name) != 0 ? given_.at(size.name) : kUseDefault);
    std::vector<double> scalars;
    for (const ScalarSpec& scalar : plan_.launch.scalars)
      scalars.push_back(scalar.name == "softmax_scale" ? std::numbers::ln2 : std::numeric_limits<double>::quiet_NaN());
    LaunchArguments arguments;
    arguments.sizes = sizes;
    const Buffers buffers = make_buffers(plan_, launcher.resolve_sizes(arguments), device);
    arguments.scalars = scalars;
    arguments.buffers = buffers.pointers;
    arguments.workspace_bytes = launcher.workspace_bytes(arguments);
    if (arguments.workspace_bytes > 0) {
      arguments.workspace = device.allocate(static_cast<std::size_t>(arguments.workspace_bytes));
      if (!plan_.launch.workspace.zeroed)
        device.poison(arguments.workspace, 0xFF, static_cast<std::size_t>(arguments.workspace_bytes));
    }
    launcher.launch({}, arguments);
    // Again, for what starts before the launch before it has ended.
    if (std::any_of(plan_.launch.steps.begin(), plan_.launch.steps.end(),
                    [](const LaunchStep& step) { return step.programmatic_stream_serialization; }))
      launcher.launch({}, arguments);
    for (const emulator::EmulatorFinding& finding : device.take_findings()) {
      verdict.names.push_back(finding.name + (finding.is_failure ? "" : " (hazard)"));
      verdict.messages.push_back(finding.to_string());
    }
    for (const auto& [pointer, bytes] : buffers.outputs) {
      const std::size_t before = verdict.output.size();
      verdict.output.resize(before + bytes);
      device.copy_to_host(verdict.output.data() + before, pointer, bytes);
    }
  } catch (const Error& error) {
    verdict.is_refused = true;
    verdict.messages.emplace_back(error.what());
  }
  return verdict;
}

}  // namespace tessera::mutations
