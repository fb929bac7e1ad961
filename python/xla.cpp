#include "xla.h"

#include <nanobind/stl/string.h>

#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

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
  std::unordered_map<std::string, Call> calls;
  nb::object restore, emulate;
};
State& state() {
  static auto* const all = new State();  // outlives the interpreter: XLA's threads may still run
  return *all;
}

std::optional<Call> find(const std::string& text) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  const auto at = all.calls.find(text);
  return at == all.calls.end() ? std::nullopt : std::optional<Call>(at->second);
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

std::optional<std::string> text_of(const Frame& frame) {
  for (std::int64_t i = 0; i < frame.attributes.count; ++i) {
    const Span& name = *frame.attributes.names[i];
    if (std::string_view(name.data, name.size) == "launch" && frame.attributes.types[i] == kString) {
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

/// Calls a function of Python; the message of what it raised.
template <class F>
std::optional<std::string> failure_of(const F& call) {
  const nb::gil_scoped_acquire locked;
  try {
    call();
    return std::nullopt;
  } catch (nb::python_error& raised) {
    return nb::cast<std::string>(nb::str(raised.value()));
  }
}

void* launch_on_gpu(Frame* frame) {
  if (answers_metadata(*frame)) return nullptr;
  const std::optional<std::string> text = text_of(*frame);
  if (!text) return error(*frame, kInvalidArgument, "tessera: the call has no attribute 'launch'");
  std::optional<Call> call = find(*text);
  if (!call) {
    if (const auto failure = failure_of([&] { state().restore(*text); }))
      return error(*frame, kFailedPrecondition, "tessera: " + *failure);
    call = find(*text);
  }
  const std::vector<std::uint64_t> operands = addresses(frame->operands), results = addresses(frame->results);
  if (!call || operands.size() != call->operands.size() ||
      results.size() != call->results.size() + (call->with_workspace ? 1U : 0U))
    return error(*frame, kInternal, "tessera: operands and results are not those of the launch");
  for (std::size_t i = 0; i < operands.size(); ++i) call->values.buffers[call->operands[i]] = operands[i];
  for (std::size_t i = 0; i < call->results.size(); ++i) call->values.buffers[call->results[i]] = results[i];
  if (call->with_workspace) call->values.workspace = results.back();
  StreamArguments stream{sizeof stream, nullptr, frame->context, nullptr};
  if (void* const failed = frame->api->get_stream(&stream); failed != nullptr) return failed;
  const tessera_arguments arguments = call->values.get();
  if (tessera_kernel_launch(call->values.kernel, nullptr, stream.stream, &arguments) == TESSERA_OK) return nullptr;
  return error(*frame, kInternal, std::string("tessera: ") + tessera_error_message());
}

void* run_on_host(Frame* frame) {
  if (answers_metadata(*frame)) return nullptr;
  const std::optional<std::string> text = text_of(*frame);
  if (!text) return error(*frame, kInvalidArgument, "tessera: the call has no attribute 'launch'");
  const std::vector<std::uint64_t> operands = addresses(frame->operands), results = addresses(frame->results);
  if (const auto failure = failure_of([&] { state().emulate(*text, as_list(operands), as_list(results)); }))
    return error(*frame, kInternal, "tessera: " + *failure);
  return nullptr;
}

}  // namespace

void remember(const std::string& text, Call call) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  all.calls.emplace(text, std::move(call));
}

void set_functions(nb::object restore, nb::object emulate) {
  state().restore = std::move(restore);
  state().emulate = std::move(emulate);
}

nb::object handler(const std::string& platform) {
  auto* const function = platform == "CUDA" ? launch_on_gpu : run_on_host;
  return nb::steal(PyCapsule_New(reinterpret_cast<void*>(function), nullptr, nullptr));  // NOLINT
}

}  // namespace xla
