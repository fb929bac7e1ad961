// The inner loops are in mma_tile_kernel.h; here is the choice of the instruction set and the packing of operands
// into planes.
#include "emulator/math/mma_tile.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "emulator/math/mma_step.h"
#include "emulator/math/mma_tile_fast.h"
#include "emulator/math/mma_tile_kernel.h"

namespace tessera::emulator::math {
namespace {

// What forms a step's outputs: all of ordinary size at once, or each by the rules alone.
using RunStep = void (*)(const kernel::Step&, std::uint32_t* d, std::ptrdiff_t pitch);
using RunGroup = bool (*)(const kernel::Planes&, const kernel::FastRoom&, std::uint32_t* d, std::ptrdiff_t pitch,
                          std::uint8_t* failed);
struct Kernels {
  RunStep step;
  RunGroup group;  ///< null for f16 results
};

template <bool kHalf>
void run_baseline(const kernel::Step& s, std::uint32_t* d, std::ptrdiff_t pitch) {
  kernel::run_step<16, kHalf>(s, d, pitch);
}
bool group_baseline(const kernel::Planes& p, const kernel::FastRoom& room, std::uint32_t* d, std::ptrdiff_t pitch,
                    std::uint8_t* failed) {
  return kernel::fast_group<16>(p, room, d, pitch, failed);
}
#if defined(__x86_64__)
template <bool kHalf>
[[gnu::target("avx2")]] void run_avx2(const kernel::Step& s, std::uint32_t* d, std::ptrdiff_t pitch) {
  kernel::run_step<32, kHalf>(s, d, pitch);
}
[[gnu::target("avx2")]] bool group_avx2(const kernel::Planes& p, const kernel::FastRoom& room, std::uint32_t* d,
                                        std::ptrdiff_t pitch, std::uint8_t* failed) {
  return kernel::fast_group<32>(p, room, d, pitch, failed);
}
template <bool kHalf>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] void run_avx512(const kernel::Step& s, std::uint32_t* d,
                                                                      std::ptrdiff_t pitch) {
  kernel::run_step<64, kHalf>(s, d, pitch);
}
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl")]] bool group_avx512(const kernel::Planes& p,
                                                                        const kernel::FastRoom& room, std::uint32_t* d,
                                                                        std::ptrdiff_t pitch, std::uint8_t* failed) {
  return kernel::fast_group<64>(p, room, d, pitch, failed);
}
#endif

Kernels kernels_of(MmaVariant variant, bool half) {
#if defined(__x86_64__)
  if (variant == MmaVariant::avx512)
    return half ? Kernels{run_avx512<true>, nullptr} : Kernels{run_avx512<false>, group_avx512};
  if (variant == MmaVariant::avx2)
    return half ? Kernels{run_avx2<true>, nullptr} : Kernels{run_avx2<false>, group_avx2};
#endif
  static_cast<void>(variant);
  return half ? Kernels{run_baseline<true>, nullptr} : Kernels{run_baseline<false>, group_baseline};
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

// Room for kernel::FastRoom. Reused from call to call.
struct Room {
  std::vector<float> row_value;
  std::vector<std::int32_t> row_exponent;
  std::vector<std::int32_t> row_bad;
  std::vector<std::uint8_t> failed;
  alignas(64) std::array<float, kernel::kMaxGroup * kernel::kFastColumns> column_value;
  alignas(64) std::array<std::int16_t, kernel::kMaxGroup * kernel::kFastColumns> column_exponent;

  kernel::FastRoom of(int rows, int columns) {
    const auto stride = static_cast<std::size_t>((rows + kMmaLanes - 1) / kMmaLanes * kMmaLanes);
    if (row_bad.size() < stride) {
      row_value.resize(stride * kernel::kMaxGroup);
      row_exponent.resize(stride * kernel::kMaxGroup);
      row_bad.resize(stride);
    }
    const auto blocks = static_cast<std::size_t>((columns + kernel::kFastColumns - 1) / kernel::kFastColumns);
    failed.resize(std::max(failed.size(), blocks * stride));
    return {row_value.data(),    row_exponent.data(),   row_bad.data(), static_cast<std::ptrdiff_t>(stride),
            column_value.data(), column_exponent.data()};
  }
};

kernel::Plane plane_of(const MmaOperand& operand, int k) {
  if (operand.has_codes()) return {nullptr, nullptr, operand.codes(k)};
  return {operand.significands(k), operand.exponents(k), nullptr};
}

// All steps, in order. d has whole vectors of columns.
void run_steps(const Kernels& run, const MmaPath& path, const MmaOperand& rows, const MmaOperand& columns,
               std::uint32_t* d, std::ptrdiff_t pitch) {
  thread_local Packed packed;
  thread_local Room room;
  const int whole = (columns.count() + kMmaLanes - 1) / kMmaLanes * kMmaLanes;
  bool is_decoded = false;
  if (rows.has_codes()) rows.order_codes();
  if (columns.has_codes()) columns.order_codes();
  const std::uint32_t keep = path.result == MmaResult::f32_13 ? ~std::uint32_t{0x3FF} : ~std::uint32_t{0};
  for (int first = 0; first < rows.k(); first += path.group) {
    const int terms = std::min(path.group, rows.k() - first);
    const std::uint8_t* failed = nullptr;
    if (run.group != nullptr) {
      kernel::Planes planes{{}, {}, {}, {}, rows.count(), whole, terms, path.fraction_bits, keep};
      planes.f16_rows = rows.format_of_codes() == Format::f16;
      planes.f16_columns = columns.format_of_codes() == Format::f16;
      for (int i = 0; i < terms; ++i) {
        const int k = k_at(path, first + i, rows.k());
        planes.row[i] = plane_of(rows, k);
        planes.column[i] = plane_of(columns, k);
      }
      const kernel::FastRoom fast = room.of(rows.count(), whole);
      if (!run.group(planes, fast, d, pitch, room.failed.data())) continue;
      failed = room.failed.data();
    }
    if (!is_decoded) {
      rows.decode_codes();
      columns.decode_codes();
      is_decoded = true;
    }
    packed.pack_rows(path, rows, first, terms);
    kernel::Step step{packed.row_significand.data(),
                      packed.row_exponent.data(),
                      packed.column_significand.data(),
                      packed.column_exponent.data(),
                      rows.count(),
                      terms,
                      path.fraction_bits,
                      keep};
    for (int column = 0; column < whole; column += kMmaLanes) {
      if (failed != nullptr) {
        step.wanted = failed + column / kernel::kFastColumns * rows.count();
        step.wanted_shift = column % kernel::kFastColumns / kernel::kFailUnit;
        if (std::none_of(step.wanted, step.wanted + rows.count(), [&step](std::uint8_t bits) {
              return (bits >> step.wanted_shift & ((1 << kMmaLanes / kernel::kFailUnit) - 1)) != 0;
            }))
          continue;
      }
      packed.pack_columns(path, columns, first, terms, column);
      run.step(step, d + column, pitch);
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
  const Kernels run = kernels_of(variant, path.result == MmaResult::f16);
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
