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
#elif LAUNCHER == 3
// fast.cu's ladder for sm_90a, steps 2 to 12 (-DSTEP): its C is column-major, so both operands change places.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_bf16.h>

#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cuda/barrier>
using bf16 = __nv_bfloat16;
#define CEIL_DIV(m, n) (((m) + (n)-1) / (n))
#define cudaCheck(call) \
  if ((call) != cudaSuccess) std::exit(5)
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define JOIN_OF(a, b) a##b
#define JOIN(a, b) JOIN_OF(a, b)
#if STEP > 2  // what the steps share stands in the second one
#include "examples/matmul/matmul_2.cuh"
#endif
#if STEP > 4
#include "examples/matmul/matmul_3.cuh"
#include "examples/matmul/matmul_4.cuh"
#endif
#if STEP > 7
#include "examples/matmul/matmul_5.cuh"
#include "examples/matmul/matmul_6.cuh"
#include "examples/matmul/matmul_7.cuh"
#endif
#if STEP > 8
#include "examples/matmul/matmul_8.cuh"
#endif
// The path must keep its form without spaces.
// clang-format off
#include TEXT(examples/matmul/JOIN(matmul_,STEP).cuh)
// clang-format on
void launch_step(const bf16* a, const bf16* b, bf16* c, int m, int n, int k) {
#if STEP == 2
  runKernel2(n, m, k, const_cast<bf16*>(b), const_cast<bf16*>(a), c);
#else
  JOIN(runKernel, STEP)(n, m, k, const_cast<bf16*>(b), const_cast<bf16*>(a), c, nullptr);
#endif
}
#elif LAUNCHER == 4
// ThunderKittens' benchmarks (-DSOURCE, -DCONFIG), small: they compare with a plain kernel of their own and print the
// mean error, which is judged here. It cannot be more than the rounding of the output.
#define main their_main
#include SOURCE
#undef main
#include <sstream>
#include <string>
int main(int, char** argv) {
  std::ostringstream text;
  std::streambuf* const old = std::cout.rdbuf(text.rdbuf());
  run_benchmark<CONFIG>(std::stoul(argv[1]), std::stoul(argv[2]), std::stoul(argv[3]), true);
  std::cout.rdbuf(old);
  std::cout << text.str();
  const auto number = [&](const char* name) {
    const std::size_t at = text.str().find(name);
    return at == std::string::npos ? -1.0 : std::stod(text.str().substr(at + std::string(name).size()));
  };
  const double size = number("abs mean:");
  const double error = number("err mean:");
  return size > 0 && error >= 0 && error < size / 256 ? 0 : 1;
}
#endif
