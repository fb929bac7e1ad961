// mma.sync and mma.sp: D = A B with ones in B where k = n + shift, so D shows A's columns from the shift on. Every
// element of A is named by digits; where a register of D holds an element that no column of A is, D must be 0.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <random>

#include "spec/fragment.h"
#include "spec/sparse.h"
#include "tests/layout_probes/codes.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Fragment;
using layout::FragmentShape;
using layout::FragmentSlot;

/// A product as a probe sees it. spelling: the instruction up to its operands.
struct Product {
  std::string spelling;
  std::string type, result;
  FragmentShape a, b, d;
  std::string arch;
  std::string tail{};  ///< operands after C
  int products = 1;    ///< m8n8k4.f16: four, one under the other
};

/// 32-bit words of a lane's fragment.
int words_of(const FragmentShape& shape) { return fragment_registers(shape) * (shape.bits == 64 ? 2 : 1); }

void put(std::vector<std::uint32_t>& words, std::size_t stride, std::size_t first, const FragmentShape& shape, int row,
         int column, std::uint64_t code) {
  const FragmentSlot slot = fragment_slot(shape, {row, column});
  const std::size_t lane = static_cast<std::size_t>(slot.lane) * stride + first;
  if (shape.bits == 64) {
    words[lane + 2 * static_cast<std::size_t>(slot.reg)] = static_cast<std::uint32_t>(code);
    words[lane + 2 * static_cast<std::size_t>(slot.reg) + 1] = static_cast<std::uint32_t>(code >> 32);
  } else {
    words[lane + static_cast<std::size_t>(slot.reg)] |= static_cast<std::uint32_t>(code << (slot.index * shape.bits));
  }
}

std::uint64_t get(const std::vector<std::uint32_t>& words, const FragmentShape& shape, int row, int column) {
  const FragmentSlot slot = fragment_slot(shape, {row, column});
  const std::size_t lane = static_cast<std::size_t>(slot.lane * words_of(shape));
  if (shape.bits == 64) {
    const std::size_t at = lane + 2 * static_cast<std::size_t>(slot.reg);
    return words[at] | std::uint64_t{words[at + 1]} << 32;
  }
  const std::uint32_t word = words[lane + static_cast<std::size_t>(slot.reg)] >> (slot.index * shape.bits);
  return shape.bits == 16 ? word & 0xFFFF : word;
}

/// Loads a lane's words (A, B, then `extra`), multiplies onto zero, stores D.
std::string body_of(const Product& product, int extra) {
  const int a_words = words_of(product.a), b_words = words_of(product.b), d_words = words_of(product.d);
  const int stride = a_words + b_words + extra;
  const bool is_f64 = product.a.bits == 64, is_f32 = product.result == "f32";
  std::string body = fmt::format("mul.wide.u32 d3, r0, {};\nadd.s64 d3, d0, d3;\n", 4 * stride);
  const auto load = [&](int first, int words, int to) {
    for (int i = 0; i < words; ++i)
      body += is_f64 ? (i % 2 == 0 ? fmt::format("ld.global.b64 e{}, [d3+{}];\n", to + i / 2, 4 * (first + i)) : "")
                     : fmt::format("ld.global.b32 r{}, [d3+{}];\n", to + i, 4 * (first + i));
  };
  load(0, a_words, 10);
  load(a_words, b_words, 20);
  for (int i = 0; i < extra; ++i)
    body += fmt::format("ld.global.b32 r{}, [d3+{}];\n", 30 + i, 4 * (stride - extra + i));
  const char bank = is_f64 ? 'e' : is_f32 ? 'f' : 'r';
  const int d_registers = fragment_registers(product.d);
  for (int i = 0; i < d_registers; ++i)
    body += is_f64   ? fmt::format("mov.f64 e{}, 0d0000000000000000;\n", i)
            : is_f32 ? fmt::format("mov.f32 f{}, 0f00000000;\n", i)
                     : fmt::format("mov.b32 r{}, 0;\n", 40 + i);
  const std::string d = registers(bank, is_f64 || is_f32 ? 0 : 40, d_registers);
  body += fmt::format("{} {{{}}}, {{{}}}, {{{}}}, {{{}}}{};\n", product.spelling, d,
                      registers(is_f64 ? 'e' : 'r', 10, fragment_registers(product.a)),
                      registers(is_f64 ? 'e' : 'r', 20, fragment_registers(product.b)), d, product.tail);
  body += fmt::format("mul.wide.u32 d4, r0, {};\nadd.s64 d4, d1, d4;\n", 4 * d_words);
  for (int i = 0; i < d_registers; ++i)
    body += fmt::format("st.global.{} [d4+{}], {}{};\n",
                        is_f64   ? "f64"
                        : is_f32 ? "f32"
                                 : "b32",
                        (is_f64 ? 8 : 4) * i, bank, (is_f64 || is_f32 ? 0 : 40) + i);
  return body;
}

/// stored(row, column) -> number in A's fragment; dense(row, k) -> what A stands for; extra(lane): words after A and B.
struct Contents {
  std::function<int(int, int)> stored, dense;
  std::vector<std::uint32_t> extra{};  ///< one a lane, or none
};

void check(const Product& product, int k, int shift, const Contents& contents) {
  const std::size_t a_words = static_cast<std::size_t>(words_of(product.a));
  const std::size_t stride =
      a_words + static_cast<std::size_t>(words_of(product.b)) + (contents.extra.empty() ? 0u : 1u);
  const Number& number = number_of(product.type);
  std::vector<std::uint32_t> input(32 * stride);
  for (int row = 0; row < product.a.rows; ++row)
    for (int column = 0; column < product.a.columns; ++column)
      put(input, stride, 0, product.a, row, column, code_of(number, contents.stored(row, column)));
  for (int i = 0; i < k; ++i)
    for (int n = 0; n < product.b.columns; ++n)
      put(input, stride, a_words, product.b, i, n, code_of(number, i == n % 8 + shift ? 1 : 0));
  for (std::size_t lane = 0; lane < contents.extra.size(); ++lane)
    input[lane * stride + stride - 1] = contents.extra[lane];
  const auto out = run(body_of(product, contents.extra.empty() ? 0 : 1), 32, input,
                       32 * static_cast<std::size_t>(words_of(product.d)), product.arch);
  for (int row = 0; row < product.d.rows; ++row)
    for (int n = 0; n < 8; ++n) {
      const int column = n + shift;
      const int expected = column >= 0 && column < k ? contents.dense(row, column) : 0;
      CAPTURE(row);
      CAPTURE(n);
      CAPTURE(shift);
      REQUIRE(value_of(product.result, get(out, product.d, row, n)) == expected);
    }
}

void check_dense(const Product& product) {
  if (!runs(product.arch)) return;
  CAPTURE(product.spelling);
  const int k = product.a.columns, base = number_of(product.type).base;
  for (int place = 0; place < digits_for(base, product.a.rows * k); ++place)
    for (int shift = k < 8 ? k - 8 : 0; shift < k; shift += k < 8 ? k : 8) {
      const auto name = [&](int row, int column) { return digit(base, row * k + column, place); };
      check(product, k, shift, {name, name});
    }
}

Product dense(int m, int k, const std::string& type, const std::string& result, const std::string& arch,
              const std::string& modifier = {}, const std::string& last = {}) {
  const int bits = number_of(type).bits, d_bits = result == "f16" ? 16 : result == "f64" ? 64 : 32;
  return {fmt::format("mma.sync.aligned.m{}n8k{}.row.col{}.{}.{}.{}.{}{}", m, k, modifier, result, type, type, result,
                      last),
          type,
          result,
          {Fragment::mma_a, m, k, bits},
          {Fragment::mma_b, k, 8, bits},
          {Fragment::mma_d, m, 8, d_bits},
          arch};
}

TEST_CASE("probe: mma.sync takes A and B and gives D where the maps say, every shape and type") {
  const char* const kSm90 = "sm_90a";
  for (const char* result : {"f32", "f16"})
    for (const int k : {8, 16}) check_dense(dense(16, k, "f16", result, kSm90));
  for (const int k : {8, 16}) check_dense(dense(16, k, "bf16", "f32", kSm90));
  for (const int k : {4, 8}) check_dense(dense(16, k, "tf32", "f32", kSm90));
  check_dense(dense(8, 4, "f64", "f64", kSm90));
  for (const int k : {4, 8, 16}) check_dense(dense(16, k, "f64", "f64", kSm90));
  for (const char* type : {"e4m3", "e5m2"})
    for (const char* result : {"f32", "f16"})
      for (const int k : {16, 32}) check_dense(dense(16, k, type, result, kSm90));
  for (const char* type : {"s8", "u8"}) {
    check_dense(dense(8, 16, type, "s32", kSm90));
    for (const int k : {16, 32}) check_dense(dense(16, k, type, "s32", kSm90));
  }
  for (const char* type : {"s4", "u4"}) {
    check_dense(dense(8, 32, type, "s32", kSm90));
    for (const int k : {32, 64}) check_dense(dense(16, k, type, "s32", kSm90));
  }
  check_dense(dense(8, 128, "b1", "s32", kSm90, "", ".and.popc"));
  for (const int k : {128, 256}) check_dense(dense(16, k, "b1", "s32", kSm90, "", ".and.popc"));
  for (const char* type : {"e3m2", "e2m3", "e2m1", "e4m3", "e5m2"})
    for (const char* result : {"f32", "f16"}) check_dense(dense(16, 32, type, result, "sm_120a", ".kind::f8f6f4"));
}

TEST_CASE("probe: mma.m8n8k4.f16 is four products of threads 4p and 4p + 16 on") {
  for (const bool is_a_row : {true, false})
    for (const bool is_b_row : {true, false})
      for (const char* result : {"f32", "f16"})
        check_dense({fmt::format("mma.sync.aligned.m8n8k4.{}.{}.{}.f16.f16.{}", is_a_row ? "row" : "col",
                                 is_b_row ? "row" : "col", result, result),
                     "f16",
                     result,
                     {is_a_row ? Fragment::quarter_a_row : Fragment::quarter_a_col, 32, 4, 16},
                     {is_b_row ? Fragment::quarter_b_row : Fragment::quarter_b_col, 4, 32, 16},
                     {Fragment::quarter_d, 32, 8, result[1] == '3' ? 32 : 16},
                     "sm_70"});
}

/// A random choice for every row's groups: its nibble, and which places of the group are kept.
struct Kept {
  std::uint32_t nibble;
  int places[2];
};

Kept random_choice(int bits, std::mt19937& random) {
  if (bits == 32) {
    const int place = static_cast<int>(random() % 2);
    return {place == 0 ? 0x4u : 0xEu, {place, place}};
  }
  static constexpr int kPairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  const auto& pair = kPairs[random() % 6];
  return {static_cast<std::uint32_t>(pair[0] | pair[1] << 2), {pair[0], pair[1]}};
}

void check_sparse(int k, const std::string& type, const std::string& result, const std::string& name) {
  const int bits = number_of(type).bits, base = number_of(type).base;
  const layout::SparseShape shape{bits, k, false};
  const int group = layout::sparse_group(bits), kept = group / 2, groups = sparse_groups(shape);
  std::mt19937 random(static_cast<unsigned>(k * 64 + bits));
  for (int selector = 0; selector < sparse_selectors(shape); ++selector) {
    Product product{fmt::format("{}.sync.aligned.m16n8k{}.row.col.{}.{}.{}.{}", name, k, result, type, type, result),
                    type,
                    result,
                    {Fragment::mma_a, 16, k / 2, bits},
                    {Fragment::mma_b, k, 8, bits},
                    {Fragment::mma_d, 16, 8, 32},
                    "sm_90a",
                    fmt::format(", r30, {}", selector)};
    CAPTURE(product.spelling);
    CAPTURE(selector);
    // Threads that the selector does not name hold noise.
    std::vector<std::uint32_t> metadata(32);
    for (std::uint32_t& word : metadata) word = static_cast<std::uint32_t>(random());
    std::vector<Kept> choices;
    for (int row = 0; row < 16; ++row)
      for (int g = 0; g < groups; ++g) {
        choices.push_back(random_choice(bits, random));
        const layout::MetadataSlot slot = sparse_metadata_slot(shape, selector, {row, g});
        std::uint32_t& word = metadata[static_cast<std::size_t>(slot.lane)];
        word = (word & ~(0xFu << slot.first_bit)) | choices.back().nibble << slot.first_bit;
      }
    for (int place = 0; place < digits_for(base - 1, 16 * k / 2); ++place) {
      const auto stored = [&](int row, int column) { return 1 + digit(base - 1, row * k / 2 + column, place); };
      const auto dense_value = [&](int row, int column) {
        const Kept& choice = choices[static_cast<std::size_t>(row * groups + column / group)];
        // A place is one element, or a pair of them.
        const int width = bits == 4 ? 2 : 1, at = column % group / width;
        for (int i = 0; i < kept / width; ++i)
          if (choice.places[i] == at) return stored(row, column / group * kept + i * width + column % width);
        return 0;
      };
      for (int shift = 0; shift < k; shift += 8) check(product, k, shift, {stored, dense_value, metadata});
    }
  }
}

TEST_CASE("probe: mma.sp takes stored elements and metadata where the maps say") {
  for (const char* name : {"mma.sp", "mma.sp::ordered_metadata"}) {
    for (const int k : {16, 32}) {
      check_sparse(k, "f16", "f32", name);
      check_sparse(k, "bf16", "f32", name);
    }
    for (const int k : {8, 16}) check_sparse(k, "tf32", "f32", name);
    for (const int k : {32, 64}) {
      check_sparse(k, "u8", "s32", name);
      check_sparse(k, "s8", "s32", name);
    }
    for (const int k : {64, 128}) {
      check_sparse(k, "u4", "s32", name);
      check_sparse(k, "s4", "s32", name);
    }
    if (!is_on_gpu()) continue;  // the emulator has no sparse 8-bit floats
    for (const char* type : {"e4m3", "e5m2"}) check_sparse(64, type, "f32", name);
  }
}

}  // namespace
}  // namespace tessera::probes
