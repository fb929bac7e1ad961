// The stand-in for cuBLASLt: products with strides of batches, scales and epilogues (bias, ReLU, GELU). Layouts are by
// columns or by rows. A description is kept inside of the opaque structs that a program may have on its own stack.
#include <cublasLt.h>

#include <cmath>

#include "guest/stand_ins/blas.h"
#include "tessera/error.h"

using namespace tessera::guest;

namespace {

// Attributes by number, each a value of up to 8 bytes; a struct has room for so many.
template <class Opaque>
struct Attributes {
  static constexpr std::size_t kRoom = sizeof(Opaque) / sizeof(std::uint64_t);
  static cublasStatus_t set(Opaque* opaque, int number, const void* from, std::size_t bytes) {
    if (opaque == nullptr || from == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
    if (number < 0 || static_cast<std::size_t>(number) >= kRoom || bytes > sizeof(std::uint64_t))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    opaque->data[number] = 0;
    std::memcpy(&opaque->data[number], from, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  static cublasStatus_t give(const Opaque* opaque, int number, void* to, std::size_t bytes, std::size_t* written) {
    if (opaque == nullptr || number < 0 || static_cast<std::size_t>(number) >= kRoom)
      return CUBLAS_STATUS_INVALID_VALUE;
    if (written != nullptr) *written = bytes == 0 ? sizeof(std::uint64_t) : bytes;
    if (to != nullptr) std::memcpy(to, &opaque->data[number], std::min(bytes, sizeof(std::uint64_t)));
    return CUBLAS_STATUS_SUCCESS;
  }
};
using Layout = Attributes<cublasLtMatrixLayoutOpaque_t>;
using Description = Attributes<cublasLtMatmulDescOpaque_t>;
using Preference = Attributes<cublasLtMatmulPreferenceOpaque_t>;

struct View {
  const void* data = nullptr;
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0, cols = 0, ld = 0, batches = 1, step = 0;
  bool is_by_rows = false;

  View(const cublasLtMatrixLayoutOpaque_t* layout, const void* from) : data(from) {
    const auto number = [&](cublasLtMatrixLayoutAttribute_t which) {
      return static_cast<std::int64_t>(layout->data[which]);
    };
    type = static_cast<cudaDataType>(number(CUBLASLT_MATRIX_LAYOUT_TYPE));
    rows = number(CUBLASLT_MATRIX_LAYOUT_ROWS);
    cols = number(CUBLASLT_MATRIX_LAYOUT_COLS);
    ld = number(CUBLASLT_MATRIX_LAYOUT_LD);
    batches = static_cast<std::int32_t>(number(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT));
    step = number(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
    is_by_rows = number(CUBLASLT_MATRIX_LAYOUT_ORDER) == CUBLASLT_ORDER_ROW;
  }
  bool is_known() const { return bytes_of(type) != 0; }
  const void* batch(std::int64_t i) const {
    return static_cast<const std::byte*>(data) + i * step * static_cast<std::int64_t>(bytes_of(type));
  }
  template <class S>
  std::vector<S> read(std::int64_t i) const {
    if (!is_by_rows) return read_matrix<S>({batch(i), type, rows, cols, ld});
    return transposed(read_matrix<S>({batch(i), type, cols, rows, ld}), cols, rows, false);
  }
  template <class S>
  void write(std::int64_t i, const std::vector<S>& values) const {
    if (is_by_rows)
      write_matrix<S>({batch(i), type, cols, rows, ld}, transposed(values, rows, cols, false));
    else
      write_matrix<S>({batch(i), type, rows, cols, ld}, values);
  }
};

template <class T>
T attribute(const cublasLtMatmulDescOpaque_t& description, cublasLtMatmulDescAttributes_t which) {
  T value{};
  std::memcpy(&value, &description.data[which], sizeof(T));
  return value;
}

double gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }

// What an epilogue does to the sums, of those that do not keep anything for a backward pass.
void finish(const cublasLtMatmulDescOpaque_t& description, const View& d, std::int64_t batch,
            std::vector<double>& sums) {
  const auto epilogue = attribute<int>(description, CUBLASLT_MATMUL_DESC_EPILOGUE);
  if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) {
    const auto step = attribute<std::int64_t>(description, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
    const bool is_small = bytes_of(d.type) == 1;
    const cudaDataType type = is_small ? CUDA_R_16BF : d.type;
    const auto* const from = attribute<const std::byte*>(description, CUBLASLT_MATMUL_DESC_BIAS_POINTER) +
                             batch * step * static_cast<std::int64_t>(bytes_of(type));
    const std::vector<double> bias = read_vector<double>(from, type, d.rows, 1);
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += bias[i % bias.size()];
  }
  if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0)
    for (double& sum : sums) sum = sum > 0 ? sum : 0;
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0)
    for (double& sum : sums) sum = gelu(sum);
}

constexpr int kEpilogues =
    CUBLASLT_EPILOGUE_DEFAULT | CUBLASLT_EPILOGUE_RELU | CUBLASLT_EPILOGUE_BIAS | CUBLASLT_EPILOGUE_GELU;

double scale_at(const cublasLtMatmulDescOpaque_t& description, cublasLtMatmulDescAttributes_t which) {
  const auto* const from = attribute<const float*>(description, which);
  return from == nullptr ? 1.0 : static_cast<double>(read_one(from));
}

template <class S>
std::vector<S> turned(const View& view, std::int64_t batch, int operation) {
  std::vector<S> values = view.read<S>(batch);
  return operation == CUBLAS_OP_N ? values : transposed(values, view.rows, view.cols, operation == CUBLAS_OP_C);
}

template <class S>
cublasStatus_t matmul(const cublasLtMatmulDescOpaque_t& description, const void* alpha, const View& a, const View& b,
                      const void* beta, const View& c, const View& d, cudaStream_t stream) {
  const auto op_a = attribute<int>(description, CUBLASLT_MATMUL_DESC_TRANSA);
  const auto op_b = attribute<int>(description, CUBLASLT_MATMUL_DESC_TRANSB);
  const std::int64_t k = op_a == CUBLAS_OP_N ? a.cols : a.rows;
  const std::int64_t rows = op_a == CUBLAS_OP_N ? a.rows : a.cols, cols = op_b == CUBLAS_OP_N ? b.cols : b.rows;
  if (k != (op_b == CUBLAS_OP_N ? b.rows : b.cols) || rows != d.rows || cols != d.cols)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto type = attribute<cudaDataType>(description, CUBLASLT_MATMUL_DESC_SCALE_TYPE);
  const Factor<S> by(alpha, type), keep(beta, type);
  return blas("cublasLtMatmul", stream, [=] {
    const double scale = scale_at(description, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER) *
                         scale_at(description, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
    const double scale_c = scale_at(description, CUBLASLT_MATMUL_DESC_C_SCALE_POINTER);
    const double scale_d = scale_at(description, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
    const S factor = by.value() * scale, old_by = keep.value() * scale_c;
    double greatest = 0;
    for (std::int64_t i = 0; i < d.batches; ++i) {
      std::vector<S> sums(static_cast<std::size_t>(d.rows * d.cols));
      add_product(turned<S>(a, i, op_a), turned<S>(b, i, op_b), sums, d.rows, d.cols, k);
      for (S& sum : sums) sum *= factor;
      if (old_by != S{}) {
        const std::vector<S> old = c.read<S>(i);
        for (std::size_t e = 0; e < sums.size(); ++e) sums[e] += old_by * old[e];
      }
      if constexpr (std::is_same_v<S, double>) finish(description, d, i, sums);
      for (S& sum : sums) {
        greatest = std::max(greatest, static_cast<double>(std::abs(sum)));
        sum *= scale_d;
      }
      d.write(i, sums);
    }
    const auto most = static_cast<float>(greatest);
    if (auto* const to = attribute<float*>(description, CUBLASLT_MATMUL_DESC_AMAX_D_POINTER))
      write_bytes(to, &most, sizeof(most));
  });
}

bool is_supported(const cublasLtMatmulDescOpaque_t& description, const View& a, const View& b, const View& d) {
  return a.is_known() && b.is_known() && d.is_known() &&
         (attribute<int>(description, CUBLASLT_MATMUL_DESC_EPILOGUE) & ~kEpilogues) == 0 &&
         attribute<int>(description, CUBLASLT_MATMUL_DESC_POINTER_MODE) <= CUBLASLT_POINTER_MODE_DEVICE;
}

template <class Opaque>
cublasStatus_t destroy(Opaque* made) {
  delete made;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *handle = reinterpret_cast<cublasLtHandle_t>(new cublasContext);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(reinterpret_cast<cublasContext*>(handle)); }
std::size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
std::size_t cublasLtGetCudartVersion() { return CUDART_VERSION; }

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, std::size_t, cudaDataType type,
                                                 std::uint64_t rows, std::uint64_t cols, std::int64_t ld) {
  *layout = {};
  layout->data[CUBLASLT_MATRIX_LAYOUT_TYPE] = static_cast<std::uint64_t>(type);
  layout->data[CUBLASLT_MATRIX_LAYOUT_ORDER] = CUBLASLT_ORDER_COL;
  layout->data[CUBLASLT_MATRIX_LAYOUT_ROWS] = rows;
  layout->data[CUBLASLT_MATRIX_LAYOUT_COLS] = cols;
  layout->data[CUBLASLT_MATRIX_LAYOUT_LD] = static_cast<std::uint64_t>(ld);
  layout->data[CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT] = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t cols, std::int64_t ld) {
  *layout = new cublasLtMatrixLayoutOpaque_t;
  return cublasLtMatrixLayoutInit_internal(*layout, sizeof(**layout), type, rows, cols, ld);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) { return destroy(layout); }
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                const void* from, std::size_t bytes) {
  return Layout::set(layout, which, from, bytes);
}
cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which,
                                                void* to, std::size_t bytes, std::size_t* written) {
  return Layout::give(layout, which, to, bytes, written);
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t description, std::size_t,
                                               cublasComputeType_t compute, cudaDataType_t scale) {
  *description = {};
  description->data[CUBLASLT_MATMUL_DESC_COMPUTE_TYPE] = static_cast<std::uint64_t>(compute);
  description->data[CUBLASLT_MATMUL_DESC_SCALE_TYPE] = static_cast<std::uint64_t>(scale);
  description->data[CUBLASLT_MATMUL_DESC_EPILOGUE] = CUBLASLT_EPILOGUE_DEFAULT;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* description, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *description = new cublasLtMatmulDescOpaque_t;
  return cublasLtMatmulDescInit_internal(*description, sizeof(**description), compute, scale);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t description) { return destroy(description); }
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t which,
                                              const void* from, std::size_t bytes) {
  return Description::set(description, which, from, bytes);
}
cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t which,
                                              void* to, std::size_t bytes, std::size_t* written) {
  return Description::give(description, which, to, bytes, written);
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t preference, std::size_t) {
  *preference = {};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) { return destroy(preference); }
// Nothing is chosen by them.
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t,
                                                    const void*, std::size_t) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t, int asked,
                                              cublasLtMatmulHeuristicResult_t results[], int* count) {
  if (asked <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  const bool is_one = is_supported(*description, View(a, nullptr), View(b, nullptr), View(d, nullptr));
  *count = is_one ? 1 : 0;
  if (!is_one) return CUBLAS_STATUS_NOT_SUPPORTED;
  results[0] = {};
  results[0].state = CUBLAS_STATUS_SUCCESS;
  results[0].wavesCount = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t layout_a, const void* b,
                              cublasLtMatrixLayout_t layout_b, const void* beta, const void* c,
                              cublasLtMatrixLayout_t layout_c, void* d, cublasLtMatrixLayout_t layout_d,
                              const cublasLtMatmulAlgo_t*, void*, std::size_t, cudaStream_t stream) {
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  const View from_a(layout_a, a), from_b(layout_b, b), from_c(layout_c, c), to(layout_d, d);
  if (!is_supported(*description, from_a, from_b, to)) return CUBLAS_STATUS_NOT_SUPPORTED;
  return (is_complex(to.type) ? matmul<Complex> : matmul<double>)(*description, alpha, from_a, from_b, beta, from_c, to,
                                                                  stream);
}

}  // extern "C"
