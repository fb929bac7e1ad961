// Runs a kernel from its cubin and plan.json alone: the proof that a plan is all that a host needs. Links neither
// planner nor templates (tests/plan_launcher/CMakeLists.txt checks that).
//
//   plan_launcher FOLDER [--size NAME=VALUE] [--scalar NAME=VALUE] [--buffer NAME=FILL] [--output NAME=FILE.npy]
//                 [--equal NAME=NAME]
//
// FILL is a .npy file of the buffer's shape, random (multiples of 1/16 in [-1, 1]), zero, poison (bytes 0xff: NaN), or
// null. A buffer that is not named is random when it is an input and poison when not. --output writes a buffer after
// the launch, --equal compares two byte for byte. Exit code: 0; 1 when --equal fails; 2 for bad usage; 5 when the
// device fails; 77 with the reason when there is no GPU.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bound_expression.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/launch_json.h"
#include "base/npy.h"
#include "tessera/cuda_device.h"
#include "tessera/error.h"
#include "tessera/launcher.h"

namespace {

using namespace tessera;
using Options = std::map<std::string, std::string>;

struct CommandLine {
  std::string folder;
  std::map<std::string, Options> options{
      {"--size", {}}, {"--scalar", {}}, {"--buffer", {}}, {"--output", {}}, {"--equal", {}}};
};

[[noreturn]] void usage(const std::string& message) { throw Error(ErrorKind::usage, message); }

CommandLine parse_command_line(int argc, char** argv) {
  CommandLine line;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (const auto option = line.options.find(word); option != line.options.end()) {
      const std::string value = i + 1 < argc ? argv[++i] : "";
      const std::size_t equals = value.find('=');
      if (equals == std::string::npos) usage(fmt::format("{}: needs NAME=VALUE, found '{}'", word, value));
      option->second[value.substr(0, equals)] = value.substr(equals + 1);
    } else if (line.folder.empty() && word.rfind("--", 0) != 0) {
      line.folder = word;
    } else {
      usage(fmt::format("'{}' is not known", word));
    }
  }
  if (line.folder.empty())
    usage("plan_launcher FOLDER [--size NAME=VALUE] [--scalar ...] [--buffer ...] [--output ...] [--equal ...]");
  return line;
}

std::int64_t parse_size(const std::string& name, const std::string& text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size())
    usage(fmt::format("--size {}: '{}' is no integer", name, text));
  return value;
}

/// One buffer of the plan, on both sides.
struct Tensor {
  const BufferSpec* spec = nullptr;
  std::string_view descr;
  std::size_t element_bytes = 0;
  std::vector<std::int64_t> shape, strides;  // elements
  std::vector<std::byte> host;               // as it lies on the device: strided, gaps included
  DevicePointer device = 0;

  /// Calls visit(index in C order, byte offset) for every element.
  template <class Visit>
  void for_each(Visit visit) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, offset = 0;
      for (std::size_t d = shape.size(); d-- > 0; rest /= shape[d]) offset += rest % shape[d] * strides[d];
      visit(static_cast<std::size_t>(i), static_cast<std::size_t>(offset) * element_bytes);
    }
  }
};

Tensor make_tensor(const BufferSpec& spec, const LaunchPlan& plan, const std::vector<std::int64_t>& sizes) {
  std::vector<std::string> names;
  for (const SizeSpec& size : plan.sizes) names.push_back(size.name);
  Tensor tensor;
  tensor.spec = &spec;
  tensor.descr = npy_descr_of(spec.dtype);
  tensor.element_bytes = npy_element_bytes(tensor.descr);
  if (tensor.element_bytes == 0)
    usage(fmt::format("buffer '{}': elements of type {} are not known here", spec.name, spec.dtype));
  std::int64_t last = 0;
  bool is_empty = false;
  for (std::size_t d = 0; d < spec.shape.size(); ++d) {
    tensor.shape.push_back(BoundExpression(spec.shape[d], names).evaluate(sizes));
    tensor.strides.push_back(BoundExpression(spec.strides[d], names).evaluate(sizes));
    is_empty = is_empty || tensor.shape[d] == 0;
    last += (tensor.shape[d] - 1) * tensor.strides[d];
  }
  if (!is_empty) tensor.host.resize(static_cast<std::size_t>(last + 1) * tensor.element_bytes);
  return tensor;
}

/// A multiple of 1/16 in [-1, 1] in the buffer's type; integers get the numerator. Every type holds it exactly.
void store_value(const Tensor& tensor, int sixteenths, std::byte* to) {
  const float value = static_cast<float>(sixteenths) / 16.0f;
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  const std::string& dtype = tensor.spec->dtype;
  if (dtype == "f32") {
    std::memcpy(to, &bits, 4);
  } else if (dtype == "f64") {
    const auto wide = static_cast<double>(value);
    std::memcpy(to, &wide, 8);
  } else if (dtype == "bf16" || dtype == "f16") {
    const std::uint32_t exponent = (bits >> 23 & 0xff) - 112;  // f16's bias is 112 less
    const std::uint32_t half = value == 0.0f ? 0 : (bits >> 16 & 0x8000) | exponent << 10 | (bits >> 13 & 0x3ff);
    const auto narrow = static_cast<std::uint16_t>(dtype == "bf16" ? bits >> 16 : half);
    std::memcpy(to, &narrow, 2);
  } else {
    const auto wide = static_cast<std::int64_t>(sixteenths);
    std::memcpy(to, &wide, tensor.element_bytes);  // little-endian: the low bytes
  }
}

void fill(Tensor& tensor, const std::string& how, std::uint64_t seed) {
  if (how == "zero" || how == "poison") {
    std::fill(tensor.host.begin(), tensor.host.end(), how == "zero" ? std::byte{0} : std::byte{0xff});
  } else if (how == "random") {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    tensor.for_each([&](std::size_t, std::size_t offset) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      store_value(tensor, static_cast<int>(state >> 33) % 33 - 16, tensor.host.data() + offset);
    });
  } else {
    const NpyArray array = read_npy(how);
    if (array.descr != tensor.descr || array.shape != tensor.shape)
      usage(fmt::format("{}: has '{}' [{}]: buffer '{}' needs '{}' [{}]", how, array.descr,
                        fmt::join(array.shape, ", "), tensor.spec->name, tensor.descr, fmt::join(tensor.shape, ", ")));
    tensor.for_each([&](std::size_t index, std::size_t offset) {
      std::memcpy(tensor.host.data() + offset, array.data.data() + index * tensor.element_bytes, tensor.element_bytes);
    });
  }
}

NpyArray dense(const Tensor& tensor) {
  NpyArray array{std::string(tensor.descr), tensor.shape, {}};
  array.data.resize(static_cast<std::size_t>(array.count()) * tensor.element_bytes);
  tensor.for_each([&](std::size_t index, std::size_t offset) {
    std::memcpy(array.data.data() + index * tensor.element_bytes, tensor.host.data() + offset, tensor.element_bytes);
  });
  return array;
}

/// Everything that the launch needs, on the device.
class Session {
 public:
  Session(const CommandLine& line, Device& device, Launcher& launcher)
      : line_(line), device_(device), launcher_(launcher) {
    const LaunchPlan& plan = launcher.plan();
    sizes_.assign(plan.sizes.size(), kUseDefault);
    scalars_.assign(plan.scalars.size(), std::numeric_limits<double>::quiet_NaN());
    for (const auto& [name, text] : line.options.at("--size"))
      sizes_[static_cast<std::size_t>(launcher.size_index(name))] = parse_size(name, text);
    for (const auto& [name, text] : line.options.at("--scalar"))
      scalars_[static_cast<std::size_t>(launcher.scalar_index(name))] = std::strtod(text.c_str(), nullptr);
    for (const auto& [name, how] : line.options.at("--buffer")) launcher.buffer_index(name);
    const std::vector<std::int64_t> sizes = launcher.resolve_sizes({sizes_, scalars_, {}});
    const Options& fills = line.options.at("--buffer");
    for (const BufferSpec& spec : plan.buffers) {
      const auto chosen = fills.find(spec.name);
      const std::string how = chosen != fills.end()             ? chosen->second
                              : spec.role == BufferRole::output ? "poison"
                                                                : "random";
      Tensor tensor = make_tensor(spec, plan, sizes);
      if (how != "null") {
        fill(tensor, how, tensors_.size() + 1);
        tensor.device = device.allocate(tensor.host.size());
        device.copy_to_device(tensor.device, tensor.host.data(), tensor.host.size());
      }
      pointers_.push_back(tensor.device);
      tensors_.push_back(std::move(tensor));
    }
    workspace_bytes_ = launcher.workspace_bytes({sizes_, scalars_, {}});
    if (workspace_bytes_ > 0) workspace_ = device.allocate(static_cast<std::size_t>(workspace_bytes_));
  }
  ~Session() {
    for (const DevicePointer pointer : pointers_) device_.free(pointer);
    device_.free(workspace_);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void launch() {
    const Stream stream;
    launcher_.launch(stream, {sizes_, scalars_, pointers_, workspace_, workspace_bytes_});
    device_.synchronize(stream);
    for (Tensor& tensor : tensors_)
      if (tensor.device != 0) device_.copy_to_host(tensor.host.data(), tensor.device, tensor.host.size());
  }

  /// True when every --equal holds.
  bool finish() const {
    for (const auto& [name, file] : line_.options.at("--output")) write_npy(file, dense(tensor(name)));
    bool is_equal = true;
    for (const auto& [a, b] : line_.options.at("--equal")) {
      const bool same = dense(tensor(a)).data == dense(tensor(b)).data;
      fmt::print("{} {} {}\n", a, same ? "equals" : "differs from", b);
      is_equal = is_equal && same;
    }
    return is_equal;
  }

 private:
  const Tensor& tensor(const std::string& name) const {
    return tensors_[static_cast<std::size_t>(launcher_.buffer_index(name))];
  }

  const CommandLine& line_;
  Device& device_;
  Launcher& launcher_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<Tensor> tensors_;
  std::vector<DevicePointer> pointers_;
  DevicePointer workspace_ = 0;
  std::int64_t workspace_bytes_ = 0;
};

int run(int argc, char** argv) {
  const CommandLine line = parse_command_line(argc, argv);
  const std::filesystem::path folder = line.folder;
  const OrderedJson json = parse_json(read_text(folder / "plan.json"), "plan.json");
  const JsonValue root(json, "plan.json");
  const LaunchPlan plan = launch_plan_from_json(root.at("launch").json());
  Image image;
  image.cubin = read_bytes(folder / "kernel.cubin");
  for (const LaunchStep& step : plan.steps)
    if (step.is_merge) image.merge.cubin = read_bytes(folder / "merge.cubin");
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) {
    fmt::print("not run: {}\n", reason);
    return 77;
  }
  const std::unique_ptr<Device> device = make_cuda_device();
  Launcher launcher(*device, plan, image);
  Session session(line, *device, launcher);
  session.launch();
  fmt::print("{} ran on {}\n", plan.steps.front().entry, device->info().name);
  return session.finish() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const Error& error) {
    fmt::print(stderr, "plan_launcher: {}\n", error.what());
    for (const std::string& note : error.notes()) fmt::print(stderr, "  {}\n", note);
    return error.kind() == ErrorKind::usage ? 2 : 5;
  }
}
