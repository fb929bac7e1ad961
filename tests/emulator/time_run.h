// A kernel of a few instructions on an H200 by the time model.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "emulator/time/gpu_time.h"
#include "emulator/time/report.h"
#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::time_test {

inline std::string entry(const std::string& body) {
  return ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{\n"
         ".reg .pred p, q; .reg .b32 r<16>; .reg .b64 d<8>; .reg .f32 f<16>;\n.shared .align 128 .b8 smem[32768];\n"
         ".shared .align 8 .b64 bar;\n"
         "ld.param.u64 d0, [buffer];\nmov.u32 r0, %tid.x;\nmov.u32 r1, smem;\nshl.b32 r2, r0, 2;\nadd.u32 r3, r1, "
         "r2;\n" +
         body + "\nret;\n}\n";
}

inline std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

inline LaunchTime time_of(const std::string& body, std::uint32_t threads,
                          std::vector<std::uint32_t>* values = nullptr) {
  DeviceOptions options;
  options.time = find_gpu_time("h200");
  options.num_sms = sms_of(*options.time);
  EmulatedDevice device(options);
  std::vector<std::uint32_t> own(1024);
  const auto findings =
      tessera::testing::run_test_entry(device, entry(body), values != nullptr ? *values : own, threads);
  INFO((findings.empty() ? std::string() : findings.front().message));
  REQUIRE(findings.empty());
  const std::vector<LaunchTime> times = device.take_times();
  REQUIRE(times.size() == 1);
  CHECK(device.take_times().empty());
  CHECK(times[0].is_whole);
  return times[0];
}

/// Multiply-adds, none of which waits for the one before it, each of other values.
inline std::string multiply_adds(int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += fmt::format("fma.rn.f32 f{0}, f{0}, f0, f0;\n", 1 + i % 8);
  return all;
}

inline double cycles(const std::string& body, std::uint32_t threads = 32) { return time_of(body, threads).cycles; }

/// Cycles of one of the text's instructions, by the difference of two counts.
inline double each(const std::string& text, std::uint32_t threads = 32, const std::string& before = {}) {
  return (cycles(before + repeated(text, 96), threads) - cycles(before + repeated(text, 32), threads)) / 64;
}

inline const GpuTime& h200() {
  static const std::shared_ptr<const GpuTime> gpu = find_gpu_time("H200");
  return *gpu;
}

inline LaunchTime time_of_grid(const std::string& body, std::uint32_t threads, std::uint32_t ctas,
                               std::size_t words = 1 << 20) {
  DeviceOptions options;
  options.time = find_gpu_time("h200");
  options.num_sms = sms_of(*options.time);
  options.skips_values = true;
  EmulatedDevice device(options);
  std::vector<std::uint32_t> values(words);
  const auto findings = tessera::testing::run_test_entry(device, entry(body), values, threads, ctas);
  for (const auto& finding : findings) CAPTURE(finding.message);
  REQUIRE(findings.empty());
  return device.take_times().at(0);
}

}  // namespace tessera::emulator::time_test
