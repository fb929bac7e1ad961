// The CUDA runtime's nodes of graphs of every kind by one structure, conditional nodes, attributes of kernel nodes, and
// what a node was made of. Work itself is made in runtime_graph.cpp.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "guest/graph.h"
#include "guest/loaded.h"

using namespace tessera::guest;

namespace {

GraphExec* exec_of(cudaGraphExec_t exec) { return reinterpret_cast<GraphExec*>(exec); }

template <class Kind>
Kind* work_of(cudaGraphNode_t node) {
  return node == nullptr ? nullptr : std::get_if<Kind>(&node_of(node)->work);
}
#if CUDART_VERSION >= 12080
cudaKernelNodeParams plain(const cudaKernelNodeParamsV2& of) {
  return {of.func, of.gridDim, of.blockDim, of.sharedMemBytes, of.kernelParams, of.extra};
}
cudaMemsetParams plain(const cudaMemsetParamsV2& of) {
  return {of.dst, of.pitch, of.value, of.elementSize, of.width, of.height};
}

cudaError_t add_conditional(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
                            cudaConditionalNodeParams& given) {
  const auto make = [&](Work& made) -> cudaError_t {
    const unsigned most = given.type == cudaGraphCondTypeWhile ? 1 : given.type == cudaGraphCondTypeIf ? 2 : ~0u;
    if (given.handle == 0 || given.size == 0 || given.size > most || given.type > cudaGraphCondTypeSwitch)
      return cudaErrorInvalidValue;
    ConditionalWork work;
    work.handle = given.handle;
    work.kind = static_cast<int>(given.type);
    for (unsigned i = 0; i < given.size; ++i) {
      work.bodies.push_back(std::make_shared<Graph>());
      work.handles.push_back(keep_graph(work.bodies.back()));
    }
    made = std::move(work);
    return cudaSuccess;
  };
  const cudaError_t error = add_node(node, graph, after, count, make);
  if (error != cudaSuccess) return error;
  given.phGraph_out = reinterpret_cast<cudaGraph_t*>(std::get<ConditionalWork>(node_of(*node)->work).handles.data());
  return cudaSuccess;
}

cudaError_t set(cudaGraphExec_t exec, cudaGraphNode_t node, const cudaGraphNodeParams& given) {
  switch (given.type) {
    case cudaGraphNodeTypeKernel: {
      const cudaKernelNodeParams same = plain(given.kernel);
      return exec == nullptr ? cudaGraphKernelNodeSetParams(node, &same)
                             : cudaGraphExecKernelNodeSetParams(exec, node, &same);
    }
    case cudaGraphNodeTypeMemcpy:
      return exec == nullptr ? cudaGraphMemcpyNodeSetParams(node, &given.memcpy.copyParams)
                             : cudaGraphExecMemcpyNodeSetParams(exec, node, &given.memcpy.copyParams);
    case cudaGraphNodeTypeMemset: {
      const cudaMemsetParams same = plain(given.memset);
      return exec == nullptr ? cudaGraphMemsetNodeSetParams(node, &same)
                             : cudaGraphExecMemsetNodeSetParams(exec, node, &same);
    }
    case cudaGraphNodeTypeHost: {
      const cudaHostNodeParams same{given.host.fn, given.host.userData};
      return exec == nullptr ? cudaGraphHostNodeSetParams(node, &same)
                             : cudaGraphExecHostNodeSetParams(exec, node, &same);
    }
    case cudaGraphNodeTypeEventRecord:
      return exec == nullptr ? cudaGraphEventRecordNodeSetEvent(node, given.eventRecord.event)
                             : cudaGraphExecEventRecordNodeSetEvent(exec, node, given.eventRecord.event);
    case cudaGraphNodeTypeWaitEvent:
      return exec == nullptr ? cudaGraphEventWaitNodeSetEvent(node, given.eventWait.event)
                             : cudaGraphExecEventWaitNodeSetEvent(exec, node, given.eventWait.event);
    case cudaGraphNodeTypeGraph:
      return exec == nullptr ? told(cudaErrorInvalidValue)
                             : cudaGraphExecChildGraphNodeSetParams(exec, node, given.graph.graph);
    case cudaGraphNodeTypeEmpty:
      return cudaSuccess;
    default:
      return missing("cudaGraphNodeSetParams of this type");
  }
}
#endif

cudaError_t set_event(const char* function, cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event,
                      bool is_record) {
  return called(function, [&]() -> cudaError_t {
    const EventWork* const now = work_of<EventWork>(node);
    if (now == nullptr || now->is_record != is_record || event == nullptr) return cudaErrorInvalidValue;
    const auto make = [&](Work& made) {
      made = EventWork{reinterpret_cast<EventState*>(event), is_record};
      return cudaSuccess;
    };
    return change_node(exec, node, make);
  });
}
cudaError_t event_of(cudaGraphNode_t node, cudaEvent_t* event, bool is_record) {
  const EventWork* const work = work_of<EventWork>(node);
  if (work == nullptr || work->is_record != is_record) return told(cudaErrorInvalidValue);
  *event = reinterpret_cast<cudaEvent_t>(work->event);
  return cudaSuccess;
}

}  // namespace

extern "C" {

#if CUDART_VERSION >= 12080
cudaError_t cudaGraphAddNode_v2(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                const cudaGraphEdgeData*, std::size_t count, cudaGraphNodeParams* given) {
  switch (given->type) {
    case cudaGraphNodeTypeKernel: {
      const cudaKernelNodeParams same = plain(given->kernel);
      return cudaGraphAddKernelNode(node, graph, after, count, &same);
    }
    case cudaGraphNodeTypeMemcpy:
      return cudaGraphAddMemcpyNode(node, graph, after, count, &given->memcpy.copyParams);
    case cudaGraphNodeTypeMemset: {
      const cudaMemsetParams same = plain(given->memset);
      return cudaGraphAddMemsetNode(node, graph, after, count, &same);
    }
    case cudaGraphNodeTypeHost: {
      const cudaHostNodeParams same{given->host.fn, given->host.userData};
      return cudaGraphAddHostNode(node, graph, after, count, &same);
    }
    case cudaGraphNodeTypeEmpty:
      return cudaGraphAddEmptyNode(node, graph, after, count);
    case cudaGraphNodeTypeGraph:
      return cudaGraphAddChildGraphNode(node, graph, after, count, given->graph.graph);
    case cudaGraphNodeTypeEventRecord:
      return cudaGraphAddEventRecordNode(node, graph, after, count, given->eventRecord.event);
    case cudaGraphNodeTypeWaitEvent:
      return cudaGraphAddEventWaitNode(node, graph, after, count, given->eventWait.event);
    case cudaGraphNodeTypeMemAlloc: {
      cudaMemAllocNodeParams same{};
      same.bytesize = given->alloc.bytesize;
      const cudaError_t error = cudaGraphAddMemAllocNode(node, graph, after, count, &same);
      given->alloc.dptr = same.dptr;
      return error;
    }
    case cudaGraphNodeTypeMemFree:
      return cudaGraphAddMemFreeNode(node, graph, after, count, given->free.dptr);
    case cudaGraphNodeTypeConditional:
      return called(__func__, [&] { return add_conditional(node, graph, after, count, given->conditional); });
    default:
      return missing("cudaGraphAddNode of this type");
  }
}
// A program of CUDA 12 leaves the edges' data out.
cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                             const cudaGraphEdgeData* edges, std::size_t count, cudaGraphNodeParams* given) {
  return is_program_of_cuda_12() ? cudaGraphAddNode_v2(node, graph, after, nullptr, address_of(edges),
                                                       reinterpret_cast<cudaGraphNodeParams*>(count))
                                 : cudaGraphAddNode_v2(node, graph, after, edges, count, given);
}
cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* given) {
  return node == nullptr || given == nullptr ? told(cudaErrorInvalidValue) : set(nullptr, node, *given);
}
cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraphNodeParams* given) {
  return exec == nullptr || node == nullptr || given == nullptr ? told(cudaErrorInvalidValue) : set(exec, node, *given);
}
// The handle is the address of the word, so that kernels set it by a store.
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph, unsigned value,
                                             unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of || handle == nullptr || flags > cudaGraphCondAssignDefault) return cudaErrorInvalidValue;
    void* word = nullptr;
    if (const cudaError_t error = Blocks::instance().allocate(&word, 4, BlockKind::device); error != cudaSuccess)
      return error;
    const std::uint32_t first = 0;
    Session::instance().device().copy_to_device(address_of(word), &first, sizeof(first));
    if (flags == cudaGraphCondAssignDefault) of->defaults.emplace_back(address_of(word), value);
    *handle = address_of(word);
    return cudaSuccess;
  });
}
#endif

// Events.
cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return event_of(node, event, true);
}
cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t node, cudaEvent_t* event) {
  return event_of(node, event, false);
}
cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(__func__, nullptr, node, event, true);
}
cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(__func__, nullptr, node, event, false);
}
cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(__func__, exec, node, event, true);
}
cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t exec, cudaGraphNode_t node, cudaEvent_t event) {
  return set_event(__func__, exec, node, event, false);
}

// What was made of a graph.
cudaError_t cudaGraphExecChildGraphNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node, cudaGraph_t child) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(child);
    const ChildWork* const now = work_of<ChildWork>(node);
    if (!of || now == nullptr || now->graph->nodes.size() != of->nodes.size()) return cudaErrorInvalidValue;
    const auto make = [&](Work& made) {
      made = ChildWork{of->clone()};
      return sort_nodes(*std::get<ChildWork>(made).graph) ? cudaSuccess : cudaErrorInvalidValue;
    };
    return change_node(exec, node, make);
  });
}
cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t exec, unsigned long long* flags) {
  if (exec == nullptr || flags == nullptr) return told(cudaErrorInvalidValue);
  *flags = exec_of(exec)->flags;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t* found, cudaGraphNode_t node, cudaGraph_t clone) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> in = find_graph(clone);
    if (!in || node == nullptr || found == nullptr) return cudaErrorInvalidValue;
    const std::list<Node>& from = node_of(node)->graph->nodes;
    if (from.size() != in->nodes.size()) return cudaErrorInvalidValue;  // a clone has the same, in the same order
    auto like = in->nodes.begin();
    for (const Node& one : from) {
      if (&one == node_of(node)) *found = reinterpret_cast<cudaGraphNode_t>(&*like);
      ++like;
    }
    return cudaSuccess;
  });
}

// What nodes were made of.
cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* given) {
  const Box* const box = work_of<Box>(node);
  if (box == nullptr) return told(cudaErrorInvalidValue);
  std::memset(given, 0, sizeof(*given));
  const auto side = [&](const void* pointer, std::size_t pitch, std::size_t slice) {
    const std::size_t row = pitch == 0 ? box->width : pitch;
    return cudaPitchedPtr{const_cast<void*>(pointer), row, row, slice == 0 ? box->height : slice / row};
  };
  given->srcPtr = side(box->from, box->from_pitch, box->from_slice);
  given->dstPtr = side(box->to, box->to_pitch, box->to_slice);
  given->extent = {box->width, box->height, box->depth};
  given->kind = cudaMemcpyDefault;
  return cudaSuccess;
}
cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, cudaMemAllocNodeParams* given) {
  const AllocateWork* const work = work_of<AllocateWork>(node);
  if (work == nullptr) return told(cudaErrorInvalidValue);
  std::memset(given, 0, sizeof(*given));
  given->poolProps.allocType = cudaMemAllocationTypePinned;
  given->poolProps.location.type = cudaMemLocationTypeDevice;
  given->bytesize = work->bytes;
  given->dptr = work->pointer;
  return cudaSuccess;
}
cudaError_t cudaGraphMemFreeNodeGetParams(cudaGraphNode_t node, void* pointer) {
  const FreeWork* const work = work_of<FreeWork>(node);
  if (work == nullptr) return told(cudaErrorInvalidValue);
  std::memcpy(pointer, &work->pointer, sizeof(work->pointer));
  return cudaSuccess;
}

// Copies from and to variables.
cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol, const void* from,
                                                 std::size_t bytes, std::size_t offset, cudaMemcpyKind kind) {
  return cudaGraphExecMemcpyNodeSetParamsToSymbol(nullptr, node, symbol, from, bytes, offset, kind);
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, const void* symbol,
                                                     const void* from, std::size_t bytes, std::size_t offset,
                                                     cudaMemcpyKind kind) {
  void* first = nullptr;
  if (const cudaError_t error = cudaGetSymbolAddress(&first, symbol); error != cudaSuccess) return error;
  void* const to = static_cast<char*>(first) + offset;
  return exec == nullptr ? cudaGraphMemcpyNodeSetParams1D(node, to, from, bytes, kind)
                         : cudaGraphExecMemcpyNodeSetParams1D(exec, node, to, from, bytes, kind);
}
cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* to, const void* symbol,
                                                   std::size_t bytes, std::size_t offset, cudaMemcpyKind kind) {
  return cudaGraphExecMemcpyNodeSetParamsFromSymbol(nullptr, node, to, symbol, bytes, offset, kind);
}
cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node, void* to,
                                                       const void* symbol, std::size_t bytes, std::size_t offset,
                                                       cudaMemcpyKind kind) {
  void* first = nullptr;
  if (const cudaError_t error = cudaGetSymbolAddress(&first, symbol); error != cudaSuccess) return error;
  const void* const from = static_cast<char*>(first) + offset;
  return exec == nullptr ? cudaGraphMemcpyNodeSetParams1D(node, to, from, bytes, kind)
                         : cudaGraphExecMemcpyNodeSetParams1D(exec, node, to, from, bytes, kind);
}

// Attributes of kernel nodes: what a launch would take, and what is only kept.
cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            const cudaLaunchAttributeValue* value) {
  return called(__func__, [&]() -> cudaError_t {
    LaunchWork* const work = work_of<LaunchWork>(node);
    if (work == nullptr || value == nullptr) return cudaErrorInvalidValue;
    LaunchWork made = *work;
    set_attribute(made, attribute, *value);
    if (const cudaError_t error = check(made); error != cudaSuccess) return error;
    *work = std::move(made);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t node, cudaLaunchAttributeID attribute,
                                            cudaLaunchAttributeValue* value) {
  const LaunchWork* const work = work_of<LaunchWork>(node);
  if (work == nullptr || value == nullptr) return told(cudaErrorInvalidValue);
  std::memset(value, 0, sizeof(*value));
  if (attribute == cudaLaunchAttributeClusterDimension) {
    value->clusterDim.x = work->cluster.x;
    value->clusterDim.y = work->cluster.y;
    value->clusterDim.z = work->cluster.z;
  }
  if (attribute == cudaLaunchAttributeCooperative) value->cooperative = work->is_cooperative ? 1 : 0;
  if (attribute == cudaLaunchAttributePriority) value->priority = work->priority;
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from) {
  LaunchWork* const target = work_of<LaunchWork>(to);
  const LaunchWork* const source = work_of<LaunchWork>(from);
  if (target == nullptr || source == nullptr) return told(cudaErrorInvalidValue);
  target->cluster = source->cluster;
  target->is_cooperative = source->is_cooperative;
  target->is_dependent = source->is_dependent;
  target->priority = source->priority;
  return cudaSuccess;
}

}  // extern "C"
