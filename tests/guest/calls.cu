// Calls of both APIs that change nodes of graphs, load libraries, copy in batches, write and wait for words, part the
// device, link and log: what they do and answer. Prints how many answers are wrong.
#include <cuda.h>
#include <cuda_runtime.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "checks.h"

#define GOOD(call) check((call) == CUDA_SUCCESS, __LINE__)

__global__ void add(int* data, int value) { data[threadIdx.x] += value; }

static cudaStream_t stream;
static int* data;
static int at(int index) {
  int value = -1;
  OK(cudaMemcpy(&value, data + index, sizeof(int), cudaMemcpyDefault));
  return value;
}
static void clear() {
  OK(cudaMemset(data, 0, 256 * sizeof(int)));
  OK(cudaDeviceSynchronize());
}

static void nodes_that_change() {
  clear();
  cudaGraph_t graph = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  int value = 1;
  void* arguments[] = {&data, &value};
  cudaGraphNodeParams kernel{};
  kernel.type = cudaGraphNodeTypeKernel;
  kernel.kernel.func = reinterpret_cast<void*>(add);
  kernel.kernel.gridDim = kernel.kernel.blockDim = dim3(1);
  kernel.kernel.kernelParams = arguments;
  cudaGraphNodeParams fill{};
  fill.type = cudaGraphNodeTypeMemset;
  fill.memset = {data + 8, 0, 5, 4, 2, 1};
  cudaGraphNode_t first = nullptr, second = nullptr;
  OK(cudaGraphAddNode(&first, graph, nullptr, nullptr, 0, &kernel));
  OK(cudaGraphAddNode(&second, graph, &first, nullptr, 1, &fill));
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, stream));
  CHECK(at(0) == 1 && at(8) == 5 && at(9) == 5 && at(10) == 0);
  value = 10;
  kernel.kernel.blockDim = dim3(4);
  fill.memset.value = 6;
  OK(cudaGraphExecNodeSetParams(exec, first, &kernel));
  OK(cudaGraphExecNodeSetParams(exec, second, &fill));
  GIVES(cudaGraphExecNodeSetParams(exec, first, &fill), cudaErrorInvalidValue);
  GIVES(cudaGraphExecNodeSetParams(exec, nullptr, &kernel), cudaErrorInvalidValue);
  OK(cudaGraphLaunch(exec, stream));
  CHECK(at(0) == 11 && at(3) == 10 && at(8) == 6);
  value = 100;
  OK(cudaGraphNodeSetParams(first, &kernel));  // of the graph, not of what was made of it
  OK(cudaGraphLaunch(exec, stream));
  CHECK(at(0) == 21);
  cudaGraphExec_t later = nullptr;
  OK(cudaGraphInstantiate(&later, graph, 0));
  OK(cudaGraphLaunch(later, stream));
  CHECK(at(0) == 121);
  // The driver's structure for the same node.
  cudaFunction_t function = nullptr;
  OK(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(add)));
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.func = reinterpret_cast<CUfunction>(function);
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = arguments;
  value = 1000;
  GOOD(cuGraphExecNodeSetParams(later, first, &params));
  OK(cudaGraphLaunch(later, stream));
  CHECK(at(0) == 1121);
  cudaGraph_t clone = nullptr;
  cudaGraphNode_t like = nullptr;
  OK(cudaGraphClone(&clone, graph));
  OK(cudaGraphNodeFindInClone(&like, second, clone));
  cudaMemsetParams found{};
  OK(cudaGraphMemsetNodeGetParams(like, &found));
  CHECK(found.dst == data + 8 && like != second);
  cudaLaunchAttributeValue attribute{};
  attribute.cooperative = 1;
  OK(cudaGraphKernelNodeSetAttribute(first, cudaLaunchAttributeCooperative, &attribute));
  attribute.cooperative = 0;
  OK(cudaGraphKernelNodeGetAttribute(first, cudaLaunchAttributeCooperative, &attribute));
  CHECK(attribute.cooperative == 1);
  cudaEvent_t one = nullptr, other = nullptr, held = nullptr;
  OK(cudaEventCreate(&one));
  OK(cudaEventCreate(&other));
  cudaGraphNode_t recorded = nullptr;
  OK(cudaGraphAddEventRecordNode(&recorded, graph, nullptr, 0, one));
  OK(cudaGraphEventRecordNodeSetEvent(recorded, other));
  OK(cudaGraphEventRecordNodeGetEvent(recorded, &held));
  CHECK(held == other);
  GIVES(cudaGraphEventWaitNodeGetEvent(recorded, &held), cudaErrorInvalidValue);
}

static const char kPtx[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 factor = 3;
.visible .entry times(.param .u64 p, .param .u32 n)
{ .reg .u64 %a; .reg .u32 %r<4>; ld.param.u64 %a, [p]; ld.param.u32 %r1, [n]; ld.global.u32 %r2, [factor];
  mul.lo.u32 %r3, %r1, %r2; st.global.u32 [%a], %r3; ret; }
.visible .entry nothing() { ret; }
)";

static void libraries() {
  clear();
  cudaLibrary_t library = nullptr;
  cudaKernel_t kernel = nullptr;
  OK(cudaLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0));
  OK(cudaLibraryGetKernel(&kernel, library, "times"));
  unsigned count = 0, number = 14;
  OK(cudaLibraryGetKernelCount(&count, library));
  CHECK(count == 2);
  cudaKernel_t all[2] = {};
  OK(cudaLibraryEnumerateKernels(all, 2, library));
  CHECK(all[0] == kernel || all[1] == kernel);
  void* arguments[] = {&data, &number};
  OK(cudaLaunchKernel(reinterpret_cast<const void*>(kernel), dim3(1), dim3(1), arguments, 0, stream));
  CHECK(at(0) == 42);
  void* factor = nullptr;
  std::size_t bytes = 0, offset = 0;
  OK(cudaLibraryGetGlobal(&factor, &bytes, library, "factor"));
  const unsigned changed = 5;
  CHECK(bytes == 4);
  OK(cudaMemcpy(factor, &changed, 4, cudaMemcpyDefault));
  GOOD(cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  CHECK(at(0) == 70);
  OK(cudaFuncGetParamInfo(reinterpret_cast<const void*>(kernel), 1, &offset, &bytes));
  CHECK(offset == 8 && bytes == 4);
  GIVES(cudaFuncGetParamInfo(reinterpret_cast<const void*>(kernel), 2, &offset, &bytes), cudaErrorInvalidValue);
  GIVES(cudaLibraryGetKernel(&kernel, library, "none"), cudaErrorSymbolNotFound);
  GIVES(cudaLibraryGetGlobal(&factor, &bytes, library, "none"), cudaErrorSymbolNotFound);
  cudaFuncAttributes attributes{};
  OK(cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(all[0])));
  OK(cudaLibraryUnload(library));
  GIVES(cudaLaunchKernel(reinterpret_cast<const void*>(all[0]), dim3(1), dim3(1), arguments, 0, stream),
        cudaErrorInvalidDeviceFunction);
  // A kernel of the program by its handle.
  cudaKernel_t own = nullptr;
  OK(cudaGetKernel(&own, reinterpret_cast<const void*>(add)));
  const char* name = nullptr;
  GOOD(cuKernelGetName(&name, reinterpret_cast<CUkernel>(own)));
  CHECK(std::strstr(name, "add") != nullptr);
}

static void batches() {
  clear();
  int host[64];
  for (int i = 0; i < 64; ++i) host[i] = i;
  void* to[] = {data, data + 100};
  const void* from[] = {host, host + 32};
  std::size_t bytes[] = {40, 80}, first = 0;
  cudaMemcpyAttributes attributes{};
  attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  OK(cudaMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK(at(9) == 9 && at(10) == 0 && at(100) == 32 && at(119) == 51 && at(120) == 0);
  GIVES(cudaMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, nullptr), cudaErrorInvalidValue);
  bytes[1] = 0;
  GIVES(cudaMemcpyBatchAsync(to, from, bytes, 2, &attributes, &first, 1, stream), cudaErrorInvalidValue);
  // A box of rows, and one into an array.
  cudaArray_t array = nullptr;
  const cudaChannelFormatDesc format = cudaCreateChannelDesc<int>();
  OK(cudaMallocArray(&array, &format, 8, 4));
  cudaMemcpy3DBatchOp list[2] = {};
  list[0].src.type = list[0].dst.type = cudaMemcpyOperandTypePointer;
  list[0].src.op.ptr.ptr = host;
  list[0].src.op.ptr.rowLength = 32;
  list[0].src.op.ptr.layerHeight = 2;
  list[0].dst.op.ptr.ptr = data + 128;
  list[0].dst.op.ptr.rowLength = 16;
  list[0].dst.op.ptr.layerHeight = 2;
  list[0].extent = {16, 2, 1};
  list[1].src = list[0].src;
  list[1].src.op.ptr.rowLength = 16;
  list[1].dst.type = cudaMemcpyOperandTypeArray;
  list[1].dst.op.array.array = array;
  list[1].dst.op.array.offset = {1, 2, 0};
  list[1].extent = {4, 2, 1};
  for (cudaMemcpy3DBatchOp& one : list) one.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  OK(cudaMemcpy3DBatchAsync(2, list, 0, stream));
  CHECK(at(128) == 0 && at(131) == 3 && at(132) == 8 && at(135) == 11);
  int row[8];
  OK(cudaMemcpy2DFromArray(row, sizeof(row), array, 0, 3, sizeof(row), 1, cudaMemcpyDefault));
  CHECK(row[1] == 16 && row[4] == 19);
  int* managed = nullptr;
  OK(cudaMallocManaged(&managed, 4096));
  void* pointers[] = {managed};
  std::size_t sizes[] = {4096};
  cudaMemLocation place{cudaMemLocationTypeDevice, 0};
  OK(cudaMemPrefetchBatchAsync(pointers, sizes, 1, &place, &first, 1, 0, stream));
  OK(cudaMemDiscardBatchAsync(pointers, sizes, 1, 0, stream));
  pointers[0] = data;
  GIVES(cudaMemDiscardBatchAsync(pointers, sizes, 1, 0, stream), cudaErrorInvalidValue);
}

// The newest form that the program's version of CUDA knows.
static void forms_by_version() {
  void* function = nullptr;
  CUcontext context = nullptr;
  CUgreenCtx green = reinterpret_cast<CUgreenCtx>(&green);
  GOOD(cuGetProcAddress("cuStreamGetCtx", &function, 12000, 0, nullptr));
  GOOD(reinterpret_cast<CUresult (*)(CUstream, CUcontext*)>(function)(stream, &context));
  CHECK(context != nullptr);
  GOOD(cuGetProcAddress("cuStreamGetCtx", &function, 12050, 0, nullptr));
  GOOD(reinterpret_cast<CUresult (*)(CUstream, CUcontext*, CUgreenCtx*)>(function)(stream, &context, &green));
  CHECK(green == nullptr);
  clear();
  GOOD(cuGetProcAddress("cuMemcpyBatchAsync", &function, 12080, 0, nullptr));
  const int values[2] = {3, 4};
  CUdeviceptr to = reinterpret_cast<CUdeviceptr>(data), from = reinterpret_cast<CUdeviceptr>(values);
  CUmemcpyAttributes attributes{};
  attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
  std::size_t bytes = 8, first = 0, failed = 77;
  GOOD(reinterpret_cast<CUresult (*)(CUdeviceptr*, CUdeviceptr*, std::size_t*, std::size_t, CUmemcpyAttributes*,
                                     std::size_t*, std::size_t, std::size_t*, CUstream)>(function)(
      &to, &from, &bytes, 1, &attributes, &first, 1, &failed, stream));
  CHECK(at(1) == 4);
  CUtensorMap map{};
  check(cuTensorMapReplaceAddress(&map, reinterpret_cast<void*>(1)) == CUDA_ERROR_INVALID_VALUE, __LINE__);
}

static void words() {
  clear();
  const CUdeviceptr word = reinterpret_cast<CUdeviceptr>(data);
  GOOD(cuStreamWriteValue32(stream, word, 77, 0));
  GOOD(cuStreamWriteValue64(stream, word + 8, 0x100000002ull, 0));
  GOOD(cuStreamWaitValue32(stream, word, 77, CU_STREAM_WAIT_VALUE_EQ));
  GOOD(cuStreamWaitValue32(stream, word, 70, CU_STREAM_WAIT_VALUE_GEQ));
  GOOD(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_AND));
  GOOD(cuStreamWaitValue64(stream, word + 8, 0x100000000ull, CU_STREAM_WAIT_VALUE_AND));
  CHECK(at(0) == 77 && at(2) == 2 && at(3) == 1);
  check(cuStreamWriteValue64(stream, word + 4, 1, 0) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[0].writeValue.address = word + 16;
  operations[0].writeValue.value = 9;
  operations[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[1].waitValue.address = word + 16;
  operations[1].waitValue.value = 9;
  operations[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  GOOD(cuStreamBatchMemOp(stream, 2, operations, 0));
  CHECK(at(4) == 9);
  // Another thread of the host writes what is waited for.
  int* pinned = nullptr;
  OK(cudaHostAlloc(&pinned, 4, cudaHostAllocMapped));
  *pinned = 0;
  std::thread writer([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    *static_cast<volatile int*>(pinned) = 3;
  });
  GOOD(cuStreamWaitValue32(stream, reinterpret_cast<CUdeviceptr>(pinned), 3, CU_STREAM_WAIT_VALUE_EQ));
  OK(cudaStreamSynchronize(stream));
  CHECK(*pinned == 3);
  writer.join();
  // In a graph.
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  GOOD(cuStreamWriteValue32(stream, word + 20, 5, 0));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(at(5) == 0);
  OK(cudaGraphLaunch(exec, stream));
  CHECK(at(5) == 5);
}

// Memory of the other side, flags that there are not: as a GPU's runtime answers.
static void refusals() {
  int *pinned = nullptr, *own = nullptr, *managed = nullptr;
  OK(cudaMallocHost(&pinned, 64));
  OK(cudaMalloc(&own, 64));
  OK(cudaMallocManaged(&managed, 64));
  GIVES(cudaFree(pinned), cudaErrorInvalidValue);
  GIVES(cudaFreeHost(own), cudaErrorInvalidValue);
  GIVES(cudaFreeHost(managed), cudaErrorInvalidValue);
  GIVES(cudaFreeHost(pinned + 1), cudaErrorInvalidValue);
  GIVES(cudaFree(own + 1), cudaErrorInvalidValue);
  GIVES(cudaFreeAsync(pinned, stream), cudaErrorInvalidValue);
  check(cuMemFree(reinterpret_cast<CUdeviceptr>(pinned)) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  check(cuMemFreeHost(own) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  void* found = nullptr;
  GIVES(cudaHostGetDevicePointer(&found, pinned, 1), cudaErrorInvalidValue);
  OK(cudaFreeHost(pinned));
  OK(cudaFree(own));
  OK(cudaFree(managed));
  OK(cudaFreeHost(nullptr));
  GIVES(cudaFree(own), cudaErrorInvalidValue);
  GIVES(cudaFreeHost(pinned), cudaErrorInvalidValue);
  GIVES(cudaMallocManaged(&managed, 64, 0), cudaErrorInvalidValue);
  GIVES(cudaMallocManaged(&managed, 64, 4), cudaErrorInvalidValue);
  GIVES(cudaHostAlloc(&pinned, 64, 64), cudaErrorInvalidValue);
  CUdeviceptr address = 0;
  check(cuMemAllocManaged(&address, 64, 7) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  cudaStream_t none = nullptr;
  GIVES(cudaStreamCreateWithFlags(&none, 2), cudaErrorInvalidValue);
  GIVES(cudaStreamCreateWithPriority(&none, 8, 0), cudaErrorInvalidValue);
  GIVES(cudaStreamAttachMemAsync(stream, managed, 0, 3), cudaErrorInvalidValue);
  cudaEvent_t event = nullptr;
  GIVES(cudaEventCreateWithFlags(&event, 8), cudaErrorInvalidValue);
  GIVES(cudaEventCreateWithFlags(&event, cudaEventInterprocess), cudaErrorInvalidValue);
  GIVES(cudaSetDeviceFlags(3), cudaErrorInvalidValue);
  GIVES(cudaSetDeviceFlags(0x400), cudaErrorInvalidValue);
  OK(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  GIVES(cudaGraphCreate(&graph, 1), cudaErrorInvalidValue);
  OK(cudaGraphCreate(&graph, 0));
  GIVES(cudaGraphInstantiate(&exec, graph, 64), cudaErrorInvalidValue);
  OK(cudaGraphDestroy(graph));
  int blocks = 0;
  GIVES(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&blocks, add, 32, 0, 2), cudaErrorInvalidValue);
  GIVES(cudaFuncSetAttribute(add, static_cast<cudaFuncAttribute>(99), 1), cudaErrorInvalidValue);
  const CUdeviceptr word = reinterpret_cast<CUdeviceptr>(data);
  check(cuStreamWaitValue32(stream, word, 1, 8) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  check(cuStreamWriteValue32(stream, word, 1, 4) == CUDA_ERROR_INVALID_VALUE, __LINE__);
  check(cuMemsetD8(reinterpret_cast<CUdeviceptr>(&blocks), 1, 4) == CUDA_ERROR_INVALID_VALUE, __LINE__);
}

static void parts_of_the_device() {
  clear();
  CUdevResource all{}, parts[2] = {}, rest{};
  GOOD(cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM));
  int sms = 0;
  OK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(all.sm.smCount == static_cast<unsigned>(sms));
  unsigned count = 2;
  GOOD(cuDevSmResourceSplitByCount(parts, &count, &all, &rest, 0, 9));
  CHECK(count == 2 && parts[0].sm.smCount == 16 && rest.sm.smCount == all.sm.smCount - 32);
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  CUstream own = nullptr;
  CUcontext context = nullptr;
  GOOD(cuDevResourceGenerateDesc(&description, parts, 1));
  GOOD(cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM));
  GOOD(cuCtxFromGreenCtx(&context, green));
  GOOD(cuGreenCtxStreamCreate(&own, green, CU_STREAM_NON_BLOCKING, 0));
  add<<<1, 4, 0, own>>>(data, 3);
  OK(cudaStreamSynchronize(own));
  CHECK(at(3) == 3);
  CUgreenCtx found = nullptr;
  GOOD(cuStreamGetGreenCtx(own, &found));
  CHECK(found == green);
  GOOD(cuStreamDestroy(own));
  GOOD(cuGreenCtxDestroy(green));
  check(cuGreenCtxDestroy(green) == CUDA_ERROR_INVALID_CONTEXT, __LINE__);
}

static void logs() {
  char errors[256] = "before", information[64] = "before";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
                            CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME};
  const auto values = [&](std::vector<void*>& list, std::size_t room) {
    list = {errors, reinterpret_cast<void*>(room), information, reinterpret_cast<void*>(sizeof(information)), nullptr};
    return list.data();
  };
  std::vector<void*> list;
  CUmodule module = nullptr;
  std::string bad = kPtx;
  bad.insert(bad.find("mul.lo"), "frobnicate.u32 %r1;\n");
  bad.erase(bad.find(".visible .entry nothing"));
  check(cuModuleLoadDataEx(&module, bad.c_str(), 5, options, values(list, sizeof(errors))) == CUDA_ERROR_INVALID_PTX,
        __LINE__);
  CHECK(std::strstr(errors, "frobnicate") != nullptr && std::strstr(errors, ":7:") != nullptr);
  CHECK(reinterpret_cast<std::size_t>(list[1]) == std::strlen(errors) + 1 && information[0] == '\0');
  CHECK(reinterpret_cast<std::size_t>(list[3]) == 0);
  check(cuModuleLoadDataEx(&module, "nonsense", 2, options, values(list, 8)) == CUDA_ERROR_INVALID_IMAGE, __LINE__);
  CHECK(std::strlen(errors) == 7);  // as much as there is room for
  CUlinkState link = nullptr;
  GOOD(cuLinkCreate(5, options, values(list, sizeof(errors)), &link));
  const char junk[] = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k( {\n";
  check(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(junk), sizeof(junk), "junk.ptx", 0, nullptr, nullptr) ==
            CUDA_ERROR_INVALID_PTX,
        __LINE__);
  CHECK(std::strstr(errors, "junk.ptx:4") != nullptr);
  // Two texts become one.
  const char caller[] = R"(.version 8.0
.target sm_80
.address_size 64
.extern .func (.param .b32 r) seven();
.visible .entry put(.param .u64 p)
{ .reg .u64 %a; .reg .u32 %r; .param .b32 got; ld.param.u64 %a, [p]; call (got), seven; ld.param.b32 %r, [got];
  st.global.u32 [%a], %r; ret; }
)";
  const char callee[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .func (.param .b32 r) seven() { .reg .u32 %r; mov.u32 %r, 7; st.param.b32 [r], %r; ret; }
)";
  GOOD(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(caller), sizeof(caller), "a", 0, nullptr, nullptr));
  GOOD(cuLinkAddData(link, CU_JIT_INPUT_PTX, const_cast<char*>(callee), sizeof(callee), "b", 0, nullptr, nullptr));
  void* image = nullptr;
  std::size_t bytes = 0;
  GOOD(cuLinkComplete(link, &image, &bytes));
  GOOD(cuModuleLoadData(&module, image));
  GOOD(cuLinkDestroy(link));
  CUfunction function = nullptr;
  GOOD(cuModuleGetFunction(&function, module, "put"));
  void* arguments[] = {&data};
  GOOD(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
  CHECK(at(0) == 7);
}

static void names_of_errors() {
  for (const auto& [number, name] :
       {std::pair(907, "cudaErrorCapturedEvent"), std::pair(908, "cudaErrorStreamCaptureWrongThread"),
        std::pair(69, "cudaErrorLaunchPendingCountExceeded"), std::pair(718, "cudaErrorInvalidPc")})
    CHECK(std::strcmp(cudaGetErrorName(static_cast<cudaError_t>(number)), name) == 0);
  CHECK(std::strcmp(cudaGetErrorString(static_cast<cudaError_t>(12345)), "unrecognized error code") == 0);
  const char* text = nullptr;
  GOOD(cuGetErrorString(CUDA_ERROR_CAPTURED_EVENT, &text));
  CHECK(std::strcmp(text, cudaGetErrorString(cudaErrorCapturedEvent)) == 0);
  check(cuGetErrorName(static_cast<CUresult>(12345), &text) == CUDA_ERROR_INVALID_VALUE, __LINE__);
}

int main() {
  OK(cudaStreamCreate(&stream));
  OK(cudaMalloc(&data, 256 * sizeof(int)));
  nodes_that_change();
  libraries();
  batches();
  forms_by_version();
  words();
  refusals();
  parts_of_the_device();
  logs();
  names_of_errors();
  std::printf("%d answers are wrong\n", failures);
  return failures == 0 ? 0 : 1;
}
