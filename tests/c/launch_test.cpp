// From words to numbers through the C interface alone: attention on the emulator against float64.
#include <dlfcn.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/c/handles.h"
#include "tests/support/bf16.h"
#include "tests/support/has_text.h"

using namespace tessera::testing;

namespace {

constexpr std::int64_t kHeadDim = 64, kHeads = 2, kQueries = 9, kKeys = 77;

/// [tokens, kHeads, kHeadDim] on the host.
std::vector<std::uint16_t> random_tokens(std::int64_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> values(static_cast<std::size_t>(tokens * kHeads * kHeadDim));
  for (std::uint16_t& value : values) value = to_bf16(normal(random));
  return values;
}

double at(const std::vector<std::uint16_t>& tensor, std::int64_t token, std::int64_t head, std::int64_t column) {
  return from_bf16(tensor[static_cast<std::size_t>((token * kHeads + head) * kHeadDim + column)]);
}

/// One row of attention, bottom-right causal, in float64.
std::vector<double> expected_row(const std::vector<std::uint16_t>& q, const std::vector<std::uint16_t>& k,
                                 const std::vector<std::uint16_t>& v, std::int64_t query, std::int64_t head) {
  std::vector<double> row(kHeadDim, 0.0);
  double sum = 0;
  for (std::int64_t key = 0; key <= query + kKeys - kQueries; ++key) {
    double score = 0;
    for (std::int64_t i = 0; i < kHeadDim; ++i) score += at(q, query, head, i) * at(k, key, head, i);
    const double weight = std::exp(score / std::sqrt(static_cast<double>(kHeadDim)));
    sum += weight;
    for (std::int64_t i = 0; i < kHeadDim; ++i) row[static_cast<std::size_t>(i)] += weight * at(v, key, head, i);
  }
  for (double& value : row) value /= sum;
  return row;
}

/// Bytes that the process has mapped or reserved.
std::uint64_t address_space() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages;
  return pages * 4096;
}

/// A launch's arguments by name.
struct Arguments {
  explicit Arguments(const KernelHandle& of)
      : kernel(of),
        sizes(tessera_kernel_count(of.get(), TESSERA_SIZE), TESSERA_USE_DEFAULT),
        scalars(tessera_kernel_count(of.get(), TESSERA_SCALAR), std::numeric_limits<double>::quiet_NaN()),
        buffers(tessera_kernel_count(of.get(), TESSERA_BUFFER), 0) {}
  std::int64_t& size(const char* name) { return sizes[index_of(kernel, TESSERA_SIZE, name)]; }
  std::uint64_t& buffer(const char* name) { return buffers[index_of(kernel, TESSERA_BUFFER, name)]; }
  tessera_arguments get() const {
    return {.struct_size = sizeof(tessera_arguments),
            .sizes = sizes.data(),
            .num_sizes = sizes.size(),
            .scalars = scalars.data(),
            .num_scalars = scalars.size(),
            .buffers = buffers.data(),
            .num_buffers = buffers.size(),
            .workspace = 0,
            .workspace_bytes = 0};
  }
  const KernelHandle& kernel;
  std::vector<std::int64_t> sizes;
  std::vector<double> scalars;
  std::vector<std::uint64_t> buffers;
};

std::uint64_t uploaded(const DeviceHandle& device, const std::vector<std::uint16_t>& values) {
  std::uint64_t address = 0;
  REQUIRE(said(tessera_device_allocate(device.get(), 2 * values.size(), &address)) == "ok");
  REQUIRE(said(tessera_device_upload(device.get(), address, values.data(), 2 * values.size(), nullptr)) == "ok");
  return address;
}

}  // namespace

/// Events as text, from any thread.
struct Events {
  std::mutex mutex;
  std::vector<std::string> all;
  static void take(void* data, const tessera_event* event) {
    Events& events = *static_cast<Events*>(data);
    const std::lock_guard lock(events.mutex);
    events.all.push_back(std::to_string(event->kind) + " " + event->tier + " " + event->kernel);
  }
};

TEST_CASE("c: attention from words, on the emulator, against float64; threads share one compile") {
  const std::vector<tessera_field> fields = {{"head_dim", "64"}, {"mask", "causal"}};
  Events events;
  auto options = defaults<tessera_jit_options>();
  options.on_event = Events::take;
  options.user_data = &events;
  JitHandle jit = open_jit(options);
  auto racing = defaults<tessera_device_options>();
  racing.seed = std::random_device{}() | 1U, racing.detects_races = 1;
  DeviceHandle device = open_device(jit, racing);
  std::vector<KernelHandle> kernels(4);
  {
    std::vector<std::jthread> threads;
    for (KernelHandle& kernel : kernels)
      threads.emplace_back([&] {
        tessera_kernel* out = nullptr;
        if (tessera_jit_kernel(jit.get(), "fmha", fields.data(), fields.size(), &out) == TESSERA_OK) kernel.reset(out);
      });
  }
  for (const KernelHandle& kernel : kernels) REQUIRE(kernel != nullptr);
  auto stats = defaults<tessera_stats>();
  REQUIRE(said(tessera_jit_stats(jit.get(), &stats)) == "ok");
  CHECK(stats.compiles == 1);

  const KernelHandle& kernel = kernels.front();
  const std::string name = tessera_kernel_name(kernel.get());
  CHECK(has(name, "tessera_fmha_sm90a_d64_"));
  REQUIRE(events.all.size() >= 2);  // threads that waited for the compile are hits in memory
  CHECK(events.all[0] == std::to_string(TESSERA_EVENT_COMPILE_STARTED) + " compiled " + name);
  CHECK(events.all[1] == std::to_string(TESSERA_EVENT_COMPILE_FINISHED) + " compiled " + name);
  CHECK(nlohmann::json::parse(tessera_kernel_plan(kernel.get()))["kernel"] == tessera_kernel_name(kernel.get()));
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  const std::vector<std::uint16_t> q = random_tokens(kQueries, seed), k = random_tokens(kKeys, seed + 1),
                                   v = random_tokens(kKeys, seed + 2);
  std::vector<std::uint16_t> o(q.size());
  Arguments arguments(kernel);
  arguments.size("batch") = 1;
  arguments.size("heads_q") = arguments.size("heads_kv") = kHeads;
  arguments.size("seqlen_q") = kQueries;
  arguments.size("seqlen_k") = kKeys;
  arguments.buffer("q") = uploaded(device, q);
  arguments.buffer("k") = uploaded(device, k);
  arguments.buffer("v") = uploaded(device, v);
  const std::uint64_t out = arguments.buffer("o") = uploaded(device, o);
  REQUIRE(said(tessera_device_poison(device.get(), out, 0xFF, 2 * o.size())) == "ok");
  tessera_arguments given = arguments.get();
  std::int64_t bytes = -1;
  CHECK(said(tessera_kernel_prepare(kernel.get(), device.get())) == "ok");
  CHECK(said(tessera_kernel_workspace_bytes(kernel.get(), device.get(), &given, &bytes)) == "ok");
  CHECK(bytes == 0);

  // Right.
  REQUIRE(said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given)) == "ok");
  const auto findings =
      made<Text>([&](char** text) { return tessera_device_synchronize(device.get(), nullptr, text); });
  CHECK(nlohmann::json::parse(findings.get()).empty());
  REQUIRE(said(tessera_device_download(device.get(), o.data(), out, 2 * o.size(), nullptr)) == "ok");
  int wrong = 0;
  for (std::int64_t query = 0; query < kQueries; ++query)
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const std::vector<double> row = expected_row(q, k, v, query, head);
      for (std::int64_t i = 0; i < kHeadDim; ++i) {
        const double error = std::abs(at(o, query, head, i) - row[static_cast<std::size_t>(i)]);
        // bf16 of numbers around 1: 2^-8 of the output, and of the weights.
        wrong += error < 0.02 ? 0 : 1;
      }
    }
  CHECK(wrong == 0);

  // Refused.
  const auto refused = [&] { return said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given)); };
  CHECK(said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, nullptr)) == "usage: arguments is null");
  given.num_sizes -= 1;
  CHECK(has(refused(), "usage: "));
  given = arguments.get();
  given.buffers = nullptr;
  CHECK(refused() == "usage: buffers is null");
  given = arguments.get();
  given.struct_size = 3;
  CHECK(refused() == "usage: struct_size = 3: set it to sizeof(tessera_arguments)");
  given = arguments.get();
  const std::uint64_t whole = arguments.buffer("q")++;
  CHECK(has(refused(), "must be a multiple of 16"));
  arguments.buffer("q") = 0;
  CHECK(has(refused(), "q"));
  arguments.buffer("q") = whole;
  std::size_t index = 0;
  CHECK(has(said(tessera_kernel_index(kernel.get(), TESSERA_SIZE, "seqlen", &index)),
            "usage: this kernel of fmha has no size 'seqlen'; it has batch, heads_q"));
  CHECK(has(said(tessera_kernel_index(kernel.get(), 3, "batch", &index)), "usage: kind = 3: must be"));
  const JitHandle stranger = open_jit();
  const DeviceHandle others = open_device(stranger);
  CHECK(has(said(tessera_kernel_prepare(kernel.get(), others.get())), "device belongs to another jit"));

  // Closed in any order.
  REQUIRE(said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given)) == "ok");
  for (std::size_t i = 1; i < kernels.size(); ++i) kernels[i].reset();
  jit.reset();
  device.reset();
  CHECK(tessera_kernel_count(kernel.get(), TESSERA_BUFFER) > 3);
}

TEST_CASE("c: on the GPU whose context is current, or by its number, with a stand-in for the driver") {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  auto* const record =
      driver == nullptr ? nullptr : reinterpret_cast<const char* (*)()>(dlsym(driver, "fake_cuda_record"));
  if (record == nullptr) {
    MESSAGE("not run: LD_LIBRARY_PATH names no folder with the driver's stand-in (ctest sets it)");
    return;
  }
  const JitHandle jit = open_jit();
  const KernelHandle kernel = kernel_of(jit, "copy2d", {{"dtype", "u8"}});
  Arguments arguments(kernel);
  arguments.size("dim0") = 64;
  arguments.size("dim1") = 2;
  arguments.buffer("x") = 0x10000;
  arguments.buffer("y") = 0x20000;
  tessera_arguments given = arguments.get();
  record();
  CHECK(said(tessera_kernel_prepare(kernel.get(), nullptr)) == "ok");
  auto* const stream = reinterpret_cast<void*>(std::uintptr_t{0x77});
  CHECK(said(tessera_kernel_launch(kernel.get(), nullptr, stream, &given)) == "ok");
  const std::string lines = record();
  CHECK(has(lines, std::string("launch ") + tessera_kernel_name(kernel.get())));
  CHECK(has(lines, "stream 0x77\n"));
  CHECK(has(lines, "map 0x10000 dims 64,2 strides 64\n"));

  auto gpu = defaults<tessera_device_options>();
  gpu.kind = TESSERA_DEVICE_GPU;
  const DeviceHandle device = open_device(jit, gpu);
  const auto info = made<Text>([&](char** out) { return tessera_device_info(device.get(), out); });
  CHECK(nlohmann::json::parse(info.get())["name"] == "Stand-in");
  arguments.buffer("x") = uploaded(device, std::vector<std::uint16_t>(64, 0x1234));
  given = arguments.get();
  CHECK(said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given)) == "ok");
  CHECK(said(tessera_device_synchronize(device.get(), nullptr, nullptr)) == "ok");
  CHECK(has(record(), "stream 0\n"));
  std::uint16_t back = 0;
  CHECK(said(tessera_device_download(device.get(), &back, arguments.buffer("x"), 2, nullptr)) == "ok");
  CHECK(back == 0x1234);
  gpu.ordinal = 1;
  tessera_device* other = nullptr;
  CHECK(said(tessera_device_open(jit.get(), &gpu, &other)) == "usage: ordinal = 1: 1 GPUs are visible, from 0 on");
}

TEST_CASE("c: a failure in the emulator is the status, and the findings come all the same") {
  const JitHandle jit = open_jit();
  const DeviceHandle device = open_device(jit);
  const KernelHandle kernel = kernel_of(jit, "copy2d", {});
  Arguments arguments(kernel);
  const auto name = [&](std::int32_t kind, std::size_t i) {
    return std::string(tessera_kernel_argument_name(kernel.get(), kind, i));
  };
  for (std::size_t i = 0; i < arguments.sizes.size(); ++i)
    if (name(TESSERA_SIZE, i) == "dim0" || name(TESSERA_SIZE, i) == "dim1") arguments.sizes[i] = 256;
  std::vector<std::uint16_t> few(64);
  for (std::uint64_t& buffer : arguments.buffers) buffer = uploaded(device, few);
  const tessera_arguments given = arguments.get();
  const tessera_status launched = tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given);
  CHECK(said(launched) == "ok");
  char* findings = nullptr;
  const tessera_status status = tessera_device_synchronize(device.get(), nullptr, &findings);
  const Text text(findings);
  CHECK(status == TESSERA_DEVICE);
  REQUIRE(findings != nullptr);
  const auto list = nlohmann::json::parse(findings);
  REQUIRE(!list.empty());
  CHECK(list[0]["is_failure"] == true);
  CHECK(has(tessera_error_message(), list[0]["name"]));
}

TEST_CASE("c: a launch in the emulator ends when the caller asks for it, and the next one runs") {
  struct Caller {
    int asked = 0;
    int answer = 0;
  } caller;
  const JitHandle jit = open_jit();
  tessera_device_options options{};
  options.struct_size = sizeof options;
  options.user_data = &caller;
  options.is_interrupted = [](void* user_data) -> std::int32_t {
    auto& asks = *static_cast<Caller*>(user_data);
    ++asks.asked;
    return asks.answer;
  };
  tessera_device* opened = nullptr;
  REQUIRE(said(tessera_device_open(jit.get(), &options, &opened)) == "ok");
  const DeviceHandle device(opened);
  const KernelHandle kernel = kernel_of(jit, "copy2d", {{"dtype", "u8"}});
  const std::vector<std::uint16_t> rows(32 * 16384, 0x1234);
  Arguments arguments(kernel);
  arguments.size("dim0") = 64;
  arguments.size("dim1") = 16384;
  arguments.buffer("x") = uploaded(device, rows);
  for (const int answer : {0, 7, 0}) {
    caller = {.answer = answer};
    arguments.buffer("y") = uploaded(device, std::vector<std::uint16_t>(rows.size()));
    const tessera_arguments given = arguments.get();
    REQUIRE(said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given)) == "ok");
    char* findings = nullptr;
    const tessera_status status = tessera_device_synchronize(device.get(), nullptr, &findings);
    const Text text(findings);
    CHECK(caller.asked >= 1);
    CHECK(status == (answer == 0 ? TESSERA_OK : TESSERA_DEVICE));
    const auto list = nlohmann::json::parse(findings);
    REQUIRE(list.size() == (answer == 0 ? 0U : 1U));
    if (answer != 0) CHECK(list[0]["name"] == "interrupted");
    std::vector<std::uint16_t> copied(rows.size());
    REQUIRE(said(tessera_device_download(device.get(), copied.data(), arguments.buffer("y"), 2 * rows.size(),
                                         nullptr)) == "ok");
    CHECK((copied == rows) == (answer == 0));
  }
}

TEST_CASE("c: an emulated device that is closed gives back its address space and the code there") {
  const JitHandle jit = open_jit();
  const KernelHandle kernel = kernel_of(jit, "copy2d", {{"dtype", "u8"}});
  const std::vector<std::uint16_t> row(32, 0x1234);
  std::uint64_t before = 0;
  for (int i = 0; i < 1200; ++i) {
    const DeviceHandle device = open_device(jit);
    if (i == 10) before = address_space();
    if (i % 50 != 0) continue;
    Arguments arguments(kernel);
    arguments.size("dim0") = 64;
    arguments.size("dim1") = 1;
    arguments.buffer("x") = uploaded(device, row);
    arguments.buffer("y") = uploaded(device, std::vector<std::uint16_t>(32));
    const tessera_arguments given = arguments.get();
    REQUIRE(said(tessera_kernel_launch(kernel.get(), device.get(), nullptr, &given)) == "ok");
    REQUIRE(said(tessera_device_synchronize(device.get(), nullptr, nullptr)) == "ok");
    std::vector<std::uint16_t> copied(32);
    REQUIRE(said(tessera_device_download(device.get(), copied.data(), arguments.buffer("y"), 64, nullptr)) == "ok");
    CHECK(copied == row);
  }
  CHECK(address_space() < before + (std::uint64_t{1} << 30));
}

TEST_CASE("c: an event function asks for the kernel that was compiled") {
  struct Asked {
    tessera_jit* jit = nullptr;
    std::string at_start, at_end;
  } asked;
  auto options = defaults<tessera_jit_options>();
  options.user_data = &asked;
  options.on_event = [](void* user_data, const tessera_event* event) {
    Asked& all = *static_cast<Asked*>(user_data);
    tessera_kernel* kernel = nullptr;
    const tessera_field field{"dtype", "u8"};
    const auto ask = [&] { return said(tessera_jit_kernel(all.jit, "copy2d", &field, 1, &kernel)); };
    if (event->kind == TESSERA_EVENT_COMPILE_STARTED) all.at_start = ask();
    if (event->kind == TESSERA_EVENT_COMPILE_FINISHED) all.at_end = ask();
    tessera_kernel_close(kernel);
  };
  const JitHandle jit = open_jit(options);
  asked.jit = jit.get();
  kernel_of(jit, "copy2d", {{"dtype", "u8"}});
  CHECK(has(asked.at_start, "usage: "));
  CHECK(has(asked.at_start, "ask when the compile has finished"));
  CHECK(asked.at_end == "ok");
}
