// The stand-in for cuBLAS: matrices and vectors (level 2), sums, triangles and symmetric matrices, LU of small ones.
#include <cmath>
#include <utility>

#include "guest/stand_ins/blas.h"

using namespace tessera::guest;

namespace {

using Int = std::int64_t;

std::size_t at(Int row, Int col, Int rows) { return static_cast<std::size_t>(col * rows + row); }

template <class S>
void gemv(cublasOperation_t op, Int m, Int n, S alpha, const Matrix& matrix, const void* x, Int incx, S beta, void* y,
          Int incy) {
  const Int rows = transposes(op) ? n : m, cols = transposes(op) ? m : n;
  std::vector<S> sums(static_cast<std::size_t>(rows));
  if (alpha != S{}) {
    const std::vector<S> a = read_operand<S>(op, matrix.data, matrix.type, rows, cols, matrix.ld);
    add_product(a, read_vector<S>(x, matrix.type, cols, incx), sums, rows, 1, cols);
  }
  for (S& sum : sums) sum *= alpha;
  if (beta != S{}) {
    const std::vector<S> old = read_vector<S>(y, matrix.type, rows, incy);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += beta * old[i];
  }
  write_vector(y, matrix.type, incy, std::move(sums));
}

/// A whole square matrix of what is stored of it: one triangle, mirrored or with zeros beside.
template <class S>
std::vector<S> whole_of(const Matrix& stored, bool is_upper, bool mirrors, bool has_unit_diagonal) {
  std::vector<S> values = read_matrix<S>(stored);
  const Int n = stored.rows;
  for (Int j = 0; j < n; ++j) {
    for (Int i = 0; i < n; ++i)
      if (i != j && (i < j) != is_upper) values[at(i, j, n)] = mirrors ? values[at(j, i, n)] : S{};
    if (has_unit_diagonal) values[at(j, j, n)] = 1;
  }
  return values;
}

// x of t * x = b for each column of b; t is a triangle.
template <class S>
void solve(const std::vector<S>& t, bool is_upper, Int n, std::vector<S>& b, Int cols) {
  for (Int j = 0; j < cols; ++j)
    for (Int step = 0; step < n; ++step) {
      const Int i = is_upper ? n - 1 - step : step;
      const S x = b[at(i, j, n)] /= t[at(i, i, n)];
      for (Int r = is_upper ? 0 : i + 1; r < (is_upper ? i : n); ++r) b[at(r, j, n)] -= t[at(r, i, n)] * x;
    }
}

struct Triangle {
  cublasSideMode_t side = CUBLAS_SIDE_LEFT;
  bool is_upper = false;
  cublasOperation_t operation = CUBLAS_OP_N;
  bool has_unit_diagonal = false;
};

// op(t), and whether it is an upper triangle.
template <class S>
std::pair<std::vector<S>, bool> read_triangle(const Triangle& triangle, const Matrix& stored) {
  std::vector<S> t = whole_of<S>(stored, triangle.is_upper, false, triangle.has_unit_diagonal);
  if (!transposes(triangle.operation)) return {std::move(t), triangle.is_upper};
  return {transposed(t, stored.rows, stored.rows, triangle.operation == CUBLAS_OP_C), !triangle.is_upper};
}

// c = alpha * op(t)^-1 * b, or on the right; with `multiplies` alpha * op(t) * b.
template <class S>
void by_triangle(const Triangle& triangle, S alpha, const Matrix& stored, const Matrix& b, const Matrix& c,
                 bool multiplies) {
  auto [t, is_upper] = read_triangle<S>(triangle, stored);
  std::vector<S> values = read_matrix<S>(b);
  for (S& value : values) value *= alpha;
  const bool is_left = triangle.side == CUBLAS_SIDE_LEFT;
  Int cols = b.cols;
  if (!is_left) {  // b * t is (t' * b')'
    t = transposed(t, stored.rows, stored.rows, false);
    values = transposed(values, b.rows, b.cols, false);
    is_upper = !is_upper;
    cols = b.rows;
  }
  if (multiplies) {
    std::vector<S> sums(values.size());
    add_product(t, values, sums, stored.rows, cols, stored.rows);
    values = std::move(sums);
  } else {
    solve(t, is_upper, stored.rows, values, cols);
  }
  write_matrix(c, is_left ? values : transposed(values, stored.rows, cols, false));
}

std::vector<double> scaled(std::vector<double> values, double by) {
  for (double& value : values) value *= by;
  return values;
}

// LU with partial pivoting, in place; rows are counted from 1. The result: the first column without a pivot, or 0.
template <class S>
int factor(std::vector<S>& a, Int n, std::vector<int>* pivots) {
  int info = 0;
  for (Int j = 0; j < n; ++j) {
    Int best = j;
    if (pivots != nullptr) {
      for (Int i = j + 1; i < n; ++i)
        if (std::abs(a[at(i, j, n)]) > std::abs(a[at(best, j, n)])) best = i;
      (*pivots)[static_cast<std::size_t>(j)] = static_cast<int>(best + 1);
      if (best != j)
        for (Int c = 0; c < n; ++c) std::swap(a[at(j, c, n)], a[at(best, c, n)]);
    }
    if (a[at(j, j, n)] == S{}) {
      if (info == 0) info = static_cast<int>(j + 1);
      continue;
    }
    for (Int i = j + 1; i < n; ++i) a[at(i, j, n)] /= a[at(j, j, n)];
    for (Int c = j + 1; c < n; ++c)
      for (Int i = j + 1; i < n; ++i) a[at(i, c, n)] -= a[at(i, j, n)] * a[at(j, c, n)];
  }
  return info;
}

// b becomes a^-1 * b, of factors that `factor` made; op of a.
template <class S>
void solve_factored(std::vector<S> lu, Int n, const int* pivots, cublasOperation_t op, std::vector<S>& b, Int cols) {
  std::vector<S> lower(lu.size());
  for (Int j = 0; j < n; ++j) {
    lower[at(j, j, n)] = 1;
    for (Int i = j + 1; i < n; ++i) lower[at(i, j, n)] = std::exchange(lu[at(i, j, n)], S{});
  }
  const auto exchange = [&](Int j) {
    if (pivots == nullptr || pivots[j] == j + 1) return;
    for (Int c = 0; c < cols; ++c) std::swap(b[at(j, c, n)], b[at(pivots[j] - 1, c, n)]);
  };
  if (!transposes(op)) {
    for (Int j = 0; j < n; ++j) exchange(j);
    solve(lower, false, n, b, cols);
    solve(lu, true, n, b, cols);
    return;
  }
  const bool conjugates = op == CUBLAS_OP_C;
  solve(transposed(lu, n, n, conjugates), false, n, b, cols);
  solve(transposed(lower, n, n, conjugates), true, n, b, cols);
  for (Int j = n - 1; j >= 0; --j) exchange(j);
}

}  // namespace

extern "C" {

#define TESSERA_LEVEL2(L, E, Suffix, I)                                                                                \
  cublasStatus_t cublas##L##gemv##Suffix(cublasHandle_t handle, cublasOperation_t op, I m, I n, const E* alpha,        \
                                         const E* a, I lda, const E* x, I incx, const E* beta, E* y, I incy) {         \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                                       \
    if (m < 0 || n < 0 || lda < std::max<I>(1, m) || incx == 0 || incy == 0) return CUBLAS_STATUS_INVALID_VALUE;       \
    using S = Kind<E>::Scalar;                                                                                         \
    const Factor<S> by(alpha, Kind<E>::kType), keep(beta, Kind<E>::kType);                                             \
    return blas("cublas" #L "gemv", handle, [=] {                                                                      \
      gemv<S>(op, m, n, by.value(), {a, Kind<E>::kType, m, n, lda}, x, incx, keep.value(), y, incy);                   \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##trsv##Suffix(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op,           \
                                         cublasDiagType_t diagonal, I n, const E* a, I lda, E* x, I incx) {            \
    using S = Kind<E>::Scalar;                                                                                         \
    return blas("cublas" #L "trsv", handle, [=] {                                                                      \
      const Triangle triangle{CUBLAS_SIDE_LEFT, fill == CUBLAS_FILL_MODE_UPPER, op, diagonal == CUBLAS_DIAG_UNIT};     \
      const auto [t, is_upper] = read_triangle<S>(triangle, {a, Kind<E>::kType, n, n, lda});                           \
      std::vector<S> values = read_vector<S>(x, Kind<E>::kType, n, incx);                                              \
      solve(t, is_upper, n, values, 1);                                                                                \
      write_vector(x, Kind<E>::kType, incx, std::move(values));                                                        \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##geam##Suffix(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, I m,   \
                                         I n, const E* alpha, const E* a, I lda, const E* beta, const E* b, I ldb,     \
                                         E* c, I ldc) {                                                                \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                                       \
    using S = Kind<E>::Scalar;                                                                                         \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                     \
    const Factor<S> by_a(alpha, kType), by_b(beta, kType);                                                             \
    return blas("cublas" #L "geam", handle, [=] {                                                                      \
      std::vector<S> sums(static_cast<std::size_t>(m) * static_cast<std::size_t>(n));                                  \
      const auto add = [&](S by, cublasOperation_t op, const E* from, I ld) {                                          \
        if (by == S{}) return;                                                                                         \
        const std::vector<S> values = read_operand<S>(op, from, kType, m, n, ld);                                      \
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += by * values[i];                                       \
      };                                                                                                               \
      add(by_a.value(), op_a, a, lda);                                                                                 \
      add(by_b.value(), op_b, b, ldb);                                                                                 \
      write_matrix<S>({c, kType, m, n, ldc}, sums);                                                                    \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##dgmm##Suffix(cublasHandle_t handle, cublasSideMode_t side, I m, I n, const E* a, I lda,    \
                                         const E* x, I incx, E* c, I ldc) {                                            \
    using S = Kind<E>::Scalar;                                                                                         \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                     \
    return blas("cublas" #L "dgmm", handle, [=] {                                                                      \
      const bool is_left = side == CUBLAS_SIDE_LEFT;                                                                   \
      std::vector<S> values = read_matrix<S>({a, kType, m, n, lda});                                                   \
      const std::vector<S> by = read_vector<S>(x, kType, is_left ? m : n, incx);                                       \
      for (Int j = 0; j < n; ++j)                                                                                      \
        for (Int i = 0; i < m; ++i) values[at(i, j, m)] *= by[static_cast<std::size_t>(is_left ? i : j)];              \
      write_matrix<S>({c, kType, m, n, ldc}, values);                                                                  \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##trsm##Suffix(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill,          \
                                         cublasOperation_t op, cublasDiagType_t diagonal, I m, I n, const E* alpha,    \
                                         const E* a, I lda, E* b, I ldb) {                                             \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                                       \
    using S = Kind<E>::Scalar;                                                                                         \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                     \
    const Factor<S> by(alpha, kType);                                                                                  \
    const Triangle triangle{side, fill == CUBLAS_FILL_MODE_UPPER, op, diagonal == CUBLAS_DIAG_UNIT};                   \
    const I order = side == CUBLAS_SIDE_LEFT ? m : n;                                                                  \
    return blas("cublas" #L "trsm", handle, [=] {                                                                      \
      const Matrix both{b, kType, m, n, ldb};                                                                          \
      by_triangle<S>(triangle, by.value(), {a, kType, order, order, lda}, both, both, false);                          \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##trmm##Suffix(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill,          \
                                         cublasOperation_t op, cublasDiagType_t diagonal, I m, I n, const E* alpha,    \
                                         const E* a, I lda, const E* b, I ldb, E* c, I ldc) {                          \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                                       \
    using S = Kind<E>::Scalar;                                                                                         \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                     \
    const Factor<S> by(alpha, kType);                                                                                  \
    const Triangle triangle{side, fill == CUBLAS_FILL_MODE_UPPER, op, diagonal == CUBLAS_DIAG_UNIT};                   \
    const I order = side == CUBLAS_SIDE_LEFT ? m : n;                                                                  \
    return blas("cublas" #L "trmm", handle, [=] {                                                                      \
      by_triangle<S>(triangle, by.value(), {a, kType, order, order, lda}, {b, kType, m, n, ldb},                       \
                     {c, kType, m, n, ldc}, true);                                                                     \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##symm##Suffix(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill, I m,     \
                                         I n, const E* alpha, const E* a, I lda, const E* b, I ldb, const E* beta,     \
                                         E* c, I ldc) {                                                                \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                                       \
    using S = Kind<E>::Scalar;                                                                                         \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                     \
    const Factor<S> by(alpha, kType), keep(beta, kType);                                                               \
    return blas("cublas" #L "symm", handle, [=] {                                                                      \
      const bool is_left = side == CUBLAS_SIDE_LEFT;                                                                   \
      const I order = is_left ? m : n;                                                                                 \
      const std::vector<S> whole =                                                                                     \
          whole_of<S>({a, kType, order, order, lda}, fill == CUBLAS_FILL_MODE_UPPER, true, false);                     \
      const std::vector<S> other = read_matrix<S>({b, kType, m, n, ldb});                                              \
      std::vector<S> sums(other.size());                                                                               \
      add_product(is_left ? whole : other, is_left ? other : whole, sums, m, n, order);                                \
      const S factor_of_sums = by.value();                                                                             \
      for (S & sum : sums) sum *= factor_of_sums;                                                                      \
      add_scaled<S>(sums, keep.value(), {c, kType, m, n, ldc});                                                        \
      write_matrix<S>({c, kType, m, n, ldc}, sums);                                                                    \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##syrk##Suffix(cublasHandle_t handle, cublasFillMode_t fill, cublasOperation_t op, I n, I k, \
                                         const E* alpha, const E* a, I lda, const E* beta, E* c, I ldc) {              \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                                       \
    using S = Kind<E>::Scalar;                                                                                         \
    constexpr cudaDataType kType = Kind<E>::kType;                                                                     \
    const Factor<S> by(alpha, kType), keep(beta, kType);                                                               \
    return blas("cublas" #L "syrk", handle, [=] {                                                                      \
      const cublasOperation_t other = transposes(op) ? CUBLAS_OP_N : CUBLAS_OP_T;                                      \
      const Operand first{a, kType, lda, op}, second{a, kType, lda, other};                                            \
      std::vector<S> sums = product_of<S>({n, n, k}, by.value(), first, second);                                       \
      add_scaled<S>(sums, keep.value(), {c, kType, n, n, ldc});                                                        \
      write_triangle<S>({c, kType, n, n, ldc}, sums, fill == CUBLAS_FILL_MODE_UPPER);                                  \
    });                                                                                                                \
  }
#define TESSERA_REAL(L, E, Suffix, I)                                                                          \
  cublasStatus_t cublas##L##symv##Suffix(cublasHandle_t handle, cublasFillMode_t fill, I n, const E* alpha,    \
                                         const E* a, I lda, const E* x, I incx, const E* beta, E* y, I incy) { \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                               \
    constexpr cudaDataType kType = Kind<E>::kType;                                                             \
    const Factor<double> by(alpha, kType), keep(beta, kType);                                                  \
    return blas("cublas" #L "symv", handle, [=] {                                                              \
      const std::vector<double> whole =                                                                        \
          whole_of<double>({a, kType, n, n, lda}, fill == CUBLAS_FILL_MODE_UPPER, true, false);                \
      std::vector<double> sums(static_cast<std::size_t>(n));                                                   \
      add_product(whole, read_vector<double>(x, kType, n, incx), sums, n, 1, n);                               \
      sums = scaled(std::move(sums), by.value());                                                              \
      const double old_by = keep.value();                                                                      \
      if (old_by != 0) add_product(read_vector<double>(y, kType, n, incy), {old_by}, sums, n, 1, 1);           \
      write_vector(y, kType, incy, std::move(sums));                                                           \
    });                                                                                                        \
  }                                                                                                            \
  cublasStatus_t cublas##L##ger##Suffix(cublasHandle_t handle, I m, I n, const E* alpha, const E* x, I incx,   \
                                        const E* y, I incy, E* a, I lda) {                                     \
    if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;                                               \
    constexpr cudaDataType kType = Kind<E>::kType;                                                             \
    const Factor<double> by(alpha, kType);                                                                     \
    return blas("cublas" #L "ger", handle, [=] {                                                               \
      const std::vector<double> u = read_vector<double>(x, kType, m, incx),                                    \
                                v = read_vector<double>(y, kType, n, incy);                                    \
      std::vector<double> values = read_matrix<double>({a, kType, m, n, lda});                                 \
      add_product(scaled(u, by.value()), v, values, m, n, 1);                                                  \
      write_matrix<double>({a, kType, m, n, lda}, values);                                                     \
    });                                                                                                        \
  }
#define TESSERA_ALL(Suffix, I)                  \
  TESSERA_LEVEL2(S, float, Suffix, I)           \
  TESSERA_LEVEL2(D, double, Suffix, I)          \
  TESSERA_LEVEL2(C, cuComplex, Suffix, I)       \
  TESSERA_LEVEL2(Z, cuDoubleComplex, Suffix, I) \
  TESSERA_REAL(S, float, Suffix, I)             \
  TESSERA_REAL(D, double, Suffix, I)
TESSERA_ALL(, int)
TESSERA_ALL(_64, std::int64_t)

// LU of many small matrices. `pivots` null: without exchanges.
#define TESSERA_LU(L, E)                                                                                               \
  cublasStatus_t cublas##L##getrfBatched(cublasHandle_t handle, int n, E* const a[], int lda, int* pivots, int* info,  \
                                         int count) {                                                                  \
    using S = Kind<E>::Scalar;                                                                                         \
    return blas("cublas" #L "getrfBatched", handle, [=] {                                                              \
      for (int i = 0; i < count; ++i) {                                                                                \
        const Matrix matrix{read_one(a + i), Kind<E>::kType, n, n, lda};                                               \
        std::vector<S> values = read_matrix<S>(matrix);                                                                \
        std::vector<int> exchanges(static_cast<std::size_t>(n));                                                       \
        const int bad = factor(values, n, pivots == nullptr ? nullptr : &exchanges);                                   \
        write_matrix(matrix, values);                                                                                  \
        if (pivots != nullptr) write_bytes(pivots + std::ptrdiff_t{i} * n, exchanges.data(), exchanges.size() * 4);    \
        write_bytes(info + i, &bad, sizeof(bad));                                                                      \
      }                                                                                                                \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##getrsBatched(cublasHandle_t handle, cublasOperation_t op, int n, int cols,                 \
                                         const E* const a[], int lda, const int* pivots, E* const b[], int ldb,        \
                                         int* info, int count) {                                                       \
    using S = Kind<E>::Scalar;                                                                                         \
    *info = 0;                                                                                                         \
    return blas("cublas" #L "getrsBatched", handle, [=] {                                                              \
      for (int i = 0; i < count; ++i) {                                                                                \
        std::vector<int> exchanges;                                                                                    \
        if (pivots != nullptr) exchanges = read_array(pivots + std::ptrdiff_t{i} * n, static_cast<std::size_t>(n));    \
        const Matrix to{read_one(b + i), Kind<E>::kType, n, cols, ldb};                                                \
        std::vector<S> values = read_matrix<S>(to);                                                                    \
        solve_factored(read_matrix<S>({read_one(a + i), Kind<E>::kType, n, n, lda}), n,                                \
                       pivots == nullptr ? nullptr : exchanges.data(), op, values, cols);                              \
        write_matrix(to, values);                                                                                      \
      }                                                                                                                \
    });                                                                                                                \
  }                                                                                                                    \
  cublasStatus_t cublas##L##getriBatched(cublasHandle_t handle, int n, const E* const a[], int lda, const int* pivots, \
                                         E* const c[], int ldc, int* info, int count) {                                \
    using S = Kind<E>::Scalar;                                                                                         \
    return blas("cublas" #L "getriBatched", handle, [=] {                                                              \
      for (int i = 0; i < count; ++i) {                                                                                \
        std::vector<int> exchanges;                                                                                    \
        if (pivots != nullptr) exchanges = read_array(pivots + std::ptrdiff_t{i} * n, static_cast<std::size_t>(n));    \
        std::vector<S> values(static_cast<std::size_t>(n) * static_cast<std::size_t>(n));                              \
        for (int j = 0; j < n; ++j) values[at(j, j, n)] = 1;                                                           \
        const std::vector<S> lu = read_matrix<S>({read_one(a + i), Kind<E>::kType, n, n, lda});                        \
        int bad = 0;                                                                                                   \
        for (int j = n - 1; j >= 0; --j)                                                                               \
          if (lu[at(j, j, n)] == S{}) bad = j + 1;                                                                     \
        if (bad == 0) {                                                                                                \
          solve_factored(lu, n, pivots == nullptr ? nullptr : exchanges.data(), CUBLAS_OP_N, values, n);               \
          write_matrix<S>({read_one(c + i), Kind<E>::kType, n, n, ldc}, values);                                       \
        }                                                                                                              \
        write_bytes(info + i, &bad, sizeof(bad));                                                                      \
      }                                                                                                                \
    });                                                                                                                \
  }
TESSERA_LU(S, float)
TESSERA_LU(D, double)
TESSERA_LU(C, cuComplex)
TESSERA_LU(Z, cuDoubleComplex)

}  // extern "C"
