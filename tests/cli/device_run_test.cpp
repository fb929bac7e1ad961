// What a run leaves on the device when something throws on the way: nothing.
#include "cli/device_run.h"

#include <doctest/doctest.h>

#include <filesystem>

#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/cli/machine.h"
#include "tests/support/fake_device.h"

namespace tessera::cli {
namespace {

/// copy2d of a 32 x 64 matrix on a device that records.
struct Bench {
  Terminal terminal;
  Jit jit{terminal.host.options};
  FakeDevice device;
  std::shared_ptr<Kernel> kernel;
  std::vector<std::int64_t> sizes;
  std::map<std::string, reference::Tensor> inputs;

  Bench() {
    jit.set_compiler(terminal.compiler);
    kernel = jit.kernel(Problem(Copy2d{}));
    device.entries[kernel->plan().kernel] = {128, 128, 4, 4, 4, 4};
    sizes = *LaunchSizes(kernel->plan().launch).complete({{"dim0", 64}, {"dim1", 32}});
    inputs.emplace("x", reference::Tensor(*reference::dtype_from_name("f32"), {32, 64}));
  }
};

}  // namespace

TEST_CASE("device run: an input that is missing or does not fit leaves no memory behind") {
  Bench bench;
  CHECK_THROWS_AS(DeviceRun(bench.device, *bench.kernel, bench.sizes, {}, {}), Error);
  CHECK(bench.device.live_blocks() == 0);
  bench.inputs.at("x").shape = {64, 32};
  CHECK_THROWS_AS(DeviceRun(bench.device, *bench.kernel, bench.sizes, {}, bench.inputs), Error);
  CHECK(bench.device.live_blocks() == 0);
}

TEST_CASE("device run: a launch that fails while it is timed leaves neither memory nor events behind") {
  Bench bench;
  {
    DeviceRun run(bench.device, *bench.kernel, bench.sizes, {}, bench.inputs);
    CHECK(bench.device.live_blocks() == 2);
    int launches = 0;
    bench.device.on_launch = [&] {
      if (++launches == 5) throw Error(ErrorKind::device, "illegal instruction");
    };
    CHECK_THROWS_AS(run.time_us(20), Error);
    CHECK(launches == 5);
    CHECK(bench.device.live_events == 0);
    CHECK(bench.device.live_blocks() == 2);
  }
  CHECK(bench.device.live_blocks() == 0);
}

TEST_CASE("device run: emulated buffers have no byte more than their extent, and what nobody gave is unwritten") {
  Machine machine;
  if (!machine.compiler) return;
  Jit jit{machine.terminal.host.options};
  jit.set_compiler(machine.compiler);
  emulator::EmulatedDevice device;
  const DevicePointer first = device.allocate(0);
  const std::shared_ptr<Kernel> kernel = jit.kernel(Problem(Copy2d{}));
  // 32 rows of 64 floats, 80 apart: 31 gaps of 64 bytes.
  const std::vector<std::int64_t> sizes =
      *LaunchSizes(kernel->plan().launch).complete({{"dim0", 64}, {"dim1", 32}, {"x_stride1", 80}});
  std::map<std::string, reference::Tensor> inputs;
  inputs.emplace("x", reference::Tensor(*reference::dtype_from_name("f32"), {32, 64}));
  const DeviceRun run(device, *kernel, sizes, {}, inputs);
  DevicePointer x = first;
  while (x < first + (1 << 20)) {
    x += 512;
    try {
      device.uninitialised_bytes(x, 1);
      break;
    } catch (const Error&) {
    }
  }
  constexpr std::size_t kExtent = (31 * 80 + 64) * 4;
  CHECK(device.uninitialised_bytes(x, kExtent) == 31 * 64);
  CHECK_THROWS_AS(device.uninitialised_bytes(x, kExtent + 1), Error);
  CHECK_THROWS_AS(device.uninitialised_bytes(x - 1, 1), Error);
}

}  // namespace tessera::cli
