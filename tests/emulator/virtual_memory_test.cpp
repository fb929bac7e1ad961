// Addresses apart from memory: what is not mapped cannot be used, one memory has one content wherever it is mapped, and
// whether it was written.
#include "tessera/emulator/virtual_memory.h"

#include <doctest/doctest.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::virtual_memory_test {
namespace {

constexpr std::uint64_t kPiece = VirtualMemory::kGranularity;

std::vector<EmulatorFinding> load_from(EmulatedDevice& device, DevicePointer address) {
  const auto image = device.load_ptx(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 from)\n{\n.reg .b32 r1;\n"
      ".reg .b64 d0;\nld.param.u64 d0, [from];\nld.global.u32 r1, [d0];\nst.global.u32 [d0+4], r1;\nret;\n}\n",
      "test.ptx");
  void* arguments[] = {&address};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.parameters = arguments;
  device.launch(request, {});
  return device.take_findings();
}

TEST_CASE("virtual memory: what is not mapped is out of bounds, and told apart from allocations") {
  EmulatedDevice device;
  VirtualMemory space = device.virtual_memory();
  const DevicePointer range = space.reserve(2 * kPiece, 4 * kPiece);
  CHECK(range % (4 * kPiece) == 0);
  const PhysicalMemory memory(kPiece);
  space.map(range, memory);
  const auto behind = load_from(device, range + kPiece);
  REQUIRE(behind.size() == 1);
  CHECK(behind[0].name == "global-out-of-bounds");
  CHECK(behind[0].message.find(
            "byte 2097152 of 4194304 bytes of addresses that are reserved, with no memory mapped here") !=
        std::string::npos);
  const auto unwritten = load_from(device, range);
  REQUIRE(unwritten.size() == 1);
  CHECK(unwritten[0].name == "global-uninitialised");
  std::uint32_t value = 0;
  CHECK_THROWS_AS(device.copy_to_host(&value, range + kPiece, 4), Error);
  space.unmap(range);
  CHECK_THROWS_AS(device.copy_to_host(&value, range, 4), Error);
  space.release(range);
  CHECK(load_from(device, range)[0].message.find("that was freed") != std::string::npos);
}

TEST_CASE("virtual memory: one content at all addresses, also after large fills") {
  EmulatedDevice device;
  VirtualMemory space = device.virtual_memory();
  const std::uint64_t bytes = 160 * kPiece;  // from 256 MiB on fills are lazy elsewhere
  const DevicePointer first = space.reserve(bytes, kPiece), second = space.reserve(bytes, kPiece);
  const PhysicalMemory memory(bytes);
  space.map(first, memory);
  space.map(second, memory);
  device.set_bytes(first, 0x5A, bytes);
  CHECK(load_from(device, second + bytes / 2).empty());
  const std::uint32_t written = 0x12345678;
  device.copy_to_device(second + bytes - 4, &written, 4);
  std::uint32_t found[2] = {};
  device.copy_to_host(&found[0], first + bytes - 4, 4);
  device.copy_to_host(&found[1], second + 64, 4);
  CHECK(found[0] == written);
  CHECK(found[1] == 0x5A5A5A5A);
  space.unmap(first);
  device.copy_to_host(&found[0], second + bytes - 4, 4);
  CHECK(found[0] == written);
  space.unmap(second);
  space.map(first, memory);
  device.copy_to_host(&found[0], first + bytes - 4, 4);
  CHECK(found[0] == written);
  space.unmap(first);
}

}  // namespace
}  // namespace tessera::emulator::virtual_memory_test
