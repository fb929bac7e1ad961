// Devices that are opened by hand: the emulator, or a GPU in its primary context.
#include "tessera/emulator/device.h"

#include <array>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/launch_json.h"
#include "c/handles.h"
#include "tessera/cuda_device.h"
#include "tessera/internal/loads.h"

namespace tessera::c {

namespace {

emulator::Schedule schedule_of(const char* name) {
  using emulator::Schedule;
  constexpr std::array<std::pair<std::string_view, Schedule>, 6> kSchedules = {{{"fair", Schedule::fair},
                                                                                {"eager", Schedule::eager},
                                                                                {"lazy", Schedule::lazy},
                                                                                {"adversarial", Schedule::adversarial},
                                                                                {"split", Schedule::split},
                                                                                {"weak", Schedule::weak}}};
  if (name == nullptr) return Schedule::fair;
  for (const auto& [text, schedule] : kSchedules)
    if (text == name) return schedule;
  throw Error(ErrorKind::usage,
              fmt::format("schedule = {}: must be one of fair, eager, lazy, adversarial, split, weak", name));
}

std::shared_ptr<Device> device_of(Shared& shared, const tessera_device_options& given) {
  if (given.kind == TESSERA_DEVICE_GPU) {
    if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) throw Error(ErrorKind::device, reason);
    if (given.ordinal < 0 || given.ordinal >= cuda_device_count())
      throw Error(ErrorKind::usage,
                  fmt::format("ordinal = {}: {} GPUs are visible, from 0 on", given.ordinal, cuda_device_count()));
    const std::lock_guard lock(shared.mutex);
    std::shared_ptr<Device>& gpu = shared.gpus[given.ordinal];
    if (gpu == nullptr) gpu = make_cuda_device(given.ordinal, true);
    return gpu;
  }
  if (given.kind != TESSERA_DEVICE_EMULATOR)
    throw Error(ErrorKind::usage,
                fmt::format("kind = {}: must be TESSERA_DEVICE_EMULATOR (0) or TESSERA_DEVICE_GPU (1)", given.kind));
  emulator::DeviceOptions options;
  if (given.arch != nullptr) options.arch = Arch::parse(given.arch).to_string();
  if (given.num_sms < 0 || given.num_sms > 1024)
    throw Error(ErrorKind::usage, fmt::format("num_sms = {}: must be at most 1,024, 0 for the default", given.num_sms));
  if (!(given.max_seconds >= 0))
    throw Error(ErrorKind::usage, fmt::format("max_seconds = {}: must be 0 or more", given.max_seconds));
  if (given.num_sms != 0) options.num_sms = given.num_sms;
  if (given.seed != 0) options.seed = given.seed;
  options.schedule = schedule_of(given.schedule);
  options.max_seconds = given.max_seconds;
  options.detects_races = given.detects_races != 0;
  if (given.is_interrupted != nullptr)
    options.is_interrupted = [ask = given.is_interrupted, user_data = given.user_data] { return ask(user_data) != 0; };
  return std::make_shared<emulator::EmulatedDevice>(options);
}

/// Null, or addresses that no host pointer is taken for, are refused here: a driver's own refusal comes late.
void require_bytes(const void* host, std::uint64_t address, std::size_t bytes, const char* what) {
  if (bytes == 0) return;
  require(host, what);
  if (address == 0) throw Error(ErrorKind::usage, "a device address is 0");
}

}  // namespace

}  // namespace tessera::c

using namespace tessera;

tessera_status tessera_device_open(tessera_jit* jit, const tessera_device_options* options, tessera_device** device) {
  return c::guarded([&] {
    c::require(jit, "jit");
    c::require(device, "device");
    const tessera_device_options given =
        options == nullptr ? tessera_device_options{} : c::sized(options, "tessera_device_options");
    auto handle = std::make_unique<tessera_device>();
    handle->shared = jit->shared;
    handle->device = c::device_of(*jit->shared, given);
    *device = handle.release();
  });
}

void tessera_device_close(tessera_device* device) {
  if (device == nullptr) return;
  for (const std::uint64_t address : device->allocated) device->device->free(address);
  if (device->device->info().is_emulated) drop_loads(*device->device);
  delete device;
}

tessera_status tessera_device_info(const tessera_device* device, char** info_json) {
  return c::guarded([&] {
    c::require(device, "device");
    c::require(info_json, "info_json");
    const DeviceInfo& info = device->device->info();
    *info_json = c::new_text(json_text({{"name", info.name},
                                        {"compute_major", info.compute_major},
                                        {"compute_minor", info.compute_minor},
                                        {"num_sms", info.num_sms},
                                        {"memory_bytes", info.memory_bytes},
                                        {"driver_version", info.driver_version},
                                        {"ordinal", info.ordinal},
                                        {"is_emulated", info.is_emulated}}));
  });
}

tessera_status tessera_device_allocate(tessera_device* device, size_t bytes, uint64_t* address) {
  return c::guarded([&] {
    c::require(device, "device");
    c::require(address, "address");
    const std::lock_guard lock(device->mutex);
    const DevicePointer made = device->device->allocate(bytes);
    try {
      device->allocated.insert(made);
    } catch (...) {
      device->device->free(made);
      throw;
    }
    *address = made;
  });
}

tessera_status tessera_device_free(tessera_device* device, uint64_t address) {
  return c::guarded([&] {
    c::require(device, "device");
    if (address == 0) return;
    const std::lock_guard lock(device->mutex);
    if (device->allocated.erase(address) == 0)
      throw Error(ErrorKind::usage,
                  fmt::format("address = 0x{:x}: is not an allocation of this device, or was freed", address));
    device->device->free(address);
  });
}

tessera_status tessera_device_upload(tessera_device* device, uint64_t to, const void* from, size_t bytes,
                                     void* stream) {
  return c::guarded([&] {
    c::require(device, "device");
    c::require_bytes(from, to, bytes, "from");
    if (bytes > 0) device->device->copy_to_device(to, from, bytes, Stream(stream));
  });
}

tessera_status tessera_device_download(tessera_device* device, void* to, uint64_t from, size_t bytes, void* stream) {
  return c::guarded([&] {
    c::require(device, "device");
    c::require_bytes(to, from, bytes, "to");
    if (bytes > 0) device->device->copy_to_host(to, from, bytes, Stream(stream));
  });
}

tessera_status tessera_device_poison(tessera_device* device, uint64_t to, uint8_t value, size_t bytes) {
  return c::guarded([&] {
    c::require(device, "device");
    if (bytes == 0) return;
    if (to == 0) throw Error(ErrorKind::usage, "a device address is 0");
    if (auto* const emulated = dynamic_cast<emulator::EmulatedDevice*>(device->device.get()))
      emulated->poison(to, value, bytes);
    else
      device->device->set_bytes(to, value, bytes);
  });
}

tessera_status tessera_device_synchronize(tessera_device* device, void* stream, char** findings_json) {
  return c::guarded([&] {
    c::require(device, "device");
    const std::vector<Finding> findings = device->device->synchronize(Stream(stream));
    const Finding* failure = nullptr;
    OrderedJson list = OrderedJson::array();
    for (const Finding& finding : findings) {
      list.push_back({{"name", finding.name}, {"is_failure", finding.is_failure}, {"message", finding.message}});
      if (finding.is_failure && failure == nullptr) failure = &finding;
    }
    if (findings_json != nullptr) *findings_json = c::new_text(json_text(list));
    if (failure != nullptr) throw Error(ErrorKind::device, failure->message);
  });
}
