// FlashAttention-3 (Dao-AILab/flash-attention, hopper), bf16, head_dim 128: -DHEAD=128 -DCAUSAL=false. Arguments:
// batches, heads, length.
#include "flash_fwd_launch_template.h"
#include "launches.cuh"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  launches::repeat = atoi(argv[1]);
  const int b = launches::argument(argc, argv, 0, 0), h = launches::argument(argc, argv, 1, 0),
            s = launches::argument(argc, argv, 2, 0);
  const long count = long{b} * h * s * HEAD;
  using T = cutlass::bfloat16_t;
  Flash_fwd_params p{};
  p.is_bf16 = true;
  p.q_ptr = launches::numbers<__nv_bfloat16>(count, 1);
  p.k_ptr = launches::numbers<__nv_bfloat16>(count, 2);
  p.v_ptr = launches::numbers<__nv_bfloat16>(count, 3);
  p.o_ptr = launches::zeros<__nv_bfloat16>(count);
  p.softmax_lse_ptr = launches::zeros<float>(count / HEAD);
  p.q_row_stride = p.k_row_stride = p.v_row_stride = p.o_row_stride = long{h} * HEAD;
  p.q_head_stride = p.k_head_stride = p.v_head_stride = p.o_head_stride = HEAD;
  p.q_batch_stride = p.k_batch_stride = p.v_batch_stride = p.o_batch_stride = long{h} * HEAD * s;
  p.v_dim_stride = 1;
  p.b = p.b_k = b;
  p.h = p.h_k = h;
  p.seqlen_q = p.seqlen_k = p.seqlen_q_rounded = p.seqlen_k_rounded = s;
  p.total_q = p.total_k = b * s;
  p.d = p.d_rounded = p.dv = p.dv_rounded = HEAD;
  p.scale_softmax = 1 / sqrtf(HEAD);
  p.p_dropout = 1;
  p.p_dropout_in_uint8_t = 255;
  p.rp_dropout = 1;
  p.is_causal = CAUSAL;
  p.window_size_left = -1;
  p.window_size_right = CAUSAL ? 0 : -1;
  p.num_splits = 1;
  p.arch = 90;
  cudaDeviceProp properties;
  LAUNCHES_CHECK(cudaGetDeviceProperties(&properties, 0));
  p.num_sm = properties.multiProcessorCount;
  int* counter = launches::zeros<int>(1);
  p.tile_count_semaphore = counter;
  return launches::time(
      CAUSAL ? "FlashAttention-3, causal" : "FlashAttention-3", argc, argv,
      [&] {
        run_flash_fwd<90, HEAD, HEAD, (CAUSAL || HEAD < 128) ? 1 : 2, T, T, CAUSAL, false, false, false, false, false,
                      false, false, false, false>(p, nullptr);
      },
      [&] { LAUNCHES_CHECK(cudaMemset(counter, 0, sizeof(int))); });
}
