// CTAs that live for a short while, and what a warp's pieces of memory cost all multiprocessors together. One JSON
// object a line, as micro.cu.
//
//   lives: many CTAs that each do one thing, a load, a store, or both, of the L2 or of memory: cycles of a
//          multiprocessor for each CTA, and what one of them lives.
//   pieces: reads, writes and copies in pieces of 32 bytes to 2 KiB that lie in rows one after the other or one below
//           the other, 1 GiB or 16 MiB: terabytes a second.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a lives.cu -o lives && ./lives > lives.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

unsigned* g_from = nullptr;
unsigned* g_to = nullptr;
U64* g_life = nullptr;
constexpr long kWords = 1L << 28;  // 1 GiB of each

enum Doing { nothing, store, load, copy, copy_with_barrier, two_loads };
constexpr const char* kDoing[] = {"nothing", "store", "load", "copy", "copy, bar.sync between", "two loads"};

/// Words of a CTA lie side by side; `mask` keeps all of them within a few MiB. Life: from the first instruction to the
/// last, of every 64th CTA.
template <Doing what, bool tells>
__global__ void one(const unsigned* from, unsigned* to, long mask, U64* life, int zero) {
  const long long t0 = tells ? now() : 0;
  const long at = (static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x) & mask;
  unsigned x = 1;
  if constexpr (what == load || what == copy || what == copy_with_barrier || what == two_loads) x = from[at];
  if constexpr (what == two_loads) x += from[(at + (x & zero)) ^ 1024];
  if constexpr (what == copy_with_barrier) __syncthreads();
  if constexpr (what == load || what == two_loads) {
    if (x == 0x12345678) to[0] = x;
  } else if constexpr (what != nothing) {
    to[at] = x;
  }
  if (tells && threadIdx.x == 0 && blockIdx.x % 64 == 0) {
    life[blockIdx.x / 64] = now() - t0 + (x & zero);
  }
}

template <Doing what>
void time_one(int threads, bool is_in_l2) {
  const long mask = is_in_l2 ? (1L << 21) - 1 : kWords - 1;  // 8 MiB
  const int few = 132 * (2048 / threads) * 16, many = 3 * few;
  const auto run = [&](int ctas) { one<what, false><<<ctas, threads>>>(g_from, g_to, mask, g_life, 0); };
  const double less = median_us(5, !is_in_l2, [&] { run(few); }), more = median_us(5, !is_in_l2, [&] { run(many); });
  one<what, true><<<many, threads>>>(g_from, g_to, mask, g_life, 0);
  CHECK(cudaDeviceSynchronize());
  std::vector<U64> lives(many / 64);
  CHECK(cudaMemcpy(lives.data(), g_life, lives.size() * 8, cudaMemcpyDeviceToHost));
  std::sort(lives.begin(), lives.end());
  printf(
      "{\"what\": \"%s\", \"threads\": %d, \"in_the_l2\": %d, \"us\": %.2f, \"ns_of_a_cta\": %.2f, "
      "\"life_cycles\": %llu}\n",
      kDoing[what], threads, is_in_l2, more, 1000 * (more - less) / ((many - few) / 132.0), lives[lives.size() / 2]);
  fflush(stdout);
}

template <Doing what>
void time_ones() {
  for (const int threads : {64, 256, 1024})
    for (const bool is_in_l2 : {true, false}) time_one<what>(threads, is_in_l2);
}

/// Pieces of `lanes` words: of a matrix with rows of `pitch` words a warp takes 32 / lanes pieces that lie below each
/// other, four such sets at a time; sets one after the other go along the rows, or down the columns.
template <bool reads, bool writes>
__global__ void __launch_bounds__(256)
    pieces(const unsigned* from, unsigned* to, int lanes, long pitch, long rows, bool goes_down, long sets) {
  const long warp = (static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  const int lane = threadIdx.x % 32, below = 32 / lanes;
  const long warps = static_cast<long>(gridDim.x) * blockDim.x / 32;
  const long across = pitch / lanes, down = rows / below;
  unsigned sum = 0;
  for (long set = warp * 4; set < sets; set += warps * 4) {
    unsigned v[4];
    long at[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const long s = set + i;
      const long column = goes_down ? s / down : s % across, row = goes_down ? s % down : s / across;
      at[i] = (row * below + lane / lanes) * pitch + column * lanes + lane % lanes;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = reads ? from[at[i]] : static_cast<unsigned>(at[i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (writes) to[at[i]] = v[i];
      sum ^= v[i];
    }
  }
  if (!writes && sum == 0x12345678) to[0] = sum;
}

template <bool reads, bool writes>
void time_pieces(const char* name, long mib) {
  const long words = mib << 18, sets = words / 32;
  for (const long pitch : {1024L, 8192L})
    for (const int lanes : {1, 2, 4, 8, 16, 32})
      for (const bool goes_down : {false, true}) {
        const double us = median_us(3, true, [&] {
          pieces<reads, writes><<<132 * 8, 256>>>(g_from, g_to, lanes, pitch, words / pitch, goes_down, sets);
        });
        printf(
            "{\"what\": \"pieces %s\", \"mib\": %ld, \"piece_bytes\": %d, \"row_bytes\": %ld, \"goes_down\": %d, "
            "\"us\": %.2f, \"terabytes_per_second\": %.3f}\n",
            name, mib, lanes * 4, pitch * 4, goes_down, us,
            static_cast<double>(words) * 4 * (reads + writes) / us / 1e6);
        fflush(stdout);
      }
}

/// What a CTA of four warps waits for a tile of two operands, 128 rows of 128 bytes each, as a product without a ring
/// has them: copies by lanes, all of them waited for, a barrier; every second row of CTAs has other rows of the first
/// operand. Or by loads to registers and stores to shared memory.
template <bool is_copy>
__global__ void __launch_bounds__(128)
    tiles(const char* a, const char* b, long pitch, int across, int rounds, U64* cycles) {
  extern __shared__ __align__(1024) unsigned char smem[];
  const unsigned to = smem_of(smem) + threadIdx.x * 16;
  const long first = threadIdx.x / 8 * pitch + threadIdx.x % 8 * 16;
  a += blockIdx.x / across * 128 * pitch + first;
  b += blockIdx.x % across * 128 * pitch + first;
  long long t0 = 0;
  for (int round = 0; round <= rounds; ++round, a += 128, b += 128) {
    if (round == 1) t0 = now();
    if constexpr (is_copy) {
#pragma unroll
      for (int i = 0; i < 16; ++i)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * 2048),
                     "l"((i < 8 ? a : b) + i % 8 * 16 * pitch)
                     : "memory");
      asm volatile("cp.async.wait_all;" ::: "memory");
    } else {
      uint4 v[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) v[i] = *reinterpret_cast<const uint4*>((i < 8 ? a : b) + i % 8 * 16 * pitch);
#pragma unroll
      for (int i = 0; i < 16; ++i)
        asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};" ::"r"(v[i].x), "r"(v[i].y), "r"(v[i].z), "r"(v[i].w),
                     "r"(to + i * 2048)
                     : "memory");
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) cycles[blockIdx.x] = now() - t0;
}

template <bool is_copy>
void time_tiles(const char* name) {
  constexpr int kRounds = 63, kMost = 2 * 132, kBytes = 65536;
  CHECK(cudaFuncSetAttribute(tiles<is_copy>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  for (const int ctas : {1, 2, 132, 264})
    for (const int across : {1, 8, 32}) {
      if (ctas < across) continue;
      for (int pass = 0; pass < 2; ++pass) {
        tiles<is_copy><<<ctas, 128, kBytes>>>(reinterpret_cast<const char*>(g_from),
                                              reinterpret_cast<const char*>(g_to), 8192, across, kRounds, g_life);
        CHECK(cudaDeviceSynchronize());
      }
      std::vector<U64> all(kMost);
      CHECK(cudaMemcpy(all.data(), g_life, ctas * 8, cudaMemcpyDeviceToHost));
      std::sort(all.begin(), all.begin() + ctas);
      printf("{\"what\": \"tiles by %s\", \"ctas\": %d, \"across\": %d, \"cycles_of_a_round\": %.1f}\n", name, ctas,
             across, static_cast<double>(all[ctas / 2]) / kRounds);
      fflush(stdout);
    }
}

}  // namespace

int main() {
  CHECK(cudaMalloc(&g_from, kWords * 4));
  CHECK(cudaMalloc(&g_to, kWords * 4));
  CHECK(cudaMalloc(&g_life, 1 << 22));
  CHECK(cudaMemset(g_from, 0, kWords * 4));
  CHECK(cudaMemset(g_to, 0, kWords * 4));
  time_ones<nothing>();
  time_ones<store>();
  time_ones<load>();
  time_ones<two_loads>();
  time_ones<copy>();
  time_ones<copy_with_barrier>();
  time_tiles<true>("cp.async");
  time_tiles<false>("loads and stores");
  time_pieces<true, false>("read", 256);
  time_pieces<false, true>("written", 256);
  time_pieces<true, true>("read and written", 256);
  time_pieces<true, false>("read", 16);
  time_pieces<false, true>("written", 16);
}
