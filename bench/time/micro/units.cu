// Units that plain kernels live on, each alone: shared memory by the pattern of a warp's addresses, ldmatrix, cp.async,
// loads that the L1 answers, outer products in registers, atomics, memory after the L2 was overwritten, CTAs that do
// nothing. One JSON object a line, as micro.cu. Longer than most files: a list of programs that have nothing but their
// timing in common, compiled by one command.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a units.cu -o units && ./units > units.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

long long* g_out = nullptr;
int* g_lanes = nullptr;
unsigned char* g_big = nullptr;
constexpr long kBig = 1L << 30;

// --- shared memory: 16 instructions of a warp after each other, on registers of their own

enum Form {
  b32,
  v2,
  v4,
  store32,
  store_v4,
  matrix1,
  matrix2,
  matrix4,
  matrix4_trans,
  atom_u32,
  red_u32,
  red_f32,
  l1_b32,
  l1_v2,
  l1_v4
};

template <Form form>
__device__ __forceinline__ void access(unsigned at, const char* global, unsigned (&r)[4]) {
  if constexpr (form == b32) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(r[0]) : "r"(at));
  if constexpr (form == v2)
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
  if constexpr (form == v4)
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
  if constexpr (form == store32) asm volatile("st.volatile.shared.u32 [%1], %0;" ::"r"(r[0]), "r"(at) : "memory");
  if constexpr (form == store_v4)
    asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};" ::"r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(at)
                 : "memory");
  if constexpr (form == matrix1)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at));
  if constexpr (form == matrix2)
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(at));
  if constexpr (form == matrix4)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
  if constexpr (form == matrix4_trans)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
  if constexpr (form == atom_u32) asm volatile("atom.shared.add.u32 %0, [%1], 1;" : "=r"(r[0]) : "r"(at));
  if constexpr (form == red_u32) asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(at));
  if constexpr (form == red_f32) asm volatile("red.shared.add.f32 [%0], %1;" ::"r"(at), "f"(1.0f));
  if constexpr (form == l1_b32) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(r[0]) : "l"(global + at));
  if constexpr (form == l1_v2)
    asm volatile("ld.global.ca.v2.u32 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "l"(global + at));
  if constexpr (form == l1_v4)
    asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "l"(global + at));
}

template <Form form>
__global__ void patterns(const int* lanes, const char* global, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  constexpr bool kIsGlobal = form >= l1_b32;
  // Of those that are not volatile the assembler makes one where they have one address.
  constexpr bool kIsOne = kIsGlobal || (form >= matrix1 && form <= matrix4_trans);
  for (int i = threadIdx.x * 4; i < 32768; i += blockDim.x * 4) *reinterpret_cast<unsigned*>(smem + i) = i;
  __syncthreads();
  const unsigned at = (kIsGlobal ? 0 : smem_of(smem)) + lanes[threadIdx.x % 32];
  unsigned r[16][4] = {}, sum = 0;
  long long t0 = 0;
  constexpr int kRounds = 32;
#pragma unroll 1
  for (int round = 0; round <= kRounds; ++round) {
    if (round == 1) {
      __syncthreads();
      t0 = now();
    }
#pragma unroll
    for (int i = 0; i < 16; ++i)
      access<form>(at + (form == store32 || form == store_v4 ? 4096 * (i % 4)
                         : kIsOne                            ? 1024 * (i + round % 2)
                                                             : 0),
                   global, r[i]);
    // Who uses nothing of a load has it left out by the assembler.
    if constexpr (form != store32 && form != store_v4 && form != red_u32 && form != red_f32)
#pragma unroll
      for (auto& one : r) sum ^= one[0] ^ one[1] ^ one[2] ^ one[3];
  }
  __syncthreads();
  const long long t1 = now();
  for (auto& one : r) sum += one[0] + one[1] + one[2] + one[3];
  if (threadIdx.x == 0) out[0] = t1 - t0, out[1] = sum;
}

template <Form form, class At>
void time_pattern(const char* name, const char* pattern, At&& at) {
  for (int i = 0; i < 32; ++i) g_lanes[i] = at(i);
  for (const int warps : {1, 16}) {
    patterns<form><<<1, 32 * warps, 32768>>>(g_lanes, reinterpret_cast<const char*>(g_big), g_out);
    CHECK(cudaDeviceSynchronize());
    patterns<form><<<1, 32 * warps, 32768>>>(g_lanes, reinterpret_cast<const char*>(g_big), g_out);
    CHECK(cudaDeviceSynchronize());
    printf("{\"what\": \"%s\", \"pattern\": \"%s\", \"warps\": %d, \"cycles\": %.2f}\n", name, pattern, warps,
           static_cast<double>(g_out[0]) / (32 * 16 * warps));
    fflush(stdout);
  }
}

template <Form form>
void time_widths(const char* name, int bytes) {
  time_pattern<form>(name, "all the same", [](int) { return 0; });
  time_pattern<form>(name, "contiguous", [=](int i) { return i * bytes; });
  for (const int n : {2, 4, 8, 16}) {
    char text[64];
    snprintf(text, sizeof text, "lane %% %d", n);
    time_pattern<form>(name, text, [=](int i) { return i % n * bytes; });
    snprintf(text, sizeof text, "lane / %d", n);
    time_pattern<form>(name, text, [=](int i) { return i / n * bytes; });
  }
  // Two by two blocks of lanes, as threads of a product that own squares have them.
  time_pattern<form>(name, "lane / 16 * 2 + lane % 2", [=](int i) { return (i / 16 * 2 + i % 2) * bytes; });
  time_pattern<form>(name, "lane % 16 / 2", [=](int i) { return i % 16 / 2 * bytes; });
  time_pattern<form>(name, "twice as far apart", [=](int i) { return i * bytes * 2; });
  time_pattern<form>(name, "128 bytes apart", [=](int i) { return i * 128; });
}

// --- copies to shared memory and loads from the L2, bytes a clock of a multiprocessor

enum Way { cp_cg, cp_ca, cp_ca4, load_v4, load_and_store };

template <Way way>
__global__ void __launch_bounds__(256)
    stream(const char* from, long own, int bytes, int row_shift, long pitch, long long* out) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned base = smem_of(smem);
  from += blockIdx.x * own;
  constexpr int kPiece = way == cp_ca4 ? 4 : 16, kStage = 256 * kPiece * 4;
  long long t0 = 0;
  unsigned sum = 0;
  const int stages = bytes / kStage;
  for (int pass = 0; pass < 2; ++pass) {
    __syncthreads();
    t0 = now();
    for (int stage = 0; stage < stages; ++stage) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int piece = stage * kStage + (i * 256 + static_cast<int>(threadIdx.x)) * kPiece;
        const char* const at = from + (piece >> row_shift) * pitch + (piece & ((1 << row_shift) - 1));
        const unsigned to = base + stage % 4 * kStage + (i * 256 + threadIdx.x) * kPiece;
        if constexpr (way == cp_cg)
          asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(at) : "memory");
        if constexpr (way == cp_ca)
          asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(to), "l"(at) : "memory");
        if constexpr (way == cp_ca4)
          asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(at) : "memory");
        if constexpr (way == load_v4 || way == load_and_store) {
          uint4 v;
          asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                       : "l"(at));
          if constexpr (way == load_v4) sum += v.x ^ v.y ^ v.z ^ v.w;
          if constexpr (way == load_and_store)
            asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};" ::"r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(to)
                         : "memory");
        }
      }
      if constexpr (way <= cp_ca4) asm volatile("cp.async.commit_group;\ncp.async.wait_group 3;" ::: "memory");
    }
    if constexpr (way <= cp_ca4) asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
  }
  const long long t1 = now();
  if (threadIdx.x == 0) out[2 * blockIdx.x] = t1 - t0, out[2 * blockIdx.x + 1] = sum;
}

template <Way way>
void time_stream(const char* name, int ctas, int per_sm, bool same, int row_shift, long pitch) {
  constexpr int kBytes = 256 * 1024;
  const int smem = way == load_v4 ? 0 : 65536 / (way == cp_ca4 ? 4 : 1);
  CHECK(cudaFuncSetAttribute(stream<way>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  const long own = same ? 0 : 128 * 1024;
  for (int pass = 0; pass < 2; ++pass) {
    stream<way>
        <<<ctas * per_sm, 256, smem>>>(reinterpret_cast<const char*>(g_big), own, kBytes, row_shift, pitch, g_out);
    CHECK(cudaDeviceSynchronize());
  }
  std::vector<long long> all;
  for (int i = 0; i < ctas * per_sm; ++i) all.push_back(g_out[2 * i]);
  std::sort(all.begin(), all.end());
  printf(
      "{\"what\": \"%s\", \"ctas\": %d, \"of_a_multiprocessor\": %d, \"same\": %d, \"row_bytes\": %d, "
      "\"bytes_per_clock\": %.2f}\n",
      name, ctas * per_sm, per_sm, same, 1 << row_shift,
      static_cast<double>(kBytes) * per_sm / static_cast<double>(all[all.size() / 2]));
  fflush(stdout);
}

template <Way way>
void time_streams(const char* name) {
  for (const int ctas : {1, 132})
    for (const int per_sm : {1, 2})
      for (const bool same : {false, true}) {
        if (ctas == 1 && same) continue;
        time_stream<way>(name, ctas, per_sm, same, 30, 0);
      }
  time_stream<way>(name, 132, 2, true, 7, 512);
  time_stream<way>(name, 132, 2, true, 6, 512);
}

// --- arithmetic

/// 8 x 8 sums in registers, as a product in fp32 has them.
__global__ void __launch_bounds__(256) outer(long long* out, float seed) {
  float c[8][8] = {}, a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = seed + threadIdx.x * 0.5f + i, b[i] = seed * 0.5f + i + threadIdx.x;
  const long long t0 = now();
#pragma unroll 1
  for (int round = 0; round < 64; ++round)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) c[i][j] += a[i] * b[(j + k) % 8];
      a[k] += 1;
    }
  const long long t1 = now();
  float sum = 0;
  for (auto& row : c)
    for (float x : row) sum += x;
  if (threadIdx.x == 0) out[0] = t1 - t0, out[1] = sum != 0;
}

/// Arithmetic that the assembler makes sequences of: 8 of them that do not need each other, or one after the other. The
/// result is the next one's divisor: what is made of a divisor that stays goes out of the loop.
enum Sequence {
  div_rn,
  div_full,
  sqrt_rn,
  rcp_rn,
  div_s32,
  div_u32,
  rem_u32,
  mul_wide,
  add_s64,
  shl_b32,
  bfe_u32,
  cvt_rn_f16,
  movmatrix
};
constexpr const char* kSequences[] = {"div.rn.f32", "div.full.f32",   "sqrt.rn.f32",  "rcp.rn.f32", "div.s32",
                                      "div.u32",    "rem.u32",        "mul.wide.u32", "add.s64",    "shl.b32",
                                      "bfe.u32",    "cvt.rn.f16.f32", "movmatrix"};
template <Sequence what, int kChains>
__global__ void sequences(long long* out, float seed, unsigned by) {
  float x[kChains];
  unsigned n[kChains];
  U64 l[kChains];
  for (int i = 0; i < kChains; ++i)
    x[i] = seed + threadIdx.x + i, n[i] = 123456789u + threadIdx.x * 777 + i, l[i] = n[i];
  const float y = seed + 0.25f;
  const long long t0 = now();
#pragma unroll 1
  for (int round = 0; round < 64; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      if constexpr (what == div_rn) asm volatile("div.rn.f32 %0, %1, %0;" : "+f"(x[i]) : "f"(y));
      if constexpr (what == div_full) asm volatile("div.full.f32 %0, %1, %0;" : "+f"(x[i]) : "f"(y));
      if constexpr (what == sqrt_rn) asm volatile("sqrt.rn.f32 %0, %0;" : "+f"(x[i]));
      if constexpr (what == rcp_rn) asm volatile("rcp.rn.f32 %0, %0;" : "+f"(x[i]));
      if constexpr (what == div_s32) asm volatile("div.s32 %0, %1, %0;" : "+r"(n[i]) : "r"(by + 1234567));
      if constexpr (what == div_u32) asm volatile("div.u32 %0, %1, %0;" : "+r"(n[i]) : "r"(by + 1234567));
      if constexpr (what == rem_u32) asm volatile("rem.u32 %0, %1, %0;" : "+r"(n[i]) : "r"(by + 1234567));
      if constexpr (what == mul_wide)
        asm volatile("{.reg .b32 a; cvt.u32.u64 a, %0; mul.wide.u32 %0, a, %1;}" : "+l"(l[i]) : "r"(by));
      if constexpr (what == add_s64) asm volatile("add.s64 %0, %0, %1;" : "+l"(l[i]) : "l"(static_cast<U64>(by) << 20));
      if constexpr (what == shl_b32) asm volatile("shl.b32 %0, %0, %1;" : "+r"(n[i]) : "r"(by & 3));
      if constexpr (what == bfe_u32) asm volatile("bfe.u32 %0, %0, 1, 30;" : "+r"(n[i]));
      if constexpr (what == movmatrix) asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(n[i]));
      if constexpr (what == cvt_rn_f16)
        asm volatile("{.reg .b16 h; cvt.rn.f16.f32 h, %0; cvt.f32.f16 %0, h;}" : "+f"(x[i]));
    }
  __syncthreads();
  const long long t1 = now();
  float sum = 0;
  for (int i = 0; i < kChains; ++i) sum += x[i] + n[i] + l[i];
  if (threadIdx.x == 0) out[0] = t1 - t0, out[1] = sum != 0;
}

template <Sequence what>
void time_sequence() {
  double cycles[2] = {};
  for (int pass = 0; pass < 2; ++pass) {
    sequences<what, 8><<<1, 512>>>(g_out, 1.5f, 3);
    CHECK(cudaDeviceSynchronize());
    cycles[0] = static_cast<double>(g_out[0]) / (64 * 8 * 4);
    sequences<what, 1><<<1, 32>>>(g_out, 1.5f, 3);
    CHECK(cudaDeviceSynchronize());
    cycles[1] = static_cast<double>(g_out[0]) / 64;
  }
  printf("{\"what\": \"%s\", \"interval\": %.2f, \"latency\": %.1f}\n", kSequences[what], cycles[0], cycles[1]);
  fflush(stdout);
}

/// mma.sync of m16n8k16 in `kChains` chains, operands of its own for each where `others`.
template <int kChains, bool others>
__global__ void __launch_bounds__(256) products(long long* out) {
  float c[kChains][4] = {};
  unsigned a[4][4], b[8][2];
  for (int i = 0; i < 16; ++i) a[i / 4][i % 4] = threadIdx.x * i, b[i / 2][i % 2] = threadIdx.x + i;
  const long long t0 = now();
#pragma unroll 1
  for (int round = 0; round < 64; ++round)
#pragma unroll
    for (int i = 0; i < kChains; ++i) {
      const auto& x = a[others ? i / 8 % 4 : 0];
      const auto& y = b[others ? i % 8 : 0];
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
          "%2, %3};"
          : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
          : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    }
  __syncthreads();
  const long long t1 = now();
  float sum = 0;
  for (auto& one : c) sum += one[0] + one[1] + one[2] + one[3];
  if (threadIdx.x == 0) out[0] = t1 - t0, out[1] = sum != 0;
}

template <int kChains, bool others>
void time_products() {
  for (const int warps : {4, 8}) {
    for (int pass = 0; pass < 2; ++pass) {
      products<kChains, others><<<1, 32 * warps>>>(g_out);
      CHECK(cudaDeviceSynchronize());
    }
    printf("{\"what\": \"mma.sync m16n8k16\", \"chains\": %d, \"own operands\": %d, \"warps\": %d, \"cycles\": %.2f}\n",
           kChains, others, warps, static_cast<double>(g_out[0]) / (64 * kChains * warps / 4));
  }
}

/// A loop of kWork instructions that do not need each other: what its branch takes more.
template <int kWork>
__global__ void loops(long long* out, int rounds) {
  float x[kWork];
  for (int i = 0; i < kWork; ++i) x[i] = threadIdx.x * 0.5f + i;
  __syncthreads();
  const long long t0 = now();
#pragma unroll 1
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < kWork; ++i) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(x[i]));
  __syncthreads();
  const long long t1 = now();
  float sum = 0;
  for (float one : x) sum += one;
  if (threadIdx.x == 0) out[0] = t1 - t0, out[1] = sum != 0;
}

template <int kWork>
void time_loop() {
  for (const int warps : {1, 4, 8, 16, 32}) {
    for (int pass = 0; pass < 2; ++pass) {
      loops<kWork><<<1, 32 * warps>>>(g_out, 512);
      CHECK(cudaDeviceSynchronize());
    }
    printf("{\"what\": \"loop of fma.rn.f32\", \"instructions\": %d, \"warps\": %d, \"cycles\": %.2f}\n", kWork, warps,
           static_cast<double>(g_out[0]) / 512);
  }
}

// --- atomics of global memory

template <bool returns>
__global__ void atomics(float* p, int stride, int rounds, long long* out) {
  float* const at = p + (static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x) * stride;
  const long long t0 = now();
  float sum = 0;
  for (int i = 0; i < rounds; ++i) {
    if constexpr (returns) sum += atomicAdd(at, 1.0f);
    if constexpr (!returns) asm volatile("red.global.add.f32 [%0], %1;" ::"l"(at), "f"(1.0f) : "memory");
  }
  __threadfence();
  const long long t1 = now();
  if (threadIdx.x == 0) out[2 * blockIdx.x] = t1 - t0, out[2 * blockIdx.x + 1] = sum != 0;
}

// --- memory, events around

__global__ void read_all(const uint4* p, long count, uint4* sink) {
  uint4 s = {};
  const long step = static_cast<long>(gridDim.x) * blockDim.x;
  long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i + 3 * step < count; i += 4 * step)
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint4 v = p[i + k * step];
      s.x ^= v.x, s.y ^= v.y, s.z ^= v.z, s.w ^= v.w;
    }
  for (; i < count; i += step) s.x ^= p[i].x;
  if (s.x == 0x12345678 && s.y == 1) *sink = s;
}
/// A row of 16 KiB a CTA of 256 threads, all of it asked for at once.
template <bool writes>
__global__ void __launch_bounds__(256) rows(const uint4* p, uint4* to) {
  uint4 v[4];
  const long first = static_cast<long>(blockIdx.x) * 1024 + threadIdx.x;
#pragma unroll
  for (int k = 0; k < 4; ++k) v[k] = p[first + k * 256];
  if constexpr (writes) {
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 4; ++k) to[first + k * 256] = v[k];
  } else {
    if ((v[0].x ^ v[1].x ^ v[2].x ^ v[3].x) == 0x12345678) to[0] = v[0];
  }
}
__global__ void write_all(uint4* p, long count) {
  for (long i = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<long>(gridDim.x) * blockDim.x)
    p[i] = uint4{1, 2, 3, static_cast<unsigned>(i)};
}
__global__ void nothing() {}

}  // namespace

int main() {
  CHECK(cudaMalloc(&g_out, 64 * 1024));
  CHECK(cudaFree(g_out));
  CHECK(cudaMallocManaged(&g_out, 64 * 1024));
  CHECK(cudaMallocManaged(&g_lanes, 4096));
  CHECK(cudaMalloc(&g_big, kBig));
  CHECK(cudaMemset(g_big, 0, kBig));
  auto* const big = reinterpret_cast<uint4*>(g_big);

  for (const long mib : {8, 16, 32, 64, 128, 256}) {
    const long count = mib << 16;
    const auto tell = [&](const char* what, double us) {
      printf("{\"what\": \"%s\", \"mib\": %ld, \"us\": %.2f}\n", what, mib, us);
      fflush(stdout);
    };
    tell("read, grid of all multiprocessors", median_us(7, true, [&] { read_all<<<132 * 8, 256>>>(big, count, big); }));
    tell("read, rows of CTAs", median_us(7, true, [&] { rows<false><<<mib * 64, 256>>>(big, big + (kBig >> 5)); }));
    tell("read and written, rows of CTAs",
         median_us(7, true, [&] { rows<true><<<mib * 64, 256>>>(big, big + (kBig >> 5)); }));
    tell("written", median_us(7, true, [&] { write_all<<<132 * 8, 256>>>(big + (kBig >> 5), count); }));
    tell("read, in the L2 as far as it holds it",
         median_us(7, false, [&] { read_all<<<132 * 8, 256>>>(big, count, big); }));
  }
  for (const int threads : {32, 128, 256, 1024})
    for (const int ctas : {1, 132, 1056, 4224, 16896, 67584})
      printf("{\"what\": \"CTAs that do nothing\", \"threads\": %d, \"ctas\": %d, \"us\": %.2f}\n", threads, ctas,
             median_us(5, true, [&] { nothing<<<ctas, threads>>>(); }));
  fflush(stdout);

  time_widths<v4>("ld.shared.v4", 16);
  time_widths<v2>("ld.shared.v2", 8);
  time_widths<b32>("ld.shared", 4);
  time_widths<store_v4>("st.shared.v4", 16);
  time_widths<store32>("st.shared", 4);
  for (const int apart : {16, 32, 64, 128, 144}) {
    char text[64];
    snprintf(text, sizeof text, "rows %d bytes apart", apart);
    const auto at = [=](int i) { return i * apart; };
    time_pattern<matrix1>("ldmatrix.x1", text, at);
    time_pattern<matrix2>("ldmatrix.x2", text, at);
    time_pattern<matrix4>("ldmatrix.x4", text, at);
    time_pattern<matrix4_trans>("ldmatrix.x4.trans", text, at);
  }
  for (const int apart : {0, 4, 8, 128}) {
    char text[64];
    snprintf(text, sizeof text, "%d bytes apart", apart);
    const auto at = [=](int i) { return i * apart; };
    time_pattern<atom_u32>("atom.shared.add.u32", text, at);
    time_pattern<red_u32>("red.shared.add.u32", text, at);
    time_pattern<red_f32>("red.shared.add.f32", text, at);
  }
  time_widths<l1_v4>("ld.global.v4 in the L1", 16);
  time_widths<l1_v2>("ld.global.v2 in the L1", 8);
  time_widths<l1_b32>("ld.global in the L1", 4);

  time_streams<cp_cg>("cp.async.cg 16");
  time_streams<cp_ca>("cp.async.ca 16");
  time_streams<cp_ca4>("cp.async.ca 4");
  time_streams<load_v4>("ld.global.cg.v4");
  time_streams<load_and_store>("ld.global.cg.v4, st.shared.v4");

  for (const int warps : {4, 8}) {
    for (int pass = 0; pass < 2; ++pass) {
      outer<<<1, 32 * warps>>>(g_out, 1.5f);
      CHECK(cudaDeviceSynchronize());
    }
    printf("{\"what\": \"8 x 8 sums by fma.rn.f32\", \"warps\": %d, \"cycles\": %.3f}\n", warps,
           static_cast<double>(g_out[0]) / (64 * 4 * 64 * warps / 4));
  }
  time_loop<4>();
  time_loop<8>();
  time_loop<32>();
  time_loop<128>();
  time_sequence<div_rn>();
  time_sequence<div_full>();
  time_sequence<sqrt_rn>();
  time_sequence<rcp_rn>();
  time_sequence<div_s32>();
  time_sequence<div_u32>();
  time_sequence<rem_u32>();
  time_sequence<mul_wide>();
  time_sequence<add_s64>();
  time_sequence<shl_b32>();
  time_sequence<bfe_u32>();
  time_sequence<cvt_rn_f16>();
  time_sequence<movmatrix>();
  time_products<1, false>();
  time_products<2, false>();
  time_products<4, false>();
  time_products<8, false>();
  time_products<8, true>();
  time_products<32, true>();
  for (const bool returns : {false, true})
    for (const int ctas : {1, 132})
      for (const int stride : {0, 1}) {
        for (int pass = 0; pass < 2; ++pass) {
          (returns ? atomics<true> : atomics<false>)<<<ctas, 256>>>(reinterpret_cast<float*>(g_big), stride, 16, g_out);
          CHECK(cudaDeviceSynchronize());
        }
        printf("{\"what\": \"%s.global.add.f32\", \"ctas\": %d, \"apart\": %d, \"cycles\": %.1f}\n",
               returns ? "atom" : "red", ctas, 4 * stride, static_cast<double>(g_out[0]) / (16 * 8));
      }
}
