// What the memory gives of keys by the order in which multiprocessors read them: rows of 256 bytes, 8 KiB apart, of 32
// heads side by side, as a cache of bf16 keys has them. One JSON object a line, as micro.cu.
//
//   nvcc -std=c++20 -O2 -gencode=arch=compute_90a,code=sm_90a pages.cu -o pages && ./pages > pages.jsonl
//
// An item is so many keys of a head. Items go by heads first (those of the same keys are side by side in memory), or by
// parts of a head first, to CTAs in turn, or each CTA has some one after the other.
#include <cuda_runtime.h>

#include <cstdio>

#include "micro.cuh"

namespace {

constexpr int kHeads = 32, kBatch = 33, kKeys = 2048, kRow = 16;  // kRow: pieces of 16 bytes
unsigned* g_out = nullptr;

enum Order { heads_first, parts_first, one_after_the_other };
constexpr const char* kOrder[] = {"heads first", "parts first", "one after the other"};

template <int kLoads>
__global__ void __launch_bounds__(256) items(const uint4* from, unsigned* out, int keys, int order) {
  const int parts = kKeys / keys, all = parts * kHeads * kBatch, each = (all + gridDim.x - 1) / gridDim.x;
  unsigned sum = 0;
  for (int n = 0; n < each; ++n) {
    const int i = order == one_after_the_other ? blockIdx.x * each + n : blockIdx.x + n * gridDim.x;
    if (i >= all) break;
    int head, part, batch;
    if (order == heads_first)
      head = i % kHeads, part = i / kHeads % parts, batch = i / (kHeads * parts);
    else
      part = i % parts, head = i / parts % kHeads, batch = i / (kHeads * parts);
    const uint4* const rows = from + ((std::size_t{1} * batch * kKeys + part * keys) * kHeads + head) * kRow;
    for (int first = 0; first < keys; first += 16 * kLoads) {
      uint4 v[kLoads];
#pragma unroll
      for (int l = 0; l < kLoads; ++l) {
        const int row = first + 16 * l + threadIdx.x / 16;
        v[l] = rows[std::size_t{1} * row * kHeads * kRow + threadIdx.x % 16];
      }
#pragma unroll
      for (int l = 0; l < kLoads; ++l) sum |= v[l].x | v[l].y | v[l].z | v[l].w;
    }
  }
  if (sum == 0x12345678) out[0] = sum;
}

void time_items(const uint4* from, int keys, int order, int ctas) {
  const double us = median_us(5, true, [&] {
    if (keys >= 128)
      items<8><<<ctas, 256>>>(from, g_out, keys, order);
    else
      items<4><<<ctas, 256>>>(from, g_out, keys, order);
  });
  const double bytes = 256. * kHeads * kBatch * kKeys;
  printf(
      "{\"what\": \"keys\", \"keys_of_item\": %d, \"order\": \"%s\", \"ctas\": %d, \"us\": %.2f, "
      "\"terabytes_per_second\": %.3f}\n",
      keys, kOrder[order], ctas, us, bytes / us * 1e-6);
  fflush(stdout);
}

}  // namespace

int main() {
  uint4* from = nullptr;
  CHECK(cudaMalloc(&from, std::size_t{256} * kHeads * kBatch * kKeys));
  CHECK(cudaMemset(from, 0, std::size_t{256} * kHeads * kBatch * kKeys));
  CHECK(cudaMalloc(&g_out, 1 << 20));
  for (const int ctas : {264, 528, 1056})
    for (const int keys : {64, 128, 256, 512, 1024, 2048})
      for (const int order : {heads_first, parts_first, one_after_the_other}) time_items(from, keys, order, ctas);
}
