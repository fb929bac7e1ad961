// What the C interface adds to a launch: the same attention kernel launched by FmhaKernel (named arguments), by Kernel
// (values in the plan's order) and by tessera_kernel_launch, on a device that does nothing, so that what is left is the
// library. Again with the sizes and buffers of the launch before.
//
// Method: batches of 1,000 launches, the three taking turns; 400 batches of each after 40 that are thrown away. Prints
// median and quartiles of the time of one launch.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <vector>

#include "c/handles.h"

namespace {

using namespace tessera;

constexpr int kBatch = 1000, kBatches = 400, kWarmUp = 40;

class NullImage final : public LoadedImage {
 public:
  explicit NullImage(const LaunchPlan& plan) : plan_(plan) {}
  EntryHandle entry(std::string_view name) override {
    for (std::size_t i = 0; i < plan_.steps.size(); ++i)
      if (plan_.steps[i].entry == name) return {i + 1};
    throw Error(ErrorKind::device, "no such entry");
  }
  std::vector<ParameterLayout> parameters(EntryHandle entry) override {
    std::vector<ParameterLayout> all;
    for (const KernelParameter& parameter : plan_.steps[entry.handle - 1].parameters)
      all.push_back({0, parameter_bytes(parameter.kind)});
    return all;
  }
  void set_max_dynamic_smem(EntryHandle, std::int64_t) override {}

 private:
  const LaunchPlan& plan_;
};

/// An H200 that takes launches and runs none.
class NullDevice final : public Device {
 public:
  explicit NullDevice(const LaunchPlan& plan) : plan_(plan) {
    info_.compute_major = 9;
    info_.num_sms = 132;
    info_.max_dynamic_smem_bytes = 232448;
  }
  std::uint64_t launches = 0;

  const DeviceInfo& info() const override { return info_; }
  DevicePointer allocate(std::size_t) override { return 0; }
  void free(DevicePointer) noexcept override {}
  void copy_to_device(DevicePointer, const void*, std::size_t, Stream) override {}
  void copy_to_host(void*, DevicePointer, std::size_t, Stream) override {}
  void set_bytes(DevicePointer, std::uint8_t, std::size_t, Stream) override {}
  Stream create_stream() override { return {}; }
  void destroy(Stream) noexcept override {}
  Event create_event() override { return {}; }
  void destroy(Event) noexcept override {}
  void record(Event, Stream) override {}
  double elapsed_ms(Event, Event) override { return 0; }
  std::vector<Finding> synchronize(Stream) override { return {}; }
  bool is_capturing(Stream) override { return false; }
  std::uintptr_t current_context() override { return 1; }
  std::unique_ptr<LoadedImage> load(const Image&) override { return std::make_unique<NullImage>(plan_); }
  void encode(const ResolvedTensorMap&, TensorMapObject&) override {}
  void launch(const LaunchRequest&, Stream) override { ++launches; }

 private:
  const LaunchPlan& plan_;
  DeviceInfo info_;
};

double now_ns() {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void measure(const std::vector<std::pair<const char*, std::function<void()>>>& ways) {
  std::vector<std::vector<double>> times(ways.size());
  for (int batch = 0; batch < kWarmUp + kBatches; ++batch)
    for (std::size_t way = 0; way < ways.size(); ++way) {
      const double start = now_ns();
      ways[way].second();
      if (batch >= kWarmUp) times[way].push_back((now_ns() - start) / kBatch);
    }
  for (std::size_t way = 0; way < ways.size(); ++way) {
    std::vector<double>& list = times[way];
    std::sort(list.begin(), list.end());
    fmt::print("{:24} {:6.1f} ns  ({:.1f}, {:.1f})\n", ways[way].first, list[list.size() / 2], list[list.size() / 4],
               list[list.size() * 3 / 4]);
  }
}

}  // namespace

int main() {
  const Plan plan = make_plan(Fmha{.head_dim = 128, .mask = Mask::causal});
  const auto kernel = std::make_shared<Kernel>(plan, std::make_shared<CacheEntry>());
  const auto shared_device = std::make_shared<NullDevice>(kernel->plan().launch);
  NullDevice& device = *shared_device;
  const FmhaKernel named(kernel);
  const FmhaArguments by_name{.q = 4096,
                              .k = 8192,
                              .v = 12288,
                              .o = 16384,
                              .batch = 4,
                              .heads_q = 32,
                              .heads_kv = 8,
                              .seqlen_q = 4096,
                              .seqlen_k = 4096};

  tessera_kernel handle{.shared = std::make_shared<c::Shared>(JitOptions{.use_disk_cache = false}), .kernel = kernel};
  tessera_device at{.shared = handle.shared, .device = shared_device};
  std::vector<std::int64_t> sizes(tessera_kernel_count(&handle, TESSERA_SIZE), TESSERA_USE_DEFAULT);
  std::vector<double> scalars(tessera_kernel_count(&handle, TESSERA_SCALAR), std::numeric_limits<double>::quiet_NaN());
  std::vector<std::uint64_t> buffers(tessera_kernel_count(&handle, TESSERA_BUFFER), 0);
  const auto set = [&](auto& list, std::int32_t kind, const char* name, auto value) {
    std::size_t index = 0;
    if (tessera_kernel_index(&handle, kind, name, &index) == TESSERA_OK) list[index] = value;
  };
  set(sizes, TESSERA_SIZE, "batch", 4);
  set(sizes, TESSERA_SIZE, "heads_q", 32);
  set(sizes, TESSERA_SIZE, "heads_kv", 8);
  set(sizes, TESSERA_SIZE, "seqlen_q", 4096);
  set(sizes, TESSERA_SIZE, "seqlen_k", 4096);
  set(buffers, TESSERA_BUFFER, "q", 4096U);
  set(buffers, TESSERA_BUFFER, "k", 8192U);
  set(buffers, TESSERA_BUFFER, "v", 12288U);
  set(buffers, TESSERA_BUFFER, "o", 16384U);
  const tessera_arguments arguments{.struct_size = sizeof(tessera_arguments),
                                    .sizes = sizes.data(),
                                    .num_sizes = sizes.size(),
                                    .scalars = scalars.data(),
                                    .num_scalars = scalars.size(),
                                    .buffers = buffers.data(),
                                    .num_buffers = buffers.size(),
                                    .workspace = 0,
                                    .workspace_bytes = 0};
  const LaunchArguments in_order{.sizes = sizes, .scalars = scalars, .buffers = buffers};
  int refused = 0;
  const auto batch = [](auto&& launch) {
    for (int i = 0; i < kBatch; ++i) launch();
  };
  measure({{"FmhaKernel::launch", [&] { batch([&] { named.launch(device, {}, by_name); }); }},
           {"Kernel::launch", [&] { batch([&] { kernel->launch(device, {}, in_order); }); }},
           {"tessera_kernel_launch", [&] {
              batch([&] { refused += tessera_kernel_launch(&handle, &at, nullptr, &arguments) == TESSERA_OK ? 0 : 1; });
            }}});
  const std::uint64_t expected = std::uint64_t{3} * kBatch * (kWarmUp + kBatches);
  fmt::print("{} sizes, {} buffers; {} of {} launches reached the device\n", sizes.size(), buffers.size(),
             device.launches, expected);
  return refused == 0 && device.launches == expected ? 0 : 1;
}
