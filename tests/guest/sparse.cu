// The stand-in for cuSPARSE against sums in double on the host: random matrices with empty rows, one based indices,
// formats there and back, products with both orders and transposes, triangular systems, sparse results.
#include <cusparse.h>

#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

static int failures = 0;
static std::mt19937 engine(815);
static double draw() { return std::uniform_real_distribution<double>(-1, 1)(engine); }
static void expect(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("FAIL %s\n", what);
  ++failures;
}
#define EXPECT(x) expect((x) == CUSPARSE_STATUS_SUCCESS, #x)

template <class T>
struct Array {
  T* device = nullptr;
  std::size_t count;
  explicit Array(const std::vector<T>& host) : count(host.size()) {
    cudaMalloc(&device, count * sizeof(T) + 1);
    cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Array() { cudaFree(device); }
  std::vector<T> result() const {
    std::vector<T> now(count);
    cudaMemcpy(now.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost);
    return now;
  }
};

// A dense matrix by columns with many zeros, and its CSR form.
struct Csr {
  int rows, cols;
  std::vector<double> dense, values;
  std::vector<int> offsets, indices;
  Csr(int m, int n, int base, bool has_diagonal = false) : rows(m), cols(n), dense(m * n) {
    for (int i = 0; i < m; ++i) {
      offsets.push_back(static_cast<int>(values.size()) + base);
      for (int j = 0; j < n; ++j) {
        double value = i % 7 != 3 && draw() > 0.5 ? draw() : 0;
        if (has_diagonal && i == j) value = 4 + draw();
        if (value == 0) continue;
        dense[j * m + i] = value;
        values.push_back(value);
        indices.push_back(j + base);
      }
    }
    offsets.push_back(static_cast<int>(values.size()) + base);
  }
};

static std::vector<double> random(int count) {
  std::vector<double> values(count);
  for (double& value : values) value = draw();
  return values;
}
static void near(const std::vector<double>& found, const std::vector<double>& want, const char* what,
                 double error = 1e-12) {
  bool is_near = found.size() == want.size();
  for (std::size_t i = 0; is_near && i < want.size(); ++i) is_near = std::fabs(found[i] - want[i]) <= error;
  expect(is_near, what);
}

static void products(cusparseHandle_t handle, int base, bool turns, bool by_rows) {
  const int m = 23, n = 17, k = 5;
  const auto op = turns ? CUSPARSE_OPERATION_TRANSPOSE : CUSPARSE_OPERATION_NON_TRANSPOSE;
  const auto index_base = base ? CUSPARSE_INDEX_BASE_ONE : CUSPARSE_INDEX_BASE_ZERO;
  const Csr csr(m, n, base);
  const int in = turns ? m : n, out = turns ? n : m;
  const auto at = [&](int i, int j) { return turns ? csr.dense[i * m + j] : csr.dense[j * m + i]; };
  Array<int> offsets(csr.offsets), indices(csr.indices);
  Array<double> values(csr.values);
  cusparseSpMatDescr_t matrix;
  EXPECT(cusparseCreateCsr(&matrix, m, n, csr.values.size(), offsets.device, indices.device, values.device,
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, index_base, CUDA_R_64F));
  const double alpha = 1.5, beta = -0.5;
  const auto x = random(in * k), y = random(out * k);
  Array<double> from(x), to(y), vector(y), buffer(random(1000));
  cusparseDnVecDescr_t vx, vy;
  EXPECT(cusparseCreateDnVec(&vx, in, from.device, CUDA_R_64F));
  EXPECT(cusparseCreateDnVec(&vy, out, vector.device, CUDA_R_64F));
  EXPECT(cusparseSpMV(handle, op, &alpha, matrix, vx, &beta, vy, CUDA_R_64F, CUSPARSE_SPMV_ALG_DEFAULT, buffer.device));
  std::vector<double> want = y;
  for (int i = 0; i < out; ++i) {
    want[i] *= beta;
    for (int j = 0; j < in; ++j) want[i] += alpha * at(i, j) * x[j];
  }
  near(vector.result(), want, "SpMV");

  const auto order = by_rows ? CUSPARSE_ORDER_ROW : CUSPARSE_ORDER_COL;
  cusparseDnMatDescr_t mb, mc;
  EXPECT(cusparseCreateDnMat(&mb, in, k, by_rows ? k : in, from.device, CUDA_R_64F, order));
  EXPECT(cusparseCreateDnMat(&mc, out, k, by_rows ? k : out, to.device, CUDA_R_64F, order));
  EXPECT(cusparseSpMM(handle, op, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, matrix, mb, &beta, mc, CUDA_R_64F,
                      CUSPARSE_SPMM_ALG_DEFAULT, buffer.device));
  want = y;
  for (int c = 0; c < k; ++c)
    for (int i = 0; i < out; ++i) {
      double& element = want[by_rows ? i * k + c : c * out + i];
      element *= beta;
      for (int j = 0; j < in; ++j) element += alpha * at(i, j) * x[by_rows ? j * k + c : c * in + j];
    }
  near(to.result(), want, "SpMM");
  cusparseDestroyDnMat(mb), cusparseDestroyDnMat(mc), cusparseDestroyDnVec(vx), cusparseDestroyDnVec(vy);
  cusparseDestroySpMat(matrix);
}

static void triangles(cusparseHandle_t handle, bool is_upper, bool turns, bool is_unit) {
  const int n = 19;
  const Csr csr(n, n, 0, true);
  Array<int> offsets(csr.offsets), indices(csr.indices);
  Array<double> values(csr.values), y(random(n)), buffer(random(1000));
  const auto x = random(n);
  Array<double> from(x);
  cusparseSpMatDescr_t matrix;
  cusparseDnVecDescr_t vx, vy;
  cusparseSpSVDescr_t state;
  EXPECT(cusparseCreateCsr(&matrix, n, n, csr.values.size(), offsets.device, indices.device, values.device,
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
  cusparseFillMode_t fill = is_upper ? CUSPARSE_FILL_MODE_UPPER : CUSPARSE_FILL_MODE_LOWER;
  cusparseDiagType_t diagonal = is_unit ? CUSPARSE_DIAG_TYPE_UNIT : CUSPARSE_DIAG_TYPE_NON_UNIT;
  EXPECT(cusparseSpMatSetAttribute(matrix, CUSPARSE_SPMAT_FILL_MODE, &fill, sizeof(fill)));
  EXPECT(cusparseSpMatSetAttribute(matrix, CUSPARSE_SPMAT_DIAG_TYPE, &diagonal, sizeof(diagonal)));
  EXPECT(cusparseCreateDnVec(&vx, n, from.device, CUDA_R_64F));
  EXPECT(cusparseCreateDnVec(&vy, n, y.device, CUDA_R_64F));
  EXPECT(cusparseSpSV_createDescr(&state));
  const double alpha = 2;
  const auto op = turns ? CUSPARSE_OPERATION_TRANSPOSE : CUSPARSE_OPERATION_NON_TRANSPOSE;
  EXPECT(cusparseSpSV_analysis(handle, op, &alpha, matrix, vx, vy, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT, state,
                               buffer.device));
  EXPECT(cusparseSpSV_solve(handle, op, &alpha, matrix, vx, vy, CUDA_R_64F, CUSPARSE_SPSV_ALG_DEFAULT, state));
  const auto solved = y.result();
  std::vector<double> back(n), want(n);
  for (int i = 0; i < n; ++i) {
    want[i] = alpha * x[i];
    for (int j = 0; j < n; ++j) {
      const int row = turns ? j : i, col = turns ? i : j;
      const double element = row == col                ? (is_unit ? 1 : csr.dense[col * n + row])
                             : (col > row) == is_upper ? csr.dense[col * n + row]
                                                       : 0;
      back[i] += element * solved[j];
    }
  }
  double size = 1;
  for (const double value : solved) size = std::fmax(size, std::fabs(value));
  near(back, want, "SpSV", 1e-10 * size);
}

static void formats(cusparseHandle_t handle) {
  const int m = 14, n = 11;
  const Csr csr(m, n, 0), other(n, m, 0);
  Array<double> dense(csr.dense), back(std::vector<double>(m * n, NAN)), values(random(csr.values.size()));
  Array<int> offsets(std::vector<int>(m + 1, -1)), indices(std::vector<int>(csr.values.size(), -1));
  Array<double> buffer(random(1000));
  cusparseDnMatDescr_t from, to;
  cusparseSpMatDescr_t matrix;
  EXPECT(cusparseCreateDnMat(&from, m, n, m, dense.device, CUDA_R_64F, CUSPARSE_ORDER_COL));
  EXPECT(cusparseCreateDnMat(&to, m, n, m, back.device, CUDA_R_64F, CUSPARSE_ORDER_COL));
  EXPECT(cusparseCreateCsr(&matrix, m, n, 0, offsets.device, nullptr, nullptr, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                           CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
  EXPECT(cusparseDenseToSparse_analysis(handle, from, matrix, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer.device));
  int64_t rows = 0, cols = 0, count = 0;
  EXPECT(cusparseSpMatGetSize(matrix, &rows, &cols, &count));
  expect(count == static_cast<int64_t>(csr.values.size()), "the number of elements");
  EXPECT(cusparseCsrSetPointers(matrix, offsets.device, indices.device, values.device));
  EXPECT(cusparseDenseToSparse_convert(handle, from, matrix, CUSPARSE_DENSETOSPARSE_ALG_DEFAULT, buffer.device));
  expect(offsets.result() == csr.offsets && indices.result() == csr.indices && values.result() == csr.values,
         "dense to sparse");
  EXPECT(cusparseSparseToDense(handle, matrix, to, CUSPARSE_SPARSETODENSE_ALG_DEFAULT, buffer.device));
  expect(back.result() == csr.dense, "sparse to dense");

  Array<double> turned(random(csr.values.size()));
  Array<int> begins(std::vector<int>(n + 1, -1)), places(std::vector<int>(csr.values.size(), -1));
  EXPECT(cusparseCsr2cscEx2(handle, m, n, csr.values.size(), values.device, offsets.device, indices.device,
                            turned.device, begins.device, places.device, CUDA_R_64F, CUSPARSE_ACTION_NUMERIC,
                            CUSPARSE_INDEX_BASE_ZERO, CUSPARSE_CSR2CSC_ALG1, buffer.device));
  const auto of = begins.result(), row = places.result();
  const auto value = turned.result();
  bool is_right = true;
  for (int j = 0; j < n; ++j)
    for (int i = of[j]; i < of[j + 1]; ++i) is_right = is_right && csr.dense[j * m + row[i]] == value[i];
  expect(is_right && of[n] == static_cast<int>(csr.values.size()), "csr2csc");

  // Sparse times sparse.
  Array<int> o2(other.offsets), i2(other.indices), o3(std::vector<int>(m + 1, -1));
  Array<double> v2(other.values);
  cusparseSpMatDescr_t b, c;
  cusparseSpGEMMDescr_t state;
  EXPECT(cusparseCreateCsr(&b, n, m, other.values.size(), o2.device, i2.device, v2.device, CUSPARSE_INDEX_32I,
                           CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
  EXPECT(cusparseCreateCsr(&c, m, m, 0, o3.device, nullptr, nullptr, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                           CUSPARSE_INDEX_BASE_ZERO, CUDA_R_64F));
  EXPECT(cusparseSpGEMM_createDescr(&state));
  const double one = 1, zero = 0;
  const auto op = CUSPARSE_OPERATION_NON_TRANSPOSE;
  std::size_t bytes = 0;
  EXPECT(cusparseSpGEMM_compute(handle, op, op, &one, matrix, b, &zero, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, state,
                                &bytes, nullptr));
  expect(bytes != 0, "a buffer is asked for");
  EXPECT(cusparseSpGEMM_compute(handle, op, op, &one, matrix, b, &zero, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, state,
                                &bytes, buffer.device));
  EXPECT(cusparseSpMatGetSize(c, &rows, &cols, &count));
  Array<int> i3(std::vector<int>(count, -1));
  Array<double> v3(random(count));
  EXPECT(cusparseCsrSetPointers(c, o3.device, i3.device, v3.device));
  EXPECT(cusparseSpGEMM_copy(handle, op, op, &one, matrix, b, &zero, c, CUDA_R_64F, CUSPARSE_SPGEMM_DEFAULT, state));
  std::vector<double> product(m * m), want(m * m);
  const auto ends = o3.result(), at = i3.result();
  const auto sums = v3.result();
  for (int i = 0; i < m; ++i)
    for (int e = ends[i]; e < ends[i + 1]; ++e) product[at[e] * m + i] = sums[e];
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < m; ++j)
      for (int p = 0; p < n; ++p) want[j * m + i] += csr.dense[p * m + i] * other.dense[j * n + p];
  near(product, want, "SpGEMM");

  // The same products where the result's pattern is given.
  Array<double> right(other.dense);
  cusparseDnMatDescr_t second;
  EXPECT(cusparseCreateDnMat(&second, n, m, n, right.device, CUDA_R_64F, CUSPARSE_ORDER_COL));
  const double half = 0.5;
  EXPECT(cusparseSDDMM(handle, op, op, &one, from, second, &half, c, CUDA_R_64F, CUSPARSE_SDDMM_ALG_DEFAULT,
                       buffer.device));
  const auto sampled = v3.result();
  for (std::size_t e = 0; e < sampled.size(); ++e) expect(std::fabs(sampled[e] - 1.5 * sums[e]) < 1e-12, "SDDMM");
}

int main() {
  cusparseHandle_t handle;
  EXPECT(cusparseCreate(&handle));
  for (int which = 0; which < 8; ++which) {
    products(handle, which & 1, which & 2, which & 4);
    triangles(handle, which & 1, which & 2, which & 4);
  }
  formats(handle);
  EXPECT(cusparseDestroy(handle));
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
