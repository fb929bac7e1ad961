// A row operator on its own, with a Config that stands here: residual, RMSNorm, rows of bf16. What its parameters mean:
// spec/rows.h.
// Alone: nvcc -std=c++20 -arch=sm_90a -cubin -I templates templates/rows/kernel.cu
#include "rows/kernel.cuh"

namespace tessera::rows {

inline constexpr Config kConfig{.chain = {{{.kind = RowPart::residual, .is_stored = true},
                                           {.kind = RowPart::rmsnorm},
                                           {.kind = RowPart::store, .is_same = true}}}};

}  // namespace tessera::rows

using tessera::rows::kConfig;

extern "C" __global__ void __launch_bounds__(tessera::rows::threads_of_cta(kConfig), tessera::rows::min_ctas(kConfig))
    tessera_rows(void* x, long long x_stride_row, float eps, int rows, void* residual, long long residual_stride_row,
                 void* residual_out, long long residual_out_stride_row, void* weight, void* y, long long y_stride_row) {
  tessera::rows::kernel<kConfig>(
      {x,
       x_stride_row,
       0,
       nullptr,
       0,
       nullptr,
       1,
       nullptr,
       0,
       0,
       1,
       eps,
       rows,
       {{residual, nullptr, nullptr, residual_out, nullptr, residual_stride_row, residual_out_stride_row},
        {weight, nullptr, nullptr, nullptr, nullptr, 0, 0},
        {nullptr, nullptr, nullptr, y, nullptr, 0, y_stride_row}}});
}
