// The CUDA runtime's graphs. CUDA 13 gave some functions a parameter for edges' data without a new name; a program of
// CUDA 12 passes its count in that place, which is told by the runtime that the program asks for.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "guest/array.h"
#include "guest/graph.h"
#include "guest/loaded.h"

using namespace tessera::guest;

namespace {

GraphExec* exec_of(cudaGraphExec_t exec) { return reinterpret_cast<GraphExec*>(exec); }

template <class Make>
cudaError_t add(const char* function, cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                std::size_t count, Make make) {
  return called(function, [&] { return add_node(node, graph, after, count, make); });
}
template <class Make>
cudaError_t change(const char* function, cudaGraphExec_t exec, cudaGraphNode_t node, Make make) {
  return called(function, [&] { return change_node(exec, node, make); });
}

auto launch_of(const cudaKernelNodeParams& given) {
  return [&given](Work& made) -> cudaError_t {
    LaunchWork work;
    work.kernel = Registry::instance().kernel(given.func);
    if (work.kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    work.host = given.func;
    work.grid = given.gridDim;
    work.block = given.blockDim;
    work.smem = given.sharedMemBytes;
    if (const cudaError_t error = check(work); error != cudaSuccess) return error;
    work.arguments = pack(*work.kernel, given.kernelParams);
    made = std::move(work);
    return cudaSuccess;
  };
}
auto copy_of(const cudaMemcpy3DParms& given) {
  return [&given](Work& made) {
    Box box;
    const cudaError_t error = box_of(given, box);
    made = box;
    return error;
  };
}
auto row_of(void* to, const void* from, std::size_t bytes) {
  return [=](Work& made) {
    Box box;
    box.to = to;
    box.from = from;
    box.width = bytes;
    made = box;
    return cudaSuccess;
  };
}
auto fill_of(const cudaMemsetParams& given) {
  return [&given](Work& made) {
    Fill fill;
    fill.to = given.dst;
    fill.pitch = given.pitch;
    fill.value = given.value;
    fill.element_bytes = given.elementSize;
    fill.width = given.width;
    fill.height = given.height;
    made = fill;
    return cudaSuccess;
  };
}
auto host_of(const cudaHostNodeParams& given) {
  return [&given](Work& made) {
    made = HostWork{given.fn, given.userData};
    return cudaSuccess;
  };
}

cudaError_t symbol_address(const void* symbol, std::size_t offset, void** address) {
  const tessera::emulator::DeviceVariable found = Registry::instance().variable(symbol);
  *address = pointer_of(found.address + offset);
  return found.address == 0 ? cudaErrorInvalidSymbol : cudaSuccess;
}

/// Fills in as many as there is room for; without a list their count alone.
void give(const std::vector<Node*>& list, cudaGraphNode_t* nodes, std::size_t* count) {
  if (nodes != nullptr)
    for (std::size_t i = 0; i < std::min(*count, list.size()); ++i)
      nodes[i] = reinterpret_cast<cudaGraphNode_t>(list[i]);
  *count = nodes == nullptr ? list.size() : std::min(*count, list.size());
}

std::size_t* count_of(cudaGraphEdgeData* edges, std::size_t* count) {
  return is_program_of_cuda_12() ? reinterpret_cast<std::size_t*>(edges) : count;
}

}  // namespace

extern "C" {

// Graphs and their nodes.
cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    if (graph == nullptr || flags != 0) return cudaErrorInvalidValue;
    *graph = reinterpret_cast<cudaGraph_t>(keep_graph(std::make_shared<Graph>()));
    return cudaSuccess;
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return called(__func__, [&] { return drop_graph(graph) ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaGraphClone(cudaGraph_t* clone, cudaGraph_t graph) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of) return cudaErrorInvalidValue;
    *clone = reinterpret_cast<cudaGraph_t>(keep_graph(of->clone()));
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   std::size_t count, const cudaKernelNodeParams* given) {
  return add(__func__, node, graph, after, count, launch_of(*given));
}
cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   std::size_t count, const cudaMemcpy3DParms* given) {
  return add(__func__, node, graph, after, count, copy_of(*given));
}
cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     std::size_t count, void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return add(__func__, node, graph, after, count, row_of(to, from, bytes));
}
cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                           std::size_t count, const void* symbol, const void* from, std::size_t bytes,
                                           std::size_t offset, cudaMemcpyKind) {
  return add(__func__, node, graph, after, count, [&](Work& made) {
    void* to = nullptr;
    const cudaError_t error = symbol_address(symbol, offset, &to);
    return error != cudaSuccess ? error : row_of(to, from, bytes)(made);
  });
}
cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                             std::size_t count, void* to, const void* symbol, std::size_t bytes,
                                             std::size_t offset, cudaMemcpyKind) {
  return add(__func__, node, graph, after, count, [&](Work& made) {
    void* from = nullptr;
    const cudaError_t error = symbol_address(symbol, offset, &from);
    return error != cudaSuccess ? error : row_of(to, from, bytes)(made);
  });
}
cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                   std::size_t count, const cudaMemsetParams* given) {
  return add(__func__, node, graph, after, count, fill_of(*given));
}
cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                 std::size_t count, const cudaHostNodeParams* given) {
  return add(__func__, node, graph, after, count, host_of(*given));
}
cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  std::size_t count) {
  return add(__func__, node, graph, after, count, [](Work&) { return cudaSuccess; });
}
cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                        std::size_t count, cudaEvent_t event) {
  return add(__func__, node, graph, after, count, [&](Work& made) {
    made = EventWork{reinterpret_cast<EventState*>(event), true};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                      std::size_t count, cudaEvent_t event) {
  return add(__func__, node, graph, after, count, [&](Work& made) {
    made = EventWork{reinterpret_cast<EventState*>(event), false};
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                       std::size_t count, cudaGraph_t child) {
  return add(__func__, node, graph, after, count, [&](Work& made) -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(child);
    if (!of) return cudaErrorInvalidValue;
    ChildWork work{of->clone()};
    if (!sort_nodes(*work.graph)) return cudaErrorInvalidValue;
    made = std::move(work);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                     std::size_t count, cudaMemAllocNodeParams* given) {
  return add(__func__, node, graph, after, count, [&](Work& made) {
    const cudaError_t error = Blocks::instance().allocate(&given->dptr, given->bytesize, BlockKind::device);
    if (error == cudaSuccess) Blocks::instance().keep_for_graph(given->dptr);
    made = AllocateWork{given->dptr, given->bytesize};
    return error;
  });
}
// The memory of a graph keeps its address from launch to launch: it stays when a launch has freed it.
cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                    std::size_t count, void* pointer) {
  return add(__func__, node, graph, after, count, [&](Work& made) -> cudaError_t {
    made = FreeWork{pointer};
    return Blocks::instance().find(pointer) == nullptr ? cudaErrorInvalidValue : cudaSuccess;
  });
}
cudaError_t cudaGraphAddDependencies_v2(cudaGraph_t, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData*, std::size_t count) {
  return called(__func__, [&] {
    for (std::size_t i = 0; i < count; ++i) node_of(to[i])->after.push_back(node_of(from[i]));
    return cudaSuccess;
  });
}
cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData* edges, std::size_t count) {
  return cudaGraphAddDependencies_v2(graph, from, to, nullptr, is_program_of_cuda_12() ? address_of(edges) : count);
}
cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node) {
  return called(__func__, [&] {
    Graph& graph = *node_of(node)->graph;
    for (Node& other : graph.nodes) std::erase(other.after, node_of(node));
    graph.nodes.remove_if([&](const Node& other) { return &other == node_of(node); });
    return cudaSuccess;
  });
}

// What a graph has.
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of) return cudaErrorInvalidValue;
    std::vector<Node*> list;
    for (Node& node : of->nodes) list.push_back(&node);
    give(list, nodes, count);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of) return cudaErrorInvalidValue;
    std::vector<Node*> list;
    for (Node& node : of->nodes)
      if (node.after.empty()) list.push_back(&node);
    give(list, nodes, count);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to, cudaGraphEdgeData* edges,
                              std::size_t* given_count) {
  return called(__func__, [&]() -> cudaError_t {
    std::size_t* const count = count_of(edges, given_count);
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of) return cudaErrorInvalidValue;
    std::vector<Node*> begins, ends;
    for (Node& node : of->nodes)
      for (Node* const before : node.after) {
        begins.push_back(before);
        ends.push_back(&node);
      }
    std::size_t same = *count;
    give(begins, from, &same);
    give(ends, to, count);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                         std::size_t* given_count) {
  give(node_of(node)->after, nodes, count_of(edges, given_count));
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t* nodes, cudaGraphEdgeData* edges,
                                           std::size_t* given_count) {
  std::vector<Node*> list;
  for (Node& other : node_of(node)->graph->nodes)
    if (std::find(other.after.begin(), other.after.end(), node_of(node)) != other.after.end()) list.push_back(&other);
  give(list, nodes, count_of(edges, given_count));
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  constexpr cudaGraphNodeType kTypes[] = {
      cudaGraphNodeTypeEmpty,   cudaGraphNodeTypeKernel,      cudaGraphNodeTypeMemcpy,     cudaGraphNodeTypeMemset,
      cudaGraphNodeTypeHost,    cudaGraphNodeTypeEventRecord, cudaGraphNodeTypeGraph,      cudaGraphNodeTypeMemAlloc,
      cudaGraphNodeTypeMemFree, cudaGraphNodeTypeKernel,      cudaGraphNodeTypeConditional};
  static_assert(std::size(kTypes) == std::variant_size_v<Work>);
  *type = kTypes[node_of(node)->work.index()];
  constexpr auto kMemoryOperations = static_cast<cudaGraphNodeType>(12);  // CU_GRAPH_NODE_TYPE_BATCH_MEM_OP
  if (const auto* const library = std::get_if<LibraryWork>(&node_of(node)->work); library != nullptr)
    if (library->is_memory_operation) *type = kMemoryOperations;
  if (const auto* const event = std::get_if<EventWork>(&node_of(node)->work))
    *type = event->is_record ? cudaGraphNodeTypeEventRecord : cudaGraphNodeTypeWaitEvent;
  return cudaSuccess;
}
cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t node, cudaGraph_t* graph) {
  const auto* const child = std::get_if<ChildWork>(&node_of(node)->work);
  if (child == nullptr) return told(cudaErrorInvalidValue);
  *graph = reinterpret_cast<cudaGraph_t>(keep_graph(child->graph));
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  auto* const work = std::get_if<LaunchWork>(&node_of(node)->work);
  if (work == nullptr) return told(cudaErrorInvalidValue);
  work->argument_pointers.clear();
  for (const tessera::ParameterLayout& of : work->kernel->parameters)
    work->argument_pointers.push_back(work->arguments.data() + of.offset);
  *params = {const_cast<void*>(work->host),  work->grid, work->block, static_cast<unsigned>(work->smem),
             work->argument_pointers.data(), nullptr};
  return cudaSuccess;
}
cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, cudaMemsetParams* params) {
  const auto* const work = std::get_if<Fill>(&node_of(node)->work);
  if (work == nullptr) return told(cudaErrorInvalidValue);
  *params = {work->to, work->pitch, work->value, static_cast<unsigned>(work->element_bytes), work->width, work->height};
  return cudaSuccess;
}
cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, cudaHostNodeParams* params) {
  const auto* const work = std::get_if<HostWork>(&node_of(node)->work);
  if (work == nullptr) return told(cudaErrorInvalidValue);
  *params = {work->function, work->data};
  return cudaSuccess;
}

// Nodes that change, in a graph and in what was made of it.
cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* given) {
  return change(__func__, nullptr, node, launch_of(*given));
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* given) {
  return change(__func__, exec, node, launch_of(*given));
}
cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* given) {
  return change(__func__, nullptr, node, copy_of(*given));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemcpy3DParms* given) {
  return change(__func__, exec, node, copy_of(*given));
}
cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* to, const void* from, std::size_t bytes,
                                           cudaMemcpyKind) {
  return change(__func__, nullptr, node, row_of(to, from, bytes));
}
cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* to, const void* from,
                                               std::size_t bytes, cudaMemcpyKind) {
  return change(__func__, exec, node, row_of(to, from, bytes));
}
cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const cudaMemsetParams* given) {
  return change(__func__, nullptr, node, fill_of(*given));
}
cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const cudaMemsetParams* given) {
  return change(__func__, exec, node, fill_of(*given));
}
cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const cudaHostNodeParams* given) {
  return change(__func__, nullptr, node, host_of(*given));
}
cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                           const cudaHostNodeParams* given) {
  return change(__func__, exec, node, host_of(*given));
}
cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned enabled) {
  const auto own = exec_of(exec)->of.find(node_of(node));
  if (own == exec_of(exec)->of.end()) return told(cudaErrorInvalidValue);
  own->second->is_enabled = enabled != 0;
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t exec, cudaGraphNode_t node, unsigned* enabled) {
  const auto own = exec_of(exec)->of.find(node_of(node));
  if (own == exec_of(exec)->of.end()) return told(cudaErrorInvalidValue);
  *enabled = own->second->is_enabled ? 1 : 0;
  return cudaSuccess;
}

// Instantiated graphs.
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return called(__func__, [&]() -> cudaError_t {
    constexpr unsigned long long kKnown = cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUpload |
                                          cudaGraphInstantiateFlagDeviceLaunch |
                                          cudaGraphInstantiateFlagUseNodePriority;
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of || exec == nullptr || (flags & ~kKnown) != 0) return cudaErrorInvalidValue;
    const cudaError_t error = instantiate(*of, reinterpret_cast<GraphExec*&>(*exec));
    if (error == cudaSuccess) exec_of(*exec)->flags = flags;
    return error;
  });
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* exec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams* given) {
  given->result_out = cudaGraphInstantiateSuccess;
  given->errNode_out = nullptr;
  return cudaGraphInstantiate(exec, graph, given->flags);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* result) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of) return cudaErrorInvalidValue;
    const bool is_done = update(*exec_of(exec), *of);
    if (result != nullptr)
      *result = {is_done ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged, nullptr, nullptr};
    return is_done ? cudaSuccess : cudaErrorGraphExecUpdateFailure;
  });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return called(__func__, [&] {
    delete exec_of(exec);
    return cudaSuccess;
  });
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return called(__func__, [&]() -> cudaError_t {
    if (exec == nullptr) return cudaErrorInvalidResourceHandle;
    return submit(stream, ChildWork{exec_of(exec)->graph});
  });
}

}  // extern "C"
