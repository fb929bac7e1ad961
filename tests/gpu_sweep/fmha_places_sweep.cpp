// Random attention over keys in pages and ragged keys, on the GPU against float64: drawn kernels (page sizes, what
// loads them, head_dims, masks, windows, packed heads, split keys, valid queries), a few random shapes for each. Pools
// are NaN wherever no valid key lies, pages in random order, some entries in use none of the pool. Outputs are poisoned
// before each of two runs, whose bytes must agree; with parts of a size each sequence is launched alone too, and must
// get the same bytes.
//
//   fmha_places_sweep [--kernels N] [--shapes N] [--seed S] [--seconds S] [--emulate] [--latent | --e4m3]
//
// Exit code 0: all pass; 1: a mismatch (printed with everything that reproduces it); 77: no GPU here. --emulate: in the
// emulator, with small shapes. --latent: keys that are values too, in pages or dense with NaNs behind the valid ones.
// --e4m3: e4m3 queries alone.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "reference/fmha.h"
#include "reference/key_places.h"
#include "reference/narrow_keys.h"
#include "tessera/emulator/device.h"
#include "tessera/jit.h"
#include "tests/gpu_sweep/exit_code.h"
#include "tests/gpu_sweep/one_sequence.h"

namespace tessera {
namespace {

using reference::Tensor;

constexpr int kGroups[] = {2, 3, 4, 5, 6, 7, 8, 12, 100, 128};  // query heads of a key head

struct Settings {
  int kernels = 40, shapes = 4;
  std::uint64_t seed = 0;
  double seconds = 360;
  bool is_emulated = false, is_latent = false, is_e4m3 = false;
};

bool has_8_bit_kernel(const Fmha& problem) { return problem.head_dim % 64 == 0 && problem.head_dim <= 256; }
bool has_v(const Fmha& problem) { return problem.v_is_k == VIsK::off; }

class Sweep {
 public:
  Sweep(Device& device, const Settings& settings)
      : device_(device), settings_(settings), random_(settings.seed), jit_(JitOptions::from_environment()) {}

  int run() {
    const auto begin = std::chrono::steady_clock::now();
    int kernels = 0;
    for (; kernels < settings_.kernels; ++kernels) {
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > settings_.seconds) break;
      const Fmha problem = settings_.is_latent ? draw_latent() : draw_kernel();
      const FmhaKernel kernel = jit_.kernel(problem);
      for (int i = 0; i < settings_.shapes; ++i) one(problem, kernel);
    }
    fmt::print("{} kernels, {} shapes, {} rows compared, {} failures, largest error / bound {:.3f}, seed {}\n", kernels,
               shapes_, rows_, failures_, worst_, settings_.seed);
    return failures_;
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, std::max(low, high))(random_);
  }

  Fmha draw_kernel() {
    constexpr int kHeadDims[][2] = {{64, 64},   {96, 96}, {128, 128}, {128, 128}, {192, 128}, {192, 192}, {256, 256},
                                    {512, 512}, {16, 16}, {32, 32},   {72, 72},   {80, 80},   {160, 160}};
    int drawn = static_cast<int>(pick(0, 12));
    while (settings_.is_e4m3 && (kHeadDims[drawn][0] % 64 != 0 || kHeadDims[drawn][0] > 256)) drawn = (drawn + 1) % 13;
    const auto& dims = kHeadDims[drawn];
    Fmha problem{.head_dim = dims[0], .head_dim_v = dims[1]};
    problem.dtype = pick(0, 1) == 0 ? DType::bf16 : DType::f16;
    problem.mask = pick(0, 1) == 0 ? Mask::none : Mask::causal;
    if (pick(0, 2) == 0) problem.window = Window::sliding;
    problem.kv_layout = pick(0, 4) == 0 ? KvLayout::ragged : KvLayout::paged;
    if (problem.kv_layout == KvLayout::paged) problem.page_size = kPageSizes[pick(0, 6)];
    if (pick(0, 3) == 0) problem.kv_copy = KvCopy::cp_async;
    problem.seqused = problem.kv_layout == KvLayout::ragged ? static_cast<UsedLengths>(pick(0, 2))
                      : pick(0, 2) == 0                     ? UsedLengths::qk
                                                            : UsedLengths::k;
    if (pick(0, 4) == 0) problem.output = Output::unnormalized;
    if (pick(0, 1) == 0) problem.split_kv = SplitKv::on;
    if (pick(0, 1) == 0) {
      problem.split_size = static_cast<int>(64 * pick(1, 8));
      if (pick(0, 1) == 0) problem.split_kv = SplitKv::dealt;
    }
    if (pick(0, 1) == 0) problem.pack_gqa = kGroups[pick(0, std::ssize(kGroups) - 1)];
    if (pick(0, 1) == 0) problem.tile_m = 64;
    if (problem.output == Output::normalized && pick(0, 1) == 0) problem.sink = Sink::per_head;
    if (problem.mask == Mask::causal && pick(0, 3) == 0) problem.window = Window::chunked;
    if (has_8_bit_kernel(problem) && (settings_.is_e4m3 || pick(0, 3) == 0)) {
      problem.dtype = DType::e4m3;
      if (pick(0, 1) == 0) problem.o_dtype = DType::f16;
      if (pick(0, 2) == 0) problem.promote_every = 0;
    }
    if (pick(0, 3) == 0) problem.softcap = Softcap::tanh;
    if (pick(0, 3) == 0) problem.alibi = Alibi::per_head;
    if (problem.mask == Mask::none && problem.window == Window::none && pick(0, 2) == 0)
      problem.tree_mask = TreeMask::bits;
    const bool alters_scores =
        problem.softcap != Softcap::none || problem.alibi != Alibi::none || problem.tree_mask != TreeMask::none;
    if (pick(0, 2) == 0 && problem.dtype != DType::e4m3 && has_8_bit_kernel(problem) && !alters_scores)
      problem.kv_dtype = DType::e4m3;
    // Few queries' kernel, whatever their number is.
    if (pick(0, 2) == 0 && problem.head_dim % 16 == 0 && problem.head_dim_v <= 160) {
      problem.mma_kind = MmaKind::mma_f16;
      problem.tile_m = pick(0, 1) == 0 ? 16 : 128;
    }
    return problem;
  }

  Fmha draw_latent() {
    Fmha problem{.head_dim = 576, .head_dim_v = 512, .seqused = UsedLengths::k, .v_is_k = VIsK::on};
    problem.dtype = pick(0, 1) == 0 ? DType::bf16 : DType::f16;
    problem.mask = pick(0, 1) == 0 ? Mask::none : Mask::causal;
    if (pick(0, 1) == 0) {
      problem.kv_layout = KvLayout::paged;
      problem.page_size = kPageSizes[pick(1, 6)];
    }
    problem.pack_gqa = 1 << pick(0, 7);
    problem.split_kv = pick(0, 2) == 0 ? SplitKv::off : SplitKv::dealt;
    if (pick(0, 1) == 0) problem.kv_dtype = DType::e4m3;
    return problem;
  }

  std::vector<std::int64_t> draw_lengths(std::int64_t batch, std::int64_t most) {
    std::vector<std::int64_t> lengths;
    for (std::int64_t b = 0; b < batch; ++b)
      lengths.push_back(pick(0, 5) == 0 ? pick(0, 2) : pick(0, 3) == 0 ? most : pick(0, most));
    return lengths;
  }
  static Tensor tensor_of(const std::vector<std::int64_t>& values) {
    Tensor tensor(DType::s32, {static_cast<std::int64_t>(values.size())});
    for (std::size_t i = 0; i < values.size(); ++i)
      tensor.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
    return tensor;
  }

  DevicePointer upload(const std::string& name, const Tensor& tensor) {
    const DevicePointer pointer = device_.allocate(std::max<std::size_t>(tensor.bytes.size(), 16));
    if (!tensor.bytes.empty()) device_.copy_to_device(pointer, tensor.bytes.data(), tensor.bytes.size());
    allocated_[name] = pointer;
    return tensor.bytes.empty() ? 0 : pointer;
  }

  struct Placed {
    Tensor k, v, block_table, ends;   ///< pools, or packed
    Tensor dense_k, dense_v;          ///< what they stand for
    std::int64_t strides[2][3] = {};  ///< of k and v: page, seqlen, head
  };
  Placed place(const Fmha& problem, const reference::FmhaTensors& made, const Tensor& lengths, FmhaArguments& a);
  void one(const Fmha& problem, const FmhaKernel& kernel);

  Device& device_;
  const Settings& settings_;
  std::mt19937_64 random_;
  Jit jit_;
  std::map<std::string, DevicePointer> allocated_;
  std::int64_t shapes_ = 0, rows_ = 0;
  int failures_ = 0;
  double worst_ = 0;
};

Sweep::Placed Sweep::place(const Fmha& problem, const reference::FmhaTensors& made, const Tensor& lengths,
                           FmhaArguments& a) {
  Placed placed;
  const std::int64_t seqlen_k = made.k.shape[1];
  if (problem.kv_layout == KvLayout::dense) {
    placed.k = placed.dense_k = made.k;
    const auto row_bytes = static_cast<std::size_t>(problem.head_dim * dtype_bytes(made.k.dtype));
    for (std::int64_t b = 0; b < lengths.shape[0]; ++b) {
      const auto used = static_cast<std::int64_t>(lengths.at(b));
      std::fill_n(placed.k.bytes.begin() +
                      static_cast<std::ptrdiff_t>((b * seqlen_k + used)) * static_cast<std::ptrdiff_t>(row_bytes),
                  static_cast<std::size_t>(seqlen_k - used) * row_bytes, std::byte{0xFF});
    }
    return placed;
  }
  if (problem.kv_layout == KvLayout::ragged) {
    placed.ends = reference::ends_of(lengths);
    a.tokens_k = static_cast<std::int64_t>(placed.ends.at(lengths.shape[0])) + pick(0, 40);
    placed.k = reference::pack_keys(made.k, placed.ends, a.tokens_k);
    placed.v = reference::pack_keys(made.v, placed.ends, a.tokens_k);
    placed.dense_k = reference::unpack_keys(placed.k, placed.ends, seqlen_k);
    placed.dense_v = reference::unpack_keys(placed.v, placed.ends, seqlen_k);
    return placed;
  }
  const std::int64_t page_size = *problem.page_size;
  a.max_pages = (seqlen_k + page_size - 1) / page_size;
  a.pages = lengths.shape[0] * a.max_pages + pick(0, 5);
  placed.block_table =
      reference::draw_block_table(lengths, page_size, a.pages, a.max_pages, static_cast<std::uint64_t>(random_()));
  if (pick(0, 3) == 0)
    for (std::int64_t i = 0; i < placed.block_table.elements(); i += pick(1, 9))
      placed.block_table.set(i, static_cast<double>(pick(0, 1) == 0 ? -1 : a.pages + pick(0, 1000000)));
  const bool is_head_major = pick(0, 1) == 0;
  for (int t = 0; t < (has_v(problem) ? 2 : 1); ++t) {
    const Tensor& keys = t == 0 ? made.k : made.v;
    const std::int64_t heads = keys.shape[2], columns = keys.shape[3];
    Tensor& pool = t == 0 ? placed.k : placed.v;
    pool = Tensor(keys.dtype, {a.pages, page_size, heads, columns});
    std::fill(pool.bytes.begin(), pool.bytes.end(), std::byte{0xFF});
    std::int64_t(&strides)[3] = placed.strides[t];
    strides[0] = page_size * heads * columns;
    strides[1] = is_head_major ? columns : heads * columns;
    strides[2] = is_head_major ? page_size * columns : columns;
    const reference::PoolView view{pool.bytes.data(), keys.dtype, pool.shape, {strides[0], strides[1], strides[2], 1}};
    reference::put_pages(keys, lengths, placed.block_table, view);
    (t == 0 ? placed.dense_k : placed.dense_v) = reference::take_pages(view, lengths, placed.block_table, seqlen_k);
  }
  a.k_stride_page = placed.strides[0][0], a.k_stride_seqlen = placed.strides[0][1],
  a.k_stride_head = placed.strides[0][2];
  if (!has_v(problem)) return placed;
  a.v_stride_page = placed.strides[1][0], a.v_stride_seqlen = placed.strides[1][1],
  a.v_stride_head = placed.strides[1][2];
  return placed;
}

void Sweep::one(const Fmha& problem, const FmhaKernel& kernel) {
  const std::int64_t v_columns = problem.head_dim_v.value_or(problem.head_dim);
  const std::int64_t most = settings_.is_emulated ? 300 : pick(0, 1) == 0 ? 500 : 4000;
  FmhaArguments a;
  a.batch = pick(1, 6);
  a.heads_kv = has_v(problem) ? pick(1, 3) : 1;
  a.heads_q = a.heads_kv * problem.pack_gqa.value_or(static_cast<int>(pick(1, 3)));
  const bool has_few = pick(0, 1) == 0 || !has_v(problem) || a.heads_q > 30;
  a.seqlen_q = has_few ? pick(1, 8) : pick(1, settings_.is_emulated ? 100 : 400);
  a.seqlen_k = pick(1, most);
  const reference::FmhaSizes sizes{a.batch, a.heads_q, a.heads_kv, a.seqlen_q, a.seqlen_k, problem.head_dim, v_columns};
  reference::FmhaTensors made =
      reference::make_inputs(sizes, problem.dtype, reference::Fill::normal, static_cast<std::uint64_t>(random_()));
  const std::vector<std::int64_t> keys = draw_lengths(a.batch, a.seqlen_k), queries = draw_lengths(a.batch, a.seqlen_q);
  const Tensor lengths = tensor_of(keys), lengths_q = tensor_of(queries);
  const bool is_8_bit = problem.dtype == DType::e4m3, has_factors = is_8_bit || problem.kv_dtype.has_value();
  const auto descales = [&](std::uint64_t stream) {
    return reference::make_descales(a.batch, a.heads_kv, stream, static_cast<std::uint64_t>(shapes_));
  };
  const Tensor of_k = descales(6), of_v = descales(7), of_q = descales(8);
  if (problem.kv_dtype) made.k = reference::narrowed(made.k), made.v = reference::narrowed(made.v);
  if (has_factors) a.k_descale = upload("k_descale", of_k);
  if (has_factors && has_v(problem)) a.v_descale = upload("v_descale", of_v);
  if (is_8_bit) a.q_descale = upload("q_descale", of_q);
  const Placed placed = place(problem, made, lengths, a);
  const DType of_rows = is_8_bit ? problem.o_dtype.value_or(DType::bf16) : problem.dtype;
  Tensor o(problem.output == Output::normalized ? of_rows : DType::f32, {a.batch, a.seqlen_q, a.heads_q, v_columns});
  Tensor statistics[3];
  for (Tensor& tensor : statistics) tensor = Tensor(DType::f32, {a.batch, a.heads_q, a.seqlen_q});
  a.q = upload("q", made.q), a.k = upload("k", placed.k);
  if (has_v(problem)) a.v = upload("v", placed.v);
  a.o = upload("o", o), a.lse = upload("lse", statistics[0]);
  if (problem.output == Output::unnormalized)
    a.row_max = upload("row_max", statistics[1]), a.row_sum = upload("row_sum", statistics[2]);
  a.seqused_k = upload("seqused_k", lengths), a.seqused_q = upload("seqused_q", lengths_q);
  if (problem.kv_layout == KvLayout::paged) a.block_table = upload("block_table", placed.block_table);
  if (problem.kv_layout == KvLayout::ragged) a.cu_seqlens_k = upload("cu_seqlens_k", placed.ends);
  reference::FmhaCheck check{.facts = {.mask = problem.mask, .output = problem.output, .v_is_k = problem.v_is_k}};
  if (problem.window == Window::sliding) {
    check.window_size_left = a.window_size_left = pick(0, 3) == 0 ? -1 : pick(0, a.seqlen_k);
    check.window_size_right = a.window_size_right = pick(0, 3) == 0 ? -1 : pick(0, 300);
  }
  if (problem.split_kv == SplitKv::dealt) check.num_splits = a.seqlen_k / 64 + 1;
  if (problem.split_kv == SplitKv::on) check.num_splits = a.num_splits = pick(1, 20);
  if (problem.split_size > 0) check.num_splits = a.seqlen_k / problem.split_size + 1, a.num_splits = kUseDefault;
  Tensor sink(DType::f32, {a.heads_q});
  reference::fill(sink, reference::Fill::normal, random_(), 7);
  if (problem.sink != Sink::none) check.sink = sink.view(), a.sink = upload("sink", sink);
  Tensor slopes(DType::f32, {a.heads_q});
  reference::fill(slopes, reference::Fill::uniform, random_(), 8);
  if (problem.alibi != Alibi::none) check.alibi_slopes = slopes.view(), a.alibi_slopes = upload("alibi_slopes", slopes);
  if (problem.softcap != Softcap::none) check.softcap = a.softcap = 5;
  const std::vector<std::int64_t> places(static_cast<std::size_t>(a.batch), a.seqlen_q);
  const Tensor tree = reference::make_tree_mask(places, (a.seqlen_q + 31) / 32, random_());
  if (problem.tree_mask != TreeMask::none) check.tree_mask = tree.view(), a.tree_mask = upload("tree_mask", tree);
  if (problem.window == Window::chunked) check.attention_chunk = a.attention_chunk = pick(1, 600);
  check.softmax_scale = a.softmax_scale = 1 / std::sqrt(static_cast<double>(problem.head_dim));
  a.workspace_bytes = kernel.workspace_bytes(device_, a);
  if (a.workspace_bytes > 0) {
    a.workspace = device_.allocate(static_cast<std::size_t>(a.workspace_bytes));
    allocated_["workspace"] = a.workspace;
  }
  std::vector<std::byte> first;
  bool is_same = true;
  const auto fetch = [&](const char* name, Tensor& tensor) {
    if (!tensor.bytes.empty()) device_.copy_to_host(tensor.bytes.data(), allocated_.at(name), tensor.bytes.size());
  };
  for (int run = 0; run < 2; ++run) {
    device_.set_bytes(a.o, 0xFF, o.bytes.size());
    device_.set_bytes(a.lse, 0xFF, statistics[0].bytes.size());
    if (a.workspace != 0) device_.set_bytes(a.workspace, 0xFF, static_cast<std::size_t>(a.workspace_bytes));
    kernel.launch(device_, {}, a);
    for (const Finding& finding : device_.synchronize()) fmt::print("  {}\n", finding.message), is_same = false;
    fetch("o", o), fetch("lse", statistics[0]);
    if (problem.output == Output::unnormalized) fetch("row_max", statistics[1]), fetch("row_sum", statistics[2]);
    std::vector<std::byte> bytes = o.bytes;
    bytes.insert(bytes.end(), statistics[0].bytes.begin(), statistics[0].bytes.end());
    if (run == 0) first = bytes;
    is_same = is_same && bytes == first;
  }
  if (problem.split_size > 0) {
    device_.set_bytes(a.o, 0xFF, o.bytes.size());
    device_.set_bytes(a.lse, 0xFF, statistics[0].bytes.size());
    for (std::int64_t b = 0; b < a.batch; ++b) {
      FmhaArguments alone = arguments_of_sequence(problem, a, b);
      alone.workspace_bytes = kernel.workspace_bytes(device_, alone);
      if (a.workspace != 0) device_.set_bytes(a.workspace, 0xFF, static_cast<std::size_t>(a.workspace_bytes));
      kernel.launch(device_, {}, alone);
      for (const Finding& finding : device_.synchronize()) fmt::print("  {}\n", finding.message), is_same = false;
    }
    fetch("o", o), fetch("lse", statistics[0]);
    std::vector<std::byte> bytes = o.bytes;
    bytes.insert(bytes.end(), statistics[0].bytes.begin(), statistics[0].bytes.end());
    is_same = is_same && bytes == first;
  }
  for (const auto& [name, pointer] : allocated_) device_.free(pointer);
  allocated_.clear();

  check.tile_m = kernel.kernel().plan().number("tile_m");
  check.tile_n = kernel.kernel().plan().number("tile_n");
  if (is_8_bit) check.promote_every = kernel.kernel().plan().number("promote_every");
  check.lowered = reference::lowered_beside(kernel.kernel().plan().mma_kind);
  check.max_multiply_adds = std::int64_t{1} << 27;
  check.seed = random_();
  reference::FmhaOutputs outputs{o.view(), statistics[0].view(), {}, {}};
  if (!check.is_normalized()) outputs.row_max = statistics[1].view(), outputs.row_sum = statistics[2].view();
  reference::FmhaInputs inputs{made.q.view(), placed.dense_k.view(), {}, {}, lengths.view()};
  inputs.v = has_v(problem) ? placed.dense_v.view() : reference::first_columns(inputs.k, v_columns);
  if (problem.seqused == UsedLengths::qk) inputs.seqused_q = lengths_q.view();
  if (has_factors) inputs.k_descale = of_k.view(), inputs.v_descale = (has_v(problem) ? of_v : of_k).view();
  if (is_8_bit) inputs.q_descale = of_q.view();
  const reference::Comparison result = reference::check_fmha(inputs, outputs, check);
  ++shapes_;
  rows_ += result.rows_checked;
  if (result.rel_bound > 0) worst_ = std::max(worst_, result.rel_error / result.rel_bound);
  if (result.pass && is_same) return;
  ++failures_;
  fmt::print(
      "FAILED {}: batch {} heads {}/{} seqlen {}/{} keys {} queries {} window {} {} splits {}: rel_error {} "
      "(bound {}){}\n",
      kernel.kernel().plan().kernel, a.batch, a.heads_q, a.heads_kv, a.seqlen_q, a.seqlen_k, fmt::join(keys, ","),
      fmt::join(queries, ","), a.window_size_left, a.window_size_right, a.num_splits, result.rel_error,
      result.rel_bound, is_same ? "" : ", two runs differ");
  for (const std::string& text : result.problems) fmt::print("  {}\n", text);
  if (failures_ > 20) throw Error(ErrorKind::device, "more than 20 failures: stopping");
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Settings settings;
  settings.seed = std::random_device{}();
  CLI::App app{"Random attention over keys in pages and ragged keys on the GPU against float64"};
  app.add_option("--kernels", settings.kernels, "drawn kernels");
  app.add_option("--shapes", settings.shapes, "random shapes of each kernel");
  app.add_option("--seed", settings.seed, "of everything random; printed at the end");
  app.add_option("--seconds", settings.seconds, "no kernel is begun after that");
  app.add_flag("--emulate", settings.is_emulated, "in the emulator");
  app.add_flag("--latent", settings.is_latent, "keys that are values too");
  app.add_flag("--e4m3", settings.is_e4m3, "e4m3 queries alone");
  CLI11_PARSE(app, argc, argv);
  const auto run = [&](Device& device) { return Sweep(device, settings).run(); };
  return gpu_sweep::exit_code("fmha_places_sweep", [&] {
    if (!settings.is_emulated) return gpu_sweep::on_gpu(run);
    emulator::EmulatedDevice device({.detects_races = true});
    return run(device);
  });
}
