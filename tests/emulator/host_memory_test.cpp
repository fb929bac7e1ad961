// Memory that the host and the device see at the same address, and memory of the host's own.
#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator {
namespace {

std::vector<int> read(EmulatedDevice& device, DevicePointer from, std::size_t count) {
  std::vector<int> values(count);
  device.copy_to_host(values.data(), from, count * sizeof(int));
  return values;
}

/// Through the kernel, which gives an error where a pointer would end the process.
bool host_reaches(DevicePointer pointer) {
  int ends[2] = {-1, -1};
  if (pipe(ends) != 0) return false;
  const bool reaches = write(ends[1], reinterpret_cast<const void*>(pointer), 1) == 1;
  close(ends[0]);
  close(ends[1]);
  return reaches;
}

}  // namespace

TEST_CASE("shared memory is one memory, and goes with its allocation") {
  EmulatedDevice device;
  const DevicePointer own = device.allocate(3 * 4096), shared = device.allocate(10000 * sizeof(int));
  std::vector<int> values(10000);
  std::iota(values.begin(), values.end(), 7);
  device.copy_to_device(shared, values.data(), values.size() * sizeof(int));
  CHECK_FALSE(host_reaches(shared));
  device.share_with_host(shared, values.size() * sizeof(int));
  auto* const on_host = reinterpret_cast<int*>(shared);
  CHECK(std::equal(values.begin(), values.end(), on_host));  // what it held stays
  on_host[9999] = -3;
  CHECK(read(device, shared, 10000)[9999] == -3);
  device.set_bytes(shared, 0, values.size() * sizeof(int));
  CHECK(std::count(on_host, on_host + 10000, 0) == 10000);
  CHECK_FALSE(host_reaches(own));
  device.free(shared);
  CHECK_FALSE(host_reaches(shared + 4096));
}

TEST_CASE("a large fill of shared memory is seen by the host") {
  EmulatedDevice device;
  const std::size_t bytes = std::size_t{9} << 20;
  const DevicePointer shared = device.allocate(bytes);
  device.share_with_host(shared, bytes);
  device.set_bytes(shared, 0x5A, bytes);
  const auto* const on_host = reinterpret_cast<const unsigned char*>(shared);
  CHECK(std::count(on_host, on_host + bytes, 0x5A) == static_cast<std::ptrdiff_t>(bytes));
}

TEST_CASE("memory of the host has an address of the device, to its last byte") {
  EmulatedDevice device;
  std::vector<int> values(5000);
  std::iota(values.begin(), values.end(), 1);
  const DevicePointer mapped = device.map_host(values.data() + 3, 4000 * sizeof(int));
  CHECK(read(device, mapped, 4000)[3999] == 4003);
  values[4002] = 11;
  CHECK(read(device, mapped, 4000)[3999] == 11);
  const int given = 12;
  device.copy_to_device(mapped, &given, sizeof(int));
  CHECK(values[3] == 12);
  CHECK(values[2] == 3);
  CHECK_THROWS_AS(read(device, mapped, 4001), Error);
  CHECK_THROWS_AS(read(device, mapped - sizeof(int), 1), Error);
  device.free(mapped);
  CHECK(values[4002] == 11);
  values[4002] = 13;
  CHECK(values[4999] == 5000);
}

TEST_CASE("a child of fork has copies of the heap's pages that the device shares") {
  EmulatedDevice device;
  std::vector<int> values(20000, 1);
  const DevicePointer mapped = device.map_host(values.data(), values.size() * sizeof(int));
  std::vector<std::unique_ptr<int>> near;  // in the pages that values begins and ends in, and everywhere else
  for (int i = 0; i < 2000; ++i) near.push_back(std::make_unique<int>(i));
  for (int children = 0; children < 4; ++children) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const bool is_seen = values[19999] == 1 + children && *near[1999] == 1999;
      std::fill(values.begin(), values.end(), -1);
      near.clear();
      std::vector<std::vector<int>> much(300, std::vector<int>(500, -1));
      _exit(is_seen && much[299][499] == -1 ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    CHECK(std::count(values.begin(), values.end(), 1 + children) == 20000);
    CHECK(read(device, mapped, 20000)[19999] == 1 + children);
    for (int i = 0; i < 2000; i += 7) near[static_cast<std::size_t>(i)] = std::make_unique<int>(i);
    CHECK(*near[1999] == 1999);
    std::fill(values.begin(), values.end(), 2 + children);  // and the device still sees what the host writes
    CHECK(read(device, mapped, 1)[0] == 2 + children);
  }
  device.free(mapped);
}

TEST_CASE("one device of a process has the addresses") {
  EmulatedDevice first, second;
  const DevicePointer a = first.allocate(64), b = second.allocate(64);
  first.share_with_host(a, 64);
  CHECK_THROWS_WITH_AS(second.share_with_host(b, 64), doctest::Contains("another device of this process has it"),
                       Error);
}

}  // namespace tessera::emulator
