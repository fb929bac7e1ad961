// What single units of a Hopper SM do: the numbers behind the descriptions in emulator/time/gpus.
//
// One JSON object a line on stdout: {"what": ..., numbers}. Cycles are the SM's clock (%clock64). Everything is
// measured alone, in one CTA where nothing else is said; a rate is the difference of two lengths of the same loop, so
// that what begins and ends it falls away. One file, though long: a reader looks up one unit's function, and nvcc takes
// it without a build.
//
//   python3 forms.py > wgmma_forms.h && nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a micro.cu -o micro
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

__device__ __forceinline__ void init_barrier(unsigned bar, unsigned count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(unsigned bar, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(unsigned bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
}
long long* g_out = nullptr;  // managed
template <class K, class... A>
void launch(K kernel, int grid, int block, int smem, A... args) {
  if (smem > 48 * 1024) CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem));
  kernel<<<grid, block, smem>>>(args...);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
}

// --- wgmma ---------------------------------------------------------------------------------------------------------
// kCount wgmmas one behind the other, a commit after every fourth; nothing else runs.
template <class F, int kCount>
__global__ void __launch_bounds__(256) wgmma_chain(long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  for (int i = threadIdx.x; i < 96 * 1024 / 4; i += blockDim.x) reinterpret_cast<unsigned*>(smem)[i] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  typename F::C d[F::kCount];
  for (int i = 0; i < F::kCount; ++i) {
    d[i] = 0;
    F::pin(d[i]);  // the assembler serialises wgmmas where something else writes their registers
  }
  unsigned a[4] = {threadIdx.x & 0u, 0, 0, 0};
  const U64 base = smem_of(smem);
  const U64 descriptor = (((base + threadIdx.x / 128 * 16384) & 0x3FFFF) >> 4) | (U64{64} << 32) | (U64{1} << 16) |
                         (U64{1} << 62);  // 128-byte swizzle, 1,024 bytes a group of 8 rows
  const U64 b = (((base + 32768) & 0x3FFFF) >> 4) | (U64{64} << 32) | (U64{256} << 16) | (U64{1} << 62);
  __syncthreads();
  const long long t0 = now();
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    F::issue(d, a, descriptor + i % 4 * 2, b + i % 4 * 2);
    if (i % 4 == 3 || i + 1 == kCount) asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  }
  const long long t1 = now();
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  const long long t2 = now();
  typename F::C sum = 0;
  for (int i = 0; i < F::kCount; ++i) {
    F::pin(d[i]);
    sum += d[i];
  }
  if (threadIdx.x % 128 == 0) {
    out[threadIdx.x / 128 * 4] = t1 - t0;
    out[threadIdx.x / 128 * 4 + 1] = t2 - t0;
    out[threadIdx.x / 128 * 4 + 2] = sum != 0;
  }
}

template <class F>
void time_wgmma() {
  const auto run = [](auto kernel, int block) {
    launch(kernel, 1, block, 128 * 1024, g_out);  // warms
    launch(kernel, 1, block, 128 * 1024, g_out);
    return g_out[1];
  };
  const double one = static_cast<double>(run(wgmma_chain<F, 1>, 128));
  const double issue = static_cast<double>(g_out[0]);
  const double interval = static_cast<double>(run(wgmma_chain<F, 24>, 128) - run(wgmma_chain<F, 8>, 128)) / 16;
  const double two = static_cast<double>(run(wgmma_chain<F, 24>, 256) - run(wgmma_chain<F, 8>, 256)) / 32;
  printf(
      "{\"what\": \"wgmma\", \"form\": \"%s\", \"latency\": %.0f, \"issue_one\": %.0f, \"interval\": %.2f, "
      "\"interval_two_warpgroups\": %.2f}\n",
      F::kName, one, issue, interval, two);
}

// --- arithmetic ----------------------------------------------------------------------------------------------------
#define OP(NAME, TEXT)                                                                \
  struct NAME {                                                                       \
    static constexpr const char* kName = #NAME;                                       \
    static __device__ __forceinline__ void run(unsigned& x, unsigned y, unsigned z) { \
      asm volatile(TEXT : "+r"(x) : "r"(y), "r"(z));                                  \
    }                                                                                 \
  };
OP(fma_f32, "fma.rn.f32 %0, %0, %1, %2;")
OP(add_f32, "add.f32 %0, %0, %1;")
OP(mul_f32, "mul.f32 %0, %0, %1;")
OP(max_f32, "max.f32 %0, %0, %1;")
OP(fma_f16x2, "fma.rn.f16x2 %0, %0, %1, %2;")
OP(fma_bf16x2, "fma.rn.bf16x2 %0, %0, %1, %2;")
OP(ex2, "ex2.approx.ftz.f32 %0, %0;")
OP(rcp, "rcp.approx.ftz.f32 %0, %0;")
OP(lg2, "lg2.approx.ftz.f32 %0, %0;")
OP(tanh_f32, "tanh.approx.f32 %0, %0;")
OP(add_u32, "add.u32 %0, %0, %1;")
OP(mad_u32, "mad.lo.u32 %0, %0, %1, %2;")
OP(xor_b32, "xor.b32 %0, %0, %1;")
OP(shf, "shf.l.wrap.b32 %0, %0, %1, %2;")
OP(prmt, "prmt.b32 %0, %0, %1, 0x5410;")
OP(min_s32, "min.s32 %0, %0, %1;")
OP(popc, "popc.b32 %0, %0;")
OP(setp_selp, "{.reg .pred p; setp.lt.u32 p, %0, %1; selp.b32 %0, %1, %2, p;}")
OP(cvt_bf16x2, "cvt.rn.bf16x2.f32 %0, %0, %1;")
OP(cvt_e4m3x2, "{.reg .b16 h; cvt.rn.satfinite.e4m3x2.f32 h, %0, %1; mov.b32 %0, {h, h};}")
OP(cvt_f32_s32, "cvt.rn.f32.s32 %0, %0;")
OP(shfl, "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;")
OP(vote, "{.reg .pred p; setp.ne.u32 p, %0, 0; vote.sync.ballot.b32 %0, p, 0xffffffff;}")
OP(redux, "redux.sync.max.s32 %0, %0, 0xffffffff;")

template <class F, int kChains>
__global__ void alu(int reps, long long* out) {
  unsigned x[kChains];
  for (int i = 0; i < kChains; ++i) x[i] = threadIdx.x + i;
  const unsigned y = 0x3f800000 + threadIdx.x, z = 0x3f800000 + threadIdx.x * 2;
  __syncthreads();
  const long long t0 = now();
  for (int r = 0; r < reps; ++r) {
#pragma unroll
    for (int k = 0; k < 32 / kChains; ++k)
#pragma unroll
      for (int i = 0; i < kChains; ++i) F::run(x[i], y, z);
  }
  __syncthreads();
  const long long t1 = now();
  unsigned sum = 0;
  for (int i = 0; i < kChains; ++i) sum += x[i];
  if (sum == 0x12345) out[1] = 1;
  if (threadIdx.x == 0) out[0] = t1 - t0;
}
template <class F>
void time_alu() {
  const auto run = [](auto kernel, int block) {
    launch(kernel, 1, block, 0, 64, g_out);
    launch(kernel, 1, block, 0, 64, g_out);
    const double few = static_cast<double>(g_out[0]);
    launch(kernel, 1, block, 0, 192, g_out);
    return (static_cast<double>(g_out[0]) - few) / (128 * 32);
  };
  printf(
      "{\"what\": \"alu\", \"op\": \"%s\", \"latency\": %.2f, \"interval_1_warp\": %.2f, \"interval_4_warps\": %.2f}\n",
      F::kName, run(alu<F, 1>, 32), run(alu<F, 8>, 128), run(alu<F, 8>, 512) / 4);
}

// --- shared memory -------------------------------------------------------------------------------------------------
enum class Smem { ld32, ld64, ld128, st32, st64, st128, ldmatrix, stmatrix, chain, atom };
template <Smem kWhat>
__global__ void shared(int reps, int stride, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  for (int i = threadIdx.x; i < 64 * 1024 / 4; i += blockDim.x)
    reinterpret_cast<unsigned*>(smem)[i] = kWhat == Smem::chain ? smem_of(smem) : 0;
  const unsigned at = smem_of(smem) + (threadIdx.x % 32) * stride + threadIdx.x / 32 % 4 * 8192;
  unsigned s[4] = {0, 0, 0, 0}, p = smem_of(smem);
  __syncthreads();
  const long long t0 = now();
  for (int r = 0; r < reps; ++r) {
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      if constexpr (kWhat == Smem::ld32) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(a) : "r"(at));
      if constexpr (kWhat == Smem::ld64)
        asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at));
      if constexpr (kWhat == Smem::ld128)
        asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at));
      if constexpr (kWhat == Smem::ldmatrix)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at));
      if constexpr (kWhat == Smem::st32) asm volatile("st.volatile.shared.u32 [%1], %0;" ::"r"(r), "r"(at));
      if constexpr (kWhat == Smem::st64) asm volatile("st.volatile.shared.v2.u32 [%1], {%0, %0};" ::"r"(r), "r"(at));
      if constexpr (kWhat == Smem::st128)
        asm volatile("st.volatile.shared.v4.u32 [%1], {%0, %0, %0, %0};" ::"r"(r), "r"(at));
      if constexpr (kWhat == Smem::stmatrix)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%1], {%0, %0, %0, %0};" ::"r"(r), "r"(at));
      if constexpr (kWhat == Smem::chain) asm volatile("ld.shared.u32 %0, [%0];" : "+r"(p));
      if constexpr (kWhat == Smem::atom) asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(a) : "r"(at));
      s[0] += a, s[1] ^= b, s[2] += c, s[3] ^= d;
    }
  }
  __syncthreads();
  const long long t1 = now();
  if (s[0] + s[1] + s[2] + s[3] + p == 0x12345) out[1] = 1;
  if (threadIdx.x == 0) out[0] = t1 - t0;
}
template <Smem kWhat>
void time_shared(const char* name, int stride, int block) {
  launch(shared<kWhat>, 1, block, 64 * 1024, 32, stride, g_out);
  launch(shared<kWhat>, 1, block, 64 * 1024, 32, stride, g_out);
  const double few = static_cast<double>(g_out[0]);
  launch(shared<kWhat>, 1, block, 64 * 1024, 96, stride, g_out);
  const double each = (static_cast<double>(g_out[0]) - few) / (64 * 16);
  printf(
      "{\"what\": \"shared\", \"op\": \"%s\", \"stride\": %d, \"warps\": %d, \"cycles_per_warp_instruction\": %.2f}\n",
      name, stride, block / 32, each / (block / 32));
}

// --- synchronisation -----------------------------------------------------------------------------------------------
__global__ void barriers(long long* out) {
  __shared__ __align__(8) U64 words[8];
  const unsigned full = smem_of(&words[0]), empty = smem_of(&words[1]), own = smem_of(&words[2]);
  if (threadIdx.x == 0) {
    init_barrier(full, 1), init_barrier(empty, 1), init_barrier(own, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    long long t0 = now();
    for (int i = 0; i < 64; ++i) arrive(own);
    long long t1 = now();
    out[0] = t1 - t0;
    t0 = now();
    for (unsigned i = 0; i < 64; ++i) arrive(own), wait(own, i & 1);
    t1 = now();
    out[1] = t1 - t0;
    arrive(own);
    t0 = now();
    for (unsigned i = 0; i < 64; ++i) wait(own, 0);  // over already
    t1 = now();
    out[2] = t1 - t0;
  }
  __syncthreads();
  // ping-pong of two warps
  if (threadIdx.x == 0) {
    const long long t0 = now();
    for (unsigned i = 0; i < 64; ++i) arrive(full), wait(empty, i & 1);
    out[3] = now() - t0;
  } else if (threadIdx.x == 32) {
    for (unsigned i = 0; i < 64; ++i) wait(full, i & 1), arrive(empty);
  }
  __syncthreads();
}
__global__ void sync_threads(long long* out) {
  __syncthreads();
  const long long t0 = now();
#pragma unroll 1
  for (int i = 0; i < 256; ++i) asm volatile("bar.sync 0;" ::: "memory");
  if (threadIdx.x == 0) out[0] = now() - t0;
}
__global__ void __cluster_dims__(2, 1, 1) sync_cluster(long long* out) {
  long long t0 = now();
#pragma unroll 1
  for (int i = 0; i < 64; ++i)
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  long long t1 = now();
#pragma unroll 1
  for (int i = 0; i < 64; ++i)
    asm volatile("barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  long long t2 = now();
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = t1 - t0, out[1] = t2 - t1;
}

// --- bulk and tensor copies ----------------------------------------------------------------------------------------
// One thread keeps `depth` copies of `bytes` under way, `count` in all, at steps of `step` bytes in global memory.
__global__ void bulk_loads(const unsigned char* from, int bytes, int depth, int count, long long step,
                           long long block_step, long long* out, int by_block) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 words[64];
  if (threadIdx.x == 0) {
    for (int i = 0; i < depth; ++i) init_barrier(smem_of(&words[i]), 1);
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    const unsigned char* at = from + block_step * blockIdx.x;
    const auto issue = [&](int i) {
      const unsigned bar = smem_of(&words[i % depth]);
      expect(bar, bytes);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       smem_of(smem) + i % depth * bytes),
                   "l"(at + step * i), "r"(bytes), "r"(bar)
                   : "memory");
    };
    const long long t0 = now();
    for (int i = 0; i < depth && i < count; ++i) issue(i);
    const long long ti = now();
    for (int i = 0; i < count; ++i) {
      wait(smem_of(&words[i % depth]), i / depth & 1);
      if (i + depth < count) issue(i + depth);
    }
    const long long t1 = now();
    if (by_block == 0 ? blockIdx.x == 0 : true) {
      out[2 * (by_block == 0 ? 0 : blockIdx.x)] = t1 - t0;
      out[2 * (by_block == 0 ? 0 : blockIdx.x) + 1] = ti - t0;
    }
  }
}
// Each group of `sharers` CTAs reads the same bytes, 256 KiB around and around.
__global__ void shared_loads(const unsigned char* from, int bytes, int depth, int count, int sharers, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 words[64];
  if (threadIdx.x == 0) {
    for (int i = 0; i < depth; ++i) init_barrier(smem_of(&words[i]), 1);
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    const unsigned char* at = from + static_cast<long long>(blockIdx.x / sharers) * (256 << 10);
    const auto issue = [&](int i) {
      const unsigned bar = smem_of(&words[i % depth]);
      expect(bar, bytes);
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                       smem_of(smem) + i % depth * bytes),
                   "l"(at + static_cast<long long>(i) * bytes % (256 << 10)), "r"(bytes), "r"(bar)
                   : "memory");
    };
    const long long t0 = now();
    for (int i = 0; i < depth; ++i) issue(i);
    for (int i = 0; i < count; ++i) {
      wait(smem_of(&words[i % depth]), i / depth & 1);
      if (i + depth < count) issue(i + depth);
    }
    out[2 * blockIdx.x] = now() - t0;
  }
}
__global__ void tensor_loads(const __grid_constant__ CUtensorMap map, int rows, int depth, int count, int y0,
                             long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 words[64];
  if (threadIdx.x == 0) {
    const unsigned base = (smem_of(smem) + 1023) / 1024 * 1024;
    const int bytes = rows * 128;
    for (int i = 0; i < depth; ++i) init_barrier(smem_of(&words[i]), 1);
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
    const auto issue = [&](int i) {
      const unsigned bar = smem_of(&words[i % depth]);
      expect(bar, bytes);
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::
              "r"(base + i % depth * bytes),
          "l"(&map), "r"(bar), "r"(i % 8 * 64), "r"(y0 + static_cast<int>(blockIdx.x) * 128 + i / 8 * rows)
          : "memory");
    };
    const long long t0 = now();
    for (int i = 0; i < depth && i < count; ++i) issue(i);
    const long long ti = now();
    for (int i = 0; i < count; ++i) {
      wait(smem_of(&words[i % depth]), i / depth & 1);
      if (i + depth < count) issue(i + depth);
    }
    const long long t1 = now();
    out[2 * blockIdx.x] = t1 - t0;
    out[2 * blockIdx.x + 1] = ti - t0;
  }
}
__global__ void bulk_stores(unsigned char* to, int bytes, int count, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  if (threadIdx.x == 0) {
    unsigned char* at = to + static_cast<long long>(blockIdx.x) * bytes * count;
    const long long t0 = now();
    for (int i = 0; i < count; ++i)
      asm volatile(
          "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(at + static_cast<long long>(i) * bytes),
          "r"(smem_of(smem)), "r"(bytes)
          : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    const long long ti = now();
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    const long long tr = now();
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    const long long t1 = now();
    out[3 * blockIdx.x] = ti - t0, out[3 * blockIdx.x + 1] = tr - t0, out[3 * blockIdx.x + 2] = t1 - t0;
  }
}
// --- plain loads and stores ----------------------------------------------------------------------------------------
__global__ void chase(const U64* p, int count, long long* out) {
  const U64* at = p;
  const long long t0 = now();
  for (int i = 0; i < count; ++i) asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(at)::"memory");
  out[0] = now() - t0;
  if (at == nullptr) out[1] = 1;
}
__global__ void chase_l1(const U64* p, int count, long long* out) {
  const U64* at = p;
  for (int pass = 0; pass < 2; ++pass) {
    at = p;
    const long long t0 = now();
    for (int i = 0; i < count; ++i) asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(at)::"memory");
    out[0] = now() - t0;
  }
  if (at == nullptr) out[1] = 1;
}
template <int kDeep>
__global__ void reads(const uint4* p, long long per_block, int passes, long long* out) {
  unsigned s = 0;
  const uint4* at = p + per_block * blockIdx.x;
  for (int pass = 0; pass < passes; ++pass)
    for (long long i = threadIdx.x; i < per_block; i += blockDim.x * kDeep) {
      uint4 v[kDeep];
#pragma unroll
      for (int k = 0; k < kDeep; ++k)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[k].x), "=r"(v[k].y), "=r"(v[k].z), "=r"(v[k].w)
                     : "l"(at + i + k * blockDim.x));
#pragma unroll
      for (int k = 0; k < kDeep; ++k) s += v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
  if (s == 0x12345) out[1] = 1;
}
__global__ void writes(uint4* p, long long per_block) {
  uint4* at = p + per_block * blockIdx.x;
  for (long long i = threadIdx.x; i < per_block; i += blockDim.x) at[i] = uint4{1, 2, 3, 4};
}
__global__ void atomics(unsigned* p, long long* out) {
  const long long t0 = now();
  unsigned s = 0;
  for (int i = 0; i < 64; ++i) s = atomicAdd(p + (s & 1), 1);
  out[0] = now() - t0;
  if (s == 0x12345) out[1] = 1;
}
__global__ void nothing(int, long long*) {}
__global__ void clock_rate(long long* out) {
  U64 g0, g1;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g0)::"memory");
  const long long t0 = now();
  do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(g1)::"memory");
  while (g1 - g0 < 2000000);
  out[0] = now() - t0, out[1] = static_cast<long long>(g1 - g0);
}

template <class F>
double microseconds(F f, int repeat = 7) {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> all;
  for (int i = 0; i < repeat; ++i) {
    CHECK(cudaEventRecord(a));
    f();
    CHECK(cudaEventRecord(b));
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    all.push_back(ms * 1000);
  }
  std::sort(all.begin(), all.end());
  return all[all.size() / 2];
}

void shared_and_sync() {
  for (int block : {128, 512}) {
    time_shared<Smem::ld32>("ld.shared.b32", 4, block);
    time_shared<Smem::ld64>("ld.shared.b64", 8, block);
    time_shared<Smem::ld128>("ld.shared.b128", 16, block);
    time_shared<Smem::st32>("st.shared.b32", 4, block);
    time_shared<Smem::st64>("st.shared.b64", 8, block);
    time_shared<Smem::st128>("st.shared.b128", 16, block);
    time_shared<Smem::ldmatrix>("ldmatrix.x4", 16, block);
    time_shared<Smem::stmatrix>("stmatrix.x4", 16, block);
    time_shared<Smem::atom>("atom.shared", 4, block);
  }
  for (int stride : {8, 16, 32, 64, 128}) time_shared<Smem::ld32>("ld.shared.b32", stride, 512);
  for (int stride : {32, 64, 128}) time_shared<Smem::ldmatrix>("ldmatrix.x4", stride, 512);
  for (int stride : {32, 64, 128}) time_shared<Smem::st128>("st.shared.b128", stride, 512);
  time_shared<Smem::chain>("dependent ld.shared", 0, 32);
  launch(barriers, 1, 64, 0, g_out);
  launch(barriers, 1, 64, 0, g_out);
  printf(
      "{\"what\": \"mbarrier\", \"arrive\": %.1f, \"arrive_and_wait\": %.1f, \"wait_over\": %.1f, \"round_trip\": "
      "%.1f}\n",
      g_out[0] / 64., g_out[1] / 64., g_out[2] / 64., g_out[3] / 64.);
  for (int warps : {1, 2, 4, 8, 12, 16, 32}) {
    launch(sync_threads, 1, warps * 32, 0, g_out);
    launch(sync_threads, 1, warps * 32, 0, g_out);
    printf("{\"what\": \"bar.sync\", \"warps\": %d, \"cycles\": %.1f}\n", warps, g_out[0] / 256.);
  }
  for (int warps : {1, 4, 12}) {
    launch(sync_cluster, 2, warps * 32, 0, g_out);
    launch(sync_cluster, 2, warps * 32, 0, g_out);
    printf("{\"what\": \"barrier.cluster\", \"warps\": %d, \"cycles\": %.1f, \"relaxed\": %.1f}\n", warps,
           g_out[0] / 64., g_out[1] / 64.);
  }
}

using EncodeFn = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);

void copies(int sms) {
  const long long big = 4LL << 30;
  unsigned char* memory = nullptr;
  CHECK(cudaMalloc(&memory, big));
  CHECK(cudaMemset(memory, 1, big));
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &found));
  const auto flush = [&] { CHECK(cudaMemset(memory + big / 2, 0, 256 << 20)); };

  for (int bytes : {128, 1024, 2048, 4096, 8192, 16384, 32768, 65536}) {
    flush();
    launch(bulk_loads, 1, 32, kSmem, memory, bytes, 1, 8, 1LL << 20, 0LL, g_out, 0);
    const double hbm = g_out[0] / 8., issue = static_cast<double>(g_out[1]);
    launch(bulk_loads, 1, 32, kSmem, memory, bytes, 1, 8, 1LL << 20, 0LL, g_out, 0);
    printf("{\"what\": \"bulk load\", \"bytes\": %d, \"latency_hbm\": %.0f, \"latency_l2\": %.0f, \"issue\": %.0f}\n",
           bytes, hbm, g_out[0] / 8., issue);
  }
  // one SM from the L2: bytes a clock
  for (int bytes : {1024, 4096, 16384})
    for (int depth : {2, 4, 8}) {
      double cycles = 0;
      for (int pass = 0; pass < 2; ++pass) {
        launch(bulk_loads, 1, 32, kSmem, memory, bytes, depth, 256, static_cast<long long>(bytes), 0LL, g_out, 0);
        cycles = static_cast<double>(g_out[0]);
      }
      printf("{\"what\": \"bulk rate of one SM from L2\", \"bytes\": %d, \"depth\": %d, \"bytes_per_clock\": %.1f}\n",
             bytes, depth, 256. * bytes / cycles);
    }
  // all SMs from the L2 (everybody the same 16 MiB) and from HBM, by bytes under way
  for (int kilobytes : {2, 4, 8, 16, 32, 64, 128}) {
    const int bytes = std::min(kilobytes * 1024 / 2, 16384), depth = kilobytes * 1024 / bytes;
    const int count_hbm = 16 * 1024 * 1024 / bytes, count = 8 * 1024 * 1024 / bytes;
    flush();
    const double hbm = microseconds(
        [&] {
          launch(bulk_loads, sms, 32, kSmem, memory, bytes, depth, count_hbm, static_cast<long long>(bytes), 16LL << 20,
                 g_out, 0);
        },
        3);
    const double l2 = microseconds(
        [&] {
          launch(bulk_loads, sms, 32, kSmem, memory, bytes, depth, count, static_cast<long long>(bytes), 128LL << 10,
                 g_out, 0);
        },
        3);
    printf("{\"what\": \"bulk rate of all SMs\", \"kilobytes_under_way\": %d, \"hbm_TB_s\": %.3f, \"l2_TB_s\": %.3f}\n",
           kilobytes, static_cast<double>(sms) * (16 << 20) / hbm * 1e-6,
           static_cast<double>(sms) * (8 << 20) / l2 * 1e-6);
  }
  // all SMs from the L2, groups of neighbours the same bytes at about the same time
  for (int sharers : {1, 2, 4, 8, 16, 132}) {
    const int bytes = 16384, depth = 8, count = 512;
    for (int pass = 0; pass < 3; ++pass)
      launch(shared_loads, sms, 32, kSmem, memory, bytes, depth, count, sharers, g_out);
    std::vector<long long> all;
    for (int i = 0; i < sms; ++i) all.push_back(g_out[2 * i]);
    std::sort(all.begin(), all.end());
    printf(
        "{\"what\": \"bulk rate by sharers\", \"sharers\": %d, \"bytes_per_clock_of_each\": %.2f, \"of_slowest\": "
        "%.2f}\n",
        sharers, static_cast<double>(bytes) * count / static_cast<double>(all[all.size() / 2]),
        static_cast<double>(bytes) * count / static_cast<double>(all.back()));
  }
  for (int rows : {8, 32, 64, 128, 256}) {
    CUtensorMap map;
    const cuuint64_t dims[2] = {512, 1 << 20}, strides[1] = {1024};
    const cuuint32_t box[2] = {64, static_cast<cuuint32_t>(rows)}, steps[2] = {1, 1};
    reinterpret_cast<EncodeFn>(encode)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, memory, dims, strides, box, steps,
                                       CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                       CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    flush();
    launch(tensor_loads, 1, 32, kSmem, map, rows, 1, 8, 0, g_out);
    const double hbm = g_out[0] / 8.;
    launch(tensor_loads, 1, 32, kSmem, map, rows, 1, 8, 0, g_out);
    const double l2 = g_out[0] / 8.;
    const int depth = std::min(5, 160 * 1024 / (rows * 128)), count = 128 * 64 / rows;
    launch(tensor_loads, 1, 32, kSmem, map, rows, depth, count, 0, g_out);
    launch(tensor_loads, 1, 32, kSmem, map, rows, depth, count, 0, g_out);
    const double rate = 128. * rows * count / static_cast<double>(g_out[0]);
    const double issue = static_cast<double>(g_out[1]) / depth;
    launch(tensor_loads, sms, 32, kSmem, map, rows, depth, count, 0, g_out);
    launch(tensor_loads, sms, 32, kSmem, map, rows, depth, count, 0, g_out);
    std::vector<long long> all;
    for (int i = 0; i < sms; ++i) all.push_back(g_out[2 * i]);
    std::sort(all.begin(), all.end());
    printf(
        "{\"what\": \"tensor load\", \"rows_of_128_bytes\": %d, \"latency_hbm\": %.0f, \"latency_l2\": %.0f, "
        "\"issue\": %.0f, "
        "\"depth\": %d, \"bytes_per_clock_one_SM\": %.1f, \"bytes_per_clock_each_of_all_SMs\": %.1f}\n",
        rows, hbm, l2, issue, depth, rate, 128. * rows * count / static_cast<double>(all[all.size() / 2]));
  }
  for (int bytes : {1024, 4096, 16384, 65536})
    for (int count : {1, 4}) {
      launch(bulk_stores, 1, 32, kSmem, memory, bytes, count, g_out);
      launch(bulk_stores, 1, 32, kSmem, memory, bytes, count, g_out);
      printf(
          "{\"what\": \"bulk store\", \"bytes\": %d, \"count\": %d, \"issue\": %lld, \"read\": %lld, \"done\": %lld}\n",
          bytes, count, g_out[0], g_out[1], g_out[2]);
    }
  launch(bulk_stores, sms, 32, kSmem, memory, 16384, 256, g_out);
  printf("{\"what\": \"bulk stores of all SMs, 4 MiB each\", \"cycles\": %lld}\n", g_out[2]);

  // plain loads: latency by a chain of pointers
  for (long long span : {16LL << 10, 16LL << 20, 1LL << 30}) {
    const int count = 512;
    std::vector<U64> host(1);
    const long long step = span / count / 128 * 128 + 0;
    for (int i = 0; i < count; ++i) {
      host[0] = reinterpret_cast<U64>(memory + (static_cast<long long>(i) * 197 + 197) % count * std::max(step, 32LL));
      CHECK(cudaMemcpy(memory + static_cast<long long>(i) * 197 % count * std::max(step, 32LL), host.data(), 8,
                       cudaMemcpyHostToDevice));
    }
    flush();
    launch(chase, 1, 1, 0, reinterpret_cast<const U64*>(memory), count, g_out);
    const double cold = g_out[0] / static_cast<double>(count);
    launch(chase, 1, 1, 0, reinterpret_cast<const U64*>(memory), count, g_out);
    const double warm = g_out[0] / static_cast<double>(count);
    launch(chase_l1, 1, 1, 0, reinterpret_cast<const U64*>(memory), count, g_out);
    printf("{\"what\": \"dependent ld.global\", \"span\": %lld, \"cold\": %.0f, \"again\": %.0f, \"l1\": %.0f}\n", span,
           cold, warm, g_out[0] / static_cast<double>(count));
  }
  const double read_all = microseconds([&] {
    reads<4><<<sms * 4, 512>>>(reinterpret_cast<const uint4*>(memory), big / 16 / (sms * 4) / 2048 * 2048, 1, g_out);
  });
  const double read_l2 = microseconds([&] {
    reads<4><<<sms * 4, 512>>>(reinterpret_cast<const uint4*>(memory), (16LL << 20) / 16 / (sms * 4) / 2048 * 2048, 64,
                               g_out);
  });
  const double write_all =
      microseconds([&] { writes<<<sms * 8, 512>>>(reinterpret_cast<uint4*>(memory), big / 16 / (sms * 8)); });
  const double per_pass = (16LL << 20) / 16 / (sms * 4) / 2048 * 2048 * 16. * sms * 4;
  printf(
      "{\"what\": \"rates of plain accesses\", \"read_hbm_TB_s\": %.3f, \"read_l2_TB_s\": %.3f, \"write_hbm_TB_s\": "
      "%.3f}\n",
      big / read_all * 1e-6, per_pass * 64 / read_l2 * 1e-6, big / write_all * 1e-6);
  launch(atomics, 1, 1, 0, reinterpret_cast<unsigned*>(memory), g_out);
  printf("{\"what\": \"dependent atomicAdd in L2\", \"cycles\": %.0f}\n", g_out[0] / 64.);

  // launch
  const auto flushed = [&](int grid, int block, int smem) {
    CHECK(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmem));
    std::vector<double> all;
    for (int i = 0; i < 9; ++i) {
      flush();
      all.push_back(microseconds([&] { nothing<<<grid, block, smem>>>(0, nullptr); }, 1));
    }
    std::sort(all.begin(), all.end());
    return all[4];
  };
  for (int waves : {1, 2, 4, 8, 16})
    printf(
        "{\"what\": \"empty kernel between events, us\", \"waves\": %d, \"block384_smem200K\": %.2f, \"block128\": "
        "%.2f}\n",
        waves, flushed(waves * sms, 384, kSmem), flushed(waves * sms, 128, 0));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < 100; ++i) nothing<<<sms, 128, 0, stream>>>(0, nullptr);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  const double each = microseconds([&] { CHECK(cudaGraphLaunch(exec, nullptr)); });
  printf("{\"what\": \"empty kernel in a graph of 100, us\", \"each\": %.3f}\n", each / 100);
  CHECK(cudaFree(memory));
}

}  // namespace

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  CHECK(cudaMallocManaged(&g_out, 1 << 20));
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  launch(clock_rate, 1, 1, 0, g_out);
  launch(clock_rate, 1, 1, 0, g_out);
  printf("{\"what\": \"device\", \"name\": \"%s\", \"sms\": %d, \"l2_bytes\": %d, \"mhz\": %.1f}\n", device.name,
         device.multiProcessorCount, device.l2CacheSize, 1000. * g_out[0] / g_out[1]);
#define TIME_FORM(F) time_wgmma<F>();
  ALL_FORMS(TIME_FORM)
  time_alu<fma_f32>();
  time_alu<add_f32>();
  time_alu<mul_f32>();
  time_alu<max_f32>();
  time_alu<fma_f16x2>();
  time_alu<fma_bf16x2>();
  time_alu<ex2>();
  time_alu<rcp>();
  time_alu<lg2>();
  time_alu<tanh_f32>();
  time_alu<add_u32>();
  time_alu<mad_u32>();
  time_alu<xor_b32>();
  time_alu<shf>();
  time_alu<prmt>();
  time_alu<min_s32>();
  time_alu<popc>();
  time_alu<setp_selp>();
  time_alu<cvt_bf16x2>();
  time_alu<cvt_e4m3x2>();
  time_alu<cvt_f32_s32>();
  time_alu<shfl>();
  time_alu<vote>();
  time_alu<redux>();
  shared_and_sync();
  copies(device.multiProcessorCount);
  return 0;
}
