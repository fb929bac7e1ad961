#include "xla.h"

#include <nanobind/stl/string.h>

#include <bit>
#include <charconv>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "interpreter.h"

namespace nb = nanobind;

namespace xla {

namespace {

// XLA's structures, as far as they are read here (xla/ffi/api/c_api.h, interface 0.1 and later). Each begins with its
// size; later versions add behind.
struct Extension {
  std::size_t size;
  int type;  // 1: Metadata
  Extension* next;
};
struct Version {
  std::size_t size;
  Extension* extensions;
  int major, minor;
};
struct Metadata {
  std::size_t size;
  Version version;
  std::uint32_t traits;
};
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};
struct ErrorArguments {
  std::size_t size;
  Extension* extensions;
  const char* message;
  int code;
};
struct StreamArguments {
  std::size_t size;
  Extension* extensions;
  void* context;
  void* stream;
};
struct Api {
  std::size_t size;
  Extension* extensions;
  Version version;
  const void* internal;
  void* (*make_error)(ErrorArguments*);
  void (*message_of_error)(void*);
  void (*destroy_error)(void*);
  void* (*register_handler)(void*);
  void* (*get_stream)(StreamArguments*);
};
struct Buffer {
  std::size_t size;
  Extension* extensions;
  int dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};
struct Span {
  const char* data;
  std::size_t size;
};
struct Buffers {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  int* types;  // 1: Buffer
  Buffer** buffers;
};
struct Attributes {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  int* types;  // 4: Span
  Span** names;
  void** values;
};
struct Frame {
  std::size_t size;
  Extension* extensions;
  const Api* api;
  void* context;
  int stage;
  Buffers operands, results;
  Attributes attributes;
};

constexpr int kInvalidArgument = 3, kFailedPrecondition = 9, kInternal = 13;
constexpr int kMetadata = 1, kBuffer = 1, kString = 4;

struct State {
  std::mutex mutex;
  std::unordered_map<std::string, SharedCall> calls;
  nb::object restore, emulate;
};
State& state() {
  static auto* const all = new State();  // outlives the interpreter: XLA's threads may still run
  return *all;
}

SharedCall find(const std::string& text) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto at = all.calls.find(text);
  return at == all.calls.end() ? nullptr : at->second;
}

void* error(const Frame& frame, int code, const std::string& message) {
  ErrorArguments arguments{sizeof arguments, nullptr, message.c_str(), code};
  return frame.api->make_error(&arguments);
}

/// Answers what XLA asks when the handler is registered. True if that was all.
bool answers_metadata(const Frame& frame) {
  for (Extension* extension = frame.extensions; extension != nullptr; extension = extension->next)
    if (extension->type == kMetadata) {
      Metadata& metadata = *reinterpret_cast<MetadataExtension*>(extension)->metadata;  // NOLINT
      metadata.version.major = 0;
      metadata.version.minor = 1;
      metadata.traits = 0;
      return true;
    }
  return false;
}

std::optional<std::string> attribute(const Frame& frame, std::string_view wanted) {
  for (std::int64_t i = 0; i < frame.attributes.count; ++i) {
    const Span& name = *frame.attributes.names[i];
    if (std::string_view(name.data, name.size) == wanted && frame.attributes.types[i] == kString) {
      const Span& text = *static_cast<const Span*>(frame.attributes.values[i]);
      return std::string(text.data, text.size);
    }
  }
  return std::nullopt;
}

std::vector<std::uint64_t> addresses(const Buffers& buffers) {
  std::vector<std::uint64_t> all;
  for (std::int64_t i = 0; i < buffers.count; ++i)
    all.push_back(buffers.types[i] == kBuffer ? reinterpret_cast<std::uintptr_t>(buffers.buffers[i]->data) : 0);
  return all;
}

nb::list as_list(const std::vector<std::uint64_t>& values) {
  nb::list all;
  for (const std::uint64_t value : values) all.append(value);
  return all;
}

/// False where the text is none.
bool set_scalars(LaunchValues& values, std::string_view text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::size_t index = 0;
    std::uint64_t bits = 0;
    const auto of_index = std::from_chars(at, end, index);
    if (of_index.ec != std::errc() || of_index.ptr == end || *of_index.ptr != '=') return false;
    const auto of_bits = std::from_chars(of_index.ptr + 1, end, bits);
    if (of_bits.ec != std::errc() || index >= values.scalars.size()) return false;
    values.scalars[index] = std::bit_cast<double>(bits);
    at = of_bits.ptr;
    if (at != end && *at++ != ' ') return false;
  }
  return true;
}

/// "[usage] its words", and its notes.
std::string words_of(const nb::python_error& raised) {
  try {
    const nb::handle value = raised.value();
    std::string words = nb::cast<std::string>(nb::str(value));
    if (words.empty()) words = nb::cast<std::string>(nb::getattr(raised.type(), "__name__"));
    std::string text =
        "[" + nb::cast<std::string>(nb::str(nb::getattr(value, "kind", nb::str("internal")))) + "] " + words;
    for (const nb::handle note : nb::list(nb::getattr(value, "notes", nb::list())))
      text += "\n" + nb::cast<std::string>(nb::str(note));
    return text;
  } catch (const std::exception&) {  // an exception without words
    PyErr_Clear();
    return "[internal] an exception that cannot say what it is";
  }
}

/// Calls a function of Python; the words of what it raised.
template <class F>
std::optional<std::string> failure_of(const F& call) {
  const interpreter::Locked locked;
  if (!locked) return "[device] the process is ending";
  try {
    call();
    return std::nullopt;
  } catch (const nb::python_error& raised) {
    return words_of(raised);
  }
}

void* launch_on_gpu(Frame* frame) {
  if (answers_metadata(*frame)) return nullptr;
  const std::optional<std::string> text = attribute(*frame, "launch");
  if (!text) return error(*frame, kInvalidArgument, "tessera: the call has no attribute 'launch'");
  SharedCall call = find(*text);
  if (!call) {
    if (const auto failure = failure_of([&] { state().restore(*text); }))
      return error(*frame, kFailedPrecondition, "tessera: " + *failure);
    call = find(*text);
  }
  const std::vector<std::uint64_t> operands = addresses(frame->operands), results = addresses(frame->results);
  if (!call || operands.size() != call->operands.size() ||
      results.size() != call->results.size() + (call->with_workspace ? 1U : 0U))
    return error(*frame, kInternal, "tessera: operands and results are not those of the launch");
  LaunchValues values = call->values;
  if (!set_scalars(values, attribute(*frame, "scalars").value_or("")))
    return error(*frame, kInvalidArgument, "tessera: the call's attribute 'scalars' is not one of tessera's");
  for (std::size_t i = 0; i < operands.size(); ++i) values.buffers[call->operands[i]] = operands[i];
  for (std::size_t i = 0; i < call->results.size(); ++i) values.buffers[call->results[i]] = results[i];
  if (call->with_workspace) values.workspace = results.back();
  StreamArguments stream{sizeof stream, nullptr, frame->context, nullptr};
  if (void* const failed = frame->api->get_stream(&stream); failed != nullptr) return failed;
  const tessera_arguments arguments = values.get();
  const tessera_status status = tessera_kernel_launch(values.kernel.get(), nullptr, stream.stream, &arguments);
  if (status == TESSERA_OK) return nullptr;
  return error(*frame, kInternal,
               std::string("tessera: [") + tessera_status_name(status) + "] " + tessera_error_message());
}

void* run_on_host(Frame* frame) {
  if (answers_metadata(*frame)) return nullptr;
  const std::optional<std::string> text = attribute(*frame, "launch");
  if (!text) return error(*frame, kInvalidArgument, "tessera: the call has no attribute 'launch'");
  const std::vector<std::uint64_t> operands = addresses(frame->operands), results = addresses(frame->results);
  const std::string scalars = attribute(*frame, "scalars").value_or("");
  if (const auto failure = failure_of([&] { state().emulate(*text, scalars, as_list(operands), as_list(results)); }))
    return error(*frame, kInternal, "tessera: " + *failure);
  return nullptr;
}

void* refuse_on_host(Frame* frame) {
  if (answers_metadata(*frame)) return nullptr;
  return error(*frame, kFailedPrecondition,
               "tessera: [usage] arrays lie on the CPU: give device='emulator', or arrays on a GPU");
}

}  // namespace

SharedCall remember(const std::string& text, SharedCall call) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  return std::exchange(all.calls[text], std::move(call));
}

void set_functions(nb::object restore, nb::object emulate) {
  state().restore = std::move(restore);
  state().emulate = std::move(emulate);
}

nb::object handler(const std::string& what) {
  auto* const function = what == "launch" ? launch_on_gpu : what == "emulate" ? run_on_host : refuse_on_host;
  return nb::steal(PyCapsule_New(reinterpret_cast<void*>(function), nullptr, nullptr));  // NOLINT
}

}  // namespace xla
