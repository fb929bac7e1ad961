// The stand-ins for cuBLAS and cuBLASLt against sums in double on the host: every form of product, transposes, types,
// batches, vectors with steps, triangles, scalars of both sides, captured calls. Random inputs; outputs are poisoned.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

static int failures = 0;
static std::mt19937 engine(4711);
static double draw() { return std::uniform_real_distribution<double>(-1, 1)(engine); }

static void expect(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("FAIL %s\n", what);
  ++failures;
}
#define EXPECT(x) expect((x) == 0, #x)

template <class T>
static double of(T x) {
  return static_cast<double>(static_cast<float>(x));
}
template <>
double of(double x) {
  return x;
}
template <class T>
static double unit() {  // of the last place
  return sizeof(T) == 8 ? 0x1p-53 : sizeof(T) == 4 ? 0x1p-24 : std::is_same_v<T, __half> ? 0x1p-11 : 0x1p-8;
}

// On the device, and a copy of it here.
template <class T>
struct Array {
  T* device = nullptr;
  std::vector<T> host;
  explicit Array(std::size_t count, bool poisons = false) : host(count) {
    for (T& value : host) value = poisons ? static_cast<T>(NAN) : static_cast<T>(draw());
    cudaMalloc(&device, count * sizeof(T));
    cudaMemcpy(device, host.data(), count * sizeof(T), cudaMemcpyHostToDevice);
  }
  ~Array() { cudaFree(device); }
  std::vector<T> result() const {
    std::vector<T> now(host.size());
    cudaMemcpy(now.data(), device, now.size() * sizeof(T), cudaMemcpyDeviceToHost);
    return now;
  }
};

// c = alpha * op(a) * op(b) + beta * c, checked in every element; what lies between the columns stays.
template <class A, class C, class Call>
static void check_product(const char* name, bool turns_a, bool turns_b, double alpha, double beta, Call call) {
  const int m = 37, n = 21, k = 45, lda = (turns_a ? k : m) + 3, ldb = (turns_b ? n : k) + 1, ldc = m + 5;
  Array<A> a(lda * (turns_a ? m : k)), b(ldb * (turns_b ? k : n));
  Array<C> c(ldc * n, beta == 0);
  call(turns_a ? CUBLAS_OP_T : CUBLAS_OP_N, turns_b ? CUBLAS_OP_T : CUBLAS_OP_N, m, n, k, a.device, lda, b.device, ldb,
       c.device, ldc);
  const std::vector<C> now = c.result();
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < ldc; ++i) {
      const C before = c.host[j * ldc + i];
      if (i >= m) {
        expect(std::memcmp(&now[j * ldc + i], &before, sizeof(C)) == 0, name);
        continue;
      }
      double sum = 0;
      for (int p = 0; p < k; ++p)
        sum += of(a.host[turns_a ? i * lda + p : p * lda + i]) * of(b.host[turns_b ? p * ldb + j : j * ldb + p]);
      sum = alpha * sum + (beta == 0 ? 0 : beta * of(before));
      const double found = of(now[j * ldc + i]);
      if (!(std::fabs(found - sum) <= std::fabs(sum) * unit<C>() + 1e-14)) {
        std::printf("%s: %d, %d is %.17g, not %.17g\n", name, i, j, found, sum);
        expect(false, name);
        return;
      }
    }
}

static void products(cublasHandle_t handle) {
  for (int which = 0; which < 4; ++which) {
    const bool ta = which & 1, tb = which & 2;
    const double alpha = 1.5, beta = ta ? 0 : -0.25;
    check_product<float, float>(
        "Sgemm", ta, tb, alpha, beta,
        [&](auto opa, auto opb, int m, int n, int k, auto a, int lda, auto b, int ldb, auto c, int ldc) {
          const float x = alpha, y = beta;
          EXPECT(cublasSgemm(handle, opa, opb, m, n, k, &x, a, lda, b, ldb, &y, c, ldc));
        });
    check_product<double, double>(
        "Dgemm", ta, tb, alpha, beta,
        [&](auto opa, auto opb, int m, int n, int k, auto a, int lda, auto b, int ldb, auto c, int ldc) {
          EXPECT(cublasDgemm(handle, opa, opb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc));
        });
    check_product<__half, __half>(
        "Hgemm", ta, tb, alpha, beta,
        [&](auto opa, auto opb, int m, int n, int k, auto a, int lda, auto b, int ldb, auto c, int ldc) {
          const __half x = alpha, y = beta;
          EXPECT(cublasHgemm(handle, opa, opb, m, n, k, &x, a, lda, b, ldb, &y, c, ldc));
        });
    check_product<__nv_bfloat16, float>(
        "GemmEx", ta, tb, alpha, beta,
        [&](auto opa, auto opb, int m, int n, int k, auto a, int lda, auto b, int ldb, auto c, int ldc) {
          const float x = alpha, y = beta;
          EXPECT(cublasGemmEx(handle, opa, opb, m, n, k, &x, a, CUDA_R_16BF, lda, b, CUDA_R_16BF, ldb, &y, c,
                              CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
        });
    check_product<float, float>(
        "Lt", ta, tb, alpha, beta,
        [&](auto opa, auto opb, int m, int n, int k, auto a, int lda, auto b, int ldb, auto c, int ldc) {
          const float x = alpha, y = beta;
          cublasLtHandle_t lt;
          cublasLtMatmulDesc_t description;
          cublasLtMatrixLayout_t la, lb, lc;
          EXPECT(cublasLtCreate(&lt));
          EXPECT(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
          EXPECT(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &opa, sizeof(opa)));
          EXPECT(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSB, &opb, sizeof(opb)));
          EXPECT(
              cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, opa == CUBLAS_OP_N ? m : k, opa == CUBLAS_OP_N ? k : m, lda));
          EXPECT(
              cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, opb == CUBLAS_OP_N ? k : n, opb == CUBLAS_OP_N ? n : k, ldb));
          EXPECT(cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, m, n, ldc));
          EXPECT(cublasLtMatmul(lt, description, &x, a, la, b, lb, &y, c, lc, c, lc, nullptr, nullptr, 0, nullptr));
          EXPECT(cublasLtDestroy(lt));
        });
  }
}

static void batches(cublasHandle_t handle) {
  const int m = 9, count = 5;
  Array<float> a(m * m * count), b(m * m * count), c(m * m * count, true), d(m * m * count, true);
  const float one = 1, zero = 0;
  EXPECT(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, m, m, &one, a.device, m, m * m, b.device, m,
                                   m * m, &zero, c.device, m, m * m, count));
  float *pointers[3][count], **device;
  for (int i = 0; i < count; ++i) {
    pointers[0][i] = a.device + i * m * m;
    pointers[1][i] = b.device + i * m * m;
    pointers[2][i] = d.device + i * m * m;
  }
  cudaMalloc(&device, sizeof(pointers));
  cudaMemcpy(device, pointers, sizeof(pointers), cudaMemcpyHostToDevice);
  EXPECT(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, m, m, &one, device, m, device + count, m, &zero,
                            device + 2 * count, m, count));
  const auto first = c.result(), second = d.result();
  for (int i = 0; i < m * m * count; ++i) {
    double sum = 0;
    for (int p = 0; p < m; ++p) sum += of(a.host[i / (m * m) * m * m + p * m + i % m]) * of(b.host[i / m * m + p]);
    expect(std::fabs(of(first[i]) - sum) <= 1e-6 && first[i] == second[i], "batches");
  }
  // LU: what is solved, multiplied again.
  int *pivots, *info, host_info = 1;
  cudaMalloc(&pivots, m * count * sizeof(int));
  cudaMalloc(&info, count * sizeof(int));
  EXPECT(cublasSgetrfBatched(handle, m, device, m, pivots, info, count));
  EXPECT(cublasSgetrsBatched(handle, CUBLAS_OP_N, m, m, device, m, pivots, device + count, m, &host_info, count));
  const auto solved = b.result();
  double worst = 0;
  for (int i = 0; i < m * m * count; ++i) {
    double sum = 0;
    for (int p = 0; p < m; ++p) sum += of(a.host[i / (m * m) * m * m + p * m + i % m]) * of(solved[i / m * m + p]);
    worst = std::fmax(worst, std::fabs(sum - of(b.host[i])));
  }
  expect(host_info == 0 && worst < 1e-3, "LU");
  cudaFree(device), cudaFree(pivots), cudaFree(info);
}

static void vectors(cublasHandle_t handle) {
  const int n = 1000;
  Array<float> x(2 * n), y(3 * n), on_device(4, true);
  float dot = NAN, norm = NAN, sum = NAN;
  int place = -1;
  EXPECT(cublasSdot(handle, n, x.device, 2, y.device, -3, &dot));
  EXPECT(cublasSnrm2(handle, n, x.device, 2, &norm));
  EXPECT(cublasSasum(handle, n, x.device, 2, &sum));
  EXPECT(cublasIsamax(handle, n, x.device, 2, &place));
  double want_dot = 0, want_norm = 0, want_sum = 0;
  int want_place = 0;
  for (int i = 0; i < n; ++i) {
    const double value = of(x.host[2 * i]);
    want_dot += value * of(y.host[3 * (n - 1 - i)]);
    want_norm += value * value;
    want_sum += std::fabs(value);
    if (std::fabs(value) > std::fabs(of(x.host[2 * want_place]))) want_place = i;
  }
  expect(std::fabs(dot - want_dot) < 1e-5 && std::fabs(norm - std::sqrt(want_norm)) < 1e-5, "dot, nrm2");
  expect(std::fabs(sum - want_sum) < 1e-3 && place == want_place + 1, "asum, amax");
  // Captured, with a factor on the device that changes before the launch.
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t ready;
  float factor = 3;
  cudaStreamCreate(&stream);
  cublasSetStream(handle, stream);
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE);
  cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
  EXPECT(cublasSaxpy(handle, n, on_device.device, x.device, 2, y.device, 3));
  cudaStreamEndCapture(stream, &graph);
  EXPECT(cudaGraphInstantiate(&ready, graph, 0));
  expect(y.result()[0] == y.host[0], "a captured call does not run");
  cudaMemcpy(on_device.device, &factor, sizeof(factor), cudaMemcpyHostToDevice);
  EXPECT(cudaGraphLaunch(ready, stream));
  const auto now = y.result();
  for (int i = 0; i < 3 * n; ++i) {
    const double want = of(y.host[i]) + (i % 3 == 0 ? 3 * of(x.host[i / 3 * 2]) : 0);
    expect(std::fabs(of(now[i]) - want) <= 1e-6, "axpy in a graph");
  }
  cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST);
  cublasSetStream(handle, nullptr);
}

static void triangles(cublasHandle_t handle) {
  const int m = 12, n = 7;
  for (int which = 0; which < 16; ++which) {
    const bool is_left = which & 1, is_upper = which & 2, turns = which & 4, is_unit = which & 8;
    const int order = is_left ? m : n;
    Array<double> a(order * order), b(m * n), c(m * n, true);
    for (int i = 0; i < order; ++i) a.host[i * order + i] += 4;
    cudaMemcpy(a.device, a.host.data(), a.host.size() * 8, cudaMemcpyHostToDevice);
    const auto side = is_left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT;
    const auto fill = is_upper ? CUBLAS_FILL_MODE_UPPER : CUBLAS_FILL_MODE_LOWER;
    const auto op = turns ? CUBLAS_OP_T : CUBLAS_OP_N;
    const auto diagonal = is_unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
    const double alpha = 2, half = 0.5;
    EXPECT(cublasDtrmm(handle, side, fill, op, diagonal, m, n, &alpha, a.device, order, b.device, m, c.device, m));
    const auto at = [&](int i, int j) {
      if (turns) std::swap(i, j);
      return i == j ? (is_unit ? 1 : a.host[j * order + i]) : (i < j) == is_upper ? a.host[j * order + i] : 0;
    };
    const auto multiplied = c.result();
    for (int j = 0; j < n; ++j)
      for (int i = 0; i < m; ++i) {
        double sum = 0;
        for (int p = 0; p < order; ++p) sum += is_left ? at(i, p) * b.host[j * m + p] : b.host[p * m + i] * at(p, j);
        expect(std::fabs(multiplied[j * m + i] - 2 * sum) < 1e-12, "trmm");
      }
    EXPECT(cublasDtrsm(handle, side, fill, op, diagonal, m, n, &half, a.device, order, c.device, m));
    const auto back = c.result();
    for (int i = 0; i < m * n; ++i) expect(std::fabs(back[i] - b.host[i]) < 1e-9, "trsm");
  }
}

int main() {
  cublasHandle_t handle;
  EXPECT(cublasCreate(&handle));
  products(handle);
  batches(handle);
  vectors(handle);
  triangles(handle);
  const float one = 1;
  expect(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, nullptr, 2, nullptr, 4, &one, nullptr, 4) ==
             CUBLAS_STATUS_INVALID_VALUE,
         "a leading dimension that is too small is refused");
  expect(cublasSspr(handle, CUBLAS_FILL_MODE_LOWER, 1, &one, nullptr, 1, nullptr) == CUBLAS_STATUS_NOT_SUPPORTED,
         "what is missing says so");
  EXPECT(cublasDestroy(handle));
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
