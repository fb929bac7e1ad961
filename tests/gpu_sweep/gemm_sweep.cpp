// Random matrix products on the GPU against float64: types x layouts x epilogues x factors of d x groups and lists of
// rows, each with the planner's choice and with pinned tiles (gemm_sweep_problems.cpp), N random shapes each (0 to
// --max-extent, ragged, padded pitches, batches, in-place c). Outputs, and the gaps between their rows, are poisoned
// before each of two runs, whose bytes must agree; gaps must stay poisoned.
//
//   gemm_sweep [--shapes N] [--seed S] [--max-extent 600] [--only mma_kind=mma.f16] [--report FILE] [--emulate]
//
// Exit code 0: all pass; 1: a mismatch (printed with everything that reproduces it); 77: no GPU here. --emulate: in the
// emulator, for those who change this program.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "generator/facts.h"
#include "generator/selectors.h"
#include "generator/words.h"
#include "reference/gemm_gated.h"
#include "reference/groups.h"
#include "reference/packed_weights.h"
#include "reference/poison.h"
#include "tessera/emulator/device.h"
#include "tessera/jit.h"
#include "tests/gpu_sweep/exit_code.h"
#include "tests/gpu_sweep/gemm_sweep_problems.h"

namespace tessera {
namespace {

using reference::Tensor;
using reference::TensorView;

struct Settings {
  int shapes = 20;
  std::uint64_t seed = 0;
  std::int64_t max_extent = 600;
  std::string report;
  std::vector<std::string> only;  ///< fields of the problems that are run, KEY=WORD
  bool is_emulated = false;
};

/// Device memory of one operand, with a host copy.
struct Buffer {
  Device& device;
  Tensor host;
  DevicePointer pointer = 0;
  Buffer(Device& d, DType dtype, std::int64_t elements) : device(d), host(dtype, {elements}) {
    pointer = device.allocate(std::max<std::size_t>(host.bytes.size(), 16));
  }
  ~Buffer() { device.free(pointer); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void upload() const {
    if (!host.bytes.empty()) device.copy_to_device(pointer, host.bytes.data(), host.bytes.size());
  }
  void download() {
    if (!host.bytes.empty()) device.copy_to_host(host.bytes.data(), pointer, host.bytes.size());
  }
};

/// [l, rows, columns] with a pitch.
struct Matrix {
  std::int64_t l, rows, columns, pitch, stride_l;
  std::int64_t elements() const { return l * stride_l; }
  TensorView view(const Buffer& buffer, bool is_transposed) const {
    TensorView v{buffer.host.bytes.data(), buffer.host.dtype, {l, rows, columns}, {stride_l, pitch, 1}};
    if (is_transposed) {
      std::swap(v.shape[1], v.shape[2]);
      std::swap(v.strides[1], v.strides[2]);
    }
    return v;
  }
};

/// The poison, and where elements are those of `from`.
std::vector<std::byte> over_poison(const Buffer& from, const Matrix& matrix) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(from.host.dtype));
  std::vector<std::byte> memory(from.host.bytes.size(), std::byte{reference::kPoisonByte});
  for (std::int64_t row = 0; row < matrix.l * matrix.rows; ++row) {
    const std::int64_t first = row / matrix.rows * matrix.stride_l + row % matrix.rows * matrix.pitch;
    const auto at = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(first) * bytes);
    std::copy_n(from.host.bytes.begin() + at, static_cast<std::size_t>(matrix.columns) * bytes, memory.begin() + at);
  }
  return memory;
}

bool are_gaps_poisoned(const Buffer& buffer, const Matrix& matrix) {
  const auto bytes = static_cast<std::size_t>(dtype_bytes(buffer.host.dtype));
  for (std::int64_t e = 0; e < matrix.elements(); ++e) {
    const std::int64_t row = e % matrix.stride_l / matrix.pitch, column = e % matrix.stride_l % matrix.pitch;
    if (row < matrix.rows && column < matrix.columns) continue;
    for (std::size_t b = 0; b < bytes; ++b)
      if (buffer.host.bytes[static_cast<std::size_t>(e) * bytes + b] != std::byte{reference::kPoisonByte}) return false;
  }
  return true;
}

class Sweep {
 public:
  Sweep(Device& device, const Settings& settings)
      : device_(device), settings_(settings), random_(settings.seed), jit_(JitOptions::from_environment()) {}

  /// Number of failures.
  int run() {
    std::string table =
        "| problem | shapes | rows checked | largest error / explained | kernel |\n|---|---|---|---|---|\n";
    for (const Gemm& problem : gemm_sweep_problems()) {
      const bool is_asked_for =
          std::all_of(settings_.only.begin(), settings_.only.end(), [&](const std::string& field) {
            const std::size_t at = field.find('=');
            return at != std::string::npos && field_text(problem, field.substr(0, at)) == field.substr(at + 1);
          });
      if (is_asked_for) table += config(problem);
    }
    const std::string summary =
        fmt::format("{} shapes, {} rows compared, {} failures, seed {}\n", shapes_, rows_, failures_, settings_.seed);
    fmt::print("{}", summary);
    if (!settings_.report.empty())
      write_file(settings_.report, fmt::format("{}, driver {}\n\n{}\n{}", device_.info().name,
                                               device_.info().driver_version, table, summary));
    return failures_;
  }

 private:
  std::string config(const Gemm& problem) {
    worst_ = 0;
    const std::int64_t rows_before = rows_;
    const Problem any(problem);
    std::string text;
    for (const Selector& selector : selectors("gemm"))
      if (selector.kind == SelectorKind::fact && selector.key != "arch")
        text += fmt::format("{}{}", text.empty() ? "" : " ", selector.text(any));
    try {
      const GemmKernel kernel = jit_.kernel(problem);
      for (int i = 0; i < settings_.shapes; ++i) one(problem, kernel);
      text = fmt::format("| {} | {} | {} | {:.3f} | {} |\n", text, settings_.shapes, rows_ - rows_before, worst_,
                         kernel.kernel().plan().kernel);
    } catch (const Error& error) {
      text = fmt::format("| {} | refused: {} | | | |\n", text, error.what());
      if (error.kind() != ErrorKind::unsupported) ++failures_;
    }
    fmt::print("{}", text);
    std::fflush(stdout);
    return text;
  }

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  std::int64_t extent() {
    const std::int64_t kind = pick(0, 9);
    if (kind == 0) return pick(0, 2);
    if (kind < 3) return std::min(settings_.max_extent, pick(1, 4) * 64 + pick(-1, 1));
    return pick(1, settings_.max_extent);
  }

  /// `unit`: the pitch is a multiple of it.
  Matrix matrix(std::int64_t l, std::int64_t rows, std::int64_t columns, std::int64_t unit) {
    const std::int64_t pitch = std::max<std::int64_t>(round_up(columns, unit) + unit * pick(0, 2), unit);
    return {l, rows, columns, pitch, pitch * (rows + pick(0, 1)) + (unit > 1 ? 0 : pick(0, 3))};
  }

  /// Of one operand's blocks, with k's contiguous or rows, padded.
  struct Factors {
    ScaleBlock block;
    std::int64_t l, rows, k_blocks;
    std::int64_t stride_row, stride_k, stride_l;
    Buffer memory;

    Factors(Sweep& sweep, ScaleBlock scale_block, std::int64_t matrices, std::int64_t extent, std::int64_t k)
        : block(scale_block),
          l(matrices),
          rows(block == ScaleBlock::square ? ceil_div(extent, kScaleBlock) : extent),
          k_blocks(ceil_div(k, kScaleBlock)),
          stride_row(sweep.pick(0, 1) == 0 ? 1 : k_blocks + sweep.pick(0, 2)),
          stride_k(stride_row == 1 ? round_up(rows, sweep.pick(0, 1) == 0 ? 4 : 1) + sweep.pick(0, 1) * 4 : 1),
          stride_l(std::max(stride_row * rows, stride_k * k_blocks) + sweep.pick(0, 1) * 4),
          memory(sweep.device_, DType::f32, block == ScaleBlock::none ? 0 : l * stride_l) {
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(memory.host.bytes.size()) / 4; ++i)
        memory.host.set(i, 0.01 * static_cast<double>(sweep.pick(1, 400)));
      memory.upload();
    }
    std::optional<reference::BlockFactors> view() const {
      if (block == ScaleBlock::none) return {};
      return reference::BlockFactors{
          {memory.host.bytes.data(), DType::f32, {l, rows, k_blocks}, {stride_l, stride_row, stride_k}},
          block == ScaleBlock::square ? kScaleBlock : 1};
    }
    /// As rows of what lies side by side.
    Matrix matrix() const {
      return stride_row == 1 ? Matrix{l, k_blocks, rows, stride_k, stride_l}
                             : Matrix{l, rows, k_blocks, stride_row, stride_l};
    }
  };

  void one(const Gemm& p, const GemmKernel& kernel) {
    ++shapes_;
    const bool is_grouped = p.grouping != Grouping::none, is_one = p.grouping == Grouping::contiguous;
    const std::int64_t l = is_grouped ? pick(0, 12) : pick(0, 3) == 0 ? pick(0, 3) : 1;
    const bool is_packed = kernel.kernel().plan().family == "weights";
    const ProductFacts facts = product_facts(p);
    const reference::WeightFacts weights = reference::weight_facts(facts.b_type, p.b_group, p.zero_points, p.dtype);
    const bool is_gated = p.gate != Gate::none;
    const std::int64_t m = extent(), l_of_d = is_one ? 1 : l;
    const std::int64_t n = is_gated ? round_up(extent(), 2 * facts.interleave) : extent(),
                       columns = is_gated ? n / 2 : n;
    const std::int64_t k = is_packed ? round_up(extent(), weights.weights.group) : extent();
    const bool is_gathered = p.gather != Gather::none;
    const std::int64_t a_rows = is_gathered ? extent() : m, l_of_a = is_gathered ? 1 : l_of_d;
    const bool a_is_mn = p.a_layout == Layout::mn_major, b_is_mn = p.b_layout == Layout::mn_major;
    const ProductTiles tiles = product_tiles(kernel.kernel().plan());
    const DType b_dtype = p.b_dtype.value_or(p.dtype), c_dtype = dtype_bytes(p.d_dtype) == 1 ? DType::bf16 : p.d_dtype;
    const std::int64_t unit = 16 / dtype_bytes(p.dtype);
    const Matrix of_a = matrix(l_of_a, a_is_mn ? k : a_rows, a_is_mn ? a_rows : k, unit);
    const Matrix of_b = matrix(l, b_is_mn ? k : n, b_is_mn ? n : k, unit);
    const Matrix of_d = matrix(l_of_d, m, columns, pick(0, 1) == 0 ? 1 : 16 / dtype_bytes(p.d_dtype));
    const bool is_in_place = !is_grouped && p.c == Addend::matrix && c_dtype == p.d_dtype && pick(0, 2) == 0;
    const Matrix of_c = is_in_place ? of_d : matrix(l_of_d, m, n, 1);
    const Tensor packed =
        is_packed ? reference::random_packed_weights(weights, l, n, k, reference::Fill::standard, random_(), 0)
                  : Tensor(DType::u8, {0});
    Buffer a(device_, p.dtype, of_a.elements());
    Buffer b(device_, is_packed ? DType::u8 : b_dtype, is_packed ? packed.elements() : of_b.elements());
    Buffer c(device_, c_dtype, of_c.elements()), d(device_, p.d_dtype, of_d.elements());
    Buffer bias(device_, c_dtype, n * (p.bias == Bias::group ? l : 1)), scale_a(device_, DType::f32, 1),
        scale_b(device_, DType::f32, 1);
    for (Buffer* const buffer : {&a, &b, &c, &bias}) {
      reference::fill(buffer->host, reference::Fill::standard, random_(), 0);
      if (is_packed && buffer == &b) b.host.bytes = packed.bytes;
      buffer->upload();
    }
    scale_a.host.set(0, 0.25 + 0.01 * static_cast<double>(pick(0, 100)));
    scale_b.host.set(0, 0.5);
    scale_a.upload();
    scale_b.upload();
    reference::GemmCheck check;
    check.alpha = static_cast<float>(0.1 * static_cast<double>(pick(-20, 20)));
    check.beta = pick(0, 3) == 0 ? 0.0 : static_cast<float>(0.1 * static_cast<double>(pick(-20, 20)));
    GemmArguments arguments{
        .a = a.pointer, .b = b.pointer, .c = is_in_place ? d.pointer : c.pointer, .d = d.pointer, .bias = bias.pointer};
    arguments.m = m;
    arguments.n = n;
    arguments.k = k;
    arguments.l = l;
    arguments.alpha = check.alpha;
    arguments.beta = check.beta;
    arguments.lda = of_a.pitch;
    arguments.ldb = of_b.pitch;
    arguments.ldc = of_c.pitch;
    arguments.ldd = of_d.pitch;
    arguments.b_stride_l = of_b.stride_l;
    if (!is_one && !is_gathered) arguments.a_stride_l = of_a.stride_l;
    if (!is_one) {
      arguments.c_stride_l = of_c.stride_l;
      arguments.d_stride_l = std::max<std::int64_t>(of_d.stride_l, 1);
    }
    Buffer groups(device_, DType::s32, l + 1);
    if (is_grouped) groups.host.bytes = reference::random_groups(p.grouping, l, m, random_()).bytes;
    groups.upload();
    if (is_grouped) arguments.groups = groups.pointer;
    Buffer indices(device_, DType::s32, is_gathered ? l_of_d * m : 0);
    for (std::int64_t i = 0; i < indices.host.elements(); ++i)
      indices.host.set(i, static_cast<double>(pick(-1, a_rows)));
    indices.upload();
    if (is_gathered) {
      arguments.indices = indices.pointer;
      arguments.a_rows = a_rows;
    }
    if (p.b_format == BlockFormat::nvfp4 && is_packed && dtype_bytes(p.dtype) == 2 && pick(0, 1) != 0) {
      arguments.scale_b = scale_b.pointer;
      check.alpha *= scale_b.host.at(0);
    }
    const bool has_scales = dtype_bytes(p.dtype) == 1 && pick(0, 3) != 0;
    if (has_scales) {
      arguments.scale_a = scale_a.pointer;
      arguments.scale_b = scale_b.pointer;
      check.alpha *= scale_a.host.at(0) * scale_b.host.at(0);
    }
    const Factors sfa(*this, facts.a_scale_block, l_of_a, a_rows, k), sfb(*this, facts.b_scale_block, l, n, k);
    arguments.sfa = sfa.memory.pointer;
    arguments.sfa_stride_m = sfa.stride_row;
    arguments.sfa_stride_k = sfa.stride_k;
    if (!is_one && !is_gathered) arguments.sfa_stride_l = sfa.stride_l;
    arguments.sfb = sfb.memory.pointer;
    arguments.sfb_stride_n = sfb.stride_row;
    arguments.sfb_stride_k = sfb.stride_k;
    arguments.sfb_stride_l = sfb.stride_l;
    Factors sfd(*this, facts.d_scale_block, l_of_d, m, columns);
    if (facts.d_scale_block != ScaleBlock::none) {
      arguments.sfd = sfd.memory.pointer;
      arguments.sfd_stride_m = sfd.stride_row;
      arguments.sfd_stride_n = sfd.stride_k;
      if (!is_one) arguments.sfd_stride_l = sfd.stride_l;
    }
    const std::vector<std::byte> initial = is_in_place ? over_poison(c, of_c) : std::vector<std::byte>();
    std::vector<Finding> findings;
    const auto launch = [&] {
      if (is_in_place && !initial.empty())
        device_.copy_to_device(d.pointer, initial.data(), initial.size());
      else if (!d.host.bytes.empty())
        device_.set_bytes(d.pointer, reference::kPoisonByte, d.host.bytes.size());
      if (!sfd.memory.host.bytes.empty())
        device_.set_bytes(sfd.memory.pointer, reference::kPoisonByte, sfd.memory.host.bytes.size());
      kernel.launch(device_, Stream{}, arguments);
      for (const Finding& finding : device_.synchronize()) findings.push_back(finding);
      d.download();
      sfd.memory.download();
    };
    launch();
    const std::vector<std::byte> first = d.host.bytes, first_factors = sfd.memory.host.bytes;
    launch();
    check.facts = facts;
    // Widened, 8-bit types sum as 16-bit ones do.
    if (p.mma_kind == MmaKind::mma_f16) check.sums = reference::TensorSums{};
    Tensor decoded;
    if (is_packed) {
      decoded = reference::decode_packed_weights(weights, packed.view(), n, k);
      check.sums = reference::TensorSums{};
      check.sums->step = kWeightDepth;
      check.k_groups = tiles.k_groups;
    }
    if (facts.d_scale_block != ScaleBlock::none) check.sfd = sfd.view()->factors;
    check.split_k = tiles.split_k;
    check.tile_m = tiles.tile_m;
    check.tile_n = tiles.tile_n;
    check.max_multiply_adds = std::int64_t{1} << 27;
    check.seed = random_();
    // Few elements need not have the roundings of many.
    check.judges_rel_error = m * n * l > 4096;
    reference::GemmInputs in{of_a.view(a, a_is_mn), is_packed ? decoded.view() : of_b.view(b, b_is_mn), {}, {}};
    if (p.c == Addend::matrix) in.c = of_c.view(c, false);
    if (p.bias == Bias::column) in.bias = bias.host.view();
    if (p.bias == Bias::group) in.bias = TensorView{bias.host.bytes.data(), c_dtype, {l, n}, {n, 1}};
    in.sfa = sfa.view();
    in.sfb = sfb.view();
    const TensorView of_groups{groups.host.bytes.data(), DType::s32, {l + (is_one ? 1 : 0)}, {1}};
    reference::Comparison result =
        !is_grouped
            ? reference::check_plain_or_gated(in, of_d.view(d, false), check)
            : reference::check_grouped_gemm(
                  p.grouping, of_groups, in, of_d.view(d, false), check,
                  is_gathered ? std::optional(TensorView{indices.host.bytes.data(), DType::s32, {l_of_d, m}, {m, 1}})
                              : std::nullopt);
    rows_ += result.rows_checked;
    if (result.rel_bound > 0) worst_ = std::max(worst_, result.rel_error / result.rel_bound);
    for (const Finding& finding : findings) result.problems.push_back(finding.name + ": " + finding.message);
    if (d.host.bytes != first || sfd.memory.host.bytes != first_factors)
      result.problems.emplace_back("another launch with the same inputs gave other bits");
    if (!are_gaps_poisoned(d, of_d)) result.problems.emplace_back("memory between the rows of d was written");
    if (!sfd.memory.host.bytes.empty() && m > 0 && columns > 0 && !are_gaps_poisoned(sfd.memory, sfd.matrix()))
      result.problems.emplace_back("memory between the factors of d was written");
    if (result.problems.empty()) return;
    ++failures_;
    fmt::print("FAIL {}: m {} n {} k {} l {}, lda {} ldb {} ldc {} ldd {}, alpha {} beta {}\n  {}\n",
               kernel.kernel().plan().kernel, m, n, k, l, of_a.pitch, of_b.pitch, of_c.pitch, of_d.pitch, check.alpha,
               check.beta, fmt::join(result.problems, "\n  "));
  }

  Device& device_;
  const Settings& settings_;
  std::mt19937_64 random_;
  Jit jit_;
  std::int64_t shapes_ = 0, rows_ = 0;
  int failures_ = 0;
  double worst_ = 0;
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  settings.seed = std::random_device{}();
  CLI::App app{"Random matrix products on the GPU against float64"};
  app.add_option("--shapes", settings.shapes, "random shapes of each problem");
  app.add_option("--seed", settings.seed, "of everything random; printed at the end");
  app.add_option("--max-extent", settings.max_extent, "longest m, n and k");
  app.add_option("--only", settings.only, "only problems with these fields: KEY=WORD ...");
  app.add_option("--report", settings.report, "file for the table, Markdown");
  app.add_flag("--emulate", settings.is_emulated, "in the emulator");
  CLI11_PARSE(app, argc, argv);
  const auto run = [&](Device& device) { return Sweep(device, settings).run(); };
  return gpu_sweep::exit_code("gemm_sweep", [&] {
    if (!settings.is_emulated) return gpu_sweep::on_gpu(run);
    emulator::EmulatedDevice device(emulator::DeviceOptions{.num_sms = 8});
    return run(device);
  });
}
