// What the files of the stand-in for cuSPARSE share: descriptions, and their contents as the host computes with them.
// As that for cuBLAS (blas.h): values without loss, sums in double, one rounding. Real types; indices of 32 and 64
// bits.
#pragma once

// Half of the interface is marked as deprecated; programs call it all the same.
#define DISABLE_CUSPARSE_DEPRECATED
#include <cusparse.h>

#include <functional>

#include "guest/stand_ins/values.h"
#include "guest/work.h"

struct cusparseContext {
  cudaStream_t stream = nullptr;
  cusparsePointerMode_t pointer_mode = CUSPARSE_POINTER_MODE_HOST;
};
struct cusparseMatDescr {
  cusparseMatrixType_t type = CUSPARSE_MATRIX_TYPE_GENERAL;
  cusparseFillMode_t fill = CUSPARSE_FILL_MODE_LOWER;
  cusparseDiagType_t diagonal = CUSPARSE_DIAG_TYPE_NON_UNIT;
  cusparseIndexBase_t base = CUSPARSE_INDEX_BASE_ZERO;
};
struct cusparseDnVecDescr {
  std::int64_t count = 0;
  void* values = nullptr;
  cudaDataType type = CUDA_R_32F;
};
struct cusparseDnMatDescr {
  std::int64_t rows = 0, cols = 0, ld = 0;
  void* values = nullptr;
  cudaDataType type = CUDA_R_32F;
  cusparseOrder_t order = CUSPARSE_ORDER_COL;
  int batches = 1;
  std::int64_t batch_step = 0;
};
struct cusparseSpVecDescr {
  std::int64_t size = 0, count = 0;
  void *indices = nullptr, *values = nullptr;
  cusparseIndexType_t index_type = CUSPARSE_INDEX_32I;
  cusparseIndexBase_t base = CUSPARSE_INDEX_BASE_ZERO;
  cudaDataType type = CUDA_R_32F;
};
struct cusparseSpMatDescr {
  cusparseFormat_t format = CUSPARSE_FORMAT_CSR;
  std::int64_t rows = 0, cols = 0, count = 0;
  void *offsets = nullptr, *indices = nullptr, *values = nullptr;  ///< offsets: of COO the rows
  cusparseIndexType_t offset_type = CUSPARSE_INDEX_32I, index_type = CUSPARSE_INDEX_32I;
  cusparseIndexBase_t base = CUSPARSE_INDEX_BASE_ZERO;
  cudaDataType type = CUDA_R_32F;
  cusparseFillMode_t fill = CUSPARSE_FILL_MODE_LOWER;
  cusparseDiagType_t diagonal = CUSPARSE_DIAG_TYPE_NON_UNIT;
  int batches = 1;
  std::int64_t offset_step = 0, value_step = 0;  ///< from batch to batch
};

namespace tessera::guest {

cusparseStatus_t sparse(const char* function, cusparseHandle_t handle, const std::function<void()>& work);

std::vector<std::int64_t> read_indices(const void* from, cusparseIndexType_t type, std::int64_t count,
                                       cusparseIndexBase_t base);
void write_indices(void* to, cusparseIndexType_t type, const std::vector<std::int64_t>& indices,
                   cusparseIndexBase_t base);

/// A sparse matrix's entries in the order in which they are stored, counted from 0.
struct Entries {
  std::vector<std::int64_t> rows, cols;
  std::vector<double> values;
  std::size_t size() const { return rows.size(); }
};
Entries read_entries(const cusparseSpMatDescr& matrix, int batch = 0, bool with_values = true);
void write_values(const cusparseSpMatDescr& matrix, const std::vector<double>& values, int batch = 0);
/// Of entries sorted by rows: where each row begins, and behind the last.
std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& rows, std::int64_t count);
/// Sorted by rows, then by columns; what `sorted[i]` was before is `order[i]`.
Entries sorted(const Entries& entries, std::vector<std::size_t>* order = nullptr);

/// By columns, dense; op's rows and columns where one is given.
std::vector<double> read_dense(const cusparseDnMatDescr& matrix, int batch = 0);
void write_dense(const cusparseDnMatDescr& matrix, const std::vector<double>& values, int batch = 0);

inline bool transposes(cusparseOperation_t operation) { return operation != CUSPARSE_OPERATION_NON_TRANSPOSE; }
inline std::size_t as_size(std::int64_t value) { return value < 0 ? 0 : static_cast<std::size_t>(value); }

}  // namespace tessera::guest
