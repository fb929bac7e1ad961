#include "guest/stand_ins/values.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "emulator/math/float_format.h"
#include "tessera/error.h"

namespace tessera::guest {
namespace {

using emulator::math::Format;
using emulator::math::Rounding;

template <class T>
T bits_at(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <Format F, class Bits>
struct Small {
  using Stored = Bits;
  static double decode(Bits bits) { return emulator::math::decode<F>(bits); }
  static Bits encode(double value) {
    // NVIDIA's conversions to 8-bit types saturate.
    return static_cast<Bits>(emulator::math::encode<F>(value, Rounding::nearest_even, sizeof(Bits) == 1));
  }
};
template <class T>
struct Plain {
  using Stored = T;
  static double decode(T value) { return static_cast<double>(value); }
  static T encode(double value) { return static_cast<T>(value); }
};
template <class T>
struct Whole {
  using Stored = T;
  static double decode(T value) { return static_cast<double>(value); }
  static T encode(double value) {
    constexpr double kLeast = std::numeric_limits<T>::lowest(), kMost = std::numeric_limits<T>::max();
    return value != value ? T{} : static_cast<T>(std::clamp(std::nearbyint(value), kLeast, kMost));
  }
};

// Calls visit with the type's conversions and how many of them an element has.
template <class Visit>
void with_type(cudaDataType type, Visit&& visit) {
  switch (type) {
    case CUDA_R_64F:
      return visit(Plain<double>{}, 1);
    case CUDA_R_32F:
      return visit(Plain<float>{}, 1);
    case CUDA_C_64F:
      return visit(Plain<double>{}, 2);
    case CUDA_C_32F:
      return visit(Plain<float>{}, 2);
    case CUDA_R_16F:
      return visit(Small<Format::f16, std::uint16_t>{}, 1);
    case CUDA_R_16BF:
      return visit(Small<Format::bf16, std::uint16_t>{}, 1);
    case CUDA_R_8F_E4M3:
      return visit(Small<Format::e4m3, std::uint8_t>{}, 1);
    case CUDA_R_8F_E5M2:
      return visit(Small<Format::e5m2, std::uint8_t>{}, 1);
    case CUDA_R_8I:
      return visit(Whole<std::int8_t>{}, 1);
    case CUDA_R_8U:
      return visit(Whole<std::uint8_t>{}, 1);
    case CUDA_R_32I:
      return visit(Whole<std::int32_t>{}, 1);
    default:
      throw Error(ErrorKind::unsupported, "a type of elements that is not computed with here");
  }
}

template <class S>
void decode(const std::byte* from, cudaDataType type, S* to, std::size_t count) {
  with_type(type, [&]<class C>(C, std::size_t parts) {
    using T = typename C::Stored;
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte* const at = from + i * parts * sizeof(T);
      if constexpr (std::is_same_v<S, Complex>)
        to[i] = {C::decode(bits_at<T>(at)), parts == 2 ? C::decode(bits_at<T>(at + sizeof(T))) : 0};
      else
        to[i] = C::decode(bits_at<T>(at));
    }
  });
}

template <class S>
void encode(const S* from, cudaDataType type, std::byte* to, std::size_t count) {
  with_type(type, [&]<class C>(C, std::size_t parts) {
    using T = typename C::Stored;
    const auto put = [&](std::size_t at, double value) {
      const T bits = C::encode(value);
      std::memcpy(to + at * sizeof(T), &bits, sizeof(T));
    };
    for (std::size_t i = 0; i < count; ++i) {
      if constexpr (std::is_same_v<S, Complex>) {
        put(i * parts, from[i].real());
        if (parts == 2) put(i * parts + 1, from[i].imag());
      } else {
        put(i * parts, from[i]);
        if (parts == 2) put(i * parts + 1, 0);
      }
    }
  });
}

std::size_t as_size(std::int64_t value) { return value < 0 ? 0 : static_cast<std::size_t>(value); }

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TESSERA_WIDE __attribute__((target_clones("avx2", "default")))
#else
#define TESSERA_WIDE
#endif

// Four columns of the result at once, so that a column of a is read a quarter as often.
TESSERA_WIDE void add_columns(const double* a, const double* b, double* c, std::size_t m, std::size_t k,
                              std::size_t rows, std::size_t ld_b) {
  double *const c0 = c, *const c1 = c + m, *const c2 = c + 2 * m, *const c3 = c + 3 * m;
  for (std::size_t p = 0; p < k; ++p) {
    const double b0 = b[p], b1 = b[p + ld_b], b2 = b[p + 2 * ld_b], b3 = b[p + 3 * ld_b];
    const double* const column = a + p * m;
    for (std::size_t i = 0; i < rows; ++i) {
      c0[i] += column[i] * b0;
      c1[i] += column[i] * b1;
      c2[i] += column[i] * b2;
      c3[i] += column[i] * b3;
    }
  }
}

}  // namespace

std::size_t bytes_of(cudaDataType type) {
  std::size_t bytes = 0;
  try {
    with_type(type, [&]<class C>(C, std::size_t parts) { bytes = parts * sizeof(typename C::Stored); });
  } catch (const Error&) {
    return 0;
  }
  return bytes;
}
bool is_complex(cudaDataType type) { return type == CUDA_C_32F || type == CUDA_C_64F; }

void read_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (is_on_device(from))
    Session::instance().device().copy_to_host(to, address_of(from), bytes);
  else
    std::memcpy(to, from, bytes);
}
void write_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  if (is_on_device(to))
    Session::instance().device().copy_to_device(address_of(to), from, bytes);
  else
    std::memcpy(to, from, bytes);
}

template <class S>
std::vector<S> read_matrix(const Matrix& matrix) {
  const std::size_t bytes = bytes_of(matrix.type), rows = as_size(matrix.rows), cols = as_size(matrix.cols);
  const std::size_t ld = std::max<std::size_t>(rows, as_size(matrix.ld));
  std::vector<S> values(rows * cols);
  if (values.empty()) return values;
  const auto* const from = static_cast<const std::byte*>(matrix.data);
  // What lies between the columns is read, too, where it is little: one copy instead of many.
  const bool is_near = ld <= 4 * rows;
  std::vector<std::byte> raw(is_near ? ((cols - 1) * ld + rows) * bytes : rows * bytes);
  if (is_near) read_bytes(raw.data(), from, raw.size());
  if (is_near && ld == rows) {
    decode(raw.data(), matrix.type, values.data(), values.size());
    return values;
  }
  for (std::size_t j = 0; j < cols; ++j) {
    if (!is_near) read_bytes(raw.data(), from + j * ld * bytes, raw.size());
    decode(raw.data() + (is_near ? j * ld * bytes : 0), matrix.type, values.data() + j * rows, rows);
  }
  return values;
}

template <class S>
void write_matrix(const Matrix& to, const std::vector<S>& values) {
  const std::size_t bytes = bytes_of(to.type), rows = as_size(to.rows), cols = as_size(to.cols);
  const std::size_t ld = std::max<std::size_t>(rows, as_size(to.ld));
  if (values.empty()) return;
  std::vector<std::byte> raw(values.size() * bytes);
  encode(values.data(), to.type, raw.data(), values.size());
  auto* const at = static_cast<std::byte*>(const_cast<void*>(to.data));
  if (ld == rows) return write_bytes(at, raw.data(), raw.size());
  for (std::size_t j = 0; j < cols; ++j) write_bytes(at + j * ld * bytes, raw.data() + j * rows * bytes, rows * bytes);
}

template <class S>
void write_triangle(const Matrix& to, const std::vector<S>& values, bool is_upper) {
  for (std::int64_t j = 0; j < to.cols; ++j) {
    const std::int64_t first = is_upper ? 0 : j, last = is_upper ? std::min(j + 1, to.rows) : to.rows;
    if (first >= last) continue;
    const auto* const at = static_cast<const std::byte*>(to.data) + as_size(j * to.ld + first) * bytes_of(to.type);
    const S* const column = values.data() + j * to.rows;
    write_matrix<S>({at, to.type, last - first, 1, last - first}, std::vector<S>(column + first, column + last));
  }
}

template <class S>
void add_product(const std::vector<S>& a, const std::vector<S>& b, std::vector<S>& c, std::int64_t m, std::int64_t n,
                 std::int64_t k) {
  const std::size_t rows = as_size(m), cols = as_size(n), depth = as_size(k);
  constexpr std::size_t kBlock = 256;  // rows whose four columns stay in the first cache
  for (std::size_t i = 0; i < rows; i += kBlock) {
    const std::size_t count = std::min(kBlock, rows - i);
    std::size_t j = 0;
    if constexpr (std::is_same_v<S, double>)
      for (; j + 4 <= cols; j += 4)
        add_columns(a.data() + i, b.data() + j * depth, c.data() + j * rows + i, rows, depth, count, depth);
    for (; j < cols; ++j)
      for (std::size_t p = 0; p < depth; ++p)
        for (std::size_t r = i; r < i + count; ++r) c[j * rows + r] += a[p * rows + r] * b[j * depth + p];
  }
}

template <class S>
std::vector<S> transposed(const std::vector<S>& values, std::int64_t rows, std::int64_t cols, bool conjugates) {
  std::vector<S> turned(values.size());
  for (std::size_t j = 0; j < as_size(cols); ++j)
    for (std::size_t i = 0; i < as_size(rows); ++i) {
      const S value = values[j * as_size(rows) + i];
      turned[i * as_size(cols) + j] = conjugates ? conjugate(value) : value;
    }
  return turned;
}

#define TESSERA_FOR(S)                                                                                                 \
  template std::vector<S> read_matrix(const Matrix&);                                                                  \
  template void write_matrix(const Matrix&, const std::vector<S>&);                                                    \
  template void write_triangle(const Matrix&, const std::vector<S>&, bool);                                            \
  template void add_product(const std::vector<S>&, const std::vector<S>&, std::vector<S>&, std::int64_t, std::int64_t, \
                            std::int64_t);                                                                             \
  template std::vector<S> transposed(const std::vector<S>&, std::int64_t, std::int64_t, bool);
TESSERA_FOR(double)
TESSERA_FOR(Complex)
#undef TESSERA_FOR

}  // namespace tessera::guest
