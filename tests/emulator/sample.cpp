// Buffers far larger than this machine's memory, and launches of which some clusters run.
#include "tessera/emulator/sample.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <array>
#include <numeric>

#include "emulator/memory/lazy_fill.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"

using namespace tessera;
using namespace tessera::emulator;

namespace {

constexpr std::size_t kHuge = std::size_t{36} << 30;

/// Kilobytes of the most memory that this process had without files: those of lazy fills are shared pages.
std::size_t private_kilobytes() {
  std::size_t kilobytes = 0;
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  REQUIRE(status != nullptr);
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr)
    if (std::sscanf(line, "RssAnon: %zu kB", &kilobytes) == 1) break;
  std::fclose(status);
  return kilobytes;
}

std::uint8_t byte_at(EmulatedDevice& device, DevicePointer address) {
  std::uint8_t byte = 0;
  device.copy_to_host(&byte, address, 1);
  return byte;
}

}  // namespace

TEST_CASE("buffers of many GiB take memory for what is written") {
  EmulatedDevice device;
  const std::size_t before = private_kilobytes();
  const DevicePointer buffer = device.allocate(kHuge);
  device.poison(buffer, 0xFF, kHuge);
  CHECK(device.written(buffer, kHuge).empty());
  for (const std::size_t at : {std::size_t{0}, std::size_t{1} << 32, kHuge - 1})
    CHECK(byte_at(device, buffer + at) == 0xFF);
  const std::array<std::uint8_t, 3> bytes{1, 2, 3};
  device.copy_to_device(buffer + (std::size_t{1} << 32) + 5, bytes.data(), bytes.size());
  const std::vector<ByteRange> written = device.written(buffer, kHuge);
  REQUIRE(written.size() == 1);
  CHECK(written[0].first == (std::size_t{1} << 32) + 5);
  CHECK(written[0].bytes == 3);
  CHECK(byte_at(device, buffer + (std::size_t{1} << 32) + 6) == 2);
  CHECK(byte_at(device, buffer + 6) == 0xFF);
  CHECK_THROWS_AS(byte_at(device, buffer + kHuge), Error);
  CHECK(private_kilobytes() - before < (std::size_t{512} << 10));
  // What takes its place is nobody's, and holds nothing of it.
  device.free(buffer);
  CHECK_THROWS_AS(byte_at(device, buffer), Error);
  const DevicePointer next = device.allocate(kHuge);
  CHECK(next == buffer);
  CHECK(device.written(next, kHuge).empty());
  CHECK(byte_at(device, next + 6) == 0);
}

TEST_CASE("a pattern is repeated from the range's first byte on, whatever the pages are") {
  EmulatedDevice device;
  device.allocate(700);  // so that the next begins inside a page
  const std::size_t bytes = kLazyBytes + 12345;
  const DevicePointer buffer = device.allocate(bytes);
  std::vector<std::byte> pattern(3 * 4096);
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<std::byte>(i * 7 + i / 256);
  device.fill_pattern(buffer, pattern, bytes);
  std::vector<std::byte> found(bytes);
  device.copy_to_host(found.data(), buffer, bytes);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < bytes; ++i) wrong += found[i] != pattern[i % pattern.size()] ? 1U : 0U;
  CHECK(wrong == 0);
  CHECK(device.uninitialised_bytes(buffer, bytes) == 0);
}

TEST_CASE("a sample has the first cluster, the last, and one of each part between them") {
  const std::vector<std::uint64_t> chosen = chosen_clusters(1000003, 12, 7);
  REQUIRE(chosen.size() == 12);
  CHECK(chosen.front() == 0);
  CHECK(chosen.back() == 1000002);
  for (std::size_t i = 1; i + 1 < chosen.size(); ++i) CHECK(chosen[i] / 83333 == i);
  CHECK(chosen == chosen_clusters(1000003, 12, 7));
  CHECK(chosen != chosen_clusters(1000003, 12, 8));
  CHECK(chosen_clusters(3, 12, 1) == std::vector<std::uint64_t>{0, 1, 2});
  CHECK(chosen_clusters(1, 12, 1) == std::vector<std::uint64_t>{0});
}

TEST_CASE("of a sampled launch some clusters run, each once") {
  constexpr const char* kPtx =
      ".version 8.0\n.target sm_90a\n.address_size 64\n"
      ".visible .entry mark(.param .u64 out) {\n"
      ".reg .b32 %r<3>; .reg .b64 %rd<4>;\n"
      "ld.param.u64 %rd1, [out]; mov.u32 %r1, %ctaid.x; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;\n"
      "atom.global.add.u32 %r2, [%rd3], 1;\nret;\n}\n";
  EmulatedDevice device;
  constexpr std::uint32_t kCtas = 1000;
  DevicePointer out = device.allocate(4 * kCtas);
  device.set_bytes(out, 0, 4 * kCtas);
  const auto image = device.load_ptx(kPtx, "mark.ptx");
  void* parameters[] = {&out};
  LaunchRequest request;
  request.entry = image->entry("mark");
  request.grid = {kCtas, 1, 1};
  request.block = {1, 1, 1};
  request.parameters = parameters;
  const auto marks = [&] {
    std::vector<std::uint32_t> found(kCtas);
    device.copy_to_host(found.data(), out, 4 * kCtas);
    return found;
  };
  device.sample_clusters(5);
  device.launch(request, {});
  CHECK(device.synchronize().empty());
  CHECK(device.last_sample().run == 5);
  CHECK(device.last_sample().of_grid == kCtas);
  const std::vector<std::uint32_t> some = marks();
  CHECK(std::accumulate(some.begin(), some.end(), 0U) == 5);
  CHECK(some.front() == 1);
  CHECK(some.back() == 1);
  device.sample_clusters(0);
  device.launch(request, {});
  const std::vector<std::uint32_t> all = marks();
  CHECK(std::accumulate(all.begin(), all.end(), 0U) == 5 + kCtas);
}
