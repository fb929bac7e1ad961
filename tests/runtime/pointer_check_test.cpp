// Pointers that the device is asked about, and what the driver's answers mean.
#include "runtime/pointer_check.h"

#include <doctest/doctest.h>

#include <map>

#include "runtime/cuda_pointers.h"
#include "tessera/error.h"
#include "tests/support/fake_device.h"

namespace tessera {
namespace {

Expression e(std::string_view text) { return Expression::parse(text); }

LaunchPlan copy_plan() {
  LaunchPlan plan;
  plan.op = "copy";
  plan.arch = "sm_90a";
  plan.sizes = {{"rows", 0, 1 << 20, {}, ""}, {"stride", 1, 1 << 20, e("64"), ""}};
  plan.buffers = {{"x", BufferRole::input, "f32", {e("rows"), e("64")}, {e("stride"), e("1")}, 16, false},
                  {"y", BufferRole::output, "bf16", {e("rows"), e("64")}, {e("64"), e("1")}, 16, false},
                  {"scale", BufferRole::input, "f32", {e("1")}, {e("1")}, 4, true}};
  plan.workspace = {e("rows * 4"), 256, false};
  LaunchStep step;
  step.entry = "copy";
  step.grid[0] = e("rows");
  plan.steps = {step};
  return plan;
}

/// What a launch of 8 rows said; the device's memory is blocks of its own.
struct Launched {
  FakeDevice device;
  std::vector<std::int64_t> sizes{8, kUseDefault};
  std::vector<DevicePointer> buffers;
  DevicePointer workspace = 0;
  bool checks = true;

  Launched() {
    device.entries = {{"copy", {}}};
    for (const std::size_t bytes : {2048U, 1024U, 4U}) buffers.push_back(device.allocate(bytes));
    workspace = device.allocate(32);
  }
  std::string said() {
    device.launches.clear();
    const Launcher launcher(device, copy_plan(), {}, {.check_pointers = checks});
    try {
      launcher.launch({}, {sizes, {}, buffers, workspace, 32});
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      CHECK(device.launches.empty());
      return error.what();
    }
    return "launched";
  }
};

/// The driver's answers by address; what is not there is unknown to it.
struct Answer {
  unsigned type = 0;
  CuPointer on_device = 0;
};
std::map<CuPointer, Answer> g_answers;
CuResult g_failure = 0;

CuResult answer(void* data, int attribute, CuPointer pointer) {
  if (g_failure != 0) return g_failure;
  const auto found = g_answers.find(pointer);
  if (found == g_answers.end()) return 1;
  if (attribute == 2) {
    *static_cast<unsigned*>(data) = found->second.type;
    return 0;
  }
  REQUIRE(attribute == 3);
  if (found->second.on_device == 0) return 1;
  *static_cast<CuPointer*>(data) = found->second.on_device;
  return 0;
}

}  // namespace

TEST_CASE_FIXTURE(Launched, "pointers are asked about where the launcher is told to, before anything starts") {
  CHECK(said() == "launched");
  const DevicePointer x = buffers[0];
  buffers[0] = 0x7fff00001000;
  CHECK(said() == "copy: buffer 'x' at 0x7fff00001000: no memory of the device");
  checks = false;
  CHECK(said() == "launched");
  checks = true;
  buffers[0] = x;
  device.free(buffers[1]);
  CHECK(said() == fmt::format("copy: buffer 'y' at {:#x}: no memory of the device", buffers[1]));
}

TEST_CASE_FIXTURE(Launched, "a buffer's last element counts, with its strides; null and what is empty do not") {
  sizes[1] = 128;
  CHECK(said() == fmt::format("copy: buffer 'x' at {:#x}, the last of its 3840 bytes at {:#x}: no memory of the device",
                              buffers[0], buffers[0] + 3839));
  sizes = {0, kUseDefault};
  buffers = {0x7fff00001000, 0x7fff00002000, 0};
  CHECK(said() == "launched");
  Launched other;
  other.buffers[2] = 0;
  CHECK(other.said() == "launched");
  other.workspace = 0x7fff00001000;
  CHECK(other.said() == "copy: buffer 'workspace' at 0x7fff00001000: no memory of the device");
}

TEST_CASE("what the driver says of an address, and what it means for a kernel") {
  CudaApi api{};
  api.pointer_attribute = answer;
  g_answers = {{0x1000, {2, 0x1000}},  // a device's
               {0x2000, {1, 0x2000}},  // pinned host memory
               {0x3000, {1, 0x9000}},  // registered, elsewhere on the device
               {0x4000, {1, 0}},       // host memory that is not mapped
               {0x5000, {3, 0}}};      // an array's
  g_failure = 0;
  CHECK(why_unusable(api, 0x1000, false) == "");
  CHECK(why_unusable(api, 0x2000, false) == "");
  CHECK(why_unusable(api, 0x3000, false) == "it is host memory, which devices have at 0x9000");
  CHECK(why_unusable(api, 0x4000, false) == "it is host memory that is not mapped for devices");
  CHECK(why_unusable(api, 0x5000, false) == "it is an array's, which has no addresses");
  CHECK(why_unusable(api, 0x6000, false) ==
        "the driver knows no memory there: a host pointer, or memory that was freed");
  CHECK(why_unusable(api, 0x6000, true) == "");
  CHECK(why_unusable(api, 0x4000, true) == "");
  g_failure = 201;
  CHECK(why_unusable(api, 0x6000, false) == "");
}

}  // namespace tessera
