// Attention on tcgen05 as a caller of the library has it, from a Jit without a warm cache to numbers in memory, on the
// emulator's device: the fields of FmhaArguments that only these kernels have, and that nothing but `arch` differs for
// the rest. No Blackwell hardware has run any of this.
#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/jit.h"
#include "tests/support/bf16.h"
#include "tests/support/ptx_compiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera::attention_test {
namespace {

constexpr std::int64_t kHeadDim = 64;

using testing::Bf16Matrix;
using testing::from_bf16;

/// A Jit with an empty cache, and a device of the target; is_usable false without NVRTC.
class Machine {
 public:
  explicit Machine(const char* arch) : device{{.arch = arch, .detects_races = true}} {}

  template <class T>
  DevicePointer upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    const DevicePointer pointer = device.allocate(bytes);
    device.copy_to_device(pointer, values.data(), bytes);
    return pointer;
  }
  DevicePointer upload(const Bf16Matrix& rows) { return upload(rows.bits); }
  DevicePointer poisoned(std::int64_t bytes) {
    const DevicePointer pointer = device.allocate(static_cast<std::size_t>(bytes));
    device.poison(pointer, 0xFF, static_cast<std::size_t>(bytes));
    return pointer;
  }

 private:
  testing::TemporaryFolder folder_;

 public:
  emulator::EmulatedDevice device;
  Jit jit{{.cache_dir = folder_.path}};
  bool is_usable = testing::compiles_to_ptx(jit);
};

/// What o must hold: the formula over the keys that each row of q sees. `extra`: added to each sum.
struct Expected {
  const Bf16Matrix& q;
  const Bf16Matrix& k;
  const Bf16Matrix& v;
  std::function<std::vector<std::int64_t>(std::int64_t row)> keys_of;
  double extra = 0;
};

/// Launches with o and a workspace of its own.
void check(Machine& machine, const FmhaKernel& kernel, FmhaArguments arguments, const Expected& expected) {
  const std::int64_t rows = arguments.batch * arguments.seqlen_q * arguments.heads_q;
  arguments.o = machine.poisoned(2 * rows * kHeadDim);
  arguments.workspace_bytes = kernel.workspace_bytes(machine.device, arguments);
  arguments.workspace = machine.poisoned(arguments.workspace_bytes);
  kernel.launch(machine.device, {}, arguments);
  for (const Finding& finding : machine.device.synchronize()) FAIL_CHECK(finding.message);
  std::vector<std::uint16_t> o(static_cast<std::size_t>(rows * kHeadDim));
  machine.device.copy_to_host(o.data(), arguments.o, 2 * o.size());
  int wrong = 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::vector<std::int64_t> keys = expected.keys_of(row);
    std::vector<double> sums(kHeadDim, 0.0);
    double total = keys.empty() ? 1 : expected.extra;
    for (const std::int64_t key : keys) {
      double score = 0;
      for (std::int64_t d = 0; d < kHeadDim; ++d) score += expected.q.at(row, d) * expected.k.at(key, d);
      const double weight = std::exp(score / 8);
      total += weight;
      for (std::int64_t d = 0; d < kHeadDim; ++d) sums[static_cast<std::size_t>(d)] += weight * expected.v.at(key, d);
    }
    for (std::int64_t d = 0; d < kHeadDim; ++d) {
      const double found = from_bf16(o[static_cast<std::size_t>(row * kHeadDim + d)]);
      // Of P and of O, each 2^-9 of at most about 3.
      wrong += std::fabs(found - sums[static_cast<std::size_t>(d)] / total) <= 0.02 ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

/// [first, end)
std::vector<std::int64_t> range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> list;
  for (std::int64_t i = first; i < end; ++i) list.push_back(i);
  return list;
}

bool is_skipped(const Machine& machine) {
  if (!machine.is_usable) MESSAGE("skipped: no NVRTC");
  return !machine.is_usable;
}

/// One head: q [5, 64], k and v [21, 64].
struct OneHead {
  Bf16Matrix q{5, kHeadDim, 1}, k{21, kHeadDim, 2}, v{21, kHeadDim, 3};
  FmhaArguments arguments(Machine& machine) const {
    return {.q = machine.upload(q),
            .k = machine.upload(k),
            .v = machine.upload(v),
            .batch = 1,
            .heads_q = 1,
            .heads_kv = 1,
            .seqlen_q = 5,
            .seqlen_k = 21};
  }
};

}  // namespace

TEST_CASE("library: attention is the same call on every target") {
  for (const char* const arch : {"sm_90a", "sm_100a", "sm_103a"}) {
    CAPTURE(arch);
    Machine machine(arch);
    if (is_skipped(machine)) return;
    const OneHead in;
    const auto kernel = machine.jit.kernel(Fmha{.arch = Arch::parse(arch), .head_dim = kHeadDim, .mask = Mask::causal});
    check(machine, kernel, in.arguments(machine),
          {in.q, in.k, in.v, [](std::int64_t row) { return range(0, row + 17); }});
  }
}

TEST_CASE("library: attention over keys of V side by side, in rows that are padded") {
  Machine machine("sm_100a");
  if (is_skipped(machine)) return;
  const OneHead in;
  const auto kernel =
      machine.jit.kernel(Fmha{.arch = Arch::parse("sm_100a"), .head_dim = kHeadDim, .v_layout = Layout::k_major});
  // [64, 24], of which 21 keys: NaNs behind them.
  std::vector<std::uint16_t> turned(kHeadDim * 24, 0xFFFF);
  for (std::size_t key = 0; key < 21; ++key)
    for (std::size_t d = 0; d < kHeadDim; ++d) turned[d * 24 + key] = in.v.bits[key * kHeadDim + d];
  FmhaArguments arguments = in.arguments(machine);
  arguments.v = machine.upload(turned);
  CHECK_THROWS_WITH_AS(check(machine, kernel, arguments, {in.q, in.k, in.v, {}}),
                       doctest::Contains("v_stride_dim must be a multiple of 8"), Error);
  arguments.v_stride_dim = 24;
  check(machine, kernel, arguments, {in.q, in.k, in.v, [](std::int64_t) { return range(0, 21); }});
}

TEST_CASE("library: a cap of scores is given, and is a positive number") {
  Machine machine("sm_90a");
  if (is_skipped(machine)) return;
  const OneHead in;
  const auto kernel = machine.jit.kernel(Fmha{.head_dim = kHeadDim, .softcap = Softcap::tanh});
  FmhaArguments arguments = in.arguments(machine);
  const auto refusal = [&] {
    try {
      check(machine, kernel, arguments, {in.q, in.k, in.v, [](std::int64_t) { return range(0, 21); }});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string rule = ": must be a positive number that fp32 holds";
  CHECK(refusal() == "softcap = nan" + rule);
  for (const auto& [cap, text] : {std::pair(0.0, "0"),
                                  {-2.0, "-2"},
                                  {1e39, "1e+39"},
                                  {1e-50, "1e-50"},
                                  {std::numeric_limits<double>::infinity(), "inf"}}) {
    arguments.softcap = cap;
    CHECK(refusal() == std::string("softcap = ") + text + rule);
  }
  arguments.softcap = 1000;  // which hardly bends these scores
  CHECK(refusal().empty());
}

TEST_CASE("library: windows, valid lengths and split keys of attention") {
  Machine machine("sm_103a");
  if (is_skipped(machine)) return;
  const OneHead in;
  const Arch arch = Arch::parse("sm_103a");
  FmhaArguments arguments = in.arguments(machine);
  arguments.window_size_left = 3;
  arguments.window_size_right = 1;
  check(machine, machine.jit.kernel(Fmha{.arch = arch, .head_dim = kHeadDim, .window = Window::sliding}), arguments,
        {in.q, in.k, in.v, [](std::int64_t row) { return range(row + 13, std::min<std::int64_t>(row + 18, 21)); }});

  arguments = in.arguments(machine);
  arguments.seqused_q = machine.upload(std::vector<std::int32_t>{3});
  arguments.seqused_k = machine.upload(std::vector<std::int32_t>{10});
  check(machine, machine.jit.kernel(Fmha{.arch = arch, .head_dim = kHeadDim, .seqused = UsedLengths::qk}), arguments,
        {in.q, in.k, in.v, [](std::int64_t row) { return range(0, row < 3 ? 10 : 0); }});

  arguments = in.arguments(machine);
  arguments.num_splits = 3;
  const auto split =
      machine.jit.kernel(Fmha{.arch = arch, .head_dim = kHeadDim, .tile_n = 32, .split_kv = SplitKv::on});
  CHECK(split.workspace_bytes(machine.device, arguments) == 3 * 5 * 4 * (64 + 2));
  check(machine, split, arguments, {in.q, in.k, in.v, [](std::int64_t) { return range(0, 21); }});
}

void check_pools(const char* arch) {
  Machine machine(arch);
  if (is_skipped(machine)) return;
  // Two queries of four heads; rows 0 to 29 of the pool, then the window's 12 keys.
  const Bf16Matrix q(8, kHeadDim, 1), k(42, kHeadDim, 2), v(42, kHeadDim, 3);
  const auto part = [&](const Bf16Matrix& rows, std::size_t first, std::size_t end) {
    return machine.upload(std::vector<std::uint16_t>(rows.bits.begin() + static_cast<std::ptrdiff_t>(first * kHeadDim),
                                                     rows.bits.begin() + static_cast<std::ptrdiff_t>(end * kHeadDim)));
  };
  const std::vector<std::int32_t> indices{3, -1, 29, 7, 0, 11};
  const auto kernel = machine.jit.kernel(Fmha{.arch = Arch::parse(arch),
                                              .head_dim = kHeadDim,
                                              .mask = Mask::causal,
                                              .kv_pools = KvPools::sparse_window,
                                              .pack_gqa = 4});
  FmhaArguments arguments{.q = machine.upload(q),
                          .k = part(k, 0, 30),
                          .v = part(v, 0, 30),
                          .batch = 1,
                          .heads_q = 4,
                          .heads_kv = 1,
                          .seqlen_q = 2,
                          .seqlen_k = 30};
  arguments.swa_k = part(k, 30, 42);
  arguments.swa_v = part(v, 30, 42);
  arguments.indices = machine.upload(indices);
  arguments.swa_lens = machine.upload(std::vector<std::int32_t>{9});
  arguments.sink = machine.upload(std::vector<float>(4, 0.5F));
  arguments.topk = 3;
  arguments.seqlen_swa = 12;
  check(machine, kernel, arguments,
        {q, k, v,
         [&](std::int64_t row) {
           const std::int64_t query = row / 4;
           std::vector<std::int64_t> keys = range(30, 30 + 8 + query);
           for (std::size_t i = 0; i < 3; ++i)
             if (const std::int32_t listed = indices[static_cast<std::size_t>(query) * 3 + i]; listed >= 0)
               keys.push_back(listed);
           return keys;
         },
         std::exp(0.5)});
}

TEST_CASE("library: attention over listed rows, a window and a sink") {
  for (const char* const arch : {"sm_90a", "sm_100a"}) check_pools(arch);
}

}  // namespace tessera::attention_test
