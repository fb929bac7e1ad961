#include "generator/attention/attention_quantize_cost.h"

#include <algorithm>
#include <cmath>

namespace tessera::attention_quantize {

namespace {

// Instructions of a lane, without moves: of an element of q; of one of k and of v together; and of a column of delta_s,
// for each key and block of queries. Counted in the emulator over 128 and 256 keys, 128 to 512 queries and 8 or 16
// heads, within 0.3 %: of head_dim 64; of 128 there are 7 % fewer. The assembler may need fewer.
constexpr double kIssueOfQuery = 25.1, kIssueOfKey = 46.5, kIssueOfMean = 2.26;
// Bytes of shared memory: keys without their mean, written and read; a factor of a mean's.
constexpr double kSmemOfKey = 8.5, kSmemOfMean = 1;
constexpr double kUnitBytes = 9.0 / 16;  // of an element: four bits and its share of a scale
constexpr double kStartCycles = 5000;    // of each step
constexpr double kUncovered = 0.1;       // of what the greater of computing and memory does not cover
constexpr Hint kUsualLength = 4096, kUsualHeads = 32;

double size_of(Hint hint, Hint usual) { return static_cast<double>(hint < 0 ? usual : std::max<Hint>(hint, 1)); }

}  // namespace

AttentionQuantizeCost attention_quantize_cost(const attention_quantize::Config& c, const AttentionQuantize& p,
                                              const MmaDevice& device) {
  const double batch = size_of(p.batch, 1), heads_q = size_of(p.heads_q, kUsualHeads);
  const double heads_kv = p.heads_kv < 0 ? heads_q : size_of(p.heads_kv, 1);
  // Ragged: of all sequences together. A mean's block then has its own sequence's keys.
  const bool has_ragged_queries = c.q_layout == QueryLayout::ragged, has_ragged_keys = c.kv_layout == KvLayout::ragged;
  const double queries = size_of(p.seqlen_q, kUsualLength) * (has_ragged_queries ? 1 : batch);
  const double of_sequence = size_of(p.seqlen_k, kUsualLength);
  const double keys = has_ragged_keys && p.tokens_k > 0 ? static_cast<double>(p.tokens_k) : of_sequence * batch;
  const double q_elements = queries * heads_q * c.head_dim, k_elements = keys * heads_kv * c.head_dim;
  const double blocks = heads_q * std::max(std::ceil(queries / nvfp4::kBlockRows), batch);
  const double pairs = blocks * keys / batch;  // of delta_s

  AttentionQuantizeCost cost;
  cost.work.issue =
      (q_elements * kIssueOfQuery + k_elements * kIssueOfKey + pairs * c.head_dim * kIssueOfMean) / kMmaIssuePerCycle;
  cost.work.smem = (k_elements * kSmemOfKey + pairs * c.head_dim * kSmemOfMean) / kMmaSmemBytesPerCycle;
  // q and k are read twice: for means, and to be quantised.
  const double read = 2.0 * (2 * q_elements + 3 * k_elements), written = (q_elements + 2 * k_elements) * kUnitBytes;
  cost.work.l2 = (read + written + 4 * pairs) / device.l2_bytes;
  cost.work.memory_bytes = read + written + 4 * (pairs + queries * heads_q);

  const double ctas = blocks + 2 * heads_kv * std::max(std::ceil(keys / nvfp4::kBlockRows), batch);
  const double computed = std::max({cost.work.issue, cost.work.smem, cost.work.l2}) / std::min(ctas, device.device.sms);
  const double memory = cost.work.memory_bytes / device.memory_bytes;
  cost.us = (3 * kStartCycles + std::max(computed, memory) + kUncovered * std::min(computed, memory)) /
            device.device.clock_ghz / 1000;
  return cost;
}

}  // namespace tessera::attention_quantize
