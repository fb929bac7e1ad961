// A mistake is a way to fetch values or scales of one operand. Each is tried on a, on b and on both; the sums are those
// of float64. What is tried first is named first where several give the same numbers.
#include "reference/product_suspects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

namespace tessera::reference {

namespace {

/// The mistake at each operand; null: none.
struct Mistakes {
  const Mistake *a = nullptr, *b = nullptr, *b2 = nullptr;
};

/// Nothing that a result could be.
constexpr Guess kNoGuess{std::numeric_limits<double>::infinity(), -1};

struct Sum {
  double value = 0, magnitude = 0;
};

double fetch(const OperandSource& from, const Place& at, const Mistake* mistake) {
  const double value =
      mistake != nullptr && mistake->value ? mistake->value(from, at) : from.value(at.matrix, at.row, at.k);
  if (!is_block_scaled(from.type)) return value;
  return value * (mistake != nullptr && mistake->scale
                      ? mistake->scale(from, at)
                      : from.scale_at(from.scale_place(at.matrix, at.row, at.k / from.block())));
}

Sum sum_of(const OperandSource& a, const OperandSource& b, const Coordinates& at, std::int64_t row_of_b,
           const Mistake* of_a, const Mistake* of_b, const std::function<bool(std::int64_t)>& counts,
           const std::function<double(const Coordinates&, std::int64_t, std::int64_t)>& factor) {
  Sum sum;
  for (std::int64_t k = 0; k < a.k; ++k) {
    if (counts && !counts(k)) continue;
    const double product = fetch(a, {at[0], at[1], k}, of_a) * fetch(b, {at[0], row_of_b, k}, of_b);
    const double term = factor ? product * factor(at, row_of_b, k) : product;
    sum.value += term;
    sum.magnitude += std::fabs(term);
  }
  return sum;
}

Guess guess(const ProductSuspectInputs& in, const Coordinates& at, const Mistakes& mistakes,
            const std::function<bool(std::int64_t)>& counts, std::size_t finish) {
  const auto row_of_b = [&](bool is_up) { return in.row_of_b ? in.row_of_b(at[2], is_up) : at[2]; };
  const Sum sum = sum_of(in.a, in.b, at, row_of_b(false), mistakes.a, mistakes.b, counts, in.factor);
  Sum up;
  if (in.has_gate)
    up = in.b2 ? sum_of(in.a, *in.b2, at, row_of_b(true), mistakes.a, mistakes.b2, counts, in.factor)
               : sum_of(in.a, in.b, at, row_of_b(true), mistakes.a, mistakes.b, counts, in.factor);
  const double result = in.finishes[finish].apply(sum.value, up.value, at);
  return {result, in.slack(result, std::max(sum.magnitude, up.magnitude))};
}

class Builder {
 public:
  explicit Builder(const ProductSuspectInputs& inputs) : in_(std::make_shared<ProductSuspectInputs>(inputs)) {}

  std::vector<Suspect> build() {
    finishes();
    of_operands(operand_mistakes(in_->a, in_->steps, in_->steps.tile_a),
                operand_mistakes(in_->b, in_->steps, in_->steps.tile_b));
    if (in_->b2) second_product();
    parts_of_k();
    places();
    if (is_block_scaled(in_->a.type)) scales_behind_k();
    return std::move(list_);
  }

 private:
  void add(std::string cause, const Mistake* of_a, const Mistake* of_b, const Mistake* of_b2,
           std::function<bool(std::int64_t)> counts = {}, std::size_t finish = 0) {
    const auto copy = [](const Mistake* m) { return m == nullptr ? nullptr : std::make_shared<Mistake>(*m); };
    list_.push_back({std::move(cause), [in = in_, a = copy(of_a), b = copy(of_b), b2 = copy(of_b2),
                                        counts = std::move(counts), finish](const Coordinates& at) {
                       return guess(*in, at, {a.get(), b.get(), b2.get()}, counts, finish);
                     }});
  }

  void finishes() {
    for (std::size_t i = 1; i < in_->finishes.size(); ++i)
      add(in_->finishes[i].cause, nullptr, nullptr, nullptr, {}, i);
  }

  void of_operands(const std::vector<Mistake>& of_a, const std::vector<Mistake>& of_b) {
    const auto text = [](const Mistake& m, const char* operand) { return fmt::format(fmt::runtime(m.text), operand); };
    const bool is_dual = in_->b2.has_value();
    for (const Mistake& m : of_a)
      add(text(m, m.is_order_within_block && !is_dual ? "one operand (a or b)" : "a"), &m, nullptr, nullptr);
    for (const Mistake& m : of_b) {
      if (is_dual) {
        add(text(m, "b and b2"), nullptr, &m, &m);
        add(text(m, "b2"), nullptr, nullptr, &m);
      }
      add(text(m, "b"), nullptr, &m, nullptr);
    }
    for (const Mistake& a : of_a)
      for (const Mistake& b : of_b)
        if (a.text == b.text) add(text(a, is_dual ? "a, b and b2" : "a and b"), &a, &b, is_dual ? &b : nullptr);
  }

  void second_product() {
    const auto at_b = [in = in_](bool takes_values) {
      return [=](const OperandSource& from, const Place& at) {
        return takes_values ? in->b.value(at.matrix, at.row, at.k)
                            : in->b.scale_at(in->b.scale_place(at.matrix, at.row, at.k / from.block()));
      };
    };
    const Mistake values{"", at_b(true), {}},
        both{"", at_b(true), is_block_scaled(in_->b.type) ? at_b(false) : Fetch{}};
    if (is_block_scaled(in_->b.type)) {
      const Mistake scales{"", {}, at_b(false)};
      add("b2 takes the scales of b", nullptr, nullptr, &scales);
    }
    add("b2 takes the values of b", nullptr, nullptr, &values);
    add("both products are with b", nullptr, nullptr, &both);
  }

  void parts_of_k() {
    const std::int64_t step = in_->steps.step, chunk = in_->steps.chunk, k = in_->a.k;
    const std::int64_t last = (k - 1) / step * step;
    add(fmt::format("of each {} of k only the first {} count (one instruction of a step)", step, chunk), nullptr,
        nullptr, nullptr, [=](std::int64_t i) { return i % step < chunk; });
    add("the last instruction of each step is missing", nullptr, nullptr, nullptr,
        [=](std::int64_t i) { return i % step < step - chunk; });
    if (k <= step) return;
    add(fmt::format("the last step of k (from {} on) is missing", last), nullptr, nullptr, nullptr,
        [=](std::int64_t i) { return i < last; });
    add("only the last step of k counts: sums do not accumulate", nullptr, nullptr, nullptr,
        [=](std::int64_t i) { return i >= last; });
    add("only the first step of k counts", nullptr, nullptr, nullptr, [=](std::int64_t i) { return i < step; });
    add("the first step of k is missing", nullptr, nullptr, nullptr, [=](std::int64_t i) { return i >= step; });
    add("every second step of k is missing", nullptr, nullptr, nullptr,
        [=](std::int64_t i) { return i / step % 2 == 0; });
    if (const std::int64_t parts = in_->steps.split_k; parts > 1) {
      const auto begin = [=](std::int64_t part) {  // as the kernel deals steps
        const std::int64_t all = ceil_div(k, step);
        return (all / parts * part + std::min(all % parts, part)) * step;
      };
      for (std::int64_t part = 0; part < parts; ++part) {
        add(fmt::format("part {} of the {} that k is split into is missing", part, parts), nullptr, nullptr, nullptr,
            [=](std::int64_t i) { return i < begin(part) || i >= begin(part + 1); });
        add(fmt::format("part {} alone of the {} that k is split into counts", part, parts), nullptr, nullptr, nullptr,
            [=](std::int64_t i) { return i >= begin(part) && i < begin(part + 1); });
        ProductSuspectInputs alone = *in_;
        alone.factor = [old = in_->factor, first = begin(part), end = begin(part + 1), parts](
                           const Coordinates& at, std::int64_t row_of_b, std::int64_t i) {
          if (i < first || i >= end) return 0.0;
          return static_cast<double>(parts) * (old ? old(at, row_of_b, i) : 1);
        };
        list_.push_back({fmt::format("part {} of the {} that k is split into counts {} times, the others never", part,
                                     parts, parts),
                         product_guess(alone)});
      }
    }
    add("k beyond its last whole step is missing", nullptr, nullptr, nullptr,
        [=](std::int64_t i) { return i < k / step * step; });
  }

  /// Right numbers at wrong places.
  void places() {
    const auto moved = [&](std::string cause, std::size_t axis, std::function<std::int64_t(std::int64_t)> f) {
      const std::int64_t extent = axis == 1 ? in_->rows : in_->columns;
      list_.push_back({std::move(cause), [in = in_, axis, extent, f = std::move(f)](const Coordinates& at) {
                         Coordinates from = at;
                         from[axis] = f(at[axis]);
                         if (from[axis] < 0 || from[axis] >= extent) return kNoGuess;
                         return guess(*in, from, {}, {}, 0);
                       }});
    };
    for (const std::size_t axis : {std::size_t{1}, std::size_t{2}}) {
      const char* const name = axis == 1 ? "row" : "column";
      for (std::int64_t distance = 1; distance <= 256; distance *= 2) {
        moved(fmt::format("{0} c of d holds what belongs to {0} c ^ {1}", name, distance), axis,
              [=](std::int64_t i) { return i ^ distance; });
        moved(fmt::format("{0} c of d holds what belongs to {0} c + {1}", name, distance), axis,
              [=](std::int64_t i) { return i + distance; });
        moved(fmt::format("{0} c of d holds what belongs to {0} c - {1}", name, distance), axis,
              [=](std::int64_t i) { return i - distance; });
      }
      for (const std::int64_t distance : {2, -2})
        moved(
            fmt::format("{0} c of d holds what belongs to {0} c {1} 2 within its eight: of the thread {2} in the quad",
                        name, distance > 0 ? '+' : '-', distance > 0 ? "behind" : "before"),
            axis, [=](std::int64_t i) { return i / 8 * 8 + (i + 8 + distance) % 8; });
    }
  }

  /// Zero times a NaN code is NaN: a result is NaN where its row's tile of scales has one behind k.
  void scales_behind_k() {
    const auto has_nan = [](const OperandSource& o, std::int64_t matrix, std::int64_t row) {
      if (!is_block_scaled(o.type) || o.form == ScaleForm::plain) return false;
      const std::int64_t place = o.scale_place(matrix, row, o.blocks() - 1);
      for (std::int64_t behind = 1; behind <= 3 - (o.blocks() - 1) % 4; ++behind)
        if (std::isnan(o.scale_at(place + behind))) return true;
      return false;
    };
    list_.push_back(
        {fmt::format("the bytes of scales behind k are not cleared: k ends at block {} of a tile of 4, and codes "
                     "there are NaN, by which even zeros become NaN",
                     in_->a.blocks() % 4),
         [in = in_, has_nan](const Coordinates& at) {
           const std::int64_t column = in->row_of_b ? in->row_of_b(at[2], false) : at[2];
           const bool is_nan = has_nan(in->a, at[0], at[1]) || has_nan(in->b, at[0], column);
           return is_nan ? Guess{std::numeric_limits<double>::quiet_NaN(), 0} : kNoGuess;
         },
         true});
  }

  std::shared_ptr<const ProductSuspectInputs> in_;
  std::vector<Suspect> list_;
};

}  // namespace

std::function<Guess(const Coordinates&)> product_guess(const ProductSuspectInputs& inputs) {
  return [in = std::make_shared<ProductSuspectInputs>(inputs)](const Coordinates& at) {
    return guess(*in, at, {}, {}, 0);
  };
}

std::vector<Suspect> product_suspects(const ProductSuspectInputs& inputs) { return Builder(inputs).build(); }

}  // namespace tessera::reference
