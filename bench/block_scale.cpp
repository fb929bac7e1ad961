// Bandwidth of quantize, dequantize and gemv, beside a plain read or copy of as many bytes.
//
// Method: a graph of at least 20 launches over buffers that take turns, together at least four times the L2; the time
// of a replay divided by its launches, median of 15 replays after 3. What a launch moves: every input byte once, every
// output byte once. The denominator is measured the same way: a kernel that reads as many bytes (gemv) or copies half
// of as many (the others), the faster of two grids: a 16-byte load of four rounds a thread, and a fixed grid that
// walks.
//
// quantize with GlobalScale::amax reads x twice: the factor of all scales is known only when all of x was seen, and no
// multiprocessor can hold its part of a large x until then. The same bytes by the same method are a read of x and then
// a copy; the table has both that and the copy alone.
//
//   bench_block_scale [all|gemv|quantize [FORMAT]]      all: every split of gemv and number of threads, not only the
//                                                       planner's choice; FORMAT: those that begin so, as mxfp6
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string_view>
#include <vector>

#include "base/bound_expression.h"
#include "generator/words.h"
#include "runtime/cuda_driver.h"
#include "runtime/dynamic_library.h"
#include "runtime/nvrtc.h"
#include "tessera/cuda_device.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"

namespace {

using namespace tessera;

constexpr int kLaunches = 24, kReplays = 15, kWarmUp = 3;

/// Streams, capture and graphs: what the runtime has no use for.
struct Graphs {
  CuResult (*stream_create)(CuStream* stream, unsigned flags) = nullptr;
  CuResult (*begin)(CuStream stream, int mode) = nullptr;
  CuResult (*end)(CuStream stream, void** graph) = nullptr;
  CuResult (*instantiate)(void** executable, void* graph, unsigned long long flags) = nullptr;
  CuResult (*launch)(void* executable, CuStream stream) = nullptr;
  CuStream stream = nullptr;

  Graphs() {
    const auto library = DynamicLibrary::open("libcuda.so.1");
    const bool is_bound = library.bind(stream_create, "cuStreamCreate") &&
                          library.bind(begin, "cuStreamBeginCapture_v2") && library.bind(end, "cuStreamEndCapture") &&
                          library.bind(instantiate, "cuGraphInstantiateWithFlags") &&
                          library.bind(launch, "cuGraphLaunch");
    if (!is_bound || stream_create(&stream, 1) != 0) throw Error(ErrorKind::device, "no graphs");
  }
};

constexpr const char* kPlainText = R"cuda(
extern "C" __global__ void __launch_bounds__(256) read_rounds(const uint4* x, unsigned* sink, long long n) {
  const long long first = (long long)blockIdx.x * 1024 + threadIdx.x;
  uint4 v[4];
  unsigned sum = 0;
  for (int i = 0; i < 4; ++i) v[i] = first + 256 * i < n ? x[first + 256 * i] : make_uint4(0, 0, 0, 0);
  for (int i = 0; i < 4; ++i) sum += v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
  if (sum == 0x12345677u) *sink = sum;
}
extern "C" __global__ void __launch_bounds__(256) read_walk(const uint4* x, unsigned* sink, long long n) {
  unsigned sum = 0;
  const long long stride = (long long)gridDim.x * 256;
#pragma unroll 8
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < n; i += stride) {
    const uint4 v = x[i];
    sum += v.x ^ v.y ^ v.z ^ v.w;
  }
  if (sum == 0x12345677u) *sink = sum;
}
extern "C" __global__ void __launch_bounds__(256) copy_rounds(const uint4* x, uint4* y, long long n) {
  const long long first = (long long)blockIdx.x * 1024 + threadIdx.x;
  uint4 v[4];
  for (int i = 0; i < 4; ++i) if (first + 256 * i < n) v[i] = x[first + 256 * i];
  for (int i = 0; i < 4; ++i) if (first + 256 * i < n) y[first + 256 * i] = v[i];
}
extern "C" __global__ void __launch_bounds__(256) copy_walk(const uint4* x, uint4* y, long long n) {
  const long long stride = (long long)gridDim.x * 256;
#pragma unroll 8
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < n; i += stride) y[i] = x[i];
}
)cuda";

class Bench {
 public:
  Bench() : device_(make_cuda_device()), compiler_(make_nvrtc_compiler()) {
    SourceBundle bundle;
    bundle.program = "/tessera/bench/plain.cu";
    bundle.text = kPlainText;
    bundle.arch = "sm_90a";
    bundle.entries = {"read_rounds", "read_walk", "copy_rounds", "copy_walk"};
    plain_ = device_->load(compiler_->compile(bundle));
    pool_ = device_->allocate(kPoolBytes);
    std::mt19937_64 random(1);
    std::vector<std::uint64_t> bytes(std::size_t{1} << 21);
    for (std::uint64_t& word : bytes) word = random();
    for (std::size_t at = 0; at < kPoolBytes; at += bytes.size() * 8)
      device_->copy_to_device(pool_ + at, bytes.data(), bytes.size() * 8);
    // Scales and fp16 or bf16 numbers of moderate size: exponents from the middle of their range.
    for (std::uint64_t& word : bytes) word = (word & 0x8FFF8FFF8FFF8FFF) | 0x3000300030003000;
    moderate_ = device_->allocate(kPoolBytes);
    for (std::size_t at = 0; at < kPoolBytes; at += bytes.size() * 8)
      device_->copy_to_device(moderate_ + at, bytes.data(), bytes.size() * 8);
    // Global scales that suit x: positive, any significand, the largest magnitude of x in reach of 448 * 6 of them.
    std::vector<float> scales(kLaunches * kScalePitch / sizeof(float));
    for (float& scale : scales) scale = std::ldexp(1.0f + static_cast<float>(random() % 0x800000) / 0x800000, -10);
    global_scales_ = device_->allocate(kLaunches * kScalePitch);
    device_->copy_to_device(global_scales_, scales.data(), kLaunches * kScalePitch);
    output_ = device_->allocate(kPoolBytes);
    fmt::print("{}, {} SMs, L2 {} bytes\n", device_->info().name, device_->info().num_sms, device_->info().l2_bytes);
  }

  /// Buffer sets so that the rotation is four times the L2.
  std::int64_t sets(std::int64_t bytes) const {
    return std::clamp<std::int64_t>(ceil_div(4 * device_->info().l2_bytes, std::max<std::int64_t>(bytes, 1)), 2,
                                    kLaunches);
  }

  double microseconds(const std::function<void(int, Stream)>& launch) {
    const Stream stream{graphs_.stream};
    launch(0, stream);
    device_->synchronize(stream);
    void* graph = nullptr;
    void* executable = nullptr;
    if (graphs_.begin(graphs_.stream, 0) != 0) throw Error(ErrorKind::device, "capture");
    for (int i = 0; i < kLaunches; ++i) launch(i, stream);
    if (graphs_.end(graphs_.stream, &graph) != 0 || graphs_.instantiate(&executable, graph, 0) != 0)
      throw Error(ErrorKind::device, "graph");
    const Event start = device_->create_event(), stop = device_->create_event();
    std::vector<double> times;
    for (int i = 0; i < kReplays + kWarmUp; ++i) {
      device_->record(start, stream);
      graphs_.launch(executable, graphs_.stream);
      device_->record(stop, stream);
      device_->synchronize(stream);
      if (i >= kWarmUp) times.push_back(1000 * device_->elapsed_ms(start, stop) / kLaunches);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  /// A plain kernel over bytes at x (and y).
  void launch_plain(const char* verb, bool is_walk, DevicePointer x, DevicePointer y, std::int64_t bytes,
                    Stream stream) {
    long long n = bytes / 16;
    void* parameters[] = {&x, &y, &n};
    LaunchRequest request;
    request.entry = plain_->entry(fmt::format("{}_{}", verb, is_walk ? "walk" : "rounds"));
    request.grid = {is_walk ? static_cast<std::uint32_t>(8 * device_->info().num_sms)
                            : static_cast<std::uint32_t>(ceil_div(n, 1024)),
                    1, 1};
    request.block = {256, 1, 1};
    request.parameters = parameters;
    device_->launch(request, stream);
  }

  /// Microseconds of a plain kernel that moves as many bytes: reads them, or copies half of them, after a read of
  /// `read_before` of them.
  double plain(bool is_copy, std::int64_t bytes, std::int64_t read_before = 0) {
    const std::int64_t unit = bytes / (is_copy ? 2 : 1) / 16 * 16;
    const std::int64_t count = sets(bytes), pitch = round_up(std::max(unit, read_before), 256);
    double best = 1e30;
    for (const bool reads_by_walk : {false, true})
      for (const bool is_walk : {false, true}) {
        if (read_before == 0 && reads_by_walk) continue;
        best = std::min(best, microseconds([&](int i, Stream stream) {
                          const DevicePointer x = pool_ + static_cast<DevicePointer>(i % count * pitch);
                          const DevicePointer y = output_ + static_cast<DevicePointer>(is_copy ? i % count * pitch : 0);
                          if (read_before > 0) launch_plain("read", reads_by_walk, x, output_, read_before, stream);
                          launch_plain(is_copy ? "copy" : "read", is_walk, x, y, unit, stream);
                        }));
      }
    return best;
  }

  /// One line of the table.
  void row(const Problem& problem, const std::vector<std::pair<const char*, std::int64_t>>& named, bool is_copy) {
    const Plan plan = make_plan(problem);
    const Launcher launcher(*device_, plan.launch, compiler_->compile(emit(plan)));
    std::vector<std::int64_t> sizes(plan.launch.sizes.size(), kUseDefault);
    for (const auto& [name, value] : named) sizes[static_cast<std::size_t>(launcher.size_index(name))] = value;
    LaunchArguments arguments;
    arguments.sizes = sizes;
    const std::vector<std::int64_t> values = launcher.resolve_sizes(arguments);
    std::vector<std::string> names;
    for (const SizeSpec& size : plan.launch.sizes) names.push_back(size.name);
    std::vector<std::int64_t> offsets, bytes;
    std::int64_t pitch = 0, moved = 0, again = 0;
    for (const BufferSpec& spec : plan.launch.buffers) {
      std::int64_t count = 1;
      for (const Expression& extent : spec.shape) count *= BoundExpression(extent, names).evaluate(values);
      count *= spec.dtype == "f32" ? 4 : spec.dtype == "u8" ? 1 : 2;
      offsets.push_back(pitch);
      bytes.push_back(count);
      // Of a padded vector one row is read.
      moved += spec.name == "b" || spec.name == "sfb" ? 0 : count;
      if (plan.launch.steps.size() > 1 && spec.name == "x") again = count;
      pitch += round_up(count, 256);
    }
    const std::int64_t count = sets(moved);
    const std::vector<double> scalars(plan.launch.scalars.size(), 1.0);
    const double time = microseconds([&](int i, Stream stream) {
      std::vector<DevicePointer> buffers;
      for (std::size_t b = 0; b < offsets.size(); ++b) {
        const BufferSpec& spec = plan.launch.buffers[b];
        const bool is_moderate = spec.dtype != "u8" || spec.name.find("sf") == 0 || spec.name == "scales";
        if (spec.name == "global_scale" && spec.role == BufferRole::input) {
          buffers.push_back(global_scales_ + static_cast<DevicePointer>(i % count) * kScalePitch);
          continue;
        }
        const DevicePointer base = spec.role == BufferRole::output ? output_ : is_moderate ? moderate_ : pool_;
        buffers.push_back(base + static_cast<DevicePointer>(i % count * pitch + offsets[b]));
      }
      LaunchArguments all{.sizes = sizes, .scalars = scalars, .buffers = buffers};
      all.workspace = output_ + kPoolBytes - 256;
      all.workspace_bytes = 256;
      launcher.launch(stream, all);
    });
    std::string text;
    for (const auto& [name, value] : named) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
    for (const std::int64_t before : {std::int64_t{0}, again}) {
      const double reference = plain(is_copy, moved, before);
      fmt::print("| {} | {}{} | {:.1f} | {:.2f} | {:.2f} | {:.2f} | {:.1f} % |\n", plan.kernel, text,
                 before == 0 ? "" : "; beside a read of x and a copy", static_cast<double>(moved + before) / 1e6, time,
                 static_cast<double>(moved + before) / time / 1e6, reference, 100 * reference / time);
      if (again == 0) break;
    }
    std::fflush(stdout);
  }

 private:
  static constexpr std::size_t kPoolBytes = std::size_t{6} << 30, kScalePitch = 256;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Compiler> compiler_;
  Graphs graphs_;
  std::unique_ptr<LoadedImage> plain_;
  DevicePointer pool_ = 0, moderate_ = 0, global_scales_ = 0, output_ = 0;
};

void measure_gemv(Bench& bench, bool is_all) {
  const std::int64_t shapes[][3] = {{7168, 16384, 1}, {4096, 7168, 8}, {7168, 2048, 4}};
  for (const auto& [m, k, l] : shapes)
    for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
      const Gemv chosen{.scale_form = form, .l = l, .m = m, .k = k};
      bench.row(chosen, {{"l", l}, {"m", m}, {"k", k}}, false);
      for (const int rows : {4, 2, 1})
        for (const int warps : {1, 2, 4, 8}) {
          if (!is_all || (form == ScaleForm::tile && rows != 4)) continue;
          Gemv pinned = chosen;
          pinned.warp_rows = rows;
          pinned.k_warps = warps;
          bench.row(pinned, {{"l", l}, {"m", m}, {"k", k}}, false);
        }
    }
}

/// of: formats whose word begins so.
void measure_quantize(Bench& bench, bool is_all, std::string_view of) {
  for (const int threads : {128, 256, 512})
    for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile})
      for (const GlobalScale g : {GlobalScale::none, GlobalScale::given})
        if (is_all)
          bench.row(Quantize{.scale_form = form, .global_scale = g, .threads = threads}, {{"rows", 8192}, {"k", 4096}},
                    true);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f32})
    for (const BlockFormat format : {BlockFormat::nvfp4, BlockFormat::mxfp4, BlockFormat::mxfp8_e4m3,
                                     BlockFormat::mxfp6_e3m2, BlockFormat::mxfp6_e2m3})
      for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
        if (!to_word(format).starts_with(of)) continue;
        const std::int64_t rows = dtype == DType::f32 ? 4096 : 8192;  // 64 MiB of x
        const std::vector<std::pair<const char*, std::int64_t>> sizes{{"rows", rows}, {"k", 4096}};
        bench.row(Quantize{.dtype = dtype, .format = format, .scale_form = form}, sizes, true);
        if (format == BlockFormat::nvfp4) {
          bench.row(Quantize{.dtype = dtype, .scale_form = form, .global_scale = GlobalScale::given}, sizes, true);
          bench.row(Quantize{.dtype = dtype, .scale_form = form, .global_scale = GlobalScale::amax}, sizes, true);
        }
        bench.row(Dequantize{.dtype = dtype, .format = format, .scale_form = form}, sizes, true);
      }
  if (!of.empty()) return;
  // More than 64 MiB, and sizes that no tile divides.
  for (const auto& [rows, k] : {std::pair<std::int64_t, std::int64_t>{16384, 4096}, {4793, 7168}, {32768, 8192}})
    for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile})
      for (const GlobalScale g : {GlobalScale::none, GlobalScale::given, GlobalScale::amax})
        bench.row(Quantize{.scale_form = form, .global_scale = g}, {{"rows", rows}, {"k", k}}, true);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Bench bench;
    fmt::print("| kernel | sizes | MB | us | TB/s | plain, us | share |\n|---|---|---|---|---|---|---|\n");
    const bool is_all = argc > 1 && std::string_view(argv[1]) == "all";
    const std::string_view only = argc > 1 && !is_all ? argv[1] : "";
    if (only != "quantize") measure_gemv(bench, is_all);
    if (only != "gemv") measure_quantize(bench, is_all, argc > 2 ? argv[2] : "");
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return error.kind() == ErrorKind::device ? 77 : 1;
  }
}
