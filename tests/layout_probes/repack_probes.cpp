// D to A: accumulators that name their places are converted and packed into A as `tessera layout repack` says, and a
// product with ones where k = n + shift shows where each one came to stand. Once with B's rows in the order that makes
// it free, once in the natural order, with the shuffles that it takes. wgmma's fragments are mma's, warp by warp.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>

#include "spec/fragment.h"
#include "tests/layout_probes/codes.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Fragment;
using layout::FragmentElement;
using layout::FragmentShape;
using layout::FragmentSlot;

struct Product {
  const char* spelling;
  const char* type;  ///< of A and B
  int k, bits;
  const char* arch = "sm_90a";
  const char* tail = "";  ///< operands behind C
  bool is_integer = false;
};

constexpr int kValues = 32;  // words of D of a thread in memory: 8 tiles of 4 values

/// Two values of D, registers v and v + 1 of bank f or r, become the pair in the low bits of register `to`.
std::string convert(const Product& product, int v, int to) {
  const std::string_view type = product.type;
  if (product.is_integer)
    return fmt::format("cvt.pack.sat.{}.s32.b32 r{}, r{}, r{}, 0;\n", type, to, 40 + v + 1, 40 + v);
  if (type == "f16" || type == "bf16") return fmt::format("cvt.rn.{}x2.f32 r{}, f{}, f{};\n", type, to, v + 1, v);
  if (type == "e2m1")
    return fmt::format(
        "{{\n.reg .b8 b;\ncvt.rn.satfinite.e2m1x2.f32 b, f{}, f{};\nmov.b32 r{}, {{b, b, b, b}};\nand.b32 r{}, r{}, "
        "255;\n}}\n",
        v + 1, v, to, to, to);
  return fmt::format("cvt.rn.satfinite.{}x2.f32 h0, f{}, f{};\ncvt.u32.u16 r{}, h0;\n", type, v + 1, v, to);
}

/// Where K's column stands in D when it keeps its order, or takes the one that is free.
int source_of(const Product& product, bool is_free, int k) {
  return is_free ? layout::repack_column(product.bits, k) : k;
}

/// A's registers r4 to r7 of a thread's own values, K renamed.
std::string own_registers(const Product& product, const FragmentShape& a) {
  const FragmentShape d{Fragment::mma_d, 16, 8, 32};
  const int per = fragment_elements(a);
  std::string body;
  for (int reg = 0; reg < fragment_registers(a); ++reg) {
    const auto value = [&](int e) {
      const FragmentElement at = fragment_element(a, {0, reg, e});
      const int column = source_of(product, true, at.column);
      return column / 8 * 4 + fragment_slot(d, {at.row, column % 8}).reg;
    };
    if (per == 1) {
      body += fmt::format("cvt.rna.tf32.f32 r{}, f{};\n", 4 + reg, value(0));
      continue;
    }
    body += fmt::format("mov.b32 r{}, 0;\n", 4 + reg);
    for (int e = 0; e < per; e += 2) {
      REQUIRE(value(e + 1) == value(e) + 1);  // pairs travel together
      body += convert(product, value(e), 30) +
              fmt::format("shl.b32 r30, r30, {};\nor.b32 r{}, r{}, r30;\n", e * product.bits, 4 + reg, 4 + reg);
    }
  }
  return body;
}

/// The shuffles that put A's registers into natural order: of the packed words, or of single values where none pack.
std::string shuffles(const Product& product, const FragmentShape& a) {
  const int per = fragment_elements(a), registers_of_a = fragment_registers(a), pair = 2 * product.bits;
  std::string body = "and.b32 r20, r0, 3;\nand.b32 r21, r0, 28;\n";  // q, and the quad's first thread
  for (int reg = 0; reg < registers_of_a; ++reg) {
    if (per == 1) {  // v0 (v2 of row g + 8) stands in a0 (a1), v1 (v3) in a2 (a3)
      body += fmt::format(
          "shr.u32 r22, r20, 1;\nadd.u32 r22, r22, {};\nadd.u32 r22, r22, r21;\n"
          "shfl.sync.idx.b32 r23, r{}, r22, 31, -1;\nshfl.sync.idx.b32 r24, r{}, r22, 31, -1;\nand.b32 r25, r20, 1;\n"
          "setp.ne.u32 p, r25, 0;\nselp.b32 r{}, r24, r23, p;\n",
          reg / 2 * 2, 4 + reg % 2, 6 + reg % 2, 10 + reg);
      continue;
    }
    body += fmt::format("mov.b32 r{}, 0;\n", 10 + reg);
    for (int s = 0; s < per / 2; ++s) {
      // 8 bits: threads 2 (q % 2) + s, the pair of tile q / 2; 4 bits: thread s, the pair of tile q.
      body += per == 4 ? fmt::format(
                             "and.b32 r22, r20, 1;\nshl.b32 r22, r22, 1;\nadd.u32 r22, r22, {};\nshr.u32 r26, r20, "
                             "1;\n",
                             s)
                       : fmt::format("mov.b32 r22, {};\nmov.b32 r26, r20;\n", s);
      body += fmt::format(
          "add.u32 r22, r22, r21;\nshfl.sync.idx.b32 r23, r{}, r22, 31, -1;\nmul.lo.u32 r26, r26, {};\n"
          "shr.u32 r23, r23, r26;\nand.b32 r23, r23, {};\nshl.b32 r23, r23, {};\nor.b32 r{}, r{}, r23;\n",
          4 + reg, pair, (1 << pair) - 1, s * pair, 10 + reg, 10 + reg);
    }
  }
  for (int reg = 0; reg < registers_of_a; ++reg) body += fmt::format("mov.b32 r{}, r{};\n", 4 + reg, 10 + reg);
  return body;
}

std::string body_of(const Product& product, const FragmentShape& a, int b_registers, bool is_free) {
  std::string body = fmt::format("mul.wide.u32 d3, r0, {};\nadd.s64 d3, d0, d3;\n", 4 * (kValues + b_registers));
  const char bank = product.is_integer ? 'r' : 'f';
  for (int i = 0; i < product.k / 2; ++i)
    body += fmt::format("ld.global.b32 {}{}, [d3+{}];\n", bank, (product.is_integer ? 40 : 0) + i, 4 * i);
  for (int i = 0; i < b_registers; ++i) body += fmt::format("ld.global.b32 r{}, [d3+{}];\n", 27 + i, 4 * (kValues + i));
  body += own_registers(product, a);
  if (!is_free) body += shuffles(product, a);
  for (int i = 0; i < 4; ++i)
    body +=
        product.is_integer ? fmt::format("mov.b32 r{}, 0;\n", 40 + i) : fmt::format("mov.f32 f{}, 0f00000000;\n", i);
  const std::string d = registers(bank, product.is_integer ? 40 : 0, 4);
  body += fmt::format("mov.b32 r31, 0x38383838;\n{} {{{}}}, {{{}}}, {{{}}}, {{{}}}{};\n", product.spelling, d,
                      registers('r', 4, fragment_registers(a)), registers('r', 27, b_registers), d, product.tail);
  return body + fmt::format("mul.wide.u32 d4, r0, 16;\nadd.s64 d4, d1, d4;\nst.global.v4.b32 [d4], {{{}}};\n", d);
}

constexpr float kE2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};

void check(const Product& product, bool is_free) {
  if (!runs(product.arch)) return;
  CAPTURE(product.spelling);
  CAPTURE(is_free);
  const bool is_e2m1 = std::string_view(product.type) == "e2m1";
  const int base = is_e2m1 ? 8 : number_of(product.type).base;
  const auto number = [&](int name) { return is_e2m1 ? kE2m1[name] : static_cast<float>(name); };
  const FragmentShape a{Fragment::mma_a, 16, product.k, product.bits}, b{Fragment::mma_b, product.k, 8, product.bits};
  const FragmentShape d{Fragment::mma_d, 16, 8, 32};
  const int b_registers = fragment_registers(b), stride = kValues + b_registers;
  for (int place = 0; place < digits_for(base, 16 * product.k); ++place)
    for (int shift = 0; shift < product.k; shift += 8) {
      const auto name = [&](int row, int column) { return digit(base, row * product.k + column, place); };
      std::vector<std::uint32_t> input(static_cast<std::size_t>(32 * stride));
      for (int row = 0; row < 16; ++row)
        for (int column = 0; column < product.k; ++column) {
          const FragmentSlot slot = fragment_slot(d, {row, column % 8});
          input[static_cast<std::size_t>(slot.lane * stride + column / 8 * 4 + slot.reg)] =
              product.is_integer ? static_cast<std::uint32_t>(name(row, column))
                                 : std::bit_cast<std::uint32_t>(number(name(row, column)));
        }
      // Column n of the product takes D's column n + shift: B's rows stand in the order of K.
      for (int k = 0; k < product.k; ++k)
        for (int n = 0; n < 8; ++n) {
          if (source_of(product, is_free, k) != n + shift) continue;
          const FragmentSlot slot = fragment_slot(b, {k, n});
          const std::uint64_t one = is_e2m1 ? 2 : code_of(number_of(product.type), 1);
          input[static_cast<std::size_t>(slot.lane * stride + kValues + slot.reg)] |=
              static_cast<std::uint32_t>(one << (slot.index * product.bits));
        }
      const auto out = run(body_of(product, a, b_registers, is_free), 32, input, 128, product.arch);
      for (int row = 0; row < 16; ++row)
        for (int n = 0; n < 8; ++n) {
          const FragmentSlot slot = fragment_slot(d, {row, n});
          const std::uint32_t word = out[static_cast<std::size_t>(slot.lane * 4 + slot.reg)];
          const float found =
              product.is_integer ? static_cast<float>(static_cast<std::int32_t>(word)) : std::bit_cast<float>(word);
          CAPTURE(row);
          CAPTURE(n);
          CAPTURE(shift);
          REQUIRE(found == number(name(row, n + shift)));
        }
    }
}

constexpr Product kProducts[] = {
    {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "f16", 16, 16},
    {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", 16, 16},
    {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", "f16", 8, 16},
    {"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", 8, 32},
    {"mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", "e4m3", 32, 8},
    {"mma.sync.aligned.m16n8k16.row.col.f32.e5m2.e5m2.f32", "e5m2", 16, 8},
    {"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", "s8", 32, 8, "sm_90a", "", true},
    {"mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3", "e2m1", 64,
     4, "sm_120a", ", {r31}, {0, 0}, {r31}, {0, 0}"}};

TEST_CASE("probe: accumulators become the next product's A without shuffles where K is renamed") {
  for (const Product& product : kProducts) check(product, true);
}

TEST_CASE("probe: accumulators become the next product's A in natural order by the shuffles that are named") {
  for (const Product& product : kProducts)
    if (product.bits != 16) check(product, false);
}

}  // namespace
}  // namespace tessera::probes
