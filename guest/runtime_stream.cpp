// The CUDA runtime's streams and events. Most work runs inside the call that asks for it (work.h), so waits have
// nothing to wait for but launches that rest (turns.h); what they say is the error that the context is in.
#include <cuda_runtime_api.h>

#include "guest/turns.h"

using namespace tessera::guest;

namespace {

EventState* state_of(cudaEvent_t event) { return reinterpret_cast<EventState*>(event); }

cudaError_t known(const void* stream) {
  return find_stream(stream) == nullptr ? cudaErrorInvalidResourceHandle : cudaSuccess;
}

// A wait breaks a capture.
template <class Then>
cudaError_t known_and_free(const void* stream, Then&& then) {
  StreamState* const state = find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (!state->capture) return then(unfinished(*state));
  state->capture->is_invalid = true;
  return cudaErrorStreamCaptureUnsupported;
}

Items items_of(const EventState& event) {
  return event.item == nullptr || event.item->is_done ? Items() : Items{event.item};
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return called(__func__, [&] {
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
  return called(__func__, [&]() -> cudaError_t {
    return known_and_free(stream, [](const Items& items) { return wait_for(items); });
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return called(__func__, [&] {
    return known_and_free(stream, [](const Items& items) { return are_done(items) ? cudaSuccess : cudaErrorNotReady; });
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
cudaError_t cudaStreamSetAttribute(cudaStream_t, cudaStreamAttrID, const cudaStreamAttrValue*) { return cudaSuccess; }
cudaError_t cudaStreamCopyAttributes(cudaStream_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return called(__func__, [&] { return wait(stream, *state_of(event)); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return called(__func__, [&]() -> cudaError_t {
    const StreamState* const state = find_stream(stream);
    if (state == nullptr) return cudaErrorInvalidResourceHandle;
    *status = !state->capture              ? cudaStreamCaptureStatusNone
              : state->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return called(__func__, [&] {
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
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    return event == nullptr ? cudaErrorInvalidResourceHandle : record(*state_of(event), stream);
  });
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return called(__func__, [&]() -> cudaError_t {
    return event == nullptr ? cudaErrorInvalidResourceHandle : wait_for(items_of(*state_of(event)));
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return called(__func__, [&]() -> cudaError_t {
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    return are_done(items_of(*state_of(event))) ? cudaSuccess : cudaErrorNotReady;
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return called(__func__, [&]() -> cudaError_t {
    if (from == nullptr || to == nullptr) return cudaErrorInvalidResourceHandle;
    const EventState &first = *state_of(from), &last = *state_of(to);
    if (!items_of(first).empty() || !items_of(last).empty()) return cudaErrorNotReady;
    if (!first.is_recorded || !last.is_recorded || !first.has_timing || !last.has_timing)
      return cudaErrorInvalidResourceHandle;
    *milliseconds = static_cast<float>((last.seconds - first.seconds) * 1e3);
    return cudaSuccess;
  });
}

}  // extern "C"
