// The copy2d template, from nvcc's PTX, under every schedule: TMA load, mbarrier wait, TMA store.
#include <doctest/doctest.h>

#include <cstring>

#include "tessera/emulator/device.h"
#include "tests/emulator/nvcc.h"

namespace tessera::emulator::testing::copy2d_test {
namespace {

// The default config: tiles of 32 x 64 floats, 128-byte swizzle.
constexpr std::uint32_t kColumns = 96;
constexpr std::uint32_t kRows = 200;

ResolvedTensorMap map_of(DevicePointer address) {
  ResolvedTensorMap map;
  map.type = TensorMapType::f32;
  map.rank = 2;
  map.address = address;
  map.dims = {kColumns, kRows};
  map.strides_bytes = {kColumns * 4};
  map.box = {32, 64};
  map.swizzle = TensorMapSwizzle::b128;
  return map;
}

std::vector<Finding> run(EmulatedDevice& device, LoadedImage& image, const ResolvedTensorMap& from,
                         const ResolvedTensorMap& to, std::uint32_t smem_bytes) {
  TensorMapObject maps[2];
  device.encode(from, maps[0]);
  device.encode(to, maps[1]);
  LaunchRequest request;
  request.entry = image.entry("tessera_copy2d");
  image.set_max_dynamic_smem(request.entry, smem_bytes);
  std::int32_t tiles = 3;
  std::int32_t zero = 0;
  void* parameters[] = {&maps[0], &maps[1], &tiles, &zero, &zero, &zero};
  request.parameters = parameters;
  request.grid = {3 * 4, 1, 1};
  request.block = {32, 1, 1};
  request.dynamic_smem_bytes = smem_bytes;
  device.launch(request, {});
  return device.synchronize();
}

TEST_CASE("copy2d") {
  const std::string ptx = compile_with_nvcc("templates/copy2d/kernel.cu", "sm_90a", "");
  if (ptx.empty()) {
    MESSAGE("skipped: no nvcc");
    return;
  }
  EmulatedDevice device;
  const auto image = device.load_ptx(ptx, "copy2d.ptx");
  std::vector<float> values(kColumns * kRows);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.5f;
  const DevicePointer from = device.allocate(values.size() * 4);
  const DevicePointer to = device.allocate(values.size() * 4);
  device.copy_to_device(from, values.data(), values.size() * 4);
  const std::uint32_t smem = 8192 + 8;

  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(static_cast<int>(schedule));
      CAPTURE(seed);
      device.set_schedule(schedule, seed);
      device.set_bytes(to, 0xFF, values.size() * 4);
      for (const Finding& finding : run(device, *image, map_of(from), map_of(to), smem)) FAIL_CHECK(finding.message);
      std::vector<float> result(values.size());
      device.copy_to_host(result.data(), to, result.size() * 4);
      CHECK(std::memcmp(result.data(), values.data(), values.size() * 4) == 0);
    }
  }

  SUBCASE("a box of half the size: the announced bytes never come") {
    ResolvedTensorMap half = map_of(from);
    half.box = {32, 32};
    const std::vector<Finding> found = run(device, *image, half, map_of(to), smem);
    REQUIRE(found.size() == 1);
    CHECK(found[0].is_failure);
    CHECK(found[0].name == "expect-tx-mismatch");
    CHECK(found[0].message.find("tx-count 4096") != std::string::npos);
  }
  SUBCASE("too little shared memory") {
    const std::vector<Finding> found = run(device, *image, map_of(from), map_of(to), 4096);
    REQUIRE(!found.empty());
    CHECK(found[0].is_failure);
    CHECK(found[0].name == "smem-out-of-bounds");
  }
  SUBCASE("a tensor larger than its buffer") {
    ResolvedTensorMap large = map_of(from);
    large.dims[1] = kRows + 40;
    const std::vector<Finding> found = run(device, *image, large, map_of(to), smem);
    REQUIRE(!found.empty());
    CHECK(found[0].name == "global-out-of-bounds");
    CHECK(found[0].message.find("past the end of an allocation of 76800 bytes") != std::string::npos);
  }
  SUBCASE("rows that end inside a 16-byte unit: the store zeroes the rest of it, and no more") {
    constexpr std::uint32_t kUsed = 93, kPitch = 100;  // 93 floats end 4 bytes into a unit; units end at 96
    constexpr std::size_t kBytes = kRows * kPitch * 4;
    const auto ragged = [&](DevicePointer address, std::uint32_t pitch) {
      ResolvedTensorMap map = map_of(address);
      map.dims[0] = kUsed;
      map.strides_bytes = {pitch * 4};
      return map;
    };
    const DevicePointer wide = device.allocate(kBytes);
    device.set_bytes(wide, 0xFF, kBytes);
    CHECK(run(device, *image, ragged(from, kColumns), ragged(wide, kPitch), smem).empty());
    std::vector<std::uint32_t> result(kRows * kPitch), source(values.size());
    std::memcpy(source.data(), values.data(), values.size() * 4);
    device.copy_to_host(result.data(), wide, kBytes);
    for (std::uint32_t row = 0; row < kRows; ++row)
      for (std::uint32_t column = 0; column < kPitch; ++column) {
        const std::uint32_t expected = column < kUsed ? source[row * kColumns + column] : column < 96 ? 0 : 0xFFFFFFFF;
        if (result[row * kPitch + column] != expected) FAIL("row " << row << ", column " << column);
      }
    // A buffer that ends with the last element: the zeros behind it land in somebody else's memory.
    const DevicePointer tight = device.allocate(kBytes - (kPitch - kUsed) * 4);
    const std::vector<Finding> found = run(device, *image, ragged(from, kColumns), ragged(tight, kPitch), smem);
    REQUIRE(!found.empty());
    CHECK(found[0].name == "global-out-of-bounds");
  }
}

}  // namespace
}  // namespace tessera::emulator::testing::copy2d_test
