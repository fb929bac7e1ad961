// A shared prefix as a caller of the library has it: attention of all queries over the prefix, attention of each
// sequence over its own keys, and a merge of both, which equals attention over all keys. On the emulator's device.
#include "tessera/merge.h"

#include <doctest/doctest.h>

#include <cmath>

#include "tessera/emulator/device.h"
#include "tests/support/bf16.h"
#include "tests/support/ptx_compiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera::merge_test {
namespace {

constexpr std::int64_t kHeadDim = 64, kHeads = 2, kPrefix = 37, kSequences = 4;
// Queries of each sequence and keys of its own. The second has no more than the prefix.
constexpr std::int64_t kQueries[kSequences] = {4, 1, 6, 0}, kKeys[kSequences] = {9, 0, 21, 5};
constexpr std::int64_t kTokens = 11, kOwnKeys = 35;

using testing::Bf16Matrix;
using testing::from_bf16;

struct Machine {
  testing::TemporaryFolder folder{};
  emulator::EmulatedDevice device{{.detects_races = true}};
  Jit jit{{.cache_dir = folder.path}};

  template <class T>
  DevicePointer upload(const std::vector<T>& values) {
    const DevicePointer pointer = device.allocate(values.size() * sizeof(T));
    device.copy_to_device(pointer, values.data(), values.size() * sizeof(T));
    return pointer;
  }
  DevicePointer poisoned(std::int64_t bytes) {
    const DevicePointer pointer = device.allocate(static_cast<std::size_t>(bytes));
    device.poison(pointer, 0xFF, static_cast<std::size_t>(bytes));
    return pointer;
  }
};

/// One key head: q [tokens, heads, 64]; keys of the prefix, and of all sequences one behind the other.
struct Inputs {
  Bf16Matrix q{kTokens * kHeads, kHeadDim, 1};
  Bf16Matrix prefix_k{kPrefix, kHeadDim, 2}, prefix_v{kPrefix, kHeadDim, 3}, own_k{kOwnKeys, kHeadDim, 4},
      own_v{kOwnKeys, kHeadDim, 5};
  std::vector<float> sink{0.7F, -1.2F};
};

struct Expected {
  std::vector<double> o, lse;  // [tokens, heads, 64], [heads, tokens]
};

/// Attention of every query over the prefix and what it sees of its sequence's own keys.
Expected expected_of(const Inputs& in) {
  Expected result;
  result.o.resize(kTokens * kHeads * kHeadDim);
  result.lse.resize(kHeads * kTokens);
  std::int64_t token = 0, first_key = 0;
  for (std::int64_t sequence = 0; sequence < kSequences; ++sequence) {
    for (std::int64_t query = 0; query < kQueries[sequence]; ++query, ++token)
      for (std::int64_t head = 0; head < kHeads; ++head) {
        double sum = 0;
        double* const o = result.o.data() + (token * kHeads + head) * kHeadDim;
        const auto add = [&](const Bf16Matrix& k, const Bf16Matrix& v, std::int64_t key) {
          double score = 0;
          for (std::int64_t d = 0; d < kHeadDim; ++d) score += in.q.at(token * kHeads + head, d) * k.at(key, d);
          const double weight = std::exp(score / 8);
          sum += weight;
          for (std::int64_t d = 0; d < kHeadDim; ++d) o[d] += weight * v.at(key, d);
        };
        for (std::int64_t key = 0; key < kPrefix; ++key) add(in.prefix_k, in.prefix_v, key);
        for (std::int64_t key = 0; key <= query + kKeys[sequence] - kQueries[sequence]; ++key)
          add(in.own_k, in.own_v, first_key + key);
        const double whole = sum + std::exp(static_cast<double>(in.sink[static_cast<std::size_t>(head)]));
        for (std::int64_t d = 0; d < kHeadDim; ++d) o[d] /= whole;
        result.lse[static_cast<std::size_t>(head * kTokens + token)] = std::log(sum);
      }
    first_key += kKeys[sequence];
  }
  return result;
}

std::vector<std::int32_t> starts_of(const std::int64_t (&lengths)[kSequences]) {
  std::vector<std::int32_t> starts{0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + static_cast<std::int32_t>(length));
  return starts;
}

}  // namespace

TEST_CASE("library: a shared prefix is attention over it, attention over the rest, and a merge") {
  Machine machine;
  if (!testing::compiles_to_ptx(machine.jit)) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  const Inputs in;
  const DevicePointer q = machine.upload(in.q.bits);
  // Room for both parts: [2, tokens, heads, 64] and [2, heads, tokens].
  constexpr std::int64_t kPartBytes = kTokens * kHeads * kHeadDim * 2, kLseBytes = kHeads * kTokens * 4;
  const DevicePointer o_parts = machine.poisoned(2 * kPartBytes), lse_parts = machine.poisoned(2 * kLseBytes);

  // All queries as one sequence over the prefix, which they see whole.
  const auto over_prefix = machine.jit.kernel(Fmha{.head_dim = kHeadDim});
  over_prefix.launch(machine.device, {},
                     {.q = q,
                      .k = machine.upload(in.prefix_k.bits),
                      .v = machine.upload(in.prefix_v.bits),
                      .o = o_parts,
                      .lse = lse_parts,
                      .batch = 1,
                      .heads_q = kHeads,
                      .heads_kv = 1,
                      .seqlen_q = kTokens,
                      .seqlen_k = kPrefix});
  // Each sequence over its own keys. Its queries stand at their end, so causal means what it does over all keys.
  const auto over_rest = machine.jit.kernel(
      Fmha{.head_dim = kHeadDim, .mask = Mask::causal, .q_layout = QueryLayout::ragged, .kv_layout = KvLayout::ragged});
  over_rest.launch(machine.device, {},
                   {.q = q,
                    .k = machine.upload(in.own_k.bits),
                    .v = machine.upload(in.own_v.bits),
                    .o = o_parts + kPartBytes,
                    .lse = lse_parts + kLseBytes,
                    .cu_seqlens_q = machine.upload(starts_of(kQueries)),
                    .cu_seqlens_k = machine.upload(starts_of(kKeys)),
                    .batch = kSequences,
                    .heads_q = kHeads,
                    .heads_kv = 1,
                    .seqlen_q = kTokens,
                    .seqlen_k = kOwnKeys,
                    .tokens_k = kOwnKeys});
  // Sinks count once: where parts are joined.
  const MergeKernel merge{machine.jit.kernel(Merge{.head_dim_v = kHeadDim, .sink = Sink::per_head, .parts = 2})};
  const DevicePointer o = machine.poisoned(kPartBytes), lse = machine.poisoned(kLseBytes);
  merge.launch(machine.device, {},
               {.o_parts = o_parts,
                .lse_parts = lse_parts,
                .o = o,
                .lse = lse,
                .sink = machine.upload(in.sink),
                .parts = 2,
                .heads_q = kHeads,
                .seqlen_q = kTokens});
  for (const Finding& finding : machine.device.synchronize()) FAIL_CHECK(finding.message);

  const Expected expected = expected_of(in);
  std::vector<std::uint16_t> found(expected.o.size());
  machine.device.copy_to_host(found.data(), o, 2 * found.size());
  std::vector<float> found_lse(expected.lse.size());
  machine.device.copy_to_host(found_lse.data(), lse, 4 * found_lse.size());
  int wrong = 0;
  // Roundings of P, of the parts and of o, each 2^-9 of at most about 3.
  for (std::size_t i = 0; i < found.size(); ++i)
    wrong += std::fabs(from_bf16(found[i]) - expected.o[i]) <= 0.02 ? 0 : 1;
  CHECK(wrong == 0);
  // Scores of head_dim 64 in fp32: see fmha_bound.h.
  for (std::size_t i = 0; i < found_lse.size(); ++i)
    CHECK(static_cast<double>(found_lse[i]) == doctest::Approx(expected.lse[i]).epsilon(1e-5));
}

}  // namespace tessera::merge_test
