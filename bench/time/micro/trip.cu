// Round trips: what a multiprocessor waits for a bulk copy of some KiB, so many of them under way, and what few
// multiprocessors get of the memory by lanes. One JSON object a line, as micro.cu.
//
//   trip:  one thread of each CTA keeps `depth` copies of `bytes` under way; neighbours of `sharers` CTAs read the
//   same,
//          from the memory or from the L2: cycles from a copy's issue to the same slot's next one, of the slowest CTA
//          and in the mean.
//   lanes: CTAs of 1,024 threads that load, store, or load, meet and store so many bytes: microseconds between events.
//   turns: CTAs one after the other on each multiprocessor: microseconds of so many.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a trip.cu -o trip && ./trip > trip.jsonl
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "micro.cuh"

namespace {

constexpr long kBig = 2L << 30;
constexpr int kMostSlots = 8;
unsigned char* g_from = nullptr;
uint4* g_to = nullptr;
U64* g_cycles = nullptr;

__global__ void __launch_bounds__(32)
    trips(const unsigned char* from, int bytes, int depth, int count, int sharers, long of_bytes, U64* cycles) {
  extern __shared__ __align__(1024) unsigned char smem[];
  __shared__ __align__(8) U64 bars[kMostSlots];
  if (threadIdx.x != 0) return;
  for (int i = 0; i < depth; ++i) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(smem_of(bars + i)) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
  const long group = blockIdx.x / sharers, groups = (gridDim.x + sharers - 1) / sharers;
  const auto issue = [&](int i) {
    const int slot = i % depth;
    const long at = ((i * groups + group) * bytes) % of_bytes;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(smem_of(bars + slot)), "r"(bytes)
                 : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     smem_of(smem) + slot * bytes),
                 "l"(from + at), "r"(bytes), "r"(smem_of(bars + slot))
                 : "memory");
  };
  for (int i = 0; i < depth; ++i) issue(i);
  for (int i = 0; i < depth; ++i) {  // the first round, which is cold
    wait(smem_of(bars + i), 0);
    issue(i + depth);
  }
  const long long begin = now();
  for (int i = depth; i + depth < count; ++i) {
    wait(smem_of(bars + i % depth), (i / depth) & 1);
    issue(i + depth);
  }
  cycles[blockIdx.x] = now() - begin;
  for (int i = count - depth; i < count; ++i) wait(smem_of(bars + i % depth), (i / depth) & 1);
}

void trip(int ctas, int bytes, int depth, int sharers, long of_bytes, int count, bool is_dirty) {
  static unsigned char* other = nullptr;
  if (other == nullptr) CHECK(cudaMalloc(&other, 256 << 20));
  CHECK(cudaFuncSetAttribute(trips, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  std::vector<double> means, mosts;
  for (int run = 0; run < 4; ++run) {
    if (is_dirty) CHECK(cudaMemset(other, run, 120 << 20));
    trips<<<ctas, 32, 200 * 1024>>>(g_from, bytes, depth, count, sharers, of_bytes, g_cycles);
    CHECK(cudaDeviceSynchronize());
    std::vector<U64> all(ctas);
    CHECK(cudaMemcpy(all.data(), g_cycles, ctas * 8, cudaMemcpyDeviceToHost));
    const double trips_of = static_cast<double>(count - 2 * depth) / depth;
    double sum = 0;
    for (const U64 one : all) sum += static_cast<double>(one);
    if (run == 0) continue;
    means.push_back(sum / ctas / trips_of);
    mosts.push_back(static_cast<double>(*std::max_element(all.begin(), all.end())) / trips_of);
  }
  std::sort(means.begin(), means.end());
  std::sort(mosts.begin(), mosts.end());
  printf(
      "{\"what\": \"trip\", \"ctas\": %d, \"bytes\": %d, \"depth\": %d, \"sharers\": %d, \"of_mib\": %ld, \"count\": "
      "%d, "
      "\"dirty\": %d, \"cycles\": %.0f, \"most\": %.0f}\n",
      ctas, bytes, depth, sharers, of_bytes >> 20, count, is_dirty, means[1], mosts[1]);
  fflush(stdout);
}

enum Doing { reads, writes, both };
constexpr const char* kDoing[] = {"reads", "writes", "reads, meets and writes"};

/// A thread has `words` of 16 bytes, side by side with its neighbours'.
template <Doing what, int words>
__global__ void __launch_bounds__(1024) lanes(const uint4* from, uint4* to) {
  uint4 v[words];
  const long first = static_cast<long>(blockIdx.x) * blockDim.x * words + threadIdx.x;
#pragma unroll
  for (int k = 0; k < words; ++k)
    v[k] = what == writes ? make_uint4(threadIdx.x, k, 0, 0) : from[first + static_cast<long>(k) * blockDim.x];
  if constexpr (what == writes) {
#pragma unroll
    for (int k = 0; k < words; ++k) to[first + static_cast<long>(k) * blockDim.x] = v[k];
  } else {
    unsigned sum = 0;
#pragma unroll
    for (int k = 0; k < words; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    const int all = __syncthreads_or(sum == 0x12345678);
    if constexpr (what == both) {
#pragma unroll
      for (int k = 0; k < words; ++k) to[first + static_cast<long>(k) * blockDim.x] = v[k];
    } else if (all == 2) {
      to[0] = v[0];
    }
  }
}

template <Doing what, int words>
void few(int threads) {
  for (const int ctas : {1, 8, 16, 32, 64, 132, 264}) {
    const auto run = [&] { lanes<what, words><<<ctas, threads>>>(reinterpret_cast<const uint4*>(g_from), g_to); };
    printf("{\"what\": \"lanes\", \"doing\": \"%s\", \"threads\": %d, \"bytes\": %d, \"ctas\": %d, \"us\": %.2f}\n",
           kDoing[what], threads, threads * words * 16, ctas, median_us(11, true, run));
  }
  fflush(stdout);
}

/// A load, a meeting, a store, by some threads of a CTA that alone fits on a multiprocessor.
__global__ void __launch_bounds__(1024) turns(const uint4* from, uint4* to, int some, int loads) {
  const long at = static_cast<long>(blockIdx.x) * some + threadIdx.x;
  uint4 v{};
  for (int i = 0; i < loads; ++i)
    if (threadIdx.x < some) v = from[at + (v.x & 1)];
  const int all = __syncthreads_or(v.x == 0x12345678);
  if (threadIdx.x < some && (loads > 0 || all == 2)) to[at] = v;
}

void take_turns(int threads, int some, int loads) {
  CHECK(cudaFuncSetAttribute(turns, cudaFuncAttributeMaxDynamicSharedMemorySize, 120 * 1024));
  for (const int ctas : {132, 264, 396, 528, 1056, 4224}) {
    const auto run = [&] {
      turns<<<ctas, threads, 120 * 1024>>>(reinterpret_cast<const uint4*>(g_from), g_to, some, loads);
    };
    printf("{\"what\": \"turns\", \"threads\": %d, \"some\": %d, \"loads\": %d, \"ctas\": %d, \"us\": %.2f}\n", threads,
           some, loads, ctas, median_us(11, true, run));
  }
  fflush(stdout);
}

template <Doing what>
void all_of_few() {
  few<what, 1>(256);
  few<what, 4>(256);
  few<what, 1>(1024);
  few<what, 2>(1024);
  few<what, 4>(1024);
  few<what, 8>(1024);
  few<what, 8>(512);
}

}  // namespace

int main() {
  g_from = reinterpret_cast<unsigned char*>(cleared(kBig));
  g_to = cleared(512L << 20);
  CHECK(cudaMalloc(&g_cycles, 1 << 16));
  for (const int ctas : {1, 132})
    for (const int bytes : {1024, 2048, 4096, 8192, 16384, 32768})
      for (const int depth : {1, 2, 4}) {
        if (bytes * depth > 160 * 1024) continue;
        trip(ctas, bytes, depth, 1, 8L << 20, 512, false);
        trip(ctas, bytes, depth, 1, kBig, 128 * depth, false);
      }
  for (const int bytes : {8192, 16384})
    for (const int depth : {1, 2, 4})
      for (const int sharers : {1, 4, 16, 44, 132}) {
        trip(132, bytes, depth, sharers, kBig, 32 * depth, false);
        trip(132, bytes, depth, sharers, kBig, 8 * depth, true);
      }
  all_of_few<reads>();
  all_of_few<writes>();
  all_of_few<both>();
  for (const int loads : {0, 1, 2})
    for (const int some : {128, 1024}) take_turns(1024, some, loads);
  for (const int threads : {64, 256, 512}) take_turns(threads, threads, 1);
}
