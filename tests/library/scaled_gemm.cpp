// The library as a caller has it, from a Jit without a warm cache to numbers in memory: products of block-scaled
// tensors on tcgen05 through their typed kernels, on the emulator's device. Values are whole numbers that every format
// holds exactly, so sums are compared bit for bit. No Blackwell hardware has run any of this.
#include "tessera/scaled_gemm.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/ptx_compiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera::scaled_gemm_test {
namespace {

constexpr std::uint8_t kPoison = 0xFF;  // NaN of fp32; a NaN code of every scale

/// A Jit with an empty cache, and a device; is_usable false without NVRTC.
struct Machine {
  testing::TemporaryFolder folder;
  Jit jit{{.cache_dir = folder.path}};
  emulator::EmulatedDevice device{{.arch = "sm_100a", .detects_races = true}};
  bool is_usable = testing::compiles_to_ptx(jit);

  DevicePointer upload(const void* data, std::size_t bytes) {
    const DevicePointer pointer = device.allocate(bytes);
    device.copy_to_device(pointer, data, bytes);
    return pointer;
  }
  DevicePointer poisoned(std::int64_t bytes) {
    const DevicePointer pointer = device.allocate(static_cast<std::size_t>(bytes));
    device.poison(pointer, kPoison, static_cast<std::size_t>(bytes));
    return pointer;
  }
  template <class T>
  std::vector<T> download(DevicePointer from, std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    device.copy_to_host(values.data(), from, values.size() * sizeof(T));
    return values;
  }
  void require_no_finding() {
    for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.message);
  }
};

/// Numbers that every format represents with scales that are powers of two: each block has its largest value, 6 times 1
/// or 2, and otherwise that power times what e2m1 has.
struct Matrix {
  std::int64_t l, rows, k;
  std::vector<float> x;

  Matrix(std::int64_t l_, std::int64_t rows_, std::int64_t k_, std::uint64_t seed) : l(l_), rows(rows_), k(k_) {
    static constexpr float kWhole[] = {0, 1, 2, 3, 4, 6, -1, -2, -3, -4, -6};
    std::mt19937_64 random(seed);
    x.resize(static_cast<std::size_t>(l * rows * k));
    for (std::size_t i = 0; i < x.size(); i += 16) {
      const float power = i / 16 % 4 < 2 ? 1 : 2;  // blocks of 32 have one too
      for (std::size_t j = i; j < i + 16; ++j) x[j] = power * (j % 16 == 5 ? 6 : kWhole[random() % 11]);
    }
  }
  double at(std::int64_t matrix, std::int64_t row, std::int64_t i) const {
    return static_cast<double>(x[static_cast<std::size_t>((matrix * rows + row) * k + i)]);
  }
};

double product(const Matrix& a, std::int64_t a_matrix, std::int64_t row, const Matrix& b, std::int64_t b_matrix,
               std::int64_t column) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.k; ++i) sum += a.at(a_matrix, row, i) * b.at(b_matrix, column, i);
  return sum;
}

template <BlockFormat kFormat>
ScaledTensor<kFormat, ScaleForm::tile> upload(Machine& machine, const Matrix& m) {
  HostScaled scaled = quantize_on_host(m.x, m.l, m.rows, m.k, kFormat, ScaleForm::tile);
  // Bytes of no block: NaN codes.
  const std::int64_t blocks = m.k / block_elements(kFormat);
  std::vector<std::uint8_t> tiles(scaled.scales.size(), kPoison);
  for (std::int64_t i = 0; i < m.l; ++i)
    for (std::int64_t r = 0; r < m.rows; ++r)
      for (std::int64_t b = 0; b < blocks; ++b) {
        const auto at = static_cast<std::size_t>(scale_offset(ScaleForm::tile, m.rows, blocks, i, r, b));
        tiles[at] = scaled.scales[at];
      }
  return {machine.upload(scaled.values.data(), scaled.values.size()),
          machine.upload(tiles.data(), tiles.size()),
          static_cast<std::int64_t>(scaled.values.size()),
          static_cast<std::int64_t>(tiles.size()),
          m.l,
          m.rows,
          m.k};
}

DenseTensor<DType::f32> output(Machine& machine, std::int64_t l, std::int64_t rows, std::int64_t columns) {
  const std::int64_t bytes = 4 * l * rows * columns;
  return {machine.poisoned(bytes), bytes, l, rows, columns};
}

std::vector<float> values_of(Machine& machine, const DenseTensor<DType::f32>& d) {
  return machine.download<float>(d.data, d.l * d.rows * d.k);
}

template <class Launch>
std::string refusal(Launch launch) {
  try {
    launch();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

template <BlockFormat kA, BlockFormat kB>
void check_product(Machine& machine, std::int64_t l, std::int64_t m, std::int64_t n, std::int64_t k) {
  CAPTURE(m);
  const Matrix a(l, m, k, 1), b(l, n, k, 2);
  const DenseTensor<DType::f32> d = output(machine, l, m, n);
  const ScaledGemmKernel<kA, kB, DType::f32> gemm(machine.jit, {.number = 100, .suffix = 'a'}, m, n, k);
  gemm.launch(machine.device, {}, upload<kA>(machine, a), upload<kB>(machine, b), d, 0.5);
  machine.require_no_finding();
  const std::vector<float> found = values_of(machine, d);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < l * m * n; ++i)
    wrong += static_cast<double>(found[static_cast<std::size_t>(i)]) ==
                     0.5 * product(a, i / (m * n), i / n % m, b, i / (m * n), i % n)
                 ? 0
                 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("ScaledGemmKernel: every format, from a Jit to numbers") {
  Machine machine;
  if (!machine.is_usable) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  using enum BlockFormat;
  check_product<nvfp4, nvfp4>(machine, 2, 40, 72, 96);
  check_product<nvfp4, nvfp4>(machine, 1, 150, 70, 160);
  check_product<mxfp4, mxfp4>(machine, 1, 33, 130, 160);
  check_product<mxfp8_e4m3, mxfp4>(machine, 1, 20, 64, 128);
  check_product<mxfp8_e5m2, mxfp8_e4m3>(machine, 1, 9, 40, 96);
  check_product<mxfp6_e2m3, mxfp8_e4m3>(machine, 1, 9, 40, 128);
}

/// In rows that a product with kOther takes; between them lie values that would count.
template <BlockFormat kFormat, BlockFormat kOther>
ScaledTensor<kFormat, ScaleForm::tile> upload_padded(Machine& machine, const Matrix& m) {
  const std::int64_t pitch = padded_pitch(kFormat, kOther, m.k);
  HostScaled padded = pad_on_host(quantize_on_host(m.x, m.l, m.rows, m.k, kFormat, ScaleForm::tile), m.l, m.rows, m.k,
                                  kFormat, ScaleForm::tile, m.k, pitch);
  const std::int64_t row = value_bytes(kFormat, pitch), used = value_bytes(kFormat, m.k);
  for (std::size_t i = 0; i < padded.values.size(); ++i)
    if (static_cast<std::int64_t>(i) % row >= used) padded.values[i] = 0x77;
  ScaledTensor<kFormat, ScaleForm::tile> tensor = upload<kFormat>(machine, m);
  tensor.values = machine.upload(padded.values.data(), padded.values.size());
  tensor.values_bytes = static_cast<std::int64_t>(padded.values.size());
  tensor.pitch = pitch;
  return tensor;
}

template <BlockFormat kA, BlockFormat kB>
void check_padded(Machine& machine, std::int64_t l, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Matrix a(l, m, k, 1), b(l, n, k, 2);
  const DenseTensor<DType::f32> d = output(machine, l, m, n);
  const ScaledGemmKernel<kA, kB, DType::f32> gemm(machine.jit, {.number = 100, .suffix = 'a'}, m, n, k);
  const std::string dense =
      refusal([&] { gemm.launch(machine.device, {}, upload<kA>(machine, a), upload<kB>(machine, b), d); });
  CAPTURE(dense);
  CHECK(dense.find("that are padded to that (cudaMemcpy2DAsync, pad_on_host;") != std::string::npos);
  gemm.launch(machine.device, {}, upload_padded<kA, kB>(machine, a), upload_padded<kB, kA>(machine, b), d);
  machine.require_no_finding();
  const std::vector<float> found = values_of(machine, d);
  std::int64_t wrong = 0;
  for (std::int64_t i = 0; i < l * m * n; ++i)
    wrong += static_cast<double>(found[static_cast<std::size_t>(i)]) ==
                     product(a, i / (m * n), i / n % m, b, i / (m * n), i % n)
                 ? 0
                 : 1;
  CHECK(wrong == 0);
}

TEST_CASE("ScaledGemmKernel: rows that a tensor map does not take are refused, and multiplied once they are padded") {
  Machine machine;
  if (!machine.is_usable) return;
  using enum BlockFormat;
  check_padded<nvfp4, nvfp4>(machine, 2, 40, 72, 80);
  check_padded<mxfp8_e4m3, mxfp4>(machine, 1, 20, 64, 160);
  check_padded<mxfp4, mxfp8_e5m2>(machine, 2, 33, 50, 96);
  check_padded<mxfp6_e3m2, mxfp6_e2m3>(machine, 2, 33, 50, 96);
}

TEST_CASE("ScaledGemmKernel: arguments that do not fit are refused with both sides") {
  Machine machine;
  if (!machine.is_usable) return;
  using enum BlockFormat;
  const ScaledGemmKernel<nvfp4, nvfp4, DType::f32> gemm(machine.jit);
  const auto a = upload<nvfp4>(machine, Matrix(1, 40, 96, 1)), b = upload<nvfp4>(machine, Matrix(1, 24, 96, 2));
  const DenseTensor<DType::f32> d = output(machine, 1, 40, 24);
  const auto launch = [&](auto a_, auto b_, auto d_) {
    return refusal([&] { gemm.launch(machine.device, {}, a_, b_, d_); });
  };
  CHECK(launch(a, b, d) == "accepted");
  machine.require_no_finding();
  CHECK(launch(a, upload<nvfp4>(machine, Matrix(1, 24, 160, 2)), d) == "k differs: 96 and 160");
  CHECK(launch(a, b, output(machine, 1, 40, 25)) == "rows of b and columns of d differs: 24 and 25");
  auto narrow = a;
  narrow.scales_bytes -= 512;
  CHECK(launch(narrow, b, d) == "scales of 512 bytes: [1, 40, 6] in tiles takes 1024");
  // 80 values are 40 bytes, which no tensor map takes.
  CHECK(launch(upload<nvfp4>(machine, Matrix(1, 40, 80, 1)), upload<nvfp4>(machine, Matrix(1, 24, 80, 2)), d)
            .find("lda must be a multiple of 32 (16 bytes, tensor map)") != std::string::npos);
}

TEST_CASE("ScaledDualGemmKernel: silu(gate) * up") {
  Machine machine;
  if (!machine.is_usable) return;
  constexpr BlockFormat kFormat = BlockFormat::nvfp4;
  const Matrix a(1, 130, 96, 3), b(1, 40, 96, 4), b2(1, 40, 96, 5);
  const DenseTensor<DType::f32> d = output(machine, 1, a.rows, b.rows);
  const ScaledDualGemmKernel<kFormat, kFormat, DType::f32> gemm(machine.jit);
  const float g[] = {0.25F, 0.125F, 2.0F};
  const DevicePointer factors = machine.upload(g, sizeof g);
  gemm.launch(machine.device, {}, upload<kFormat>(machine, a), upload<kFormat>(machine, b),
              upload<kFormat>(machine, b2), d, 0.5, {.a = factors, .b = factors + 4, .b2 = factors + 8});
  machine.require_no_finding();
  const std::vector<float> found = values_of(machine, d);
  for (std::int64_t r = 0; r < a.rows; ++r)
    for (std::int64_t c = 0; c < b.rows; ++c) {
      const double gate = 0.5 * 0.25 * 0.125 * product(a, 0, r, b, 0, c);
      const double up = 0.5 * 0.25 * 2 * product(a, 0, r, b2, 0, c);
      const double expected = gate / (1 + std::exp(-gate)) * up;
      // Sums are exact; what is left are silu's error (16 units of fp32) and a few roundings.
      const double bound = 32 * 0x1p-24 * std::fabs(expected) + 0x1p-100;
      REQUIRE(std::fabs(static_cast<double>(found[static_cast<std::size_t>(r * b.rows + c)]) - expected) <= bound);
    }
}

TEST_CASE("ScaledGroupedGemmKernel: contiguous groups of differing rows") {
  Machine machine;
  if (!machine.is_usable) return;
  constexpr BlockFormat kFormat = BlockFormat::mxfp8_e4m3;
  const std::vector<std::int64_t> rows{1, 0, 130, 60};
  const std::int64_t n = 72, k = 96, all_rows = 195, groups = 4;  // four rows are in no group
  const Matrix a(1, all_rows, k, 6), b(groups, n, k, 7);
  std::vector<std::int32_t> first{0};
  for (const std::int64_t count : rows) first.push_back(first.back() + static_cast<std::int32_t>(count));
  const HostScaled scaled = quantize_on_host(a.x, 1, all_rows, k, kFormat, ScaleForm::plain);
  const std::int64_t blocks = k / 32;
  std::vector<std::uint8_t> scales;
  for (std::size_t g = 0; g < rows.size(); ++g) {
    const std::span<const std::uint8_t> of_group(scaled.scales.data() + first[g] * blocks,
                                                 static_cast<std::size_t>(rows[g] * blocks));
    const std::vector<std::uint8_t> tiles =
        convert_scales_on_host(of_group, ScaleForm::plain, ScaleForm::tile, 1, rows[g], blocks);
    scales.insert(scales.end(), tiles.begin(), tiles.end());
  }
  GroupedScaledTensor<kFormat> grouped{machine.upload(scaled.values.data(), scaled.values.size()),
                                       machine.upload(scales.data(), scales.size()),
                                       static_cast<std::int64_t>(scaled.values.size()),
                                       static_cast<std::int64_t>(scales.size()),
                                       all_rows,
                                       k};
  const GroupRows numbers{machine.upload(first.data(), first.size() * 4), 4 * (groups + 1), groups};
  const DenseTensor<DType::f32> d = output(machine, 1, all_rows, n);
  const ScaledGroupedGemmKernel<kFormat, kFormat, DType::f32, Grouping::contiguous> gemm(machine.jit);
  const auto b_tensor = upload<kFormat>(machine, b);
  gemm.launch(machine.device, {}, grouped, b_tensor, d, numbers);
  machine.require_no_finding();
  const std::vector<float> found = values_of(machine, d);
  for (std::int64_t r = 0; r < all_rows; ++r) {
    const auto group = static_cast<std::int64_t>(std::upper_bound(first.begin(), first.end(), r) - first.begin()) - 1;
    for (std::int64_t c = 0; c < n; ++c) {
      const float value = found[static_cast<std::size_t>(r * n + c)];
      if (group >= groups) {
        REQUIRE(std::isnan(value));  // as it was
      } else {
        REQUIRE(static_cast<double>(value) == product(a, 0, r, b, group, c));
      }
    }
  }
  const auto refused = [&] { return refusal([&] { gemm.launch(machine.device, {}, grouped, b_tensor, d, {}); }); };
  CHECK(refused() == "groups of 0 bytes: 0 contiguous groups take 1 numbers of s32, 4 bytes");
  grouped.scales_bytes -= 1;
  CHECK(refusal([&] { gemm.launch(machine.device, {}, grouped, b_tensor, d, numbers); }) ==
        "scales of 2047 bytes: 128 rows of k = 96 take 512, and each group begins with a tile of its own");
}

TEST_CASE("ScaledGroupedGemmKernel: masked groups") {
  Machine machine;
  if (!machine.is_usable) return;
  constexpr BlockFormat kFormat = BlockFormat::nvfp4;
  const std::vector<std::int32_t> rows{40, 0, 3};
  const Matrix a(3, 40, 64, 8), b(3, 50, 64, 9);
  const GroupRows groups{machine.upload(rows.data(), 12), 12, 3};
  const DenseTensor<DType::f32> d = output(machine, 3, a.rows, b.rows);
  const ScaledGroupedGemmKernel<kFormat, kFormat, DType::f32, Grouping::masked> gemm(machine.jit);
  gemm.launch(machine.device, {}, upload<kFormat>(machine, a), upload<kFormat>(machine, b), d, groups);
  machine.require_no_finding();
  const std::vector<float> found = values_of(machine, d);
  for (std::int64_t i = 0; i < 3 * 40 * 50; ++i) {
    const std::int64_t g = i / 2000, r = i / 50 % 40;
    const float value = found[static_cast<std::size_t>(i)];
    if (r >= rows[static_cast<std::size_t>(g)]) {
      REQUIRE(std::isnan(value));
    } else {
      REQUIRE(static_cast<double>(value) == product(a, g, r, b, g, i % 50));
    }
  }
}

TEST_CASE("QuantizedGemmKernel: its result is the a of the next product") {
  Machine machine;
  if (!machine.is_usable) return;
  constexpr BlockFormat kFormat = BlockFormat::nvfp4;
  const Matrix a(1, 140, 64, 10), b(1, 96, 64, 11), b2(1, 40, 96, 12);
  const std::int64_t value_count = 140 * 96 / 2, scale_count = scale_bytes(ScaleForm::tile, 1, 140, 96 / 16);
  const ScaledTensor<kFormat, ScaleForm::tile> between{
      machine.poisoned(value_count), machine.poisoned(scale_count), value_count, scale_count, 1, 140, 96};
  const QuantizedGemmKernel<kFormat, kFormat, kFormat> first(machine.jit);
  first.launch(machine.device, {}, upload<kFormat>(machine, a), upload<kFormat>(machine, b), between);
  const DenseTensor<DType::f32> d = output(machine, 1, 140, 40);
  const ScaledGemmKernel<kFormat, kFormat, DType::f32> second(machine.jit);
  second.launch(machine.device, {}, between, upload<kFormat>(machine, b2), d);
  machine.require_no_finding();
  // The host quantises the exact product: the bits between the two must be those.
  std::vector<float> exact;
  for (std::int64_t r = 0; r < 140; ++r)
    for (std::int64_t c = 0; c < 96; ++c) exact.push_back(static_cast<float>(product(a, 0, r, b, 0, c)));
  const HostScaled expected = quantize_on_host(exact, 1, 140, 96, kFormat, ScaleForm::tile);
  CHECK(machine.download<std::uint8_t>(between.values, value_count) == expected.values);
  CHECK(machine.download<std::uint8_t>(between.scales, scale_count) == expected.scales);
  const std::vector<float> hidden = dequantize_on_host(expected, 1, 140, 96, kFormat, ScaleForm::tile);
  const std::vector<float> found = values_of(machine, d);
  for (std::int64_t r = 0; r < 140; ++r)
    for (std::int64_t c = 0; c < 40; ++c) {
      double sum = 0, magnitude = 0;
      for (std::int64_t i = 0; i < 96; ++i) {
        const double term = static_cast<double>(hidden[static_cast<std::size_t>(r * 96 + i)]) * b2.at(0, c, i);
        sum += term;
        magnitude += std::fabs(term);
      }
      REQUIRE(std::fabs(static_cast<double>(found[static_cast<std::size_t>(r * 40 + c)]) - sum) <= 0x1p-20 * magnitude);
    }
}

}  // namespace
}  // namespace tessera::scaled_gemm_test
