// wgmma and wgmma.sp: A from registers, B from shared memory through a descriptor, both laid out by the maps; D shows
// A's columns from a shift on, and for wide N the columns of B by their names.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <random>

#include "spec/fragment.h"
#include "spec/smem_descriptor.h"
#include "spec/sparse.h"
#include "tests/layout_probes/codes.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Fragment;
using layout::FragmentShape;
using layout::FragmentSlot;
using layout::Major;
using layout::SmemLayout;

struct Product {
  std::string type, result;
  int n = 8, k = 16;  ///< of the product
  SmemLayout layout = SmemLayout::none;
  Major major = Major::k;
  int selector = -1;  ///< sparse from 0 on
};

/// A's stored element, B's element, what D must be; metadata a lane.
struct Contents {
  std::function<int(int, int)> a, b, d;
  std::vector<std::uint32_t> metadata{};
};

layout::SmemDescriptor descriptor_of(const Product& product) {
  layout::SmemDescriptor d;
  d.layout = product.layout;
  const int span = layout::smem_layout_span(product.layout), bits = number_of(product.type).bits;
  const int k_bytes = product.k * bits / 8, n_bytes = product.n * bits / 8;
  if (product.layout == SmemLayout::none) {
    // Cores of 8 rows of 16 bytes, one after the other along K (or N), then the next ones.
    d.leading_bytes = 128;
    d.stride_bytes = 8 * k_bytes;
    if (product.major == Major::mn) {
      d.leading_bytes = 8 * n_bytes;
      d.stride_bytes = 128;
    }
  } else {
    d.leading_bytes = product.major == Major::k ? 16 : product.k * span;
    d.stride_bytes = 8 * span;
  }
  return d;
}

std::string tail_of(const Product& product) {
  const std::string sparse = product.selector >= 0 ? fmt::format(", r30, {}", product.selector) : "";
  if (product.result == "s32") return sparse + ", p";
  const bool is_16_bit = number_of(product.type).bits == 16;
  return sparse + ", p, 1, 1" + (is_16_bit ? fmt::format(", {}", product.major == Major::mn ? 1 : 0) : "");
}

/// B into shared memory by 16 bytes a thread and round, then one product onto zero.
std::string body_of(const Product& product, int b_bytes) {
  const int d_registers =
      layout::fragment_registers({Fragment::wgmma_d, 64, product.n, product.result == "f16" ? 16 : 32});
  const bool is_f32 = product.result == "f32";
  std::string body = "mul.wide.u32 d3, r0, 20;\nadd.s64 d3, d0, d3;\n";
  for (int i = 0; i < 5; ++i) body += fmt::format("ld.global.b32 r{}, [d3+{}];\n", i < 4 ? 20 + i : 30, 4 * i);
  body += "mul.wide.u32 d4, r0, 16;\nadd.s64 d4, d0, d4;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r159, r1;\n";
  for (int at = 0; at < b_bytes; at += 2048)
    body +=
        fmt::format("ld.global.v4.b32 {{r4, r5, r6, r7}}, [d4+{}];\nst.shared.v4.b32 [r2+{}], {{r4, r5, r6, r7}};\n",
                    128 * 20 + at, at);
  body += fmt::format(
      "fence.proxy.async.shared::cta;\nbar.sync 0;\nld.global.b64 d5, [d0+{}];\nshr.u32 r3, r159, 4;\n"
      "cvt.u64.u32 d6, r3;\nadd.s64 d5, d5, d6;\nsetp.ne.u32 p, r159, r159;\n",
      128 * 20 + b_bytes);
  for (int i = 0; i < d_registers; ++i)
    body += is_f32 ? fmt::format("mov.f32 f{}, 0f00000000;\n", i) : fmt::format("mov.b32 r{}, 0;\n", 31 + i);
  const std::string_view type = product.type;
  body += fmt::format(
      "wgmma.fence.sync.aligned;\nwgmma.mma_async{}.sync.aligned.m64n{}k{}.{}.{}.{}{} {{{}}}, {{r20, r21, r22, r23}}, "
      "d5{};\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\nmul.wide.u32 d7, r0, {};\n"
      "add.s64 d7, d1, d7;\n",
      product.selector >= 0 ? ".sp" : "", product.n, product.k, product.result, type, type,
      type == "b1" ? ".and.popc" : "", registers(is_f32 ? 'f' : 'r', is_f32 ? 0 : 31, d_registers), tail_of(product),
      4 * d_registers);
  for (int i = 0; i < d_registers; ++i)
    body += fmt::format("st.global.b32 [d7+{}], {}{};\n", 4 * i, is_f32 ? 'f' : 'r', (is_f32 ? 0 : 31) + i);
  return body;
}

void check(const Product& product, const Contents& contents) {
  const Number& number = number_of(product.type);
  const layout::SmemDescriptor d = descriptor_of(product);
  const FragmentShape a{Fragment::wgmma_a, 64, product.k / (product.selector >= 0 ? 2 : 1), number.bits};
  const FragmentShape result{Fragment::wgmma_d, 64, product.n, product.result == "f16" ? 16 : 32};
  int b_bytes = (product.n * product.k * number.bits / 8 + 2047) / 2048 * 2048;
  if (product.layout != SmemLayout::none)
    b_bytes =
        std::max(2048, (product.major == Major::k ? product.n : product.k) * layout::smem_layout_span(product.layout));
  b_bytes = (b_bytes + 2047) / 2048 * 2048;
  const std::size_t b_words = 128 * 5;
  std::vector<std::uint32_t> input(b_words + static_cast<std::size_t>(b_bytes) / 4 + 2);
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < a.columns; ++column) {
      const FragmentSlot slot = fragment_slot(a, {row, column});
      input[static_cast<std::size_t>(slot.lane * 5 + slot.reg)] |=
          static_cast<std::uint32_t>(code_of(number, contents.a(row, column)) << (slot.index * number.bits));
    }
  for (std::size_t lane = 0; lane < 128; ++lane)
    input[lane * 5 + 4] = contents.metadata.empty() ? 0 : contents.metadata[lane];
  for (int k = 0; k < product.k; ++k)
    for (int n = 0; n < product.n; ++n) {
      const int k_bit = k * number.bits, n_bit = n * number.bits;
      const unsigned address = product.major == Major::k ? smem_operand_address(d, product.major, n, k_bit / 8)
                                                         : smem_operand_address(d, product.major, k, n_bit / 8);
      REQUIRE(address < static_cast<unsigned>(b_bytes));
      input[b_words + address / 4] |= static_cast<std::uint32_t>(code_of(number, contents.b(k, n)))
                                      << (8 * (address % 4) + static_cast<unsigned>(k_bit % 8));
    }
  const unsigned long long bits = encode_smem_descriptor(layout::DescriptorKind::wgmma, d);
  std::memcpy(&input[input.size() - 2], &bits, 8);
  Probe probe;
  probe.body = body_of(product, b_bytes);
  probe.threads = 128;
  probe.smem_bytes = b_bytes;
  const int d_words = fragment_registers(result);
  const auto out = run(probe, input, 128 * static_cast<std::size_t>(d_words));
  for (int row = 0; row < 64; ++row)
    for (int n = 0; n < product.n; ++n) {
      const FragmentSlot slot = fragment_slot(result, {row, n});
      const std::uint32_t word =
          out[static_cast<std::size_t>(slot.lane * d_words + slot.reg)] >> (slot.index * result.bits);
      CAPTURE(row);
      CAPTURE(n);
      REQUIRE(value_of(product.result, result.bits == 16 ? word & 0xFFFF : word) == contents.d(row, n));
    }
}

/// D shows A's columns; then, A being ones in its first column, the names of B's columns.
void check_dense(const Product& product) {
  CAPTURE(product.type);
  CAPTURE(product.n);
  CAPTURE(static_cast<int>(product.layout));
  const int base = number_of(product.type).base;
  for (int place = 0; place < digits_for(base, 64 * product.k); ++place)
    for (int shift = 0; shift < product.k; shift += product.n) {
      const auto name = [&](int row, int k) { return digit(base, row * product.k + k, place); };
      const auto column = [&](int n) { return (n + shift) % product.k; };
      check(product, {name, [&](int k, int n) { return k == column(n) ? 1 : 0; },
                      [&](int row, int n) { return name(row, column(n)); }});
    }
  for (int place = 0; place < digits_for(base, product.n); ++place) {
    const auto name = [&](int n) { return digit(base, n, place); };
    check(product, {[](int, int k) { return k == 0 ? 1 : 0; }, [&](int k, int n) { return k == 0 ? name(n) : 0; },
                    [&](int, int n) { return name(n); }});
  }
}

TEST_CASE("probe: wgmma reads A and B and writes D where the maps say, every type") {
  if (!runs("sm_90a")) return;
  for (const int n : {8, 64, 256}) {
    check_dense({"f16", "f32", n, 16});
    check_dense({"f16", "f16", n, 16});
    check_dense({"bf16", "f32", n, 16});
    check_dense({"tf32", "f32", n, 8});
    check_dense({"e4m3", "f32", n, 32});
    check_dense({"e5m2", "f16", n, 32});
    check_dense({"s8", "s32", n, 32});
    check_dense({"u8", "s32", n, 32});
  }
  check_dense({"b1", "s32", 8, 256});
}

TEST_CASE("probe: wgmma writes D where the maps say, every N") {
  if (!runs("sm_90a")) return;
  for (int n = 8; n <= 256; n += 8) {
    check_dense({"f16", "f32", n, 16});
    check_dense({"f16", "f16", n, 16});
    if (n <= 32 || n % 16 == 0) check_dense({"u8", "s32", n, 32});
  }
}

TEST_CASE("probe: wgmma finds B by descriptors of every swizzle and major") {
  if (!runs("sm_90a")) return;
  for (const SmemLayout swizzle : {SmemLayout::b32, SmemLayout::b64, SmemLayout::b128})
    for (const int n : {8, 64}) {
      check_dense({"f16", "f32", n, 16, swizzle, Major::k});
      check_dense({"e4m3", "f32", n, 32, swizzle, Major::k});
      check_dense({"f16", "f32", std::max(n, layout::smem_layout_span(swizzle) / 2), 16, swizzle, Major::mn});
    }
  check_dense({"f16", "f32", 8, 16, SmemLayout::none, Major::mn});
  check_dense({"f16", "f32", 64, 16, SmemLayout::none, Major::mn});
}

void check_sparse(const std::string& type, const std::string& result, int k) {
  const int bits = number_of(type).bits, base = number_of(type).base;
  const layout::SparseShape shape{bits, k, true};
  const int group = layout::sparse_group(bits), kept = group / 2, groups = sparse_groups(shape);
  static constexpr int kPairs[6][2] = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  std::mt19937 random(static_cast<unsigned>(k * 64 + bits));
  for (int selector = 0; selector < sparse_selectors(shape); ++selector) {
    CAPTURE(type);
    CAPTURE(selector);
    std::vector<std::uint32_t> metadata(128);
    for (std::uint32_t& word : metadata) word = static_cast<std::uint32_t>(random());
    std::vector<std::array<int, 2>> choices;
    for (int row = 0; row < 64; ++row)
      for (int g = 0; g < groups; ++g) {
        const auto& pair = kPairs[random() % 6];
        const int place = static_cast<int>(random() % 2);
        choices.push_back(bits == 32 ? std::array{place, place} : std::array{pair[0], pair[1]});
        const std::uint32_t nibble =
            bits == 32 ? (place == 0 ? 0x4u : 0xEu) : static_cast<std::uint32_t>(pair[0] | pair[1] << 2);
        const layout::MetadataSlot slot = sparse_metadata_slot(shape, selector, {row, g});
        std::uint32_t& word = metadata[static_cast<std::size_t>(slot.lane)];
        word = (word & ~(0xFu << slot.first_bit)) | nibble << slot.first_bit;
      }
    for (int place = 0; place < digits_for(base - 1, 64 * k / 2); ++place) {
      const auto stored = [&](int row, int column) { return 1 + digit(base - 1, row * k / 2 + column, place); };
      const auto dense = [&](int row, int column) {
        const auto& choice = choices[static_cast<std::size_t>(row * groups + column / group)];
        for (int i = 0; i < kept; ++i)
          if (choice[static_cast<std::size_t>(i)] == column % group) return stored(row, column / group * kept + i);
        return 0;
      };
      for (int shift = 0; shift < k; shift += 8)
        check({type, result, 8, k, SmemLayout::none, Major::k, selector},
              {stored, [&](int row, int n) { return row == n + shift ? 1 : 0; },
               [&](int row, int n) { return dense(row, n + shift); }, metadata});
    }
  }
}

TEST_CASE("probe: wgmma.sp takes stored elements and metadata where the maps say") {
  if (!is_on_gpu() || !runs("sm_90a")) return;  // the emulator does not execute it
  check_sparse("f16", "f32", 32);
  check_sparse("bf16", "f32", 32);
  check_sparse("tf32", "f32", 16);
  check_sparse("u8", "s32", 64);
  check_sparse("s8", "s32", 64);
  check_sparse("e4m3", "f32", 64);
  check_sparse("e5m2", "f32", 64);
}

}  // namespace
}  // namespace tessera::probes
