#include "reference/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "reference/mhc_coefficients.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/quantize.h"
#include "spec/row_facts.h"
#include "tessera/error.h"
#include "tessera/row_chain.h"

namespace tessera::reference {

namespace {

constexpr double kTurnError = 0x1p-20, kRoot = 0x1p-22;
constexpr double kAnyZero = 0x1p-140;  // a sum of zeros has the sign that its order gives it
constexpr double kMixRoundings = 6;
double adds_of_row(std::int64_t columns) {
  return std::max(96.0, std::ceil(static_cast<double>(columns) / 1024)) + 5 + 32;
}

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::gelu:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)));
    case Activation::silu:
      return x / (1 + std::exp(-x));  // of -inf NaN, as the quotient is
    case Activation::none:
      break;
  }
  return x;
}

double activation_error(Activation activation, double x, double result) {
  switch (activation) {
    case Activation::gelu:
      return 8 * kU * std::fabs(x);
    case Activation::gelu_tanh:
      return (4.1e-6 + 8 * kU) * std::fabs(x);
    case Activation::silu:
      return 16 * kU * std::fabs(result) * std::max(1.0, std::fabs(x)) + 0x1p-120;
    default:
      return 0;
  }
}

class Walk {
 public:
  Walk(const RowsRun& run, const std::map<std::string, Tensor>& in, std::int64_t row)
      : run_(run), in_(in), row_(row), names_(row_step_names(run.chain)) {
    load();
  }

  void step(int number) {
    const RowStep& s = run_.chain.steps[number];
    const RowStepNames& names = names_[static_cast<std::size_t>(number)];
    switch (s.kind) {
      case RowPart::residual:
        for (std::int64_t i = first(s); i <= last(s); ++i)
          set(i, v(i) + tensor(names.in).at(row_ * width(s) + i - first(s)), e(i), kU);
        break;
      case RowPart::factor:
        for (std::int64_t i = first(s); i <= last(s); ++i) {
          const double f = tensor(names.in).at(row_);
          set(i, v(i) * f, e(i) * std::fabs(f), kU);
        }
        break;
      case RowPart::rmsnorm:
        normalise(s, names);
        break;
      case RowPart::layernorm:
        subtract_mean(s);
        normalise(s, names);
        break;
      case RowPart::rope:
        turn(s, names);
        break;
      case RowPart::hadamard:
        transform(s);
        break;
      case RowPart::softcap:
      case RowPart::sigmoid:
      case RowPart::sqrt_softplus:
        change_elements(s);
        break;
      case RowPart::softmax:
        softmax(s);
        break;
      case RowPart::mhc_mix:
        mix_coefficients(s, names);
        break;
      default:
        break;
    }
  }

  RowValues take() { return std::move(values_); }

 private:
  std::int64_t first(const RowStep& s) const { return s.first; }
  std::int64_t last(const RowStep& s) const { return last_column(s, static_cast<int>(run_.columns)); }
  std::int64_t width(const RowStep& s) const { return last(s) - first(s) + 1; }
  const Tensor& tensor(const std::string& name) const { return in_.at(name); }
  double v(std::int64_t i) const { return values_.v[static_cast<std::size_t>(i)]; }
  double e(std::int64_t i) const { return values_.e[static_cast<std::size_t>(i)]; }
  /// error: of what it was made of; roundings: of the result.
  void set(std::int64_t i, double value, double error, double roundings) {
    values_.v[static_cast<std::size_t>(i)] = value;
    values_.e[static_cast<std::size_t>(i)] = std::isfinite(value) ? error + roundings * std::fabs(value) : 0;
  }

  void load() {
    values_.v.assign(static_cast<std::size_t>(run_.columns), 0);
    values_.e.assign(static_cast<std::size_t>(run_.columns), 0);
    std::int64_t row = row_;
    if (has_part(run_.chain, RowPart::gather)) row = static_cast<std::int64_t>(tensor("indices").at(row_));
    const RowPart source = source_of(run_.chain);
    const bool has_row = row >= 0 && !(has_part(run_.chain, RowPart::gather) && row >= run_.x_rows);
    // Of no row, a mix of streams is one of zeros: below zero where all coefficients are.
    if (!has_row && source != RowPart::mhc_pre && source != RowPart::mhc_post) return;
    const auto number = static_cast<std::size_t>(source_step(run_.chain));
    if (source == RowPart::combine) return load_combined(run_.chain.steps[number], names_[number]);
    if (source == RowPart::compress) return load_compressed(run_.chain.steps[number], names_[number]);
    if (source == RowPart::dequant) return load_dequantized(run_.chain.steps[number], names_[number], row);
    if (source == RowPart::gate) return load_gated(run_.chain.steps[number], row);
    if (source == RowPart::mhc_pre) return load_mixed(run_.chain.steps[number], names_[number], has_row ? row : -1);
    if (source == RowPart::mhc_post) return load_remixed(run_.chain.steps[number], names_[number], has_row ? row : -1);
    const std::int64_t of_x = source == RowPart::join ? run_.chain.steps[number].first : run_.columns;
    for (std::int64_t i = 0; i < run_.columns; ++i)
      set(i, i < of_x ? tensor("x").at(row * of_x + i) : tensor("x2").at(row * (run_.columns - of_x) + i - of_x), 0, 0);
  }

  void load_gated(const RowStep& gate, std::int64_t row) {
    const Tensor& x = tensor("x");
    const std::int64_t start = row * 2 * run_.columns;
    for (std::int64_t i = 0; i < run_.columns; ++i) {
      double g = x.at(start + (gate.is_interleaved ? 2 * i : i));
      double up = x.at(start + (gate.is_interleaved ? 2 * i + 1 : run_.columns + i));
      if (gate.limit > 0) {
        g = std::isnan(g) ? gate.limit : std::min<double>(g, gate.limit);
        up = std::isnan(up) ? gate.limit : std::clamp<double>(up, -gate.limit, gate.limit);
      }
      if (gate.is_gpt_oss) {
        const double made = g / (1 + std::exp(-1.702 * g));
        set(i, made * (up + 1), activation_error(Activation::silu, 1.702 * g, made) * std::fabs(up + 1), 2 * kU);
        continue;
      }
      const double activation = activated(gate.activation, g);
      set(i, activation * up, activation_error(gate.activation, g, activation) * std::fabs(up), kU);
    }
  }

  /// The row of x that a list names, negative for none.
  std::int64_t named_row(const std::string& list, std::int64_t at) const {
    const auto row = static_cast<std::int64_t>(tensor(list).at(at));
    return row < run_.x_rows ? row : -1;
  }

  void load_combined(const RowStep& s, const RowStepNames& names) {
    for (std::int64_t i = 0; i < run_.columns; ++i) {
      double sum = 0, magnitude = 0;
      for (std::int64_t j = 0; j < s.block; ++j) {
        const std::int64_t row = named_row(names.in, row_ * s.block + j);
        if (row < 0) continue;
        const double part =
            (s.has_weight ? tensor(names.in2).at(row_ * s.block + j) : 1) * tensor("x").at(row * run_.columns + i);
        sum += part;
        magnitude += std::fabs(part);
      }
      set(i, sum, (s.block + 1) * kU * magnitude, 0);
    }
  }

  void load_compressed(const RowStep& s, const RowStepNames& names) {
    const std::int64_t of_row = source_columns(run_.chain, run_.columns), tokens = compressed_tokens(s);
    for (std::int64_t i = 0; i < run_.columns; ++i) {
      std::vector<double> score, value;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const std::int64_t row = named_row(names.in3, row_ * tokens + t);
        if (row < 0) continue;
        const std::int64_t column = i + (s.overlaps && t >= s.block ? run_.columns : 0);
        score.push_back(tensor(names.in).at(row * of_row + column) +
                        tensor(names.in2).at(t % s.block * of_row + column));
        value.push_back(tensor("x").at(row * of_row + column));
      }
      add_entry(i, score, value);
    }
  }

  /// Column i of an entry of these tokens; without any it is 0.
  void add_entry(std::int64_t i, const std::vector<double>& score, const std::vector<double>& value) {
    const double most = score.empty() ? 0 : *std::max_element(score.begin(), score.end());
    const auto n = static_cast<double>(score.size());
    double sum = 0, weighted = 0, mean_error = 0, error = 0, magnitude = 0;
    for (std::size_t t = 0; t < score.size(); ++t) {
      // A score of -inf is a token that is not there, also where no other is.
      const double share = std::isinf(score[t]) && score[t] < 0 ? 0 : std::exp(score[t] - most);
      if (share == 0) continue;
      const double relative = std::expm1(2 * kU * (std::fabs(score[t]) + std::fabs(most)) + 4 * kU * (most - score[t]) +
                                         (n / 4 + 2) * (0x1p-21 + 2 * kU) + (n + 2) * kU);
      sum += share;
      weighted += share * value[t];
      magnitude += share * std::fabs(value[t]);
      mean_error += share * relative;
      error += share * std::fabs(value[t]) * relative;
    }
    if (sum == 0) return set(i, 0, 0, 0);
    set(i, weighted / sum, 1.02 * (error / sum + magnitude / sum * (mean_error / sum + kRoot)) + 0x1p-120, 2 * kU);
  }

  void load_dequantized(const RowStep& s, const RowStepNames& names, std::int64_t row) {
    const std::int64_t of_scale = !s.is_e4m3 ? block_elements(s.format) : s.block > 0 ? s.block : run_.columns;
    const std::int64_t blocks = run_.columns / of_scale;
    const std::int64_t rows = has_part(run_.chain, RowPart::gather) ? run_.x_rows : run_.rows;
    const Tensor &x = tensor("x"), &scales = tensor(names.in);
    const double global = s.has_global ? tensor(names.in2).at(0) : 1;
    for (std::int64_t i = 0; i < run_.columns; ++i) {
      const std::int64_t block = i / of_scale;
      if (s.is_e4m3) {
        const std::int64_t at = s.block < 0         ? 0
                                : s.is_column_major ? block * scale_rows(s, rows) + row
                                                    : row * blocks + block;
        set(i, x.at(row * run_.columns + i) * scales.at(at), 0, kU);
        continue;
      }
      const std::int64_t element = row * run_.columns + i;
      const auto byte = static_cast<std::uint8_t>(
          x.bytes[static_cast<std::size_t>(value_bits(s.format) == 8 ? element : element / 2)]);
      const std::uint8_t code = value_bits(s.format) == 8 ? byte : element % 2 == 0 ? byte & 0xF : byte >> 4;
      const auto scale = static_cast<std::uint8_t>(
          scales.bytes[static_cast<std::size_t>(scale_offset(s.form, rows, blocks, 0, row, block))]);
      set(i, decode_value(value_type(s.format), code) * decode_scale(scale_type(s.format), scale) * global, 0,
          s.has_global ? 2 * kU : 0);
    }
  }

  double mix(const std::string& name, std::int64_t column) const {
    return tensor(name).at(row_ * kMixColumns + column);
  }

  void load_mixed(const RowStep& step, const RowStepNames& names, std::int64_t row) {
    if (step.has_product) {
      const MixCoefficients made = mix_of_products(run_, in_, names, step, row_);
      values_.mix = made.v;
      values_.mix_errors = made.e;
    }
    for (std::int64_t i = 0; i < run_.columns; ++i) {
      double sum = 0, magnitude = 0, error = 0;
      for (std::int64_t s = 0; s < kStreams; ++s) {
        const double stream = row < 0 ? 0 : tensor("x").at((row * kStreams + s) * run_.columns + i);
        const double part = stream * (step.has_product ? values_.mix[static_cast<std::size_t>(s)] : mix(names.in, s));
        sum = s == 0 ? part : sum + part;  // four zeros below zero are one
        magnitude += std::fabs(part);
        if (step.has_product) error += std::fabs(stream) * values_.mix_errors[static_cast<std::size_t>(s)];
      }
      set(i, sum, kMixRoundings * kU * magnitude + error, 0);
    }
  }

  /// The streams that are stored lie behind each other; the mix of them is the row. A negative row of x is zeros.
  void load_remixed(const RowStep& step, const RowStepNames& names, std::int64_t row) {
    values_.streams.resize(static_cast<std::size_t>(kStreams * run_.columns));
    values_.stream_errors = values_.streams;
    for (std::int64_t i = 0; i < run_.columns; ++i) {
      double mixed = 0, error = 0;
      for (std::int64_t to = 0; to < kStreams; ++to) {
        const double made = row < 0 ? 0 : tensor("x").at(row * run_.columns + i);
        double sum = mix(names.in2, kMixPost + to) * made;
        double magnitude = std::fabs(sum);
        for (std::int64_t s = 0; s < kStreams; ++s) {
          const double part = mix(names.in2, kMixComb + s * kStreams + to) *
                              tensor(names.in).at((row_ * kStreams + s) * run_.columns + i);
          sum += part;
          magnitude += std::fabs(part);
        }
        const auto at = static_cast<std::size_t>(to * run_.columns + i);
        values_.streams[at] = sum;
        values_.stream_errors[at] = std::isfinite(sum) ? kMixRoundings * kU * magnitude : 0;
        const double weight = step.has_product ? 0 : mix(names.in3, to);
        mixed += weight * sum;
        error += std::fabs(weight) * (values_.stream_errors[at] + kMixRoundings * kU * std::fabs(sum));
      }
      set(i, mixed, error, 0);
    }
  }

  void change_elements(const RowStep& s) {
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      const double x = v(i);
      if (s.kind == RowPart::softcap) {
        set(i, s.limit * std::tanh(x / s.limit), e(i) + 8 * kU * s.limit, 0);
        continue;
      }
      const bool is_sigmoid = s.kind == RowPart::sigmoid;
      const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
      const double value = is_sigmoid ? 1 / (1 + std::exp(-x)) : std::sqrt(softplus);
      // Both have slopes below 1, and below their own value times 1.
      const double slack = (value == 0 ? 0 : 16 * kU * value * std::max(1.0, std::fabs(x))) + 0x1p-120;
      set(i, value, std::min(e(i), value * std::expm1(e(i))) + slack + (is_sigmoid ? 0 : softplus_root_slack(softplus)),
          0);
    }
  }

  void mix_coefficients(const RowStep& s, const RowStepNames& names) {
    MixFacts facts{.eps = run_.eps, .hidden = s.hidden, .iterations = s.iterations};
    facts.squares = tensor(names.in).at(row_);
    const MixCoefficients made = mhc_coefficients(values_, tensor(names.in2), tensor(names.in3), facts);
    values_.v = made.v;
    values_.e = made.e;
  }

  void softmax(const RowStep& s) {
    double most = -std::numeric_limits<double>::infinity(), of_input = 0, sum = 0;
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      most = std::max(most, v(i));
      of_input = std::max(of_input, e(i));
    }
    double spread = 0;
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      const double share = std::exp(v(i) - most);
      sum += share;
      if (share > 0) spread += share * 3 * kU * (most - v(i));
    }
    const double of_sum = std::expm1(2 * of_input) + spread / sum + adds_of_row(run_.columns) * kU + 0x1p-21;
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      const double p = std::exp(v(i) - most) / sum;
      const double below = p == 0 ? 0 : most - v(i);
      set(i, p, p * 1.01 * (of_sum + std::expm1(2 * of_input) + 3 * kU * below + 0x1p-21) + 0x1p-120, 0);
    }
  }

  void subtract_mean(const RowStep& s) {
    double sum = 0, magnitude = 0, error = 0;
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      sum += v(i);
      magnitude += std::fabs(v(i));
      error += e(i);
    }
    const auto n = static_cast<double>(width(s));
    const double of_mean = ((adds_of_row(run_.columns) + 2) * kU * magnitude + error) / n;
    for (std::int64_t i = first(s); i <= last(s); ++i) set(i, v(i) - sum / n, e(i) + of_mean, kU);
  }

  void normalise(const RowStep& s, const RowStepNames& names) {
    double squares = 0, error = 0;
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      squares += v(i) * v(i);
      error += 2 * std::fabs(v(i)) * e(i) + e(i) * e(i);
    }
    const auto n = static_cast<double>(width(s));
    const double mean = squares / n + run_.eps;
    const double of_mean = ((adds_of_row(run_.columns) + 3) * kU * squares + error) / n + 2 * kU * mean;
    // A sum of squares that no fp32 number holds is infinite, and the row zeros.
    const bool overflows = squares > static_cast<double>(std::numeric_limits<float>::max());
    const double inverse = overflows ? 0 : 1 / std::sqrt(mean);
    // Of 1 / root(mean +- of_mean), whichever side is farther.
    const double low = std::max(mean - of_mean, 0x1p-140);
    const double relative = overflows ? 0 : (1 / std::sqrt(low) - inverse) / inverse + kRoot;
    for (std::int64_t i = first(s); i <= last(s); ++i) {
      const double weight =
          (s.has_weight ? tensor(names.in).at(i - first(s)) : 1) + (s.has_weight && s.adds_one ? 1 : 0);
      const double value = v(i) * inverse * weight;
      const double of_value =
          std::fabs(value) * (relative * 1.01 + 4 * kU) + std::fabs(inverse * weight) * (1 + relative) * e(i);
      const bool has_bias = s.kind == RowPart::layernorm;
      set(i, has_bias ? value + tensor(names.in2).at(i - first(s)) : value, of_value, has_bias ? kU : 0);
    }
  }

  void turn(const RowStep& s, const RowStepNames& names) {
    const double position = tensor("positions").at(row_ / run_.heads);
    const std::int64_t half = width(s) / 2;
    const double magnitude = rope_magnitude(s);
    for (std::int64_t pair = 0; pair < half; ++pair) {
      if (s.has_table) {
        const auto row = static_cast<std::int64_t>(position);
        const bool is_there = row >= 0 && row < run_.table_rows;
        const double sine = is_there ? tensor(names.in).at(row * width(s) + half + pair) : 0;
        turn_pair(s, pair, is_there ? tensor(names.in).at(row * width(s) + pair) : 1, s.is_inverse ? -sine : sine, 0);
        continue;
      }
      const double angle = std::remainder(position * rope_frequency(s, width(s), pair), 2 * std::numbers::pi);
      const double cosine = magnitude * std::cos(angle);
      const double sine = magnitude * (s.is_inverse ? -std::sin(angle) : std::sin(angle));
      const double of_turn = magnitude * (kTurnError + std::fabs(position) * 0x1p-45) + 0x1p-52 * std::fabs(position);
      turn_pair(s, pair, cosine, sine, of_turn);
    }
  }

  /// of_turn: what cosine and sine may err by.
  void turn_pair(const RowStep& s, std::int64_t pair, double cosine, double sine, double of_turn) {
    const std::int64_t a = first(s) + (s.is_halves ? pair : 2 * pair), b = s.is_halves ? a + width(s) / 2 : a + 1;
    const double va = v(a), vb = v(b), ea = e(a), eb = e(b);
    const double turned = of_turn * (std::fabs(va) + std::fabs(vb) + ea + eb);
    const double in_a = std::fabs(va * cosine), in_b = std::fabs(vb * sine);
    set(a, va * cosine - vb * sine, turned + std::fabs(cosine) * ea + std::fabs(sine) * eb + 3 * kU * (in_a + in_b), 0);
    set(b, vb * cosine + va * sine,
        turned + std::fabs(cosine) * eb + std::fabs(sine) * ea +
            3 * kU * (std::fabs(vb * cosine) + std::fabs(va * sine)),
        0);
  }

  void transform(const RowStep& s) {
    const double norm = 1 / std::sqrt(static_cast<double>(s.block));
    const int stages = s.block == 64 ? 6 : s.block == 128 ? 7 : 8;
    for (std::int64_t block = first(s); block <= last(s); block += s.block) {
      std::vector<double> sums(static_cast<std::size_t>(s.block), 0);
      double magnitude = 0, error = 0;
      for (std::int64_t j = 0; j < s.block; ++j) {
        magnitude += std::fabs(v(block + j));
        error += e(block + j);
        for (std::int64_t i = 0; i < s.block; ++i) {
          const bool is_odd = __builtin_parityll(static_cast<unsigned long long>(i & j)) != 0;
          sums[static_cast<std::size_t>(i)] += is_odd ? -v(block + j) : v(block + j);
        }
      }
      for (std::int64_t i = 0; i < s.block; ++i)
        set(block + i, sums[static_cast<std::size_t>(i)] * norm,
            norm * ((stages + 2) * kU * magnitude + error) + kAnyZero, 0);
    }
  }

  const RowsRun& run_;
  const std::map<std::string, Tensor>& in_;
  std::int64_t row_;
  std::vector<RowStepNames> names_;
  RowValues values_;
};

}  // namespace

double rope_frequency(const RowStep& step, std::int64_t columns, std::int64_t pair) {
  const double plain = std::pow(step.base, -2.0 * static_cast<double>(pair) / static_cast<double>(columns));
  const double slow = plain / step.stretch;
  const double wave_length = 2 * std::numbers::pi / plain;
  if (step.scaling == RopeScaling::none) return plain;
  if (step.scaling == RopeScaling::linear) return slow;
  if (step.scaling == RopeScaling::llama3) {
    const double low_wave = static_cast<double>(step.trained) / step.low;
    const double high_wave = static_cast<double>(step.trained) / step.high;
    if (wave_length < high_wave) return plain;
    if (wave_length > low_wave) return slow;
    const double smooth = (step.trained / wave_length - step.low) / (step.high - step.low);
    return (1 - smooth) * slow + smooth * plain;
  }
  const auto dimension = [&](double rotations) {
    return static_cast<double>(columns) * std::log(step.trained / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(step.base));
  };
  const double low = std::max(0.0, std::floor(dimension(step.high)));
  const double high = std::min(static_cast<double>(columns - 1), std::ceil(dimension(step.low)));
  const double ramp = std::clamp((static_cast<double>(pair) - low) / (high == low ? 0.001 : high - low), 0.0, 1.0);
  return slow * ramp + plain * (1 - ramp);
}

double rope_magnitude(const RowStep& step) {
  const double forward =
      step.magnitude == kYarnMagnitude ? 1 + 0.1 * std::log(static_cast<double>(step.stretch)) : step.magnitude / 1e6;
  return step.is_inverse ? 1 / forward : forward;
}

RowValues rows_reference(const RowsRun& run, const std::map<std::string, Tensor>& in, std::int64_t row, int count) {
  Walk walk(run, in, row);
  for (int i = 0; i < count; ++i) walk.step(i);
  return walk.take();
}

}  // namespace tessera::reference
