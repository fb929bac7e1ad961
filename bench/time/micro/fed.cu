// What tensor cores lose when they are fed: by copies that write the shared memory that they read, by barriers between
// a copy and its use, by other multiprocessors that read the same bytes, and what a copy for two CTAs delivers. One
// JSON object a line, as micro.cu.
//
//   python3 forms.py > wgmma_forms.h
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a fed.cu -o fed -lcuda && ./fed > fed.jsonl
//
// A ring of slots with barriers, a thread that loads tiles of A and B (rows of 128 bytes), warpgroups that multiply
// what is there, or only free the slot. Tiles go over the multiprocessors as those of a product do: `raster` along M,
// then along N. `lag`: before each tile the thread stands still for a random time of at most so many cycles.
// `share`: CTAs of a cluster, each of which loads its part of B for all. `pace`: a step is asked for so many cycles
// after the last one at the earliest, as by warps that take so long for it. `fed places` tells where CTAs lie, and no
// more; `fed paced` what the L2 gives to multiprocessors that ask for less than all they can get; `fed drift` what it
// gives to CTAs that have begun together, by the tiles that each takes.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "micro.cuh"
#include "wgmma_forms.h"

namespace {

constexpr int kSmem = 220 * 1024, kMostSlots = 12;
constexpr int kRowBytes = 128;  // of a K step

__device__ __forceinline__ void init_barrier(unsigned bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
// --- fed -------------------------------------------------------------------------------------------------------------
/// Which multiprocessors load the same tile: by the order of CTAs, as a product's, or by their own numbers, of which
/// 2 i and 2 i + 1 are neighbours (of a TPC).
enum Together { by_order, both_neighbours, others_neighbours, one_of_two_neighbours, pairs_of_two };
struct Shape {
  int steps, tiles, tiles_m, tiles_n, slots, lag, raster, pace;
  bool is_same;  // all load the first tile again and again
  Together together;
};

template <class F, int kGroups, int kShare, bool kMultiplies, int kPending>
__global__ void __launch_bounds__(128 * (kGroups + 1))
    fed(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, Shape shape,
        long long* out) {
  constexpr int kM = 64 * kGroups, kN = F::kN;
  constexpr unsigned kBytesA = kM * kRowBytes, kBytesB = kN * kRowBytes, kSlotBytes = kBytesA + kBytesB;
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 full[kMostSlots], empty[kMostSlots];
  const unsigned base = smem_of(smem);
  unsigned rank = 0;
  if constexpr (kShare > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (int i = 0; i < shape.slots; ++i)
      init_barrier(smem_of(&full[i]), 1), init_barrier(smem_of(&empty[i]), kGroups * kShare);
  }
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  __syncthreads();
  if constexpr (kShare > 1) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  const int group = static_cast<int>(threadIdx.x) / 128;
  const int total = shape.steps * shape.tiles;
  if (group == kGroups) {
    if (threadIdx.x % 128 == 0) {
      int slot = 0, parity = 1;  // the first pass finds empty slots
      long long next = now();
      for (int tile = 0; tile < shape.tiles; ++tile) {
        // Of a cluster's CTAs each has its own rows of A and all the same of B.
        const int index = shape.is_same
                              ? static_cast<int>(rank)
                              : static_cast<int>(blockIdx.x + tile * gridDim.x) % (shape.tiles_m * shape.tiles_n);
        const int raster = shape.raster;
        int tile_m = index / (raster * shape.tiles_n) * raster + index % raster;
        int tile_n = index / raster % shape.tiles_n;
        if (shape.together != by_order) {
          unsigned sm = 0;
          asm("mov.u32 %0, %%smid;" : "=r"(sm));
          const unsigned number = shape.together == both_neighbours         ? sm / 2
                                  : shape.together == others_neighbours     ? sm % 66
                                  : shape.together == one_of_two_neighbours ? sm % 2
                                                                            : sm / 2 % 2;
          tile_m = static_cast<int>(number + tile) % shape.tiles_m,
          tile_n = static_cast<int>(number + tile) % shape.tiles_n;
        }
        if (shape.lag > 0) {
          const long long until = now() + mix(blockIdx.x * 977 + tile) % shape.lag;
          while (now() < until) {
          }
        }
        for (int k = 0; k < shape.steps; ++k) {
          const unsigned bar = smem_of(&full[slot]), to = base + slot * kSlotBytes;
          wait(smem_of(&empty[slot]), parity);
          if (shape.pace > 0) {
            while (now() < next) {
            }
            next = now() + shape.pace;
          }
          expect(bar, kSlotBytes);
          asm volatile(
              "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
              "[%4];" ::"r"(to),
              "l"(&map_a), "r"(k * kRowBytes), "r"(tile_m * kM), "r"(bar)
              : "memory");
          if constexpr (kShare == 1)
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
                "[%4];" ::"r"(to + kBytesA),
                "l"(&map_b), "r"(k * kRowBytes), "r"(tile_n * kN), "r"(bar)
                : "memory");
          else
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                "[%1, {%2, %3}], [%4], %5;" ::"r"(to + kBytesA + rank * (kBytesB / kShare)),
                "l"(&map_b), "r"(k * kRowBytes), "r"(tile_n * kN + static_cast<int>(rank) * (kN / kShare)), "r"(bar),
                "h"(static_cast<unsigned short>((1 << kShare) - 1))
                : "memory");
          if (++slot == shape.slots) slot = 0, parity ^= 1;
        }
      }
    }
  } else {
    const auto release = [&](int slot) {
      if (threadIdx.x % 128 >= kShare) return;
      const unsigned bar = smem_of(&empty[slot]);
      if constexpr (kShare == 1) {
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
      } else {
        asm volatile(
            "{.reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; "
            "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(bar),
            "r"(threadIdx.x % 128)
            : "memory");
      }
    };
    typename F::C d[F::kCount];
    for (int i = 0; i < F::kCount; ++i) {
      d[i] = 0;
      F::pin(d[i]);
    }
    unsigned a[4] = {0, 0, 0, 0};
    long long t0 = 0;
    U64 n0 = 0;
    int slot = 0, parity = 0, last = -1;
    const int begin = total / 4 < 2 * kMostSlots ? total / 4 : 2 * kMostSlots;
#pragma unroll 1
    for (int i = 0; i < total; ++i) {
      if (i == begin) t0 = now(), n0 = nanoseconds();
      wait(smem_of(&full[slot]), parity);
      if constexpr (kMultiplies) {
        const unsigned at = base + slot * kSlotBytes;
        const U64 da = descriptor(at + group * 8192), b = descriptor(at + kBytesA);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 4; ++k) F::issue(d, a, da + k * 2, b + k * 2);
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
        if (kPending == 0)
          release(slot);
        else if (last >= 0)
          release(last);
        last = slot;
      } else {
        release(slot);
      }
      if (++slot == shape.slots) slot = 0, parity ^= 1;
    }
    if (kMultiplies) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const long long t1 = now();
    const U64 n1 = nanoseconds();
    typename F::C sum = 0;
    for (int i = 0; i < F::kCount; ++i) {
      F::pin(d[i]);
      sum += d[i];
    }
    if (threadIdx.x == 0) {
      out[4 * blockIdx.x] = t1 - t0, out[4 * blockIdx.x + 1] = static_cast<long long>(n1 - n0);
      out[4 * blockIdx.x + 2] = total - begin, out[4 * blockIdx.x + 3] = sum != 0;
    }
  }
  __syncthreads();
  if constexpr (kShare > 1) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

__global__ void fill(unsigned* p, std::size_t count, bool is_random) {
  for (std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    // Two bf16 between 0.5 and 2 of either sign.
    const unsigned r = mix(static_cast<unsigned>(i));
    p[i] = is_random ? (r & 0x80FF80FF) | 0x3F003F00 : 0;
  }
}

long long* g_out = nullptr;
unsigned char* g_memory = nullptr;
int g_sms = 0, g_tiles = 0;  // g_tiles: of each CTA, where not 0
decltype(&cuTensorMapEncodeTiled) g_encode = nullptr;
constexpr int kRows = 4096, kPitch = 4096;  // of A and of B: 16 MiB each

CUtensorMap map_of(unsigned char* at, int box_rows) {
  CUtensorMap map{};
  const cuuint64_t dims[] = {kPitch, kRows}, strides[] = {kPitch};
  const cuuint32_t box[] = {kRowBytes, static_cast<cuuint32_t>(box_rows)}, steps[] = {1, 1};
  CHECK(g_encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT8, 2, at, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  return map;
}

double middle(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

template <class F, int kGroups, int kShare, bool kMultiplies, int kPending = 1>
void time_fed(int lag, bool is_same, int times = 1, int ctas = 0, int raster = 8, Together together = by_order,
              int pace = 0) {
  const auto kernel = fed<F, kGroups, kShare, kMultiplies, kPending>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  constexpr int kM = 64 * kGroups, kN = F::kN;
  Shape shape{};
  shape.steps = kPitch / kRowBytes;
  shape.tiles_m = kRows / kM, shape.tiles_n = kRows / kN;
  shape.tiles = times * std::max(4, 2 * (shape.tiles_m * shape.tiles_n / g_sms));
  if (g_tiles > 0) shape.tiles = g_tiles;
  shape.slots = std::min(kMostSlots, (kSmem - 1024) / ((kM + kN) * kRowBytes));
  shape.lag = lag, shape.is_same = is_same, shape.raster = raster;
  shape.together = together, shape.pace = pace;
  const CUtensorMap a = map_of(g_memory, kM), b = map_of(g_memory + std::size_t{kRows} * kPitch, kN / kShare);
  cudaLaunchConfig_t config{};
  config.gridDim = (ctas > 0 ? ctas : g_sms) / kShare * kShare, config.blockDim = 128 * (kGroups + 1),
  config.dynamicSmemBytes = kSmem;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = kShare, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
  config.attrs = &cluster, config.numAttrs = 1;
  for (int pass = 0; pass < 3; ++pass) {
    CHECK(cudaLaunchKernelEx(&config, kernel, a, b, shape, g_out));
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<double> cycles, mhz;
  for (unsigned i = 0; i < config.gridDim.x; ++i) {
    const double steps = static_cast<double>(g_out[4 * i + 2]);
    cycles.push_back(static_cast<double>(g_out[4 * i]) / steps);
    mhz.push_back(1000. * static_cast<double>(g_out[4 * i]) / static_cast<double>(g_out[4 * i + 1]));
  }
  const double step = middle(cycles), clock = middle(mhz);
  const double bytes = (kM + kN) * kRowBytes, read = (kM + kN / kShare) * kRowBytes;
  printf(
      "{\"what\": \"%s\", \"form\": \"%s\", \"warpgroups\": %d, \"share\": %d, \"multiplies\": %d, \"pending\": %d, "
      "\"lag\": %d, \"same\": %d, \"times\": %d, \"tiles\": %d, \"ctas\": %d, \"raster\": %d, \"slots\": %d, "
      "\"together\": %d, "
      "\"pace\": %d, "
      "\"cycles_of_step\": "
      "%.1f, \"slowest\": "
      "%.1f, "
      "\"tensor_core\": %.3f, "
      "\"bytes_per_clock_filled\": %.1f, \"bytes_per_clock_read\": %.1f, \"read_TB_s\": %.2f, \"mhz\": %.0f}\n",
      g_tiles > 0 ? "drift" : "fed", F::kName, kGroups, kShare, kMultiplies ? 1 : 0, kPending, lag, is_same ? 1 : 0,
      times, shape.tiles, config.gridDim.x, raster, shape.slots, static_cast<int>(together), pace, step,
      *std::max_element(cycles.begin(), cycles.end()), kMultiplies ? kN / 2. * 4 * kGroups / step : 0., bytes / step,
      read / step, read / step * clock * config.gridDim.x * 1e-6, clock);
  fflush(stdout);
}

/// The multiprocessor of each CTA of a grid that is there at once, without clusters and with pairs.
__global__ void place(long long* out) {
  extern __shared__ unsigned char smem[];
  unsigned sm = 0;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  const long long until = now() + 20000;
  while (now() < until) smem[threadIdx.x] = 1;
  if (threadIdx.x == 0) out[blockIdx.x] = sm;
}

void print_places() {
  CHECK(cudaFuncSetAttribute(place, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  for (const int share : {1, 2, 4, 8}) {
    cudaLaunchConfig_t config{};
    config.gridDim = g_sms / share * share, config.blockDim = 128, config.dynamicSmemBytes = kSmem;
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = share, cluster.val.clusterDim.y = 1, cluster.val.clusterDim.z = 1;
    config.attrs = &cluster, config.numAttrs = 1;
    for (int pass = 0; pass < 2; ++pass) {
      CHECK(cudaLaunchKernelEx(&config, place, g_out));
      CHECK(cudaDeviceSynchronize());
    }
    int at_once = 0;
    CHECK(cudaOccupancyMaxActiveClusters(&at_once, place, &config));
    printf("{\"what\": \"multiprocessor of each CTA\", \"share\": %d, \"clusters_at_once\": %d, \"sm\": [", share,
           at_once);
    for (unsigned i = 0; i < config.gridDim.x; ++i) printf("%s%lld", i > 0 ? ", " : "", g_out[i]);
    printf("]}\n");
  }
}

/// From more than the L2 gives to less: bytes a clock that a multiprocessor asks for.
template <class F, int kGroups, int kShare>
void time_paced(int raster, int times) {
  constexpr int kBytes = (64 * kGroups + F::kN) * kRowBytes;
  for (const int rate : {90, 70, 60, 54, 50, 47, 44, 41, 38, 35, 30})
    time_fed<F, kGroups, kShare, false>(0, false, times, 0, raster, by_order, kBytes / rate);
}

/// From CTAs that have just begun, all together, to CTAs that have been there for long.
template <class F, int kGroups, int kShare = 1>
void time_drift() {
  for (const int raster : {4, 8, 16, 32})
    for (const int tiles : {1, 2, 3, 4, 6, 8, 16, 32, 64}) {
      g_tiles = tiles;
      time_fed<F, kGroups, kShare, true>(0, false, 1, 0, raster);
      if (raster == 8 || raster == 32) time_fed<F, kGroups, kShare, false>(0, false, 1, 0, raster);
    }
  g_tiles = 0;
}

template <class F, int kGroups>
void all_of() {
  for (const bool is_same : {true, false}) time_fed<F, kGroups, 1, true>(0, is_same);
  time_fed<F, kGroups, 1, true, 0>(0, false);
  time_fed<F, kGroups, 1, true>(0, false, 12);  // the clock after a millisecond
  time_fed<F, kGroups, 2, true>(0, false);
  for (const int lag : {0, 1000, 4000, 16000}) time_fed<F, kGroups, 1, false>(lag, false);
  time_fed<F, kGroups, 1, false>(0, true);
  for (const int lag : {0, 4000}) time_fed<F, kGroups, 2, false>(lag, false);
  time_fed<F, kGroups, 2, false>(0, true);
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_random = argc < 2 || argv[1][0] != '0';
  cudaDeviceProp device{};
  CHECK(cudaGetDeviceProperties(&device, 0));
  g_sms = device.multiProcessorCount;
  CHECK(cudaMalloc(&g_memory, 2 * std::size_t{kRows} * kPitch));
  CHECK(cudaMallocManaged(&g_out, 8 * 1024));
  fill<<<1024, 256>>>(reinterpret_cast<unsigned*>(g_memory), std::size_t{kRows} * kPitch / 2, is_random);
  CHECK(cudaDeviceSynchronize());
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  g_encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
  printf("{\"what\": \"values\", \"random\": %d}\n", is_random ? 1 : 0);
  print_places();
  if (argc > 1 && argv[1][0] == 'p' && argv[1][1] == 'l') return 0;
  if (argc > 1 && argv[1][0] == 'd') {
    time_drift<bf16_SS_64, 1>();
    time_drift<bf16_SS_96, 1>();
    time_drift<bf16_SS_128, 1>();
    time_drift<bf16_SS_160, 1>();
    time_drift<bf16_SS_192, 1>();
    time_drift<bf16_SS_256, 1>();
    time_drift<bf16_SS_128, 2>();
    time_drift<bf16_SS_192, 2>();
    time_drift<bf16_SS_64, 1, 2>();
    time_drift<bf16_SS_128, 1, 2>();
    time_drift<bf16_SS_192, 1, 2>();
    time_drift<bf16_SS_128, 2, 2>();
    return 0;
  }
  if (argc > 1 && argv[1][0] == 'p') {
    for (const int times : {1, 6}) {
      for (const int raster : {4, 8, 16, 32}) time_paced<bf16_SS_64, 1, 1>(raster, times);
      for (const int raster : {8, 16}) time_paced<bf16_SS_128, 2, 1>(raster, times);
      time_paced<bf16_SS_256, 1, 1>(8, times);
      for (const int raster : {8, 16}) time_paced<bf16_SS_64, 1, 2>(raster, times);
      time_paced<bf16_SS_128, 2, 2>(8, times);
      time_paced<bf16_SS_128, 1, 2>(8, times);
    }
    return 0;
  }
  for (const Together together : {both_neighbours, others_neighbours, one_of_two_neighbours, pairs_of_two}) {
    time_fed<bf16_SS_64, 1, 1, false>(0, false, 1, 0, 8, together);
    time_fed<bf16_SS_128, 2, 1, false>(0, false, 1, 0, 8, together);
    time_fed<bf16_SS_64, 1, 2, false>(0, false, 1, 0, 8, together);
    time_fed<bf16_SS_128, 2, 2, false>(0, false, 1, 0, 8, together);
  }
  for (const int raster : {1, 2, 4, 8, 16, 32, 64}) time_fed<bf16_SS_256, 1, 1, false>(0, false, 1, 0, raster);
  for (const int ctas : {1, 16, 33, 66, 88, 110, 132})
    for (const bool is_same : {true, false}) time_fed<bf16_SS_256, 1, 1, false>(0, is_same, 1, ctas);
  all_of<bf16_SS_64, 1>();
  all_of<bf16_SS_128, 1>();
  all_of<bf16_SS_256, 1>();
  all_of<bf16_SS_64, 2>();
  all_of<bf16_SS_128, 2>();
  all_of<bf16_SS_192, 2>();
  all_of<bf16_SS_256, 2>();
  all_of<e4m3_SS_128, 2>();
}
