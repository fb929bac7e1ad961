// The stand-in for cuSPARSE: products, sampled products and triangular systems of sparse matrices, vectors with gaps.
// Buffers are asked for, as programs expect it, and not used.
#include <map>

#include "guest/stand_ins/sparse.h"

using namespace tessera::guest;

struct cusparseSpSVDescr {};
struct cusparseSpSMDescr {};
struct cusparseSpGEMMDescr {
  Entries product;
};

namespace {

constexpr std::size_t kBuffer = 256;

std::size_t at(std::int64_t row, std::int64_t col, std::int64_t rows) { return as_size(col * rows + row); }

// op(b) dense of a batch, and how many rows it has.
std::vector<double> operand(cusparseOperation_t op, const cusparseDnMatDescr& matrix, int batch) {
  std::vector<double> values = read_dense(matrix, matrix.batches > 1 ? batch : 0);
  return transposes(op) ? transposed(values, matrix.rows, matrix.cols, false) : values;
}

// sums += op(a) * b, by columns.
void add(const Entries& a, cusparseOperation_t op, const std::vector<double>& b, std::int64_t b_rows,
         std::vector<double>& sums, std::int64_t sum_rows) {
  if (b_rows == 0 || sum_rows == 0) return;
  const auto& to = transposes(op) ? a.cols : a.rows;
  const auto& from = transposes(op) ? a.rows : a.cols;
  const auto cols = static_cast<std::int64_t>(sums.size()) / sum_rows;
  for (std::int64_t j = 0; j < cols; ++j)
    for (std::size_t i = 0; i < a.size(); ++i) sums[at(to[i], j, sum_rows)] += a.values[i] * b[at(from[i], j, b_rows)];
}

// b becomes op(a)^-1 * b; of a one triangle is looked at.
void solve(const cusparseSpMatDescr& matrix, cusparseOperation_t op, std::vector<double>& b) {
  Entries a = read_entries(matrix);
  bool is_upper = matrix.fill == CUSPARSE_FILL_MODE_UPPER;
  if (transposes(op)) {
    std::swap(a.rows, a.cols);
    is_upper = !is_upper;
  }
  a = sorted(a);
  const std::int64_t n = matrix.rows;
  const std::vector<std::int64_t> begins = offsets_of(a.rows, n);
  for (std::int64_t j = 0; j < static_cast<std::int64_t>(b.size()) / std::max<std::int64_t>(n, 1); ++j)
    for (std::int64_t step = 0; step < n; ++step) {
      const std::int64_t row = is_upper ? n - 1 - step : step;
      double sum = b[at(row, j, n)], diagonal = matrix.diagonal == CUSPARSE_DIAG_TYPE_UNIT ? 1 : 0;
      for (std::int64_t i = begins[as_size(row)]; i < begins[as_size(row + 1)]; ++i) {
        const std::int64_t col = a.cols[as_size(i)];
        if (col == row && matrix.diagonal != CUSPARSE_DIAG_TYPE_UNIT) diagonal = a.values[as_size(i)];
        if (col != row && (col > row) == is_upper) sum -= a.values[as_size(i)] * b[at(col, j, n)];
      }
      b[at(row, j, n)] = sum / diagonal;
    }
}

void scale(std::vector<double>& values, double by) {
  for (double& value : values) value *= by;
}
void add_scaled(std::vector<double>& sums, double by, const std::vector<double>& values) {
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += by * values[i];
}

cusparseStatus_t give_buffer(std::size_t* bytes) {
  if (bytes == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  *bytes = kBuffer;
  return CUSPARSE_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cusparseStatus_t cusparseSpMV_bufferSize(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t,
                                         cusparseConstDnVecDescr_t, const void*, cusparseDnVecDescr_t, cudaDataType,
                                         cusparseSpMVAlg_t, std::size_t* bytes) {
  return give_buffer(bytes);
}
cusparseStatus_t cusparseSpMV_preprocess(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t,
                                         cusparseConstDnVecDescr_t, const void*, cusparseDnVecDescr_t, cudaDataType,
                                         cusparseSpMVAlg_t, void*) {
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t op, const void* alpha,
                              cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, const void* beta,
                              cusparseDnVecDescr_t y, cudaDataType compute, cusparseSpMVAlg_t, void*) {
  if (x->count != (transposes(op) ? a->rows : a->cols) || y->count != (transposes(op) ? a->cols : a->rows))
    return CUSPARSE_STATUS_INVALID_VALUE;
  const Factor<double> by(alpha, compute), keep(beta, compute);
  return sparse("cusparseSpMV", handle, [=, matrix = *a, from = *x, to = *y] {
    std::vector<double> sums(as_size(to.count));
    add(read_entries(matrix), op, read_vector<double>(from.values, from.type, from.count, 1), from.count, sums,
        to.count);
    scale(sums, by.value());
    const double old = keep.value();
    if (old != 0) add_scaled(sums, old, read_vector<double>(to.values, to.type, to.count, 1));
    write_vector(to.values, to.type, 1, std::move(sums));
  });
}

cusparseStatus_t cusparseSpMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                         cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t, const void*,
                                         cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t, std::size_t* bytes) {
  return give_buffer(bytes);
}
cusparseStatus_t cusparseSpMM_preprocess(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                         cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t, const void*,
                                         cusparseDnMatDescr_t, cudaDataType, cusparseSpMMAlg_t, void*) {
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpMM(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                              const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                              const void* beta, cusparseDnMatDescr_t c, cudaDataType compute, cusparseSpMMAlg_t,
                              void*) {
  const std::int64_t depth = transposes(op_b) ? b->cols : b->rows, cols = transposes(op_b) ? b->rows : b->cols;
  if (depth != (transposes(op_a) ? a->rows : a->cols) || c->rows != (transposes(op_a) ? a->cols : a->rows) ||
      c->cols != cols)
    return CUSPARSE_STATUS_INVALID_VALUE;
  const Factor<double> by(alpha, compute), keep(beta, compute);
  return sparse("cusparseSpMM", handle, [=, first = *a, second = *b, to = *c] {
    for (int i = 0; i < to.batches; ++i) {
      std::vector<double> sums(as_size(to.rows * to.cols));
      add(read_entries(first, first.batches > 1 ? i : 0), op_a, operand(op_b, second, i), depth, sums, to.rows);
      scale(sums, by.value());
      const double old = keep.value();
      if (old != 0) add_scaled(sums, old, read_dense(to, i));
      write_dense(to, sums, i);
    }
  });
}

cusparseStatus_t cusparseSDDMM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                          cusparseConstDnMatDescr_t, cusparseConstDnMatDescr_t, const void*,
                                          cusparseSpMatDescr_t, cudaDataType, cusparseSDDMMAlg_t, std::size_t* bytes) {
  return give_buffer(bytes);
}
cusparseStatus_t cusparseSDDMM_preprocess(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                          cusparseConstDnMatDescr_t, cusparseConstDnMatDescr_t, const void*,
                                          cusparseSpMatDescr_t, cudaDataType, cusparseSDDMMAlg_t, void*) {
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSDDMM(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                               const void* alpha, cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b,
                               const void* beta, cusparseSpMatDescr_t c, cudaDataType compute, cusparseSDDMMAlg_t,
                               void*) {
  const std::int64_t depth = transposes(op_a) ? a->rows : a->cols;
  if (depth != (transposes(op_b) ? b->cols : b->rows)) return CUSPARSE_STATUS_INVALID_VALUE;
  const Factor<double> by(alpha, compute), keep(beta, compute);
  return sparse("cusparseSDDMM", handle, [=, first = *a, second = *b, to = *c] {
    for (int i = 0; i < to.batches; ++i) {
      const double old = keep.value(), factor = by.value();
      Entries entries = read_entries(to, i, old != 0);
      entries.values.resize(entries.size());
      // Rows of a and columns of b, each in one piece.
      std::vector<double> left = operand(op_a, first, i);
      left = transposed(left, to.rows, depth, false);
      const std::vector<double> right = operand(op_b, second, i);
      for (std::size_t e = 0; e < entries.size(); ++e) {
        double sum = 0;
        const double *const row = left.data() + entries.rows[e] * depth, *const col =
                                                                             right.data() + entries.cols[e] * depth;
        for (std::int64_t p = 0; p < depth; ++p) sum += row[p] * col[p];
        entries.values[e] = factor * sum + (old != 0 ? old * entries.values[e] : 0);
      }
      write_values(to, entries.values, i);
    }
  });
}

cusparseStatus_t cusparseSpSV_createDescr(cusparseSpSVDescr_t* made) {
  *made = new cusparseSpSVDescr;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpSV_destroyDescr(cusparseSpSVDescr_t made) {
  delete made;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpSV_bufferSize(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t,
                                         cusparseConstDnVecDescr_t, cusparseDnVecDescr_t, cudaDataType,
                                         cusparseSpSVAlg_t, cusparseSpSVDescr_t, std::size_t* bytes) {
  return give_buffer(bytes);
}
cusparseStatus_t cusparseSpSV_analysis(cusparseHandle_t, cusparseOperation_t, const void*, cusparseConstSpMatDescr_t,
                                       cusparseConstDnVecDescr_t, cusparseDnVecDescr_t, cudaDataType, cusparseSpSVAlg_t,
                                       cusparseSpSVDescr_t, void*) {
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpSV_solve(cusparseHandle_t handle, cusparseOperation_t op, const void* alpha,
                                    cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, cusparseDnVecDescr_t y,
                                    cudaDataType compute, cusparseSpSVAlg_t, cusparseSpSVDescr_t) {
  if (a->rows != a->cols || x->count != a->rows || y->count != a->rows) return CUSPARSE_STATUS_INVALID_VALUE;
  const Factor<double> by(alpha, compute);
  return sparse("cusparseSpSV_solve", handle, [=, matrix = *a, from = *x, to = *y] {
    std::vector<double> values = read_vector<double>(from.values, from.type, from.count, 1);
    scale(values, by.value());
    solve(matrix, op, values);
    write_vector(to.values, to.type, 1, std::move(values));
  });
}

cusparseStatus_t cusparseSpSM_createDescr(cusparseSpSMDescr_t* made) {
  *made = new cusparseSpSMDescr;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpSM_destroyDescr(cusparseSpSMDescr_t made) {
  delete made;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpSM_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                         cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t, cusparseDnMatDescr_t,
                                         cudaDataType, cusparseSpSMAlg_t, cusparseSpSMDescr_t, std::size_t* bytes) {
  return give_buffer(bytes);
}
cusparseStatus_t cusparseSpSM_analysis(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                       cusparseConstSpMatDescr_t, cusparseConstDnMatDescr_t, cusparseDnMatDescr_t,
                                       cudaDataType, cusparseSpSMAlg_t, cusparseSpSMDescr_t, void*) {
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpSM_solve(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                    const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                    cusparseDnMatDescr_t c, cudaDataType compute, cusparseSpSMAlg_t,
                                    cusparseSpSMDescr_t) {
  if (a->rows != a->cols || c->rows != a->rows) return CUSPARSE_STATUS_INVALID_VALUE;
  const Factor<double> by(alpha, compute);
  return sparse("cusparseSpSM_solve", handle, [=, matrix = *a, from = *b, to = *c] {
    std::vector<double> values = operand(op_b, from, 0);
    scale(values, by.value());
    solve(matrix, op_a, values);
    write_dense(to, values);
  });
}

// Sparse times sparse: the product is kept until it is copied, when the program knows its size.
cusparseStatus_t cusparseSpGEMM_createDescr(cusparseSpGEMMDescr_t* made) {
  *made = new cusparseSpGEMMDescr;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpGEMM_destroyDescr(cusparseSpGEMMDescr_t made) {
  delete made;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpGEMM_workEstimation(cusparseHandle_t, cusparseOperation_t, cusparseOperation_t, const void*,
                                               cusparseConstSpMatDescr_t, cusparseConstSpMatDescr_t, const void*,
                                               cusparseSpMatDescr_t, cudaDataType, cusparseSpGEMMAlg_t,
                                               cusparseSpGEMMDescr_t, std::size_t* bytes, void* buffer) {
  return buffer == nullptr ? give_buffer(bytes) : CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpGEMM_compute(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                        const void* alpha, cusparseConstSpMatDescr_t a, cusparseConstSpMatDescr_t b,
                                        const void*, cusparseSpMatDescr_t c, cudaDataType compute, cusparseSpGEMMAlg_t,
                                        cusparseSpGEMMDescr_t kept, std::size_t* bytes, void* buffer) {
  if (buffer == nullptr) return give_buffer(bytes);
  if (transposes(op_a) || transposes(op_b)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  if (a->cols != b->rows) return CUSPARSE_STATUS_INVALID_VALUE;
  const Factor<double> by(alpha, compute);
  return sparse("cusparseSpGEMM_compute", handle, [=] {
    const Entries first = sorted(read_entries(*a)), second = sorted(read_entries(*b));
    const std::vector<std::int64_t> rows = offsets_of(first.rows, a->rows), others = offsets_of(second.rows, b->rows);
    kept->product = {};
    for (std::int64_t row = 0; row < a->rows; ++row) {
      std::map<std::int64_t, double> sums;
      for (auto i = as_size(rows[as_size(row)]); i < as_size(rows[as_size(row + 1)]); ++i)
        for (auto k = as_size(others[as_size(first.cols[i])]); k < as_size(others[as_size(first.cols[i] + 1)]); ++k)
          sums[second.cols[k]] += first.values[i] * second.values[k];
      for (const auto& [col, sum] : sums) {
        kept->product.rows.push_back(row);
        kept->product.cols.push_back(col);
        kept->product.values.push_back(by.value() * sum);
      }
    }
    c->count = static_cast<std::int64_t>(kept->product.size());
  });
}
cusparseStatus_t cusparseSpGEMM_copy(cusparseHandle_t handle, cusparseOperation_t, cusparseOperation_t, const void*,
                                     cusparseConstSpMatDescr_t, cusparseConstSpMatDescr_t, const void* beta,
                                     cusparseSpMatDescr_t c, cudaDataType compute, cusparseSpGEMMAlg_t,
                                     cusparseSpGEMMDescr_t kept) {
  const Factor<double> keep(beta, compute);
  return sparse("cusparseSpGEMM_copy", handle, [=, to = *c] {
    std::vector<double> values = kept->product.values;
    if (keep.value() != 0) add_scaled(values, keep.value(), read_vector<double>(to.values, to.type, to.count, 1));
    write_indices(to.offsets, to.offset_type, offsets_of(kept->product.rows, to.rows), to.base);
    write_indices(to.indices, to.index_type, kept->product.cols, to.base);
    write_values(to, values);
  });
}

cusparseStatus_t cusparseAxpby(cusparseHandle_t handle, const void* alpha, cusparseConstSpVecDescr_t x,
                               const void* beta, cusparseDnVecDescr_t y) {
  const Factor<double> by(alpha, y->type), keep(beta, y->type);
  return sparse("cusparseAxpby", handle, [=, from = *x, to = *y] {
    std::vector<double> sums = read_vector<double>(to.values, to.type, to.count, 1);
    scale(sums, keep.value());
    const std::vector<double> values = read_vector<double>(from.values, from.type, from.count, 1);
    const std::vector<std::int64_t> places = read_indices(from.indices, from.index_type, from.count, from.base);
    for (std::size_t i = 0; i < values.size(); ++i) sums.at(as_size(places[i])) += by.value() * values[i];
    write_vector(to.values, to.type, 1, std::move(sums));
  });
}
cusparseStatus_t cusparseGather(cusparseHandle_t handle, cusparseConstDnVecDescr_t y, cusparseSpVecDescr_t x) {
  return sparse("cusparseGather", handle, [from = *y, to = *x] {
    const std::vector<double> all = read_vector<double>(from.values, from.type, from.count, 1);
    std::vector<double> values;
    for (const std::int64_t place : read_indices(to.indices, to.index_type, to.count, to.base))
      values.push_back(all.at(as_size(place)));
    write_vector(to.values, to.type, 1, std::move(values));
  });
}
cusparseStatus_t cusparseScatter(cusparseHandle_t handle, cusparseConstSpVecDescr_t x, cusparseDnVecDescr_t y) {
  return sparse("cusparseScatter", handle, [from = *x, to = *y] {
    std::vector<double> all = read_vector<double>(to.values, to.type, to.count, 1);
    const std::vector<double> values = read_vector<double>(from.values, from.type, from.count, 1);
    const std::vector<std::int64_t> places = read_indices(from.indices, from.index_type, from.count, from.base);
    for (std::size_t i = 0; i < values.size(); ++i) all.at(as_size(places[i])) = values[i];
    write_vector(to.values, to.type, 1, std::move(all));
  });
}
cusparseStatus_t cusparseSpVV_bufferSize(cusparseHandle_t, cusparseOperation_t, cusparseConstSpVecDescr_t,
                                         cusparseConstDnVecDescr_t, const void*, cudaDataType, std::size_t* bytes) {
  return give_buffer(bytes);
}
cusparseStatus_t cusparseSpVV(cusparseHandle_t handle, cusparseOperation_t, cusparseConstSpVecDescr_t x,
                              cusparseConstDnVecDescr_t y, void* result, cudaDataType compute, void*) {
  return sparse("cusparseSpVV", handle, [=, from = *x, other = *y] {
    const std::vector<double> all = read_vector<double>(other.values, other.type, other.count, 1);
    const std::vector<double> values = read_vector<double>(from.values, from.type, from.count, 1);
    const std::vector<std::int64_t> places = read_indices(from.indices, from.index_type, from.count, from.base);
    double sum = 0;
    for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] * all.at(as_size(places[i]));
    write_vector<double>(result, compute, 1, {sum});
  });
}

}  // extern "C"
