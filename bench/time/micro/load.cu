// What a whole Hopper GPU does under load, and what is cold after its L2 was overwritten: the clock while all tensor
// cores work on random numbers, reads that displace dirty lines, the first execution of code, the first use of a tensor
// map, issue of copies by a thread that does nothing else. One JSON object a line, as micro.cu.
//
//   python3 forms.py > wgmma_forms.h && nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a load.cu -o load
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

constexpr int kSmem = 200 * 1024;

/// A bf16 that is about normal (sum of uniform numbers), or a byte of e4m3 in a like range.
__device__ unsigned random_bf16(unsigned i) {
  float sum = -2;
  for (unsigned k = 0; k < 4; ++k) sum += static_cast<float>(mix(i * 4 + k) >> 8) * (1.0f / (1 << 24));
  return __float_as_uint(sum * 1.7f) >> 16;
}

// Two warpgroups a CTA, 64 x N each, K = 64 a step from shared memory; a wait now and then.
template <class F, bool kIsRandom>
__global__ void __launch_bounds__(256) all_cores(int steps, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  for (unsigned i = threadIdx.x; i < 96 * 1024 / 4; i += blockDim.x)
    reinterpret_cast<unsigned*>(smem)[i] = !kIsRandom    ? 0
                                           : F::kK == 32 ? (mix(i) & 0xbfbfbfbf)
                                                         : random_bf16(2 * i) | random_bf16(2 * i + 1) << 16;
  asm volatile("fence.proxy.async;" ::: "memory");
  typename F::C d[F::kCount];
  for (int i = 0; i < F::kCount; ++i) {
    d[i] = 0;
    F::pin(d[i]);
  }
  unsigned a[4] = {0, 0, 0, 0};
  const U64 base = smem_of(smem);
  const U64 da =
      (((base + threadIdx.x / 128 * 16384) & 0x3FFFF) >> 4) | (U64{64} << 32) | (U64{1} << 16) | (U64{1} << 62);
  const U64 b = (((base + 32768) & 0x3FFFF) >> 4) | (U64{64} << 32) | (U64{1} << 16) | (U64{1} << 62);
  __syncthreads();
  const U64 n0 = nanoseconds();
  const long long t0 = now();
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int i = 0; i < 8; ++i) F::issue(d, a, da + i % 4 * 2, b + i % 4 * 2);
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int i = 0; i < F::kCount; ++i) F::pin(d[i]);
  }
  const long long t1 = now();
  const U64 n1 = nanoseconds();
  typename F::C sum = 0;
  for (int i = 0; i < F::kCount; ++i) sum += d[i];
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = t1 - t0, out[3 * blockIdx.x + 1] = static_cast<long long>(n1 - n0);
    out[3 * blockIdx.x + 2] = sum != 0;
  }
}
unsigned char* g_memory = nullptr;
long long* g_out = nullptr;
int g_sms = 0;
void flush() { CHECK(cudaMemset(g_memory + (2LL << 30), 0, 256 << 20)); }

template <class F, bool kIsRandom>
void load(int steps, int repeat) {
  const auto kernel = all_cores<F, kIsRandom>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<double> us, mhz, interval;
  for (int i = 0; i < repeat; ++i) {
    flush();
    CHECK(cudaEventRecord(a));
    kernel<<<g_sms, 256, kSmem>>>(steps, g_out);
    CHECK(cudaEventRecord(b));
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    us.push_back(ms * 1000);
    std::vector<double> clocks, cycles;
    for (int s = 0; s < g_sms; ++s) {
      clocks.push_back(1000. * static_cast<double>(g_out[3 * s]) / static_cast<double>(g_out[3 * s + 1]));
      cycles.push_back(static_cast<double>(g_out[3 * s]) / (16. * steps));
    }
    std::sort(clocks.begin(), clocks.end());
    std::sort(cycles.begin(), cycles.end());
    mhz.push_back(clocks[clocks.size() / 2]);
    interval.push_back(cycles[cycles.size() / 2]);
  }
  const auto middle = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  printf(
      "{\"what\": \"all tensor cores\", \"form\": \"%s\", \"random\": %d, \"steps\": %d, \"us\": %.1f, \"mhz\": %.0f, "
      "\"mhz_first\": %.0f, \"mhz_last\": %.0f, \"interval\": %.2f}\n",
      F::kName, kIsRandom ? 1 : 0, steps, middle(us), middle(mhz), mhz.front(), mhz.back(), middle(interval));
}

__global__ void read_all(const uint4* p, long long per_block, long long* out) {
  unsigned s = 0;
  const uint4* at = p + per_block * blockIdx.x;
  for (long long i = threadIdx.x; i < per_block; i += blockDim.x * 4) {
    uint4 v[4];
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (i + k * blockDim.x < per_block)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                     : "l"(at + i + k * blockDim.x));
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (i + k * blockDim.x < per_block) s += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
  }
  if (s == 0x12345) out[1] = 1;
}
void dirty_lines() {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  const auto read = [&](long long bytes) {
    const int grid = g_sms * 4;
    read_all<<<grid, 512>>>(reinterpret_cast<const uint4*>(g_memory), bytes / 16 / grid, g_out);
  };
  for (long long megabytes : {8, 16, 32, 64, 128, 256, 512}) {
    double found[2];
    for (int dirty = 0; dirty < 2; ++dirty) {
      std::vector<double> all;
      for (int i = 0; i < 9; ++i) {
        flush();
        if (dirty == 0) {
          read_all<<<g_sms * 4, 512>>>(reinterpret_cast<const uint4*>(g_memory + (3LL << 30)),
                                       (512LL << 20) / 16 / g_sms / 4, g_out);
        }
        CHECK(cudaEventRecord(a));
        read(megabytes << 20);
        CHECK(cudaEventRecord(b));
        CHECK(cudaEventSynchronize(b));
        float ms = 0;
        CHECK(cudaEventElapsedTime(&ms, a, b));
        all.push_back(ms * 1000);
      }
      std::sort(all.begin(), all.end());
      found[dirty] = all[4];
    }
    printf(
        "{\"what\": \"read after the L2 was overwritten\", \"megabytes\": %lld, \"us_clean\": %.2f, \"us_dirty\": "
        "%.2f}\n",
        megabytes, found[0], found[1]);
  }
}

// 1,024 different instructions in a row, 16 KiB of code: cold, and again.
__global__ void long_code(float x, long long* out) {
  float v[8] = {x, x + 1, x + 2, x + 3, x + 4, x + 5, x + 6, x + 7};
  for (int pass = 0; pass < 2; ++pass) {
    const long long t0 = now();
#define ONE(i) \
  asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(v[(i) % 8]) : "f"(v[((i) + 3) % 8]), "f"(v[((i) + 5) % 8]));
#define EIGHT(i) ONE(i) ONE(i + 1) ONE(i + 2) ONE(i + 3) ONE(i + 4) ONE(i + 5) ONE(i + 6) ONE(i + 7)
#define MANY(i) EIGHT(i) EIGHT(i + 1) EIGHT(i + 2) EIGHT(i + 3) EIGHT(i + 4) EIGHT(i + 5) EIGHT(i + 6) EIGHT(i + 7)
#define HALF MANY(0) MANY(1) MANY(2) MANY(3) MANY(4) MANY(5) MANY(6) MANY(7)
    HALF HALF const long long t1 = now();
    if (threadIdx.x == 0) out[2 * blockIdx.x + pass] = t1 - t0;
  }
  float sum = 0;
  for (float y : v) sum += y;
  if (sum == 12345.f) out[0] = 0;
}
void code() {
  for (int grid : {1, g_sms}) {
    for (int cold = 0; cold < 2; ++cold) {
      if (cold == 1) flush();
      long_code<<<grid, 128>>>(1.f, g_out);
      CHECK(cudaDeviceSynchronize());
    }
    printf("{\"what\": \"16 KiB of code, cycles\", \"ctas\": %d, \"first_after_flush\": %lld, \"again\": %lld}\n", grid,
           g_out[0], g_out[1]);
  }
}

// One thread: eight slots, their loop unrolled, so that nothing but the copies is issued.
template <int kBytes>
__global__ void issue_rate(const unsigned char* from, int rounds, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 words[8];
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 8; ++i) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(&words[i])) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  const unsigned bar = smem_of(&words[0]), to = smem_of(smem);
  const auto issue = [&](int i) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar + 8 * i), "r"(kBytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     to + kBytes * i),
                 "l"(from + kBytes * i), "r"(kBytes), "r"(bar + 8 * i)
                 : "memory");
  };
  const long long t0 = now();
#pragma unroll
  for (int i = 0; i < 8; ++i) issue(i);
  const long long t1 = now();
#pragma unroll 1
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      wait(bar + 8 * i, r & 1);
      if (r + 1 < rounds) issue(i);
    }
  }
  out[0] = t1 - t0, out[1] = now() - t0;
}
template <int kBytes>
void time_issue() {
  CHECK(cudaFuncSetAttribute(issue_rate<kBytes>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
  for (int i = 0; i < 2; ++i) issue_rate<kBytes><<<1, 32, kSmem>>>(g_memory, 64, g_out);
  CHECK(cudaDeviceSynchronize());
  printf(
      "{\"what\": \"copies by one thread\", \"bytes\": %d, \"issue\": %.1f, \"cycles_each\": %.1f, "
      "\"bytes_per_clock\": %.1f}\n",
      kBytes, g_out[0] / 8., g_out[1] / 512., 512. * kBytes / static_cast<double>(g_out[1]));
}

using EncodeFn = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
__global__ void first_loads(const __grid_constant__ CUtensorMap map, int prefetches, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 word;
  if (threadIdx.x != 0) return;
  const unsigned bar = smem_of(&word), to = (smem_of(smem) + 1023) / 1024 * 1024;
  asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  if (prefetches != 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  for (int i = 0; i < 4; ++i) {
    const long long t0 = now();
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 8192;" ::"r"(bar) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(
            to),
        "l"(&map), "r"(bar), "r"(0), "r"(i * 64 + static_cast<int>(blockIdx.x) * 256)
        : "memory");
    wait(bar, i & 1);
    if (blockIdx.x == 0) out[i] = now() - t0;
  }
}
void first_use() {
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
  CUtensorMap map;
  const cuuint64_t dims[2] = {512, 1 << 20}, strides[1] = {1024};
  const cuuint32_t box[2] = {64, 64}, steps[2] = {1, 1};
  reinterpret_cast<EncodeFn>(encode)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, g_memory, dims, strides, box, steps,
                                     CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  for (int grid : {1, g_sms})
    for (int i = 0; i < 3; ++i) {
      flush();
      first_loads<<<grid, 32, 32768>>>(map, 0, g_out);
      CHECK(cudaDeviceSynchronize());
      if (i == 2)
        printf(
            "{\"what\": \"tensor loads of 8 KiB after a flush\", \"ctas\": %d, \"first\": %lld, \"second\": %lld, "
            "\"third\": %lld}\n",
            grid, g_out[0], g_out[1], g_out[2]);
    }
}
// When CTAs of a full wave start, by the device's timer: the last after the first.
__global__ void starts(long long* out) {
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<long long>(nanoseconds());
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CHECK(cudaMallocManaged(&g_out, 1 << 20));
  CHECK(cudaMalloc(&g_memory, 4LL << 30));
  CHECK(cudaMemset(g_memory, 1, 4LL << 30));
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  g_sms = device.multiProcessorCount;
  time_issue<1024>();
  time_issue<4096>();
  time_issue<8192>();
  time_issue<16384>();
  first_use();
  code();
  dirty_lines();
  for (int i = 0; i < 2; ++i) {
    starts<<<g_sms, 384>>>(g_out);
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<long long> all(g_out, g_out + g_sms);
  std::sort(all.begin(), all.end());
  printf("{\"what\": \"starts of a wave's CTAs, ns after the first\", \"middle\": %lld, \"last\": %lld}\n",
         all[g_sms / 2] - all[0], all.back() - all[0]);
  for (int steps : {10, 100, 1000}) {
    load<bf16_SS_256, false>(steps, 30);
    load<bf16_SS_256, true>(steps, 30);
  }
  load<bf16_SS_128, true>(200, 30);
  load<e4m3_SS_256, true>(100, 30);
  load<e4m3_SS_256, true>(1000, 30);
  load<bf16_SS_256, true>(10000, 20);
  return 0;
}
