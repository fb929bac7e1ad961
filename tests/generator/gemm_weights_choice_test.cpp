// The planner's choice of tiles for 4-bit weights, held to what was measured on an H200: the cells of
// bench/results/weights-4-bit.md whose kernels are those of today (the third form's products by wgmma of 64 rows and
// more; up to 32 rows the last table's). Two things are held: the model's time of each tile
// that was timed, and that a choice is no more than 5 % slower than the fastest one of its cell, by its measured time,
// or where it was not timed itself by the model's. Most of the file is the table of measured times.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bound_expression.h"
#include "generator/candidates.h"
#include "generator/model_device.h"
#include "generator/products/gemm_weights_operator.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace gemm_weights_choice_test {

namespace {

using gemm_weights::Config;

struct Cell {
  std::int64_t groups, m, n, k;
  std::string_view weights;  // int4z: with zero points
  std::string_view tile;     // "": the fastest of several, which the page does not name
  double microseconds;
};

constexpr Cell kCells[] = {
    // clang-format off
    {1, 64, 8192, 8192, "mxfp4", "64x128_k2", 24.9},
    {1, 64, 8192, 8192, "nvfp4", "64x128_k2", 25.0},
    {1, 64, 8192, 8192, "int4", "64x128_k2", 25.2},
    {1, 64, 8192, 8192, "int4z", "64x128_k2", 25.2},
    {1, 64, 7168, 16384, "mxfp4", "64x128_k2", 44.9},
    {1, 64, 7168, 16384, "nvfp4", "64x128_k2", 44.7},
    {1, 64, 7168, 16384, "int4", "64x256_k4", 43.5},
    {1, 64, 7168, 16384, "int4z", "64x128_k2", 47.1},
    {1, 64, 57344, 8192, "mxfp4", "64x128_k2", 154.0},
    {1, 64, 57344, 8192, "nvfp4", "64x128_k2", 154.1},
    {1, 64, 57344, 8192, "int4", "64x128_k2", 154.8},
    {1, 64, 57344, 8192, "int4z", "64x128_k2", 160.8},
    {1, 4096, 8192, 8192, "mxfp4", "192x128_k1", 861.5},
    {1, 4096, 8192, 8192, "mxfp4", "128x256_k1", 820.4},
    {1, 4096, 8192, 8192, "mxfp4", "256x128_k1", 1108.9},
    {1, 4096, 8192, 8192, "mxfp4", "128x128_k1", 1124.0},
    {1, 4096, 7168, 16384, "mxfp4", "192x128_k1", 1510.0},
    {1, 4096, 7168, 16384, "mxfp4", "128x256_k1", 1598.8},
    {1, 4096, 7168, 16384, "mxfp4", "256x128_k1", 1883.8},
    {1, 4096, 7168, 16384, "mxfp4", "128x128_k1", 1969.1},
    {8, 64, 4096, 7168, "mxfp4", "64x256_k1", 64.6},
    {1, 32, 8192, 8192, "mxfp4", "64x128_k2", 24.8},
    {1, 64, 10240, 8192, "mxfp4", "64x128_k4", 40.3},
    {1, 64, 10240, 8192, "mxfp4", "64x128_k2", 46.5},
    {1, 64, 57344, 8192, "mxfp4", "64x256_k1", 141.4},
    {8, 32, 5760, 2880, "mxfp4", "64x256_k1", 55.4},
    {32, 32, 5760, 2880, "mxfp4", "64x256_k1", 159.2},
    {1, 64, 7168, 16384, "int4", "", 43.1},
    {1, 64, 8192, 8192, "int4", "", 25.0},
    {1, 64, 57344, 8192, "int4", "", 149.2},
    {1, 64, 7168, 16384, "int4z", "", 62.9},
    {1, 64, 57344, 8192, "int4z", "", 148.7},
    {1, 64, 7168, 16384, "mxfp4", "", 44.7},
    {1, 64, 7168, 18432, "mxfp4", "", 49.7},
    {1, 64, 8192, 8192, "mxfp4", "", 24.8},
    {1, 64, 8192, 28672, "mxfp4", "", 74.7},
    {1, 64, 10240, 8192, "mxfp4", "", 43.0},
    {1, 64, 36864, 7168, "mxfp4", "", 98.6},
    {1, 64, 57344, 8192, "mxfp4", "", 141.7},
    {1, 64, 201088, 2880, "mxfp4", "", 156.7},
    {1, 64, 7168, 16384, "nvfp4", "", 59.7},
    {1, 64, 8192, 8192, "nvfp4", "", 24.8},
    {1, 64, 57344, 8192, "nvfp4", "", 143.4},
    {1, 4096, 7168, 16384, "mxfp4", "208x128_k1", 1399.6},
    {1, 4096, 8192, 8192, "mxfp4", "208x128_k1", 832.0},
    {8, 64, 5760, 2880, "mxfp4", "64x128_k1", 45.2},
    {8, 64, 5760, 2880, "mxfp4", "64x256_k1", 54.9},
    {1, 1, 8192, 8192, "mxfp4", "8x128_k2", 11.6},
    {1, 1, 8192, 8192, "mxfp4", "8x64_k1", 11.6},
    {1, 1, 8192, 8192, "mxfp4", "mma_8x128_k2", 12.0},
    {1, 16, 8192, 8192, "mxfp4", "16x128_k2", 11.3},
    {1, 16, 8192, 8192, "mxfp4", "16x64_k1", 13.1},
    {1, 32, 8192, 8192, "mxfp4", "32x128_k2", 12.8},
    {1, 32, 8192, 8192, "mxfp4", "32x64_k1", 13.2},
    {1, 1, 10240, 8192, "mxfp4", "8x192_k2", 16.1},
    {1, 1, 10240, 8192, "mxfp4", "8x160_k2", 14.4},
    {1, 16, 10240, 8192, "mxfp4", "16x160_k2", 15.1},
    {1, 24, 10240, 8192, "mxfp4", "24x160_k2", 15.9},
    {1, 32, 10240, 8192, "mxfp4", "32x160_k2", 16.9},
    {1, 1, 10240, 8192, "mxfp4", "8x384_k4", 15.2},
    {1, 1, 10240, 8192, "mxfp4", "mma_8x192_k2", 15.4},
    {1, 16, 10240, 8192, "mxfp4", "16x192_k2", 15.4},
    {1, 16, 10240, 8192, "mxfp4", "16x384_k4", 16.8},
    {1, 32, 10240, 8192, "mxfp4", "32x192_k2", 16.9},
    {1, 32, 10240, 8192, "mxfp4", "32x384_k4", 19.7},
    {1, 1, 7168, 16384, "mxfp4", "8x128_k2", 18.9},
    {1, 1, 7168, 16384, "mxfp4", "8x256_k4", 19.7},
    {1, 1, 7168, 16384, "mxfp4", "mma_8x256_k4", 18.7},
    {1, 16, 7168, 16384, "mxfp4", "16x128_k2", 20.3},
    {1, 16, 7168, 16384, "mxfp4", "16x256_k4", 20.6},
    {1, 32, 7168, 16384, "mxfp4", "32x128_k2", 21.8},
    {1, 32, 7168, 16384, "mxfp4", "32x256_k4", 24.4},
    {1, 1, 57344, 8192, "mxfp4", "8x448_k1", 63.1},
    {1, 1, 57344, 8192, "mxfp4", "8x512_k1", 64.7},
    {1, 1, 57344, 8192, "mxfp4", "8x128_k2", 67.5},
    {1, 1, 57344, 8192, "mxfp4", "mma_8x128_k2", 65.5},
    {1, 16, 57344, 8192, "mxfp4", "16x448_k1", 63.0},
    {1, 16, 57344, 8192, "mxfp4", "16x512_k1", 66.9},
    {1, 16, 57344, 8192, "mxfp4", "16x128_k2", 69.7},
    {1, 32, 57344, 8192, "mxfp4", "32x448_k1", 72.7},
    {1, 32, 57344, 8192, "mxfp4", "32x512_k1", 78.3},
    {1, 32, 57344, 8192, "mxfp4", "32x128_k2", 83.1},
    {1, 1, 36864, 7168, "mxfp4", "8x576_k2", 35.6},
    {1, 1, 36864, 7168, "mxfp4", "8x192_k2", 39.7},
    {1, 1, 36864, 7168, "mxfp4", "8x448_k1", 49.6},
    {1, 1, 36864, 7168, "mxfp4", "8x384_k2", 45.8},
    {1, 1, 36864, 7168, "mxfp4", "mma_8x192_k2", 37.4},
    {1, 16, 36864, 7168, "mxfp4", "16x576_k2", 36.6},
    {1, 16, 36864, 7168, "mxfp4", "16x192_k2", 41.3},
    {1, 16, 36864, 7168, "mxfp4", "16x448_k1", 52.9},
    {1, 16, 36864, 7168, "mxfp4", "16x384_k2", 48.6},
    {1, 32, 36864, 7168, "mxfp4", "32x576_k2", 43.3},
    {1, 32, 36864, 7168, "mxfp4", "32x192_k2", 47.2},
    {1, 32, 36864, 7168, "mxfp4", "32x448_k1", 61.0},
    {1, 32, 36864, 7168, "mxfp4", "32x384_k2", 57.4},
    {1, 1, 8192, 28672, "mxfp4", "8x128_k2", 31.7},
    {1, 1, 8192, 28672, "mxfp4", "8x64_k1", 32.4},
    {1, 1, 8192, 28672, "mxfp4", "mma_8x128_k2", 33.8},
    {1, 16, 8192, 28672, "mxfp4", "16x128_k2", 33.3},
    {1, 16, 8192, 28672, "mxfp4", "16x64_k1", 34.8},
    {1, 32, 8192, 28672, "mxfp4", "32x128_k2", 37.4},
    {1, 32, 8192, 28672, "mxfp4", "32x64_k1", 40.6},
    {1, 1, 7168, 18432, "mxfp4", "8x128_k2", 20.7},
    {1, 1, 7168, 18432, "mxfp4", "8x256_k4", 21.7},
    {1, 1, 7168, 18432, "mxfp4", "mma_8x256_k4", 20.7},
    {1, 16, 7168, 18432, "mxfp4", "16x128_k2", 22.2},
    {1, 16, 7168, 18432, "mxfp4", "16x256_k4", 22.8},
    {1, 32, 7168, 18432, "mxfp4", "32x128_k2", 24.0},
    {1, 32, 7168, 18432, "mxfp4", "32x256_k4", 26.7},
    {1, 1, 201088, 2880, "mxfp4", "8x512_k1", 74.1},
    {1, 1, 201088, 2880, "mxfp4", "8x576_k1", 80.2},
    {1, 1, 201088, 2880, "mxfp4", "8x448_k1", 84.0},
    {1, 1, 201088, 2880, "mxfp4", "8x384_k1", 74.1},
    {1, 1, 201088, 2880, "mxfp4", "mma_8x256_k1", 75.5},
    {1, 16, 201088, 2880, "mxfp4", "16x512_k1", 78.8},
    {1, 16, 201088, 2880, "mxfp4", "16x576_k1", 87.0},
    {1, 16, 201088, 2880, "mxfp4", "16x448_k1", 91.6},
    {1, 16, 201088, 2880, "mxfp4", "16x384_k1", 79.6},
    {1, 32, 201088, 2880, "mxfp4", "32x512_k1", 95.4},
    {1, 32, 201088, 2880, "mxfp4", "32x576_k1", 105.8},
    {1, 32, 201088, 2880, "mxfp4", "32x448_k1", 116.0},
    {1, 32, 201088, 2880, "mxfp4", "32x384_k1", 102.3},
    {1, 8, 8192, 8192, "mxfp4", "8x128_k2", 12.2},
    {1, 8, 8192, 8192, "mxfp4", "8x64_k1", 12.3},
    {1, 24, 8192, 8192, "mxfp4", "24x128_k2", 12.1},
    {1, 24, 8192, 8192, "mxfp4", "24x64_k1", 14.2},
    {1, 8, 7168, 16384, "mxfp4", "8x128_k2", 18.9},
    {1, 8, 7168, 16384, "mxfp4", "8x256_k4", 20.0},
    {1, 24, 7168, 16384, "mxfp4", "24x128_k2", 20.1},
    {1, 24, 7168, 16384, "mxfp4", "24x256_k4", 22.7},
    {1, 8, 57344, 8192, "mxfp4", "8x448_k1", 63.1},
    {1, 8, 57344, 8192, "mxfp4", "8x512_k1", 64.6},
    {1, 24, 57344, 8192, "mxfp4", "24x448_k1", 68.4},
    {1, 24, 57344, 8192, "mxfp4", "24x512_k1", 72.3},
    {1, 8, 36864, 7168, "mxfp4", "8x576_k2", 35.5},
    {1, 8, 36864, 7168, "mxfp4", "8x192_k2", 39.6},
    {1, 24, 36864, 7168, "mxfp4", "24x576_k2", 40.2},
    {1, 24, 36864, 7168, "mxfp4", "24x192_k2", 44.9},
    {1, 1, 8192, 8192, "nvfp4", "8x128_k2", 12.2},
    {1, 1, 8192, 8192, "nvfp4", "8x64_k1", 12.2},
    {1, 1, 8192, 8192, "nvfp4", "mma_8x128_k2", 12.4},
    {1, 16, 8192, 8192, "nvfp4", "16x128_k2", 12.4},
    {1, 16, 8192, 8192, "nvfp4", "16x64_k1", 13.6},
    {1, 32, 8192, 8192, "nvfp4", "32x128_k2", 13.6},
    {1, 32, 8192, 8192, "nvfp4", "32x64_k1", 14.4},
    {1, 1, 10240, 8192, "nvfp4", "8x192_k2", 16.7},
    {1, 1, 10240, 8192, "nvfp4", "8x384_k4", 16.1},
    {1, 1, 10240, 8192, "nvfp4", "mma_8x192_k2", 15.7},
    {1, 16, 10240, 8192, "nvfp4", "16x192_k2", 17.8},
    {1, 16, 10240, 8192, "nvfp4", "16x384_k4", 17.7},
    {1, 32, 10240, 8192, "nvfp4", "32x192_k2", 20.1},
    {1, 32, 10240, 8192, "nvfp4", "32x384_k4", 20.4},
    {1, 1, 7168, 16384, "nvfp4", "8x128_k2", 19.7},
    {1, 1, 7168, 16384, "nvfp4", "8x256_k4", 20.8},
    {1, 1, 7168, 16384, "nvfp4", "mma_8x256_k4", 19.5},
    {1, 16, 7168, 16384, "nvfp4", "16x128_k2", 21.2},
    {1, 16, 7168, 16384, "nvfp4", "16x256_k4", 21.6},
    {1, 32, 7168, 16384, "nvfp4", "32x128_k2", 23.1},
    {1, 32, 7168, 16384, "nvfp4", "32x256_k4", 24.6},
    {1, 1, 57344, 8192, "nvfp4", "8x448_k1", 65.9},
    {1, 1, 57344, 8192, "nvfp4", "8x512_k1", 67.0},
    {1, 1, 57344, 8192, "nvfp4", "mma_8x128_k2", 68.6},
    {1, 16, 57344, 8192, "nvfp4", "16x448_k1", 67.0},
    {1, 16, 57344, 8192, "nvfp4", "16x512_k1", 71.8},
    {1, 32, 57344, 8192, "nvfp4", "32x448_k1", 79.7},
    {1, 32, 57344, 8192, "nvfp4", "32x512_k1", 83.0},
    {1, 1, 36864, 7168, "nvfp4", "8x576_k2", 37.5},
    {1, 1, 36864, 7168, "nvfp4", "8x192_k2", 40.5},
    {1, 1, 36864, 7168, "nvfp4", "mma_8x192_k2", 39.4},
    {1, 16, 36864, 7168, "nvfp4", "16x576_k2", 38.8},
    {1, 16, 36864, 7168, "nvfp4", "16x192_k2", 43.4},
    {1, 32, 36864, 7168, "nvfp4", "32x576_k2", 45.5},
    {1, 32, 36864, 7168, "nvfp4", "32x192_k2", 49.6},
    {1, 1, 8192, 8192, "int4", "8x128_k2", 11.2},
    {1, 1, 8192, 8192, "int4", "8x64_k1", 11.4},
    {1, 1, 8192, 8192, "int4", "mma_8x128_k2", 11.5},
    {1, 16, 8192, 8192, "int4", "16x128_k2", 11.7},
    {1, 16, 8192, 8192, "int4", "16x64_k1", 12.6},
    {1, 32, 8192, 8192, "int4", "32x128_k2", 12.1},
    {1, 32, 8192, 8192, "int4", "32x64_k1", 13.5},
    {1, 1, 10240, 8192, "int4", "8x192_k2", 15.8},
    {1, 1, 10240, 8192, "int4", "8x384_k4", 14.7},
    {1, 1, 10240, 8192, "int4", "mma_8x192_k2", 14.6},
    {1, 16, 10240, 8192, "int4", "16x192_k2", 16.8},
    {1, 16, 10240, 8192, "int4", "16x384_k4", 16.4},
    {1, 32, 10240, 8192, "int4", "32x192_k2", 18.6},
    {1, 32, 10240, 8192, "int4", "32x384_k4", 19.3},
    {1, 1, 7168, 16384, "int4", "8x128_k2", 18.5},
    {1, 1, 7168, 16384, "int4", "8x256_k4", 19.1},
    {1, 1, 7168, 16384, "int4", "mma_8x256_k4", 17.6},
    {1, 16, 7168, 16384, "int4", "16x128_k2", 19.8},
    {1, 16, 7168, 16384, "int4", "16x256_k4", 20.3},
    {1, 32, 7168, 16384, "int4", "32x128_k2", 20.2},
    {1, 32, 7168, 16384, "int4", "32x256_k4", 23.7},
    {1, 1, 57344, 8192, "int4", "8x448_k1", 61.5},
    {1, 1, 57344, 8192, "int4", "8x512_k1", 62.7},
    {1, 1, 57344, 8192, "int4", "mma_8x128_k2", 63.4},
    {1, 16, 57344, 8192, "int4", "16x448_k1", 62.6},
    {1, 16, 57344, 8192, "int4", "16x512_k1", 65.7},
    {1, 32, 57344, 8192, "int4", "32x448_k1", 73.8},
    {1, 32, 57344, 8192, "int4", "32x512_k1", 81.0},
    {1, 1, 36864, 7168, "int4", "8x576_k2", 34.7},
    {1, 1, 36864, 7168, "int4", "8x192_k2", 38.9},
    {1, 1, 36864, 7168, "int4", "mma_8x192_k2", 36.2},
    {1, 16, 36864, 7168, "int4", "16x576_k2", 36.2},
    {1, 16, 36864, 7168, "int4", "16x192_k2", 41.4},
    {1, 32, 36864, 7168, "int4", "32x576_k2", 43.0},
    {1, 32, 36864, 7168, "int4", "32x192_k2", 47.2},
    {1, 1, 8192, 8192, "int4z", "8x128_k2", 11.8},
    {1, 1, 8192, 8192, "int4z", "8x64_k1", 11.9},
    {1, 1, 8192, 8192, "int4z", "mma_8x128_k2", 12.3},
    {1, 16, 8192, 8192, "int4z", "16x128_k2", 11.9},
    {1, 16, 8192, 8192, "int4z", "16x64_k1", 12.5},
    {1, 32, 8192, 8192, "int4z", "32x128_k2", 13.4},
    {1, 1, 10240, 8192, "int4z", "mma_8x192_k2", 15.9},
    {1, 1, 7168, 16384, "int4z", "8x128_k2", 19.1},
    {1, 1, 7168, 16384, "int4z", "mma_8x256_k4", 19.3},
    {1, 16, 7168, 16384, "int4z", "16x128_k2", 20.5},
    {1, 32, 7168, 16384, "int4z", "32x128_k2", 22.8},
    {1, 1, 57344, 8192, "int4z", "8x448_k1", 64.2},
    {1, 16, 57344, 8192, "int4z", "16x448_k1", 65.3},
    {1, 32, 57344, 8192, "int4z", "32x448_k1", 76.4},
    {1, 16, 36864, 7168, "int4z", "16x576_k2", 38.4},
    {1, 32, 36864, 7168, "int4z", "32x576_k2", 44.9},
    {8, 8, 5760, 2880, "mxfp4", "8x384_k1", 20.8},
    {8, 8, 5760, 2880, "mxfp4", "mma_8x384_k1", 22.1},
    {8, 1, 5760, 2880, "mxfp4", "8x384_k1", 21.0},
    {8, 1, 5760, 2880, "mxfp4", "mma_8x384_k1", 22.2},
    {8, 16, 5760, 2880, "mxfp4", "16x384_k1", 23.1},
    {8, 32, 5760, 2880, "mxfp4", "32x384_k1", 26.3},
    {8, 32, 5760, 2880, "mxfp4", "32x128_k1", 27.4},
    {32, 8, 5760, 2880, "mxfp4", "8x384_k1", 77.2},
    {32, 8, 5760, 2880, "mxfp4", "mma_8x384_k1", 77.6},
    {32, 8, 5760, 2880, "mxfp4", "8x512_k1", 74.3},
    {32, 8, 5760, 2880, "mxfp4", "mma_8x128_k1", 83.7},
    {32, 8, 5760, 2880, "mxfp4", "8x128_k1", 76.7},
    {32, 8, 5760, 2880, "mxfp4", "8x576_k1", 83.2},
    {32, 8, 5760, 2880, "mxfp4", "8x256_k1", 78.9},
    {32, 16, 5760, 2880, "mxfp4", "16x384_k1", 87.0},
    {32, 16, 5760, 2880, "mxfp4", "16x512_k1", 83.0},
    {32, 16, 5760, 2880, "mxfp4", "16x128_k1", 84.6},
    {32, 16, 5760, 2880, "mxfp4", "16x576_k1", 92.3},
    {32, 16, 5760, 2880, "mxfp4", "16x256_k1", 87.5},
    {32, 32, 5760, 2880, "mxfp4", "32x384_k1", 103.7},
    {32, 32, 5760, 2880, "mxfp4", "32x512_k1", 99.5},
    {32, 32, 5760, 2880, "mxfp4", "32x128_k1", 101.9},
    {32, 32, 5760, 2880, "mxfp4", "32x576_k1", 112.8},
    {32, 32, 5760, 2880, "mxfp4", "32x256_k1", 104.1},
    {8, 8, 4096, 7168, "mxfp4", "mma_8x256_k1", 33.3},
    {8, 8, 4096, 7168, "mxfp4", "8x256_k1", 33.0},
    {8, 8, 4096, 7168, "mxfp4", "8x512_k2", 32.7},
    {8, 16, 4096, 7168, "mxfp4", "16x256_k1", 34.5},
    {8, 16, 4096, 7168, "mxfp4", "16x512_k2", 34.9},
    {8, 32, 4096, 7168, "mxfp4", "32x256_k1", 38.4},
    {8, 32, 4096, 7168, "mxfp4", "32x512_k2", 40.4},
    {8, 32, 4096, 7168, "mxfp4", "32x128_k1", 41.5},
    {32, 32, 4096, 7168, "mxfp4", "32x256_k1", 162.3},
    {32, 32, 4096, 7168, "mxfp4", "32x512_k1", 153.1},
    {32, 32, 4096, 7168, "mxfp4", "32x384_k1", 180.6},
    {32, 32, 4096, 7168, "mxfp4", "32x128_k1", 168.5},
    {32, 16, 4096, 7168, "mxfp4", "16x256_k1", 140.3},
    {32, 16, 4096, 7168, "mxfp4", "16x512_k1", 128.8},
    {32, 8, 4096, 7168, "mxfp4", "mma_8x256_k1", 120.8},
    {32, 8, 4096, 7168, "mxfp4", "8x256_k1", 125.5},
    {32, 8, 4096, 7168, "mxfp4", "8x512_k1", 116.8},
    {8, 32, 7168, 2048, "mxfp4", "32x128_k1", 27.5},
    {8, 32, 7168, 2048, "mxfp4", "32x256_k1", 25.4},
    {8, 32, 7168, 2048, "mxfp4", "32x448_k1", 23.6},
    {8, 32, 7168, 2048, "mxfp4", "32x512_k1", 25.2},
    {8, 8, 7168, 2048, "mxfp4", "mma_8x128_k1", 25.7},
    {8, 8, 7168, 2048, "mxfp4", "mma_8x256_k1", 22.2},
    {8, 8, 7168, 2048, "mxfp4", "8x128_k1", 21.7},
    {8, 8, 7168, 2048, "mxfp4", "8x256_k1", 20.2},
    {8, 8, 7168, 2048, "mxfp4", "8x448_k1", 18.3},
    {32, 32, 7168, 2048, "mxfp4", "32x256_k1", 79.8},
    {32, 32, 7168, 2048, "mxfp4", "32x448_k1", 81.4},
    {32, 32, 7168, 2048, "mxfp4", "32x512_k1", 89.0},
    {32, 32, 7168, 2048, "mxfp4", "32x384_k1", 87.0},
    {8, 8, 5760, 2880, "nvfp4", "8x384_k1", 22.7},
    {8, 8, 5760, 2880, "nvfp4", "mma_8x384_k1", 23.8},
    {8, 32, 5760, 2880, "nvfp4", "32x384_k1", 27.9},
    {32, 32, 5760, 2880, "nvfp4", "32x384_k1", 107.6},
    {32, 32, 5760, 2880, "nvfp4", "32x512_k1", 105.2},
    {32, 32, 5760, 2880, "nvfp4", "32x128_k1", 104.4},
    // clang-format on
};

Problem problem_of(const Cell& cell) {
  Fields fields{{"b_dtype", cell.weights == "int4z" ? "int4" : std::string(cell.weights)},
                {"m", std::to_string(cell.m)},
                {"n", std::to_string(cell.n)},
                {"k", std::to_string(cell.k)}};
  if (cell.weights == "int4z") fields.emplace_back("zero_points", "given");
  if (cell.groups > 1) {
    fields.emplace_back("grouping", "masked");
    fields.emplace_back("l", std::to_string(cell.groups));
  }
  return tessera::problem_of("gemm", fields);
}

/// "mma_16x256_k4".
std::string tile_of(const Config& c) {
  std::ostringstream text;
  text << (gemm_weights::is_direct(c) ? "mma_" : "") << c.tile_m << "x" << c.tile_n << "_k" << c.split_k;
  return text.str();
}

double modelled(const Config& c, const Problem& problem) {
  return 1e6 / GemmWeightsOperator::score(c, problem.as<Gemm>()) / (1e3 * kHopper.clock_ghz);
}

bool is_same_product(const Cell& a, const Cell& b) {
  return a.groups == b.groups && a.m == b.m && a.n == b.n && a.k == b.k && a.weights == b.weights;
}

}  // namespace

// With many rows the model knows no difference between formats but their bytes.
TEST_CASE("weights: the model's times are near those that were measured") {
  int compared = 0;
  for (const Cell& cell : kCells) {
    if (cell.tile.empty()) continue;
    const Problem problem = problem_of(cell);
    for (const Config& c : GemmWeightsOperator::candidates(problem.as<Gemm>())) {
      if (tile_of(c) != cell.tile || !why_invalid(c).ok()) continue;
      ++compared;
      const double ratio = modelled(c, problem) / cell.microseconds;
      INFO(cell.groups << " x " << cell.m << " x " << cell.n << " x " << cell.k << " " << cell.weights << " "
                       << cell.tile << ": " << ratio);
      CHECK(ratio > 0.84);
      CHECK(ratio < 1.08);
    }
  }
  CHECK(compared >= 200);
}

TEST_CASE("weights: the choice is within 5 % of the fastest tile that was measured") {
  for (const Cell& cell : kCells) {
    const Problem problem = problem_of(cell);
    const Config chosen = chosen_config<GemmWeightsOperator>(problem);
    double best = cell.microseconds, of_choice = modelled(chosen, problem);
    for (const Cell& other : kCells) {
      if (!is_same_product(cell, other)) continue;
      best = std::min(best, other.microseconds);
    }
    bool is_measured = false;
    for (const Cell& other : kCells) {
      if (!is_same_product(cell, other) || other.tile != tile_of(chosen)) continue;
      of_choice = is_measured ? std::min(of_choice, other.microseconds) : other.microseconds;
      is_measured = true;
    }
    INFO(cell.groups << " x " << cell.m << " x " << cell.n << " x " << cell.k << " " << cell.weights << ": "
                     << tile_of(chosen) << " " << of_choice << " us, " << best);
    CHECK(of_choice <= 1.05 * best);
  }
}

// 40 clusters of three on 132 multiprocessors took as long as two rounds: the last one begins when the others end.
TEST_CASE("weights: no more clusters than run at once") {
  for (const auto& [size, most] :
       {std::pair(2, 66), std::pair(3, 39), std::pair(4, 30), std::pair(6, 17), std::pair(8, 14)}) {
    Fields fields{{"b_dtype", "mxfp4"}, {"mma_kind", "mma.f16"}, {"tile_m", "8"}, {"tile_n", "256"}};
    fields.emplace_back("split_k", std::to_string(size));
    const Plan plan = make_plan(tessera::problem_of("gemm", fields));
    const LaunchStep& step = plan.launch.steps.front();
    const std::vector<std::string> names{"num_sms", "m", "n", "k", "l"};
    const std::vector<std::int64_t> sizes{132, 1, 100000, 8192, 1};
    CHECK(BoundExpression(step.grid[0], names).evaluate(sizes) == size * most);
    CHECK(hopper_clusters_at_once(size) == most);
  }
}

}  // namespace gemm_weights_choice_test
