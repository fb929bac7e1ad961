// The stand-in for cuBLAS: vectors (level 1).
#include <cmath>

#include "guest/stand_ins/blas.h"

using namespace tessera::guest;

namespace {

using Int = std::int64_t;

double magnitude(double value) { return std::fabs(value); }
double magnitude(Complex value) { return std::fabs(value.real()) + std::fabs(value.imag()); }  // as BLAS has it

long double square(long double value) { return value * value; }
long double square(Complex value) { return square(value.real()) + square(value.imag()); }

template <class S>
cublasStatus_t axpy(const char* name, cublasHandle_t handle, Int n, const void* alpha, cudaDataType alpha_type,
                    const void* x, cudaDataType x_type, Int incx, void* y, cudaDataType y_type, Int incy) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  const Factor<S> factor(alpha, alpha_type);
  return blas(name, handle, [=] {
    const S by = factor.value();
    const std::vector<S> from = read_vector<S>(x, x_type, n, incx);
    std::vector<S> sums = read_vector<S>(y, y_type, n, incy);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += by * from[i];
    write_vector(y, y_type, incy, std::move(sums));
  });
}

template <class S>
cublasStatus_t scale(const char* name, cublasHandle_t handle, Int n, const void* alpha, cudaDataType alpha_type,
                     void* x, cudaDataType type, Int incx) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
  const Factor<S> factor(alpha, alpha_type);
  return blas(name, handle, [=] {
    const S by = factor.value();
    std::vector<S> values = read_vector<S>(x, type, n, incx);
    for (S& value : values) value *= by;
    write_vector(x, type, incx, std::move(values));
  });
}

template <class S>
cublasStatus_t dot(const char* name, cublasHandle_t handle, Int n, const void* x, cudaDataType x_type, Int incx,
                   const void* y, cudaDataType y_type, Int incy, void* result, cudaDataType type, bool conjugates) {
  return blas(name, handle, [=] {
    const std::vector<S> a = read_vector<S>(x, x_type, n, incx), b = read_vector<S>(y, y_type, n, incy);
    S sum{};
    for (std::size_t i = 0; i < a.size(); ++i) sum += (conjugates ? conjugate(a[i]) : a[i]) * b[i];
    write_vector<S>(result, type, 1, {sum});
  });
}

template <class S>
cublasStatus_t norm(const char* name, cublasHandle_t handle, Int n, const void* x, cudaDataType x_type, Int incx,
                    void* result, cudaDataType type) {
  return blas(name, handle, [=] {
    long double sum = 0;  // whose exponent has room for the squares of doubles
    if (incx > 0)
      for (const S& value : read_vector<S>(x, x_type, n, incx)) sum += square(value);
    write_vector<double>(result, type, 1, {static_cast<double>(std::sqrt(sum))});
  });
}

template <class S>
cublasStatus_t sum_of(const char* name, cublasHandle_t handle, Int n, const void* x, cudaDataType type, Int incx,
                      void* result, cudaDataType result_type) {
  return blas(name, handle, [=] {
    double sum = 0;
    if (incx > 0)
      for (const S& value : read_vector<S>(x, type, n, incx)) sum += magnitude(value);
    write_vector<double>(result, result_type, 1, {sum});
  });
}

// The first of the greatest, or of the least, counted from 1; 0: there is none.
template <class S, class I>
cublasStatus_t place_of(const char* name, cublasHandle_t handle, Int n, const void* x, cudaDataType type, Int incx,
                        I* result, bool is_greatest) {
  return blas(name, handle, [=] {
    I place = 0;
    if (n > 0 && incx > 0) {
      const std::vector<S> values = read_vector<S>(x, type, n, incx);
      std::size_t best = 0;
      for (std::size_t i = 1; i < values.size(); ++i)
        if (is_greatest ? magnitude(values[i]) > magnitude(values[best])
                        : magnitude(values[i]) < magnitude(values[best]))
          best = i;
      place = static_cast<I>(best + 1);
    }
    write_bytes(result, &place, sizeof(place));
  });
}

template <class S>
cublasStatus_t copy_vector(const char* name, cublasHandle_t handle, Int n, const void* x, cudaDataType type, Int incx,
                           void* y, Int incy, bool swaps) {
  return blas(name, handle, [=] {
    std::vector<S> from = read_vector<S>(x, type, n, incx);
    if (swaps) write_vector(const_cast<void*>(x), type, incx, read_vector<S>(y, type, n, incy));
    write_vector(y, type, incy, std::move(from));
  });
}

cublasStatus_t rotate(const char* name, cublasHandle_t handle, Int n, void* x, Int incx, void* y, Int incy,
                      const void* c, const void* s, cudaDataType type) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const Factor<double> cosine(c, type), sine(s, type);
  return blas(name, handle, [=] {
    std::vector<double> a = read_vector<double>(x, type, n, incx), b = read_vector<double>(y, type, n, incy);
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double first = a[i], second = b[i];
      a[i] = cosine.value() * first + sine.value() * second;
      b[i] = cosine.value() * second - sine.value() * first;
    }
    write_vector(x, type, incx, std::move(a));
    write_vector(y, type, incy, std::move(b));
  });
}

}  // namespace

extern "C" {

// Of a letter of BLAS's, its C type E and the type R of its norms.
#define TESSERA_COMMON(L, E, A, R, N, Suffix, I)                                                                    \
  cublasStatus_t cublas##L##axpy##Suffix(cublasHandle_t handle, I n, const E* alpha, const E* x, I incx, E* y,      \
                                         I incy) {                                                                  \
    return axpy<Kind<E>::Scalar>("cublas" #L "axpy", handle, n, alpha, Kind<E>::kType, x, Kind<E>::kType, incx, y,  \
                                 Kind<E>::kType, incy);                                                             \
  }                                                                                                                 \
  cublasStatus_t cublas##L##scal##Suffix(cublasHandle_t handle, I n, const E* alpha, E* x, I incx) {                \
    return scale<Kind<E>::Scalar>("cublas" #L "scal", handle, n, alpha, Kind<E>::kType, x, Kind<E>::kType, incx);   \
  }                                                                                                                 \
  cublasStatus_t cublas##N##nrm2##Suffix(cublasHandle_t handle, I n, const E* x, I incx, R* result) {               \
    return norm<Kind<E>::Scalar>("cublas" #N "nrm2", handle, n, x, Kind<E>::kType, incx, result, Kind<R>::kType);   \
  }                                                                                                                 \
  cublasStatus_t cublas##N##asum##Suffix(cublasHandle_t handle, I n, const E* x, I incx, R* result) {               \
    return sum_of<Kind<E>::Scalar>("cublas" #N "asum", handle, n, x, Kind<E>::kType, incx, result, Kind<R>::kType); \
  }                                                                                                                 \
  cublasStatus_t cublasI##A##amax##Suffix(cublasHandle_t handle, I n, const E* x, I incx, I* result) {              \
    return place_of<Kind<E>::Scalar>("cublasI" #A "amax", handle, n, x, Kind<E>::kType, incx, result, true);        \
  }                                                                                                                 \
  cublasStatus_t cublasI##A##amin##Suffix(cublasHandle_t handle, I n, const E* x, I incx, I* result) {              \
    return place_of<Kind<E>::Scalar>("cublasI" #A "amin", handle, n, x, Kind<E>::kType, incx, result, false);       \
  }                                                                                                                 \
  cublasStatus_t cublas##L##copy##Suffix(cublasHandle_t handle, I n, const E* x, I incx, E* y, I incy) {            \
    return copy_vector<Kind<E>::Scalar>("cublas" #L "copy", handle, n, x, Kind<E>::kType, incx, y, incy, false);    \
  }                                                                                                                 \
  cublasStatus_t cublas##L##swap##Suffix(cublasHandle_t handle, I n, E* x, I incx, E* y, I incy) {                  \
    return copy_vector<Kind<E>::Scalar>("cublas" #L "swap", handle, n, x, Kind<E>::kType, incx, y, incy, true);     \
  }
#define TESSERA_DOT(Name, E, conjugates, Suffix, I)                                                                    \
  cublasStatus_t cublas##Name##Suffix(cublasHandle_t handle, I n, const E* x, I incx, const E* y, I incy, E* result) { \
    return dot<Kind<E>::Scalar>("cublas" #Name, handle, n, x, Kind<E>::kType, incx, y, Kind<E>::kType, incy, result,   \
                                Kind<E>::kType, conjugates);                                                           \
  }
#define TESSERA_REAL(L, E, Suffix, I)                                                                       \
  cublasStatus_t cublas##L##rot##Suffix(cublasHandle_t handle, I n, E* x, I incx, E* y, I incy, const E* c, \
                                        const E* s) {                                                       \
    return rotate("cublas" #L "rot", handle, n, x, incx, y, incy, c, s, Kind<E>::kType);                    \
  }                                                                                                         \
  TESSERA_DOT(L##dot, E, false, Suffix, I)
#define TESSERA_ALL(Suffix, I)                                                                                         \
  TESSERA_COMMON(S, float, s, float, S, Suffix, I)                                                                     \
  TESSERA_COMMON(D, double, d, double, D, Suffix, I)                                                                   \
  TESSERA_COMMON(C, cuComplex, c, float, Sc, Suffix, I)                                                                \
  TESSERA_COMMON(Z, cuDoubleComplex, z, double, Dz, Suffix, I)                                                         \
  TESSERA_REAL(S, float, Suffix, I)                                                                                    \
  TESSERA_REAL(D, double, Suffix, I)                                                                                   \
  TESSERA_DOT(Cdotu, cuComplex, false, Suffix, I)                                                                      \
  TESSERA_DOT(Cdotc, cuComplex, true, Suffix, I)                                                                       \
  TESSERA_DOT(Zdotu, cuDoubleComplex, false, Suffix, I)                                                                \
  TESSERA_DOT(Zdotc, cuDoubleComplex, true, Suffix, I)                                                                 \
  cublasStatus_t cublasCsscal##Suffix(cublasHandle_t handle, I n, const float* alpha, cuComplex* x, I incx) {          \
    return scale<Complex>("cublasCsscal", handle, n, alpha, CUDA_R_32F, x, CUDA_C_32F, incx);                          \
  }                                                                                                                    \
  cublasStatus_t cublasZdscal##Suffix(cublasHandle_t handle, I n, const double* alpha, cuDoubleComplex* x, I incx) {   \
    return scale<Complex>("cublasZdscal", handle, n, alpha, CUDA_R_64F, x, CUDA_C_64F, incx);                          \
  }                                                                                                                    \
  cublasStatus_t cublasAxpyEx##Suffix(cublasHandle_t handle, I n, const void* alpha, cudaDataType alpha_type,          \
                                      const void* x, cudaDataType x_type, I incx, void* y, cudaDataType y_type,        \
                                      I incy, cudaDataType) {                                                          \
    return (is_complex(y_type) ? axpy<Complex> : axpy<double>)("cublasAxpyEx", handle, n, alpha, alpha_type, x,        \
                                                               x_type, incx, y, y_type, incy);                         \
  }                                                                                                                    \
  cublasStatus_t cublasScalEx##Suffix(cublasHandle_t handle, I n, const void* alpha, cudaDataType alpha_type, void* x, \
                                      cudaDataType type, I incx, cudaDataType) {                                       \
    return (is_complex(type) ? scale<Complex> : scale<double>)("cublasScalEx", handle, n, alpha, alpha_type, x, type,  \
                                                               incx);                                                  \
  }                                                                                                                    \
  cublasStatus_t cublasDotEx##Suffix(cublasHandle_t handle, I n, const void* x, cudaDataType x_type, I incx,           \
                                     const void* y, cudaDataType y_type, I incy, void* result, cudaDataType type,      \
                                     cudaDataType) {                                                                   \
    return (is_complex(type) ? dot<Complex> : dot<double>)("cublasDotEx", handle, n, x, x_type, incx, y, y_type, incy, \
                                                           result, type, false);                                       \
  }                                                                                                                    \
  cublasStatus_t cublasDotcEx##Suffix(cublasHandle_t handle, I n, const void* x, cudaDataType x_type, I incx,          \
                                      const void* y, cudaDataType y_type, I incy, void* result, cudaDataType type,     \
                                      cudaDataType) {                                                                  \
    return (is_complex(type) ? dot<Complex> : dot<double>)("cublasDotcEx", handle, n, x, x_type, incx, y, y_type,      \
                                                           incy, result, type, true);                                  \
  }                                                                                                                    \
  cublasStatus_t cublasNrm2Ex##Suffix(cublasHandle_t handle, I n, const void* x, cudaDataType x_type, I incx,          \
                                      void* result, cudaDataType type, cudaDataType) {                                 \
    return (is_complex(x_type) ? norm<Complex> : norm<double>)("cublasNrm2Ex", handle, n, x, x_type, incx, result,     \
                                                               type);                                                  \
  }
TESSERA_ALL(, int)
TESSERA_ALL(_64, std::int64_t)

}  // extern "C"
