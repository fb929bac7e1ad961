// The CUDA driver's graphs and its capture of streams: handles, nodes and graphs are those of the runtime. Functions
// that got edges' data under a new name have both forms; the data is not read.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>

#include "guest/capture.h"
#include "guest/driver.h"
#include "guest/driver_work.h"
#include "guest/graph.h"

using namespace tessera::guest;

namespace {

CUresult answer(cudaError_t error) { return static_cast<CUresult>(error); }
template <class Make>
CUresult add(const char* function, CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
             Make make) {
  return drive(function, [&] { return add_node(node, graph, after, count, make); });
}
template <class Make>
CUresult change(const char* function, CUgraphExec exec, CUgraphNode node, Make make) {
  return drive(function, [&] { return change_node(exec, node, make); });
}

// Both forms of the structure begin alike; the newer one may name a CUkernel instead.
auto kernel_work(const CUDA_KERNEL_NODE_PARAMS_v1& given, CUfunction function) {
  return [&given, function](Work& made) -> cudaError_t {
    LaunchWork work;
    work.grid = {given.gridDimX, given.gridDimY, given.gridDimZ};
    work.block = {given.blockDimX, given.blockDimY, given.blockDimZ};
    work.smem = given.sharedMemBytes;
    work.host = function;
    const cudaError_t error = complete(work, function, given.kernelParams, given.extra);
    made = std::move(work);
    return error;
  };
}
auto kernel_work(const CUDA_KERNEL_NODE_PARAMS& given) {
  const CUfunction function = given.func != nullptr ? given.func : reinterpret_cast<CUfunction>(given.kern);
  return kernel_work(reinterpret_cast<const CUDA_KERNEL_NODE_PARAMS_v1&>(given), function);
}
auto copy_work(const CUDA_MEMCPY3D& given) {
  return [&given](Work& made) {
    Box box;
    const cudaError_t error = box_of(given, box);
    made = box;
    return error;
  };
}
auto fill_work(const CUDA_MEMSET_NODE_PARAMS& given) {
  return [&given](Work& made) -> cudaError_t {
    if (given.elementSize != 1 && given.elementSize != 2 && given.elementSize != 4) return cudaErrorInvalidValue;
    Fill fill;
    fill.to = pointer_of(given.dst);
    fill.pitch = given.pitch;
    fill.value = given.value;
    fill.element_bytes = given.elementSize;
    fill.width = given.width;
    fill.height = given.height;
    made = fill;
    return cudaSuccess;
  };
}
auto host_work(const CUDA_HOST_NODE_PARAMS& given) {
  return [&given](Work& made) {
    made = HostWork{given.fn, given.userData};
    return cudaSuccess;
  };
}

/// Fills in as many as there is room for; without a list their count alone.
void fill_in(const std::vector<Node*>& list, CUgraphNode* nodes, std::size_t* count) {
  if (nodes != nullptr)
    for (std::size_t i = 0; i < std::min(*count, list.size()); ++i) nodes[i] = reinterpret_cast<CUgraphNode>(list[i]);
  *count = nodes == nullptr ? list.size() : std::min(*count, list.size());
}

}  // namespace

// Older forms, which the header has renamed.
#undef cuGraphAddKernelNode
#undef cuGraphKernelNodeSetParams
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphAddDependencies
#undef cuGraphGetEdges
#undef cuGraphNodeGetDependencies
#undef cuGraphNodeGetDependentNodes
#undef cuGraphInstantiate
#undef cuStreamUpdateCaptureDependencies

extern "C" {

// Graphs and their nodes.
CUresult cuGraphCreate(CUgraph* graph, unsigned flags) { return answer(cudaGraphCreate(graph, flags)); }
CUresult cuGraphDestroy(CUgraph graph) { return answer(cudaGraphDestroy(graph)); }
CUresult cuGraphClone(CUgraph* clone, CUgraph graph) { return answer(cudaGraphClone(clone, graph)); }
CUresult cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS* given) {
  return add(__func__, node, graph, after, count, kernel_work(*given));
}
CUresult cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                              const CUDA_KERNEL_NODE_PARAMS_v1* given) {
  return add(__func__, node, graph, after, count, kernel_work(*given, given->func));
}
CUresult cuGraphAddMemcpyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                              const CUDA_MEMCPY3D* given, CUcontext) {
  return add(__func__, node, graph, after, count, copy_work(*given));
}
CUresult cuGraphAddMemsetNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                              const CUDA_MEMSET_NODE_PARAMS* given, CUcontext) {
  return add(__func__, node, graph, after, count, fill_work(*given));
}
CUresult cuGraphAddHostNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                            const CUDA_HOST_NODE_PARAMS* given) {
  return add(__func__, node, graph, after, count, host_work(*given));
}
CUresult cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count) {
  return answer(cudaGraphAddEmptyNode(node, graph, after, count));
}
CUresult cuGraphAddEventRecordNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                   CUevent event) {
  return answer(cudaGraphAddEventRecordNode(node, graph, after, count, event));
}
CUresult cuGraphAddEventWaitNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                 CUevent event) {
  return answer(cudaGraphAddEventWaitNode(node, graph, after, count, event));
}
CUresult cuGraphAddChildGraphNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                  CUgraph child) {
  return answer(cudaGraphAddChildGraphNode(node, graph, after, count, child));
}
CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS* given) {
  cudaMemAllocNodeParams same{};
  same.bytesize = given->bytesize;
  const cudaError_t error = cudaGraphAddMemAllocNode(node, graph, after, count, &same);
  given->dptr = address_of(same.dptr);
  return answer(error);
}
CUresult cuGraphAddMemFreeNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                               CUdeviceptr pointer) {
  return answer(cudaGraphAddMemFreeNode(node, graph, after, count, pointer_of(pointer)));
}
CUresult cuGraphAddDependencies(CUgraph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  return drive(__func__, [&] {
    for (std::size_t i = 0; i < count; ++i) node_of(to[i])->after.push_back(node_of(from[i]));
    return cudaSuccess;
  });
}
CUresult cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                   const CUgraphEdgeData*, std::size_t count) {
  return cuGraphAddDependencies(graph, from, to, count);
}
CUresult cuGraphDestroyNode(CUgraphNode node) { return answer(cudaGraphDestroyNode(node)); }

// What a graph has.
CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return answer(cudaGraphGetNodes(graph, nodes, count));
}
CUresult cuGraphGetRootNodes(CUgraph graph, CUgraphNode* nodes, std::size_t* count) {
  return answer(cudaGraphGetRootNodes(graph, nodes, count));
}
CUresult cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return drive(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of) return cudaErrorInvalidValue;
    std::vector<Node*> begins, ends;
    for (Node& node : of->nodes)
      for (Node* const before : node.after) {
        begins.push_back(before);
        ends.push_back(&node);
      }
    std::size_t same = *count;
    fill_in(begins, from, &same);
    fill_in(ends, to, count);
    return cudaSuccess;
  });
}
CUresult cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData*, std::size_t* count) {
  return cuGraphGetEdges(graph, from, to, count);
}
CUresult cuGraphNodeGetDependencies(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
  fill_in(node_of(node)->after, nodes, count);
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData*, std::size_t* count) {
  return cuGraphNodeGetDependencies(node, nodes, count);
}
CUresult cuGraphNodeGetDependentNodes(CUgraphNode node, CUgraphNode* nodes, std::size_t* count) {
  std::vector<Node*> list;
  for (Node& other : node_of(node)->graph->nodes)
    if (std::find(other.after.begin(), other.after.end(), node_of(node)) != other.after.end()) list.push_back(&other);
  fill_in(list, nodes, count);
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode node, CUgraphNode* nodes, CUgraphEdgeData*, std::size_t* count) {
  return cuGraphNodeGetDependentNodes(node, nodes, count);
}
// Kinds of nodes have the same numbers in both APIs.
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType* type) {
  return answer(cudaGraphNodeGetType(node, reinterpret_cast<cudaGraphNodeType*>(type)));
}
CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph* graph) {
  return answer(cudaGraphChildGraphNodeGetGraph(node, graph));
}
CUresult cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS* params) {
  cudaKernelNodeParams same{};
  if (const cudaError_t error = cudaGraphKernelNodeGetParams(node, &same); error != cudaSuccess) return answer(error);
  *params = {reinterpret_cast<CUfunction>(std::get<LaunchWork>(node_of(node)->work).kernel),
             same.gridDim.x,
             same.gridDim.y,
             same.gridDim.z,
             same.blockDim.x,
             same.blockDim.y,
             same.blockDim.z,
             same.sharedMemBytes,
             same.kernelParams,
             nullptr,
             nullptr,
             static_cast<CUcontext>(only_context())};
  return CUDA_SUCCESS;
}
CUresult cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* params) {
  const auto* const work = std::get_if<Fill>(&node_of(node)->work);
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *params = {address_of(work->to), work->pitch, work->value, static_cast<unsigned>(work->element_bytes),
             work->width,          work->height};
  return CUDA_SUCCESS;
}
CUresult cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* params) {
  const auto* const work = std::get_if<HostWork>(&node_of(node)->work);
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  params->fn = work->function;
  params->userData = work->data;
  return CUDA_SUCCESS;
}

// Nodes that change, in a graph and in what was made of it.
CUresult cuGraphKernelNodeSetParams_v2(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return change(__func__, nullptr, node, kernel_work(*given));
}
CUresult cuGraphKernelNodeSetParams(CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* given) {
  return change(__func__, nullptr, node, kernel_work(*given, given->func));
}
CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS* given) {
  return change(__func__, exec, node, kernel_work(*given));
}
CUresult cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS_v1* given) {
  return change(__func__, exec, node, kernel_work(*given, given->func));
}
CUresult cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D* given) {
  return change(__func__, nullptr, node, copy_work(*given));
}
CUresult cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* given, CUcontext) {
  return change(__func__, exec, node, copy_work(*given));
}
CUresult cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given) {
  return change(__func__, nullptr, node, fill_work(*given));
}
CUresult cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* given,
                                        CUcontext) {
  return change(__func__, exec, node, fill_work(*given));
}
CUresult cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  return change(__func__, nullptr, node, host_work(*given));
}
CUresult cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* given) {
  return change(__func__, exec, node, host_work(*given));
}
CUresult cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned enabled) {
  return answer(cudaGraphNodeSetEnabled(exec, node, enabled));
}
CUresult cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned* enabled) {
  return answer(cudaGraphNodeGetEnabled(exec, node, enabled));
}

// Instantiated graphs.
CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long flags) {
  return answer(cudaGraphInstantiate(exec, graph, flags));
}
CUresult cuGraphInstantiate_v2(CUgraphExec* exec, CUgraph graph, CUgraphNode*, char* log, std::size_t log_bytes) {
  if (log != nullptr && log_bytes != 0) *log = '\0';
  return cuGraphInstantiateWithFlags(exec, graph, 0);
}
CUresult cuGraphInstantiateWithParams(CUgraphExec* exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS* given) {
  given->hErrNode_out = nullptr;
  const CUresult result = cuGraphInstantiateWithFlags(exec, graph, given->flags);
  given->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* result) {
  return drive(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of || exec == nullptr) return cudaErrorInvalidValue;
    const bool is_done = update(*reinterpret_cast<GraphExec*>(exec), *of);
    if (result != nullptr)
      *result = {is_done ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr,
                 nullptr};
    return is_done ? cudaSuccess : cudaErrorGraphExecUpdateFailure;
  });
}
CUresult cuGraphExecDestroy(CUgraphExec exec) { return answer(cudaGraphExecDestroy(exec)); }
CUresult cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }
CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) { return answer(cudaGraphLaunch(exec, stream)); }

// Capture.
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return answer(cudaStreamBeginCapture(stream, static_cast<cudaStreamCaptureMode>(mode)));
}
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData*,
                                     std::size_t count, CUstreamCaptureMode mode) {
  return answer(
      cudaStreamBeginCaptureToGraph(stream, graph, after, nullptr, count, static_cast<cudaStreamCaptureMode>(mode)));
}
CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) { return answer(cudaStreamEndCapture(stream, graph)); }
CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  return answer(cudaThreadExchangeStreamCaptureMode(reinterpret_cast<cudaStreamCaptureMode*>(mode)));
}
CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, std::size_t count, unsigned flags) {
  return answer(cudaStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags));
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes, const CUgraphEdgeData*,
                                              std::size_t count, unsigned flags) {
  return cuStreamUpdateCaptureDependencies(stream, nodes, count, flags);
}
// States of captures have the same numbers in both APIs.
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** after, std::size_t* count) {
  unsigned long long same_id = 0;
  const cudaError_t error = cudaStreamGetCaptureInfo_v2(stream, reinterpret_cast<cudaStreamCaptureStatus*>(status),
                                                        &same_id, graph, after, count);
  if (id != nullptr) *id = same_id;
  return answer(error);
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id, CUgraph* graph,
                                   const CUgraphNode** after, const CUgraphEdgeData** edges, std::size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cuStreamGetCaptureInfo_v2(stream, status, id, graph, after, count);
}

}  // extern "C"
