// What the files of the stand-in for cuBLAS share: the handle, and how a call becomes work of its stream.
//
// NVIDIA's library has machine code alone, which is not emulated. Here the host computes what the calls mean: values
// are read without loss, products and sums are made in double (complex double), and a result is rounded once to its
// type. So results are at least as near to exact ones as cuBLAS's, and not the same in every bit; math modes, compute
// types, algorithms and workspaces change nothing. No kernel is launched: --launches and race detection show nothing.
#pragma once

#include <cublas_v2.h>

#include <functional>

#include "guest/stand_ins/values.h"
#include "guest/work.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
  cublasAtomicsMode_t atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED;
  cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
  int sm_count_target = 0;
};

namespace tessera::guest {

/// Runs the work in the stream's order. What it throws becomes the status.
cublasStatus_t blas(const char* function, cudaStream_t stream, const std::function<void()>& work);
inline cublasStatus_t blas(const char* function, cublasHandle_t handle, const std::function<void()>& work) {
  return handle == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : blas(function, handle->stream, work);
}

inline bool transposes(cublasOperation_t operation) { return operation != CUBLAS_OP_N; }
/// op(matrix), dense: `rows` and `cols` are op's.
template <class S>
std::vector<S> read_operand(cublasOperation_t operation, const void* data, cudaDataType type, std::int64_t rows,
                            std::int64_t cols, std::int64_t ld) {
  if (!transposes(operation)) return read_matrix<S>({data, type, rows, cols, ld});
  return transposed(read_matrix<S>({data, type, cols, rows, ld}), cols, rows, operation == CUBLAS_OP_C);
}

struct Operand {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  std::int64_t ld = 0;
  cublasOperation_t operation = CUBLAS_OP_N;
};
/// m x n, k
struct Shape {
  std::int64_t m = 0, n = 0, k = 0;
};
/// alpha * op(a) * op(b), dense.
template <class S>
std::vector<S> product_of(const Shape& shape, S alpha, const Operand& a, const Operand& b) {
  std::vector<S> sums(static_cast<std::size_t>(shape.m * shape.n));
  if (alpha == S{}) return sums;  // then neither is read
  add_product(read_operand<S>(a.operation, a.data, a.type, shape.m, shape.k, a.ld),
              read_operand<S>(b.operation, b.data, b.type, shape.k, shape.n, b.ld), sums, shape.m, shape.n, shape.k);
  for (S& sum : sums) sum *= alpha;
  return sums;
}
/// values += beta * matrix, which is not read where beta is 0.
template <class S>
void add_scaled(std::vector<S>& values, S beta, const Matrix& matrix) {
  if (beta == S{}) return;
  const std::vector<S> old = read_matrix<S>(matrix);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] += beta * old[i];
}
/// c = alpha * op(a) * op(b) + beta * c
template <class S>
void multiply(const Shape& shape, S alpha, const Operand& a, const Operand& b, S beta, const Operand& c) {
  const Matrix to{c.data, c.type, shape.m, shape.n, c.ld};
  std::vector<S> sums = product_of(shape, alpha, a, b);
  add_scaled(sums, beta, to);
  write_matrix(to, sums);
}

}  // namespace tessera::guest
