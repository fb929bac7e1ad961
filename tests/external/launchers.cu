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
#endif
