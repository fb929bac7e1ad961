// HazyResearch/ThunderKittens on Hopper: -DSOURCE names the file, -DFORM what is in it.
//   0: educational_h100/level_NN.cu      1: bf16_h100_gemm.cu      2: fp8_h100_gemm.cu      3: mha_h100.cu
#include <cuda_runtime.h>

#include <cassert>
#include <chrono>
#include <iostream>
#include <random>

#include "launches.cuh"

#define cudaDeviceSynchronize() cudaSuccess  // launches are timed one by one; theirs wait before and behind each
#define main main_of_theirs
#include SOURCE
#undef main
#undef cudaDeviceSynchronize

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  launches::repeat = atoi(argv[1]);
#if FORM == 3
  constexpr int kBatch = ATTN_B, kHeads = QO_HEADS, kLength = ATTN_N, kHead = ATTN_D;
  constexpr long kCount = long{kBatch} * kHeads * kLength * kHead;
  bf16 *q = launches::numbers<bf16>(kCount, 1), *k = launches::numbers<bf16>(kCount, 2),
       *v = launches::numbers<bf16>(kCount, 3), *o = launches::zeros<bf16>(kCount);
  float* l = launches::zeros<float>(kCount / kHead);
  using dims = fwd_attend_ker_tile_dims<kHead>;
  using globals = fwd_globals<kHead>;
  using qo = gl<bf16, -1, -1, -1, -1, st_bf<dims::qo_height, dims::tile_width>>;
  using kv = gl<bf16, -1, -1, -1, -1, st_bf<dims::kv_height, dims::tile_width>>;
  using sums = gl<float, -1, -1, -1, -1, col_vec<st_fl<dims::qo_height, dims::tile_width>>>;
  globals g{qo{q, kBatch, kHeads, kLength, kHead},
            kv{k, kBatch, kHeads, kLength, kHead},
            kv{v, kBatch, kHeads, kLength, kHead},
            sums{l, kBatch, kHeads, 1, kLength},
            qo{o, kBatch, kHeads, kLength, kHead},
            kLength,
            1};
  constexpr int kBytes = kittens::MAX_SHARED_MEMORY - 1024;
  const bool is_causal = launches::argument(argc, argv, 0, 0) != 0;
  const dim3 grid(kLength / (CONSUMER_WARPGROUPS * kittens::TILE_ROW_DIM<bf16> * 4), kHeads, kBatch);
  LAUNCHES_CHECK(
      cudaFuncSetAttribute(fwd_attend_ker<kHead, false>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  LAUNCHES_CHECK(
      cudaFuncSetAttribute(fwd_attend_ker<kHead, true>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  return launches::time("ThunderKittens attention", argc, argv, [&] {
    if (is_causal)
      fwd_attend_ker<kHead, true><<<grid, 32 * NUM_WORKERS, kBytes>>>(g);
    else
      fwd_attend_ker<kHead, false><<<grid, 32 * NUM_WORKERS, kBytes>>>(g);
  });
#else
  const int size = launches::argument(argc, argv, 0, 4096);
  const long count = long{size} * size;
#if FORM == 0
  bf16 *a = launches::numbers<bf16>(count, 1), *b = launches::numbers<bf16>(count, 2),
       *c = launches::zeros<bf16>(count);
  return launches::time("ThunderKittens " SOURCE, argc, argv, [&] { matmul(a, b, c, size); });
#else
#if FORM == 1
  using one = matmul_template<2, 4, 8>;
  using type = bf16;
#else
  using one = matmul_template<8>;
  using type = fp8e4m3;
#endif
  type *a = launches::numbers<type>(count, 1), *b = launches::numbers<type>(count, 2),
       *c = launches::zeros<type>(count);
  const dim3 grid(one::grid(size, size, size)), block(kittens::prototype::detail::NUM_THREADS_v<one>);
  LAUNCHES_CHECK(cudaFuncSetAttribute(prototype::lcf::kernel<one>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      MAX_SHARED_MEMORY - 1024));
  return launches::time("ThunderKittens " SOURCE, argc, argv,
                        [&] { inner_run<one>(a, b, c, size, size, size, grid, block); });
#endif
#endif
}
