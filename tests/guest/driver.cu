// The driver's API with a kernel that NVRTC compiles, and the same PTX through the linker.
#include <cuda.h>
#include <nvrtc.h>

#include <cstdio>
#include <string>
#include <vector>

int failures = 0;
void check(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("wrong: %s\n", what);
  ++failures;
}

constexpr const char* kSource =
    "__device__ int offset = 4;\n"
    "extern \"C\" __global__ void triple(int* values, int count) {\n"
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
    "  if (i < count) values[i] = 3 * i + offset;\n"
    "}\n"
    "extern \"C\" __global__ void step(unsigned* value, unsigned factor, unsigned summand) {\n"
    "  *value = *value * factor + summand;\n"
    "}\n";

// Machine code as far as the program knows.
std::string compile() {
  nvrtcProgram program{};
  nvrtcCreateProgram(&program, kSource, "triple.cu", 0, nullptr, nullptr);
  const char* options[] = {"-arch=sm_90"};
  check(nvrtcCompileProgram(program, 1, options) == NVRTC_SUCCESS, "nvrtcCompileProgram");
  std::size_t bytes = 0;
  nvrtcGetCUBINSize(program, &bytes);
  std::string code(bytes, '\0');
  nvrtcGetCUBIN(program, code.data());
  nvrtcDestroyProgram(&program);
  return code;
}

void run(CUmodule module, int offset) {
  CUfunction function{};
  check(cuModuleGetFunction(&function, module, "triple") == CUDA_SUCCESS, "cuModuleGetFunction");
  check(cuModuleGetFunction(&function, module, "none") == CUDA_ERROR_NOT_FOUND, "no function");
  cuModuleGetFunction(&function, module, "triple");
  CUdeviceptr values{};
  int count = 100;
  check(cuMemAlloc(&values, 128 * sizeof(int)) == CUDA_SUCCESS, "cuMemAlloc");
  cuMemsetD32(values, 77, 128);
  void* arguments[] = {&values, &count};
  check(cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS, "cuLaunchKernel");
  check(cuCtxSynchronize() == CUDA_SUCCESS, "cuCtxSynchronize");
  std::vector<int> host(128);
  cuMemcpyDtoH(host.data(), values, host.size() * sizeof(int));
  for (int i = 0; i < 128; ++i) check(host[i] == (i < count ? 3 * i + offset : 77), "triple");
  cuMemFree(values);
}

// Built node by node, changed, updated; and captured from streams that fork and join: a value that depends on the order
// in which the nodes run.
void graphs(CUmodule module) {
  CUfunction step{};
  check(cuModuleGetFunction(&step, module, "step") == CUDA_SUCCESS, "step");
  CUdeviceptr value{};
  cuMemAlloc(&value, 4);
  unsigned factor = 7, summand = 1, host = 0, calls = 0;
  void* arguments[] = {&value, &factor, &summand};
  CUDA_KERNEL_NODE_PARAMS kernel{};
  kernel.func = step;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = value;
  fill.value = 5;
  fill.elementSize = 4;
  fill.width = fill.height = 1;
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = value;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = &host;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  CUDA_HOST_NODE_PARAMS called{};
  called.fn = [](void* data) { ++*static_cast<unsigned*>(data); };
  called.userData = &calls;
  CUgraph graph{};
  CUgraphNode nodes[5] = {};
  check(cuGraphCreate(&graph, 0) == CUDA_SUCCESS, "cuGraphCreate");
  check(cuGraphAddMemcpyNode(&nodes[3], graph, nullptr, 0, &copy, nullptr) == CUDA_SUCCESS, "copy");
  check(cuGraphAddMemsetNode(&nodes[0], graph, nullptr, 0, &fill, nullptr) == CUDA_SUCCESS, "fill");
  check(cuGraphAddKernelNode(&nodes[1], graph, &nodes[0], 1, &kernel) == CUDA_SUCCESS, "kernel");
  factor = 11, summand = 3;  // arguments are read when a node is made
  check(cuGraphAddKernelNode(&nodes[2], graph, &nodes[1], 1, &kernel) == CUDA_SUCCESS, "kernel");
  check(cuGraphAddHostNode(&nodes[4], graph, &nodes[3], 1, &called) == CUDA_SUCCESS, "host function");
  check(cuGraphAddDependencies(graph, &nodes[2], &nodes[3], nullptr, 1) == CUDA_SUCCESS, "an edge");
  kernel.blockDimX = 2000;
  CUgraphNode none{};
  check(cuGraphAddKernelNode(&none, graph, nullptr, 0, &kernel) == CUDA_ERROR_INVALID_VALUE, "too many threads");
  kernel.blockDimX = 1;
  std::size_t count = 0, edges = 0;
  check(cuGraphGetNodes(graph, nullptr, &count) == CUDA_SUCCESS && count == 5, "nodes");
  check(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges) == CUDA_SUCCESS && edges == 4, "edges");
  CUgraphNodeType type{};
  check(cuGraphNodeGetType(nodes[3], &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_MEMCPY, "a node's type");
  CUgraphExec exec{};
  CUstream stream{}, other{};
  cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
  check(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS, "cuGraphInstantiate");
  check(host == 0 && calls == 0, "nothing ran");
  check(cuGraphLaunch(exec, stream) == CUDA_SUCCESS && cuStreamSynchronize(stream) == CUDA_SUCCESS, "cuGraphLaunch");
  check(host == (5 * 7 + 1) * 11 + 3 && calls == 1, "the nodes' order");
  fill.value = 6;
  check(cuGraphExecMemsetNodeSetParams(exec, nodes[0], &fill, nullptr) == CUDA_SUCCESS, "change");
  check(cuGraphExecMemsetNodeSetParams(exec, nodes[1], &fill, nullptr) == CUDA_ERROR_INVALID_VALUE, "another kind");
  check(cuGraphNodeSetEnabled(exec, nodes[1], 0) == CUDA_SUCCESS, "disable");
  cuGraphLaunch(exec, stream);
  cuStreamSynchronize(stream);
  check(host == 6 * 11 + 3 && calls == 2, "changed");
  CUgraphExecUpdateResultInfo result{};
  check(cuGraphKernelNodeSetParams(nodes[1], &kernel) == CUDA_SUCCESS, "cuGraphKernelNodeSetParams");
  check(cuGraphExecUpdate(exec, graph, &result) == CUDA_SUCCESS && result.result == CU_GRAPH_EXEC_UPDATE_SUCCESS,
        "update");
  cuGraphNodeSetEnabled(exec, nodes[1], 1);
  cuGraphLaunch(exec, stream);
  cuStreamSynchronize(stream);
  check(host == (5 * 11 + 3) * 11 + 3 && calls == 3, "updated");
  check(cuGraphExecDestroy(exec) == CUDA_SUCCESS, "destroy");

  // The graph as a node of another one, behind a fill and before a kernel, by the function that takes every kind.
  CUgraph outer{};
  CUgraphNode kinds[3] = {};
  cuGraphCreate(&outer, 0);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params.memset.dst = value;
  params.memset.value = 0x77;
  params.memset.elementSize = 1;
  params.memset.width = 4;
  params.memset.height = 1;
  check(cuGraphAddNode(&kinds[0], outer, nullptr, nullptr, 0, &params) == CUDA_SUCCESS, "a fill by cuGraphAddNode");
  params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.graph.graph = graph;
  check(cuGraphAddNode(&kinds[1], outer, &kinds[0], nullptr, 1, &params) == CUDA_SUCCESS, "a child by cuGraphAddNode");
  params = {};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.func = step;
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = arguments;
  check(cuGraphAddNode(&kinds[2], outer, &kinds[1], nullptr, 1, &params) == CUDA_SUCCESS, "a kernel by cuGraphAddNode");
  params = {};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  check(cuGraphAddNode(&none, outer, nullptr, nullptr, 0, &params) == CUDA_ERROR_INVALID_VALUE,
        "a conditional node of no handle");
  params.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  check(cuGraphAddNode(&none, outer, nullptr, nullptr, 0, &params) == CUDA_ERROR_NOT_SUPPORTED,
        "a node of a semaphore");
  check(cuGraphInstantiate(&exec, outer, 0) == CUDA_SUCCESS && cuGraphLaunch(exec, stream) == CUDA_SUCCESS, "launch");
  unsigned after_child = 0;
  cuStreamSynchronize(stream);
  cuMemcpyDtoH(&after_child, value, 4);
  check(host == (5 * 11 + 3) * 11 + 3 && calls == 4 && after_child == host * 11 + 3, "a graph in a graph");
  cuGraphExecDestroy(exec);
  check(cuGraphDestroy(outer) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS, "destroy");

  CUevent forked{}, joined{};
  cuEventCreate(&forked, CU_EVENT_DEFAULT);
  cuEventCreate(&joined, CU_EVENT_DEFAULT);
  CUdeviceptr scratch{};
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS, "cuStreamBeginCapture");
  cuMemsetD32Async(value, 2, 1, stream);
  check(cuMemAllocAsync(&scratch, 4, stream) == CUDA_SUCCESS, "an allocation that is captured");
  cuMemsetD32Async(scratch, 9, 1, stream);
  cuEventRecord(forked, stream);
  cuStreamWaitEvent(other, forked, 0);
  cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, other, arguments, nullptr);
  cuEventRecord(joined, other);
  check(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "not joined");
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS, "again");
  cuMemsetD32Async(value, 2, 1, stream);
  cuEventRecord(forked, stream);
  cuStreamWaitEvent(other, forked, 0);
  cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, other, arguments, nullptr);
  cuEventRecord(joined, other);
  cuStreamWaitEvent(stream, joined, 0);
  cuMemcpyDtoHAsync(&host, value, 4, stream);
  CUstreamCaptureStatus status{};
  cuuint64_t id = 0;
  check(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr) == CUDA_SUCCESS &&
            status == CU_STREAM_CAPTURE_STATUS_ACTIVE && id != 0,
        "cuStreamGetCaptureInfo");
  check(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && graph != nullptr, "cuStreamEndCapture");
  check(cuGraphInstantiate(&exec, graph, 0) == CUDA_SUCCESS, "instantiate what was captured");
  host = 0;
  for (int i = 0; i < 2; ++i) cuGraphLaunch(exec, stream);
  cuStreamSynchronize(stream);
  check(host == 2 * 11 + 3, "captured");
  check(cuGraphLaunch(nullptr, stream) == CUDA_ERROR_INVALID_HANDLE, "no graph");
  cuGraphExecDestroy(exec);
  cuGraphDestroy(graph);
  cuMemFree(value);
}

// Two pieces of memory behind one range of addresses, exchanged; one of them at two places at once.
void virtual_memory(CUmodule module) {
  CUfunction step{};
  cuModuleGetFunction(&step, module, "step");
  CUmemAllocationProp of{};
  of.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  of.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  std::size_t piece = 0, free_before = 0, free_after = 0, total = 0;
  check(cuMemGetAllocationGranularity(&piece, &of, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS && piece != 0,
        "granularity");
  cuMemGetInfo(&free_before, &total);
  CUdeviceptr range{}, elsewhere{};
  check(cuMemAddressReserve(&range, piece + 1, 0, 0, 0) == CUDA_ERROR_INVALID_VALUE, "reserve a part of a piece");
  check(cuMemAddressReserve(&range, 2 * piece, 0, 0, 0) == CUDA_SUCCESS && range % piece == 0, "reserve");
  check(cuMemAddressReserve(&elsewhere, piece, 8 * piece, 0, 0) == CUDA_SUCCESS && elsewhere % (8 * piece) == 0,
        "reserve, aligned");
  CUmemGenericAllocationHandle first{}, second{};
  check(cuMemCreate(&first, piece - 1, &of, 0) == CUDA_ERROR_INVALID_VALUE, "create a part of a piece");
  check(cuMemCreate(&first, piece, &of, 0) == CUDA_SUCCESS && cuMemCreate(&second, piece, &of, 0) == CUDA_SUCCESS,
        "create");
  CUmemAccessDesc access{};
  access.location = of.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(range, 2 * piece, &access, 1) == CUDA_ERROR_INVALID_VALUE, "access to what is not mapped");
  check(cuMemMap(range, piece, 0, first, 0) == CUDA_SUCCESS, "map");
  check(cuMemMap(range, piece, 0, second, 0) == CUDA_ERROR_INVALID_VALUE, "map where something is");
  check(cuMemMap(range + piece, 2 * piece, 0, second, 0) == CUDA_ERROR_INVALID_VALUE, "map more than there is");
  check(cuMemMap(range + piece, piece, 0, second, 0) == CUDA_SUCCESS, "map the second");
  check(cuMemsetD32(range, 1, 1) == CUDA_ERROR_INVALID_VALUE, "no access yet");
  check(cuMemSetAccess(range, 2 * piece, &access, 1) == CUDA_SUCCESS, "access");
  const std::size_t last = piece - 4;
  unsigned factor = 3, summand = 1, host[2] = {};
  check(cuMemsetD32(range + last, 10, 2) == CUDA_SUCCESS, "a fill over both");
  CUdeviceptr value = range + piece;
  void* arguments[] = {&value, &factor, &summand};
  check(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS, "launch");
  check(cuMemcpyDtoH(host, range + last, 8) == CUDA_SUCCESS && host[0] == 10 && host[1] == 31, "both");
  // The second one at two places.
  check(cuMemMap(elsewhere, piece, 0, second, 0) == CUDA_SUCCESS &&
            cuMemSetAccess(elsewhere, piece, &access, 1) == CUDA_SUCCESS,
        "map again");
  value = elsewhere;
  check(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr) == CUDA_SUCCESS, "launch");
  check(cuMemcpyDtoH(host, range + piece, 4) == CUDA_SUCCESS && host[0] == 94, "one memory at two addresses");
  unsigned long long flags = 0;
  check(cuMemGetAccess(&flags, &of.location, range + last) == CUDA_SUCCESS && flags == access.flags, "cuMemGetAccess");
  CUmemGenericAllocationHandle same{};
  check(cuMemRetainAllocationHandle(&same, reinterpret_cast<void*>(elsewhere)) == CUDA_SUCCESS && same == second &&
            cuMemRelease(same) == CUDA_SUCCESS,
        "retain");
  check(cuMemFree(range) == CUDA_ERROR_INVALID_VALUE, "cuMemFree of what was mapped");
  check(cuMemAddressFree(range, 2 * piece) == CUDA_ERROR_INVALID_VALUE, "free addresses that are in use");
  check(cuMemUnmap(range, piece / 2) == CUDA_ERROR_INVALID_VALUE, "unmap a part");
  check(cuMemUnmap(range, 2 * piece) == CUDA_SUCCESS, "unmap");
  check(cuMemcpyDtoH(host, range, 4) == CUDA_ERROR_INVALID_VALUE, "nothing is there");
  // The other way round: what was written came along.
  check(cuMemMap(range, piece, 0, second, 0) == CUDA_SUCCESS &&
            cuMemMap(range + piece, piece, 0, first, 0) == CUDA_SUCCESS &&
            cuMemSetAccess(range, 2 * piece, &access, 1) == CUDA_SUCCESS,
        "exchange");
  check(cuMemRelease(first) == CUDA_SUCCESS && cuMemRelease(second) == CUDA_SUCCESS, "release while they are mapped");
  check(cuMemRelease(first) == CUDA_ERROR_INVALID_VALUE, "release twice");
  host[0] = host[1] = 0;
  check(cuMemcpyDtoH(host, range, 4) == CUDA_SUCCESS &&
            cuMemcpyDtoH(host + 1, range + piece + last, 4) == CUDA_SUCCESS && host[0] == 94 && host[1] == 10,
        "exchanged");
  cuMemGetInfo(&free_after, &total);
  check(free_before - free_after == 2 * piece, "memory in use");
  check(cuMemUnmap(range, 2 * piece) == CUDA_SUCCESS && cuMemUnmap(elsewhere, piece) == CUDA_SUCCESS, "unmap all");
  check(cuMemAddressFree(range, 2 * piece) == CUDA_SUCCESS && cuMemAddressFree(elsewhere, piece) == CUDA_SUCCESS,
        "free");
  cuMemGetInfo(&free_after, &total);
  check(free_before == free_after, "memory given back");
}

int main() {
  check(cuInit(0) == CUDA_SUCCESS, "cuInit");
  CUdevice device{};
  cuDeviceGet(&device, 0);
  CUcontext context{};
  check(cuDevicePrimaryCtxRetain(&context, device) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
  cuCtxSetCurrent(context);
  char name[64] = {};
  cuDeviceGetName(name, sizeof(name), device);
  int sms = 0;
  cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  std::printf("%s, %d multiprocessors\n", name, sms);
  void* function = nullptr;
  check(cuGetProcAddress("cuMemAlloc", &function, 13000, 0, nullptr) == CUDA_SUCCESS && function != nullptr, "by name");
  // Of two forms under one name each version of CUDA gets the one that it knows; who asks for 12 passes no context.
  for (const int version : {12000, 13000}) {
    CUdevice found = -1;
    check(cuGetProcAddress("cuCtxGetDevice", &function, version, 0, nullptr) == CUDA_SUCCESS, "cuCtxGetDevice");
    check(reinterpret_cast<CUresult (*)(CUdevice*, CUcontext)>(function)(&found, nullptr) == CUDA_SUCCESS && found == 0,
          "its device");
    check(cuGetProcAddress("cuCtxSynchronize", &function, version, 0, nullptr) == CUDA_SUCCESS, "cuCtxSynchronize");
    check(reinterpret_cast<CUresult (*)(CUcontext)>(function)(nullptr) == CUDA_SUCCESS, "it waits");
  }
  const std::string ptx = compile();
  CUmodule module{};
  check(cuModuleLoadData(&module, ptx.c_str()) == CUDA_SUCCESS, "cuModuleLoadData");
  run(module, 4);
  CUdeviceptr offset{};
  std::size_t bytes = 0;
  check(cuModuleGetGlobal(&offset, &bytes, module, "offset") == CUDA_SUCCESS && bytes == sizeof(int), "a variable");
  cuMemsetD32(offset, 9, 1);
  run(module, 9);
  graphs(module);
  virtual_memory(module);
  check(cuModuleUnload(module) == CUDA_SUCCESS, "cuModuleUnload");
  CUlinkState link{};
  cuLinkCreate(0, nullptr, nullptr, &link);
  check(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(ptx.data()), ptx.size(), "triple", 0, nullptr,
                      nullptr) == CUDA_SUCCESS,
        "cuLinkAddData");
  void* image = nullptr;
  cuLinkComplete(link, &image, &bytes);
  cuModuleLoadData(&module, image);
  cuLinkDestroy(link);
  run(module, 4);
  std::printf("%d failures\n", failures);
  return failures != 0;
}
