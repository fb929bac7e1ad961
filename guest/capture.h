// What may be asked for while a stream is captured (CUDA programming guide, "Prohibited and unhandled operations";
// cudaThreadExchangeStreamCaptureMode): a capture sees only what streams are asked to do, so calls that it does not see
// and that its graph may depend on are refused, and the capture with them.
#pragma once

#include <cuda_runtime_api.h>

#include "guest/work.h"

namespace tessera::guest {

/// The error of a call by this name that may not be made now; the captures that it is refused for are broken.
cudaError_t refused_in_capture(const char* function);
/// The stream for new work: an error where there is none, where its capture is broken, or where the legacy stream would
/// wait for one that is captured, which breaks that capture.
cudaError_t usable(const void* stream, StreamState*& state);
/// The same for a question that breaks nothing.
cudaError_t askable(const void* stream, StreamState*& state);
/// For a wait for the stream, or a question about its work: refused in a capture.
cudaError_t awaitable(const void* stream);
/// For a wait for the event: refused where a captured stream recorded it last.
cudaError_t awaitable(const EventState& event);

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);
cudaError_t begin_capture(const void* stream, std::shared_ptr<Graph> graph, std::vector<Node*> after,
                          cudaStreamCaptureMode mode);
cudaError_t end_capture(const void* stream, std::shared_ptr<Graph>& graph);
/// What the stream's next work waits for: more nodes, or others.
cudaError_t set_dependencies(const void* stream, const std::vector<Node*>& nodes, bool replaces);
/// A stream that goes: its capture has no end.
void leave_capture(StreamState& state);

}  // namespace tessera::guest

// The runtime's under names that CUDA 13's header does not have, for the driver's.
extern "C" {
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t, cudaGraphNode_t*, const cudaGraphEdgeData*,
                                                   std::size_t, unsigned);
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                std::size_t, cudaGraphNodeParams*);
cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t, const cudaGraphNode_t*, const cudaGraphNode_t*,
                                           const cudaGraphEdgeData*, std::size_t);
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t, cudaStreamCaptureStatus*, unsigned long long*, cudaGraph_t*,
                                        const cudaGraphNode_t**, std::size_t*);
}
