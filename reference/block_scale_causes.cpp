#include "reference/block_scale_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

namespace tessera::reference {

namespace {

using I = std::int64_t;

constexpr Guess kNoGuess{-1, -1};  // no code
constexpr Guess kPadding{0, 0};

bool is_inside(const CodeTensor& t, const Coordinates& at) {
  return at[0] >= 0 && at[0] < t.l && at[1] >= 0 && at[1] < t.rows && at[2] >= 0 && at[2] < t.columns;
}

Suspect moved(std::string cause, const CodeTensor& expected, std::function<Coordinates(const Coordinates&)> from) {
  return {std::move(cause), [=](const Coordinates& at) {
            const Coordinates place = from(at);
            if (!is_inside(expected, place)) return expected.form == ScaleForm::tile ? kPadding : kNoGuess;
            return Guess{static_cast<double>(expected.at(place[0], place[1], place[2])), 0};
          }};
}

/// The code that a row has `bits` bits before a place.
Guess of_shifted_bits(const CodeTensor& t, const Coordinates& at, int bits) {
  const I place = (at[0] * t.rows + at[1]) * t.columns + at[2];
  if (place == 0 || place + 1 >= t.l * t.rows * t.columns) return kNoGuess;
  const unsigned before = load_code(t.bytes, 6, place - 1), here = load_code(t.bytes, 6, place),
                 behind = load_code(t.bytes, 6, place + 1);
  const unsigned all = before | here << 6 | behind << 12;
  return {static_cast<double>(all >> (6 - bits) & 63), 0};
}

/// The code that is found where values were stored with a byte each.
Guess of_bytes(const CodeTensor& t, const Coordinates& at) {
  const I bit = 6 * ((at[0] * t.rows + at[1]) * t.columns + at[2]), count = t.l * t.rows * t.columns;
  const I first = bit / 8;
  if (first + 1 >= count) return kNoGuess;
  const unsigned two = load_code(t.bytes, 6, first) | static_cast<unsigned>(load_code(t.bytes, 6, first + 1)) << 8;
  return {static_cast<double>(two >> (bit % 8) & 63), 0};
}

/// How a block becomes codes, and what may be wrong with it.
struct BlockRule {
  QuantizeRule rule;
  enum class Ties { even, away, zero } ties = Ties::even;  ///< zero: values are cut off
  enum class Scale { nearest, down } scale = Scale::nearest;
  bool has_g_in_scale = true, has_g_in_values = true;
  bool is_signed = false;   ///< the largest number in place of the largest magnitude
  float divided_by = 0;     ///< amax / this; 0: the format's largest value
  int block_factor = 1;     ///< blocks that share an amax
  bool multiplies = false;  ///< by the reciprocal of the divisor, rounded
};

struct Codes {
  std::uint8_t scale = 0, value = 0;
};

std::uint8_t encode_cut(ValueType type, float q, BlockRule::Ties ties) {
  const auto of_sign = static_cast<std::uint8_t>(1U << (value_bits(type) - 1));
  const std::uint8_t sign = std::signbit(q) ? of_sign : 0;
  const std::uint8_t most = type == ValueType::e4m3   ? 0x7E
                            : type == ValueType::e5m2 ? 0x7B
                                                      : static_cast<std::uint8_t>(of_sign - 1);
  const float magnitude = std::fabs(q);
  std::uint8_t code = 0;
  for (std::uint8_t next = 1; next <= most; ++next) {
    const float low = decode_value(type, static_cast<std::uint8_t>(next - 1)), high = decode_value(type, next);
    if (magnitude >= (ties == BlockRule::Ties::zero ? high : (low + high) / 2)) code = next;
  }
  return sign | code;
}

/// The codes of one element by such a rule. x: [l, rows, k].
Codes codes_of(const TensorView& x, const BlockRule& r, const Coordinates& at) {
  const I size = block_elements(r.rule.format) * r.block_factor, first = at[2] / size * size;
  const I row = at[0] * x.strides[0] + at[1] * x.strides[1];
  float amax = 0;
  for (I k = first; k < std::min(first + size, x.shape[2]); ++k) {
    const auto value = static_cast<float>(x.at(row + k * x.strides[2]));
    if (!std::isnan(value))
      amax = std::max(amax, std::min(r.is_signed ? value : std::fabs(value), std::numeric_limits<float>::max()));
  }
  Codes codes;
  float divisor = 0;
  const float g = r.rule.global_scale;
  if (r.rule.format == BlockFormat::nvfp4) {
    const float unit = (r.divided_by != 0 ? r.divided_by : 6.0F) * (r.has_g_in_scale ? g : 1);
    codes.scale = unit == 0 ? std::uint8_t{0} : encode_ue4m3(amax / unit);
    if (r.scale == BlockRule::Scale::down && codes.scale > 0 &&
        decode_scale(ScaleType::ue4m3, codes.scale) > amax / unit)
      --codes.scale;
    divisor = decode_scale(ScaleType::ue4m3, codes.scale) * (r.has_g_in_values ? g : 1);
  } else {
    codes.scale = encode_ue8m0(amax, r.rule.format, r.rule.rounding);
    divisor = decode_scale(ScaleType::ue8m0, codes.scale);
  }
  if (divisor == 0) return codes;
  const auto element = static_cast<float>(x.at(row + at[2] * x.strides[2]));
  const float q = r.multiplies ? element * (1 / divisor) : element / divisor;
  const ValueType type = value_type(r.rule.format);
  codes.value = r.ties == BlockRule::Ties::even || std::isnan(q) ? encode_value(type, q) : encode_cut(type, q, r.ties);
  return codes;
}

std::vector<std::pair<std::string, BlockRule>> wrong_rules(const QuantizeRule& rule) {
  std::vector<std::pair<std::string, BlockRule>> list;
  const auto add = [&](std::string cause, auto change) {
    BlockRule wrong{.rule = rule};
    change(wrong);
    list.emplace_back(std::move(cause), wrong);
  };
  const bool is_nvfp4 = rule.format == BlockFormat::nvfp4;
  add("values are cut off toward zero, not rounded to nearest even",
      [](BlockRule& r) { r.ties = BlockRule::Ties::zero; });
  add("values on a boundary are rounded away from zero, not to even",
      [](BlockRule& r) { r.ties = BlockRule::Ties::away; });
  add("values are multiplied by the rounded reciprocal of the scale, not divided",
      [](BlockRule& r) { r.multiplies = true; });
  add("the largest number of a block counts, not the largest magnitude", [](BlockRule& r) { r.is_signed = true; });
  add("two blocks share the scale of both: blocks are twice as long", [](BlockRule& r) { r.block_factor = 2; });
  if (!is_nvfp4) {
    const bool is_up = rule.rounding == ScaleRounding::up;
    add(fmt::format("scales are taken {}",
                    is_up ? "down to a power of two (floor), up is right" : "up, floor is right"),
        [=](BlockRule& r) { r.rule.rounding = is_up ? ScaleRounding::floor : ScaleRounding::up; });
    return list;
  }
  add("scales are cut off, not rounded to nearest even", [](BlockRule& r) { r.scale = BlockRule::Scale::down; });
  add("scales are amax / 448, 6 is e2m1's largest value", [](BlockRule& r) { r.divided_by = 448; });
  add("scales are amax / 7, 6 is e2m1's largest value", [](BlockRule& r) { r.divided_by = 7; });
  if (rule.global_scale != 1) {
    add("the global scale does not count", [](BlockRule& r) { r.has_g_in_scale = r.has_g_in_values = false; });
    add("values are divided without the global scale", [](BlockRule& r) { r.has_g_in_values = false; });
    add("scales are taken without the global scale", [](BlockRule& r) { r.has_g_in_scale = false; });
    add("the global scale counts the other way round (1 / g)",
        [](BlockRule& r) { r.rule.global_scale = 1 / r.rule.global_scale; });
  }
  return list;
}

}  // namespace

std::uint8_t CodeTensor::at(I matrix, I row, I column) const {
  if (bits < 8) return load_code(bytes, bits, (matrix * rows + row) * columns + column);
  return bytes[static_cast<std::size_t>(scale_offset(form, rows, columns, matrix, row, column))];
}

void compare_codes(const char* name, const CodeTensor& found, const CodeTensor& expected, const char* column_name,
                   const std::vector<Suspect>& suspects, Comparison& result) {
  if (found.bytes.size() != expected.bytes.size()) {
    result.problems.push_back(
        fmt::format("{}: {} bytes, {} expected", name, found.bytes.size(), expected.bytes.size()));
    return;
  }
  if (std::equal(found.bytes.begin(), found.bytes.end(), expected.bytes.begin())) return;
  ElementSums sums;
  std::vector<Mismatch> codes;
  for (I m = 0; m < found.l; ++m)
    for (I r = 0; r < found.rows; ++r)
      for (I c = 0; c < found.columns; ++c) {
        const std::uint8_t is = found.at(m, r, c), wanted = expected.at(m, r, c);
        // A code that is another one is wrong, whatever number it stands for.
        const bool is_right = is == wanted;
        sums.add({.found = is_right ? 0 : found.decode(is),
                  .expected = is_right ? 0 : found.decode(wanted),
                  .bound = is_right ? 0.0 : -1.0,
                  .expected_square = 0,
                  .at = {m, r, c}});
        if (!is_right && codes.size() < ElementSums::kMaxKept)
          codes.push_back({{m, r, c}, static_cast<double>(is), static_cast<double>(wanted), 0});
      }
  if (sums.mismatched == 0) {
    std::size_t padding = 0;
    for (std::size_t i = 0; i < found.bytes.size(); ++i) padding += found.bytes[i] != expected.bytes[i] ? 1U : 0U;
    result.problems.push_back(fmt::format("{}: {} bytes of padding are not 0", name, padding));
    return;
  }
  result.problems.push_back(describe_mismatches(
      name, sums,
      {{"matrix", found.l, {}}, {"row", found.rows, {8, 32, 128}}, {column_name, found.columns, {2, 4, 16}}}));
  const Mismatch& first = codes.front();
  result.problems.back() += fmt::format("; codes: found 0x{:02X}, expected 0x{:02X}", static_cast<int>(first.found),
                                        static_cast<int>(first.expected));
  if (std::string cause = likely_cause(codes, suspects); !cause.empty())
    result.problems.push_back(fmt::format("{}: {}", name, cause));
  result.rel_error = std::max(result.rel_error, sums.rel_error());
  result.max_abs_error = std::max(result.max_abs_error, sums.max_abs_error);
  result.cosine = std::min(result.cosine, sums.cosine());
}

std::vector<Suspect> moved_values(const CodeTensor& expected) {
  std::vector<Suspect> list;
  for (const I distance : {1, 2, 4, 8, 16}) {
    const bool is_nibble = distance == 1 && expected.bits == 4;
    list.push_back(moved(is_nibble ? "nibbles are exchanged: the lower k is in the low four bits"
                                   : fmt::format("elements k and k ^ {} have changed places", distance),
                         expected, [=](Coordinates at) {
                           at[2] ^= distance;
                           return at;
                         }));
  }
  for (const I distance : {1, 2, 4, 8, 16, 32, 64, 128})
    list.push_back(moved(fmt::format("rows r and r ^ {} have changed places", distance), expected, [=](Coordinates at) {
      at[1] ^= distance;
      return at;
    }));
  if (expected.bits == 6) {
    for (const int bits : {-2, 2})
      list.push_back(
          {fmt::format("values of six bits are stored {} bits too {}: value i of a row is its bits 6 i to 6 i + 5",
                       std::abs(bits), bits > 0 ? "high" : "low"),
           [=](const Coordinates& at) { return of_shifted_bits(expected, at, bits); }});
    list.push_back({"values have a byte each: four of them fill three bytes",
                    [=](const Coordinates& at) { return of_bytes(expected, at); }});
  }
  list.push_back(moved("all matrices hold the first one", expected, [](Coordinates at) {
    at[0] = 0;
    return at;
  }));
  list.push_back({"they are 0: never written, or their block was taken for empty", [](const Coordinates&) {
                    return Guess{0, 0};
                  }});
  return list;
}

std::vector<Suspect> moved_scales(const CodeTensor& expected) {
  std::vector<Suspect> list;
  const auto add = [&](std::string cause, std::function<Coordinates(Coordinates)> from) {
    list.push_back(
        moved(std::move(cause), expected, [from = std::move(from)](const Coordinates& at) { return from(at); }));
  };
  const auto in_tile = [](const Coordinates& at, I row, I block) {
    return Coordinates{at[0], at[1] / kTileRows * kTileRows + row, at[2] / kTileBlocks * kTileBlocks + block};
  };
  add("within a tile rows 32 apart and blocks have changed places",
      [=](Coordinates at) { return in_tile(at, at[1] % 32 + at[2] % 4 * 32, at[1] % kTileRows / 32); });
  add("tiles are written as if rows followed each other: 4 r + j in place of 16 (r % 32) + 4 (r / 32) + j",
      [=](Coordinates at) { return in_tile(at, at[1] % 32 * 4 + at[1] % kTileRows / 32, at[2] % 4); });
  add("rows of a tile are taken in the order of its bytes",
      [=](Coordinates at) { return in_tile(at, at[1] % kTileRows / 4 + at[1] % 4 * 32, at[2] % 4); });
  add("blocks 2i and 2i + 1 have changed places", [](Coordinates at) {
    at[2] ^= 1;
    return at;
  });
  add("every block has the scale of the first of its four", [](Coordinates at) {
    at[2] = at[2] / 4 * 4;
    return at;
  });
  for (const I distance : {1, 32, 64, 128})
    add(fmt::format("rows r and r ^ {} have changed places", distance), [=](Coordinates at) {
      at[1] ^= distance;
      return at;
    });
  add("all matrices hold the scales of the first one", [](Coordinates at) {
    at[0] = 0;
    return at;
  });
  return list;
}

std::vector<Suspect> rules_of_values(const TensorView& x, const QuantizeRule& rule) {
  std::vector<Suspect> list;
  for (auto& [cause, wrong] : wrong_rules(rule))
    list.push_back({cause, [x, wrong = wrong](const Coordinates& at) {
                      return Guess{static_cast<double>(codes_of(x, wrong, at).value), 0};
                    }});
  return list;
}

std::vector<Suspect> rules_of_scales(const TensorView& x, const QuantizeRule& rule) {
  std::vector<Suspect> list;
  for (auto& [cause, wrong] : wrong_rules(rule))
    list.push_back({cause, [x, wrong = wrong](const Coordinates& at) {
                      const I k = at[2] * block_elements(wrong.rule.format);
                      return Guess{static_cast<double>(codes_of(x, wrong, {at[0], at[1], k}).scale), 0};
                    }});
  return list;
}

}  // namespace tessera::reference
