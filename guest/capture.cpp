#include "guest/capture.h"

#include <algorithm>
#include <string_view>

namespace tessera::guest {
namespace {

// Calls that no stream sees and that may wait for all work, by both APIs' names.
constexpr std::string_view kUnsafe[] = {"cudaMalloc",
                                        "cudaMallocManaged",
                                        "cudaHostAlloc",
                                        "cudaFree",
                                        "cudaFreeHost",
                                        "cudaHostRegister",
                                        "cudaHostUnregister",
                                        "cudaMallocArray",
                                        "cudaMalloc3DArray",
                                        "cudaMallocMipmappedArray",
                                        "cudaFreeArray",
                                        "cudaFreeMipmappedArray",
                                        "cudaEventQuery",
                                        "cudaEventSynchronize",
                                        "cuMemAlloc_v2",
                                        "cuMemAllocManaged",
                                        "cuMemHostAlloc",
                                        "cuMemFree_v2",
                                        "cuMemFreeHost",
                                        "cuMemHostRegister_v2",
                                        "cuMemHostUnregister",
                                        "cuArrayCreate_v2",
                                        "cuArray3DCreate_v2",
                                        "cuArrayDestroy",
                                        "cuMipmappedArrayCreate",
                                        "cuMipmappedArrayDestroy",
                                        "cuModuleLoadData",
                                        "cuModuleLoadDataEx",
                                        "cuModuleLoadFatBinary",
                                        "cuModuleLoad",
                                        "cuModuleUnload"};
// Waits for the device: they would wait for what is captured, in every mode.
constexpr std::string_view kWaits[] = {"cudaDeviceSynchronize", "cuCtxSynchronize"};

template <class Names>
bool has(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// Few: a stream begins one, and ends it.
std::vector<std::shared_ptr<Capture>>& captures() {
  static auto* const made = new std::vector<std::shared_ptr<Capture>>;
  return *made;
}
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;

bool forbids(const Capture& capture) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return capture.mode != cudaStreamCaptureModeRelaxed;
  return mode_of_thread == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

/// Streams that the legacy stream waits for, and that wait for it, are captured: these captures.
std::vector<Capture*> bound_to_legacy() {
  std::vector<Capture*> found;
  for_each_stream([&](const StreamState& stream) {
    if (stream.capture && (stream.flags & cudaStreamNonBlocking) == 0) found.push_back(stream.capture.get());
  });
  return found;
}

void finish(const std::shared_ptr<Capture>& capture) {
  for_each_stream([&](StreamState& other) {
    if (other.capture != capture) return;
    other.capture = nullptr;
    other.tail.clear();
  });
  capture->graph = nullptr;  // events that still know it belong to no capture
  std::erase(captures(), capture);
}

/// Everything that runs before these nodes, themselves among it.
std::set<const Node*> ancestors(const std::vector<Node*>& nodes) {
  std::set<const Node*> all;
  std::vector<const Node*> rest(nodes.begin(), nodes.end());
  while (!rest.empty()) {
    const Node* const node = rest.back();
    rest.pop_back();
    if (!all.insert(node).second) continue;
    rest.insert(rest.end(), node->after.begin(), node->after.end());
  }
  return all;
}

}  // namespace

cudaError_t refused_in_capture(const char* function) {
  if (captures().empty()) return cudaSuccess;
  const bool is_wait = has(kWaits, function);
  if (!is_wait && !has(kUnsafe, function)) return cudaSuccess;
  bool is_refused = false;
  for (const std::shared_ptr<Capture>& capture : captures()) {
    if (!is_wait && !forbids(*capture)) continue;
    capture->is_invalid = true;
    is_refused = true;
  }
  return is_refused ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t askable(const void* stream, StreamState*& state) {
  state = find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (state->is_legacy && !captures().empty() && !bound_to_legacy().empty()) return cudaErrorStreamCaptureImplicit;
  return cudaSuccess;
}

cudaError_t usable(const void* stream, StreamState*& state) {
  const cudaError_t error = askable(stream, state);
  if (error == cudaErrorStreamCaptureImplicit)
    for (Capture* const capture : bound_to_legacy()) capture->is_invalid = true;
  if (error != cudaSuccess) return error;
  return state->capture && state->capture->is_invalid ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

cudaError_t awaitable(const void* stream) {
  StreamState* state = nullptr;
  if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
  if (!state->capture) return cudaSuccess;
  state->capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t awaitable(const EventState& event) {
  if (!event.capture) return cudaSuccess;
  event.capture->is_invalid = true;
  return cudaErrorCapturedEvent;
}

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) { return std::exchange(mode_of_thread, mode); }

cudaError_t begin_capture(const void* stream, std::shared_ptr<Graph> graph, std::vector<Node*> after,
                          cudaStreamCaptureMode mode) {
  if (mode < cudaStreamCaptureModeGlobal || mode > cudaStreamCaptureModeRelaxed) return cudaErrorInvalidValue;
  StreamState* const state = find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (state->is_legacy) return cudaErrorStreamCaptureUnsupported;
  if (state->capture) return cudaErrorIllegalState;
  state->capture = std::make_shared<Capture>(Capture{std::move(graph), state, mode, std::this_thread::get_id(), false});
  state->tail = std::move(after);
  captures().push_back(state->capture);
  return cudaSuccess;
}

cudaError_t end_capture(const void* stream, std::shared_ptr<Graph>& graph) {
  StreamState* const state = find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (!state->capture) return cudaErrorIllegalState;
  const std::shared_ptr<Capture> capture = state->capture;
  if (capture->origin != state) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id())
    return cudaErrorStreamCaptureWrongThread;
  const std::set<const Node*> joined = ancestors(state->tail);
  bool is_joined = true;
  for_each_stream([&](StreamState& other) {
    if (other.capture != capture) return;
    for (const Node* const node : other.tail) is_joined = is_joined && joined.contains(node);
  });
  graph = capture->is_invalid || !is_joined ? nullptr : capture->graph;
  finish(capture);
  return graph ? cudaSuccess : capture->is_invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
}

cudaError_t set_dependencies(const void* stream, const std::vector<Node*>& nodes, bool replaces) {
  StreamState* state = nullptr;
  if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
  if (!state->capture) return cudaErrorIllegalState;
  if (replaces) state->tail.clear();
  for (Node* const node : nodes)
    if (std::find(state->tail.begin(), state->tail.end(), node) == state->tail.end()) state->tail.push_back(node);
  return cudaSuccess;
}

void leave_capture(StreamState& state) {
  if (state.capture && state.capture->origin == &state) finish(std::shared_ptr<Capture>(state.capture));
}

}  // namespace tessera::guest
