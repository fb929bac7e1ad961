// libFuzzer: whatever loads is executed, every entry, on tiny budgets: it ends, with findings or without, and touches
// no memory but its own. The first byte chooses schedule and shape, the rest is the module.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "emulator/syntax/parser.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/fuzz/target.h"

namespace {

using namespace tessera;
using namespace tessera::emulator;

constexpr std::size_t kBufferBytes = 4096;

/// Tensor maps where 128 bytes are asked for, pointers for 8, small numbers for the rest.
std::vector<std::vector<std::byte>> make_parameters(EmulatedDevice& device, LoadedImage& image, EntryHandle entry,
                                                    DevicePointer buffer) {
  ResolvedTensorMap map;
  map.type = TensorMapType::f16;
  map.rank = 2;
  map.address = buffer;
  map.dims = {32, 32};
  map.strides_bytes = {64};
  map.box = {32, 8};
  map.swizzle = TensorMapSwizzle::b64;
  TensorMapObject object;
  device.encode(map, object);
  std::vector<std::vector<std::byte>> values;
  for (const ParameterLayout& layout : image.parameters(entry)) {
    std::vector<std::byte>& value = values.emplace_back(layout.bytes);
    const std::uint64_t number = layout.bytes == 8 ? buffer : 7;
    if (layout.bytes == sizeof(object))
      std::memcpy(value.data(), &object, sizeof(object));
    else
      std::memcpy(value.data(), &number, std::min<std::size_t>(layout.bytes, sizeof(number)));
  }
  return values;
}

void run(EmulatedDevice& device, LoadedImage& image, std::string_view name, std::uint8_t choice) {
  const DevicePointer buffer = device.allocate(kBufferBytes);
  const std::vector<std::byte> contents(kBufferBytes, std::byte{0x3C});
  device.copy_to_device(buffer, contents.data(), contents.size());
  LaunchRequest request;
  request.entry = image.entry(name);
  static constexpr std::uint32_t kThreads[] = {32, 1, 128, 160};
  request.block = {kThreads[choice >> 2 & 3], 1, 1};
  if ((choice & 16) != 0) request.grid = request.cluster = {2, 1, 1};
  if ((choice & 32) != 0) {
    request.dynamic_smem_bytes = 8192;
    image.set_max_dynamic_smem(request.entry, 8192);
  }
  auto values = make_parameters(device, image, request.entry, buffer);
  std::vector<void*> pointers;
  for (auto& value : values) pointers.push_back(value.data());
  request.parameters = pointers.data();
  device.launch(request, {});
  device.synchronize();
}

}  // namespace

TESSERA_FUZZ_TARGET(ptx_step)(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  DeviceOptions options;
  options.schedule = static_cast<Schedule>(data[0] & 3);
  options.memory_bytes = std::uint64_t{1} << 24;
  options.max_warp_instructions = 20000;
  options.max_seconds = 5;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  EmulatedDevice device(options);
  std::unique_ptr<LoadedImage> image;
  std::vector<std::string> entries;
  try {
    image = device.load_ptx(text, "fuzz.ptx");
    const syntax::Module module = parse_ptx(text, "fuzz.ptx");
    for (const syntax::Function& function : module.functions)
      if (function.is_entry && function.has_body) entries.emplace_back(function.name);
  } catch (const Error&) {
    return 0;
  }
  for (const std::string& name : entries) {
    try {
      run(device, *image, name, data[0]);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::device) std::abort();
    }
  }
  return 0;
}
