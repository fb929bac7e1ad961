// Runs PTX text in the emulator: what most of its tests begin and end with.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/emulator/device.h"

namespace tessera::testing {

/// Launches the entry `test`, whose one parameter is a pointer: `values` go to it, and come back. The findings.
template <class T>
std::vector<emulator::EmulatorFinding> run_test_entry(emulator::EmulatedDevice& device, const std::string& ptx,
                                                      std::vector<T>& values, std::uint32_t threads,
                                                      std::uint32_t ctas = 1, std::uint32_t cluster = 1) {
  const auto image = device.load_ptx(ptx, "test.ptx");
  const std::size_t bytes = values.size() * sizeof(T);
  DevicePointer buffer = device.allocate(bytes);
  device.copy_to_device(buffer, values.data(), bytes);
  void* parameters[] = {&buffer};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.grid = {ctas, 1, 1};
  request.block = {threads, 1, 1};
  request.cluster = {cluster, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  std::vector<emulator::EmulatorFinding> findings = device.take_findings();
  device.copy_to_host(values.data(), buffer, bytes);
  return findings;
}

}  // namespace tessera::testing
