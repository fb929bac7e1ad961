// Random attention problems on the GPU against float64: head_dim x mask x type x swizzle x output, N random shapes each
// (lengths 0 to 4,096, ragged, grouped heads, three memory layouts, random softmax scales); and kernels with windows,
// valid lengths in memory, packed heads and split keys, drawn. Outputs are poisoned before each of two runs, whose
// bytes must agree; with parts of a size each sequence is launched alone too, and must get the same bytes.
//
//   fmha_sweep [--shapes N] [--seed S] [--head-dim 64,128] [--dtype bf16,f16,e4m3] [--max-seqlen 4096] [--report FILE]
//              [--shard I/N] [--kernel TEXT] [--launches N] [--mma-kind mma.f16]
//
// The float64 reference takes most of the time, on one core: N processes with --shard 0/N to N-1/N share the Configs.
// Exit code 0: all pass; 1: a mismatch (printed with everything that reproduces it); 77: no GPU here.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "generator/selectors.h"
#include "reference/fmha.h"
#include "reference/narrow_keys.h"
#include "reference/number.h"
#include "reference/ragged.h"
#include "tessera/jit.h"
#include "tests/gpu_sweep/exit_code.h"
#include "tests/gpu_sweep/one_sequence.h"

namespace tessera {
namespace {

using reference::FmhaCheck;
using reference::TensorView;

struct Settings {
  int shapes = 100;
  std::uint64_t seed = 0;
  std::int64_t max_seqlen = 4096;
  std::vector<std::string> head_dims{"16", "32", "64", "72", "80", "96", "128", "160", "192", "192/128", "256", "512"};
  std::vector<std::string> dtypes{"bf16", "f16", "e4m3"};
  std::string report;
  std::string kernel;
  std::string mma_kind;
  int launches = 2;
  int shard = 0, shards = 1;  // every `shards`-th Config, from number `shard` on
};

/// Where two launches' outputs are not the same bits: "; launch 1: 3 elements of o, the first 17: ffff and 3c00".
std::string difference_of(const std::vector<std::byte> (&first)[4], const std::vector<std::byte> (&other)[4],
                          int launch, std::size_t o_bytes) {
  constexpr const char* kNames[] = {"o", "lse", "row_max", "row_sum"};
  std::string text;
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t size = i == 0 ? o_bytes : 4;
    std::size_t count = 0, at = 0;
    for (std::size_t e = first[i].size() / size; e-- > 0;)
      if (std::memcmp(first[i].data() + e * size, other[i].data() + e * size, size) != 0) ++count, at = e;
    if (count == 0) continue;
    std::uint32_t bits[2] = {0, 0};
    std::memcpy(&bits[0], first[i].data() + at * size, size);
    std::memcpy(&bits[1], other[i].data() + at * size, size);
    text += fmt::format("; launch {}: {} elements of {}, the first {}: {:x} and {:x}", launch, count, kNames[i], at,
                        bits[0], bits[1]);
  }
  return text;
}

/// "2/8": the third of eight shards. Says what is wrong otherwise; empty: nothing.
std::string parse_shard(const std::string& text, Settings& settings) {
  char end = 0;
  if (std::sscanf(text.c_str(), "%d/%d%c", &settings.shard, &settings.shards, &end) == 2 && settings.shard >= 0 &&
      settings.shard < settings.shards) {
    return {};
  }
  return fmt::format("--shard {}: must be I/N with I from 0 to N - 1", text);
}

/// "192/128": head_dim and head_dim_v; "128": both.
struct HeadDims {
  int qk, v;
};
bool has_8_bit_kernel(const HeadDims& of) {
  return of.qk % 64 == 0 && of.qk <= 256 && (of.v == of.qk || (of.qk == 192 && of.v == 128));
}
HeadDims parse_head_dims(const std::string& text) {
  const std::size_t slash = text.find('/');
  const int qk = std::stoi(text);
  return {qk, slash == std::string::npos ? qk : std::stoi(text.substr(slash + 1))};
}
std::string head_dims_text(const Fmha& problem) {
  const int v = problem.head_dim_v.value_or(problem.head_dim);
  return v == problem.head_dim ? fmt::format("{}", v) : fmt::format("{}/{}", problem.head_dim, v);
}

constexpr std::int64_t kPoolElements = std::int64_t{1} << 24;
constexpr std::int64_t kPoolRow = 64;  // elements that are steep or flat together
constexpr std::int64_t kMaxOutputElements = std::int64_t{1} << 22;
constexpr std::int64_t kMaxRows = std::int64_t{1} << 18;
constexpr std::int64_t kWorkspaceBytes = std::int64_t{1} << 30;
constexpr int kGroups[] = {2, 3, 4, 5, 6, 7, 8, 12, 100, 128};  // query heads of a key head
constexpr int kDrawnKernels = 4;                                // for each type, head_dim, mask and output

/// Device memory with a host copy of random numbers that operands are cut from: blocks of zeros, rows whose scores lie
/// far apart, and near +-700 where both a query and a key are steep. `fill`: normal ones for 8-bit queries, whose
/// products are cut to 13 bits of the largest.
struct Pool {
  Device& device;
  reference::Tensor host;
  DevicePointer pointer;
  Pool(Device& d, DType dtype, reference::Fill fill, std::uint64_t seed)
      : device(d), host(dtype, {kPoolElements / kPoolRow, kPoolRow}) {
    reference::fill(host, fill, seed, 0);
    pointer = device.allocate(host.bytes.size());
    device.copy_to_device(pointer, host.bytes.data(), host.bytes.size());
  }
  ~Pool() { device.free(pointer); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;
};

struct Pools {
  Pool of_dtype, of_8_bits;
};

/// Factors of 8-bit operands, for any batch and heads. `stream`: of the random numbers.
struct Descales {
  Device& device;
  reference::Tensor host;
  DevicePointer pointer;
  Descales(Device& d, std::uint64_t stream)
      : device(d), host(reference::make_descales(4, 4, stream, 1)), pointer(d.allocate(host.bytes.size())) {
    device.copy_to_device(pointer, host.bytes.data(), host.bytes.size());
  }
  ~Descales() { device.free(pointer); }
  Descales(const Descales&) = delete;
  Descales& operator=(const Descales&) = delete;
};

/// Device memory that a kernel writes, and what came back.
struct OutputBuffer {
  Device& device;
  DevicePointer pointer;
  std::vector<std::byte> host;
  OutputBuffer(Device& d, std::size_t bytes) : device(d), pointer(d.allocate(bytes)), host(bytes) {}
  ~OutputBuffer() { device.free(pointer); }
  OutputBuffer(const OutputBuffer&) = delete;
  OutputBuffer& operator=(const OutputBuffer&) = delete;
  void poison() const { device.set_bytes(pointer, 0xFF, host.size()); }
  std::vector<std::byte> fetch(std::size_t bytes) const {
    std::vector<std::byte> result(bytes);
    if (bytes > 0) device.copy_to_host(result.data(), pointer, bytes);
    return result;
  }
};

struct Strides {
  std::int64_t batch, seqlen, head;
};

constexpr std::int64_t kPad = 16;  // elements between rows

/// Dense [b, s, h, d], transposed [b, h, s, d], or rows with a pad.
Strides strides_of(int layout, std::int64_t seqlen, std::int64_t heads, std::int64_t head_dim) {
  const std::int64_t rows = std::max<std::int64_t>(seqlen, 1);
  if (layout == 1) return {rows * heads * head_dim, head_dim, rows * head_dim};
  const std::int64_t pitch = heads * head_dim + (layout == 2 ? kPad : 0);
  return {rows * pitch, pitch, head_dim};
}

std::int64_t extent(const Strides& s, std::int64_t batch, std::int64_t seqlen, std::int64_t heads,
                    std::int64_t head_dim) {
  if (batch == 0 || seqlen == 0) return 0;
  return (batch - 1) * s.batch + (seqlen - 1) * s.seqlen + (heads - 1) * s.head + head_dim;
}

struct Shape {
  std::int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_k;
  int layout[4];
  double softmax_scale;
  std::int64_t window_left = kUseDefault, window_right = kUseDefault;
  std::vector<std::int32_t> used_q{}, used_k{};
  std::vector<std::int32_t> query_starts{};  // ragged: seqlen_q are the queries of all sequences
  std::int64_t num_splits = kUseDefault;
  std::vector<float> sink{}, slopes{};
  std::int64_t attention_chunk = kUseDefault;
};

class Sweep {
 public:
  Sweep(Device& device, const Settings& settings)
      : device_(device),
        settings_(settings),
        random_(settings.seed + static_cast<std::uint64_t>(settings.shard)),
        jit_(JitOptions::from_environment()),
        o_(device, kMaxOutputElements * 4),
        statistics_{{device, kMaxRows * 4}, {device, kMaxRows * 4}, {device, kMaxRows * 4}},
        used_{{device, 64}, {device, 64}, {device, 64}},
        sink_(device, 4096),
        slopes_(device, 4096),
        workspace_(device, kWorkspaceBytes) {}

  /// Number of failures.
  int run() {
    std::string table =
        "| head_dim | type | mask | output | swizzle | shapes | rows checked | largest error / bound | kernel "
        "|\n|---|---|---|---|---|---|---|---|---|\n";
    int configs = 0;
    for (const std::string& word : settings_.dtypes) {
      const DType dtype = *reference::dtype_from_name(word);
      const bool is_8_bit = dtype == DType::e4m3;
      const auto of_dtype = is_8_bit ? reference::Fill::normal : reference::Fill::standard;
      const Pools pools{{device_, dtype, of_dtype, random_()},
                        {device_, DType::e4m3, reference::Fill::standard, random_()}};
      for (const std::string& head_dims : settings_.head_dims) {
        const HeadDims head_dim = parse_head_dims(head_dims);
        if (is_8_bit && !has_8_bit_kernel(head_dim)) continue;
        if (head_dim.v > 256 && has_mma()) continue;
        for (const Mask mask : {Mask::none, Mask::causal}) {
          for (const Output output : {Output::normalized, Output::unnormalized}) {
            for (const Swizzle swizzle : {Swizzle::b128, Swizzle::b64, Swizzle::b32, Swizzle::none}) {
              // Rows in shared memory are whole spans.
              const auto row_bytes = [&](int columns) { return (columns + 15) / 16 * 16 * dtype_bytes(dtype); };
              const int span = swizzle_span_bytes(swizzle);
              if (row_bytes(head_dim.qk) % span != 0 || row_bytes(head_dim.v) % span != 0) continue;
              if (configs++ % settings_.shards != settings_.shard) continue;
              table += config({.head_dim = head_dim.qk,
                               .head_dim_v = head_dim.v,
                               .dtype = dtype,
                               .mask = mask,
                               .output = output,
                               .swizzle = swizzle},
                              pools);
            }
            if (configs++ % settings_.shards == settings_.shard)
              for (int i = 0; i < kDrawnKernels; ++i)
                table += config(drawn_kernel(head_dim, dtype, mask, output), pools);
          }
        }
      }
    }
    const std::string summary =
        fmt::format("{} shapes, {} rows compared, {} failures, seed {}\n", shapes_, rows_, failures_, settings_.seed);
    fmt::print("{}", summary);
    if (!settings_.report.empty()) {
      write_file(settings_.report, fmt::format("{}, driver {}\n\n{}\n{}", device_.info().name,
                                               device_.info().driver_version, table, summary));
    }
    return failures_;
  }

 private:
  /// The kernels of sm_120, compiled for this target.
  bool has_mma() const { return !settings_.mma_kind.empty(); }
  Fmha by_mma(Fmha problem) {
    problem.mma_kind = MmaKind::mma_f16;
    problem.v_layout = Layout::mn_major;
    problem.promote_every = {};
    if (problem.tile_m == 16) return problem;
    problem.tile_m = {};
    if (problem.swizzle != Swizzle::none && pick(0, 1) == 0) problem.tile_m = pick(0, 1) == 0 ? 64 : 128;
    if (problem.head_dim <= 128 && pick(0, 2) == 0) {
      problem.tile_m = 256;
      if (problem.split_size == 0)
        problem.tile_n = problem.dtype == DType::e4m3 ? 32 : static_cast<int>(16 * pick(1, 3));
    }
    return problem;
  }

  std::string config(const Fmha& drawn, const Pools& pools) {
    const Fmha problem = has_mma() ? by_mma(drawn) : drawn;
    const FmhaKernel kernel = jit_.kernel(problem);
    worst_ = 0;
    const std::int64_t rows_before = rows_;
    for (int i = 0; i < settings_.shapes; ++i) one(problem, kernel, pools, random_shape(problem));
    const Problem any(problem);
    const std::string row = fmt::format("| {} | {} | {} | {} | {} | {} | {} | {:.3f} | {} |\n", head_dims_text(problem),
                                        field_text(any, "dtype"), field_text(any, "mask"), field_text(any, "output"),
                                        field_text(any, "swizzle"), settings_.shapes, rows_ - rows_before, worst_,
                                        kernel.kernel().plan().kernel);
    fmt::print("{}", row);
    std::fflush(stdout);
    return row;
  }

  /// With facts and pins that the others leave at their defaults.
  Fmha drawn_kernel(HeadDims head_dim, DType dtype, Mask mask, Output output) {
    Fmha problem{.head_dim = head_dim.qk, .head_dim_v = head_dim.v, .dtype = dtype, .mask = mask, .output = output};
    if (pick(0, 1) == 0) problem.window = Window::sliding;
    problem.seqused = static_cast<UsedLengths>(pick(0, 2));
    if (const std::int64_t split = pick(0, 3); split > 1) problem.split_kv = split == 2 ? SplitKv::on : SplitKv::dealt;
    if (pick(0, 1) == 0) problem.pack_gqa = kGroups[pick(0, std::ssize(kGroups) - 1)];
    if (pick(0, 2) == 0) {
      problem.q_layout = QueryLayout::ragged;
      if (problem.seqused == UsedLengths::qk) problem.seqused = UsedLengths::k;
      if (problem.split_kv == SplitKv::on) problem.split_kv = SplitKv::dealt;
    }
    if (problem.split_kv && pick(0, 1) == 0) problem.split_size = static_cast<int>(64 * pick(1, 8));
    if (pick(0, 1) == 0) problem.tile_m = 64;
    if (output == Output::normalized && pick(0, 1) == 0) problem.sink = Sink::per_head;
    if (problem.mask == Mask::causal && pick(0, 3) == 0) problem.window = Window::chunked;
    if (dtype == DType::e4m3) {
      if (pick(0, 1) == 0) problem.o_dtype = DType::f16;
      if (pick(0, 2) == 0) problem.promote_every = 0;
    }
    if (pick(0, 3) == 0) problem.softcap = Softcap::tanh;
    if (pick(0, 3) == 0) problem.alibi = Alibi::per_head;
    const bool alters_scores =
        problem.softcap != Softcap::none || problem.alibi != Alibi::none || problem.tree_mask != TreeMask::none;
    if (dtype == DType::e4m3) return problem;  // of no other kv_dtype, and of no other v_layout
    if (pick(0, 2) == 0 && head_dim.qk <= 256 && head_dim.qk % 64 == 0 && !alters_scores)
      problem.kv_dtype = DType::e4m3;
    if (problem.seqused == UsedLengths::none && !problem.kv_dtype && pick(0, 1) == 0)
      problem.v_layout = Layout::k_major;
    // Few queries' kernel, whatever their number is.
    if (pick(0, 2) == 0 && head_dim.qk % 16 == 0 && problem.head_dim_v <= 160 && problem.v_layout != Layout::k_major) {
      problem.mma_kind = MmaKind::mma_f16;
      problem.tile_m = 16;
    }
    return problem;
  }

  /// The launch's side of such a kernel.
  void draw_facts(const Fmha& problem, Shape& s) {
    if (problem.pack_gqa) s.heads_q = s.heads_kv * *problem.pack_gqa;
    if (problem.window == Window::sliding) {
      s.window_left = pick(0, 3) == 0 ? -1 : pick(0, std::max<std::int64_t>(s.seqlen_k, 1));
      s.window_right = pick(0, 3) == 0 ? -1 : pick(0, 300);
    }
    const auto used = [&](std::int64_t length) {
      std::vector<std::int32_t> lengths;
      for (std::int64_t b = 0; b < s.batch; ++b)
        lengths.push_back(static_cast<std::int32_t>(pick(0, 4) == 0 ? pick(-1, length + 1) : pick(0, length)));
      return lengths;
    };
    if (problem.q_layout == QueryLayout::ragged) {
      for (std::int64_t b = 0; b <= s.batch; ++b)
        s.query_starts.push_back(static_cast<std::int32_t>(pick(0, 5) == 0 ? 0 : pick(0, s.seqlen_q)));
      std::sort(s.query_starts.begin(), s.query_starts.end());
    }
    if (problem.seqused == UsedLengths::qk) s.used_q = used(s.seqlen_q);
    if (problem.seqused != UsedLengths::none) s.used_k = used(s.seqlen_k);
    if (problem.split_kv == SplitKv::on && problem.split_size == 0) s.num_splits = pick(1, 40);
    if (problem.sink == Sink::per_head)
      for (std::int64_t head = 0; head < s.heads_q; ++head)
        s.sink.push_back(std::uniform_real_distribution<float>(-5, 10)(random_));
    if (problem.alibi == Alibi::per_head)
      for (std::int64_t head = 0; head < s.heads_q; ++head)
        s.slopes.push_back(std::uniform_real_distribution<float>(0, 1)(random_));
    if (problem.window == Window::chunked) s.attention_chunk = pick(1, 600);
  }

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  std::int64_t length() {
    switch (pick(0, 5)) {
      case 0:
        return pick(0, 3);
      case 1:
        return std::min(settings_.max_seqlen, pick(1, 16) * 64 + pick(-1, 1));
      case 2:
        return pick(0, std::min<std::int64_t>(settings_.max_seqlen, 300));
      default:
        return pick(0, settings_.max_seqlen);
    }
  }

  Shape random_shape(const Fmha& problem) {
    const std::int64_t head_dim = problem.head_dim;
    for (;;) {
      Shape s{};
      s.batch = pick(0, 20) == 0 ? 0 : pick(1, 4);
      s.heads_kv = pick(1, 4);
      s.heads_q = s.heads_kv * pick(1, 4);
      s.seqlen_q = length();
      s.seqlen_k = pick(0, 3) == 0 ? s.seqlen_q : length();
      for (int& layout : s.layout) layout = static_cast<int>(pick(0, 2));
      constexpr double kScales[] = {0.125, 0.0883883476, 0.0625, 1.0, 0.0, -0.3, 1e-4};
      s.softmax_scale = kScales[pick(0, 6)];
      draw_facts(problem, s);
      const std::int64_t batch = std::max<std::int64_t>(s.batch, 1);  // ragged queries are there without a sequence
      const std::int64_t out = batch * (s.seqlen_q + 1) * (s.heads_q * head_dim + kPad);
      const std::int64_t in = batch * (s.seqlen_k + 1) * (s.heads_kv * head_dim + kPad);
      if (out < kMaxOutputElements && in < kPoolElements / 4 && batch * s.heads_q * s.seqlen_q <= kMaxRows) return s;
    }
  }

  void one(const Fmha& problem, const FmhaKernel& kernel, const Pools& pools, const Shape& s);

  Device& device_;
  const Settings& settings_;
  std::mt19937_64 random_;
  Jit jit_;
  OutputBuffer o_;
  OutputBuffer statistics_[3];
  OutputBuffer used_[3];  // valid queries, valid keys, where ragged queries begin
  OutputBuffer sink_;
  OutputBuffer slopes_;
  OutputBuffer workspace_;
  Descales q_descale_{device_, 8}, k_descale_{device_, 6}, v_descale_{device_, 7};
  std::int64_t shapes_ = 0, rows_ = 0;
  int failures_ = 0;
  double worst_ = 0;
};

void Sweep::one(const Fmha& problem, const FmhaKernel& kernel, const Pools& pools, const Shape& s) {
  const std::int64_t v_columns = problem.head_dim_v.value_or(problem.head_dim);
  const std::int64_t columns[4] = {problem.head_dim, problem.head_dim, v_columns, v_columns};
  const bool is_normalized = problem.output == Output::normalized;
  const bool is_8_bit = problem.dtype == DType::e4m3;
  const DType of_rows = is_8_bit ? problem.o_dtype.value_or(DType::bf16) : problem.dtype;
  const DType o_dtype = is_normalized ? of_rows : DType::f32;
  const auto o_bytes = static_cast<std::size_t>(dtype_bytes(o_dtype));
  const std::int64_t heads[4] = {s.heads_q, s.heads_kv, s.heads_kv, s.heads_q};
  const std::int64_t lengths[4] = {s.seqlen_q, s.seqlen_k, s.seqlen_k, s.seqlen_q};
  Strides strides[4];
  DevicePointer pointers[4];
  TensorView views[4];
  const bool is_ragged = problem.q_layout == QueryLayout::ragged;
  std::int64_t v_stride_dim = kUseDefault;
  for (int t = 0; t < 4; ++t) {
    strides[t] = strides_of(s.layout[t], lengths[t], heads[t], columns[t]);
    const std::int64_t batch = is_ragged && (t == 0 || t == 3) ? 1 : s.batch;
    std::int64_t elements = extent(strides[t], batch, lengths[t], heads[t], columns[t]);
    const bool is_k_major = t == 2 && problem.v_layout == Layout::k_major;
    if (is_k_major) {  // [batch, heads, head_dim, keys]
      v_stride_dim = s.seqlen_k / 8 * 8 + 8 * (1 + s.layout[t]);
      strides[t] = {heads[t] * columns[t] * v_stride_dim, 1, columns[t] * v_stride_dim};
      elements = s.batch * strides[t].batch;
    }
    const std::int64_t offset = t == 3 ? 0 : pick(0, (kPoolElements - elements) / 16) * 16;
    const Pool& pool = problem.kv_dtype && (t == 1 || t == 2) ? pools.of_8_bits : pools.of_dtype;
    const std::int64_t element_bytes = dtype_bytes(pool.host.dtype);
    pointers[t] = t == 3 ? o_.pointer : pool.pointer + static_cast<DevicePointer>(offset * element_bytes);
    views[t] = {pool.host.bytes.data() + (t == 3 ? 0 : offset * element_bytes),
                t == 3 ? o_dtype : pool.host.dtype,
                {batch, lengths[t], heads[t], columns[t]},
                {strides[t].batch, strides[t].seqlen, strides[t].head, is_k_major ? v_stride_dim : 1}};
    if (is_ragged && (t == 0 || t == 3))
      for (auto* const list : {&views[t].shape, &views[t].strides}) list->erase(list->begin());
  }
  for (const auto& [lengths_in_memory, buffer] :
       {std::pair(&s.used_q, &used_[0]), std::pair(&s.used_k, &used_[1]), std::pair(&s.query_starts, &used_[2])})
    if (!lengths_in_memory->empty())
      device_.copy_to_device(buffer->pointer, lengths_in_memory->data(), 4 * lengths_in_memory->size());
  if (!s.sink.empty()) device_.copy_to_device(sink_.pointer, s.sink.data(), 4 * s.sink.size());
  if (!s.slopes.empty()) device_.copy_to_device(slopes_.pointer, s.slopes.data(), 4 * s.slopes.size());
  FmhaArguments arguments{.q = pointers[0],
                          .k = pointers[1],
                          .v = pointers[2],
                          .o = pointers[3],
                          .lse = statistics_[0].pointer,
                          .row_max = is_normalized ? 0 : statistics_[1].pointer,
                          .row_sum = is_normalized ? 0 : statistics_[2].pointer,
                          .seqused_q = used_[0].pointer,
                          .seqused_k = used_[1].pointer,
                          .cu_seqlens_q = used_[2].pointer,
                          .sink = sink_.pointer,
                          .alibi_slopes = slopes_.pointer,
                          .batch = s.batch,
                          .heads_q = s.heads_q,
                          .heads_kv = s.heads_kv,
                          .seqlen_q = s.seqlen_q,
                          .seqlen_k = s.seqlen_k,
                          .num_splits = s.num_splits,
                          .window_size_left = s.window_left,
                          .window_size_right = s.window_right,
                          .attention_chunk = s.attention_chunk,
                          .softmax_scale = s.softmax_scale,
                          .softcap = 5,
                          .q_stride_batch = strides[0].batch,
                          .q_stride_seqlen = strides[0].seqlen,
                          .q_stride_head = strides[0].head,
                          .k_stride_batch = strides[1].batch,
                          .k_stride_seqlen = strides[1].seqlen,
                          .k_stride_head = strides[1].head,
                          .v_stride_batch = strides[2].batch,
                          .v_stride_seqlen = v_stride_dim == kUseDefault ? strides[2].seqlen : kUseDefault,
                          .v_stride_head = strides[2].head,
                          .v_stride_dim = v_stride_dim,
                          .o_stride_batch = strides[3].batch,
                          .o_stride_seqlen = strides[3].seqlen,
                          .o_stride_head = strides[3].head};
  // None, one for all, or for each sequence and head as they lie in a larger table.
  const std::int64_t descales = problem.kv_dtype || is_8_bit ? pick(0, 2) : 0, stride = descales == 1 ? 0 : 1;
  if (descales != 0 && is_8_bit) {
    arguments.q_descale = q_descale_.pointer;
    arguments.q_descale_stride_batch = 4 * stride;
    arguments.q_descale_stride_head = stride;
  }
  if (descales != 0) {
    arguments.k_descale = k_descale_.pointer;
    arguments.v_descale = v_descale_.pointer;
    arguments.k_descale_stride_batch = arguments.v_descale_stride_batch = 4 * stride;
    arguments.k_descale_stride_head = arguments.v_descale_stride_head = stride;
  }
  arguments.workspace = workspace_.pointer;
  arguments.workspace_bytes = kernel.workspace_bytes(device_, arguments);
  if (arguments.workspace_bytes > kWorkspaceBytes) return;  // many rows in many parts
  const auto written =
      static_cast<std::size_t>(extent(strides[3], is_ragged ? 1 : s.batch, s.seqlen_q, s.heads_q, v_columns)) * o_bytes;
  const auto statistic_bytes = static_cast<std::size_t>((is_ragged ? 1 : s.batch) * s.heads_q * s.seqlen_q) * 4;
  if (kernel.kernel().plan().kernel.find(settings_.kernel) == std::string::npos) {
    random_();  // what is drawn for the others stays what it was
    return;
  }
  std::vector<std::byte> bytes[2][4];
  std::string difference;
  for (int launch = 0; launch < settings_.launches; ++launch) {
    auto& run = bytes[std::min(launch, 1)];
    o_.poison();
    for (const OutputBuffer& buffer : statistics_) buffer.poison();
    device_.set_bytes(workspace_.pointer, 0xFF, static_cast<std::size_t>(arguments.workspace_bytes));
    kernel.launch(device_, {}, arguments);
    device_.synchronize();
    run[0] = o_.fetch(written);
    for (std::size_t i = 0; i < 3; ++i) run[i + 1] = statistics_[i].fetch(statistic_bytes);
    if (launch > 0 && difference.empty()) difference = difference_of(bytes[0], bytes[1], launch, o_bytes);
  }
  bool is_same = difference.empty();
  if (problem.split_size > 0 && s.batch > 0) {
    o_.poison();
    for (const OutputBuffer& buffer : statistics_) buffer.poison();
    for (std::int64_t b = 0; b < s.batch; ++b) {
      FmhaArguments alone = arguments_of_sequence(problem, arguments, b);
      alone.workspace_bytes = kernel.workspace_bytes(device_, alone);
      device_.set_bytes(workspace_.pointer, 0xFF, static_cast<std::size_t>(alone.workspace_bytes));
      kernel.launch(device_, {}, alone);
      device_.synchronize();
    }
    is_same = is_same && o_.fetch(written) == bytes[0][0];
    for (std::size_t i = 0; i < 3; ++i) is_same = is_same && statistics_[i].fetch(statistic_bytes) == bytes[0][i + 1];
  }
  FmhaCheck check{.facts = {.mask = problem.mask, .output = problem.output}, .softmax_scale = s.softmax_scale};
  if (problem.window == Window::sliding) {
    check.window_size_left = s.window_left;
    check.window_size_right = s.window_right;
  }
  if (problem.split_kv == SplitKv::on) check.num_splits = s.num_splits;
  if (problem.split_kv == SplitKv::dealt) check.num_splits = std::max<std::int64_t>(s.seqlen_k / 32, 1);
  if (problem.split_size > 0) check.num_splits = s.seqlen_k / problem.split_size + 1;
  if (!s.sink.empty())
    check.sink = TensorView{reinterpret_cast<const std::byte*>(s.sink.data()), DType::f32, {s.heads_q}, {1}};
  if (!s.slopes.empty())
    check.alibi_slopes = TensorView{reinterpret_cast<const std::byte*>(s.slopes.data()), DType::f32, {s.heads_q}, {1}};
  if (problem.softcap != Softcap::none) check.softcap = 5;
  if (problem.window == Window::chunked) check.attention_chunk = s.attention_chunk;
  check.max_multiply_adds = std::int64_t{1} << 27;
  check.seed = random_();
  check.tile_m = kernel.kernel().plan().number("tile_m");
  check.tile_n = kernel.kernel().plan().number("tile_n");
  if (is_8_bit) check.promote_every = kernel.kernel().plan().number("promote_every");
  check.lowered = reference::lowered_beside(kernel.kernel().plan().mma_kind);
  const auto statistic = [&](int i) {
    TensorView view{
        bytes[0][i].data(), DType::f32, {s.batch, s.heads_q, s.seqlen_q}, {s.heads_q * s.seqlen_q, s.seqlen_q, 1}};
    if (is_ragged)
      for (auto* const list : {&view.shape, &view.strides}) list->erase(list->begin());
    return view;
  };
  views[3].data = bytes[0][0].data();
  reference::FmhaOutputs outputs{.o = views[3], .lse = statistic(1), .row_max = {}, .row_sum = {}};
  if (!is_normalized) outputs.row_max = statistic(2), outputs.row_sum = statistic(3);
  reference::FmhaInputs inputs{views[0], views[1], views[2]};
  const auto used_view = [&](const std::vector<std::int32_t>& used) {
    return TensorView{reinterpret_cast<const std::byte*>(used.data()), DType::s32, {s.batch}, {1}};
  };
  const auto descale_view = [&](const Descales& of) {
    return TensorView{of.host.bytes.data(), DType::f32, {s.batch, s.heads_kv}, {4 * stride, stride}};
  };
  if (descales != 0) inputs.k_descale = descale_view(k_descale_), inputs.v_descale = descale_view(v_descale_);
  if (descales != 0 && is_8_bit) inputs.q_descale = descale_view(q_descale_);
  if (problem.seqused == UsedLengths::qk) inputs.seqused_q = used_view(s.used_q);
  if (problem.seqused != UsedLengths::none) inputs.seqused_k = used_view(s.used_k);
  const TensorView starts{reinterpret_cast<const std::byte*>(s.query_starts.data()), DType::s32, {s.batch + 1}, {1}};
  const reference::Comparison result = is_ragged ? reference::check_ragged_fmha(inputs, starts, outputs, check)
                                                 : reference::check_fmha(inputs, outputs, check);
  ++shapes_;
  rows_ += result.rows_checked;
  if (result.rel_bound > 0) worst_ = std::max(worst_, result.rel_error / result.rel_bound);
  if (result.pass && is_same) return;
  ++failures_;
  fmt::print(
      "FAILED {}: batch {} heads {}/{} seqlen {}/{} layouts {}{}{}{} scale {} window {} {} used {} {} splits {}: "
      "rel_error {} (bound {}){}\n",
      kernel.kernel().plan().kernel, s.batch, s.heads_q, s.heads_kv, s.seqlen_q, s.seqlen_k, s.layout[0], s.layout[1],
      s.layout[2], s.layout[3], s.softmax_scale, s.window_left, s.window_right, fmt::join(s.used_q, ","),
      fmt::join(s.used_k, ","), s.num_splits, result.rel_error, result.rel_bound,
      is_same ? "" : ", two runs differ" + difference);
  for (const std::string& problem_text : result.problems) fmt::print("  {}\n", problem_text);
  if (failures_ > 20) throw Error(ErrorKind::device, "more than 20 failures: stopping");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  settings.seed = std::random_device{}();
  CLI::App app{"Random attention problems on the GPU against float64"};
  app.add_option("--shapes", settings.shapes, "random shapes of each Config");
  app.add_option("--seed", settings.seed, "of everything random; printed at the end");
  app.add_option("--max-seqlen", settings.max_seqlen, "longest length");
  app.add_option("--head-dim", settings.head_dims, "head dimensions")->delimiter(',');
  app.add_option("--dtype", settings.dtypes, "types of q")
      ->delimiter(',')
      ->check(CLI::IsMember({"bf16", "f16", "e4m3"}));
  app.add_option_function<std::string>(
      "--shard",
      [&](const std::string& text) {
        if (const std::string why = parse_shard(text, settings); !why.empty()) throw CLI::ValidationError(why);
      },
      "I/N: the I-th of N parts of the Configs");
  app.add_option("--kernel", settings.kernel, "launch those alone whose name has this in it");
  app.add_option("--mma-kind", settings.mma_kind, "of all kernels")->check(CLI::IsMember({"mma.f16"}));
  app.add_option("--launches", settings.launches, "of each shape, all with the same bits")
      ->check(CLI::Range(2, 10'000));
  app.add_option("--report", settings.report, "file for the table, Markdown");
  CLI11_PARSE(app, argc, argv);
  return gpu_sweep::exit_code(
      "fmha_sweep", [&] { return gpu_sweep::on_gpu([&](Device& device) { return Sweep(device, settings).run(); }); });
}
