#include "tests/emulated/gemm_tcgen05_run.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "generator/selectors.h"
#include "reference/poison.h"
#include "runtime/nvrtc.h"

namespace tessera {
namespace {

using gemm_tcgen05::Config;
using reference::Fill;
using reference::Tensor;
using reference::TensorView;

constexpr std::uint64_t kSeed = 11;

Problem problem_of(const ProductCase& test) {
  Problem problem = Gemm{.arch = {.number = 100, .suffix = 'a'}};
  for (const auto& [key, text] : test.fields) set_field(problem, key, text);
  return problem;
}

const Config& config_of(const Plan& plan) { return std::get<Config>(plan.config); }

OperandType operand_type_of(const Plan& plan, const std::string& buffer) {
  return buffer.find('b') != std::string::npos ? config_of(plan).b_type : config_of(plan).a_type;
}

}  // namespace

std::unique_ptr<Compiler> find_product_compiler() {
  try {
    return make_nvrtc_compiler();
  } catch (const Error&) {
    return nullptr;
  }
}

ProductRun::ProductRun(const ProductCase& test, Compiler& compiler, emulator::EmulatedDevice& device)
    : test_(test), plan_(make_plan(problem_of(test))), device_(device) {
  launcher_ = std::make_unique<Launcher>(device, plan_.launch, compiler.compile(emit(plan_)));
  for (const SizeSpec& spec : plan_.launch.sizes) {
    const auto given = test.sizes.find(spec.name);
    const std::int64_t value = given != test.sizes.end() ? given->second
                               : spec.name == "num_sms"  ? device.info().num_sms
                                                         : evaluate(*spec.default_value);
    names_.push_back(spec.name);
    sizes_.push_back(value);
  }
  std::uint64_t stream = 0;
  for (const BufferSpec& buffer : plan_.launch.buffers) add_buffer(buffer, ++stream);
  for (const ScalarSpec& scalar : plan_.launch.scalars) scalars_.push_back(scalar.name == "beta" ? 2 : 0.5);
}

std::int64_t ProductRun::evaluate(const Expression& expression) const {
  return BoundExpression(expression, names_).evaluate(sizes_);
}

std::int64_t ProductRun::size(const char* name) const { return evaluate(Expression::parse(name)); }

// Rows at their pitch; what lies between them is all ones, a NaN of every type that has one.
void ProductRun::fill_operand(Buffer& buffer, const BufferSpec& spec, std::uint64_t stream) const {
  const OperandType type = operand_type_of(plan_, spec.name);
  const Tensor dense = reference::random_operand(type, size("l"), size(spec.name == "a" ? "m" : "n"), size("k"),
                                                 test_.fill, kSeed, stream);
  std::fill(buffer.memory.bytes.begin(), buffer.memory.bytes.end(), std::byte{0xFF});
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(dense.dtype));
  const std::int64_t row_bytes = buffer.view.shape[2] * bytes;
  for (std::int64_t i = 0; i < buffer.view.shape[0]; ++i)
    for (std::int64_t r = 0; r < buffer.view.shape[1]; ++r)
      std::memcpy(buffer.memory.bytes.data() + (i * buffer.view.strides[0] + r * buffer.view.strides[1]) * bytes,
                  dense.bytes.data() + (i * buffer.view.shape[1] + r) * row_bytes, static_cast<std::size_t>(row_bytes));
}

void ProductRun::add_buffer(const BufferSpec& spec, std::uint64_t stream) {
  std::vector<std::int64_t> shape, strides;
  for (const Expression& extent : spec.shape) shape.push_back(evaluate(extent));
  for (const Expression& stride : spec.strides) strides.push_back(evaluate(stride));
  Buffer& buffer = buffers_[spec.name];
  if (spec.name.starts_with("sf") && spec.role == BufferRole::input) {
    const OperandType type = operand_type_of(plan_, spec.name);
    buffer.memory = reference::random_operand_scales(type, size("l"), size(spec.name == "sfa" ? "m" : "n"), size("k"),
                                                     test_.fill, kSeed, stream);
  } else {
    buffer.memory = Tensor(*reference::dtype_from_name(spec.dtype), {shape[0] * strides[0]});
  }
  buffer.view = {buffer.memory.bytes.data(), buffer.memory.dtype, shape, strides};
  if (spec.name == "a" || spec.name == "b" || spec.name == "b2") {
    fill_operand(buffer, spec, stream);
  } else if (spec.name.starts_with("scale_")) {
    buffer.memory.set(0, spec.name == "scale_a" ? 0.5 : spec.name == "scale_d" ? 0.75 : 4);
  } else if (spec.name == "c" || spec.name == "bias") {
    reference::fill(buffer.memory, test_.fill, kSeed, stream);
  }
  buffer.pointer = device_.allocate(std::max<std::size_t>(buffer.memory.bytes.size(), 16));
  device_.copy_to_device(buffer.pointer, buffer.memory.bytes.data(), buffer.memory.bytes.size());
  pointers_.push_back(buffer.pointer);
}

std::vector<std::byte> ProductRun::run(std::vector<Finding>& findings) {
  for (const char* const name : {"d", "sfd"})
    if (const auto found = buffers_.find(name); found != buffers_.end())
      device_.set_bytes(found->second.pointer, reference::kPoisonByte, found->second.memory.bytes.size());
  LaunchArguments arguments;
  arguments.sizes = sizes_;
  arguments.scalars = scalars_;
  arguments.buffers = pointers_;
  launcher_->launch({}, arguments);
  findings = device_.synchronize();
  std::vector<std::byte> all;
  for (const char* const name : {"d", "sfd"})
    if (const auto found = buffers_.find(name); found != buffers_.end()) {
      std::vector<std::byte>& bytes = found->second.memory.bytes;
      device_.copy_to_host(bytes.data(), found->second.pointer, bytes.size());
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
  return all;
}

Tensor ProductRun::decoded(const char* values, const char* scales, OperandType type) const {
  const auto found = buffers_.find(scales);
  std::span<const std::byte> bytes;
  if (found != buffers_.end()) bytes = found->second.memory.bytes;
  return reference::decode_operand(type, buffers_.at(values).view, bytes, size("k"));
}

reference::Comparison ProductRun::compare_gated(reference::GatedInputs in, const Tensor& b) const {
  const Config& c = config_of(plan_);
  in.alpha_up = in.check.alpha;
  Tensor gate, up;
  if (c.gate == Gate::dual) {
    up = decoded("b2", "sfb2", c.b_type);
  } else if (c.gate == Gate::interleaved) {
    gate = reference::rows_in_turn(b, c.interleave, false);
    up = reference::rows_in_turn(b, c.interleave, true);
    in.product.b = gate.view();
  }
  if (c.gate != Gate::none) in.up = up.view();
  const Buffer& d = buffers_.at("d");
  if (!gemm_tcgen05::is_quantized(c)) return reference::check_gated(in, d.view);
  const auto scale = buffers_.find("scale_d");
  return reference::check_quantized_product(in, block_format(c.d_format),
                                            scale == buffers_.end() ? 1 : scale->second.memory.at(0), d.view,
                                            buffers_.at("sfd").memory.bytes);
}

reference::Comparison ProductRun::compare() const {
  const Config& c = config_of(plan_);
  reference::GemmCheck check;
  check.alpha = 0.5;
  check.beta = 2;
  for (const char* const scale : {"scale_a", "scale_b"})
    if (const auto found = buffers_.find(scale); found != buffers_.end()) check.alpha *= found->second.memory.at(0);
  check.activation = c.activation;
  check.split_k = c.split_k;
  check.sums = reference::tensor_sums(c);
  check.is_exact = test_.fill == Fill::integer;
  check.tile_m = c.tile_m;
  check.tile_n = c.tile_n;
  check.jobs = 1;
  const Tensor a = decoded("a", "sfa", c.a_type), b = decoded("b", "sfb", c.b_type);
  reference::GemmInputs in{a.view(), b.view(), {}, {}};
  if (buffers_.count("c") != 0) in.c = buffers_.at("c").view;
  if (buffers_.count("bias") != 0) in.bias = buffers_.at("bias").view;
  if (c.gate != Gate::none || gemm_tcgen05::is_quantized(c))
    return compare_gated({.product = in, .up = {}, .check = check}, b);
  return reference::check_gemm(in, buffers_.at("d").view, check);
}

bool ProductRun::are_gaps_intact() const {
  const Buffer& d = buffers_.at("d");
  std::vector<bool> is_element(d.memory.bytes.size());
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(d.memory.dtype));
  for (std::int64_t i = 0; i < d.view.shape[0]; ++i)
    for (std::int64_t r = 0; r < d.view.shape[1]; ++r)
      for (std::int64_t b = 0; b < d.view.shape[2] * bytes; ++b)
        is_element[static_cast<std::size_t>((i * d.view.strides[0] + r * d.view.strides[1]) * bytes + b)] = true;
  for (std::size_t i = 0; i < is_element.size(); ++i)
    if (!is_element[i] && d.memory.bytes[i] != std::byte{reference::kPoisonByte}) return false;
  return true;
}

}  // namespace tessera
