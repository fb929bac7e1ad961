// The CUDA runtime's streams and events. Most work runs inside the call that asks for it (work.h), so waits are for
// what is done in turns (turns.h); what they say is the error that the context is in.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "guest/capture.h"
#include "guest/stream_order.h"
#include "guest/turns.h"

using namespace tessera::guest;

namespace {

EventState* state_of(cudaEvent_t event) { return reinterpret_cast<EventState*>(event); }

// The host goes on behind what it asked about, where that is done.
template <class Waited>
cudaError_t noted(cudaError_t error, Waited& waited) {
  if (error == cudaSuccess) StreamOrder::instance().host_waited_for(waited);
  return error;
}

cudaError_t known(const void* stream) {
  return find_stream(stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
}

Items items_of(const EventState& event) {
  return event.item == nullptr || event.item->is_done ? Items() : Items{event.item};
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return called(__func__, [&]() -> cudaError_t {
    if (stream == nullptr || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) return cudaErrorInvalidValue;
    *stream = reinterpret_cast<cudaStream_t>(make_stream(flags, priority));
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return called(__func__, [&] { return destroy_stream(stream); });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return called(__func__, [&] {
    if (const cudaError_t error = awaitable(stream); error != cudaSuccess) return error;
    StreamState& state = *find_stream(stream);
    return noted(wait_for(unfinished(state)), state);
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    if (const cudaError_t error = awaitable(stream); error != cudaSuccess) return error;
    StreamState& state = *find_stream(stream);
    return noted(query(unfinished(state)), state);
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return called(__func__, [&] {
    if (const StreamState* const state = find_stream(stream)) *priority = state->priority;
    return known(stream);
  });
}
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return called(__func__, [&] {
    if (const StreamState* const state = find_stream(stream)) *flags = state->flags;
    return known(stream);
  });
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return called(__func__, [&] {
    if (const StreamState* const state = find_stream(stream)) *id = state->id;
    return known(stream);
  });
}
cudaError_t cudaStreamGetDevice(cudaStream_t, int* device) { return cudaGetDevice(device); }
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, const cudaStreamAttrValue* value) {
  return called(__func__, [&]() -> cudaError_t {
    StreamState* const state = find_stream(stream);
    if (state == nullptr) return cudaErrorInvalidResourceHandle;
    if (value == nullptr) return cudaErrorInvalidValue;
    state->attributes[attribute] = *value;
    if (attribute == cudaLaunchAttributePriority) state->priority = std::clamp(value->priority, -5, 0);
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaStreamAttrID attribute, cudaStreamAttrValue* value) {
  return called(__func__, [&]() -> cudaError_t {
    StreamState* const state = find_stream(stream);
    if (state == nullptr) return cudaErrorInvalidResourceHandle;
    if (value == nullptr) return cudaErrorInvalidValue;
    *value = state->attributes[attribute];
    if (attribute == cudaLaunchAttributePriority) value->priority = state->priority;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamCopyAttributes(cudaStream_t to, cudaStream_t from) {
  return called(__func__, [&]() -> cudaError_t {
    StreamState *const target = find_stream(to), *const source = find_stream(from);
    if (target == nullptr || source == nullptr) return cudaErrorInvalidResourceHandle;
    target->attributes = source->attributes;
    return cudaSuccess;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    return flags > cudaEventWaitExternal ? cudaErrorInvalidValue
                                         : wait(stream, *state_of(event), flags == cudaEventWaitExternal);
  });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return called(__func__, [&]() -> cudaError_t {
    StreamState* state = nullptr;
    if (const cudaError_t error = askable(stream, state); error != cudaSuccess) return error;
    *status = !state->capture              ? cudaStreamCaptureStatusNone
              : state->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    constexpr unsigned kKnown = cudaEventBlockingSync | cudaEventDisableTiming | cudaEventInterprocess;
    const bool is_shared_and_timed = (flags & cudaEventInterprocess) != 0 && (flags & cudaEventDisableTiming) == 0;
    if (event == nullptr || (flags & ~kKnown) != 0 || is_shared_and_timed) return cudaErrorInvalidValue;
    auto* const made = new EventState;
    made->has_timing = (flags & cudaEventDisableTiming) == 0;
    *event = reinterpret_cast<cudaEvent_t>(made);
    return cudaSuccess;
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return called(__func__, [&]() -> cudaError_t {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    forget_event(*state_of(event));
    delete state_of(event);
    return cudaSuccess;
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    return flags > cudaEventRecordExternal ? cudaErrorInvalidValue
                                           : record(*state_of(event), stream, flags == cudaEventRecordExternal);
  });
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return called(__func__, [&]() -> cudaError_t {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = awaitable(*state_of(event)); error != cudaSuccess) return error;
    return noted(wait_for(items_of(*state_of(event))), *state_of(event));
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return called(__func__, [&]() -> cudaError_t {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = awaitable(*state_of(event)); error != cudaSuccess) return error;
    return noted(query(items_of(*state_of(event))), *state_of(event));
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return called(__func__, [&]() -> cudaError_t {
    if (from == nullptr || to == nullptr) return cudaErrorInvalidResourceHandle;
    const EventState &first = *state_of(from), &last = *state_of(to);
    for (const EventState* const event : {&first, &last})
      if (const cudaError_t error = awaitable(*event); error != cudaSuccess) return error;
    if (!items_of(first).empty() || !items_of(last).empty()) return cudaErrorNotReady;
    if (!first.is_recorded || !last.is_recorded || !first.has_timing || !last.has_timing)
      return cudaErrorInvalidResourceHandle;
    for (const EventState* const event : {&first, &last}) StreamOrder::instance().host_waited_for(*event);
    *milliseconds = static_cast<float>((last.seconds - first.seconds) * 1e3);
    return cudaSuccess;
  });
}

}  // extern "C"
