// The emulator's arithmetic: matrix tiles, operand decoding, special functions.
//   bench_emulator_math --benchmark_min_time=0.5
#include <benchmark/benchmark.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <cstring>
#include <vector>

#include "emulator/math/convert.h"
#include "emulator/math/float_arithmetic.h"
#include "emulator/math/half_arithmetic.h"
#include "emulator/math/matrix_descriptor.h"
#include "emulator/math/mma_fp4.h"
#include "emulator/math/mma_tile.h"
#include "emulator/math/mufu.h"
#include "emulator/math/tile_copy.h"

namespace tessera::emulator::math {
namespace {

std::uint64_t mix(std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  return z ^ (z >> 31);
}

// Codes of values in +-[2^-8, 2): what scaled activations look like.
std::vector<std::uint8_t> operand_bytes(Format format, int elements) {
  std::vector<std::uint8_t> bytes;
  for (int i = 0; i < elements; ++i) {
    const std::uint64_t r = mix(static_cast<std::uint64_t>(i));
    const double value = (1.0 + static_cast<double>(r & 0xFFFF) / 65536) / static_cast<double>(1 << (r >> 20 & 7));
    const auto rounded = encode<Format::bf16>((r >> 63) != 0 ? -value : value, Rounding::nearest_even);
    const std::uint64_t code =
        format == Format::bf16 ? rounded : encode<Format::e4m3>(decode<Format::bf16>(rounded), Rounding::nearest_even);
    bytes.push_back(static_cast<std::uint8_t>(code));
    if (format == Format::bf16) bytes.push_back(static_cast<std::uint8_t>(code >> 8));
  }
  return bytes;
}

void fill(MmaOperand& operand, Format format, const std::vector<std::uint8_t>& bytes) {
  const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
  const std::size_t element = format == Format::bf16 ? 2 : 1;
  for (int i = 0; i < operand.count(); ++i)
    operand.decode(format, data + static_cast<std::size_t>(i * operand.k()) * element, operand.k(), i, 0,
                   MmaOperand::Run::along_k);
}

// rows x columns x k multiply-adds; items are multiply-adds.
void tile(benchmark::State& state, const MmaPath& path, Format format, MmaVariant variant) {
  if (!mma_variant_available(variant)) return state.SkipWithError("not on this host");
  const auto rows = static_cast<int>(state.range(0));
  const auto columns = static_cast<int>(state.range(1));
  const auto k = static_cast<int>(state.range(2));
  MmaOperand a(rows, k);
  MmaOperand b(columns, k);
  fill(a, format, operand_bytes(format, rows * k));
  fill(b, format, operand_bytes(format, columns * k));
  std::vector<std::uint32_t> d(static_cast<std::size_t>(rows * columns));
  for (auto _ : state) {
    mma_tile_with(variant, path, a, b, d.data(), columns);
    benchmark::DoNotOptimize(d.data());
  }
  state.SetItemsProcessed(state.iterations() * rows * columns * k);
}
BENCHMARK_CAPTURE(tile, bf16_avx512, mma_paths::kHopperF32, Format::bf16, MmaVariant::avx512)->Args({64, 128, 16});
BENCHMARK_CAPTURE(tile, bf16_avx2, mma_paths::kHopperF32, Format::bf16, MmaVariant::avx2)->Args({64, 128, 16});
BENCHMARK_CAPTURE(tile, bf16_baseline, mma_paths::kHopperF32, Format::bf16, MmaVariant::baseline)->Args({64, 128, 16});
BENCHMARK_CAPTURE(tile, bf16_mma_sync, mma_paths::kHopperF32, Format::bf16, MmaVariant::avx512)->Args({8, 16, 16});
BENCHMARK_CAPTURE(tile, e4m3_avx512, mma_paths::kHopperFp8, Format::e4m3, MmaVariant::avx512)->Args({64, 128, 32});

#if defined(__x86_64__)
// What a core has to spend: multiply-adds of fp32 in 256-bit vectors, of chains that do not wait for each other.
[[gnu::target("avx2,fma")]] void peak(benchmark::State& state) {
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0)
    return state.SkipWithError("not on this host");
  constexpr int kChains = 12, kTurns = 1000;
  __m256 x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = _mm256_set1_ps(1 + 0.01f * static_cast<float>(i));
  const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
  for (auto _ : state) {
    for (int turn = 0; turn < kTurns; ++turn) {
#pragma GCC unroll 12
      for (__m256& chain : x) chain = _mm256_fmadd_ps(chain, a, b);
    }
  }
  for (int i = 1; i < kChains; ++i) x[0] = _mm256_add_ps(x[0], x[i]);
  benchmark::DoNotOptimize(_mm256_cvtss_f32(x[0]));
  state.SetItemsProcessed(state.iterations() * kTurns * kChains * 8);
}
BENCHMARK(peak);
#endif

// The products of attention, head_dim 128, one head, 256 x 512: QK^T and PV as m64n128k16 instructions, decoding
// included.
void attention_products(benchmark::State& state) {
  const std::vector<std::uint8_t> a_bytes = operand_bytes(Format::bf16, 64 * 16);
  const std::vector<std::uint8_t> b_bytes = operand_bytes(Format::bf16, 128 * 16);
  MmaOperand a(64, 16);
  MmaOperand b(128, 16);
  std::vector<std::uint32_t> d(64 * 128);
  for (auto _ : state) {
    for (int instruction = 0; instruction < 256; ++instruction) {
      fill(a, Format::bf16, a_bytes);
      fill(b, Format::bf16, b_bytes);
      mma_tile(mma_paths::kHopperF32, a, b, d.data(), 128);
      benchmark::DoNotOptimize(d.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * 256 * 64 * 128 * 16);
}
BENCHMARK(attention_products)->Unit(benchmark::kMillisecond);

// NVFP4 128 x 256 x 512: m128n256k64 tiles, decoding included.
void nvfp4_products(benchmark::State& state) {
  std::vector<std::byte> bytes;
  for (std::uint64_t i = 0; i < 256 * 32; ++i) bytes.push_back(static_cast<std::byte>(mix(i)));
  Fp4Operand a(128, 64);
  Fp4Operand b(256, 64);
  std::vector<std::uint32_t> d(128 * 256);
  const auto fill_fp4 = [&bytes](Fp4Operand& operand) {
    for (int i = 0; i < operand.count(); ++i) {
      operand.decode(bytes.data() + static_cast<std::ptrdiff_t>(i) * 32, 64, i, 0);
      for (int k = 0; k < 64; k += 16)
        operand.scale(Format::ue4m3, static_cast<std::uint8_t>(0x30 + (i + k) % 16), i, k, 16);
    }
  };
  for (auto _ : state) {
    for (int instruction = 0; instruction < 8; ++instruction) {
      fill_fp4(a);
      fill_fp4(b);
      fp4_tile(mma_paths::kTcgen05Fp4, a, b, d.data(), 256);
      benchmark::DoNotOptimize(d.data());
    }
  }
  state.SetItemsProcessed(state.iterations() * 8 * 128 * 256 * 64);
}
BENCHMARK(nvfp4_products)->Unit(benchmark::kMillisecond);

// A 64 x 64 bf16 tile through a swizzled tensor map, copied chunk by chunk; bytes of shared memory.
void tensor_copy(benchmark::State& state) {
  std::vector<std::uint8_t> memory(1 << 20);
  std::vector<std::uint8_t> shared(1 << 16);
  TensorTile t;
  t.type = TileType::bf16;
  t.rank = 3;
  t.dims = {512, 256, 4};
  t.stride_bytes = {1024, 262144};
  t.box = {64, 64, 1};
  t.swizzle = Swizzle::b128;
  for (auto _ : state) {
    for_each_chunk(t, {64, 64, 1, 0, 0}, 0x400, [&](const TileChunk& c) {
      if (c.valid_bytes == 16) std::memcpy(&shared[c.shared], &memory[c.global], 16);
    });
    benchmark::DoNotOptimize(shared.data());
  }
  state.SetBytesProcessed(state.iterations() * 64 * 64 * 2);
}
BENCHMARK(tensor_copy);

// A 128 x 16 operand of bf16 read through a K-major 128B descriptor; items are elements.
void descriptor_operand(benchmark::State& state) {
  std::vector<std::byte> shared(1 << 16);
  const MatrixDescriptor d{0x400, 16, 1024, 0, Swizzle::b128, false};
  MmaOperand b(128, 16);
  for (auto _ : state) {
    for_each_chunk(d, Major::k, 16, 128, 16, [&](std::uint32_t address, int index, int k, int elements) {
      b.decode(Format::bf16, &shared[address], elements, index, k, MmaOperand::Run::along_k);
    });
    benchmark::DoNotOptimize(b.significands(0));
  }
  state.SetItemsProcessed(state.iterations() * 128 * 16);
}
BENCHMARK(descriptor_operand);

template <std::uint32_t (*kFunction)(std::uint32_t)>
void special(benchmark::State& state) {
  std::uint32_t x = 0x3F000000;
  for (auto _ : state) {
    benchmark::DoNotOptimize(kFunction(x));
    x = 0x3F000000 + (x * 1664525u + 1013904223u) % 0x01000000;
  }
}
BENCHMARK(special<ex2_ftz>);
BENCHMARK(special<rcp_ftz>);

// A warp's numbers at once; `spread`: of any fraction, so that sums of halves are rounded.
template <SpecialForm kForm>
void special_of_warp(benchmark::State& state) {
  std::uint32_t x[32], result[32];
  for (std::uint32_t i = 0; i < 32; ++i) x[i] = 0x3F000000 + (i * 1664525u + 1013904223u) % 0x01000000;
  for (auto _ : state) {
    special_lanes(kForm, x, result, ~0u);
    benchmark::DoNotOptimize(result);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(special_of_warp<SpecialForm::ex2_ftz>);
BENCHMARK(special_of_warp<SpecialForm::rcp_ftz>);
BENCHMARK(special_of_warp<SpecialForm::rsqrt_ftz>);
BENCHMARK(special_of_warp<SpecialForm::lg2_ftz>);

template <Format F>
void fma_pairs_of_warp(benchmark::State& state) {
  const bool spread = state.range(0) != 0;
  std::uint16_t a[64], b[64], c[64], d[64];
  for (std::uint32_t i = 0; i < 64; ++i) {
    const std::uint32_t r = i * 1664525u + 1013904223u;
    const std::uint32_t one = F == Format::f16 ? 0x3C00 : 0x3F80, fraction = F == Format::f16 ? 0x3FF : 0x7F;
    a[i] = static_cast<std::uint16_t>(one | (spread ? r >> 4 & fraction : 0));
    b[i] = static_cast<std::uint16_t>(one | (spread ? r >> 12 & fraction : 0));
    c[i] = static_cast<std::uint16_t>(one | (spread ? r >> 20 & fraction : 0));
  }
  for (auto _ : state) {
    half_lanes<F, HalfOperation::fma>(a, b, c, d, 64);
    benchmark::DoNotOptimize(d);
    benchmark::ClobberMemory();
  }
}
BENCHMARK(fma_pairs_of_warp<Format::f16>)->ArgName("spread")->Arg(0)->Arg(1);
BENCHMARK(fma_pairs_of_warp<Format::bf16>)->ArgName("spread")->Arg(0)->Arg(1);

void fma_f32(benchmark::State& state) {
  float x = 0.5f;
  for (auto _ : state) {
    x = fma(x, 0.999f, 0.001f);
    benchmark::DoNotOptimize(x);
  }
}
BENCHMARK(fma_f32);

void convert_bf16(benchmark::State& state) {
  std::uint32_t x = 0x3F123456;
  for (auto _ : state) {
    benchmark::DoNotOptimize(convert<Format::bf16, Format::f32>(x));
    x += 77;
  }
}
BENCHMARK(convert_bf16);

}  // namespace
}  // namespace tessera::emulator::math

BENCHMARK_MAIN();
