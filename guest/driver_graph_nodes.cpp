// The CUDA driver's nodes of graphs of every kind by one structure, and what the runtime has under the same names:
// events of nodes, attributes, objects that graphs hold, what nodes were made of.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "guest/capture.h"
#include "guest/driver.h"
#include "guest/graph.h"

using namespace tessera::guest;

namespace {

CUresult answer(cudaError_t error) { return static_cast<CUresult>(error); }

CUDA_MEMSET_NODE_PARAMS plain(const CUDA_MEMSET_NODE_PARAMS_v2& of) {
  return {of.dst, of.pitch, of.value, of.elementSize, of.width, of.height};
}
// Both structures have the same fields.
const CUDA_KERNEL_NODE_PARAMS* plain(const CUDA_KERNEL_NODE_PARAMS_v3& of) {
  return reinterpret_cast<const CUDA_KERNEL_NODE_PARAMS*>(&of);
}

CUresult set(CUgraphExec exec, CUgraphNode node, const CUgraphNodeParams& given) {
  switch (given.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return exec == nullptr ? cuGraphKernelNodeSetParams_v2(node, plain(given.kernel))
                             : cuGraphExecKernelNodeSetParams_v2(exec, node, plain(given.kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return exec == nullptr ? cuGraphMemcpyNodeSetParams(node, &given.memcpy.copyParams)
                             : cuGraphExecMemcpyNodeSetParams(exec, node, &given.memcpy.copyParams, nullptr);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS same = plain(given.memset);
      return exec == nullptr ? cuGraphMemsetNodeSetParams(node, &same)
                             : cuGraphExecMemsetNodeSetParams(exec, node, &same, nullptr);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS same{given.host.fn, given.host.userData};
      return exec == nullptr ? cuGraphHostNodeSetParams(node, &same) : cuGraphExecHostNodeSetParams(exec, node, &same);
    }
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return answer(exec == nullptr ? cudaGraphEventRecordNodeSetEvent(node, given.eventRecord.event)
                                    : cudaGraphExecEventRecordNodeSetEvent(exec, node, given.eventRecord.event));
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return answer(exec == nullptr ? cudaGraphEventWaitNodeSetEvent(node, given.eventWait.event)
                                    : cudaGraphExecEventWaitNodeSetEvent(exec, node, given.eventWait.event));
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return exec == nullptr ? CUDA_ERROR_INVALID_VALUE
                             : answer(cudaGraphExecChildGraphNodeSetParams(exec, node, given.graph.graph));
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return CUDA_SUCCESS;
    default:
      return answer(missing("cuGraphNodeSetParams of this type"));
  }
}

}  // namespace

#undef cuGraphAddNode
#undef cuGraphRemoveDependencies

extern "C" {

CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, std::size_t count,
                        CUgraphNodeParams* given) {
  switch (given->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return cuGraphAddKernelNode_v2(node, graph, after, count, plain(given->kernel));
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphAddMemcpyNode(node, graph, after, count, &given->memcpy.copyParams, nullptr);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS same = plain(given->memset);
      return cuGraphAddMemsetNode(node, graph, after, count, &same, nullptr);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS same{given->host.fn, given->host.userData};
      return cuGraphAddHostNode(node, graph, after, count, &same);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return cuGraphAddChildGraphNode(node, graph, after, count, given->graph.graph);
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return cuGraphAddEmptyNode(node, graph, after, count);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphAddEventRecordNode(node, graph, after, count, given->eventRecord.event);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphAddEventWaitNode(node, graph, after, count, given->eventWait.event);
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC: {
      CUDA_MEM_ALLOC_NODE_PARAMS same{};
      same.bytesize = given->alloc.bytesize;
      const CUresult error = cuGraphAddMemAllocNode(node, graph, after, count, &same);
      given->alloc.dptr = same.dptr;
      return error;
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return cuGraphAddMemFreeNode(node, graph, after, count, given->free.dptr);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL: {  // the runtime's structure begins alike
      cudaGraphNodeParams same{};
      same.type = cudaGraphNodeTypeConditional;
      same.conditional.handle = given->conditional.handle;
      same.conditional.type = static_cast<cudaGraphConditionalNodeType>(given->conditional.type);
      same.conditional.size = given->conditional.size;
      const cudaError_t error = cudaGraphAddNode_v2(node, graph, after, nullptr, count, &same);
      given->conditional.phGraph_out = same.conditional.phGraph_out;
      return answer(error);
    }
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS same{given->memOp.ctx, given->memOp.count, given->memOp.paramArray,
                                               given->memOp.flags};
      return cuGraphAddBatchMemOpNode(node, graph, after, count, &same);
    }
    default:
      return answer(missing("cuGraphAddNode of this type"));
  }
}
CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after, const CUgraphEdgeData*,
                           std::size_t count, CUgraphNodeParams* given) {
  return cuGraphAddNode(node, graph, after, count, given);
}
CUresult cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams* given) {
  return node == nullptr || given == nullptr ? CUDA_ERROR_INVALID_VALUE : set(nullptr, node, *given);
}
CUresult cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* given) {
  return exec == nullptr || node == nullptr || given == nullptr ? CUDA_ERROR_INVALID_VALUE : set(exec, node, *given);
}
CUresult cuGraphConditionalHandleCreate(CUgraphConditionalHandle* handle, CUgraph graph, CUcontext, unsigned value,
                                        unsigned flags) {
  cudaGraphConditionalHandle same = 0;
  const cudaError_t error = cudaGraphConditionalHandleCreate(&same, graph, value, flags);
  *handle = same;
  return answer(error);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* event) {
  return answer(cudaGraphEventRecordNodeGetEvent(node, event));
}
CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* event) {
  return answer(cudaGraphEventWaitNodeGetEvent(node, event));
}
CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode node, CUevent event) {
  return answer(cudaGraphEventRecordNodeSetEvent(node, event));
}
CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode node, CUevent event) {
  return answer(cudaGraphEventWaitNodeSetEvent(node, event));
}
CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return answer(cudaGraphExecEventRecordNodeSetEvent(exec, node, event));
}
CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return answer(cudaGraphExecEventWaitNodeSetEvent(exec, node, event));
}
CUresult cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return answer(cudaGraphExecChildGraphNodeSetParams(exec, node, child));
}
CUresult cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
  unsigned long long same = 0;
  const cudaError_t error = cudaGraphExecGetFlags(exec, &same);
  *flags = same;
  return answer(error);
}
CUresult cuGraphNodeFindInClone(CUgraphNode* found, CUgraphNode node, CUgraph clone) {
  return answer(cudaGraphNodeFindInClone(found, node, clone));
}

CUresult cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* given) {
  const Box* const box = node == nullptr ? nullptr : std::get_if<Box>(&node_of(node)->work);
  if (box == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *given = {};
  const std::size_t from_row = box->from_pitch == 0 ? box->width : box->from_pitch;
  const std::size_t to_row = box->to_pitch == 0 ? box->width : box->to_pitch;
  given->srcMemoryType = given->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  given->srcDevice = address_of(box->from);
  given->srcPitch = from_row;
  given->srcHeight = box->from_slice == 0 ? box->height : box->from_slice / from_row;
  given->dstDevice = address_of(box->to);
  given->dstPitch = to_row;
  given->dstHeight = box->to_slice == 0 ? box->height : box->to_slice / to_row;
  given->WidthInBytes = box->width;
  given->Height = box->height;
  given->Depth = box->depth;
  return CUDA_SUCCESS;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS* given) {
  const auto* const work = node == nullptr ? nullptr : std::get_if<AllocateWork>(&node_of(node)->work);
  if (work == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *given = {};
  given->poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  given->poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  given->bytesize = work->bytes;
  given->dptr = address_of(work->pointer);
  return CUDA_SUCCESS;
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode node, CUdeviceptr* pointer) {
  return answer(cudaGraphMemFreeNodeGetParams(node, pointer));
}
CUresult cuGraphKernelNodeSetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute,
                                       const CUkernelNodeAttrValue* value) {
  return answer(cudaGraphKernelNodeSetAttribute(node, static_cast<cudaLaunchAttributeID>(attribute),
                                                reinterpret_cast<const cudaLaunchAttributeValue*>(value)));
}
CUresult cuGraphKernelNodeGetAttribute(CUgraphNode node, CUkernelNodeAttrID attribute, CUkernelNodeAttrValue* value) {
  return answer(cudaGraphKernelNodeGetAttribute(node, static_cast<cudaLaunchAttributeID>(attribute),
                                                reinterpret_cast<cudaLaunchAttributeValue*>(value)));
}
CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from) {
  return answer(cudaGraphKernelNodeCopyAttributes(to, from));
}

CUresult cuGraphRemoveDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  return answer(cudaGraphRemoveDependencies_v2(graph, from, to, nullptr, count));
}
CUresult cuGraphRemoveDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                      const CUgraphEdgeData*, std::size_t count) {
  return answer(cudaGraphRemoveDependencies_v2(graph, from, to, nullptr, count));
}
CUresult cuGraphDebugDotPrint(CUgraph graph, const char* path, unsigned flags) {
  return answer(cudaGraphDebugDotPrint(graph, path, flags));
}
CUresult cuDeviceGraphMemTrim(CUdevice device) { return answer(cudaDeviceGraphMemTrim(device)); }
CUresult cuUserObjectCreate(CUuserObject* object, void* data, CUhostFn destroy, unsigned references, unsigned flags) {
  return answer(cudaUserObjectCreate(reinterpret_cast<cudaUserObject_t*>(object), data, destroy, references, flags));
}
CUresult cuUserObjectRetain(CUuserObject object, unsigned count) {
  return answer(cudaUserObjectRetain(reinterpret_cast<cudaUserObject_t>(object), count));
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned count) {
  return answer(cudaUserObjectRelease(reinterpret_cast<cudaUserObject_t>(object), count));
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned count, unsigned flags) {
  return answer(cudaGraphRetainUserObject(graph, reinterpret_cast<cudaUserObject_t>(object), count, flags));
}
CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned count) {
  return answer(cudaGraphReleaseUserObject(graph, reinterpret_cast<cudaUserObject_t>(object), count));
}

}  // extern "C"
