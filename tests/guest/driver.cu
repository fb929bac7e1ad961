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
