// Runs in the context that is current, and only make_cuda_device with its flag retains one. The launch path is the
// driver's calls and nothing else. Every result passes one check that knows call and subject.
#include "tessera/cuda_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "runtime/cuda_driver.h"
#include "runtime/cuda_pointers.h"
#include "tessera/error.h"
#include "tessera/pointer_probe.h"

namespace tessera {

namespace {

CuStream stream_of(Stream stream) { return reinterpret_cast<CuStream>(stream.handle); }
CuEvent event_of(Event event) { return reinterpret_cast<CuEvent>(event.handle); }
CuFunction function_of(EntryHandle entry) { return reinterpret_cast<CuFunction>(entry.handle); }

/// Code in the context that was current when it was loaded.
class CudaImage final : public LoadedImage {
 public:
  CudaImage(const CudaApi& api, const Image& image, const std::string& device_name) : api_(api) {
    check(api_, api_.context_current(&context_), "cuCtxGetCurrent", {});
    check(api_, api_.context_id(context_, &context_id_), "cuCtxGetId", {});
    load(image.cubin, module_, device_name);
    if (image.merge.cubin.empty()) return;
    try {
      load(image.merge.cubin, merge_, device_name);
    } catch (...) {
      api_.module_unload(module_);  // no destructor runs for what was not constructed
      throw;
    }
  }

  /// The caller may have destroyed the context (ids are never used twice), and with it the code.
  ~CudaImage() override {
    unsigned long long id = 0;
    if (api_.context_id(context_, &id) != 0 || id != context_id_ || api_.context_push(context_) != 0) return;
    api_.module_unload(module_);
    if (merge_ != nullptr) api_.module_unload(merge_);
    CuContext popped = nullptr;
    api_.context_pop(&popped);
  }
  CudaImage(const CudaImage&) = delete;
  CudaImage& operator=(const CudaImage&) = delete;

  EntryHandle entry(std::string_view name) override {
    const std::string text(name);
    CuFunction function = nullptr;
    int result = api_.module_function(&function, module_, text.c_str());
    if (result != 0 && merge_ != nullptr) result = api_.module_function(&function, merge_, text.c_str());
    check(api_, result, "cuModuleGetFunction", fmt::format("kernel '{}'", name));
    // Otherwise the driver may load at the first launch, which a capture forbids.
    check(api_, api_.function_load(function), "cuFuncLoad", fmt::format("kernel '{}'", name));
    // Clusters of more than 8; devices that have none refuse the attribute, and such a launch.
    api_.function_set(function, kCuNonPortableClusterAllowed, 1);
    return {reinterpret_cast<std::uintptr_t>(function)};
  }

  std::vector<ParameterLayout> parameters(EntryHandle entry) override {
    std::vector<ParameterLayout> layouts;
    ParameterLayout layout;
    // The first index past the last parameter is an invalid value: that is how the end is known.
    while (api_.function_parameter(function_of(entry), layouts.size(), &layout.offset, &layout.bytes) == 0)
      layouts.push_back(layout);
    return layouts;
  }

  void set_max_dynamic_smem(EntryHandle entry, std::int64_t bytes) override {
    check(api_, api_.function_set(function_of(entry), kCuMaxDynamicSmemBytes, static_cast<int>(bytes)),
          "cuFuncSetAttribute", fmt::format("{} bytes of dynamic shared memory", bytes));
  }

 private:
  void load(const std::vector<std::byte>& cubin, CuModule& module, const std::string& device_name) {
    check(api_, api_.module_load(&module, cubin.data(), 0, nullptr, nullptr), "cuModuleLoadDataEx",
          fmt::format("loading {} bytes of code on {}", cubin.size(), device_name));
  }

  const CudaApi& api_;
  CuContext context_ = nullptr;
  unsigned long long context_id_ = 0;
  CuModule module_ = nullptr;
  CuModule merge_ = nullptr;  // of the image's merge, where it has one
};

std::string describe(const ResolvedTensorMap& map) {
  const auto list = [&](const auto& values, std::size_t count) {
    return fmt::format("[{}]", fmt::join(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), ", "));
  };
  const std::size_t rank = std::min<std::size_t>(map.rank, kMaxTensorMapRank);
  return fmt::format(
      "type {}, rank {}, address {:#x}, dims {}, strides_bytes {}, box {}, element_strides {}, interleave {}, swizzle "
      "{}, l2_promotion {}, fill {}",
      to_string(map.type), map.rank, map.address, list(map.dims, rank),
      list(map.strides_bytes, rank > 0 ? rank - 1 : 0), list(map.box, rank), list(map.element_strides, rank),
      to_string(map.interleave), to_string(map.swizzle), to_string(map.l2_promotion), to_string(map.fill));
}

class CudaDevice final : public Device, public PointerProbe {
 public:
  CudaDevice(int ordinal, bool retain_primary_context) : api_(require_cuda()) {
    const int count = cuda_driver().num_devices;
    if (ordinal < 0 || ordinal >= count)
      throw Error(ErrorKind::device, fmt::format("device {}: there are {}, counted from 0", ordinal, count));
    check(api_, api_.device_get(&device_, ordinal), "cuDeviceGet", fmt::format("device {}", ordinal));
    fill_info(ordinal);
    if (!retain_primary_context) return;
    check(api_, api_.primary_retain(&primary_, device_), "cuDevicePrimaryCtxRetain", info_.name);
    check(api_, api_.context_set_current(primary_), "cuCtxSetCurrent", info_.name);
  }
  ~CudaDevice() override {
    if (primary_ != nullptr) api_.primary_release(device_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const DeviceInfo& info() const override { return info_; }

  DevicePointer allocate(std::size_t bytes) override {
    CuPointer pointer = 0;
    call([&] { return api_.memory_allocate(&pointer, bytes > 0 ? bytes : 1); }, "cuMemAlloc",
         [&] { return fmt::format("{} bytes on {}", bytes, info_.name); });
    return pointer;
  }
  void free(DevicePointer pointer) noexcept override {
    if (pointer != 0) api_.memory_free(pointer);
  }
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes, Stream stream) override {
    if (bytes > 0)
      call([&] { return api_.copy_to_device(to, from, bytes, stream_of(stream)); }, "cuMemcpyHtoDAsync",
           [&] { return fmt::format("{} bytes to {:#x}", bytes, to); });
    wait(stream);
  }
  void copy_to_host(void* to, DevicePointer from, std::size_t bytes, Stream stream) override {
    if (bytes > 0)
      call([&] { return api_.copy_to_host(to, from, bytes, stream_of(stream)); }, "cuMemcpyDtoHAsync",
           [&] { return fmt::format("{} bytes from {:#x}", bytes, from); });
    wait(stream);
  }
  void set_bytes(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream) override {
    if (bytes == 0) return;
    call([&] { return api_.set_bytes(to, value, bytes, stream_of(stream)); }, "cuMemsetD8Async",
         [&] { return fmt::format("{} bytes at {:#x}", bytes, to); });
  }

  Stream create_stream() override {
    constexpr unsigned kNonBlocking = 1;
    CuStream stream = nullptr;
    call([&] { return api_.stream_create(&stream, kNonBlocking); }, "cuStreamCreate");
    return Stream(stream);
  }
  void destroy(Stream stream) noexcept override {
    if (stream.handle != 0) api_.stream_destroy(stream_of(stream));
  }
  Event create_event() override {
    CuEvent event = nullptr;
    call([&] { return api_.event_create(&event, 0); }, "cuEventCreate");
    return {reinterpret_cast<std::uintptr_t>(event)};
  }
  void destroy(Event event) noexcept override {
    if (event.handle != 0) api_.event_destroy(event_of(event));
  }
  void record(Event event, Stream stream) override {
    call([&] { return api_.event_record(event_of(event), stream_of(stream)); }, "cuEventRecord");
  }
  double elapsed_ms(Event from, Event to) override {
    float milliseconds = 0;
    call([&] { return api_.event_synchronize(event_of(from)); }, "cuEventSynchronize");
    call([&] { return api_.event_synchronize(event_of(to)); }, "cuEventSynchronize");
    call([&] { return api_.event_elapsed(&milliseconds, event_of(from), event_of(to)); }, "cuEventElapsedTime");
    return static_cast<double>(milliseconds);
  }
  std::vector<Finding> synchronize(Stream stream) override {
    wait(stream);
    return {};
  }
  bool is_capturing(Stream stream) override {
    int status = 0;
    CuResult result = 0;
    call(
        [&] {
          result = api_.stream_is_capturing(stream_of(stream), &status);
          return result == kCuErrorStreamCaptureImplicit ? 0 : result;
        },
        "cuStreamIsCapturing");
    // The default stream cannot be captured, but work on it would break a capture that is going on elsewhere.
    return result == kCuErrorStreamCaptureImplicit || status != 0;
  }
  std::uintptr_t current_context() override {
    unsigned long long id = 0;
    call([&] { return api_.context_id(nullptr, &id); }, "cuCtxGetId");
    return static_cast<std::uintptr_t>(id);
  }

  std::unique_ptr<LoadedImage> load(const Image& image) override {
    if (image.cubin.empty()) throw Error(ErrorKind::device, fmt::format("no code to load on {}", info_.name));
    current_context();  // gives the thread its context, or says that it has none
    return std::make_unique<CudaImage>(api_, image, info_.name);
  }

  void encode(const ResolvedTensorMap& map, TensorMapObject& out) override {
    call(
        [&] {
          return api_.encode_tiled(
              &out, static_cast<int>(map.type), map.rank, reinterpret_cast<void*>(map.address), map.dims.data(),
              map.strides_bytes.data(), map.box.data(), map.element_strides.data(), static_cast<int>(map.interleave),
              static_cast<int>(map.swizzle), static_cast<int>(map.l2_promotion), static_cast<int>(map.fill));
        },
        "cuTensorMapEncodeTiled", [&] { return describe(map); });
  }

  std::string why_unusable(DevicePointer pointer) override {
    return tessera::why_unusable(api_, pointer, reads_pageable_);
  }

  void launch(const LaunchRequest& request, Stream stream) override {
    CuLaunchAttribute attributes[2];  // NOLINT: only the first `count` are read
    std::uint32_t count = 0;
    if (request.cluster != std::array<std::uint32_t, 3>{1, 1, 1}) {
      attributes[count].id = kCuLaunchClusterDimension;
      for (std::size_t i = 0; i < 3; ++i) attributes[count].value.cluster[i] = request.cluster[i];
      ++count;
    }
    if (request.programmatic_stream_serialization) {
      attributes[count].id = kCuLaunchProgrammaticStreamSerialization;
      attributes[count].value.is_allowed = 1;
      ++count;
    }
    const CuLaunchConfig config{{request.grid[0], request.grid[1], request.grid[2]},
                                {request.block[0], request.block[1], request.block[2]},
                                request.dynamic_smem_bytes,
                                stream_of(stream),
                                attributes,
                                count};
    call(
        [&] {
          return api_.launch(&config, function_of(request.entry), const_cast<void**>(request.parameters), nullptr);
        },
        "cuLaunchKernelEx",
        [&] {
          return fmt::format("grid {}x{}x{}, block {}x{}x{}, cluster {}x{}x{}, {} bytes of dynamic shared memory, {}",
                             request.grid[0], request.grid[1], request.grid[2], request.block[0], request.block[1],
                             request.block[2], request.cluster[0], request.cluster[1], request.cluster[2],
                             request.dynamic_smem_bytes, info_.name);
        });
  }

 private:
  static std::string no_context() { return {}; }

  /// Runs a driver call; where the thread has no context yet, gives it the primary one and runs it again. So a thread
  /// pays for that once, and nobody asks before each call.
  template <class Call, class Describe = std::string (*)()>
  void call(const Call& driver_call, const char* name, const Describe& describe_context = no_context) {
    CuResult result = driver_call();
    if (result == 0) return;
    if (result == kCuErrorInvalidContext) {
      CuContext current = nullptr;
      const bool has_none = api_.context_current(&current) == 0 && current == nullptr;
      if (has_none && primary_ == nullptr)
        throw Error(ErrorKind::device, fmt::format("{}: no CUDA context is current on this thread: make one current "
                                                   "(cuCtxSetCurrent), or retain the device's primary context",
                                                   name));
      if (has_none) {
        check(api_, api_.context_set_current(primary_), "cuCtxSetCurrent", info_.name);
        result = driver_call();
        if (result == 0) return;
      }
    }
    throw_cuda_error(api_, result, name, describe_context());
  }

  void wait(Stream stream) {
    call([&] { return api_.stream_synchronize(stream_of(stream)); }, "cuStreamSynchronize",
         [&] { return fmt::format("on {}", info_.name); });
  }

  int attribute(int which) {
    int value = 0;
    check(api_, api_.device_attribute(&value, which, device_), "cuDeviceGetAttribute",
          fmt::format("attribute {}", which));
    return value;
  }

  void fill_info(int ordinal) {
    std::array<char, 256> name{};
    std::size_t memory_bytes = 0;
    check(api_, api_.device_name(name.data(), static_cast<int>(name.size()) - 1, device_), "cuDeviceGetName", {});
    check(api_, api_.device_memory(&memory_bytes, device_), "cuDeviceTotalMem", {});
    info_.name = name.data();
    info_.compute_major = attribute(kCuComputeMajor);
    info_.compute_minor = attribute(kCuComputeMinor);
    info_.num_sms = attribute(kCuNumSms);
    info_.l2_bytes = attribute(kCuL2Bytes);
    info_.max_dynamic_smem_bytes = attribute(kCuMaxSmemBytesOptIn);
    info_.memory_bytes = static_cast<std::int64_t>(memory_bytes);
    info_.driver_version = cuda_driver().version;
    info_.ordinal = ordinal;
    reads_pageable_ = attribute(kCuPageableMemoryAccess) != 0;
  }

  const CudaApi& api_;
  CuDevice device_ = 0;
  CuContext primary_ = nullptr;
  DeviceInfo info_;
  bool reads_pageable_ = false;
};

}  // namespace

std::string cuda_unavailable_reason() { return cuda_driver().unavailable; }

int cuda_device_count() { return cuda_driver().num_devices; }

int cuda_driver_version() { return cuda_driver().version; }

int cuda_current_device() {
  const CudaDriver& driver = cuda_driver();
  CuDevice device = 0;
  if (!driver.unavailable.empty() || driver.api.context_device(&device) != 0) return -1;
  return device;  // a CUdevice is its ordinal
}

std::unique_ptr<Device> make_cuda_device(int ordinal, bool retain_primary_context) {
  return std::make_unique<CudaDevice>(ordinal, retain_primary_context);
}

}  // namespace tessera
