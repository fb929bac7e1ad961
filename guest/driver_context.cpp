// The CUDA driver's start, device, contexts, streams and events. There is one context, and every thread is in it.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "guest/device_facts.h"
#include "guest/driver.h"
#include "guest/libraries.h"
#include "guest/turns.h"
#include "guest/work.h"

using namespace tessera::guest;

namespace {

CUcontext context() { return static_cast<CUcontext>(only_context()); }
CUresult only_device(CUdevice device) {
  if (!Session::instance().begin_use()) return CUDA_ERROR_NOT_INITIALIZED;
  return device == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
CUresult same(cudaError_t error) { return static_cast<CUresult>(error); }
thread_local int contexts = 0;  // pushed or made

}  // namespace

extern "C" {

CUresult cuInit(unsigned flags) { return flags == 0 ? only_device(0) : CUDA_ERROR_INVALID_VALUE; }
CUresult cuDriverGetVersion(int* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = driver_error_name(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error_text(error);
  return *text == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuGetProcAddress_v2(const char* name, void** function, int version, cuuint64_t,
                             CUdriverProcAddressQueryResult* result) {
  tell_library(__builtin_return_address(0));
  *function = driver_function(name, version);
  if (result != nullptr)
    *result = *function == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}
#undef cuGetProcAddress
CUresult cuGetProcAddress(const char* name, void** function, int version, cuuint64_t flags) {
  tell_library(__builtin_return_address(0));
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return only_device(ordinal);
}
CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  if (size <= 0) return CUDA_ERROR_INVALID_VALUE;
  const std::string_view known = Session::instance().gpu().name;
  const std::size_t count = std::min(known.size(), static_cast<std::size_t>(size) - 1);
  std::memcpy(name, known.data(), count);
  name[count] = '\0';
  return only_device(device);
}
CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  if (value == nullptr || attribute < 1 || attribute >= CU_DEVICE_ATTRIBUTE_MAX) return CUDA_ERROR_INVALID_VALUE;
  *value = device_attribute(attribute);
  return only_device(device);
}
CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice device) {
  *bytes = static_cast<std::size_t>(Session::instance().gpu().memory_bytes);
  return only_device(device);
}
CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice device) {
  *major = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  *minor = device_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  return only_device(device);
}
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  std::memcpy(uuid, "tessera emulator", sizeof(*uuid));
  return only_device(device);
}
CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  return device == 0 ? same(cudaDeviceGetPCIBusId(text, size, 0)) : CUDA_ERROR_INVALID_DEVICE;
}
CUresult cuDeviceCanAccessPeer(int* can, CUdevice from, CUdevice to) {
  *can = 0;
  return from != 0 ? only_device(from) : only_device(to);
}
CUresult cuDevicePrimaryCtxRetain(CUcontext* made, CUdevice device) {
  *made = context();
  return only_device(device);
}
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return only_device(device); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  drive(__func__, [] { return finish_all(); });
  Session::instance().reset();
  return only_device(device);
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned) { return only_device(device); }
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return only_device(device);
}

CUresult cuCtxCreate_v2(CUcontext* made, unsigned, CUdevice device) {
  *made = context();
  ++contexts;
  return only_device(device);
}
CUresult cuCtxCreate_v3(CUcontext* made, CUexecAffinityParam*, int, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(made, flags, device);
}
CUresult cuCtxCreate_v4(CUcontext* made, CUctxCreateParams*, unsigned flags, CUdevice device) {
  return cuCtxCreate_v2(made, flags, device);
}
CUresult cuCtxDestroy_v2(CUcontext) {
  contexts = std::max(0, contexts - 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext given) {
  contexts = given == nullptr ? 0 : std::max(contexts, 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext* current) {
  *current = contexts == 0 ? nullptr : context();
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext) {
  ++contexts;
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext* popped) {
  if (popped != nullptr) *popped = context();
  contexts = std::max(0, contexts - 1);
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}
#if CUDA_VERSION >= 13000
CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext) { return cuCtxGetDevice(device); }
CUresult cuCtxSynchronize_v2(CUcontext) { return cuCtxSynchronize(); }
#endif
CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  *version = kDriverVersion;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetFlags(unsigned* flags) {
  *flags = 0;
  return CUDA_SUCCESS;
}
CUresult cuCtxGetLimit(std::size_t* value, CUlimit limit) {
  return same(cudaDeviceGetLimit(value, static_cast<cudaLimit>(limit)));
}
CUresult cuCtxSetLimit(CUlimit limit, std::size_t value) {
  return same(cudaDeviceSetLimit(static_cast<cudaLimit>(limit), value));
}
CUresult cuCtxSetCacheConfig(CUfunc_cache) { return CUDA_SUCCESS; }
CUresult cuCtxSetSharedMemConfig(CUsharedconfig) { return CUDA_SUCCESS; }
CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return same(cudaDeviceGetStreamPriorityRange(least, greatest));
}
CUresult cuCtxSynchronize() {
  return drive(__func__, [] { return wait_for_all(); });
}

// Streams and events are those of the runtime.
CUresult cuStreamCreate(CUstream* stream, unsigned flags) { return same(cudaStreamCreateWithFlags(stream, flags)); }
CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return same(cudaStreamCreateWithPriority(stream, flags, priority));
}
CUresult cuStreamDestroy_v2(CUstream stream) { return same(cudaStreamDestroy(stream)); }
CUresult cuStreamSynchronize(CUstream stream) { return same(cudaStreamSynchronize(stream)); }
CUresult cuStreamQuery(CUstream stream) { return same(cudaStreamQuery(stream)); }
CUresult cuStreamGetPriority(CUstream stream, int* priority) { return same(cudaStreamGetPriority(stream, priority)); }
CUresult cuStreamGetFlags(CUstream stream, unsigned* flags) { return same(cudaStreamGetFlags(stream, flags)); }
CUresult cuStreamGetCtx(CUstream, CUcontext* of) {
  *of = context();
  return CUDA_SUCCESS;
}
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return same(cudaStreamWaitEvent(stream, event, flags));
}
CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return same(cudaStreamIsCapturing(stream, reinterpret_cast<cudaStreamCaptureStatus*>(status)));
}
CUresult cuEventCreate(CUevent* event, unsigned flags) { return same(cudaEventCreateWithFlags(event, flags)); }
CUresult cuEventDestroy_v2(CUevent event) { return same(cudaEventDestroy(event)); }
CUresult cuEventRecord(CUevent event, CUstream stream) { return same(cudaEventRecord(event, stream)); }
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return same(cudaEventRecordWithFlags(event, stream, flags));
}
CUresult cuEventSynchronize(CUevent event) { return same(cudaEventSynchronize(event)); }
CUresult cuEventQuery(CUevent event) { return same(cudaEventQuery(event)); }
CUresult cuEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  return same(cudaEventElapsedTime(milliseconds, from, to));
}
#undef cuEventElapsedTime
CUresult cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return same(cudaEventElapsedTime(milliseconds, from, to));
}
#if CUDA_VERSION >= 12090
// PyTorch asks for the driver's log: there is none, and nothing calls back.
CUresult cuLogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* handle) {
  if (handle != nullptr) *handle = nullptr;
  return CUDA_SUCCESS;
}
CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle) { return CUDA_SUCCESS; }
#endif
CUresult cuProfilerStart() { return CUDA_SUCCESS; }
CUresult cuProfilerStop() { return CUDA_SUCCESS; }

}  // extern "C"
