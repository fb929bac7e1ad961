// Attention in NVFP4 as a caller of the library has it: attention_quantize of bf16 tensors, then attention of what it
// wrote, near attention of the tensors themselves. On the emulator's device.
#include <doctest/doctest.h>

#include <cmath>
#include <random>

#include "tessera/attention_quantize.h"
#include "tessera/emulator/device.h"
#include "tests/support/bf16.h"
#include "tests/support/ptx_compiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera::nvfp4_attention_test {
namespace {

constexpr std::int64_t kHeadDim = 64, kHeads = 2, kQueries = 9, kKeys = 200;

using testing::from_bf16;

/// Rows of kHeadDim numbers in bf16, with a column that all have in common.
std::vector<std::uint16_t> rows_of(std::int64_t rows, float common, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> made;
  for (std::int64_t i = 0; i < rows * kHeadDim; ++i) {
    const float value = normal(random) + (i % kHeadDim == 7 ? common : 0);
    made.push_back(testing::to_bf16(value));
  }
  return made;
}

}  // namespace

TEST_CASE("library: attention in NVFP4 is attention_quantize, and attention of what it wrote") {
  const testing::TemporaryFolder folder;
  emulator::EmulatedDevice device{{.arch = "sm_120a", .detects_races = true}};
  Jit jit{{.cache_dir = folder.path}};
  if (!testing::compiles_to_ptx(jit)) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  const auto upload = [&](const std::vector<std::uint16_t>& values) {
    const DevicePointer pointer = device.allocate(2 * values.size());
    device.copy_to_device(pointer, values.data(), 2 * values.size());
    return pointer;
  };
  const auto poisoned = [&](std::int64_t bytes) {
    const DevicePointer pointer = device.allocate(static_cast<std::size_t>(bytes));
    device.poison(pointer, 0xFF, static_cast<std::size_t>(bytes));
    return pointer;
  };
  const Arch arch = Arch::parse("sm_120a");
  const std::vector<std::uint16_t> q = rows_of(kQueries * kHeads, 20, 1), k = rows_of(kKeys, 20, 2),
                                   v = rows_of(kKeys, 0, 3);
  constexpr std::int64_t kKeyBlocks = (kKeys + 127) / 128, kBlockBytes = 72 * kHeadDim;
  AttentionQuantizeArguments a{.q = upload(q), .k = upload(k), .v = upload(v)};
  a.q_units = poisoned(kHeads * kBlockBytes);
  a.k_units = poisoned(kKeyBlocks * kBlockBytes);
  a.v_units = poisoned(kKeyBlocks * kBlockBytes);
  a.q_mean = poisoned(kHeads * kHeadDim * 4);
  a.k_mean = poisoned(kHeadDim * 4);
  a.delta_s = poisoned(kHeads * kKeyBlocks * 128 * 4);
  a.row_shift = poisoned(kHeads * kQueries * 4);
  a.heads_q = kHeads;
  a.heads_kv = 1;
  a.seqlen_q = kQueries;
  a.seqlen_k = kKeys;
  const AttentionQuantizeKernel quantize(jit.kernel(AttentionQuantize{.arch = arch, .head_dim = kHeadDim}));
  a.workspace_bytes = quantize.workspace_bytes(device, a);
  a.workspace = poisoned(a.workspace_bytes);
  quantize.launch(device, {}, a);

  const DevicePointer o = poisoned(kQueries * kHeads * kHeadDim * 2), lse = poisoned(kHeads * kQueries * 4);
  const auto attention = jit.kernel(Fmha{.arch = arch, .head_dim = kHeadDim, .format = BlockFormat::nvfp4});
  attention.launch(device, {},
                   {.q = a.q_units,
                    .k = a.k_units,
                    .v = a.v_units,
                    .o = o,
                    .lse = lse,
                    .delta_s = a.delta_s,
                    .row_shift = a.row_shift,
                    .batch = 1,
                    .heads_q = kHeads,
                    .heads_kv = 1,
                    .seqlen_q = kQueries,
                    .seqlen_k = kKeys});
  for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.message);

  std::vector<std::uint16_t> found(kQueries * kHeads * kHeadDim);
  std::vector<float> found_lse(kHeads * kQueries);
  device.copy_to_host(found.data(), o, 2 * found.size());
  device.copy_to_host(found_lse.data(), lse, 4 * found_lse.size());
  double dot = 0, square = 0, found_square = 0, lse_error = 0;
  for (std::int64_t row = 0; row < kQueries * kHeads; ++row) {  // queries outside, heads inside
    double sum = 0;
    std::vector<double> exact(kHeadDim);
    for (std::int64_t key = 0; key < kKeys; ++key) {
      double score = 0;
      for (std::int64_t c = 0; c < kHeadDim; ++c)
        score += from_bf16(q[static_cast<std::size_t>(row * kHeadDim + c)]) *
                 from_bf16(k[static_cast<std::size_t>(key * kHeadDim + c)]);
      const double weight = std::exp(score / 8 - 50);  // the common column alone makes 400 of the score
      sum += weight;
      for (std::int64_t c = 0; c < kHeadDim; ++c)
        exact[static_cast<std::size_t>(c)] += weight * from_bf16(v[static_cast<std::size_t>(key * kHeadDim + c)]);
    }
    for (std::int64_t c = 0; c < kHeadDim; ++c) {
      const double is = from_bf16(found[static_cast<std::size_t>(row * kHeadDim + c)]);
      const double should = exact[static_cast<std::size_t>(c)] / sum;
      dot += is * should;
      found_square += is * is;
      square += should * should;
    }
    const float is_lse = found_lse[static_cast<std::size_t>(row % kHeads * kQueries + row / kHeads)];
    lse_error = std::max(lse_error, std::fabs(is_lse - (std::log(sum) + 50)));
  }
  CHECK(dot / std::sqrt(square * found_square) > 0.97);
  CHECK(lse_error < 0.3);
}

}  // namespace tessera::nvfp4_attention_test
