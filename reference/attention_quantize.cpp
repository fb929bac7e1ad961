#include "reference/attention_quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/quantize.h"
#include "spec/nvfp4_units.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

using nvfp4::kBlockRows;
using nvfp4::kGroup;

struct Sizes {
  std::int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_k;
  int head_dim;

  std::int64_t q_blocks() const { return ceil_div(seqlen_q, kBlockRows); }
  std::int64_t key_blocks() const { return ceil_div(seqlen_k, kBlockRows); }
};

Sizes sizes_of(const AttentionTensors& x) {
  const auto fits = [&](const TensorView& t) {
    return t.shape.size() == 4 && t.shape[0] == x.q.shape[0] && t.shape[3] == x.q.shape[3];
  };
  if (!fits(x.q) || !fits(x.k) || x.k.shape != x.v.shape || x.k.shape[2] == 0 || x.q.shape[2] % x.k.shape[2] != 0 ||
      !nvfp4::is_head_dim(static_cast<int>(x.q.shape[3])))
    throw Error(
        ErrorKind::usage,
        "q [batch, seqlen_q, heads_q, head_dim] and k, v [batch, seqlen_k, heads_kv, head_dim] must have shapes "
        "that fit each other, and head_dim 64 or 128");
  return {x.q.shape[0], x.q.shape[2], x.k.shape[2], x.q.shape[1], x.k.shape[1], static_cast<int>(x.q.shape[3])};
}

double number(const TensorView& t, std::int64_t batch, std::int64_t row, std::int64_t head, std::int64_t column) {
  return t.at(batch * t.strides[0] + row * t.strides[1] + head * t.strides[2] + column * t.strides[3]);
}

/// Sixteen numbers: their scale's code, and the codes of their values.
std::uint8_t quantize_group(const std::array<float, kGroup>& x, std::array<std::uint8_t, kGroup>& codes) {
  float amax = 0;
  for (const float value : x) amax = std::fmax(amax, std::fabs(value));
  const std::uint8_t scale = encode_ue4m3(amax / nvfp4::kLargestValue);
  const float d = decode_scale(ScaleType::ue4m3, scale);
  for (std::size_t i = 0; i < kGroup; ++i) codes[i] = d == 0 ? 0 : encode_value(ValueType::e2m1, x[i] / d);
  return scale;
}

std::uint8_t byte_at(const TensorView& t, std::int64_t at) { return std::to_integer<std::uint8_t>(t.data[at]); }

/// Of an operand: bytes of a unit and a block, and where a number and its scale lie in its unit. `row`: of a unit.
struct Layout {
  int unit_rows, unit_bytes, block_bytes;
  int (*word)(int head_dim, int row, int column);  ///< of the eight neighbours that have it
  int (*scale)(int head_dim, int row, int column);
  bool is_transposed;  ///< neighbours are keys
};
Layout layout_of(UnitOperand operand, int head_dim) {
  if (operand == UnitOperand::q)
    return {nvfp4::kRowsOfUnit,
            nvfp4::q_unit_bytes(head_dim),
            nvfp4::q_block_bytes(head_dim),
            [](int, int row, int column) { return nvfp4::q_word(row, column); },
            nvfp4::q_scale,
            false};
  const bool is_k = operand == UnitOperand::k;
  return {nvfp4::kKeysOfUnit,
          nvfp4::key_unit_bytes(head_dim),
          nvfp4::key_block_bytes(head_dim),
          is_k ? nvfp4::k_word : [](int, int key, int column) { return nvfp4::v_word(key, column); },
          is_k ? nvfp4::k_scale : nvfp4::v_scale,
          !is_k};
}

/// Block number `block` of the tensor's head, from x, whose rows behind `rows` are zeros.
template <class X>
void write_block(Tensor& units, UnitOperand operand, int head_dim, std::int64_t head, std::int64_t block, const X& x) {
  const Layout layout = layout_of(operand, head_dim);
  const std::int64_t base = (head * units.shape[1] + block) * layout.block_bytes;
  const auto put = [&](std::int64_t at, std::uint8_t value) {
    units.bytes[static_cast<std::size_t>(at)] |= static_cast<std::byte>(value);
  };
  const int along = layout.is_transposed ? kBlockRows : head_dim, across = layout.is_transposed ? head_dim : kBlockRows;
  for (int line = 0; line < across; ++line)
    for (int first = 0; first < along; first += kGroup) {
      std::array<float, kGroup> numbers{};
      std::array<std::uint8_t, kGroup> codes{};
      const auto place = [&](int i) {
        return layout.is_transposed ? std::pair(first + i, line) : std::pair(line, first + i);
      };
      for (int i = 0; i < kGroup; ++i) numbers[static_cast<std::size_t>(i)] = x(place(i).first, place(i).second);
      const std::uint8_t scale = quantize_group(numbers, codes);
      for (int i = 0; i < kGroup; ++i) {
        const auto [row, column] = place(i);
        const std::int64_t unit = base + row / layout.unit_rows * layout.unit_bytes;
        const int index = (layout.is_transposed ? row : column) % 8;
        if (i == 0) put(unit + layout.scale(head_dim, row % layout.unit_rows, column), scale);
        put(unit + layout.word(head_dim, row % layout.unit_rows, column) + index / 2,
            static_cast<std::uint8_t>(codes[static_cast<std::size_t>(i)] << (index % 2 * 4)));
      }
    }
}

void set_f32(Tensor& t, std::int64_t at, double value) { t.set(at, value); }

}  // namespace

QuantizedAttention attention_means(const AttentionTensors& x, bool smooths) {
  const Sizes s = sizes_of(x);
  QuantizedAttention means;
  Tensor q_mean(DType::f32, {s.heads_q, s.batch * s.q_blocks(), s.head_dim});
  Tensor k_mean(DType::f32, {s.heads_kv, s.batch, s.head_dim});
  const auto mean = [&](const TensorView& t, std::int64_t batch, std::int64_t head, std::int64_t column,
                        std::int64_t first, std::int64_t end) {
    double sum = 0;
    for (std::int64_t row = first; row < end; ++row) sum += number(t, batch, row, head, column);
    return end > first ? sum / static_cast<double>(end - first) : 0;
  };
  for (std::int64_t batch = 0; smooths && batch < s.batch; ++batch)
    for (std::int64_t column = 0; column < s.head_dim; ++column) {
      for (std::int64_t head = 0; head < s.heads_kv; ++head)
        set_f32(k_mean, (head * s.batch + batch) * s.head_dim + column, mean(x.k, batch, head, column, 0, s.seqlen_k));
      for (std::int64_t head = 0; head < s.heads_q; ++head)
        for (std::int64_t block = 0; block < s.q_blocks(); ++block)
          set_f32(q_mean, ((head * s.batch + batch) * s.q_blocks() + block) * s.head_dim + column,
                  mean(x.q, batch, head, column, block * kBlockRows,
                       std::min<std::int64_t>((block + 1) * kBlockRows, s.seqlen_q)));
    }
  means.emplace("q_mean", std::move(q_mean));
  means.emplace("k_mean", std::move(k_mean));
  return means;
}

QuantizedAttention quantize_attention(const AttentionTensors& x, QuantizedAttention means) {
  const Sizes s = sizes_of(x);
  QuantizedAttention made = std::move(means);
  const TensorView q_mean = made.at("q_mean").view(), k_mean = made.at("k_mean").view();
  const std::int64_t columns = s.key_blocks() * kBlockRows;
  Tensor q(DType::u8, {s.heads_q, s.batch * s.q_blocks(), nvfp4::q_block_bytes(s.head_dim)});
  Tensor k(DType::u8, {s.heads_kv, s.batch * s.key_blocks(), nvfp4::key_block_bytes(s.head_dim)});
  Tensor v = k;
  Tensor delta_s(DType::f32, {s.heads_q, s.batch * s.q_blocks(), columns});
  Tensor row_shift(DType::f32, {s.batch, s.heads_q, s.seqlen_q});
  const auto centred = [&](const TensorView& t, const TensorView& mean, std::int64_t mean_row, std::int64_t batch,
                           std::int64_t head, std::int64_t row, std::int64_t column, std::int64_t rows) {
    if (row >= rows) return 0.0F;
    return static_cast<float>(number(t, batch, row, head, column)) -
           static_cast<float>(mean.at(mean_row * s.head_dim + column));
  };
  for (std::int64_t batch = 0; batch < s.batch; ++batch) {
    for (std::int64_t head = 0; head < s.heads_kv; ++head)
      for (std::int64_t block = 0; block < s.key_blocks(); ++block) {
        const std::int64_t number_of_block = batch * s.key_blocks() + block;
        write_block(k, UnitOperand::k, s.head_dim, head, number_of_block, [&](int row, int column) {
          return centred(x.k, k_mean, head * s.batch + batch, batch, head, block * kBlockRows + row, column,
                         s.seqlen_k);
        });
        write_block(v, UnitOperand::v, s.head_dim, head, number_of_block, [&](int row, int column) {
          const std::int64_t key = block * kBlockRows + row;
          return key < s.seqlen_k ? static_cast<float>(number(x.v, batch, key, head, column)) : 0.0F;
        });
      }
    for (std::int64_t head = 0; head < s.heads_q; ++head) {
      const std::int64_t key_head = head / (s.heads_q / s.heads_kv), mean_row = key_head * s.batch + batch;
      for (std::int64_t block = 0; block < s.q_blocks(); ++block) {
        const std::int64_t row_of_block = (head * s.batch + batch) * s.q_blocks() + block;
        write_block(q, UnitOperand::q, s.head_dim, head, batch * s.q_blocks() + block, [&](int row, int column) {
          return centred(x.q, q_mean, row_of_block, batch, head, block * kBlockRows + row, column, s.seqlen_q);
        });
        for (std::int64_t key = 0; key < s.seqlen_k; ++key) {
          double sum = 0;
          for (std::int64_t column = 0; column < s.head_dim; ++column)
            sum += q_mean.at(row_of_block * s.head_dim + column) *
                   centred(x.k, k_mean, mean_row, batch, key_head, key, column, s.seqlen_k);
          set_f32(delta_s, row_of_block * columns + key, sum);
        }
      }
      for (std::int64_t row = 0; row < s.seqlen_q; ++row) {
        double sum = 0;
        for (std::int64_t column = 0; column < s.head_dim; ++column)
          sum += number(x.q, batch, row, head, column) * k_mean.at(mean_row * s.head_dim + column);
        set_f32(row_shift, (batch * s.heads_q + head) * s.seqlen_q + row, sum);
      }
    }
  }
  made.emplace("q_units", std::move(q));
  made.emplace("k_units", std::move(k));
  made.emplace("v_units", std::move(v));
  made.emplace("delta_s", std::move(delta_s));
  made.emplace("row_shift", std::move(row_shift));
  return made;
}

UnitHead decode_units(const TensorView& units, UnitOperand operand, std::int64_t head_dim, std::int64_t head,
                      std::int64_t first_block, std::int64_t rows) {
  const int columns = static_cast<int>(head_dim);
  const Layout layout = layout_of(operand, columns);
  UnitHead decoded{rows, head_dim, std::vector<float>(static_cast<std::size_t>(rows * head_dim))};
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t unit = (head * units.shape[1] + first_block + row / kBlockRows) * layout.block_bytes +
                              row % kBlockRows / layout.unit_rows * layout.unit_bytes;
    const int of_unit = static_cast<int>(row % layout.unit_rows);
    for (int column = 0; column < columns; ++column) {
      const int index = (layout.is_transposed ? of_unit : column) % 8;
      const std::uint8_t byte = byte_at(units, unit + layout.word(columns, of_unit, column) + index / 2);
      const std::uint8_t scale = byte_at(units, unit + layout.scale(columns, of_unit, column));
      decoded.values[static_cast<std::size_t>(row * head_dim + column)] =
          decode_value(ValueType::e2m1, byte >> (index % 2 * 4) & 15) * decode_scale(ScaleType::ue4m3, scale);
    }
  }
  return decoded;
}

Comparison check_attention_quantize(const AttentionTensors& x, const QuantizedAttention& found, int jobs) {
  const Sizes s = sizes_of(x);
  const QuantizedAttention exact = attention_means(x);
  // Codes follow from the means that were found.
  QuantizedAttention means;
  for (const char* const name : {"q_mean", "k_mean"}) means.emplace(name, found.at(name));
  const QuantizedAttention expected = quantize_attention(x, std::move(means));
  Comparison result;
  result.rows_checked = result.rows_total = s.batch * (s.seqlen_q * s.heads_q + 2 * s.seqlen_k * s.heads_kv);
  std::array<std::string, 7> problems;
  struct Output {
    const char* name;
    bool is_mean;
  };
  constexpr Output kOutputs[] = {{"q_units", false}, {"k_units", false}, {"v_units", false},  {"q_mean", true},
                                 {"k_mean", true},   {"delta_s", false}, {"row_shift", false}};
  ElementSums all[7];
  const auto magnitude = [](const TensorView& t, std::int64_t batch, std::int64_t head, std::int64_t column,
                            std::int64_t first, std::int64_t end) {
    double sum = 0;
    for (std::int64_t row = first; row < end; ++row) sum += std::fabs(number(t, batch, row, head, column));
    return sum;
  };
  const double products = (s.head_dim + 2) * kU;
  const auto bound_of = [&](std::string_view name, const Coordinates& at, double value) -> double {
    if (name == "q_mean") {
      const std::int64_t batch = at[1] / s.q_blocks(), first = at[1] % s.q_blocks() * kBlockRows;
      const std::int64_t end = std::min<std::int64_t>(first + kBlockRows, s.seqlen_q);
      return kBlockRows * kU * magnitude(x.q, batch, at[0], at[2], first, end) / static_cast<double>(end - first) +
             2 * kU * std::fabs(value);
    }
    if (name == "k_mean") {
      const auto additions = static_cast<double>(kBlockRows + s.key_blocks());
      return additions * kU * magnitude(x.k, at[1], at[0], at[2], 0, s.seqlen_k) /
                 static_cast<double>(std::max<std::int64_t>(s.seqlen_k, 1)) +
             2 * kU * std::fabs(value);
    }
    if (name == "delta_s") {
      if (at[2] >= s.seqlen_k) return 0;
      const std::int64_t batch = at[1] / s.q_blocks(), key_head = at[0] / (s.heads_q / s.heads_kv);
      double sum = 0;
      for (std::int64_t column = 0; column < s.head_dim; ++column)
        sum += std::fabs(found.at("q_mean").at((at[0] * s.batch * s.q_blocks() + at[1]) * s.head_dim + column) *
                         (number(x.k, batch, at[2], key_head, column) -
                          found.at("k_mean").at((key_head * s.batch + batch) * s.head_dim + column)));
      return products * sum;
    }
    if (name == "row_shift") {
      const std::int64_t key_head = at[1] / (s.heads_q / s.heads_kv);
      double sum = 0;
      for (std::int64_t column = 0; column < s.head_dim; ++column)
        sum += std::fabs(number(x.q, at[0], at[2], at[1], column) *
                         found.at("k_mean").at((key_head * s.batch + at[0]) * s.head_dim + column));
      return products * sum;
    }
    return 0;
  };
  parallel_for(7, jobs, [&](std::int64_t i) {
    const Output& output = kOutputs[i];
    const Tensor& is = found.at(output.name);
    const Tensor& should = output.is_mean ? exact.at(output.name) : expected.at(output.name);
    ElementSums& sums = all[i];
    if (is.shape != should.shape)
      throw Error(ErrorKind::usage, fmt::format("{} has another shape than its inputs ask for", output.name));
    for (std::int64_t at = 0; at < should.elements(); ++at) {
      Element element;
      element.at = {at / (is.shape[1] * is.shape[2]), at / is.shape[2] % is.shape[1], at % is.shape[2], 0, 0};
      element.found = is.at(at);
      element.expected = should.at(at);
      element.bound = bound_of(output.name, element.at, element.expected);
      element.expected_square = element.bound * element.bound;
      sums.add(element);
    }
    if (sums.mismatched == 0) return;
    const bool is_shift = output.name == std::string_view("row_shift");
    problems[static_cast<std::size_t>(i)] =
        describe_mismatches(output.name, sums,
                            {{is_shift ? "batch" : "heads", is.shape[0], {}},
                             {is_shift ? "heads_q" : "blocks", is.shape[1], {}},
                             {is_shift                                     ? "seqlen_q"
                              : output.name == std::string_view("delta_s") ? "keys"
                                                                           : "bytes",
                              is.shape[2],
                              {16, 512}}});
  });
  const ElementSums& main = all[5];
  result.rel_error = main.rel_error();
  result.rel_bound = main.rel_bound();
  result.max_abs_error = main.max_abs_error;
  result.cosine = main.cosine();
  result.mismatches = main.mismatches;
  for (std::string& problem : problems)
    if (!problem.empty()) result.problems.push_back(std::move(problem));
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
