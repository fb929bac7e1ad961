#include "tests/bugs/bug_run.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <regex>
#include <set>
#include <stdexcept>

#include "base/file.h"
#include "generator/include_scan.h"
#include "generator/selectors.h"
#include "reference/comparison.h"
#include "reference/random.h"
#include "reference/tensor.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/plan.h"

namespace tessera::bugs {
namespace {

using emulator::EmulatedDevice;
using emulator::EmulatorFinding;

DType dtype_of(const std::string& name) {
  const auto dtype = reference::dtype_from_name(name);
  if (!dtype) throw std::runtime_error("no element type '" + name + "'");
  return *dtype;
}

reference::Tensor make_tensor(const BugBuffer& buffer, std::uint64_t stream) {
  reference::Tensor tensor(dtype_of(buffer.dtype), buffer.shape);
  if (buffer.fill == "random") {
    reference::fill(tensor, reference::Fill::integer, 11, stream);
  } else if (buffer.fill == "random-bytes") {
    const reference::CounterRandom random(12, stream);
    for (std::size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<std::byte>(random.bits(i));
  } else if (buffer.fill == "poison") {
    std::memset(tensor.bytes.data(), 0xFF, tensor.bytes.size());
  } else if (buffer.fill == "iota") {
    for (std::int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, static_cast<double>(i % 128));
  } else if (buffer.fill != "zero" && buffer.fill != "nothing") {
    std::vector<double> values;
    std::size_t at = 0;
    for (std::string rest = buffer.fill; !rest.empty(); rest = rest.substr(std::min(rest.size(), at + 1)))
      values.push_back(std::stod(rest, &at));
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, values[static_cast<std::size_t>(i) % values.size()]);
  }
  return tensor;
}

BugTensor values_of(const BugBuffer& buffer, const reference::Tensor& tensor) {
  BugTensor out{buffer.dtype, buffer.shape, {}};
  for (std::int64_t i = 0; i < tensor.elements(); ++i) out.values.push_back(tensor.at(i));
  return out;
}

// Line numbers of PTX belong to the compiler that wrote it.
std::string without_lines(const std::string& text) {
  return std::regex_replace(text, std::regex("PTX line [0-9]+"), "PTX line N");
}

/// One launch: buffers, maps, parameters, in the device's memory.
class Run {
 public:
  Run(const BugCase& bug, EmulatedDevice& device) : bug_(bug), device_(device) {
    for (const BugBuffer& buffer : bug.buffers) {
      if (buffer.fill == "null") {
        buffers_[buffer.name] = 0;
        continue;
      }
      const reference::Tensor tensor = make_tensor(buffer, buffers_.size());
      const DevicePointer pointer = device.allocate(tensor.bytes.size());
      if (buffer.fill != "nothing") device.copy_to_device(pointer, tensor.bytes.data(), tensor.bytes.size());
      buffers_[buffer.name] = pointer;
      inputs_[buffer.name] = values_of(buffer, tensor);
    }
  }

  // Encodes the maps; what a rule or the device says against them is the outcome.
  bool make_maps(Outcome& out) {
    for (const BugMap& map : bug_.maps) {
      TensorMapArguments arguments = map.arguments;
      arguments.address = buffers_.at(map.buffer);
      const int number = std::stoi(bug_.target.substr(3));
      for (const TensorMapViolation& violation : diagnose(arguments, map.name, {number / 10}))
        add(out, "tensor-map", violation.message);
      if (!out.names.empty()) continue;
      ResolvedTensorMap resolved = resolve(arguments);
      if (likely_mistake(resolved) != TensorMapMistake::none)
        add(out, "tensor-map", "advice: " + likely_mistake_message(resolved, map.name));
      device_.encode(resolved, maps_[map.name]);
    }
    return out.names.empty();
  }

  void launch(const std::string& ptx) {
    const auto image = device_.load_ptx(ptx, "kernel.ptx");
    LaunchRequest request;
    request.entry = image->entry("kernel");
    request.grid = bug_.grid;
    request.block = bug_.block;
    request.cluster = bug_.cluster;
    request.dynamic_smem_bytes = bug_.smem_bytes;
    if (bug_.smem_bytes > 0) image->set_max_dynamic_smem(request.entry, bug_.smem_bytes);
    std::vector<void*> parameters;
    std::vector<std::int32_t> integers(bug_.parameters.size());
    std::vector<float> floats(bug_.parameters.size());
    for (std::size_t i = 0; i < bug_.parameters.size(); ++i) {
      const BugParameter& parameter = bug_.parameters[i];
      if (parameter.kind == "map") {
        parameters.push_back(&maps_.at(parameter.value));
      } else if (parameter.kind == "empty-map") {
        parameters.push_back(&maps_["an encode that failed"]);
      } else if (parameter.kind == "buffer") {
        parameters.push_back(&buffers_.at(parameter.value));
      } else if (parameter.kind == "f32") {
        floats[i] = std::stof(parameter.value);
        parameters.push_back(&floats[i]);
      } else {
        integers[i] = std::stoi(parameter.value);
        parameters.push_back(&integers[i]);
      }
    }
    request.parameters = parameters.data();
    device_.launch(request, {});
  }

  // Compares the output with the reference; the pattern of the wrong elements is the outcome.
  void compare(Outcome& out) {
    const BugBuffer* output = nullptr;
    for (const BugBuffer& buffer : bug_.buffers)
      if (buffer.name == bug_.expect_output) output = &buffer;
    if (output == nullptr) throw std::runtime_error("expect names no buffer");
    reference::Tensor found(dtype_of(output->dtype), output->shape);
    device_.copy_to_host(found.bytes.data(), buffers_.at(output->name), found.bytes.size());
    const std::vector<double> expected = reference_values(bug_.expect_words, inputs_, output->shape);
    if (static_cast<std::int64_t>(expected.size()) != found.elements()) throw std::runtime_error("expect: extents");
    reference::ElementSums sums;
    std::vector<reference::Axis> axes;
    const bool is_matrix = output->shape.size() == 2;
    for (std::size_t a = 0; a < output->shape.size(); ++a) {
      const std::string usual = is_matrix ? a == 0 ? "row" : "column" : fmt::format("dimension {}", a);
      axes.push_back({a < bug_.axes.size() ? bug_.axes[a].name : usual, output->shape[a],
                      a < bug_.axes.size() ? bug_.axes[a].blocks : std::vector<std::int64_t>{}});
    }
    for (std::int64_t i = 0; i < found.elements(); ++i) {
      const double wanted = expected[static_cast<std::size_t>(i)];
      reference::Element element{found.at(i), wanted, bug_.tolerance * std::fabs(wanted), 0, {}};
      std::int64_t rest = i;
      for (std::size_t a = output->shape.size(); a-- > 0; rest /= output->shape[a])
        element.at[a] = rest % output->shape[a];
      sums.add(element);
    }
    if (sums.mismatched > 0) add(out, "mismatch", "mismatch: " + describe_mismatches(output->name, sums, axes));
  }

  static void add(Outcome& out, const std::string& name, const std::string& text) {
    out.names.push_back(name);
    out.text += text + "\n";
  }

 private:
  static ResolvedTensorMap resolve(const TensorMapArguments& a) {
    ResolvedTensorMap map;
    map.type = a.type;
    map.rank = static_cast<std::uint32_t>(a.dims.size());
    map.address = a.address;
    std::copy(a.dims.begin(), a.dims.end(), map.dims.begin());
    std::copy(a.strides_bytes.begin(), a.strides_bytes.end(), map.strides_bytes.begin());
    std::copy(a.box.begin(), a.box.end(), map.box.begin());
    std::copy(a.element_strides.begin(), a.element_strides.end(), map.element_strides.begin());
    map.swizzle = a.swizzle;
    map.fill = a.fill;
    return map;
  }

  const BugCase& bug_;
  EmulatedDevice& device_;
  std::map<std::string, DevicePointer> buffers_;
  std::map<std::string, BugTensor> inputs_;
  std::map<std::string, TensorMapObject> maps_;
};

Outcome run_plan(const BugCase& bug) {
  Outcome out;
  try {
    Problem problem = default_problem(bug.plan_op);
    for (const auto& [key, value] : bug.plan_fields) set_field(problem, key, value);
    make_plan(problem);
  } catch (const Error& error) {
    Run::add(out, "planner", std::string("planner: ") + error.what());
  }
  return out;
}

}  // namespace

std::string ptx_of(const BugCase& bug, Compiler* compiler) {
  if (bug.language == "ptx") {
    return bug.code;
  }
  if (bug.language != "cuda" || compiler == nullptr) return {};
  SourceBundle bundle;
  const std::size_t slash = bug.path.rfind('/');
  bundle.program = "/bugs/" + bug.path.substr(slash + 1);
  bundle.text = bug.code;
  bundle.headers = transitive_headers(bundle.program, bundle.text, {});
  std::sort(bundle.headers.begin(), bundle.headers.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  bundle.arch = bug.target;
  bundle.options = {"--std=c++20", "-lineinfo", "--no-source-include"};
  bundle.entries = {"kernel"};
  return compiler->compile(bundle).ptx;
}

Outcome run_case(const BugCase& bug, const std::string& ptx, emulator::Schedule schedule, std::uint64_t seed) {
  if (!bug.plan_op.empty()) return run_plan(bug);
  emulator::DeviceOptions options;
  options.arch = bug.target;
  options.schedule = schedule;
  options.seed = seed;
  options.detects_races = bug.detects_races;
  options.max_warp_instructions = 2000000;
  EmulatedDevice device(options);
  Run run(bug, device);
  Outcome out;
  if (!run.make_maps(out) || bug.language.empty()) return out;
  try {
    run.launch(ptx);
  } catch (const Error& error) {
    std::string text = error.what();
    for (const std::string& note : error.notes()) text += "\n" + note;
    Run::add(out, "refused", text);
    return out;
  }
  bool has_failed = false;
  std::set<std::pair<std::string, std::string>> seen;
  for (const EmulatorFinding& finding : device.take_findings()) {
    has_failed = has_failed || finding.is_failure;
    // An unrolled loop says the same at each copy of a line.
    if (finding.source_line > 0 && !seen.insert({finding.name, finding.source_place}).second) continue;
    const std::string text = finding.to_string();
    Run::add(out, finding.name, bug.language == "cuda" ? without_lines(text) : text);
  }
  if (!bug.expect_output.empty() && !has_failed) run.compare(out);
  return out;
}

}  // namespace tessera::bugs
