#include "reference/gemm_suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "reference/number.h"
#include "reference/product_finishes.h"
#include "reference/product_suspects.h"
#include "tessera/spec/operand_type.h"

namespace tessera::reference {

namespace {

using I = std::int64_t;

constexpr I kStepBytes = 128;  // of k: a slot of the ring
constexpr I kChunkBytes = 32;  // of k: one instruction
constexpr I kMostSteps = 64;   // that are looked at one by one
constexpr int kFastBits = 13;  // fraction bits of sums of 8-bit products
constexpr I kFastGroup = 32;   // products of one instruction

/// The factor of a block of one operand, or of the nearest that there is.
double factor_at(const BlockFactors& of, I matrix, I row_block, I step) {
  const TensorView& f = of.factors;
  const I row = std::clamp<I>(row_block, 0, f.shape[1] - 1), of_k = std::clamp<I>(step, 0, f.shape[2] - 1);
  return f.at(matrix * f.strides[0] + row * f.strides[1] + of_k * f.strides[2]);
}

/// Which factor a row and an element of k take.
using FactorPlace = std::pair<I, I>;  // block of rows, block of k
using Moved = std::function<FactorPlace(I row_block, I step)>;

using Factor = std::function<double(const Coordinates& at, I row_of_b, I k)>;

Factor factor_of(const GemmInputs& in, Moved of_a, Moved of_b) {
  if (!in.sfa || !in.sfb) return {};
  return [a = *in.sfa, b = *in.sfb, of_a = std::move(of_a), of_b = std::move(of_b)](const Coordinates& at, I row_of_b,
                                                                                    I k) {
    FactorPlace place_a{at[1] / a.rows, k / kScaleBlock}, place_b{row_of_b / b.rows, k / kScaleBlock};
    if (of_a) place_a = of_a(place_a.first, place_a.second);
    if (of_b) place_b = of_b(place_b.first, place_b.second);
    return factor_at(a, at[0], place_a.first, place_a.second) * factor_at(b, at[0], place_b.first, place_b.second);
  };
}

OperandType type_of(DType dtype) {
  return dtype == DType::bf16   ? OperandType::bf16
         : dtype == DType::f16  ? OperandType::f16
         : dtype == DType::e5m2 ? OperandType::e5m2
                                : OperandType::e4m3;
}

OperandSource source_of(const TensorView& view) {
  return {.type = type_of(view.dtype), .values = view, .scales = {}, .k = view.shape[2]};
}

/// Sums of 8-bit products that are never promoted, as the tensor cores cut them.
double fast_sum(const OperandSource& a, const OperandSource& b, const Coordinates& at, I row_of_b) {
  const auto cut = [](double x, double unit) { return std::trunc(x / unit) * unit; };
  double sum = 0;
  for (I first = 0; first < a.k; first += kFastGroup) {
    double terms[kFastGroup];
    const I count = std::min(kFastGroup, a.k - first);
    double largest = std::fabs(sum);
    for (I i = 0; i < count; ++i) {
      terms[i] = a.value(at[0], at[1], first + i) * b.value(at[0], row_of_b, first + i);
      largest = std::max(largest, std::fabs(terms[i]));
    }
    if (largest == 0) continue;
    const double unit = std::ldexp(1.0, std::ilogb(largest) - kFastBits);
    sum = cut(sum, unit);
    for (I i = 0; i < count; ++i) sum += cut(terms[i], unit);
    if (sum != 0) sum = cut(sum, std::ldexp(1.0, std::ilogb(sum) - kFastBits));
  }
  return sum;
}

class GemmBuilder {
 public:
  GemmBuilder(const GemmInputs& in, const GemmCheck& check, DType d_dtype) : in_(in), check_(check) {
    const auto bytes = dtype_bytes(in.a.dtype);
    product_.a = source_of(in.a);
    product_.b = source_of(in.b);
    product_.has_gate = check.gate_turn() > 0;
    product_.rows = in.a.shape[1];
    product_.columns = in.b.shape[1] / (product_.has_gate ? 2 : 1);
    const auto tile = [](const TensorView& view, I rows) { return view.strides[2] == 1 ? rows : 0; };
    product_.steps = {.step = kStepBytes / bytes,
                      .chunk = kChunkBytes / bytes,
                      .split_k = check.split_k,
                      .bits = static_cast<int>(8 * bytes),
                      .tile_a = tile(in.a, check.tile_m),
                      .tile_b = tile(in.b, check.tile_n)};
    const auto bias_of = [&](bool is_up) -> OfColumn {  // of a gate's columns
      if (!in.bias) return {};
      return [bias = *in.bias, turn = in_turn(check.gate_turn()), is_up](I column) {
        return bias.at(turn(column, is_up) * bias.strides[0]);
      };
    };
    product_.finishes = product_.has_gate ? finishes_of_gate(check, check.alpha, bias_of(false), bias_of(true))
                                          : finishes_of_sum(in, check, {.alpha = check.alpha});
    // 8-bit sums are cut to 13 fraction bits between promotions.
    const bool is_8_bit = bytes == 1;
    const double relative = 2 * unit_roundoff(d_dtype) + (product_.has_gate ? 1e-3 : 2e-6);
    const double of_sums = is_8_bit ? check.facts.accumulation == Accumulation::promoted ? 1e-4 : 1e-3 : 1e-5;
    const double least = half_subnormal(d_dtype), size = std::fabs(check.alpha);
    product_.slack = [=](double result, double magnitude) {
      return relative * std::fabs(result) + of_sums * size * magnitude + least;
    };
    product_.factor = factor_of(in, {}, {});
    if (product_.has_gate) product_.row_of_b = in_turn(check.gate_turn());
  }

  std::vector<Suspect> build(const std::vector<OtherOperands>& others) {
    if (in_.sfa && in_.sfb) factors();
    if (dtype_bytes(in_.a.dtype) == 1 && check_.facts.accumulation == Accumulation::promoted && !product_.has_gate)
      promotion();
    for (const OtherOperands& other : others) {
      ProductSuspectInputs wrong = product_;
      wrong.a = source_of(other.inputs.a);
      wrong.b = source_of(other.inputs.b);
      wrong.factor = factor_of(other.inputs, {}, {});
      add(other.cause, wrong);
    }
    // Before all that an operand may lose at its end.
    if (const I rest = product_.a.k % product_.steps.step; rest != 0 && rest < product_.a.k) {
      const I last = product_.a.k - rest;
      add(fmt::format("the last step of k (from {} on) is missing", last),
          counted([=](I k) { return k < last ? 1 : 0; }));
    }
    std::vector<Suspect> general = product_suspects(product_);
    list_.insert(list_.end(), general.begin(), general.end());
    single_steps();
    tiles();
    if (product_.has_gate) turns();
    return std::move(list_);
  }

 private:
  static std::function<I(I, bool)> in_turn(I together) {
    return [=](I column, bool is_up) {
      return column / together * 2 * together + column % together + (is_up ? together : 0);
    };
  }

  void add(std::string cause, const ProductSuspectInputs& wrong) {
    list_.push_back({std::move(cause), product_guess(wrong)});
  }

  void factors() {
    const auto with = [&](std::string cause, Moved of_a, Moved of_b) {
      ProductSuspectInputs wrong = product_;
      wrong.factor = factor_of(in_, std::move(of_a), std::move(of_b));
      add(std::move(cause), wrong);
    };
    const auto without = [&](const char* cause, bool has_a, bool has_b) {
      ProductSuspectInputs wrong = product_;
      GemmInputs in = in_;
      wrong.factor = [a = *in.sfa, b = *in.sfb, has_a, has_b](const Coordinates& at, I row_of_b, I k) {
        return (has_a ? factor_at(a, at[0], at[1] / a.rows, k / kScaleBlock) : 1) *
               (has_b ? factor_at(b, at[0], row_of_b / b.rows, k / kScaleBlock) : 1);
      };
      add(cause, wrong);
    };
    without("factors of a (sfa) do not count (all are taken as 1)", false, true);
    without("factors of b (sfb) do not count (all are taken as 1)", true, false);
    without("factors of blocks do not count (all are taken as 1)", false, false);
    const auto moved = [](I rows, I steps) {
      return [=](I row, I step) { return FactorPlace(row + rows, step + steps); };
    };
    const auto fixed = [](I step) { return [=](I row, I) { return FactorPlace(row, step); }; };
    const auto each = [&](const std::string& text, const Moved& of) {
      with(fmt::format(fmt::runtime(text), "a (sfa)"), of, {});
      with(fmt::format(fmt::runtime(text), "b (sfb)"), {}, of);
      with(fmt::format(fmt::runtime(text), "a and b"), of, of);
    };
    each("blocks of k take the factor of {} of the next 128", moved(0, 1));
    each("blocks of k take the factor of {} of the 128 before", moved(0, -1));
    each("all of k takes the factors of {} of its first 128", fixed(0));
    const auto of_rows = [&](const BlockFactors& of, const char* name, bool is_b) {
      const char* const unit = of.rows == 1 ? "row" : "128 rows";
      for (const I distance : {I{1}, I{-1}, I{2}, I{-2}, I{8}, I{-8}, I{64}, I{-64}, I{128}, I{-128}}) {
        if (of.rows > 1 && std::abs(distance) > 2) continue;
        const std::string cause =
            std::abs(distance) == 1
                ? fmt::format("{} takes the factor of {} of the {} {}", unit, name, unit,
                              distance > 0 ? "behind" : "before")
                : fmt::format("{} takes the factor of {} {} {} {}", unit, name, std::abs(distance),
                              of.rows == 1 ? "rows" : "squares", distance > 0 ? "behind" : "before");
        with(cause, is_b ? Moved{} : Moved(moved(distance, 0)), is_b ? Moved(moved(distance, 0)) : Moved{});
      }
      const auto first = [](I, I step) { return FactorPlace(0, step); };
      with(fmt::format("every {} takes the factor of {} of the first", unit, name), is_b ? Moved{} : Moved(first),
           is_b ? Moved(first) : Moved{});
      const I tile = std::max<I>(1, (is_b ? check_.tile_n : check_.tile_m) / of.rows);
      if (tile == 1) return;
      const auto of_tile = [=](I row, I step) { return FactorPlace(row / tile * tile, step); };
      with(fmt::format("every {} takes the factor of {} of the first of its tile", unit, name),
           is_b ? Moved{} : Moved(of_tile), is_b ? Moved(of_tile) : Moved{});
    };
    of_rows(*in_.sfa, "a (sfa)", false);
    of_rows(*in_.sfb, "b (sfb)", true);
  }

  void promotion() {
    if (in_.sfa || check_.split_k > 1) return;
    list_.push_back({"sums are not promoted: they stay in the tensor cores, with 13 fraction bits, for all of k",
                     [p = std::make_shared<ProductSuspectInputs>(product_)](const Coordinates& at) {
                       const double sum = fast_sum(p->a, p->b, at, at[2]);
                       const double result = p->finishes[0].apply(sum, 0, at);
                       return Guess{result, p->slack(result, std::fabs(sum))};
                     }});
  }

  /// The product whose elements of k count so often.
  ProductSuspectInputs counted(std::function<double(I k)> times) const {
    ProductSuspectInputs wrong = product_;
    wrong.factor = [of = product_.factor, times = std::move(times)](const Coordinates& at, I row_of_b, I k) {
      return times(k) * (of ? of(at, row_of_b, k) : 1);
    };
    return wrong;
  }

  void single_steps() {
    const I step = product_.steps.step, most = std::min((product_.a.k + step - 1) / step, kMostSteps);
    for (const int times : {0, 2})
      for (I of = 0; of < most; ++of)
        add(fmt::format("the step of k from {} to {} {}", of * step, std::min((of + 1) * step, product_.a.k) - 1,
                        times == 0 ? "is missing" : "counts twice"),
            counted([=](I k) { return k / step == of ? times : 1; }));
  }

  /// Right numbers at the place of another tile, where tiles are no power of two.
  void tiles() {
    const auto moved = [&](std::size_t axis, I distance, const char* name) {
      const I extent = axis == 1 ? product_.rows : product_.columns;
      list_.push_back({fmt::format("a tile holds what belongs to the tile {} along {}",
                                   distance > 0 ? "behind it" : "before it", name),
                       [guess = product_guess(product_), axis, distance, extent](const Coordinates& at) {
                         Coordinates from = at;
                         from[axis] += distance;
                         if (from[axis] < 0 || from[axis] >= extent)
                           return Guess{std::numeric_limits<double>::infinity(), -1};
                         return guess(from);
                       }});
    };
    const I columns = check_.tile_n / (product_.has_gate ? 2 : 1);
    for (const I sign : {I{1}, I{-1}}) {
      moved(1, sign * check_.tile_m, "m");
      moved(2, sign * columns, "n");
    }
  }

  void turns() {
    for (const I other : {1, 2, 4, 8, 16, 32, 64, 128}) {
      if (other == check_.gate_turn() || in_.b.shape[1] % (2 * other) != 0) continue;
      ProductSuspectInputs wrong = product_;
      wrong.row_of_b = in_turn(other);
      add(fmt::format("gate and up are taken in turns of {}, interleave is {}", other, check_.gate_turn()), wrong);
    }
  }

  const GemmInputs& in_;
  const GemmCheck& check_;
  ProductSuspectInputs product_;
  std::vector<Suspect> list_;
};

}  // namespace

std::vector<Suspect> gemm_suspects(const GemmInputs& inputs, const GemmCheck& check, DType d_dtype,
                                   const std::vector<OtherOperands>& others) {
  return GemmBuilder(inputs, check, d_dtype).build(others);
}

}  // namespace tessera::reference
