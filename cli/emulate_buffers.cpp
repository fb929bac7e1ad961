// The buffers of a launch file: what they start with, and what they must hold afterwards.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/bound_expression.h"
#include "base/npy.h"
#include "cli/emulate_run.h"
#include "reference/comparison.h"
#include "reference/random.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

/// Calls visit(dense index, index in memory) for every element, outermost first.
template <class Visit>
void for_elements(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides, Visit visit) {
  std::vector<std::int64_t> at(shape.size(), 0);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return;
  std::int64_t offset = 0;
  for (std::uint64_t index = 0;; ++index) {
    visit(index, static_cast<std::uint64_t>(offset));
    std::size_t d = shape.size();
    while (d > 0) {
      --d;
      offset += strides[d];
      if (++at[d] < shape[d]) break;
      offset -= strides[d] * shape[d];
      at[d] = 0;
      if (d == 0) return;
    }
    if (shape.empty()) return;
  }
}

std::vector<std::int64_t> evaluate_all(const std::vector<Expression>& list, const std::vector<std::string>& names,
                                       const std::vector<std::int64_t>& sizes) {
  std::vector<std::int64_t> values;
  for (const Expression& expression : list) values.push_back(BoundExpression(expression, names).evaluate(sizes));
  return values;
}

double random_value(const reference::CounterRandom& random, const std::string& distribution, std::uint64_t index) {
  if (distribution == "normal") return random.normal(index);
  if (distribution == "uniform") return 2 * random.uniform(index) - 1;
  return static_cast<double>(random.integer(index, -4, 4));
}

}  // namespace

void EmulateRun::make_buffer(std::size_t index, std::uint64_t& total) {
  const BufferSpec& spec = file_.plan.buffers[index];
  const BufferBinding& binding = file_.buffers[index];
  Buffer buffer;
  buffer.spec = &spec;
  buffer.type = find_element_type(spec.dtype);
  buffer.shape = evaluate_all(spec.shape, names_, sizes_);
  buffer.strides = evaluate_all(spec.strides, names_, sizes_);
  std::uint64_t elements = 1, last = 0;
  bool fits = true;
  for (std::size_t d = 0; d < buffer.shape.size(); ++d) {
    if (buffer.shape[d] < 0 || buffer.strides[d] < 0)
      throw Error(ErrorKind::usage, fmt::format("buffer {}: shape [{}], strides [{}]: none may be negative", spec.name,
                                                fmt::join(buffer.shape, ", "), fmt::join(buffer.strides, ", ")));
    const auto extent = static_cast<std::uint64_t>(buffer.shape[d]);
    std::uint64_t reach = 0;
    fits = fits && !__builtin_mul_overflow(elements, extent, &elements);
    fits = fits &&
           !__builtin_mul_overflow(extent == 0 ? 0 : extent - 1, static_cast<std::uint64_t>(buffer.strides[d]), &reach);
    fits = fits && !__builtin_add_overflow(last, reach, &last);
  }
  fits = fits && last < options_.max_buffer_bytes && elements <= 2 * options_.max_buffer_bytes;
  buffer.elements = elements;
  buffer.bytes = elements == 0 || !fits ? 0 : bytes_of(*buffer.type, last + 1);
  total += buffer.bytes;
  if (!fits || total > options_.max_buffer_bytes)
    throw Error(ErrorKind::usage,
                fmt::format("buffer {}: shape [{}] of {}: the buffers of a launch may take {} bytes "
                            "together",
                            spec.name, fmt::join(buffer.shape, ", "), spec.dtype, options_.max_buffer_bytes));
  fill_buffer(buffer, binding, index);
  buffers_.push_back(std::move(buffer));
}

void EmulateRun::fill_buffer(Buffer& buffer, const BufferBinding& binding, std::size_t index) const {
  using BindingKind = BufferBinding::Kind;
  const BufferSpec& spec = *buffer.spec;
  const ElementType& type = *buffer.type;
  switch (binding.kind) {
    case BindingKind::none:
      if (spec.role == BufferRole::output) return;
      if (spec.is_optional) {
        buffer.is_null = true;
        return;
      }
      throw Error(
          ErrorKind::usage,
          fmt::format(
              "buffer {0} has no contents: bind it in bindings.buffers ({{\"file\": ...}}, {{\"random\": "
              "\"normal\"}}, {{\"fill\": 0}}, {{\"poison\": true}}, {{\"null\": true}}) or with --bind {0}=FILE.npy",
              spec.name));
    case BindingKind::poison:
      return;
    case BindingKind::null:
      buffer.is_null = true;
      return;
    case BindingKind::tensor_maps:
      if (binding.maps.size() * sizeof(TensorMapObject) > buffer.bytes)
        throw Error(ErrorKind::usage,
                    fmt::format("buffer {}: {} tensor maps need {} bytes, it has {}", spec.name, binding.maps.size(),
                                binding.maps.size() * sizeof(TensorMapObject), buffer.bytes));
      for (const std::string& name : binding.maps)
        for (std::size_t i = 0; i < file_.plan.tensor_maps.size(); ++i)
          if (file_.plan.tensor_maps[i].name == name) buffer.maps.push_back(i);
      return;
    case BindingKind::file:
      return load_file(buffer, binding.file);
    case BindingKind::fill:
    case BindingKind::random:
      break;
  }
  buffer.initial.resize(buffer.bytes);
  const reference::CounterRandom random(binding.has_seed ? binding.seed : options_.seed, index);
  for_elements(buffer.shape, buffer.strides, [&](std::uint64_t i, std::uint64_t offset) {
    if (binding.distribution == "bits") {
      set_element_bits(type, buffer.initial.data(), offset, random.bits(i));
    } else {
      const double value = binding.kind == BindingKind::fill
                               ? binding.value
                               : binding.value * random_value(random, binding.distribution, i);
      set_element(type, buffer.initial.data(), offset, value);
    }
  });
}

namespace {

/// The array of a file as elements of a type, dense: its bits where the file holds them, rounded where it holds wider
/// numbers (f32 or f64 for a narrower floating type).
std::vector<std::byte> read_elements(const std::filesystem::path& path, const std::string& name,
                                     const ElementType& type, const std::vector<std::int64_t>& shape,
                                     std::uint64_t elements) {
  NpyArray array = read_npy(path);
  std::vector<std::int64_t> packed = shape;  // 4-bit elements: two to a byte along the innermost dimension
  if (type.bits == 4 && !packed.empty()) packed.back() = (packed.back() + 1) / 2;
  const bool is_packed =
      type.bits == 4 && array.descr == "|u1" && array.shape == packed && (shape.empty() || shape.back() % 2 == 0);
  if (array.shape != shape && !is_packed)
    throw Error(ErrorKind::usage, fmt::format("{}: shape [{}], {} has [{}]", path.string(),
                                              fmt::join(array.shape, ", "), name, fmt::join(shape, ", ")));
  if ((array.descr == type.descr && type.bits >= 8) || is_packed) return std::move(array.data);
  const bool is_wide = array.descr == "<f4" || array.descr == "<f8";
  if (!is_wide || !type.format)
    throw Error(ErrorKind::usage, fmt::format("{}: holds {}, {} is {}: {}{} expected", path.string(), array.descr, name,
                                              type.name, type.descr, type.format ? ", <f4 or <f8 (rounded)" : ""));
  const ElementType& wide = *find_element_type(array.descr == "<f4" ? "f32" : "f64");
  std::vector<std::byte> made(bytes_of(type, elements));
  for (std::uint64_t i = 0; i < elements; ++i)
    set_element(type, made.data(), i, element_value(wide, array.data.data(), i));
  return made;
}

}  // namespace

void EmulateRun::load_file(Buffer& buffer, const std::filesystem::path& path) const {
  const std::vector<std::byte> dense =
      read_elements(path, buffer.spec->name, *buffer.type, buffer.shape, buffer.elements);
  buffer.initial.resize(buffer.bytes);
  for_elements(buffer.shape, buffer.strides, [&](std::uint64_t i, std::uint64_t offset) {
    set_element_bits(*buffer.type, buffer.initial.data(), offset, element_bits(*buffer.type, dense.data(), i));
  });
}

std::vector<std::byte> EmulateRun::read_dense(emulator::EmulatedDevice& device, const Buffer& buffer) const {
  std::vector<std::byte> memory(buffer.bytes);
  device.copy_to_host(memory.data(), buffer.pointer, memory.size());
  std::vector<std::byte> dense(bytes_of(*buffer.type, buffer.elements));
  for_elements(buffer.shape, buffer.strides, [&](std::uint64_t i, std::uint64_t offset) {
    set_element_bits(*buffer.type, dense.data(), i, element_bits(*buffer.type, memory.data(), offset));
  });
  return dense;
}

std::vector<std::byte> EmulateRun::expected_elements(emulator::EmulatedDevice& device, const Buffer& buffer,
                                                     const Expectation& expectation) const {
  const std::string& name = buffer.spec->name;
  if (!expectation.file.empty())
    return read_elements(expectation.file, name, *buffer.type, buffer.shape, buffer.elements);
  if (expectation.buffer.empty()) {
    std::vector<std::byte> made(bytes_of(*buffer.type, buffer.elements));
    for (std::uint64_t i = 0; i < buffer.elements; ++i) set_element(*buffer.type, made.data(), i, expectation.value);
    return made;
  }
  const Buffer& other = buffers_[index_of(file_.plan.buffers, expectation.buffer)];
  if (other.is_null || other.type != buffer.type || other.shape != buffer.shape)
    throw Error(ErrorKind::usage, fmt::format("expect: {} is compared with {}, which must have its type and shape",
                                              name, expectation.buffer));
  return read_dense(device, other);
}

void EmulateRun::compare(const Buffer& buffer, const std::vector<std::byte>& found,
                         const std::vector<std::byte>& expected, const Expectation& expectation, OrderedJson& json,
                         EmulateReport& report) const {
  const ElementType& type = *buffer.type;
  // Leading dimensions beyond what a report can name count as one.
  std::vector<std::int64_t> extents = buffer.shape;
  while (extents.size() > reference::kMaxAxes) {
    extents[1] *= extents[0];
    extents.erase(extents.begin());
  }
  reference::ElementSums sums;
  std::vector<std::int64_t> at(extents.size(), 0);
  for (std::uint64_t i = 0; i < buffer.elements; ++i) {
    reference::Element element;
    element.found = element_value(type, found.data(), i);
    element.expected = element_value(type, expected.data(), i);
    if (element_bits(type, found.data(), i) == element_bits(type, expected.data(), i) ||
        (std::isnan(element.found) && std::isnan(element.expected)))
      element.found = element.expected = std::isnan(element.expected) ? 0 : element.expected;
    element.bound = expectation.atol + expectation.rtol * std::fabs(element.expected);
    std::copy(at.begin(), at.end(), element.at.begin());
    sums.add(element);
    for (std::size_t d = extents.size(); d-- > 0;) {
      if (++at[d] < extents[d]) break;
      at[d] = 0;
    }
  }
  json["checked"] = sums.checked;
  json["mismatched"] = sums.mismatched;
  json["max_abs_error"] = std::isfinite(sums.max_abs_error) ? OrderedJson(sums.max_abs_error) : OrderedJson(nullptr);
  if (sums.mismatched == 0) return;
  std::vector<reference::Axis> axes;
  for (std::size_t d = 0; d < extents.size(); ++d) {
    const std::size_t from_end = extents.size() - d;
    axes.push_back({from_end == 1   ? "column"
                    : from_end == 2 ? "row"
                                    : fmt::format("dim{}", from_end - 1),
                    extents[d],
                    {}});
  }
  report.problems.push_back(reference::describe_mismatches(buffer.spec->name, sums, axes));
}

void EmulateRun::judge(emulator::EmulatedDevice& device, const char* schedule, EmulateReport& report) {
  for (Buffer& buffer : buffers_) {
    const std::string& name = buffer.spec->name;
    const auto expectation = file_.expected.find(name);
    const auto saved = file_.saved.find(name);
    const bool is_output = buffer.spec->role != BufferRole::input;
    if (buffer.is_null || (!is_output && expectation == file_.expected.end() && saved == file_.saved.end())) continue;
    const std::vector<std::byte> found = read_dense(device, buffer);
    OrderedJson json{{"name", name}, {"dtype", buffer.type->name}, {"shape", buffer.shape}};
    const std::uint64_t unwritten = device.uninitialised_bytes(buffer.pointer, buffer.bytes);
    json["bytes_never_written"] = unwritten;
    if (unwritten > 0)
      report.notes.push_back(fmt::format("{}: {} of {} bytes were never written", name, unwritten, buffer.bytes));
    if (expectation != file_.expected.end())
      compare(buffer, found, expected_elements(device, buffer, expectation->second), expectation->second, json, report);
    // What nothing is expected of must at least be the same whoever runs when.
    else if (is_output && report.schedules.size() > 1 && found != buffer.first)
      report.problems.push_back(fmt::format("{}: schedule {} gave other bits than {} (again: --schedule {} --seed {})",
                                            name, schedule, report.schedules[0]["schedule"].get<std::string>(),
                                            schedule, options_.seed));
    if (report.schedules.size() == 1) buffer.first = found;
    report.outputs.push_back(std::move(json));
    // Last, because it may be the file that was compared with.
    if (saved != file_.saved.end()) {
      std::vector<std::int64_t> shape = buffer.shape;
      if (buffer.type->bits == 4 && !shape.empty()) shape = {static_cast<std::int64_t>(found.size())};
      write_npy(saved->second, {std::string(buffer.type->descr), shape, found});
    }
  }
}

}  // namespace tessera::cli
