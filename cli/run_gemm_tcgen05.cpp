#include "cli/run_gemm_tcgen05.h"

#include "reference/gemm_gated.h"
#include "reference/gemm_tcgen05.h"

namespace tessera::cli {

namespace {

using gemm_tcgen05::Config;
using reference::Fill;
using reference::Tensor;

const Config& config_of(const Plan& plan) { return std::get<Config>(plan.config); }

Fill fill_of(const RunFlags& flags) {
  return flags.inputs == "uniform" ? Fill::uniform : flags.inputs == "integer" ? Fill::integer : Fill::normal;
}

/// An operand as [l, rows, k] in float64.
Tensor decoded(const std::map<std::string, Tensor>& inputs, const char* values, const char* scales, OperandType type) {
  const Tensor& tensor = inputs.at(values);
  const std::int64_t k = operand_bits(type) == 4 ? 2 * tensor.shape.at(2) : tensor.shape.at(2);
  const auto found = inputs.find(scales);
  std::span<const std::byte> bytes;
  if (found != inputs.end()) bytes = found->second.bytes;
  return reference::decode_operand(type, tensor.view(), bytes, k);
}

double factor_of(const std::map<std::string, Tensor>& inputs, const char* scale_b) {
  double factor = 1;
  for (const char* const name : {"scale_a", scale_b})
    if (const auto found = inputs.find(name); found != inputs.end()) factor *= found->second.at(0);
  return factor;
}

/// A product behind a gate, or one that leaves as a block-scaled format.
reference::Comparison compare_gated(const Config& c, const std::map<std::string, Tensor>& inputs,
                                    const std::map<std::string, Tensor>& outputs, reference::GatedInputs in,
                                    const Tensor& b) {
  Tensor gate, up;
  in.alpha_up = in.check.alpha;
  if (c.gate == Gate::dual) {
    up = decoded(inputs, "b2", "sfb2", c.b_type);
    in.alpha_up = factor_of(inputs, "scale_b2");
  } else if (c.gate == Gate::interleaved) {
    gate = reference::rows_in_turn(b, c.interleave, false);
    up = reference::rows_in_turn(b, c.interleave, true);
    in.product.b = gate.view();
  }
  if (c.gate != Gate::none) in.up = up.view();
  const reference::TensorView d = outputs.at("d").view();
  if (!gemm_tcgen05::is_quantized(c)) return reference::check_gated(in, d);
  const auto scale = inputs.find("scale_d");
  return reference::check_quantized_product(
      in, block_format(c.d_format), scale == inputs.end() ? 1 : scale->second.at(0), d, outputs.at("sfd").bytes);
}

}  // namespace

bool is_tcgen05_product(const Plan& plan) { return std::holds_alternative<Config>(plan.config); }

std::map<std::string, Tensor> tcgen05_product_inputs(const Plan& plan, const LaunchSizes& launch,
                                                     const std::vector<std::int64_t>& sizes, const RunFlags& flags) {
  const Config& c = config_of(plan);
  const auto size = [&](const char* name) { return launch.evaluate(Expression::parse(name), sizes); };
  const std::int64_t l = size("l"), k = size("k");
  const auto seed = static_cast<std::uint64_t>(flags.seed);
  const Fill fill = fill_of(flags);
  std::map<std::string, Tensor> all;
  std::uint64_t stream = 0;
  for (const BufferSpec& buffer : plan.launch.buffers) {
    ++stream;
    if (buffer.role == BufferRole::output) continue;
    const bool is_of_b = buffer.name.find('b') != std::string::npos;
    const OperandType type = is_of_b ? c.b_type : c.a_type;
    const std::int64_t rows = is_of_b ? size("n") : size("m");
    if (buffer.name == "a" || buffer.name == "b" || buffer.name == "b2") {
      all.emplace(buffer.name, reference::random_operand(type, l, rows, k, fill, seed, stream));
    } else if (buffer.name.starts_with("sf")) {
      all.emplace(buffer.name, reference::random_operand_scales(type, l, rows, k, fill, seed, stream));
    } else {
      std::vector<std::int64_t> shape;
      for (const Expression& extent : buffer.shape) shape.push_back(launch.evaluate(extent, sizes));
      Tensor tensor(*reference::dtype_from_name(buffer.dtype), shape);
      if (buffer.name.starts_with("scale_")) {
        tensor.set(0, buffer.name == "scale_a" ? 0.5 : buffer.name == "scale_d" ? 0.25 : 2);
      } else {
        reference::fill(tensor, fill, seed, stream);
      }
      all.emplace(buffer.name, std::move(tensor));
    }
  }
  for (const auto& [name, tensor] : flags.arrays) all[name] = tensor;
  return all;
}

reference::Comparison compare_tcgen05_product(const Plan& plan, const std::map<std::string, Tensor>& inputs,
                                              const std::map<std::string, Tensor>& outputs, const RunFlags& flags,
                                              int jobs) {
  const Config& c = config_of(plan);
  reference::GemmCheck check;
  check.alpha = factor_of(inputs, "scale_b");
  check.beta = 1;
  check.activation = c.activation;
  check.split_k = c.split_k;
  check.sums = reference::tensor_sums(c);
  check.is_exact = flags.inputs == "integer" && flags.arrays.empty();
  check.judges_rel_error = flags.arrays.empty();
  check.tile_m = c.tile_m;
  check.tile_n = c.tile_n;
  check.seed = static_cast<std::uint64_t>(flags.seed);
  check.jobs = jobs;
  const Tensor a = decoded(inputs, "a", "sfa", c.a_type), b = decoded(inputs, "b", "sfb", c.b_type);
  reference::GemmInputs views{a.view(), b.view(), {}, {}};
  if (const auto found = inputs.find("c"); found != inputs.end()) views.c = found->second.view();
  if (const auto found = inputs.find("bias"); found != inputs.end()) views.bias = found->second.view();
  if (c.gate != Gate::none || gemm_tcgen05::is_quantized(c))
    return compare_gated(c, inputs, outputs, {.product = views, .up = {}, .check = check}, b);
  return reference::check_gemm(views, outputs.at("d").view(), check);
}

}  // namespace tessera::cli
