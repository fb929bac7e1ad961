#include "tests/emulated/gemm_tcgen05_run.h"

#include <algorithm>
#include <cstring>

#include "base/bound_expression.h"
#include "generator/facts.h"
#include "generator/selectors.h"
#include "reference/poison.h"
#include "reference/tcgen05_product.h"
#include "runtime/nvrtc.h"
#include "tessera/error.h"

namespace tessera {
namespace {

using reference::Fill;
using reference::Tensor;
using reference::TensorView;

constexpr std::uint64_t kSeed = 11;

Problem problem_of(const ProductCase& test) {
  Problem problem = Gemm{.arch = {.number = 100, .suffix = 'a'}};
  for (const auto& [key, text] : test.fields) set_field(problem, key, text);
  return problem;
}

ProductFacts facts_of(const Plan& plan) { return product_facts(plan.problem.as<Gemm>()); }

OperandType operand_type_of(const Plan& plan, const std::string& buffer) {
  return product_operand(buffer) == ProductOperand::b ? facts_of(plan).b_type : facts_of(plan).a_type;
}

}  // namespace

std::string product_arch(const ProductCase& test) { return problem_of(test).as<Gemm>().arch.to_string(); }

std::unique_ptr<Compiler> find_product_compiler() {
  try {
    return make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    return nullptr;
  }
}

ProductRun::ProductRun(const ProductCase& test, Compiler& compiler, Device& device, const std::string& arch)
    : test_(test), plan_(make_plan(problem_of(test))), device_(device) {
  const SourceBundle bundle = emit(plan_);
  if (!arch.empty()) plan_.launch.arch = arch;
  launcher_ = std::make_unique<Launcher>(device, plan_.launch, compiler.compile(bundle));
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

ProductRun::~ProductRun() {
  for (const DevicePointer pointer : pointers_) device_.free(pointer);
}

std::int64_t ProductRun::evaluate(const Expression& expression) const {
  return BoundExpression(expression, names_).evaluate(sizes_);
}

std::int64_t ProductRun::size(const char* name) const { return evaluate(Expression::parse(name)); }

// Rows at their pitch; what lies between them is all ones, a NaN of every type that has one.
void ProductRun::fill_operand(Buffer& buffer, const BufferSpec& spec, std::uint64_t stream) const {
  const OperandType type = operand_type_of(plan_, spec.name);
  const int bits = operand_bits(type);
  const std::int64_t stored = buffer.view.shape[2], columns = bits < 8 ? stored * 8 / bits : stored;
  const Tensor dense =
      reference::random_operand(type, buffer.view.shape[0], buffer.view.shape[1], columns, test_.fill, kSeed, stream);
  std::fill(buffer.memory.bytes.begin(), buffer.memory.bytes.end(), std::byte{0xFF});
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(dense.dtype));
  const std::int64_t row_bytes = buffer.view.shape[2] * bytes;
  if (row_bytes == 0) return;
  for (std::int64_t i = 0; i < buffer.view.shape[0]; ++i)
    for (std::int64_t r = 0; r < buffer.view.shape[1]; ++r)
      std::memcpy(buffer.memory.bytes.data() + (i * buffer.view.strides[0] + r * buffer.view.strides[1]) * bytes,
                  dense.bytes.data() + (i * buffer.view.shape[1] + r) * row_bytes, static_cast<std::size_t>(row_bytes));
}

Tensor ProductRun::groups() const {
  const Grouping grouping = facts_of(plan_).grouping;
  return test_.group_rows.empty() ? reference::random_groups(grouping, size("l"), size("m"), kSeed)
                                  : reference::groups_of(grouping, test_.group_rows);
}

void ProductRun::add_buffer(const BufferSpec& spec, std::uint64_t stream) {
  std::vector<std::int64_t> shape, strides;
  for (const Expression& extent : spec.shape) shape.push_back(evaluate(extent));
  for (const Expression& stride : spec.strides) strides.push_back(evaluate(stride));
  Buffer& buffer = buffers_[spec.name];
  if (spec.name == "groups") {
    buffer.memory = groups();
  } else if (spec.name == "indices") {
    // Rows that there are, and numbers that name none; some more than once.
    buffer.memory = Tensor(DType::s32, {shape[0] * strides[0]});
    const reference::CounterRandom random(kSeed, stream);
    for (std::int64_t i = 0; i < buffer.memory.elements(); ++i)
      buffer.memory.set(i, static_cast<double>(random.integer(static_cast<std::uint64_t>(i), -1, size("a_rows"))));
  } else if (spec.name.starts_with("sf") && spec.role == BufferRole::input && shape.size() == 3) {
    buffer.memory = reference::random_plain_scales(operand_type_of(plan_, spec.name), shape[0], shape[1], size("k"),
                                                   test_.fill, kSeed, stream);
  } else if (spec.name == "sfa" && facts_of(plan_).gather != Gather::none) {
    buffer.memory = reference::random_operand_scales(operand_type_of(plan_, "sfa"), 1, size("a_rows"), size("k"),
                                                     test_.fill, kSeed, stream);
  } else if (spec.name == "sfa" && facts_of(plan_).grouping == Grouping::contiguous) {
    const Tensor values = groups();
    buffer.memory = reference::random_group_scales(
        operand_type_of(plan_, "sfa"), reference::group_rows(Grouping::contiguous, values.view(), size("m")),
        size("group_tiles"), size("k"), test_.fill, kSeed, stream);
  } else if (spec.name.starts_with("sf") && spec.role == BufferRole::input) {
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
  buffer.pointer = device_.allocate(buffer.memory.bytes.size());
  device_.copy_to_device(buffer.pointer, buffer.memory.bytes.data(), buffer.memory.bytes.size());
  pointers_.push_back(buffer.pointer);
}

std::vector<std::byte> ProductRun::run(std::vector<Finding>& findings) {
  for (const char* const name : {"d", "sfd"})
    if (const auto found = buffers_.find(name); found != buffers_.end()) {
      const std::size_t bytes = found->second.memory.bytes.size();
      if (auto* const emulated = dynamic_cast<emulator::EmulatedDevice*>(&device_)) {
        emulated->poison(found->second.pointer, reference::kPoisonByte, bytes);
      } else {
        device_.set_bytes(found->second.pointer, reference::kPoisonByte, bytes);
      }
    }
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

reference::Comparison ProductRun::compare() const {
  reference::GemmCheck check;
  check.alpha = 0.5;
  check.beta = 2;
  check.is_exact = test_.fill == Fill::integer;
  check.jobs = 1;
  reference::Buffers views;
  for (const auto& [name, buffer] : buffers_) views[name] = buffer.view;
  return reference::check_tcgen05_product(facts_of(plan_), product_tiles(plan_), views, size("k"), check);
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
