// The stand-in for cuBLAS: products of matrices of every form (gemm).
#include "guest/stand_ins/blas.h"

using namespace tessera::guest;

namespace {

using Int = std::int64_t;

/// How the products of a batch lie: a distance apart, or behind arrays of pointers.
struct Batch {
  Int count = 1;
  long long a_step = 0, b_step = 0, c_step = 0;
  bool is_by_pointers = false;
};

struct Gemm {
  Shape shape;
  Operand a, b, c;
  Batch batch;
};

bool is_valid(const Operand& operand, Int rows, Int cols) {
  return operand.ld >= std::max<Int>(1, transposes(operand.operation) ? cols : rows);
}

const void* member(const Operand& operand, Int i, long long step, bool is_by_pointers) {
  if (is_by_pointers) return read_one(static_cast<const void* const*>(operand.data) + i);
  return static_cast<const std::byte*>(operand.data) + i * step * static_cast<long long>(bytes_of(operand.type));
}

template <class S>
cublasStatus_t gemm_in(const char* name, cublasHandle_t handle, const Gemm& gemm, const void* alpha, const void* beta,
                       cudaDataType factor_type) {
  const Factor<S> by(alpha, factor_type), keep(beta, factor_type);
  return blas(name, handle, [=] {
    const Batch& batch = gemm.batch;
    for (Int i = 0; i < batch.count; ++i) {
      Operand a = gemm.a, b = gemm.b, c = gemm.c;
      a.data = member(a, i, batch.a_step, batch.is_by_pointers);
      b.data = member(b, i, batch.b_step, batch.is_by_pointers);
      c.data = member(c, i, batch.c_step, batch.is_by_pointers);
      multiply<S>(gemm.shape, by.value(), a, b, keep.value(), c);
    }
  });
}

cublasStatus_t gemm(const char* name, cublasHandle_t handle, const Gemm& gemm, const void* alpha, const void* beta,
                    cudaDataType factor_type) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto [m, n, k] = gemm.shape;
  if (m < 0 || n < 0 || k < 0 || gemm.batch.count < 0 || alpha == nullptr || beta == nullptr ||
      !is_valid(gemm.a, m, k) || !is_valid(gemm.b, k, n) || gemm.c.ld < std::max<Int>(1, m))
    return CUBLAS_STATUS_INVALID_VALUE;
  for (const cudaDataType type : {gemm.a.type, gemm.b.type, gemm.c.type})
    if (bytes_of(type) == 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  return (is_complex(gemm.c.type) ? gemm_in<Complex> : gemm_in<double>)(name, handle, gemm, alpha, beta, factor_type);
}

// The type of alpha and beta.
cudaDataType factor_type(cublasComputeType_t compute, cudaDataType c) {
  switch (compute) {
    case CUBLAS_COMPUTE_16F:
    case CUBLAS_COMPUTE_16F_PEDANTIC:
      return CUDA_R_16F;
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return is_complex(c) ? CUDA_C_64F : CUDA_R_64F;
    case CUBLAS_COMPUTE_32I:
    case CUBLAS_COMPUTE_32I_PEDANTIC:
      return c == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F;
    default:
      return is_complex(c) ? CUDA_C_32F : CUDA_R_32F;
  }
}

const void* plain(const void* pointers) { return pointers; }

}  // namespace

extern "C" {

#define TESSERA_OPERANDS(I) cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, I m, I n, I k
#define TESSERA_GEMM(L, E, Suffix, I)                                                                                \
  cublasStatus_t cublas##L##gemm##Suffix(TESSERA_OPERANDS(I), const E* alpha, const E* a, I lda, const E* b, I ldb,  \
                                         const E* beta, E* c, I ldc) {                                               \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                   \
    return gemm("cublas" #L "gemm", handle,                                                                          \
                {{m, n, k}, {a, kType, lda, op_a}, {b, kType, ldb, op_b}, {c, kType, ldc}, {}}, alpha, beta, kType); \
  }                                                                                                                  \
  cublasStatus_t cublas##L##gemmBatched##Suffix(TESSERA_OPERANDS(I), const E* alpha, const E* const a[], I lda,      \
                                                const E* const b[], I ldb, const E* beta, E* const c[], I ldc,       \
                                                I count) {                                                           \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                   \
    return gemm("cublas" #L "gemmBatched", handle,                                                                   \
                {{m, n, k},                                                                                          \
                 {plain(a), kType, lda, op_a},                                                                       \
                 {plain(b), kType, ldb, op_b},                                                                       \
                 {plain(c), kType, ldc},                                                                             \
                 {count, 0, 0, 0, true}},                                                                            \
                alpha, beta, kType);                                                                                 \
  }                                                                                                                  \
  cublasStatus_t cublas##L##gemmStridedBatched##Suffix(TESSERA_OPERANDS(I), const E* alpha, const E* a, I lda,       \
                                                       long long step_a, const E* b, I ldb, long long step_b,        \
                                                       const E* beta, E* c, I ldc, long long step_c, I count) {      \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                   \
    return gemm(                                                                                                     \
        "cublas" #L "gemmStridedBatched", handle,                                                                    \
        {{m, n, k}, {a, kType, lda, op_a}, {b, kType, ldb, op_b}, {c, kType, ldc}, {count, step_a, step_b, step_c}}, \
        alpha, beta, kType);                                                                                         \
  }
#define TESSERA_GEMM_EX(Suffix, I)                                                                                   \
  TESSERA_GEMM(S, float, Suffix, I)                                                                                  \
  TESSERA_GEMM(D, double, Suffix, I)                                                                                 \
  TESSERA_GEMM(H, __half, Suffix, I)                                                                                 \
  TESSERA_GEMM(C, cuComplex, Suffix, I)                                                                              \
  TESSERA_GEMM(Z, cuDoubleComplex, Suffix, I)                                                                        \
  cublasStatus_t cublasGemmEx##Suffix(TESSERA_OPERANDS(I), const void* alpha, const void* a, cudaDataType type_a,    \
                                      I lda, const void* b, cudaDataType type_b, I ldb, const void* beta, void* c,   \
                                      cudaDataType type_c, I ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {   \
    return gemm("cublasGemmEx", handle,                                                                              \
                {{m, n, k}, {a, type_a, lda, op_a}, {b, type_b, ldb, op_b}, {c, type_c, ldc}, {}}, alpha, beta,      \
                factor_type(compute, type_c));                                                                       \
  }                                                                                                                  \
  cublasStatus_t cublasGemmBatchedEx##Suffix(TESSERA_OPERANDS(I), const void* alpha, const void* const a[],          \
                                             cudaDataType type_a, I lda, const void* const b[], cudaDataType type_b, \
                                             I ldb, const void* beta, void* const c[], cudaDataType type_c, I ldc,   \
                                             I count, cublasComputeType_t compute, cublasGemmAlgo_t) {               \
    return gemm("cublasGemmBatchedEx", handle,                                                                       \
                {{m, n, k},                                                                                          \
                 {plain(a), type_a, lda, op_a},                                                                      \
                 {plain(b), type_b, ldb, op_b},                                                                      \
                 {plain(c), type_c, ldc},                                                                            \
                 {count, 0, 0, 0, true}},                                                                            \
                alpha, beta, factor_type(compute, type_c));                                                          \
  }                                                                                                                  \
  cublasStatus_t cublasGemmStridedBatchedEx##Suffix(                                                                 \
      TESSERA_OPERANDS(I), const void* alpha, const void* a, cudaDataType type_a, I lda, long long step_a,           \
      const void* b, cudaDataType type_b, I ldb, long long step_b, const void* beta, void* c, cudaDataType type_c,   \
      I ldc, long long step_c, I count, cublasComputeType_t compute, cublasGemmAlgo_t) {                             \
    return gemm("cublasGemmStridedBatchedEx", handle,                                                                \
                {{m, n, k},                                                                                          \
                 {a, type_a, lda, op_a},                                                                             \
                 {b, type_b, ldb, op_b},                                                                             \
                 {c, type_c, ldc},                                                                                   \
                 {count, step_a, step_b, step_c}},                                                                   \
                alpha, beta, factor_type(compute, type_c));                                                          \
  }                                                                                                                  \
  cublasStatus_t cublasSgemmEx##Suffix(TESSERA_OPERANDS(I), const float* alpha, const void* a, cudaDataType type_a,  \
                                       I lda, const void* b, cudaDataType type_b, I ldb, const float* beta, void* c, \
                                       cudaDataType type_c, I ldc) {                                                 \
    return gemm("cublasSgemmEx", handle,                                                                             \
                {{m, n, k}, {a, type_a, lda, op_a}, {b, type_b, ldb, op_b}, {c, type_c, ldc}, {}}, alpha, beta,      \
                CUDA_R_32F);                                                                                         \
  }
TESSERA_GEMM_EX(, int)
TESSERA_GEMM_EX(_64, std::int64_t)

}  // extern "C"
