// tcgen05.mma: operands laid out in shared memory by the maps, found by descriptors of the maps, multiplied as the
// instruction descriptor says; scales go from their tile to Tensor Memory. D shows A's columns from a shift on. In the
// emulator only: never run on such a device.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "spec/fragment.h"
#include "spec/smem_descriptor.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/instruction_descriptor.h"
#include "tests/layout_probes/codes.h"
#include "tests/layout_probes/probe.h"

namespace tessera::probes {
namespace {

using layout::Major;
using layout::SmemDescriptor;
using layout::SmemLayout;
using layout::Tcgen05Kind;
using layout::Tcgen05Type;

constexpr int kM = 128, kN = 16, kImageBytes = 32 * 1024;
constexpr int kAWords = 8, kAStart = kImageBytes + 64, kAColumn = 48;  // of a lane, in Tensor Memory
constexpr int kBStart = 16 * 1024, kScaleStart = 24 * 1024, kScaleColumns = 32;

struct Product {
  const char* kind;  ///< as spelled, qualifiers included
  Tcgen05Kind of_kind;
  const char* type;  ///< of A and B: a name of codes.h
  Tcgen05Type of_type;
  int vector = 0;  ///< scales of a row: 1, 2, 4
  bool is_ue4m3 = false;
  const char* result = "f32";
};

struct Layout {
  SmemLayout swizzle = SmemLayout::none;
  Major a = Major::k, b = Major::k;
  bool is_a_in_tmem = false;
};

int k_of(const Product& product) { return layout::tcgen05_k(product.of_kind); }
/// Bits of an element in shared memory.
int bits_of(const Product& product) { return product.vector >= 2 ? 4 : number_of(product.type).bits; }
/// e2m1 has no whole numbers above 4: names of 4-bit products are codes.
bool is_four_bit(const Product& product) { return product.vector >= 2; }
constexpr float kE2m1[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
int base_of(const Product& product) { return is_four_bit(product) ? 8 : number_of(product.type).base; }
float number(const Product& product, int name) { return is_four_bit(product) ? kE2m1[name] : static_cast<float>(name); }
std::uint32_t code(const Product& product, int name) {
  return static_cast<std::uint32_t>(is_four_bit(product) ? name
                                                         : static_cast<int>(code_of(number_of(product.type), name)));
}
int one_of(const Product& product) { return is_four_bit(product) ? 2 : 1; }

/// A dense image: rows of M or N by the 32 bytes of one instruction's K, or k by all of M or N.
SmemDescriptor descriptor_of(const Product& product, SmemLayout swizzle, Major major, int rows, unsigned start) {
  SmemDescriptor d;
  d.layout = swizzle;
  d.start = start;
  const int span = layout::smem_layout_span(swizzle), mn_bytes = rows * bits_of(product) / 8;
  if (swizzle == SmemLayout::none) {
    d.leading_bytes = major == Major::k ? 128 : 8 * mn_bytes;
    d.stride_bytes = major == Major::k ? 256 : 128;
  } else {
    const int group = swizzle == SmemLayout::b128_atom_32b ? 4 : 8;
    d.leading_bytes = major == Major::k ? 16 : k_of(product) * span;
    d.stride_bytes = (major == Major::k ? 8 : group) * span;
  }
  return d;
}

void put(std::vector<std::uint32_t>& image, const Product& product, const SmemDescriptor& d, Major major, int mn, int k,
         int name) {
  const int bits = bits_of(product), along = (major == Major::k ? k : mn) * bits;
  const unsigned address = smem_operand_address(d, major, major == Major::k ? mn : k, along / 8);
  REQUIRE(address < static_cast<unsigned>(kImageBytes));
  image[address / 4] |= code(product, name) << (8 * (address % 4) + static_cast<unsigned>(along % 8));
}

/// The image into shared memory, 16 bytes a thread and round; descriptors from behind it.
std::string body_of(const Product& product, bool is_a_in_tmem) {
  std::string body =
      "mul.wide.u32 d3, r0, 16;\nadd.s64 d3, d0, d3;\nshl.b32 r1, r0, 4;\nadd.u32 r2, r159, r1;\nmov.u32 r3, "
      "0;\nCOPY:\n"
      "ld.global.v4.b32 {r4, r5, r6, r7}, [d3];\nst.shared.v4.b32 [r2], {r4, r5, r6, r7};\nadd.s64 d3, d3, 2048;\n"
      "add.u32 r2, r2, 2048;\nadd.u32 r3, r3, 2048;\n";
  body += fmt::format(
      "setp.lt.u32 p, r3, {0};\n@p bra COPY;\nadd.u32 r8, r159, {0};\nadd.u32 r9, r8, 8;\nshr.u32 r10, r0, 5;\n"
      "setp.eq.u32 p, r0, 0;\n@p mbarrier.init.shared::cta.b64 [r9], 1;\n"
      "fence.mbarrier_init.release.cluster;\nsetp.eq.u32 p, r10, 0;\n"
      "@p tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [r8], 64;\nfence.proxy.async.shared::cta;\n"
      "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\nld.shared.b32 r11, [r8];\n"
      "shr.u32 r12, r159, 4;\ncvt.u64.u32 d8, r12;\n",
      kImageBytes);
  for (int i = 0; i < 4; ++i)
    body += fmt::format("ld.global.b64 d{0}, [d0+{1}];\nadd.s64 d{0}, d{0}, d8;\n", 4 + i, kImageBytes + 8 * i);
  body += fmt::format("ld.global.b32 r13, [d0+{}];\nadd.u32 r14, r11, {};\nadd.u32 r15, r11, {};\n", kImageBytes + 32,
                      kScaleColumns, kScaleColumns + 4);
  if (is_a_in_tmem) {  // a lane a thread, as it packs what was an accumulator
    body += fmt::format(
        "mul.wide.u32 d9, r0, {};\nadd.s64 d9, d0, d9;\nshl.b32 r18, r10, 21;\nadd.u32 r18, r18, r11;\n"
        "add.u32 r18, r18, {};\nadd.u32 r19, r11, {};\n",
        4 * kAWords, kAColumn, kAColumn);
    for (int i = 0; i < kAWords; ++i) body += fmt::format("ld.global.b32 r{}, [d9+{}];\n", 40 + i, kAStart + 4 * i);
    body += fmt::format(
        "tcgen05.st.sync.aligned.32x32b.x8.b32 [r18], {{{}}};\ntcgen05.wait::st.sync.aligned;\n"
        "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n",
        registers('r', 40, kAWords));
  }
  body += "setp.ne.u32 p, r0, 0;\n@p bra ISSUED;\n";
  if (product.vector != 0)
    body += "tcgen05.cp.cta_group::1.32x128b.warpx4 [r14], d6;\ntcgen05.cp.cta_group::1.32x128b.warpx4 [r15], d7;\n";
  body += fmt::format("setp.ne.u32 p, r159, r159;\ntcgen05.mma.cta_group::1.kind::{} [r11], {}, d5, r13{}, p;\n",
                      product.kind, is_a_in_tmem ? "[r19]" : "d4", product.vector != 0 ? ", [r14], [r15]" : "");
  body +=
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [r9];\nISSUED:\nWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [r9], 0;\n@!p bra WAIT;\ntcgen05.fence::after_thread_sync;\n"
      "shl.b32 r16, r10, 21;\nadd.u32 r16, r16, r11;\n";
  body += fmt::format("tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{}}}, [r16];\ntcgen05.wait::ld.sync.aligned;\n",
                      registers('r', 20, kN));
  body += fmt::format("mul.wide.u32 d9, r0, {};\nadd.s64 d9, d1, d9;\n", 4 * kN);
  for (int i = 0; i < kN; ++i) body += fmt::format("st.global.b32 [d9+{}], r{};\n", 4 * i, 20 + i);
  return body +
         "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\nsetp.eq.u32 p, r10, 0;\n"
         "@p tcgen05.dealloc.cta_group::1.sync.aligned.b32 r11, 64;\n";
}

/// Exponents of the scales: small, so that every product is exact.
int exponent(bool is_a, int row, int block) { return (row * 3 + block * 5 + (is_a ? 0 : 4)) % 7 - 3; }

/// A tile of 512 bytes: the scales from block `id` on, noise in the other blocks.
void put_scales(std::vector<std::uint32_t>& image, const Product& product, bool is_a, int id) {
  const int rows = is_a ? kM : kN;
  for (int row = 0; row < kTileRows; ++row)
    for (int block = 0; block < kTileBlocks; ++block) {
      const bool is_named = row < rows && block >= id && block < id + product.vector;
      const int e = is_named ? exponent(is_a, row, block - id) : 5;
      const auto byte = static_cast<std::uint32_t>(product.is_ue4m3 ? (e + 7) << 3 : e + 127);
      const int at = kScaleStart + (is_a ? 0 : kTileBytes) + scale_offset_in_tile(row, block);
      image[static_cast<std::size_t>(at / 4)] |= byte << (8 * (at % 4));
    }
}

struct Selectors {
  int id_a = 0, id_b = 0;
};

void check_once(const Product& product, const Layout& at, const Selectors& ids, int place, int shift) {
  const int k = k_of(product);
  const auto name = [&](int row, int column) { return digit(base_of(product), row * k + column, place); };
  std::vector<std::uint32_t> input(kAStart / 4 + kM * kAWords);
  const SmemDescriptor a = descriptor_of(product, at.swizzle, at.a, kM, 0);
  const SmemDescriptor b = descriptor_of(product, at.swizzle, at.b, at.b == Major::k ? kN : 128, kBStart);
  for (int row = 0; row < kM; ++row)
    for (int column = 0; column < k; ++column) {
      if (at.is_a_in_tmem)
        input[static_cast<std::size_t>(kAStart / 4 + row * kAWords + column * bits_of(product) / 32)] |=
            code(product, name(row, column)) << (column * bits_of(product) % 32);
      else
        put(input, product, a, at.a, row, column, name(row, column));
    }
  for (int n = 0; n < kN; ++n)
    if (n + shift < k) put(input, product, b, at.b, n, n + shift, one_of(product));
  if (product.vector != 0) {
    put_scales(input, product, true, ids.id_a);
    put_scales(input, product, false, ids.id_b);
  }
  SmemDescriptor scales;
  scales.leading_bytes = 16;
  scales.stride_bytes = 128;
  std::uint64_t words[4] = {encode_smem_descriptor(layout::DescriptorKind::tcgen05, a),
                            encode_smem_descriptor(layout::DescriptorKind::tcgen05, b), 0, 0};
  for (unsigned i = 0; i < 2; ++i) {
    scales.start = static_cast<unsigned>(kScaleStart) + i * static_cast<unsigned>(kTileBytes);
    words[2 + i] = encode_smem_descriptor(layout::DescriptorKind::tcgen05, scales);
  }
  std::memcpy(&input[kImageBytes / 4], words, sizeof(words));
  layout::InstructionDescriptor d;
  d.a = d.b = product.of_type;
  d.d = std::string_view(product.result) == "s32" ? layout::Tcgen05Result::s32 : layout::Tcgen05Result::f32;
  d.m = kM;
  d.n = kN;
  d.is_a_mn_major = at.a == Major::mn;
  d.is_b_mn_major = at.b == Major::mn;
  d.scales_are_ue8m0 = !product.is_ue4m3;
  d.scale_id_a = ids.id_a;
  d.scale_id_b = ids.id_b;
  REQUIRE(why_invalid(product.of_kind, d).ok());
  input[kImageBytes / 4 + 8] = encode_instruction_descriptor(product.of_kind, d);
  Probe probe;
  probe.body = body_of(product, at.is_a_in_tmem);
  probe.threads = 128;
  probe.arch = "sm_100a";
  probe.smem_bytes = kImageBytes + 16;
  const auto out = run(probe, input, kM * kN);
  for (int row = 0; row < kM; ++row)
    for (int n = 0; n < kN; ++n) {
      const int column = n + shift, block = product.vector == 0 ? 0 : column / (k / product.vector);
      const std::uint32_t word = out[static_cast<std::size_t>(row * kN + n)];
      const float found = std::string_view(product.result) == "s32"
                              ? static_cast<float>(static_cast<std::int32_t>(word))
                              : std::bit_cast<float>(word);
      const float plain = column < k ? number(product, name(row, column)) : 0;
      const int scale = product.vector == 0 ? 0 : exponent(true, row, block) + exponent(false, n, block);
      CAPTURE(row);
      CAPTURE(n);
      REQUIRE(found == std::ldexp(plain, column < k ? scale : 0));
    }
}

void check(const Product& product, const Layout& at, const Selectors& ids = {}) {
  CAPTURE(product.kind);
  CAPTURE(product.type);
  CAPTURE(static_cast<int>(at.swizzle));
  const int k = k_of(product), places = digits_for(base_of(product), kM * k);
  for (int shift = 0; shift < k; shift += kN)
    for (int place = 0; place < places; ++place) check_once(product, at, ids, place, shift);
}

constexpr Product kF16{"f16", Tcgen05Kind::f16, "f16", Tcgen05Type::f16};
constexpr Product kBf16{"f16", Tcgen05Kind::f16, "bf16", Tcgen05Type::bf16};
constexpr Product kTf32{"tf32", Tcgen05Kind::tf32, "tf32", Tcgen05Type::tf32};
constexpr Product kE4m3{"f8f6f4", Tcgen05Kind::f8f6f4, "e4m3", Tcgen05Type::e4m3};
constexpr Product kE5m2{"f8f6f4", Tcgen05Kind::f8f6f4, "e5m2", Tcgen05Type::e5m2};
constexpr Product kS8{"i8", Tcgen05Kind::i8, "s8", Tcgen05Type::s8, 0, false, "s32"};
constexpr Product kU8{"i8", Tcgen05Kind::i8, "u8", Tcgen05Type::u8, 0, false, "s32"};

TEST_CASE("probe: tcgen05.mma finds K-major operands by descriptors of every swizzle, every kind") {
  if (!runs("sm_100a")) return;
  for (const SmemLayout swizzle : {SmemLayout::none, SmemLayout::b32, SmemLayout::b64, SmemLayout::b128})
    for (const Product& product : {kF16, kBf16, kTf32, kE4m3, kE5m2, kS8, kU8}) check(product, {swizzle});
}

TEST_CASE("probe: tcgen05.mma finds MN-major operands by descriptors of every swizzle") {
  if (!runs("sm_100a")) return;
  for (const SmemLayout swizzle : {SmemLayout::none, SmemLayout::b32, SmemLayout::b64, SmemLayout::b128})
    for (const Product& product : {kF16, kE4m3, kU8}) {
      check(product, {swizzle, Major::mn, Major::k});
      check(product, {swizzle, Major::k, Major::mn});
      check(product, {swizzle, Major::mn, Major::mn});
    }
  check(kTf32, {SmemLayout::b128_atom_32b, Major::mn, Major::mn});
}

TEST_CASE("probe: tcgen05.mma takes A from Tensor Memory where accumulators are packed, row by lane") {
  if (!runs("sm_100a")) return;
  const Product mxf8{"mxf8f6f4.block_scale.scale_vec::1X", Tcgen05Kind::mxf8f6f4, "e4m3", Tcgen05Type::e4m3, 1};
  const Product nvf4{"mxf4nvf4.block_scale.scale_vec::4X", Tcgen05Kind::mxf4nvf4, "e2m1", Tcgen05Type::e2m1, 4, true};
  for (const Product& product : {kF16, kBf16, kTf32, kE4m3, kU8, mxf8, nvf4})
    check(product, {SmemLayout::b128, Major::k, Major::k, true});
}

TEST_CASE("probe: block-scaled tcgen05.mma takes scales where the maps say, under every scale id") {
  if (!runs("sm_100a")) return;
  const Product mxf8{"mxf8f6f4.block_scale.scale_vec::1X", Tcgen05Kind::mxf8f6f4, "e4m3", Tcgen05Type::e4m3, 1};
  const Product mxf4{"mxf4.block_scale.scale_vec::2X", Tcgen05Kind::mxf4, "e2m1", Tcgen05Type::e2m1, 2};
  const Product mxf4nv{"mxf4nvf4.block_scale.scale_vec::2X", Tcgen05Kind::mxf4nvf4, "e2m1", Tcgen05Type::e2m1, 2};
  const Product nvf4{"mxf4nvf4.block_scale.scale_vec::4X", Tcgen05Kind::mxf4nvf4, "e2m1", Tcgen05Type::e2m1, 4, true};
  const Product nvf4_ue8m0{"mxf4nvf4.block_scale.scale_vec::4X", Tcgen05Kind::mxf4nvf4, "e2m1", Tcgen05Type::e2m1, 4};
  for (const Product& product : {mxf8, mxf4, mxf4nv, nvf4, nvf4_ue8m0})
    for (int id = 0; id + product.vector <= 4; id += product.vector)
      check(product, {SmemLayout::b128}, {id, 4 - product.vector - id});
}

}  // namespace
}  // namespace tessera::probes
