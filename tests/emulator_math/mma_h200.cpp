// Outputs that an H200 gave, as checksums (taken from a model that matched every one of them): 18 instructions, 5 sets
// of data, 32,768 outputs each. The inputs are drawn again here, the fast kernel computes, and the CRC-32 of the
// results, in order, set after set, must be the same.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "emulator/math/mma_tile.h"
#include "tests/emulator_math/crc32.h"
#include "tests/emulator_math/mma_data.h"

namespace tessera::emulator::math {
namespace {

struct Instruction {
  const char* name;
  MmaPath path;
  Format a;
  Format b;
  int m;
  int k;
  std::uint32_t crc;
};
// The order numbers the random streams.
const Instruction kInstructions[] = {
    {"wgmma m64n8k16 f32.bf16", mma_paths::kHopperF32, Format::bf16, Format::bf16, 64, 16, 0x6bab02de},
    {"wgmma m64n8k16 f32.f16", mma_paths::kHopperF32, Format::f16, Format::f16, 64, 16, 0xabde47d0},
    {"wgmma m64n8k16 f16.f16", mma_paths::kHopperF16, Format::f16, Format::f16, 64, 16, 0x0e5efa20},
    {"wgmma m64n8k8 f32.tf32", mma_paths::kHopperTf32, Format::tf32, Format::tf32, 64, 8, 0x18f84fb4},
    {"wgmma m64n8k32 f32.e4m3", mma_paths::kHopperFp8, Format::e4m3, Format::e4m3, 64, 32, 0xf99771d3},
    {"wgmma m64n8k32 f32.e5m2", mma_paths::kHopperFp8, Format::e5m2, Format::e5m2, 64, 32, 0xb5ce6d01},
    {"wgmma m64n8k32 f32.e4m3.e5m2", mma_paths::kHopperFp8, Format::e4m3, Format::e5m2, 64, 32, 0xa2ab3040},
    {"wgmma m64n8k32 f16.e4m3", mma_paths::kHopperFp8F16, Format::e4m3, Format::e4m3, 64, 32, 0x4d7e9f02},
    {"mma m16n8k16 f32.bf16", mma_paths::kHopperF32, Format::bf16, Format::bf16, 16, 16, 0x53180332},
    {"mma m16n8k16 f32.f16", mma_paths::kHopperF32, Format::f16, Format::f16, 16, 16, 0x03dd861e},
    {"mma m16n8k16 f16.f16", mma_paths::kHopperF16, Format::f16, Format::f16, 16, 16, 0x7a68b483},
    {"mma m16n8k8 f32.bf16", mma_paths::kHopperK8, Format::bf16, Format::bf16, 16, 8, 0xb7146100},
    {"mma m16n8k8 f32.f16", mma_paths::kHopperK8, Format::f16, Format::f16, 16, 8, 0x4bdd05d5},
    {"mma m16n8k8 f32.tf32", mma_paths::kHopperTf32, Format::tf32, Format::tf32, 16, 8, 0x70cfa70e},
    {"mma m16n8k4 f32.tf32", mma_paths::kHopperTf32K4, Format::tf32, Format::tf32, 16, 4, 0x6e80e42f},
    {"mma m16n8k32 f32.e4m3", mma_paths::kWidenedFp8, Format::e4m3, Format::e4m3, 16, 32, 0x8b5f8063},
    {"mma m16n8k32 f32.e5m2", mma_paths::kWidenedFp8, Format::e5m2, Format::e5m2, 16, 32, 0x5c5fc3ff},
    {"wgmma m64n8k16 f32.bf16, A in registers", mma_paths::kHopperF32, Format::bf16, Format::bf16, 64, 16, 0xe55f1ff0},
};
constexpr int kN = 8;

// All tiles of one set: operands of tile t are elements t * m * k ... of their streams.
struct Inputs {
  std::vector<std::uint32_t> a;
  std::vector<std::uint32_t> b;
  std::vector<std::uint32_t> c;
};

Inputs draw(const Instruction& in, std::uint64_t stream, test::Data data) {
  const std::size_t tiles = 32768u / static_cast<std::size_t>(in.m * kN);
  const auto m = static_cast<std::size_t>(in.m);
  const auto k = static_cast<std::size_t>(in.k);
  Inputs out;
  for (std::size_t i = 0; i < tiles * m * k; ++i)
    out.a.push_back(test::draw_operand(in.a, data, test::random_bits(stream * 4, i)));
  for (std::size_t i = 0; i < tiles * kN * k; ++i)
    out.b.push_back(test::draw_operand(in.b, data, test::random_bits(stream * 4 + 1, i)));
  for (std::size_t i = 0; i < tiles * m * kN; ++i)
    out.c.push_back(
        test::draw_accumulator(in.path.result == MmaResult::f16, data, test::random_bits(stream * 4 + 2, i)));
  if (data != test::Data::cancelling) return out;
  for (std::size_t t = 0; t < tiles; ++t) {
    for (std::size_t j = 0; j + 1 < k; j += 2) {
      if ((test::random_bits(stream * 4 + 3, t * 64 + j) & 3) == 0) continue;
      for (std::size_t row = 0; row < m; ++row) out.a[(t * m + row) * k + j + 1] = out.a[(t * m + row) * k + j];
      for (std::size_t n = 0; n < kN; ++n)
        out.b[(t * kN + n) * k + j + 1] = out.b[(t * kN + n) * k + j] ^ test::operand_sign(in.b);
    }
  }
  return out;
}

void fill(MmaOperand& operand, Format format, const std::uint32_t* codes) {
  for (int i = 0; i < operand.count(); ++i)
    for (int k = 0; k < operand.k(); ++k) operand.set(format, *codes++, i, k);
}

TEST_CASE("matrix outputs as an H200 gave them") {
  std::uint64_t number = 0;
  for (const Instruction& in : kInstructions) {
    test::Crc32 crc;
    MmaOperand a(in.m, in.k);
    MmaOperand b(kN, in.k);
    for (test::Data data : test::kAllData) {
      Inputs inputs = draw(in, 1000003 + number * 101 + static_cast<std::uint64_t>(data), data);
      const auto outputs = static_cast<std::size_t>(in.m * kN);
      for (std::size_t t = 0; t < inputs.c.size() / outputs; ++t) {
        fill(a, in.a, &inputs.a[t * static_cast<std::size_t>(in.m * in.k)]);
        fill(b, in.b, &inputs.b[t * static_cast<std::size_t>(kN * in.k)]);
        mma_tile(in.path, a, b, &inputs.c[t * outputs], kN);
      }
      for (std::uint32_t word : inputs.c) crc.word(word);
    }
    CAPTURE(in.name);
    CHECK(crc.value() == in.crc);
    ++number;
  }
}

}  // namespace
}  // namespace tessera::emulator::math
