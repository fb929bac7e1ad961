// A ring of copies that multiprocessors read in step from a memory behind an L2 full of written lines: tiles of A and B
// as a product's, without the product. A warp waits so many cycles for each step and frees its slot. Microseconds
// between events, and cycles from a CTA's start until its first steps are there. One JSON object a line, as micro.cu.
//
// `promotion`: of the tensor maps, bytes of the L2 that a row's 128 bring; 0: bulk copies of plain memory, m * 128
// bytes side by side.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a cold.cu -o cold -lcuda && ./cold > cold.jsonl
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "micro.cuh"

namespace {

constexpr int kMostSlots = 16, kMarks = 12;
unsigned char* g_from = nullptr;
long long* g_out = nullptr;

struct Shape {
  int tiles_m, tiles_n, m, n;  // tiles, and rows of 128 bytes of a step of each
  int steps, slots, pace, raster, clears;
};

/// Steps of a tile of A lie one behind the other: m * 128 bytes side by side each.
template <bool kIsTensor>
__global__ void __launch_bounds__(64)
    ring(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const unsigned char* a,
         const unsigned char* b, Shape s, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 full[kMostSlots], empty[kMostSlots];
  const unsigned base = smem_of(smem), bytes_a = s.m * 128, bytes_b = s.n * 128, bytes = bytes_a + bytes_b;
  const long long begin = now();
  if (threadIdx.x == 0)
    for (int i = 0; i < s.slots; ++i) {
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(full + i)) : "memory");
      asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(empty + i)) : "memory");
    }
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  __syncthreads();
  const int all = s.tiles_m * s.tiles_n;
  if (threadIdx.x == 0) {
    int slot = 0, parity = 1;
    for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
      const int wide = s.raster * s.tiles_n, first = tile / wide * s.raster;
      const int high = min(s.raster, s.tiles_m - first);
      const int tile_m = first + tile % wide % high, tile_n = tile % wide / high;
      const unsigned char* from_a = a + static_cast<long>(tile_m) * s.steps * bytes_a;
      const unsigned char* from_b = b + static_cast<long>(tile_n) * s.steps * bytes_b;
#pragma unroll 1
      for (int k = 0; k < s.steps; ++k) {
        const unsigned bar = smem_of(full + slot), to = base + slot * bytes;
        wait(smem_of(empty + slot), parity);
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
        if constexpr (kIsTensor) {
          const auto load = [&](unsigned at, const CUtensorMap& map, int row) {
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                "[%4];" ::"r"(at),
                "l"(&map), "r"(k * 128), "r"(row), "r"(bar)
                : "memory");
          };
          load(to, map_a, tile_m * s.m);
          load(to + bytes_a, map_b, tile_n * s.n);
        } else {
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
              "l"(from_a), "r"(bytes_a), "r"(bar)
              : "memory");
          asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                           to + bytes_a),
                       "l"(from_b), "r"(bytes_b), "r"(bar)
                       : "memory");
        }
        from_a += bytes_a, from_b += bytes_b;
        if (++slot == s.slots) slot = 0, parity ^= 1;
      }
    }
  } else if (threadIdx.x == 32) {
    int slot = 0, parity = 0, step = 0, mark = 0;
    long long next = now();
    for (int tile = blockIdx.x; tile < all; tile += gridDim.x) {
#pragma unroll 1
      for (int k = 0; k < s.steps; ++k, ++step) {
        wait(smem_of(full + slot), parity);
        if (step + 1 == 1 << mark && mark < kMarks) out[blockIdx.x * kMarks + mark] = now() - begin, ++mark;
        next = max(next + s.pace, now() + s.pace / 2);
        while (now() < next) {
        }
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(smem_of(empty + slot)) : "memory");
        if (++slot == s.slots) slot = 0, parity ^= 1;
      }
    }
  }
}

decltype(&cuTensorMapEncodeTiled) g_encode = nullptr;

CUtensorMap map_of(unsigned char* at, long rows, int steps, int box_rows, int promotion) {
  CUtensorMap map{};
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(steps) * 128, static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(steps) * 128};
  const cuuint32_t box[] = {128, static_cast<cuuint32_t>(box_rows)}, ones[] = {1, 1};
  CHECK(g_encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, at, dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 CU_TENSOR_MAP_SWIZZLE_128B,
                 promotion == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

void time_one(int tiles_m, int tiles_n, int m, int n, int steps, int slots, int pace, int promotion) {
  const Shape s{tiles_m, tiles_n, m, n, steps, slots, pace, 16, 0};
  const int smem = slots * (m + n) * 128 + 1024;
  if (smem > 224 * 1024 || slots > kMostSlots) return;
  const auto kernel = promotion > 0 ? ring<true> : ring<false>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 225 * 1024));
  const long bytes_a = static_cast<long>(tiles_m) * steps * m * 128;
  const int ctas = std::min(132, tiles_m * tiles_n);
  CHECK(cudaMemset(g_out, 0, 132 * kMarks * 8));
  const CUtensorMap map_a = map_of(g_from, static_cast<long>(tiles_m) * m, steps, m, promotion);
  const CUtensorMap map_b = map_of(g_from + bytes_a, static_cast<long>(tiles_n) * n, steps, n, promotion);
  const double us =
      median_us(7, true, [&] { kernel<<<ctas, 64, 225 * 1024>>>(map_a, map_b, g_from, g_from + bytes_a, s, g_out); });
  CHECK(cudaDeviceSynchronize());
  printf(
      "{\"what\": \"cold ring\", \"tiles_m\": %d, \"tiles_n\": %d, \"m\": %d, \"n\": %d, \"steps\": %d, \"slots\": %d, "
      "\"pace\": %d, \"promotion\": %d, \"us\": %.2f, \"marks\": [",
      tiles_m, tiles_n, m, n, steps, slots, pace, promotion, us);
  std::vector<long long> marks(132 * kMarks);
  CHECK(cudaMemcpy(marks.data(), g_out, marks.size() * 8, cudaMemcpyDeviceToHost));
  for (int mark = 0; mark < kMarks && 1 << mark <= steps; ++mark) {
    std::vector<long long> of;
    for (int i = 0; i < ctas; ++i) of.push_back(marks[i * kMarks + mark]);
    std::sort(of.begin(), of.end());
    printf("%s[%lld, %lld, %lld]", mark > 0 ? ", " : "", of.front(), of[of.size() / 2], of.back());
  }
  printf("]}\n");
  fflush(stdout);
}

}  // namespace

int main() {
  g_from = reinterpret_cast<unsigned char*>(cleared(512L << 20));
  g_out = reinterpret_cast<long long*>(cleared(132 * kMarks * 8));
  cudaDriverEntryPointQueryResult found{};
  CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", reinterpret_cast<void**>(&g_encode), cudaEnableDefault,
                                &found));
  for (const int promotion : {256, 128, 0})
    for (const int slots : {3, 4, 8, 12})
      for (const int pace : {1, 0}) {
        // Rows of a product of 16-bit numbers: a step is 64 of k. One tile a CTA, then several.
        time_one(1, 128, 64, 64, 64, slots, pace * 128, promotion);
        time_one(2, 64, 64, 64, 112, slots, pace * 128, promotion);
        time_one(16, 8, 64, 64, 64, slots, pace * 128, promotion);
        time_one(1, 32, 64, 64, 64, slots, pace * 128, promotion);
        time_one(16, 32, 64, 64, 32, slots, pace * 128, promotion);
        if (slots > 8) continue;
        time_one(2, 64, 128, 64, 64, slots, pace * 256, promotion);
        time_one(4, 32, 128, 128, 64, slots, pace * 512, promotion);
        time_one(8, 16, 128, 128, 32, slots, pace * 512, promotion);
        time_one(8, 16, 64, 128, 64, slots, pace * 256, promotion);
        time_one(16, 32, 128, 128, 16, slots, pace * 512, promotion);
        time_one(20, 80, 64, 64, 112, slots, pace * 128, promotion);
        time_one(12, 48, 64, 160, 48, slots, pace * 320, promotion);
      }
}
