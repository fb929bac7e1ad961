// Kernels that are launched while the one before them still runs: what they touch before griddepcontrol.wait.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"

namespace tessera::emulator::dependent_launch_test {
namespace {

// Each has its word of the buffers: d0 of the first, d1 of the second.
std::string kernel(const char* name, const std::string& body) {
  return fmt::format(
      ".visible .entry {}(.param .u64 first, .param .u64 second)\n{{\n.reg .pred p;\n.reg .b32 r<8>;\n.reg .b64 d<4>;\n"
      "ld.param.u64 d0, [first];\nld.param.u64 d1, [second];\nmov.u32 r0, %tid.x;\nsetp.eq.u32 p, r0, 0;\n"
      "mul.wide.u32 d2, r0, 4;\nadd.u64 d0, d0, d2;\nadd.u64 d1, d1, d2;\n{}\nret;\n}}\n",
      name, body);
}

struct Step {
  std::string body;
  bool is_dependent = true;
};

/// Runs the kernels one after the other over two buffers of 64 words, with the race detector.
std::vector<EmulatorFinding> run(const std::vector<Step>& steps, const DeviceOptions& given = {}, bool waits = false) {
  DeviceOptions options = given;
  options.detects_races = true;
  EmulatedDevice device(options);
  std::string ptx = ".version 9.0\n.target sm_90a\n.address_size 64\n";
  for (std::size_t i = 0; i < steps.size(); ++i) ptx += kernel(fmt::format("kernel{}", i).c_str(), steps[i].body);
  const auto image = device.load_ptx(ptx, "test.ptx");
  DevicePointer buffers[2] = {device.allocate(256), device.allocate(256)};
  for (const DevicePointer buffer : buffers) device.set_bytes(buffer, 1, 256);
  void* parameters[] = {&buffers[0], &buffers[1]};
  std::vector<EmulatorFinding> findings;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    LaunchRequest request;
    request.entry = image->entry(fmt::format("kernel{}", i));
    request.block = {64, 1, 1};
    request.parameters = parameters;
    request.programmatic_stream_serialization = steps[i].is_dependent;
    device.launch(request, {});
    if (waits)
      for (EmulatorFinding& finding : device.take_findings()) findings.push_back(std::move(finding));
  }
  for (EmulatorFinding& finding : device.take_findings()) findings.push_back(std::move(finding));
  return findings;
}

bool is_missed(const std::vector<EmulatorFinding>& findings) {
  for (const EmulatorFinding& finding : findings) CHECK(finding.name == "missing-griddepcontrol-wait");
  return !findings.empty();
}

const std::string kStart = "griddepcontrol.launch_dependents;\n", kWait = "griddepcontrol.wait;\n";
const std::string kWrite = "st.global.b32 [d0], r0;\n", kRead = "ld.global.b32 r1, [d0];\n";
const std::string kWriteOther = "st.global.b32 [d1], r0;\n", kReadOther = "ld.global.b32 r1, [d1];\n";

TEST_CASE("a dependent waits for the kernel before it") {
  const auto early = run({{kStart + kWrite}, {kRead + kWait}});
  REQUIRE(early.size() == 1);
  CHECK(early[0].name == "missing-griddepcontrol-wait");
  CHECK_FALSE(early[0].is_failure);
  CHECK(early[0].entry == "kernel1");
  CHECK(early[0].message ==
        "read, and nothing orders it after the write by the kernel before, kernel0 (its PTX line 17)");
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kWait + kRead}})));
  // Memory of its own; memory that both read.
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kReadOther}})));
  CHECK_FALSE(is_missed(run({{kStart + kRead}, {kRead}})));
  // What the kernel before reads must stay too, and what it writes must not come last.
  CHECK(is_missed(run({{kStart + kRead}, {kWrite}})));
  CHECK(is_missed(run({{kStart + kWrite}, {kWrite}})));
  CHECK_FALSE(is_missed(run({{kStart + kWrite + kRead}, {kWait + kWrite}})));
  // Atomics of both.
  const std::string sum = "red.global.add.u32 [d0], r0;\n";
  CHECK_FALSE(is_missed(run({{kStart + sum}, {sum}})));
  CHECK(is_missed(run({{kStart + sum}, {kRead}})));
}

TEST_CASE("one thread waits for others") {
  const std::string one = "@p griddepcontrol.wait;\n";
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {one + "bar.sync 0;\n" + kRead}})));
  CHECK(is_missed(run({{kStart + kWrite}, {one + kRead}})));
  CHECK(is_missed(run({{kStart + kWrite}, {one + "bar.warp.sync 0xffffffff;\n" + kRead}})));
}

TEST_CASE("launches that do not overlap") {
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kRead, false}})));
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kRead}}, {}, true)));  // synchronised between the two
  // Without launch_dependents the next kernel starts when this one has ended.
  CHECK_FALSE(is_missed(run({{kWrite}, {kRead}})));
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kReadOther, false}, {kRead}})));
}

TEST_CASE("the wait is for one kernel") {
  // The second one does not wait, so it may end before the first.
  CHECK(is_missed(run({{kStart + kWrite}, {kStart + kReadOther}, {kWait + kRead}})));
  CHECK(is_missed(run({{kStart + kWrite}, {kReadOther}, {kWait + kRead}})));
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kStart + kWait + kReadOther}, {kWait + kRead}})));
  // It waits, but may let the third start before: that one must wait itself, unless the second waits first.
  CHECK(is_missed(run({{kStart + kWrite}, {kStart + kWait}, {kRead}})));
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kWait + kStart}, {kRead}})));
  CHECK_FALSE(is_missed(run({{kStart + kWrite}, {kWait}, {kRead}})));
}

}  // namespace
}  // namespace tessera::emulator::dependent_launch_test
