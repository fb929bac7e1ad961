// Green contexts: multiprocessors of the device that a program parts among streams. Parts are counted and told again;
// work runs one after another on all of the device, which no program can tell apart but by time.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>

#include "guest/driver.h"
#include "guest/work.h"

#if CUDA_VERSION >= 12040
using namespace tessera::guest;

namespace {

// What the driver hands out on these architectures: pairs of multiprocessors, and no fewer than eight.
constexpr unsigned kStep = 8, kLeast = 8;

struct Description {
  CUdevResource resource{};
};
struct Green {
  CUdevResource resource{};
  unsigned long long id = 0;
};
std::set<Description*>& descriptions() {
  static auto* const made = new std::set<Description*>;
  return *made;
}
std::set<Green*>& contexts() {
  static auto* const made = new std::set<Green*>;
  return *made;
}
std::map<const void*, Green*>& streams() {
  static auto* const made = new std::map<const void*, Green*>;
  return *made;
}
Green* green_of(CUgreenCtx handle) {
  auto* const green = reinterpret_cast<Green*>(handle);
  return contexts().contains(green) ? green : nullptr;
}

CUdevResource multiprocessors(unsigned count) {
  CUdevResource made{};
  made.type = CU_DEV_RESOURCE_TYPE_SM;
  made.sm.smCount = count;
#if CUDA_VERSION >= 13000
  made.sm.minSmPartitionSize = kLeast;
  made.sm.smCoscheduledAlignment = kStep;
#endif
  return made;
}
unsigned all() { return static_cast<unsigned>(Session::instance().num_sms()); }

}  // namespace

extern "C" {

CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource* resource, CUdevResourceType type) {
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (resource == nullptr || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = multiprocessors(all());
  return CUDA_SUCCESS;
}
CUresult cuCtxGetDevResource(CUcontext context, CUdevResource* resource, CUdevResourceType type) {
  if (const Green* const green = green_of(reinterpret_cast<CUgreenCtx>(context))) {
    *resource = green->resource;
    return CUDA_SUCCESS;
  }
  return cuDeviceGetDevResource(0, resource, type);
}
CUresult cuGreenCtxGetDevResource(CUgreenCtx context, CUdevResource* resource, CUdevResourceType type) {
  const Green* const green = green_of(context);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (resource == nullptr || type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
  *resource = green->resource;
  return CUDA_SUCCESS;
}
// As many groups as are asked for and fit, each of the least count in whole steps; what is left over is a resource,
// too.
CUresult cuDevSmResourceSplitByCount(CUdevResource* result, unsigned* count, const CUdevResource* from,
                                     CUdevResource* remaining, unsigned, unsigned least) {
  if (count == nullptr || from == nullptr || from->type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_VALUE;
  const unsigned size = std::max(kLeast, (least + kStep - 1) / kStep * kStep);
  const unsigned fit = from->sm.smCount / size;
  if (fit == 0) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  const unsigned groups = result == nullptr ? fit : std::min(*count, fit);
  if (groups == 0) return CUDA_ERROR_INVALID_VALUE;
  *count = groups;
  for (unsigned i = 0; result != nullptr && i < groups; ++i) result[i] = multiprocessors(size);
  if (remaining != nullptr) {
    *remaining = multiprocessors(from->sm.smCount - groups * size);
    if (remaining->sm.smCount == 0) *remaining = {};
  }
  return CUDA_SUCCESS;
}
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* description, CUdevResource* resources, unsigned count) {
  if (description == nullptr || resources == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  unsigned sum = 0;
  for (unsigned i = 0; i < count; ++i) {
    if (resources[i].type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    sum += resources[i].sm.smCount;
  }
  if (sum == 0 || sum > all()) return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
  auto* const made = new Description{multiprocessors(sum)};
  descriptions().insert(made);
  *description = reinterpret_cast<CUdevResourceDesc>(made);
  return CUDA_SUCCESS;
}
CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc description, CUdevice device, unsigned flags) {
  static unsigned long long next = 2;  // 1 is the primary context's
  auto* const of = reinterpret_cast<Description*>(description);
  if (device != 0) return CUDA_ERROR_INVALID_DEVICE;
  if (context == nullptr || flags != CU_GREEN_CTX_DEFAULT_STREAM || !descriptions().contains(of))
    return CUDA_ERROR_INVALID_VALUE;
  auto* const made = new Green{of->resource, next++};
  contexts().insert(made);
  *context = reinterpret_cast<CUgreenCtx>(made);
  return CUDA_SUCCESS;
}
CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  Green* const green = green_of(context);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::erase_if(streams(), [&](const auto& entry) { return entry.second == green; });
  contexts().erase(green);
  delete green;
  return CUDA_SUCCESS;
}
CUresult cuCtxFromGreenCtx(CUcontext* context, CUgreenCtx green) {
  if (green_of(green) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *context = reinterpret_cast<CUcontext>(green);
  return CUDA_SUCCESS;
}
CUresult cuGreenCtxStreamCreate(CUstream* stream, CUgreenCtx context, unsigned flags, int priority) {
  Green* const green = green_of(context);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if ((flags & CU_STREAM_NON_BLOCKING) == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult error = cuStreamCreateWithPriority(stream, flags, priority);
  if (error == CUDA_SUCCESS) streams()[*stream] = green;
  return error;
}
CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx* context) {
  const auto it = streams().find(stream);
  *context = it == streams().end() ? nullptr : reinterpret_cast<CUgreenCtx>(it->second);
  return CUDA_SUCCESS;
}
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext* context, CUgreenCtx* green) {
  cuStreamGetGreenCtx(stream, green);
  *context = *green != nullptr ? nullptr : static_cast<CUcontext>(only_context());
  return CUDA_SUCCESS;
}
CUresult cuGreenCtxRecordEvent(CUgreenCtx context, CUevent event) {
  return green_of(context) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : cuEventRecord(event, nullptr);
}
CUresult cuGreenCtxWaitEvent(CUgreenCtx context, CUevent event) {
  return green_of(context) == nullptr ? CUDA_ERROR_INVALID_CONTEXT : cuStreamWaitEvent(nullptr, event, 0);
}
#if CUDA_VERSION >= 13000
CUresult cuGreenCtxGetId(CUgreenCtx context, unsigned long long* id) {
  const Green* const green = green_of(context);
  if (green == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *id = green->id;
  return CUDA_SUCCESS;
}
#endif

}  // extern "C"
#endif
