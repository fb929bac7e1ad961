// How near attention of NVFP4 operands comes to attention of what they were made from: a table, computed on the CPU in
// float64 with every code as the kernels make it (reference/attention_quantize.h, fmha_nvfp4.h).
//
//   bench_nvfp4_accuracy [SEQLEN]    1,024 queries and keys of four heads by default
//
// Inputs: normal; heavy-tailed, Student's t with three degrees of freedom; and normal with outlier channels, four of
// q's and k's columns that are 10 or -10 more in all rows. V is normal, or heavy-tailed beside such q and k.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "reference/attention_quantize.h"
#include "reference/fmha.h"
#include "reference/fmha_nvfp4.h"
#include "reference/parallel.h"

namespace tessera::reference {
namespace {

enum class Kind { normal, heavy, outliers };
constexpr std::pair<Kind, const char*> kKinds[] = {
    {Kind::normal, "normal"}, {Kind::heavy, "heavy-tailed"}, {Kind::outliers, "outlier channels"}};
constexpr std::int64_t kHeads = 4, kRowStep = 8;

double number(const CounterRandom& random, std::uint64_t i, Kind kind) {
  const double normal = random.normal(4 * i);
  if (kind != Kind::heavy) return normal;
  double square = 0;
  for (std::uint64_t j = 1; j <= 3; ++j) square += std::pow(random.normal(4 * i + j), 2);
  return normal / std::sqrt(square / 3);
}

Tensor made(const FmhaSizes& s, std::int64_t rows, Kind kind, bool has_outliers, std::uint64_t stream) {
  Tensor tensor(DType::bf16, {1, rows, kHeads, s.head_dim});
  const CounterRandom random(7, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t column = i % s.head_dim;
    const double more =
        has_outliers && column % (s.head_dim / 4) == 3 ? (column / (s.head_dim / 4) % 2 == 0 ? 10 : -10) : 0;
    tensor.set(i, number(random, static_cast<std::uint64_t>(i), kind) + more);
  }
  return tensor;
}

/// Sums over all elements of what was compared.
struct Likeness {
  double dot = 0, square = 0, exact_square = 0, error_square = 0;
  void add(double value, double exact) {
    dot += value * exact;
    square += value * value;
    exact_square += exact * exact;
    error_square += (value - exact) * (value - exact);
  }
  std::string text() const {
    return fmt::format("{:.4f} / {:.3f}", dot / std::sqrt(square * exact_square),
                       std::sqrt(error_square / exact_square));
  }
};

/// A row of q' and k' as they were quantised, with P and V as they were.
std::vector<double> row_of_scores_alone(const UnitHead& q, const UnitHead& k, const Tensor& v, const Tensor& delta_s,
                                        const FmhaSizes& s, bool is_causal, std::int64_t head, std::int64_t row) {
  const std::int64_t end = is_causal ? row + 1 : s.seqlen_k;
  std::vector<double> p(static_cast<std::size_t>(end)), o(static_cast<std::size_t>(s.head_dim));
  double largest = -1e300, sum = 0;
  const std::int64_t blocks = ceil_div(s.seqlen_q, 128), columns = ceil_div(s.seqlen_k, 128) * 128;
  for (std::int64_t key = 0; key < end; ++key) {
    double score = delta_s.at((head * blocks + row / 128) * columns + key);
    for (std::int64_t c = 0; c < s.head_dim; ++c) score += static_cast<double>(q.row(row)[c]) * k.row(key)[c];
    p[static_cast<std::size_t>(key)] = score / std::sqrt(static_cast<double>(s.head_dim));
    largest = std::max(largest, p[static_cast<std::size_t>(key)]);
  }
  for (double& value : p) sum += value = std::exp(value - largest);
  for (std::int64_t key = 0; key < end; ++key)
    for (std::int64_t c = 0; c < s.head_dim; ++c)
      o[static_cast<std::size_t>(c)] +=
          p[static_cast<std::size_t>(key)] / sum * v.at((key * kHeads + head) * s.head_dim + c);
  return o;
}

void print_line(Kind kind, const char* name, int head_dim, bool is_causal, std::int64_t seqlen) {
  const FmhaSizes s{1, kHeads, kHeads, seqlen, seqlen, head_dim};
  const Kind of_values = kind == Kind::outliers ? Kind::normal : kind;
  const Tensor q = made(s, seqlen, of_values, kind == Kind::outliers, 1);
  const Tensor k = made(s, seqlen, of_values, kind == Kind::outliers, 2);
  const Tensor v = made(s, seqlen, of_values, false, 3);
  FmhaCheck exact;
  exact.facts.head_dim = exact.facts.head_dim_v = head_dim;
  exact.facts.mask = is_causal ? Mask::causal : Mask::none;
  exact.softmax_scale = 1 / std::sqrt(static_cast<double>(head_dim));
  Nvfp4Check check;
  check.mask = exact.facts.mask;
  check.seqlen_k = seqlen;
  check.softmax_scale = exact.softmax_scale;
  std::string line = fmt::format("| {} | {} | {}", name, head_dim, is_causal ? "causal" : "none");
  for (const bool is_alone : {false, true})
    for (const bool smooths : {true, false}) {
      const AttentionTensors x{q.view(), k.view(), v.view()};
      const QuantizedAttention of = quantize_attention(x, attention_means(x, smooths));
      const Nvfp4Inputs in{of.at("q_units").view(), of.at("k_units").view(), of.at("v_units").view(),
                           of.at("delta_s").view(), of.at("row_shift").view()};
      std::array<Likeness, kHeads> heads;
      parallel_for(kHeads, 0, [&](std::int64_t head) {
        std::vector<std::int64_t> rows;
        for (std::int64_t row = 3; row < seqlen; row += kRowStep) rows.push_back(row);
        const UnitHead q_head = decode_units(in.q, UnitOperand::q, head_dim, head, 0, seqlen);
        const UnitHead k_head = decode_units(in.k, UnitOperand::k, head_dim, head, 0, seqlen);
        const auto quantized =
            is_alone ? std::vector<std::vector<double>>{} : fmha_nvfp4_rows(in, s, check, 0, head, rows);
        for (std::size_t i = 0; i < rows.size(); ++i) {
          const FmhaRow wanted = fmha_row({x.q, x.k, x.v}, exact, 0, head, rows[i]);
          const std::vector<double> found =
              is_alone ? row_of_scores_alone(q_head, k_head, v, of.at("delta_s"), s, is_causal, head, rows[i])
                       : quantized[i];
          for (std::size_t c = 0; c < found.size(); ++c)
            heads[static_cast<std::size_t>(head)].add(found[c], wanted.o[c]);
        }
      });
      Likeness all;
      for (const Likeness& one : heads) {
        all.dot += one.dot;
        all.square += one.square;
        all.exact_square += one.exact_square;
        all.error_square += one.error_square;
      }
      line += " | " + all.text();
    }
  fmt::print("{} |\n", line);
}

}  // namespace
}  // namespace tessera::reference

int main(int argc, char** argv) {
  using namespace tessera::reference;
  const std::int64_t seqlen = argc > 1 ? std::atoll(argv[1]) : 1024;
  fmt::print("| inputs | head_dim | mask | Q, K, P, V | without smoothing | Q, K alone | without smoothing |\n");
  fmt::print("|---|---|---|---|---|---|---|\n");
  for (const auto& [kind, name] : kKinds)
    for (const int head_dim : {64, 128})
      for (const bool is_causal : {false, true}) print_line(kind, name, head_dim, is_causal, seqlen);
}
