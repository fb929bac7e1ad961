// Launchers for kernels whose own take tensors. LAUNCHER says which file this is compiled for.
#if LAUNCHER == 1
#include "02e_matmul_sm100/_matmul_tmem.cu"
void launch_tmem(const nv_bfloat16* a, const nv_bfloat16* b, nv_bfloat16* c, int m, int n, int k) {
  matmul_tmem_launch<64, 128, 64>(a, b, c, m, n, k);
}
void launch_tmem128(const nv_bfloat16* a, const nv_bfloat16* b, nv_bfloat16* c, int m, int n, int k) {
  matmul_tmem_launch<128, 128, 64>(a, b, c, m, n, k);
}
#elif LAUNCHER == 2
#include "02e_matmul_sm100/_matmul_v4_trans.cu"
void launch_transposed(const nv_bfloat16* a, const nv_bfloat16* b, nv_bfloat16* c, int m, int n, int k) {
  matmul_v4_trans_launch<128, 128, 3>(a, b, c, m, n, k);
}
#else
// Programs whose main runs sizes too large for a CPU: it becomes a template that nobody instantiates.
#define main() main_of_others(); template <int kUnused> int unused_main()
#if LAUNCHER == 3
#include "kernels/gemm/bf16_b200/bf16_b200_gemm.cu"
#undef main
int main() {
  run_benchmark<config<256, 64, 128, 4, true, 5, 2>>(512, 512, 512, true);
  return 0;
}
#elif LAUNCHER == 4
#include "kernels/gemm/nvfp4_b200/nvfp4_b200_gemm.cu"
#undef main
int main() {
  run_benchmark<nvfp4_gemm::config<128, 5, 4, 12, 2, true>>(512, 512, 512, true);
  return 0;
}
#elif LAUNCHER == 5
#include "kernels/gemm/mxfp8_b200/mxfp8_b200_gemm.cu"
#undef main
int main() {
  run_benchmark<mxfp8_gemm::config<128, 5, 4, 12, 2, true>>(512, 512, 512, true);
  return 0;
}
#endif
#endif
