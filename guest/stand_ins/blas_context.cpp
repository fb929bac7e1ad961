// The stand-in for cuBLAS: handles, their settings, copies, and how a call runs.
#include "guest/stand_ins/blas.h"
#include "tessera/error.h"

namespace tessera::guest {

cublasStatus_t blas(const char* function, cudaStream_t stream, const std::function<void()>& work) {
  const cudaError_t error = guarded(function, [&] {
    return submit(stream, LibraryWork{[work] {
                    work();
                    return cudaSuccess;
                  }});
  });
  switch (error) {
    case cudaSuccess:
      return CUBLAS_STATUS_SUCCESS;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidResourceHandle:
      return CUBLAS_STATUS_INVALID_VALUE;
    case cudaErrorNotSupported:
      return CUBLAS_STATUS_NOT_SUPPORTED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

namespace {

// Both sides may be anywhere: an address says where it is.
cublasStatus_t move(const char* function, cudaStream_t stream, const Box& box) {
  const cudaError_t error = guarded(function, [&] { return submit(stream, box); });
  return error == cudaSuccess             ? CUBLAS_STATUS_SUCCESS
         : error == cudaErrorInvalidValue ? CUBLAS_STATUS_INVALID_VALUE
                                          : CUBLAS_STATUS_MAPPING_ERROR;
}
cublasStatus_t move_vector(const char* function, cudaStream_t stream, std::int64_t count, std::int64_t bytes,
                           const void* from, std::int64_t from_step, void* to, std::int64_t to_step) {
  if (count < 0 || bytes <= 0 || from_step <= 0 || to_step <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  if (from_step == 1 && to_step == 1) return move(function, stream, {to, from, 0, 0, 0, 0, size(count * bytes)});
  return move(function, stream,
              {to, from, size(to_step * bytes), size(from_step * bytes), 0, 0, size(bytes), size(count)});
}
cublasStatus_t move_matrix(const char* function, cudaStream_t stream, std::int64_t rows, std::int64_t cols,
                           std::int64_t bytes, const void* from, std::int64_t from_ld, void* to, std::int64_t to_ld) {
  if (rows < 0 || cols < 0 || bytes <= 0 || from_ld < rows || to_ld < rows) return CUBLAS_STATUS_INVALID_VALUE;
  const auto size = [](std::int64_t value) { return static_cast<std::size_t>(value); };
  return move(function, stream,
              {to, from, size(to_ld * bytes), size(from_ld * bytes), 0, 0, size(rows * bytes), size(cols)});
}

}  // namespace
}  // namespace tessera::guest

using namespace tessera::guest;

extern "C" {

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

#define TESSERA_SETTING(Name, Type, field)                             \
  cublasStatus_t cublasSet##Name(cublasHandle_t handle, Type value) {  \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;       \
    handle->field = value;                                             \
    return CUBLAS_STATUS_SUCCESS;                                      \
  }                                                                    \
  cublasStatus_t cublasGet##Name(cublasHandle_t handle, Type* value) { \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;       \
    *value = handle->field;                                            \
    return CUBLAS_STATUS_SUCCESS;                                      \
  }
TESSERA_SETTING(Stream, cudaStream_t, stream)
TESSERA_SETTING(PointerMode, cublasPointerMode_t, pointer_mode)
TESSERA_SETTING(AtomicsMode, cublasAtomicsMode_t, atomics_mode)
TESSERA_SETTING(MathMode, cublasMath_t, math_mode)
TESSERA_SETTING(SmCountTarget, int, sm_count_target)
#undef TESSERA_SETTING

cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, std::size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetVersion(cublasHandle_t, int* version) {
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? CUBLAS_VER_MAJOR : type == MINOR_VERSION ? CUBLAS_VER_MINOR : CUBLAS_VER_PATCH;
  return CUBLAS_STATUS_SUCCESS;
}
std::size_t cublasGetCudartVersion() { return CUDART_VERSION; }

#define TESSERA_STATUS(name) \
  case name:                 \
    return #name;
const char* cublasGetStatusName(cublasStatus_t status) {
  switch (status) {
    TESSERA_STATUS(CUBLAS_STATUS_SUCCESS)
    TESSERA_STATUS(CUBLAS_STATUS_NOT_INITIALIZED)
    TESSERA_STATUS(CUBLAS_STATUS_ALLOC_FAILED)
    TESSERA_STATUS(CUBLAS_STATUS_INVALID_VALUE)
    TESSERA_STATUS(CUBLAS_STATUS_ARCH_MISMATCH)
    TESSERA_STATUS(CUBLAS_STATUS_MAPPING_ERROR)
    TESSERA_STATUS(CUBLAS_STATUS_EXECUTION_FAILED)
    TESSERA_STATUS(CUBLAS_STATUS_INTERNAL_ERROR)
    TESSERA_STATUS(CUBLAS_STATUS_NOT_SUPPORTED)
    TESSERA_STATUS(CUBLAS_STATUS_LICENSE_ERROR)
  }
  return "unknown status";
}
#undef TESSERA_STATUS
const char* cublasGetStatusString(cublasStatus_t status) { return cublasGetStatusName(status); }

#define TESSERA_MOVES(Suffix, Int)                                                                                     \
  cublasStatus_t cublasSetVector##Suffix(Int n, Int bytes, const void* x, Int incx, void* y, Int incy) {               \
    return move_vector("cublasSetVector", and_wait(), n, bytes, x, incx, y, incy);                                     \
  }                                                                                                                    \
  cublasStatus_t cublasGetVector##Suffix(Int n, Int bytes, const void* x, Int incx, void* y, Int incy) {               \
    return move_vector("cublasGetVector", and_wait(), n, bytes, x, incx, y, incy);                                     \
  }                                                                                                                    \
  cublasStatus_t cublasSetMatrix##Suffix(Int rows, Int cols, Int bytes, const void* a, Int lda, void* b, Int ldb) {    \
    return move_matrix("cublasSetMatrix", and_wait(), rows, cols, bytes, a, lda, b, ldb);                              \
  }                                                                                                                    \
  cublasStatus_t cublasGetMatrix##Suffix(Int rows, Int cols, Int bytes, const void* a, Int lda, void* b, Int ldb) {    \
    return move_matrix("cublasGetMatrix", and_wait(), rows, cols, bytes, a, lda, b, ldb);                              \
  }                                                                                                                    \
  cublasStatus_t cublasSetVectorAsync##Suffix(Int n, Int bytes, const void* x, Int incx, void* y, Int incy,            \
                                              cudaStream_t stream) {                                                   \
    return move_vector("cublasSetVectorAsync", stream, n, bytes, x, incx, y, incy);                                    \
  }                                                                                                                    \
  cublasStatus_t cublasGetVectorAsync##Suffix(Int n, Int bytes, const void* x, Int incx, void* y, Int incy,            \
                                              cudaStream_t stream) {                                                   \
    return move_vector("cublasGetVectorAsync", stream, n, bytes, x, incx, y, incy);                                    \
  }                                                                                                                    \
  cublasStatus_t cublasSetMatrixAsync##Suffix(Int rows, Int cols, Int bytes, const void* a, Int lda, void* b, Int ldb, \
                                              cudaStream_t stream) {                                                   \
    return move_matrix("cublasSetMatrixAsync", stream, rows, cols, bytes, a, lda, b, ldb);                             \
  }                                                                                                                    \
  cublasStatus_t cublasGetMatrixAsync##Suffix(Int rows, Int cols, Int bytes, const void* a, Int lda, void* b, Int ldb, \
                                              cudaStream_t stream) {                                                   \
    return move_matrix("cublasGetMatrixAsync", stream, rows, cols, bytes, a, lda, b, ldb);                             \
  }
TESSERA_MOVES(, int)
TESSERA_MOVES(_64, std::int64_t)
#undef TESSERA_MOVES

}  // extern "C"
