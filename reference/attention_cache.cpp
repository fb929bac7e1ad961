#include "reference/attention_cache.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/quantize.h"

namespace tessera::reference {

namespace {

/// Where a token's parts are.
struct Token {
  RowCache cache;
  CacheLayout layout;
  std::int64_t page_size, page_bytes;

  explicit Token(const AttentionFacts& facts)
      : cache(cache_of(facts)),
        layout(cache_layout(cache)),
        page_size(facts.page_size),
        page_bytes(cache_page_bytes(facts)) {}
  std::int64_t data(std::int64_t token) const {
    return token / page_size * page_bytes + token % page_size * layout.token_bytes;
  }
  std::int64_t scale(std::int64_t token, int block) const {
    return token / page_size * page_bytes + scale_of_place(token % page_size, block);
  }
  std::int64_t scale_of_place(std::int64_t place, int block) const {
    return cache_scale_at(cache, page_size, place, block);
  }
  int block_of(int column) const { return column / layout.block; }
};

/// fp32, ue8m0 or ue4m3.
double scale_at(const Token& t, const std::byte* at) {
  if (t.layout.scale_bytes == 4) {
    float scale = 0;
    std::memcpy(&scale, at, sizeof scale);
    return to_double(DType::bf16, from_double(DType::bf16, scale));
  }
  const auto code = static_cast<std::uint8_t>(*at);
  return decode_scale(t.cache == RowCache::mla_384 ? ScaleType::ue4m3 : ScaleType::ue8m0, code);
}

double value_at(const Token& t, const std::byte* data, int column, const CacheSlip& slip) {
  if (t.layout.value == ValueType::e2m1) {
    const auto pair = static_cast<unsigned>(data[column / 2]);
    const int nibble = slip.has_nibbles_exchanged ? 1 - column % 2 : column % 2;
    return decode_value(ValueType::e2m1, static_cast<std::uint8_t>(pair >> (nibble * 4) & 15));
  }
  const auto code = static_cast<std::uint8_t>(data[column]);
  if ((code & 0x7f) == 0x7f) return code == 0x7f ? 480 : -480;
  return decode_value(ValueType::e4m3, code);
}

}  // namespace

Tensor make_cache(const AttentionFacts& facts, std::int64_t tokens, Fill fill, std::uint64_t seed,
                  std::uint64_t stream) {
  const Token t(facts);
  const CacheLayout& l = t.layout;
  Tensor cache(DType::u8, {(tokens + t.page_size - 1) / t.page_size, t.page_bytes});
  if (cache.bytes.empty()) return cache;
  std::memset(cache.bytes.data(), 0xFF, cache.bytes.size());
  const CounterRandom random(seed, stream);
  const bool is_exact = fill == Fill::integer, is_e2m1 = l.value == ValueType::e2m1;
  for (std::int64_t token = 0; token < tokens; ++token) {
    std::byte* const data = cache.bytes.data() + t.data(token);
    const auto draw = [&](int i) { return static_cast<std::uint64_t>(token * 1024 + i); };
    for (int column = 0; column < l.values; ++column) {
      // Codes of numbers of any size, most of them ordinary: a cache's values fill their format.
      double value = is_exact ? static_cast<double>(random.integer(draw(column), -1, 1))
                              : random.normal(draw(column)) * (is_e2m1 ? 2.5 : 64);
      if (!is_exact && random.bits(draw(column)) % 61 == 0) value = std::ldexp(value, -12);
      if (is_e2m1) {
        const auto code = static_cast<unsigned>(encode_value(ValueType::e2m1, static_cast<float>(value)));
        std::byte& both = data[column / 2];
        if (column % 2 == 0) both = std::byte{0};
        both |= static_cast<std::byte>(code << (column % 2 * 4));
      } else {
        value = std::fmin(std::fmax(value, -448.0), 448.0);
        data[column] = static_cast<std::byte>(from_double(DType::e4m3, value));
      }
    }
    for (int column = 0; column < l.bf16; ++column) {
      const double value =
          is_exact ? static_cast<double>(random.integer(draw(512 + column), -1, 1)) : random.normal(draw(512 + column));
      const auto bits = static_cast<std::uint16_t>(from_double(DType::bf16, value));
      std::memcpy(data + l.bf16_at + 2 * column, &bits, sizeof bits);
    }
    for (int block = 0; block < l.values / l.block; ++block) {
      std::byte* const at = cache.bytes.data() + t.scale(token, block);
      // Such that values are near 1, by powers of two; where the format has a mantissa, with one.
      const auto power =
          is_exact ? 0 : static_cast<int>(random.integer(draw(640 + block), is_e2m1 ? -3 : -8, is_e2m1 ? 0 : -4));
      if (l.scale_bytes == 4) {
        const float scale = std::ldexp(1.0f, power);
        std::memcpy(at, &scale, sizeof scale);
      } else if (is_e2m1) {
        const auto mantissa = is_exact ? 0 : static_cast<unsigned>(random.integer(draw(704 + block), 0, 7));
        *at = static_cast<std::byte>(static_cast<unsigned>(7 + power) << 3 | mantissa);
      } else {
        *at = static_cast<std::byte>(127 + power);
      }
    }
    const std::int64_t tail = t.scale(token, l.values / l.block);
    std::memset(cache.bytes.data() + tail, 0, static_cast<std::size_t>(cache_padding(t.cache)));
  }
  return cache;
}

Tensor rows_of_cache(const AttentionFacts& facts, const std::byte* pages, std::int64_t tokens, const CacheSlip& slip) {
  const Token t(facts);
  const CacheLayout& l = t.layout;
  const std::int64_t columns = cache_columns(t.cache), last_page = std::max<std::int64_t>(tokens - 1, 0) / t.page_size;
  const int blocks = l.values / l.block;
  const auto inside = [&](std::int64_t at) {
    return std::clamp<std::int64_t>(at, 0, (last_page + 1) * t.page_bytes - l.scale_bytes);
  };
  Tensor rows(DType::bf16, {tokens, columns});
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int64_t page = std::clamp<std::int64_t>(token / t.page_size + slip.page_shift, 0, last_page);
    const std::int64_t from = page * t.page_size + token % t.page_size;
    const std::int64_t place = from % t.page_size;
    const std::int64_t scaled = slip.has_scales_of_pair
                                    ? place ^ 1
                                    : std::clamp<std::int64_t>(place + slip.scale_token_shift, 0, t.page_size - 1);
    const std::byte* const data = pages + t.data(from);
    for (int column = 0; column < l.values; ++column) {
      const int own = t.block_of(column);
      const int block = slip.has_first_scale        ? 0
                        : slip.has_scales_of_blocks ? own ^ 1
                        : slip.turns_four_scales    ? own / 4 * 4 + (own + 1) % 4
                                                    : own + slip.scale_block_shift;
      const std::int64_t at = page * t.page_bytes + t.scale_of_place(scaled, std::clamp(block, 0, blocks - 1));
      rows.set(token * columns + column,
               value_at(t, data, column, slip) * (slip.is_unscaled ? 1.0 : scale_at(t, pages + inside(at))));
    }
    std::memcpy(rows.bytes.data() + (token * columns + l.values) * 2, data + l.bf16_at,
                static_cast<std::size_t>(2 * l.bf16));
  }
  return rows;
}

Tensor make_window_cache(const AttentionFacts& facts, const Tensor& lengths, std::int64_t tokens, Fill fill,
                         std::uint64_t seed, std::uint64_t stream) {
  const Token t(facts);
  const std::int64_t batch = lengths.elements(), pages = (tokens + t.page_size - 1) / t.page_size;
  Tensor all(DType::u8, {batch, pages, t.page_bytes});
  if (all.bytes.empty()) return all;
  std::memset(all.bytes.data(), 0xFF, all.bytes.size());
  for (std::int64_t b = 0; b < batch; ++b) {
    const Tensor one =
        make_cache(facts, std::llround(lengths.at(b)), fill, seed + static_cast<std::uint64_t>(b), stream);
    if (!one.bytes.empty())
      std::memcpy(all.bytes.data() + b * pages * t.page_bytes, one.bytes.data(), one.bytes.size());
  }
  return all;
}

Tensor rows_of_window_cache(const AttentionFacts& facts, const TensorView& pages, std::int64_t tokens,
                            const CacheSlip& slip) {
  const std::int64_t batch = pages.shape[0], columns = cache_columns(cache_of(facts));
  Tensor all(DType::bf16, {batch, tokens, 1, columns});
  for (std::int64_t b = 0; b < batch && tokens > 0; ++b) {
    const Tensor one = rows_of_cache(facts, pages.data + b * pages.strides[0], tokens, slip);
    std::memcpy(all.bytes.data() + b * tokens * columns * 2, one.bytes.data(), one.bytes.size());
  }
  return all;
}

}  // namespace tessera::reference
