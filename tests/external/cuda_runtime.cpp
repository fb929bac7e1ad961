// The part of the CUDA runtime that a small host program needs, on the emulator: `nvcc -cudart none` leaves these
// symbols open, and this file supplies them. Test tooling only: it lets programs that others wrote run unchanged, with
// their own checks. Nothing here stands in for a driver or ships with the library.
//
//   nvcc -cudart none -gencode arch=compute_100a,code=compute_100a --no-compress -c program.cu
//   g++ program.o cuda_runtime.o libtessera_emulator... -o program
//
// The PTX is found in the registered image: text that starts with ".version". Memory is the emulator's; streams and
// events are trivial because work runs inside the call. A failure found by the emulator ends the program with code 1;
// hazards are listed on stderr. Environment: EMULATOR_SCHEDULE (fair, eager, lazy, adversarial, split, weak),
// EMULATOR_SEED, EMULATOR_SMS, EMULATOR_RACES=1 (the race detector), EMULATOR_STRICT=1 (registers that nobody wrote),
// EMULATOR_REPORT=1 (a line per launch).
#include "tests/external/cuda_runtime.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "emulator/memory/memory.h"
#include "tessera/error.h"

namespace {

using tessera::emulator::EmulatedDevice;

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

tessera::emulator::Schedule schedule_of(const std::string& name) {
  using tessera::emulator::Schedule;
  static const std::map<std::string, Schedule> schedules{
      {"fair", Schedule::fair},   {"eager", Schedule::eager},
      {"lazy", Schedule::lazy},   {"adversarial", Schedule::adversarial},
      {"split", Schedule::split}, {"weak", Schedule::weak}};
  const auto it = schedules.find(name);
  if (it != schedules.end()) return it->second;
  std::fprintf(stderr, "emulator: no schedule '%s' (EMULATOR_SCHEDULE)\n", name.c_str());
  std::exit(2);
}

struct Kernel {
  std::size_t image = 0;
  std::string name;
  tessera::EntryHandle entry;
};

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t smem = 0;
  cudaStream_t stream = nullptr;
  bool is_dependent = false;  ///< programmatic stream serialization
};

class Runtime {
 public:
  static Runtime& instance() {
    static Runtime* made = new Runtime;  // never destroyed: programs free at exit
    return *made;
  }

  EmulatedDevice& device() {
    if (!device_) {
      tessera::emulator::DeviceOptions options;
      options.arch = environment("EMULATOR_ARCH", "sm_100a");
      options.num_sms = std::atoi(environment("EMULATOR_SMS", "8").c_str());
      options.seed = std::strtoull(environment("EMULATOR_SEED", "1").c_str(), nullptr, 10);
      options.detects_races = environment("EMULATOR_RACES", "0") == "1";
      options.detects_unwritten_registers = environment("EMULATOR_STRICT", "0") == "1";
      options.schedule = schedule_of(environment("EMULATOR_SCHEDULE", "fair"));
      device_ = std::make_unique<EmulatedDevice>(options);
    }
    return *device_;
  }

  std::size_t add_image(const char* ptx, std::size_t bytes) {
    images_.push_back({std::string(ptx, bytes), nullptr});
    return images_.size() - 1;
  }
  void add_kernel(const void* host, std::size_t image, const char* name) { kernels_[host] = {image, name, {}}; }
  Kernel* find(const void* host) {
    const auto it = kernels_.find(host);
    return it == kernels_.end() ? nullptr : &it->second;
  }

  void add_variable(const void* host, std::size_t image, const char* name) { variables_[host] = {image, name}; }
  /// Null where the host's variable stands for none of a module.
  tessera::emulator::DeviceVariable variable(const void* host) {
    const auto it = variables_.find(host);
    if (it == variables_.end()) return {};
    return device().variable(load(it->second.first), it->second.second);
  }

  tessera::LoadedImage& load(std::size_t number) {
    auto& image = images_[number];
    if (!image.second) image.second = device().load_ptx(image.first, "program.ptx");
    return *image.second;
  }
  tessera::LoadedImage& load(Kernel& kernel) {
    tessera::LoadedImage& image = load(kernel.image);
    if (kernel.entry.handle == 0) {
      kernel.entry = image.entry(kernel.name);
      image.set_max_dynamic_smem(kernel.entry, 0);
    }
    return image;
  }

  /// The cluster that the kernel's PTX requires; 1 x 1 x 1 without one.
  dim3 required_cluster(const Kernel& kernel) const {
    const std::string& text = images_[kernel.image].first;
    std::size_t at = text.find(".entry " + kernel.name + "(");
    const std::size_t end = text.find("\n{", at);
    at = text.find(".reqnctapercluster", at);
    dim3 cluster(1, 1, 1);
    if (at != std::string::npos && at < end)
      std::sscanf(text.c_str() + at, ".reqnctapercluster %u, %u, %u", &cluster.x, &cluster.y, &cluster.z);
    return cluster;
  }

  cudaError_t launch(const void* host, const Configuration& c, void** arguments, dim3 cluster) {
    Kernel* kernel = find(host);
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (cluster.x == 0) cluster = required_cluster(*kernel);
    try {
      tessera::LoadedImage& image = load(*kernel);
      image.set_max_dynamic_smem(kernel->entry, static_cast<std::int64_t>(c.smem));
      tessera::LaunchRequest request;
      request.entry = kernel->entry;
      request.grid = {c.grid.x, c.grid.y, c.grid.z};
      request.block = {c.block.x, c.block.y, c.block.z};
      request.cluster = {cluster.x, cluster.y, cluster.z};
      request.dynamic_smem_bytes = static_cast<std::uint32_t>(c.smem);
      request.programmatic_stream_serialization = c.is_dependent;
      request.parameters = arguments;
      const std::clock_t start = std::clock();
      device().launch(request, tessera::Stream(c.stream));
      cpu_seconds_ = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
    } catch (const tessera::Error& error) {
      std::fprintf(stderr, "emulator: %s\n", error.what());
      for (const std::string& note : error.notes()) std::fprintf(stderr, "  %s\n", note.c_str());
      std::exit(4);
    }
    report(*kernel, c, cluster);
    return cudaSuccess;
  }

  std::vector<Configuration> configurations;

 private:
  void report(const Kernel& kernel, const Configuration& c, dim3 cluster) {
    const auto statistics = device().statistics();
    if (environment("EMULATOR_REPORT", "0") == "1")
      std::fprintf(stderr,
                   "emulator: %.60s grid %u %u %u block %u cluster %u %u smem %zu: %llu instructions, %.1f ms CPU\n",
                   kernel.name.c_str(), c.grid.x, c.grid.y, c.grid.z, c.block.x, cluster.x, cluster.y, c.smem,
                   static_cast<unsigned long long>(statistics.warp_instructions), cpu_seconds_ * 1e3);
    bool failed = false;
    for (const auto& finding : device().take_findings()) {
      std::fprintf(stderr, "%s\n", finding.to_string().c_str());
      failed = failed || finding.is_failure;
    }
    if (failed) std::exit(1);
  }

  double cpu_seconds_ = 0;
  std::unique_ptr<EmulatedDevice> device_;
  std::vector<std::pair<std::string, std::unique_ptr<tessera::LoadedImage>>> images_;
  std::map<const void*, Kernel> kernels_;
  std::map<const void*, std::pair<std::size_t, std::string>> variables_;  // image and name
};

bool is_device(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) >= tessera::emulator::kGlobalBase &&
         reinterpret_cast<std::uintptr_t>(pointer) < tessera::emulator::kGlobalBase + (std::uint64_t{64} << 30);
}
std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

}  // namespace

namespace tessera::external {

EmulatedDevice& device() { return Runtime::instance().device(); }
bool is_kernel(const void* host) { return Runtime::instance().find(host) != nullptr; }
emulator::DeviceVariable variable(const void* host) { return Runtime::instance().variable(host); }

cudaError_t copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  EmulatedDevice& device = Runtime::instance().device();
  if (is_device(to) && is_device(from)) {
    std::vector<char> aside(bytes);
    device.copy_to_host(aside.data(), address(from), bytes);
    device.copy_to_device(address(to), aside.data(), bytes);
  } else if (is_device(to)) {
    device.copy_to_device(address(to), from, bytes);
  } else if (is_device(from)) {
    device.copy_to_host(to, address(from), bytes);
  } else {
    std::memcpy(to, from, bytes);
  }
  return cudaSuccess;
}

}  // namespace tessera::external

namespace {

using tessera::external::copy;

CUresult encode_tiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* global, const cuuint64_t* dims,
                      const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t* element_strides,
                      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                      CUtensorMapFloatOOBfill fill) {
  tessera::ResolvedTensorMap map;
  map.type = static_cast<tessera::TensorMapType>(type);
  map.rank = rank;
  map.address = address(global);
  for (cuuint32_t i = 0; i < rank && i < 5; ++i) {
    map.dims[i] = dims[i];
    if (i + 1 < rank) map.strides_bytes[i] = strides[i];
    map.box[i] = box[i];
    map.element_strides[i] = element_strides != nullptr ? element_strides[i] : 1;
  }
  map.interleave = static_cast<tessera::TensorMapInterleave>(interleave);
  map.swizzle = static_cast<tessera::TensorMapSwizzle>(swizzle);
  map.l2_promotion = static_cast<tessera::TensorMapL2Promotion>(promotion);
  map.fill = static_cast<tessera::TensorMapFill>(fill);
  tessera::TensorMapObject object;
  Runtime::instance().device().encode(map, object);
  std::memcpy(out, object.bytes.data(), sizeof(CUtensorMap));
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// Registration, as nvcc's host code calls it.
void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {
    int magic;
    int version;
    const char* data;
    void* file;
  };
  const auto* data = static_cast<const Wrapper*>(wrapper)->data;
  std::uint16_t header = 0;
  std::uint64_t size = 0;
  std::memcpy(&header, data + 6, 2);
  std::memcpy(&size, data + 8, 8);
  const char* end = data + header + size;
  for (const char* at = data; at + 8 < end; ++at) {
    if (std::memcmp(at, ".version", 8) != 0) continue;
    const auto length = static_cast<std::size_t>(std::find(at, end, '\0') - at);
    return reinterpret_cast<void**>(Runtime::instance().add_image(at, length) + 1);
  }
  std::fprintf(stderr, "emulator: an image without PTX; compile with code=compute_... and --no-compress\n");
  std::exit(2);
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
void __cudaRegisterFunction(void** handle, const char* host, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
  Runtime::instance().add_kernel(host, reinterpret_cast<std::size_t>(handle) - 1, name);
}
void __cudaRegisterVar(void** handle, char* host, char*, const char* name, int, std::size_t, int, int) {
  Runtime::instance().add_variable(host, reinterpret_cast<std::size_t>(handle) - 1, name);
}
char __cudaInitModule(void**) { return 0; }
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(host));
  return Runtime::instance().find(host) != nullptr ? cudaSuccess : cudaErrorInvalidDeviceFunction;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t smem, cudaStream_t stream) {
  Runtime::instance().configurations.push_back({grid, block, smem, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* smem, void* stream) {
  auto& all = Runtime::instance().configurations;
  const Configuration c = all.back();
  all.pop_back();
  *grid = c.grid;
  *block = c.block;
  *smem = c.smem;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}

// Launches. The cluster of a kernel that requires one is in its PTX; a plain launch takes it from there.
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t smem,
                               cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, smem, stream);
}
cudaError_t cudaLaunchKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t smem,
                             cudaStream_t stream) {
  return Runtime::instance().launch(host, {grid, block, smem, stream}, arguments, dim3(0, 0, 0));
}
// A grid barrier gets its workspace at every launch whose CTAs run at once (EMULATOR_SMS); it traps where they do not.
cudaError_t cudaLaunchCooperativeKernel(const void* host, dim3 grid, dim3 block, void** arguments, std::size_t smem,
                                        cudaStream_t stream) {
  return cudaLaunchKernel(host, grid, block, arguments, smem, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* host, void** arguments) {
  dim3 cluster(0, 0, 0);
  Configuration c{config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream};
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      cluster = dim3(attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z);
    else if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      c.is_dependent = attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  return Runtime::instance().launch(host, c, arguments, cluster);
}

// Memory.
cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = reinterpret_cast<void*>(Runtime::instance().device().allocate(bytes == 0 ? 1 : bytes));
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** pointer, std::size_t bytes, cudaStream_t) { return cudaMalloc(pointer, bytes); }
cudaError_t cudaFree(void* pointer) {
  if (pointer != nullptr) Runtime::instance().device().free(address(pointer));
  return cudaSuccess;
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t) { return cudaFree(pointer); }
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  *pointer = std::malloc(bytes);
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) { return cudaMallocHost(pointer, bytes); }
cudaError_t cudaFreeHost(void* pointer) {
  std::free(pointer);
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) { return copy(to, from, bytes); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return copy(to, from, bytes);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  Runtime::instance().device().set_bytes(address(to), static_cast<std::uint8_t>(value), bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t) {
  return cudaMemset(to, value, bytes);
}
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream) {
  const std::vector<unsigned> words(count, value);
  copy(reinterpret_cast<void*>(to), words.data(), 4 * count);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream) {
  const std::vector<unsigned short> halves(count, value);
  copy(reinterpret_cast<void*>(to), halves.data(), 2 * count);
  return CUDA_SUCCESS;
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream) {
  cudaMemset(reinterpret_cast<void*>(to), value, count);
  return CUDA_SUCCESS;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = *total = std::size_t{64} << 30;
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  std::memset(attributes, 0, sizeof(*attributes));
  attributes->type = is_device(pointer) ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered;
  attributes->devicePointer = const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  const bool is_known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *function = is_known ? reinterpret_cast<void*>(&encode_tiled) : nullptr;
  if (result != nullptr) *result = is_known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType type, cuuint32_t rank, void* global,
                                const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  return encode_tiled(out, type, rank, global, dims, strides, box, element_strides, interleave, swizzle, promotion,
                      fill);
}
CUresult cuGetErrorName(CUresult, const char** text) {
  *text = "error";
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "error";
  return CUDA_SUCCESS;
}

}  // extern "C"
