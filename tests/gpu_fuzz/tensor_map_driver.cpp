#include "tests/gpu_fuzz/tensor_map_driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace tessera {
namespace {
constexpr int kComputeMajorAttribute = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kComputeMinorAttribute = 76;
}  // namespace

template <class F>
F TensorMapDriver::symbol(const char* name) {
  void* address = dlsym(library_, name);
  if (address == nullptr && error_.empty()) error_ = fmt::format("libcuda.so.1 has no {}", name);
  return reinterpret_cast<F>(address);
}

TensorMapDriver::TensorMapDriver() {
  library_ = dlopen("libcuda.so.1", RTLD_NOW);
  if (library_ == nullptr) {
    error_ = fmt::format("no driver: {}", dlerror());
    return;
  }
  encode_ = symbol<Encode>("cuTensorMapEncodeTiled");
  replace_address_ = symbol<ReplaceAddress>("cuTensorMapReplaceAddress");
  if (error_.empty()) initialise();
}

void TensorMapDriver::initialise() {
  const auto init = symbol<int (*)(unsigned)>("cuInit");
  const auto get_version = symbol<int (*)(int*)>("cuDriverGetVersion");
  const auto get_device = symbol<int (*)(int*, int)>("cuDeviceGet");
  const auto get_name = symbol<int (*)(char*, int, int)>("cuDeviceGetName");
  const auto get_attribute = symbol<int (*)(int*, int, int)>("cuDeviceGetAttribute");
  if (!error_.empty()) return;
  int device = 0;
  char name[256] = {};
  const auto check = [this](const char* call, int result) {
    if (result != 0 && error_.empty()) error_ = fmt::format("{} gave {}", call, result);
  };
  check("cuInit", init(0));
  check("cuDriverGetVersion", get_version(&driver_version_));
  check("cuDeviceGet", get_device(&device, 0));
  check("cuDeviceGetName", get_name(name, sizeof name, device));
  check("cuDeviceGetAttribute", get_attribute(&compute_major_, kComputeMajorAttribute, device));
  check("cuDeviceGetAttribute", get_attribute(&compute_minor_, kComputeMinorAttribute, device));
  device_name_ = name;
}

bool TensorMapDriver::retain_context() {
  const auto retain = symbol<int (*)(void**, int)>("cuDevicePrimaryCtxRetain");
  const int result = retain == nullptr ? -1 : retain(&context_, 0);
  if (result != 0) error_ = fmt::format("cuDevicePrimaryCtxRetain gave {}", result);
  return result == 0;
}

bool TensorMapDriver::make_current() const {
  using SetCurrent = int (*)(void*);
  const SetCurrent set_current = reinterpret_cast<SetCurrent>(dlsym(library_, "cuCtxSetCurrent"));
  return set_current != nullptr && set_current(context_) == 0;
}

}  // namespace tessera
