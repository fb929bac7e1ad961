// The inner loops are in mma_tile_kernel.h; here is the choice of the instruction set and the packing of operands
// into planes.
#include "emulator/math/mma_tile.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "emulator/math/mma_step.h"
#include "emulator/math/mma_tile_kernel.h"

namespace tessera::emulator::math {
namespace {

using RunStep = void (*)(const kernel::Step&, std::uint32_t* d, std::ptrdiff_t pitch);

template <bool kHalf>
void run_baseline(const kernel::Step& s, std::uint32_t* d, std::ptrdiff_t pitch) {
  kernel::run_step<16, kHalf>(s, d, pitch);
}
#if defined(__x86_64__)
template <bool kHalf>
[[gnu::target("avx2")]] void run_avx2(const kernel::Step& s, std::uint32_t* d, std::ptrdiff_t pitch) {
  kernel::run_step<32, kHalf>(s, d, pitch);
}
template <bool kHalf>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void run_avx512(const kernel::Step& s, std::uint32_t* d,
                                                                      std::ptrdiff_t pitch) {
  kernel::run_step<64, kHalf>(s, d, pitch);
}
#endif

RunStep step_of(MmaVariant variant, bool half) {
#if defined(__x86_64__)
  if (variant == MmaVariant::avx512) return half ? run_avx512<true> : run_avx512<false>;
  if (variant == MmaVariant::avx2) return half ? run_avx2<true> : run_avx2<false>;
#endif
  static_cast<void>(variant);
  return half ? run_baseline<true> : run_baseline<false>;
}

// The k that stands at position i of the instruction's order (see MmaPath::pairs_split).
int k_at(const MmaPath& path, int i, int k) {
  if (!path.pairs_split) return i;
  const int half = k / 2;
  return i % half / 2 * 4 + i % 2 + 2 * (i / half);
}

// One group of k, repacked for the kernel. Reused from call to call.
struct Packed {
  std::vector<float> row_significand;
  std::vector<std::int32_t> row_exponent;
  alignas(64) std::array<float, kernel::kMaxGroup * kMmaLanes> column_significand;
  alignas(64) std::array<std::int32_t, kernel::kMaxGroup * kMmaLanes> column_exponent;

  void pack_rows(const MmaPath& path, const MmaOperand& rows, int first, int terms) {
    const auto size = static_cast<std::size_t>(rows.count() * kernel::kMaxGroup);
    if (row_significand.size() < size) {
      row_significand.resize(size);
      row_exponent.resize(size);
    }
    for (int i = 0; i < terms; ++i) {
      const int k = k_at(path, first + i, rows.k());
      const float* significand = rows.significands(k);
      const std::int32_t* exponent = rows.exponents(k);
      for (int row = 0; row < rows.count(); ++row) {
        const auto at = static_cast<std::size_t>(row * kernel::kMaxGroup + i);
        row_significand[at] = significand[row];
        row_exponent[at] = exponent[row];
      }
    }
  }
  void pack_columns(const MmaPath& path, const MmaOperand& columns, int first, int terms, int column) {
    for (int i = 0; i < terms; ++i) {
      const int k = k_at(path, first + i, columns.k());
      const auto at = static_cast<std::size_t>(i * kMmaLanes);
      std::memcpy(&column_significand[at], columns.significands(k) + column, kMmaLanes * sizeof(float));
      std::memcpy(&column_exponent[at], columns.exponents(k) + column, kMmaLanes * sizeof(std::int32_t));
    }
  }
};

// All steps, in order. d has whole vectors of columns.
void run_steps(RunStep run, const MmaPath& path, const MmaOperand& rows, const MmaOperand& columns, std::uint32_t* d,
               std::ptrdiff_t pitch) {
  thread_local Packed packed;
  const std::uint32_t keep = path.result == MmaResult::f32_13 ? ~std::uint32_t{0x3FF} : ~std::uint32_t{0};
  for (int first = 0; first < rows.k(); first += path.group) {
    const int terms = std::min(path.group, rows.k() - first);
    packed.pack_rows(path, rows, first, terms);
    const kernel::Step step{packed.row_significand.data(),
                            packed.row_exponent.data(),
                            packed.column_significand.data(),
                            packed.column_exponent.data(),
                            rows.count(),
                            terms,
                            path.fraction_bits,
                            keep};
    for (int column = 0; column < columns.count(); column += kMmaLanes) {
      packed.pack_columns(path, columns, first, terms, column);
      run(step, d + column, pitch);
    }
  }
}

}  // namespace

bool mma_variant_available(MmaVariant variant) {
#if defined(__x86_64__)
  if (variant == MmaVariant::avx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (variant == MmaVariant::avx2) return __builtin_cpu_supports("avx2");
#endif
  return variant == MmaVariant::baseline;
}

void mma_tile(const MmaPath& path, const MmaOperand& rows, const MmaOperand& columns, std::uint32_t* d, int pitch) {
  static const MmaVariant best = mma_variant_available(MmaVariant::avx512) ? MmaVariant::avx512
                                 : mma_variant_available(MmaVariant::avx2) ? MmaVariant::avx2
                                                                           : MmaVariant::baseline;
  mma_tile_with(best, path, rows, columns, d, pitch);
}

void mma_tile_with(MmaVariant variant, const MmaPath& path, const MmaOperand& rows, const MmaOperand& columns,
                   std::uint32_t* d, int pitch) {
  const RunStep run = step_of(variant, path.result == MmaResult::f16);
  if (columns.count() % kMmaLanes == 0 && !path.pairs_split) {
    run_steps(run, path, rows, columns, d, pitch);
    return;
  }
  // A partial vector, or C to be added last: aside, and back.
  thread_local std::vector<std::uint32_t> scratch;
  const int whole = (columns.count() + kMmaLanes - 1) / kMmaLanes * kMmaLanes;
  scratch.assign(static_cast<std::size_t>(rows.count() * whole), 0);
  const auto each = [&](auto&& action) {
    for (std::ptrdiff_t row = 0; row < rows.count(); ++row)
      for (std::ptrdiff_t column = 0; column < columns.count(); ++column)
        action(d[row * pitch + column], scratch[static_cast<std::size_t>(row * whole + column)]);
  };
  if (!path.pairs_split) each([](std::uint32_t outside, std::uint32_t& inside) { inside = outside; });
  run_steps(run, path, rows, columns, scratch.data(), whole);
  each([&path](std::uint32_t& outside, std::uint32_t inside) {
    outside = path.pairs_split ? add_last(path.result, inside, outside) : inside;
  });
}

}  // namespace tessera::emulator::math
