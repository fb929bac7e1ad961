// Numbers of a program, in whatever memory and of whatever type, as the stand-ins for NVIDIA's libraries compute with
// them: double or complex double, each read without loss and rounded once when it is written.
#pragma once

#include <cuComplex.h>
#include <cuda_fp16.h>
#include <library_types.h>

#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "guest/memory.h"

namespace tessera::guest {

using Complex = std::complex<double>;

/// 0: a type that no stand-in computes with.
std::size_t bytes_of(cudaDataType type);
bool is_complex(cudaDataType type);

/// Of the device, or of the host where the address is the host's.
void read_bytes(void* to, const void* from, std::size_t bytes);
void write_bytes(void* to, const void* from, std::size_t bytes);
template <class T>
std::vector<T> read_array(const T* from, std::size_t count) {
  std::vector<T> values(count);
  read_bytes(values.data(), from, count * sizeof(T));
  return values;
}
template <class T>
T read_one(const T* from) {
  return read_array(from, 1).front();
}

/// A matrix by columns, `ld` elements apart.
struct Matrix {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0, cols = 0, ld = 0;
};
/// Its elements by columns, dense. S: double or Complex. Throws Error{device} where memory ends before.
template <class S>
std::vector<S> read_matrix(const Matrix& matrix);
/// `to.data` is written.
template <class S>
void write_matrix(const Matrix& to, const std::vector<S>& values);
/// Only elements of the triangle, the diagonal with them.
template <class S>
void write_triangle(const Matrix& to, const std::vector<S>& values, bool is_upper);

/// A vector whose elements are `step` apart; backwards from the end where that is negative, as BLAS has it.
template <class S>
std::vector<S> read_vector(const void* data, cudaDataType type, std::int64_t count, std::int64_t step) {
  std::vector<S> values = read_matrix<S>({data, type, 1, count, step < 0 ? -step : step});
  if (step < 0) return {values.rbegin(), values.rend()};
  return values;
}
template <class S>
void write_vector(void* data, cudaDataType type, std::int64_t step, std::vector<S> values) {
  if (step < 0) values = {values.rbegin(), values.rend()};
  const auto count = static_cast<std::int64_t>(values.size());
  write_matrix<S>({data, type, 1, count, step < 0 ? -step : step}, values);
}

/// A factor: read when it is given where it is the host's, when the work runs where it is the device's.
template <class S>
class Factor {
 public:
  Factor(const void* pointer, cudaDataType type) : pointer_(pointer), type_(type) {
    if (!is_on_device(pointer)) value_ = read();
  }
  S value() const { return is_on_device(pointer_) ? read() : value_; }

 private:
  S read() const { return read_vector<S>(pointer_, type_, 1, 1).front(); }
  const void* pointer_;
  cudaDataType type_;
  S value_{};
};

inline double conjugate(double value) { return value; }
inline Complex conjugate(Complex value) { return std::conj(value); }

/// c += a * b, by columns and dense: a is m x k, b is k x n. The sum of each element goes by k upwards.
template <class S>
void add_product(const std::vector<S>& a, const std::vector<S>& b, std::vector<S>& c, std::int64_t m, std::int64_t n,
                 std::int64_t k);
/// The transpose; with `conjugates` of the conjugates.
template <class S>
std::vector<S> transposed(const std::vector<S>& values, std::int64_t rows, std::int64_t cols, bool conjugates);

/// A C type of an interface, the type's name and what it is computed in.
template <class E>
struct Kind;
template <>
struct Kind<float> {
  static constexpr cudaDataType kType = CUDA_R_32F;
  using Scalar = double;
};
template <>
struct Kind<double> {
  static constexpr cudaDataType kType = CUDA_R_64F;
  using Scalar = double;
};
template <>
struct Kind<__half> {
  static constexpr cudaDataType kType = CUDA_R_16F;
  using Scalar = double;
};
template <>
struct Kind<cuComplex> {
  static constexpr cudaDataType kType = CUDA_C_32F;
  using Scalar = Complex;
};
template <>
struct Kind<cuDoubleComplex> {
  static constexpr cudaDataType kType = CUDA_C_64F;
  using Scalar = Complex;
};

}  // namespace tessera::guest
