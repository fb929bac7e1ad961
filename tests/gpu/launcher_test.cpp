// The manners of a guest: other threads, other contexts, the caller's streams, graphs.
#include "tessera/launcher.h"

#include <doctest/doctest.h>

#include <thread>

#include "tessera/error.h"
#include "tests/gpu/gpu_support.h"

namespace tessera {

using namespace gpu;

namespace {

constexpr int kCount = 1000;

std::vector<float> input() {
  std::vector<float> x(kCount);
  for (int i = 0; i < kCount; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i % 97);
  return x;
}

/// x, y, workspace and the arguments that name them.
struct Operands {
  Array<float> x, y;
  Array<std::uint32_t> workspace;
  std::vector<std::int64_t> sizes{kCount, kUseDefault};
  std::vector<double> scalars{2.0};
  std::vector<DevicePointer> buffers;

  explicit Operands(Device& on)
      : x(input(), on),
        y(std::vector<float>(kCount + 1, 0.0f), on),
        workspace(std::vector<std::uint32_t>(kCount, 77), on) {
    buffers = {x.pointer(), y.pointer()};
  }
  LaunchArguments arguments() const { return {sizes, scalars, buffers, workspace.pointer(), kCount * 4}; }

  /// Elements that are not what `launches` launches leave.
  int wrong(int launches, Stream stream = {}) const {
    const std::vector<float> result = y.host(stream), from = input();
    int count = result[kCount] == static_cast<float>(launches) ? 0 : 1;
    for (std::size_t i = 0; i < kCount; ++i)
      if (result[i] != from[i] * static_cast<float>(scalars[0]) + 3.0f) ++count;
    return count;
  }
};

const Image& scale_image() {
  static const Image image = compile(kScaleText);
  return image;
}

}  // namespace

TEST_CASE("host pointers and freed ones are refused by name where the launcher is told to look") {
  const Launcher launcher(device(), scale_plan(), scale_image(), {.check_pointers = true});
  Operands operands(device());
  const auto said = [&] {
    try {
      launcher.launch({}, operands.arguments());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    device().synchronize();
    return std::string("launched");
  };
  CHECK(said() == "launched");
  std::vector<float> on_host(kCount);
  operands.buffers[0] = reinterpret_cast<DevicePointer>(on_host.data());
  const std::string of_host = said();
  // A GPU that reads all of the process's memory launches, and is right to.
  if (of_host != "launched") CHECK(of_host.find("scale: buffer 'x' at 0x") == 0);
  const DevicePointer freed = device().allocate(64 << 20);
  device().free(freed);
  operands.buffers[0] = freed;
  if (of_host != "launched") CHECK(said().find("the driver knows no memory there") != std::string::npos);
  operands.buffers[0] = operands.x.pointer();
  CHECK(said() == "launched");
}

TEST_CASE("a launch computes what its arguments say; the workspace is zero each time") {
  const Launcher launcher(device(), scale_plan(), scale_image());
  Operands operands(device());
  for (int launches = 1; launches <= 3; ++launches) {
    launcher.launch({}, operands.arguments());
    CHECK(operands.wrong(launches) == 0);
  }
  operands.scalars[0] = -0.5;
  launcher.launch({}, operands.arguments());
  CHECK(operands.wrong(4) == 0);
  operands.sizes[0] = 0;
  launcher.launch({}, operands.arguments());
  CHECK(operands.wrong(4) == 0);
}

TEST_CASE("a plan whose parameters are not the code's is refused") {
  LaunchPlan plan = scale_plan();
  plan.steps[0].parameters[3].kind = ParameterKind::i64;
  CHECK_THROWS_WITH_AS(
      Launcher(device(), plan, scale_image()),
      "kernel 'kernel': the plan's parameters have 8, 8, 8, 8, 8, 4 bytes, the code's have 8, 8, 8, 4, "
      "8, 4: plan and code do not belong together",
      Error);
  plan = scale_plan();
  plan.steps[0].parameters.pop_back();
  CHECK_THROWS_AS(Launcher(device(), plan, scale_image()), Error);
  plan = scale_plan();
  plan.steps[0].entry = "other";
  CHECK_THROWS_AS(Launcher(device(), plan, scale_image()), Error);
}

TEST_CASE("eight threads launch one kernel on streams of their own") {
  const Launcher launcher(device(), scale_plan(), scale_image());
  std::vector<int> wrong(8, -1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      Operands operands(device());
      operands.scalars[0] = static_cast<double>(t);
      const Stream stream = device().create_stream();
      for (int i = 0; i < 100; ++i) launcher.launch(stream, operands.arguments());
      wrong[t] = operands.wrong(100, stream);
      device().destroy(stream);
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(8, 0));
}

TEST_CASE("a stream that somebody else made") {
  const Driver driver;
  const Launcher launcher(device(), scale_plan(), scale_image());
  const Operands operands(device());
  CuStream foreign = nullptr;
  REQUIRE(driver.stream_create(&foreign, 0) == 0);
  launcher.launch(Stream(foreign), operands.arguments());
  CHECK(operands.wrong(1, Stream(foreign)) == 0);
  device().destroy(Stream(foreign));
}

TEST_CASE("a launch is captured into a graph and replayed") {
  const Driver driver;
  constexpr int kModes[] = {0, 1, 2};  // global, thread local, relaxed
  for (const int mode : kModes) {
    const Launcher launcher(device(), scale_plan(), scale_image());  // never launched before: nothing is left to load
    const Operands operands(device());
    const Stream stream = device().create_stream();
    auto* const cu_stream = reinterpret_cast<CuStream>(stream.handle);
    REQUIRE(driver.capture_begin(cu_stream, mode) == 0);
    CHECK(device().is_capturing(stream));
    launcher.launch(stream, operands.arguments());
    void* graph = nullptr;
    REQUIRE(driver.capture_end(cu_stream, &graph) == 0);
    CHECK_FALSE(device().is_capturing(stream));
    void* executable = nullptr;
    REQUIRE(driver.graph_instantiate(&executable, graph, 0) == 0);
    CHECK(operands.wrong(0, stream) > 0);  // nothing has run yet
    for (int i = 0; i < 5; ++i) REQUIRE(driver.graph_launch(executable, cu_stream) == 0);
    CHECK(operands.wrong(5, stream) == 0);
    driver.executable_destroy(executable);
    driver.graph_destroy(graph);
    device().destroy(stream);
  }
}

TEST_CASE("a guest works in the caller's contexts, and outlives them") {
  device();  // the driver is initialised
  const Driver driver;
  const auto guest = make_cuda_device(0, false);
  const CudaApi& api = require_cuda();
  CuContext before = nullptr, contexts[2] = {};
  REQUIRE(api.context_current(&before) == 0);
  std::unique_ptr<Launcher> launchers[2];
  std::uintptr_t ids[2] = {};
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE(driver.context_create(&contexts[i], 0, 0) == 0);  // current from here on
    ids[i] = guest->current_context();
    launchers[i] = std::make_unique<Launcher>(*guest, scale_plan(), scale_image());
  }
  CHECK(ids[0] != ids[1]);
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{0}}) {
    REQUIRE(api.context_set_current(contexts[i]) == 0);
    CHECK(guest->current_context() == ids[i]);
    const Operands operands(*guest);
    launchers[i]->launch({}, operands.arguments());
    CHECK(operands.wrong(1) == 0);
  }
  REQUIRE(driver.context_destroy(contexts[1]) == 0);
  launchers[1].reset();  // its code went with the context
  launchers[0].reset();  // from another context than its own
  REQUIRE(driver.context_destroy(contexts[0]) == 0);

  // Null takes away the top of the thread's stack of contexts.
  CuContext current = before;
  while (current != nullptr) {
    REQUIRE(api.context_set_current(nullptr) == 0);
    REQUIRE(api.context_current(&current) == 0);
  }
  CHECK(cuda_current_device() == -1);
  try {
    guest->allocate(16);
    FAIL("allocated");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    CHECK(std::string(error.what()) ==
          "cuMemAlloc: no CUDA context is current on this thread: make one current (cuCtxSetCurrent), or retain the "
          "device's primary context");
  }
  REQUIRE(api.context_set_current(before) == 0);
}

}  // namespace tessera
