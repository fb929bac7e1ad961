// What the sinks of a chain may have written.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <set>

#include "reference/number.h"
#include "reference/parallel.h"
#include "reference/quantize.h"
#include "reference/rows.h"
#include "reference/rows_causes.h"
#include "reference/rows_kept.h"
#include "reference/rows_product.h"
#include "tessera/error.h"
#include "tessera/row_chain.h"
#include "tessera/spec/row_cache.h"

namespace tessera::reference {

namespace {

/// What one output may hold, in the units of its elements.
struct Interval {
  double low = 0, high = 0, expected = 0;
};

Element judged(const Interval& may, double found, double roundoff) {
  if (std::isnan(may.expected) && std::isnan(found)) return {};
  if (std::isinf(may.expected) && found == may.expected) return {};
  Element element;
  element.found = found;
  element.expected = may.expected;
  element.bound = std::max(may.high - may.expected, may.expected - may.low);
  if (found >= may.low && found <= may.high) element.bound = std::max(element.bound, std::fabs(found - may.expected));
  const double allowed = std::max(element.bound, roundoff * std::fabs(may.expected));
  element.expected_square = allowed * allowed;
  return element;
}

float to_float(double x) { return static_cast<float>(x); }
/// A step outwards, for what a quotient's own rounding may do.
float below(double x) { return std::nextafterf(to_float(x), -std::numeric_limits<float>::infinity()); }
float above(double x) { return std::nextafterf(to_float(x), std::numeric_limits<float>::infinity()); }

struct Sink {
  RowStep step;
  RowStepNames names;
  int number = 0;
  ElementSums values, scales;
};

class SinkCheck {
 public:
  SinkCheck(const RowsRun& run, const std::map<std::string, Tensor>& in, const std::map<std::string, Tensor>& out)
      : run_(run), in_(in), out_(out) {}

  const Tensor& output(const std::string& name) const {
    const auto found = out_.find(name);
    if (found == out_.end()) throw Error(ErrorKind::usage, fmt::format("no output {}", name));
    return found->second;
  }

  void check(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t to) const {
    if (sink.step.kind == RowPart::store) check_stored(sink, row, from, to, output(sink.names.out));
    if (sink.step.kind == RowPart::residual) check_stored(sink, row, from, to, output(sink.names.out));
    if (sink.step.kind == RowPart::mhc_post) check_streams(sink, row, from, output(sink.names.out));
    if (sink.step.kind == RowPart::mhc_post && sink.step.has_product)
      check_product(run_, in_, out_, sink.names, from, sink.scales);
    if (sink.step.kind == RowPart::mhc_pre) check_mix(row, output(sink.names.out), from, sink.values);
    if (sink.step.kind == RowPart::cache) check_token(sink, row, from, to);
    if (sink.step.kind == RowPart::quantize) check_blocks(sink, row, from, to);
    if (sink.step.kind == RowPart::scaled_8) check_scaled(sink, row, from, to);
  }

  /// A row of y to which rows are added, in any order: each is rounded to y's type, and so is each sum. Denormal fp32
  /// numbers may count as zeros, those of 16 bits are rounded to their last place.
  void check_added(Sink& sink, std::int64_t to, const std::vector<std::int64_t>& rows) const {
    const Tensor &out = output(sink.names.out), &before = in_.at(sink.names.out);
    const double u = unit_roundoff(out.dtype), least = out.dtype == DType::f32   ? 0x1p-126
                                                       : out.dtype == DType::f16 ? 0x1p-25
                                                                                 : 0x1p-134;
    std::vector<double> sum(static_cast<std::size_t>(columns(sink))), magnitude(sum), error(sum);
    for (const std::int64_t row : rows) {
      const RowValues values = rows_reference(run_, in_, row, sink.number);
      for (std::size_t i = 0; i < sum.size(); ++i) {
        const auto at = static_cast<std::size_t>(sink.step.first) + i;
        sum[i] += values.v[at];
        magnitude[i] += std::fabs(values.v[at]) + values.e[at];
        error[i] += values.e[at];
      }
    }
    const auto count = static_cast<double>(rows.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const double was = before.at(to * columns(sink) + static_cast<std::int64_t>(i));
      const double of_rows = error[i] + (out.dtype == DType::f32 ? 0 : u * magnitude[i]);
      const double slack =
          of_rows + std::expm1(count * std::log1p(u)) * (std::fabs(was) + magnitude[i] + of_rows) + 2 * count * least;
      const double expected = was + sum[i];
      Element element = judged({expected - slack, expected + slack, expected},
                               out.at(to * columns(sink) + static_cast<std::int64_t>(i)), 0);
      element.at = {rows.front(), static_cast<std::int64_t>(i)};
      sink.values.add(element);
    }
  }

 private:
  std::int64_t columns(const Sink& sink) const { return width(sink.step, static_cast<int>(run_.columns)); }

  void check_stored(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t to, const Tensor& out) const {
    const DType dtype = out.dtype;
    const auto rounded = [&](double x) { return to_double(dtype, from_double(dtype, x)); };
    for (std::int64_t i = 0; i < columns(sink); ++i) {
      const auto at = static_cast<std::size_t>(sink.step.first + i);
      const Interval may{rounded(row.v[at] - row.e[at]), rounded(row.v[at] + row.e[at]), rounded(row.v[at])};
      Element element = judged(may, out.at(to * columns(sink) + i), unit_roundoff(dtype));
      element.at = {from, i};
      sink.values.add(element);
    }
  }

  void check_streams(Sink& sink, const RowValues& row, std::int64_t from, const Tensor& out) const {
    const auto rounded = [&](double x) { return to_double(out.dtype, from_double(out.dtype, x)); };
    const auto columns = static_cast<std::int64_t>(row.streams.size());
    for (std::int64_t i = 0; i < columns; ++i) {
      const double v = row.streams[static_cast<std::size_t>(i)], e = row.stream_errors[static_cast<std::size_t>(i)];
      Element element =
          judged({rounded(v - e), rounded(v + e), rounded(v)}, out.at(from * columns + i), unit_roundoff(out.dtype));
      element.at = {from, i};
      sink.values.add(element);
    }
  }

  /// A token of a cache, byte by byte.
  void check_token(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t to) const {
    const RowCache cache = sink.step.cache;
    const CacheLayout l = cache_layout(cache);
    const Tensor& out = output(sink.names.out);
    const std::int64_t page_bytes = run_.pages == 0 ? 0 : out.shape[1];
    const std::byte* const page = out.bytes.data() + to / run_.page_size * page_bytes;
    const std::int64_t place = to % run_.page_size;
    const std::byte* const token = page + place * l.token_bytes;
    for (int j = 0; j < cache_blocks(cache); ++j) {
      const std::byte* const at = page + cache_scale_at(cache, run_.page_size, place, j);
      if (l.scale == CacheScale::format) {
        check_block_of_token(sink, row, from, j, token, static_cast<std::uint8_t>(*at));
      } else {
        check_e4m3_of_token(sink, row, from, j, token, at);
      }
    }
    const std::byte* const padding = page + cache_scale_at(cache, run_.page_size, place, cache_blocks(cache));
    if (std::any_of(padding, padding + cache_padding(cache), [](std::byte b) { return b != std::byte{0}; })) {
      Element element = judged({0, 0, 0}, 1, 0);
      element.at = {from, cache_blocks(cache)};
      sink.scales.add(element);
    }
    for (std::int64_t i = l.values; i < columns(sink); ++i) {
      const auto at = static_cast<std::size_t>(sink.step.first + i);
      const auto rounded = [](double x) { return to_double(DType::bf16, from_double(DType::bf16, x)); };
      std::uint16_t bits = 0;
      std::memcpy(&bits, token + l.bf16_at + 2 * (i - l.values), sizeof bits);
      Element element = judged({rounded(row.v[at] - row.e[at]), rounded(row.v[at] + row.e[at]), rounded(row.v[at])},
                               to_double(DType::bf16, bits), unit_roundoff(DType::bf16));
      element.at = {from, i};
      sink.values.add(element);
    }
  }

  void check_e4m3_of_token(Sink& sink, const RowValues& row, std::int64_t from, int j, const std::byte* token,
                           const std::byte* at) const {
    const CacheLayout l = cache_layout(sink.step.cache);
    RowStep rule = sink.step;
    rule.is_power = l.scale == CacheScale::power;
    double scale = 0;
    if (l.scale_bytes == 1) {
      scale = std::exp2(static_cast<int>(*at) - 127);
    } else {
      float number = 0;
      std::memcpy(&number, at, sizeof number);
      scale = static_cast<double>(number);
    }
    const double least = rule.is_power ? 448 * static_cast<double>(1e-4F) : static_cast<double>(1e-4F);
    Element element =
        judged(scale_interval(rule, magnitude_of(row, sink.step.first + j * l.block, l.block), least), scale, 0);
    element.at = {from, j};
    sink.scales.add(element);
    for (int i = j * l.block; i < (j + 1) * l.block; ++i)
      check_e4m3(sink, row, from, i, scale, rule.is_power ? 0 : 8 * kU,
                 decode_value(ValueType::e4m3, static_cast<std::uint8_t>(token[i])));
  }

  /// e2m1 under the scale of a format.
  void check_block_of_token(Sink& sink, const RowValues& row, std::int64_t from, int j, const std::byte* token,
                            std::uint8_t found) const {
    const CacheLayout l = cache_layout(sink.step.cache);
    const auto code_of = [&](double amax) {
      const std::uint8_t code = l.format == BlockFormat::nvfp4
                                    ? encode_ue4m3(to_float(amax) / 6.0F)
                                    : encode_ue8m0(to_float(amax), l.format, ScaleRounding::up);
      return static_cast<double>(std::max<int>(code, l.least_code));
    };
    const Interval amax = magnitude_of(row, sink.step.first + j * l.block, l.block);
    Element scale = judged({code_of(amax.low), code_of(amax.high), code_of(amax.expected)}, found, 0);
    scale.at = {from, j};
    sink.scales.add(scale);
    const float divisor = decode_scale(scale_type(l.format), found);
    for (int i = j * l.block; i < (j + 1) * l.block; ++i) {
      const auto byte = static_cast<std::uint8_t>(token[i / 2]);
      check_code(sink, row, from, i, ValueType::e2m1, i % 2 == 0 ? byte & 0xF : byte >> 4, divisor);
    }
  }

  static void check_e4m3(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t i, double scale,
                         double slack, double found) {
    const auto at = static_cast<std::size_t>(sink.step.first + i);
    const auto coded = [](double x) {
      return decode_value(ValueType::e4m3, encode_value(ValueType::e4m3, to_float(x)));
    };
    const double center = row.v[at] / scale;
    const double error = std::isinf(center) ? 0 : row.e[at] / std::fabs(scale) + slack * std::fabs(center);
    Element element = judged({coded(below(center - error)), coded(above(center + error)), coded(center)}, found, 0);
    element.at = {from, i};
    sink.values.add(element);
  }

  /// Of a block from column `first` on: the least and the largest that its largest magnitude may be.
  static Interval magnitude_of(const RowValues& row, std::int64_t first, std::int64_t count) {
    Interval amax;
    for (std::int64_t i = first; i < first + count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (std::isnan(row.v[at])) continue;
      const double v = std::fabs(row.v[at]), e = row.e[at];
      amax.low = std::max(amax.low, v - e);
      amax.high = std::max(amax.high, v + e);
      amax.expected = std::max(amax.expected, v);
    }
    const double most = std::numeric_limits<float>::max();
    return {std::min(amax.low, most), std::min(amax.high, most), std::min(amax.expected, most)};
  }

  void check_blocks(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t to) const {
    const BlockFormat format = sink.step.format;
    const int block = block_elements(format);
    const std::int64_t blocks = columns(sink) / block;
    const bool is_nv = format == BlockFormat::nvfp4;
    const float g = sink.step.has_global ? to_float(in_.at(sink.names.in).at(0)) : 1.0F;
    const float unit = 6.0F * g;
    const auto code_of = [&](double amax) {
      if (!is_nv) return encode_ue8m0(to_float(amax), format, ScaleRounding::up);
      return unit == 0 ? std::uint8_t{0} : encode_ue4m3(to_float(amax) / unit);
    };
    const Tensor& scales = output(sink.names.out2);
    for (std::int64_t j = 0; j < blocks; ++j) {
      const Interval amax = magnitude_of(row, sink.step.first + j * block, block);
      const auto at = scale_offset(sink.step.form, run_.rows, blocks, 0, to, j);
      const auto found = static_cast<std::uint8_t>(scales.bytes[static_cast<std::size_t>(at)]);
      Element scale = judged({static_cast<double>(code_of(amax.low)), static_cast<double>(code_of(amax.high)),
                              static_cast<double>(code_of(amax.expected))},
                             found, 0);
      scale.at = {from, j};
      sink.scales.add(scale);
      float divisor = decode_scale(scale_type(format), found);
      if (is_nv) divisor *= g;
      check_values(sink, row, from, to, j, divisor);
    }
  }

  void check_values(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t to, std::int64_t j,
                    float divisor) const {
    const BlockFormat format = sink.step.format;
    const ValueType type = value_type(format);
    const int block = block_elements(format);
    const Tensor& values = output(sink.names.out);
    for (std::int64_t i = j * block; i < (j + 1) * block; ++i) {
      const std::int64_t index = to * columns(sink) + i;
      const auto byte = static_cast<std::uint8_t>(
          values.bytes[static_cast<std::size_t>(value_bits(format) == 8 ? index : index / 2)]);
      const std::uint8_t code = value_bits(format) == 8 ? byte : index % 2 == 0 ? byte & 0xF : byte >> 4;
      check_code(sink, row, from, i, type, code, divisor);
    }
  }

  /// Column i of a sink: what a value's code may be, given the scale that was found.
  static void check_code(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t i, ValueType type,
                         std::uint8_t code, float divisor) {
    const auto at = static_cast<std::size_t>(sink.step.first + i);
    const auto encoded = [&](float x) { return divisor == 0 ? std::uint8_t{0} : encode_value(type, x / divisor); };
    const bool is_exact = row.e[at] == 0;
    const double low = row.v[at] - row.e[at], high = row.v[at] + row.e[at];
    const std::uint8_t least = encoded(is_exact ? to_float(low) : below(low));
    const std::uint8_t most = encoded(is_exact ? to_float(high) : above(high));
    if (least == most && code == least) {
      sink.values.add(judged_equal(type, code));
      return;
    }
    Element element =
        judged({decode_value(type, least), decode_value(type, most), decode_value(type, encoded(to_float(row.v[at])))},
               decode_value(type, code), 0);
    element.at = {from, i};
    // One result alone is right, and this is not it: a zero of the other sign, say.
    if (least == most) {
      element.bound = -1;
    }
    sink.values.add(element);
  }

  static Element judged_equal(ValueType type, std::uint8_t code) {
    const double value = decode_value(type, code);
    if (std::isnan(value)) return {};
    Element element;
    element.found = element.expected = value;
    return element;
  }

  void check_scaled(Sink& sink, const RowValues& row, std::int64_t from, std::int64_t to) const {
    const RowStep& s = sink.step;
    const std::int64_t block = s.block > 0 ? s.block : columns(sink), blocks = columns(sink) / block;
    for (std::int64_t j = 0; j < blocks; ++j) {
      double scale = 0, slack = s.is_power ? 0 : 8 * kU;
      if (s.block < 0) {
        scale = in_.at(sink.names.in).at(0);
      } else {
        const Tensor& scales = output(sink.names.out2);
        const std::int64_t padded = scale_rows(s, scale_extent(s));
        scale = s.is_packed ? std::exp2(packed_scale(scales, to, j) - 127)
                            : scales.at(s.is_column_major ? j * padded + to : to * blocks + j);
        Element element = judged(scale_interval(s, magnitude_of(row, s.first + j * block, block)), scale, 0);
        element.at = {from, j};
        sink.scales.add(element);
      }
      const Tensor& values = output(sink.names.out);
      for (std::int64_t i = j * block; i < (j + 1) * block; ++i)
        check_e4m3(sink, row, from, i, scale, slack, values.at(to * columns(sink) + i));
    }
  }

  std::int64_t scale_extent(const RowStep& s) const { return s.is_placed ? run_.placed_rows : run_.rows; }

  static Interval scale_interval(const RowStep& s, const Interval& amax, double least = static_cast<double>(1e-4F)) {
    const auto scale = [&](double most) {
      const double quotient = std::max(most, least) / 448;
      return s.is_power ? std::exp2(std::ceil(std::log2(quotient) - 1e-15)) : quotient;
    };
    const double slack = s.is_power ? 0 : 3 * kU;
    return {scale(amax.low) * (1 - slack), scale(amax.high) * (1 + slack), scale(amax.expected)};
  }

  const RowsRun& run_;
  const std::map<std::string, Tensor>& in_;
  const std::map<std::string, Tensor>& out_;
};

std::int64_t slot_of(const RowsRun& run, const std::map<std::string, Tensor>& in, std::int64_t row,
                     const RowStep& step) {
  const auto slot = static_cast<std::int64_t>(in.at("slots").at(step.is_paged ? row / run.heads : row));
  if (step.is_paged) return slot >= 0 && slot < run.pages * run.page_size ? slot * run.heads + row % run.heads : -1;
  return slot < (step.kind == RowPart::cache ? run.pages * run.page_size : run.placed_rows) ? slot : -1;
}
bool has_slot(const RowStep& step) { return step.is_placed || step.is_paged || step.kind == RowPart::cache; }

/// The rows of y that these rows, and others, are added to.
void check_added_rows(const RowsRun& run, const std::map<std::string, Tensor>& in, const SinkCheck& checker,
                      const std::vector<std::int64_t>& rows, int jobs, Sink& sink) {
  std::map<std::int64_t, std::vector<std::int64_t>> rows_of;
  for (const std::int64_t row : rows)
    if (const std::int64_t to = slot_of(run, in, row, sink.step); to >= 0) rows_of[to];
  for (std::int64_t row = 0; row < run.rows; ++row)
    if (const auto found = rows_of.find(slot_of(run, in, row, sink.step)); found != rows_of.end())
      found->second.push_back(row);
  const std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> list(rows_of.begin(), rows_of.end());
  std::vector<Sink> pieces(list.size(), sink);
  parallel_for(static_cast<std::int64_t>(list.size()), jobs, [&](std::int64_t i) {
    const auto& [to, added] = list[static_cast<std::size_t>(i)];
    checker.check_added(pieces[static_cast<std::size_t>(i)], to, added);
  });
  for (const Sink& piece : pieces) sink.values.merge(piece.values);
}

/// The sinks of a chain with what is wrong in these rows.
std::vector<Sink> judged_sinks(const RowsRun& run, const std::map<std::string, Tensor>& in,
                               const std::map<std::string, Tensor>& out, const std::vector<std::int64_t>& rows,
                               int jobs) {
  const std::vector<RowStepNames> names = row_step_names(run.chain);
  std::vector<Sink> sinks;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (is_row_sink(run.chain.steps[i].kind) || run.chain.steps[i].is_stored ||
        run.chain.steps[i].kind == RowPart::mhc_post || run.chain.steps[i].has_product)
      sinks.push_back({run.chain.steps[i], names[i], static_cast<int>(i) + 1, {}, {}});
  const SinkCheck checker(run, in, out);
  for (const Sink& sink : sinks) checker.output(sink.names.out);
  std::vector<std::vector<Sink>> pieces(rows.size(), sinks);
  parallel_for(static_cast<std::int64_t>(rows.size()), jobs, [&](std::int64_t i) {
    const std::int64_t row = rows[static_cast<std::size_t>(i)];
    for (Sink& sink : pieces[static_cast<std::size_t>(i)]) {
      if (sink.step.is_added) continue;
      const std::int64_t to = has_slot(sink.step) ? slot_of(run, in, row, sink.step) : row;
      if (to >= 0) checker.check(sink, rows_reference(run, in, row, sink.number), row, to);
    }
  });
  for (Sink& sink : sinks)
    if (sink.step.is_added) check_added_rows(run, in, checker, rows, jobs, sink);
  for (const std::vector<Sink>& piece : pieces)
    for (std::size_t i = 0; i < sinks.size(); ++i) {
      sinks[i].values.merge(piece[i].values);
      sinks[i].scales.merge(piece[i].scales);
    }
  return sinks;
}

}  // namespace

std::int64_t count_wrong_rows(const RowsRun& run, const std::map<std::string, Tensor>& in,
                              const std::map<std::string, Tensor>& out, const std::vector<std::int64_t>& rows) {
  std::int64_t wrong = 0;
  for (const Sink& sink : judged_sinks(run, in, out, rows, 1)) wrong += sink.values.mismatched + sink.scales.mismatched;
  return wrong;
}

Comparison check_rows(const RowsRun& run, const std::map<std::string, Tensor>& in,
                      const std::map<std::string, Tensor>& out, int jobs) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(run.rows));
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<Sink> sinks = judged_sinks(run, in, out, rows, jobs);
  Comparison result;
  std::set<std::int64_t> wrong_rows;
  for (const Sink& sink : sinks) {
    for (const ElementSums* const sums : {&sink.values, &sink.scales})
      for (const Mismatch& mismatch : sums->mismatches) wrong_rows.insert(mismatch.at[0]);
    const std::int64_t columns = width(sink.step, static_cast<int>(run.columns));
    if (sink.values.mismatched > 0)
      result.problems.push_back(describe_mismatches(
          sink.names.out, sink.values, {{"row", run.rows, {}}, {"column", columns, {8, 16, 32, 64, 128}}}));
    if (sink.scales.mismatched > 0)
      result.problems.push_back(
          describe_mismatches(sink.names.out2.empty() ? sink.names.out + "'s scales" : sink.names.out2, sink.scales,
                              {{"row", run.rows, {}}, {"block", columns, {4}}}));
    std::set<std::int64_t> written;
    if (has_slot(sink.step))
      for (std::int64_t row = 0; row < run.rows; ++row) written.insert(slot_of(run, in, row, sink.step));
    std::string kept;
    if (sink.step.is_placed)
      kept = kept_problem(sink.names.out, out.at(sink.names.out), out.at(sink.names.out).shape[0], written,
                          sink.step.is_added ? &in.at(sink.names.out) : nullptr);
    if (sink.step.is_paged)
      kept = kept_problem(sink.names.out, out.at(sink.names.out), run.pages * run.page_size * run.heads, written);
    if (sink.step.kind == RowPart::cache)
      kept = kept_token_problem(sink.names.out, out.at(sink.names.out), sink.step.cache, run.page_size, written);
    if (!kept.empty()) result.problems.push_back(std::move(kept));
    if (sink.step.is_packed)
      if (std::string padding = packed_padding_problem(sink.names.out2, out.at(sink.names.out2), run.rows, written,
                                                       columns / sink.step.block);
          !padding.empty())
        result.problems.push_back(std::move(padding));
    if (sink.step.kind == RowPart::quantize && sink.step.form == ScaleForm::tile)
      if (std::string padding = padding_problem(sink.names.out2, out.at(sink.names.out2), run.rows,
                                                columns / block_elements(sink.step.format));
          !padding.empty())
        result.problems.push_back(std::move(padding));
  }
  if (!wrong_rows.empty())
    if (std::string cause = likely_cause_of_rows(run, in, out, {wrong_rows.begin(), wrong_rows.end()}); !cause.empty())
      result.problems.push_back(std::move(cause));
  const auto main = std::find_if(sinks.begin(), sinks.end(), [](const Sink& s) { return is_row_sink(s.step.kind); });
  if (!sinks.empty()) {
    const ElementSums& sums = (main != sinks.end() ? main : sinks.begin())->values;
    result.rel_error = sums.rel_error();
    result.rel_bound = sums.rel_bound();
    result.max_abs_error = sums.max_abs_error;
    result.cosine = sums.cosine();
    result.mismatches = sums.mismatches;
  }
  result.rows_checked = result.rows_total = run.rows;
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
