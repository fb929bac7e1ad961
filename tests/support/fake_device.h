// A Device that records. Memory is host memory behind made-up addresses; kernels do nothing but leave their parameters'
// bytes behind. Everything that a launch does lands in `calls`, one line each, in order.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tessera/device.h"
#include "tessera/error.h"
#include "tessera/pointer_probe.h"

namespace tessera {

class FakeDevice final : public Device, public PointerProbe {
 public:
  struct Launch {
    std::string entry;
    LaunchRequest request;  // parameters is dead: see the copies
    std::vector<std::vector<std::byte>> parameters;
    Stream stream;
  };

  FakeDevice() {
    info_.name = "Fake GPU";
    info_.compute_major = 9;
    info_.num_sms = 132;
    info_.max_dynamic_smem_bytes = 232448;
  }

  /// The kernels that every image has, with the bytes of their parameters.
  std::map<std::string, std::vector<std::size_t>> entries;
  std::vector<std::string> calls;
  std::vector<Launch> launches;
  std::vector<ResolvedTensorMap> encoded;
  std::function<void()> on_launch;  ///< what the kernel does, if anything
  /// In place of the bytes and the record that encode() leaves.
  std::function<void(const ResolvedTensorMap&, TensorMapObject&)> on_encode;
  std::function<double()> elapsed_time;  ///< milliseconds between the last two events; 1 if not set
  int live_events = 0;
  std::size_t live_blocks() const { return memory_.size(); }
  bool capturing = false;
  std::uintptr_t context = 1;
  DeviceInfo info_;

  const DeviceInfo& info() const override { return info_; }
  DevicePointer allocate(std::size_t bytes) override {
    const DevicePointer pointer = next_;
    next_ += (bytes + 255) / 256 * 256 + 256;
    memory_[pointer].resize(bytes);
    return pointer;
  }
  void free(DevicePointer pointer) noexcept override { memory_.erase(pointer); }
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes, Stream) override {
    if (bytes > 0) std::memcpy(at(to, bytes), from, bytes);
  }
  void copy_to_host(void* to, DevicePointer from, std::size_t bytes, Stream) override {
    if (bytes > 0) std::memcpy(to, at(from, bytes), bytes);
  }
  void set_bytes(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream) override {
    calls.push_back(fmt::format("set_bytes {:#x} {} {} stream {}", to, value, bytes, stream.handle));
    const auto block = memory_.upper_bound(to);
    if (block == memory_.begin()) return;
    if (to + bytes <= std::prev(block)->first + std::prev(block)->second.size())
      std::memset(at(to, bytes), value, bytes);
  }

  Stream create_stream() override { return Stream::from_handle(++handles_); }
  void destroy(Stream) noexcept override {}
  Event create_event() override {
    ++live_events;
    return {++handles_};
  }
  void destroy(Event) noexcept override { --live_events; }
  void record(Event, Stream) override {}
  double elapsed_ms(Event, Event) override { return elapsed_time ? elapsed_time() : 1; }
  std::vector<Finding> synchronize(Stream) override {
    calls.push_back("synchronize");
    return {};
  }
  bool is_capturing(Stream) override { return capturing; }
  std::uintptr_t current_context() override { return context; }
  std::string why_unusable(DevicePointer pointer) override {
    const auto behind = memory_.upper_bound(pointer);
    const bool is_known =
        behind != memory_.begin() && pointer - std::prev(behind)->first < std::prev(behind)->second.size();
    return is_known ? "" : "no memory of the device";
  }

  std::unique_ptr<LoadedImage> load(const Image&) override {
    calls.push_back("load");
    return std::make_unique<FakeImage>(*this);
  }
  void encode(const ResolvedTensorMap& map, TensorMapObject& out) override {
    if (on_encode) return on_encode(map, out);
    calls.push_back(fmt::format("encode {:#x}", map.address));
    out.bytes.fill(static_cast<std::byte>(0xa0 + encoded.size()));
    encoded.push_back(map);
  }
  void launch(const LaunchRequest& request, Stream stream) override {
    const auto entry = std::next(entries.begin(), static_cast<std::ptrdiff_t>(request.entry.handle) - 1);
    Launch launch{entry->first, request, {}, stream};
    for (std::size_t i = 0; i < entry->second.size(); ++i) {
      launch.parameters.emplace_back(entry->second[i]);
      std::memcpy(launch.parameters.back().data(), request.parameters[i], entry->second[i]);
    }
    calls.push_back(fmt::format("launch {} grid {}x{}x{} stream {}", entry->first, request.grid[0], request.grid[1],
                                request.grid[2], stream.handle));
    launches.push_back(std::move(launch));
    if (on_launch) on_launch();
  }

 private:
  class FakeImage final : public LoadedImage {
   public:
    explicit FakeImage(FakeDevice& device) : device_(device) {}
    EntryHandle entry(std::string_view name) override {
      const auto found = device_.entries.find(std::string(name));
      if (found == device_.entries.end()) throw Error(ErrorKind::device, fmt::format("no kernel '{}'", name));
      return {static_cast<std::uintptr_t>(std::distance(device_.entries.begin(), found)) + 1};
    }
    std::vector<ParameterLayout> parameters(EntryHandle entry) override {
      std::vector<ParameterLayout> layouts;
      const auto found = std::next(device_.entries.begin(), static_cast<std::ptrdiff_t>(entry.handle) - 1);
      for (const std::size_t bytes : found->second) layouts.push_back({0, bytes});
      return layouts;
    }
    void set_max_dynamic_smem(EntryHandle entry, std::int64_t bytes) override {
      device_.calls.push_back(fmt::format("max_dynamic_smem {} {}", entry.handle, bytes));
    }

   private:
    FakeDevice& device_;
  };

  std::byte* at(DevicePointer pointer, std::size_t bytes) {
    auto block = memory_.upper_bound(pointer);
    if (block == memory_.begin()) throw Error(ErrorKind::device, fmt::format("no memory at {:#x}", pointer));
    --block;
    const std::size_t offset = static_cast<std::size_t>(pointer - block->first);
    if (offset + bytes > block->second.size())
      throw Error(ErrorKind::device, fmt::format("{} bytes at {:#x} leave their block", bytes, pointer));
    return block->second.data() + offset;
  }

  std::map<DevicePointer, std::vector<std::byte>> memory_;
  DevicePointer next_ = 0x10000;
  std::uintptr_t handles_ = 100;
};

}  // namespace tessera
