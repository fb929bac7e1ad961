// The CUDA runtime's capture of streams into graphs.
#include <cuda_runtime_api.h>

#include "guest/capture.h"
#include "guest/graph.h"
#include "guest/loaded.h"

using namespace tessera::guest;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return called(__func__, [&] { return begin_capture(stream, std::make_shared<Graph>(), {}, mode); });
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t* after,
                                          const cudaGraphEdgeData*, std::size_t count, cudaStreamCaptureMode mode) {
  return called(__func__, [&]() -> cudaError_t {
    std::shared_ptr<Graph> of = find_graph(graph);
    return of ? begin_capture(stream, std::move(of), nodes_of(after, count), mode) : cudaErrorInvalidValue;
  });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return called(__func__, [&] {
    std::shared_ptr<Graph> made;
    const cudaError_t error = end_capture(stream, made);
    // Null: of a capture to a graph that the program has.
    if (graph != nullptr) *graph = made ? reinterpret_cast<cudaGraph_t>(keep_graph(made)) : nullptr;
    return error;
  });
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal || *mode > cudaStreamCaptureModeRelaxed)
    return told(cudaErrorInvalidValue);
  *mode = exchange_capture_mode(*mode);
  return cudaSuccess;
}
cudaError_t cudaStreamUpdateCaptureDependencies_v2(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                   const cudaGraphEdgeData*, std::size_t count, unsigned flags) {
  return called(__func__, [&] {
    return set_dependencies(stream, nodes_of(nodes, count), flags == cudaStreamSetCaptureDependencies);
  });
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData* edges, std::size_t count, unsigned flags) {
  if (is_program_of_cuda_12()) {
    flags = static_cast<unsigned>(count);
    count = address_of(edges);
  }
  return cudaStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags);
}
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                        cudaGraph_t* graph, const cudaGraphNode_t** after, std::size_t* count) {
  return called(__func__, [&]() -> cudaError_t {
    StreamState* state = nullptr;
    if (const cudaError_t error = askable(stream, state); error != cudaSuccess) return error;
    *status = !state->capture              ? cudaStreamCaptureStatusNone
              : state->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    if (!state->capture || state->capture->is_invalid) return cudaSuccess;
    if (id != nullptr) *id = address_of(state->capture.get());
    if (graph != nullptr) *graph = reinterpret_cast<cudaGraph_t>(keep_graph(state->capture->graph));
    if (after != nullptr) *after = reinterpret_cast<const cudaGraphNode_t*>(state->tail.data());
    if (count != nullptr) *count = state->tail.size();
    return cudaSuccess;
  });
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** after, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, after, count);
}

}  // extern "C"
