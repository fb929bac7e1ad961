#include <dlfcn.h>

#include <array>
#include <string>
#include <string_view>

#include "guest/driver.h"
#include "guest/loaded.h"

namespace tessera::guest {
namespace {

// Functions whose parameters changed under one name, and the version of CUDA that has the form; all other forms take
// what those before them did.
struct Form {
  std::string_view name, suffix;
  int since;
};
constexpr std::array kForms = {
    Form{"cuCtxCreate", "_v4", 13000},
    Form{"cuCtxCreate", "_v2", 0},
    Form{"cuMemAdvise", "_v2", 13000},
    Form{"cuMemAdvise", "", 0},
    Form{"cuMemPrefetchAsync", "_v2", 13000},
    Form{"cuMemPrefetchAsync", "", 0},
    Form{"cuCtxGetDevice", "_v2", 13000},
    Form{"cuCtxGetDevice", "", 0},
    Form{"cuCtxSynchronize", "_v2", 13000},
    Form{"cuCtxSynchronize", "", 0},
    Form{"cuGetProcAddress", "_v2", 12000},
    Form{"cuGetProcAddress", "", 0},
    Form{"cuGraphInstantiate", "WithFlags", 12000},
    Form{"cuGraphInstantiate", "_v2", 0},
    Form{"cuGraphAddKernelNode", "_v2", 12000},
    Form{"cuGraphAddKernelNode", "", 0},
    Form{"cuGraphKernelNodeSetParams", "_v2", 12000},
    Form{"cuGraphKernelNodeSetParams", "", 0},
    Form{"cuGraphExecKernelNodeSetParams", "_v2", 12000},
    Form{"cuGraphExecKernelNodeSetParams", "", 0},
    Form{"cuGraphAddNode", "_v2", 13000},
    Form{"cuGraphAddNode", "", 0},
    Form{"cuGraphAddDependencies", "_v2", 13000},
    Form{"cuGraphAddDependencies", "", 0},
    Form{"cuGraphGetEdges", "_v2", 13000},
    Form{"cuGraphGetEdges", "", 0},
    Form{"cuGraphNodeGetDependencies", "_v2", 13000},
    Form{"cuGraphNodeGetDependencies", "", 0},
    Form{"cuGraphNodeGetDependentNodes", "_v2", 13000},
    Form{"cuGraphNodeGetDependentNodes", "", 0},
    Form{"cuGraphRemoveDependencies", "_v2", 13000},
    Form{"cuGraphRemoveDependencies", "", 0},
    Form{"cuGraphKernelNodeGetParams", "_v2", 12000},
    Form{"cuGraphKernelNodeGetParams", "", 0},
    Form{"cuMemcpyBatchAsync", "_v2", 13000},
    Form{"cuMemcpyBatchAsync", "", 0},
    Form{"cuMemcpy3DBatchAsync", "_v2", 13000},
    Form{"cuMemcpy3DBatchAsync", "", 0},
    Form{"cuStreamGetCtx", "_v2", 12050},
    Form{"cuStreamGetCtx", "", 0},
    Form{"cuStreamGetCaptureInfo", "_v3", 13000},
    Form{"cuStreamGetCaptureInfo", "_v2", 0},
    Form{"cuStreamUpdateCaptureDependencies", "_v2", 13000},
    Form{"cuStreamUpdateCaptureDependencies", "", 0},
};

}  // namespace

void* driver_function(const char* name, int version) {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&driver_function), &self) == 0) return nullptr;
  static void* const ours = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  for (const Form& form : kForms)
    if (form.name == name && version >= form.since) return dlsym(ours, (name + std::string(form.suffix)).c_str());
  for (const char* suffix : {"_v3", "_v2", ""})
    if (void* const function = dlsym(ours, (std::string(name) + suffix).c_str())) return function;
  return nullptr;
}

void* only_context() {
  static int context = 0;
  return &context;
}

}  // namespace tessera::guest

// Tables without documentation, which a static runtime and NVRTC ask for: takeover.cpp says why there are none.
extern "C" CUresult cuGetExportTable(const void** table, const CUuuid*) {
  tell_untaken(__builtin_return_address(0));
  *table = nullptr;
  return CUDA_ERROR_NOT_SUPPORTED;
}
