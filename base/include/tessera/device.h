// The seam to whatever executes kernels: a GPU through the driver, the emulator, a recording fake in tests.
//
// A Device is a guest in the caller's process: it works in the caller's current context, launches on the caller's
// stream, and its launch path neither allocates nor synchronises. All handles are plain values; who creates one
// destroys it. Every function may be called from several threads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/image.h"
#include "tessera/tensor_map.h"

namespace tessera {

/// Address in the device's memory; 0 is null.
using DevicePointer = std::uint64_t;

/// A queue of work: the caller's own CUstream (a pointer) or a device's own handle; default-constructed, the default
/// stream.
struct Stream {
  std::uintptr_t handle = 0;
  Stream() = default;
  Stream(void* cu_stream) : handle(reinterpret_cast<std::uintptr_t>(cu_stream)) {}  // NOLINT: a CUstream is a stream
  static Stream from_handle(std::uintptr_t value) { return Stream(reinterpret_cast<void*>(value)); }
};

struct Event {
  std::uintptr_t handle = 0;
};

struct DeviceInfo {
  std::string name{};  ///< "NVIDIA H200"
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t max_dynamic_smem_bytes = 0;
  std::int64_t memory_bytes = 0;
  int driver_version = 0;  ///< 13000 for 13.0; 0 where there is no driver
  int ordinal = 0;
  bool is_emulated = false;
};

/// Size and place of one kernel parameter, as the loaded code declares it.
struct ParameterLayout {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One kernel of loaded code, good for launches in the context that loaded it.
struct EntryHandle {
  std::uintptr_t handle = 0;
};

/// Code on a device; unloads when destroyed.
class LoadedImage {
 public:
  virtual ~LoadedImage() = default;
  /// Throws Error{device} when the image has no such kernel.
  virtual EntryHandle entry(std::string_view name) = 0;
  /// In the order of the kernel's parameters.
  virtual std::vector<ParameterLayout> parameters(EntryHandle entry) = 0;
  /// Allows the entry this much dynamic shared memory; called once, before the first launch.
  virtual void set_max_dynamic_smem(EntryHandle entry, std::int64_t bytes) = 0;
};

/// One launch, everything resolved. parameters[i] points at the value of parameter i, as cuLaunchKernel takes it.
struct LaunchRequest {
  EntryHandle entry;
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  std::uint32_t dynamic_smem_bytes = 0;
  bool programmatic_stream_serialization = false;
  void* const* parameters = nullptr;
};

/// What a synchronisation found: nothing on a GPU besides errors (thrown), hazards and failures in the emulator.
struct Finding {
  std::string name{};     ///< "smem-uninitialised", ...
  std::string message{};  ///< for a person, with places
  bool is_failure = false;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;

  virtual DevicePointer allocate(std::size_t bytes) = 0;
  virtual void free(DevicePointer pointer) noexcept = 0;
  /// Blocking copies, ordered after everything on the stream.
  virtual void copy_to_device(DevicePointer to, const void* from, std::size_t bytes, Stream stream = {}) = 0;
  virtual void copy_to_host(void* to, DevicePointer from, std::size_t bytes, Stream stream = {}) = 0;
  /// Fills with a byte; asynchronous, allowed during capture.
  virtual void set_bytes(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream = {}) = 0;

  virtual Stream create_stream() = 0;
  virtual void destroy(Stream stream) noexcept = 0;
  virtual Event create_event() = 0;
  virtual void destroy(Event event) noexcept = 0;
  virtual void record(Event event, Stream stream) = 0;
  /// Milliseconds between two recorded events; waits for both.
  virtual double elapsed_ms(Event from, Event to) = 0;
  /// Waits for the stream. Throws Error{device} when work on it failed.
  virtual std::vector<Finding> synchronize(Stream stream = {}) = 0;
  /// True while work on the stream is being captured into a graph.
  virtual bool is_capturing(Stream stream) = 0;
  /// Identifies the context that the calling thread would work in now, by a number that no other context ever has in
  /// this process; code loaded in one serves that one only.
  virtual std::uintptr_t current_context() = 0;

  virtual std::unique_ptr<LoadedImage> load(const Image& image) = 0;
  /// Encodes a map whose rules were checked. A refusal is Error{device} with every argument; it means that a rule is
  /// missing.
  virtual void encode(const ResolvedTensorMap& map, TensorMapObject& out) = 0;
  virtual void launch(const LaunchRequest& request, Stream stream) = 0;
};

}  // namespace tessera
