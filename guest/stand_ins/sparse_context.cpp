// The stand-in for cuSPARSE: handles, descriptions, and what stands in them.
#include <algorithm>
#include <numeric>

#include "guest/stand_ins/sparse.h"
#include "tessera/error.h"

namespace tessera::guest {

cusparseStatus_t sparse(const char* function, cusparseHandle_t handle, const std::function<void()>& work) {
  if (handle == nullptr) return CUSPARSE_STATUS_NOT_INITIALIZED;
  const cudaError_t error = guarded(function, [&] {
    return submit(handle->stream, LibraryWork{[work] {
                    work();
                    return cudaSuccess;
                  }});
  });
  return error == cudaSuccess             ? CUSPARSE_STATUS_SUCCESS
         : error == cudaErrorNotSupported ? CUSPARSE_STATUS_NOT_SUPPORTED
         : error == cudaErrorInvalidValue ? CUSPARSE_STATUS_INVALID_VALUE
                                          : CUSPARSE_STATUS_EXECUTION_FAILED;
}

std::vector<std::int64_t> read_indices(const void* from, cusparseIndexType_t type, std::int64_t count,
                                       cusparseIndexBase_t base) {
  std::vector<std::int64_t> indices;
  if (type == CUSPARSE_INDEX_64I) {
    indices = read_array(static_cast<const std::int64_t*>(from), as_size(count));
  } else {
    const std::vector<std::int32_t> narrow = read_array(static_cast<const std::int32_t*>(from), as_size(count));
    indices.assign(narrow.begin(), narrow.end());
  }
  if (base == CUSPARSE_INDEX_BASE_ONE)
    for (std::int64_t& index : indices) --index;
  return indices;
}

void write_indices(void* to, cusparseIndexType_t type, const std::vector<std::int64_t>& indices,
                   cusparseIndexBase_t base) {
  std::vector<std::int64_t> wide = indices;
  for (std::int64_t& index : wide) index += base == CUSPARSE_INDEX_BASE_ONE ? 1 : 0;
  if (type == CUSPARSE_INDEX_64I) return write_bytes(to, wide.data(), wide.size() * sizeof(std::int64_t));
  std::vector<std::int32_t> narrow(wide.size());
  std::transform(wide.begin(), wide.end(), narrow.begin(), [](std::int64_t i) { return static_cast<std::int32_t>(i); });
  write_bytes(to, narrow.data(), narrow.size() * sizeof(std::int32_t));
}

namespace {

const std::byte* at(const void* data, std::int64_t element, std::size_t bytes) {
  return static_cast<const std::byte*>(data) + element * static_cast<std::int64_t>(bytes);
}
std::size_t bytes_of(cusparseIndexType_t type) { return type == CUSPARSE_INDEX_64I ? 8 : 4; }

}  // namespace

Entries read_entries(const cusparseSpMatDescr& matrix, int batch, bool with_values) {
  const bool is_coo = matrix.format == CUSPARSE_FORMAT_COO, is_csc = matrix.format == CUSPARSE_FORMAT_CSC;
  const void* const offsets =
      at(matrix.offsets, batch * (is_coo ? matrix.value_step : matrix.offset_step), bytes_of(matrix.offset_type));
  const void* const indices = at(matrix.indices, batch * matrix.value_step, bytes_of(matrix.index_type));
  Entries entries;
  entries.cols = read_indices(indices, matrix.index_type, matrix.count, matrix.base);
  if (is_coo) {
    entries.rows = read_indices(offsets, matrix.offset_type, matrix.count, matrix.base);
  } else {
    const std::int64_t lines = is_csc ? matrix.cols : matrix.rows;
    const std::vector<std::int64_t> begins = read_indices(offsets, matrix.offset_type, lines + 1, matrix.base);
    entries.rows.resize(as_size(matrix.count));
    for (std::int64_t line = 0; line < lines; ++line)
      for (std::int64_t i = begins[as_size(line)]; i < begins[as_size(line + 1)]; ++i)
        entries.rows.at(as_size(i)) = line;
    if (is_csc) std::swap(entries.rows, entries.cols);
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    if (entries.rows[i] < 0 || entries.rows[i] >= matrix.rows || entries.cols[i] < 0 || entries.cols[i] >= matrix.cols)
      throw Error(ErrorKind::usage, "an index of a sparse matrix is outside of it");
  if (with_values)
    entries.values = read_vector<double>(at(matrix.values, batch * matrix.value_step, guest::bytes_of(matrix.type)),
                                         matrix.type, matrix.count, 1);
  return entries;
}

void write_values(const cusparseSpMatDescr& matrix, const std::vector<double>& values, int batch) {
  auto* const to = const_cast<std::byte*>(at(matrix.values, batch * matrix.value_step, guest::bytes_of(matrix.type)));
  write_vector(to, matrix.type, 1, values);
}

std::vector<std::int64_t> offsets_of(const std::vector<std::int64_t>& rows, std::int64_t count) {
  std::vector<std::int64_t> offsets(as_size(count) + 1);
  for (const std::int64_t row : rows) ++offsets[as_size(row) + 1];
  std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
  return offsets;
}

Entries sorted(const Entries& entries, std::vector<std::size_t>* order) {
  std::vector<std::size_t> places(entries.size());
  std::iota(places.begin(), places.end(), std::size_t{0});
  std::stable_sort(places.begin(), places.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(entries.rows[a], entries.cols[a]) < std::pair(entries.rows[b], entries.cols[b]);
  });
  Entries made;
  for (const std::size_t place : places) {
    made.rows.push_back(entries.rows[place]);
    made.cols.push_back(entries.cols[place]);
    if (!entries.values.empty()) made.values.push_back(entries.values[place]);
  }
  if (order != nullptr) *order = std::move(places);
  return made;
}

std::vector<double> read_dense(const cusparseDnMatDescr& matrix, int batch) {
  const void* const from = at(matrix.values, batch * matrix.batch_step, guest::bytes_of(matrix.type));
  if (matrix.order == CUSPARSE_ORDER_COL)
    return read_matrix<double>({from, matrix.type, matrix.rows, matrix.cols, matrix.ld});
  return transposed(read_matrix<double>({from, matrix.type, matrix.cols, matrix.rows, matrix.ld}), matrix.cols,
                    matrix.rows, false);
}
void write_dense(const cusparseDnMatDescr& matrix, const std::vector<double>& values, int batch) {
  const void* const to = at(matrix.values, batch * matrix.batch_step, guest::bytes_of(matrix.type));
  if (matrix.order == CUSPARSE_ORDER_COL)
    return write_matrix<double>({to, matrix.type, matrix.rows, matrix.cols, matrix.ld}, values);
  write_matrix<double>({to, matrix.type, matrix.cols, matrix.rows, matrix.ld},
                       transposed(values, matrix.rows, matrix.cols, false));
}

namespace {

template <class T>
cusparseStatus_t destroy(const T* made) {
  delete made;
  return CUSPARSE_STATUS_SUCCESS;
}
bool is_real(cudaDataType type) { return guest::bytes_of(type) != 0 && !is_complex(type); }

cusparseStatus_t make(cusparseSpMatDescr_t* made, const cusparseSpMatDescr& from) {
  if (made == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  if (!is_real(from.type) || from.index_type == CUSPARSE_INDEX_16U) return CUSPARSE_STATUS_NOT_SUPPORTED;
  *made = new cusparseSpMatDescr(from);
  return CUSPARSE_STATUS_SUCCESS;
}

}  // namespace
}  // namespace tessera::guest

using namespace tessera::guest;

extern "C" {

cusparseStatus_t cusparseCreate(cusparseHandle_t* handle) {
  if (handle == nullptr) return CUSPARSE_STATUS_INVALID_VALUE;
  *handle = new cusparseContext;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroy(cusparseHandle_t handle) { return destroy(handle); }
cusparseStatus_t cusparseGetVersion(cusparseHandle_t, int* version) {
  *version = CUSPARSE_VERSION;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseGetStream(cusparseHandle_t handle, cudaStream_t* stream) {
  *stream = handle->stream;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t mode) {
  handle->pointer_mode = mode;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseGetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t* mode) {
  *mode = handle->pointer_mode;
  return CUSPARSE_STATUS_SUCCESS;
}
const char* cusparseGetErrorName(cusparseStatus_t status) {
  constexpr const char* kNames[] = {"CUSPARSE_STATUS_SUCCESS",
                                    "CUSPARSE_STATUS_NOT_INITIALIZED",
                                    "CUSPARSE_STATUS_ALLOC_FAILED",
                                    "CUSPARSE_STATUS_INVALID_VALUE",
                                    "CUSPARSE_STATUS_ARCH_MISMATCH",
                                    "CUSPARSE_STATUS_MAPPING_ERROR",
                                    "CUSPARSE_STATUS_EXECUTION_FAILED",
                                    "CUSPARSE_STATUS_INTERNAL_ERROR",
                                    "CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
                                    "CUSPARSE_STATUS_ZERO_PIVOT",
                                    "CUSPARSE_STATUS_NOT_SUPPORTED",
                                    "CUSPARSE_STATUS_INSUFFICIENT_RESOURCES"};
  const auto number = static_cast<std::size_t>(status);
  return number < std::size(kNames) ? kNames[number] : "unknown status";
}
const char* cusparseGetErrorString(cusparseStatus_t status) { return cusparseGetErrorName(status); }

cusparseStatus_t cusparseCreateMatDescr(cusparseMatDescr_t* made) {
  *made = new cusparseMatDescr;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroyMatDescr(cusparseMatDescr_t made) { return destroy(made); }
#define TESSERA_SETTING(Name, Type, field)                                       \
  cusparseStatus_t cusparseSetMat##Name(cusparseMatDescr_t matrix, Type value) { \
    matrix->field = value;                                                       \
    return CUSPARSE_STATUS_SUCCESS;                                              \
  }                                                                              \
  Type cusparseGetMat##Name(const cusparseMatDescr_t matrix) { return matrix->field; }
TESSERA_SETTING(Type, cusparseMatrixType_t, type)
TESSERA_SETTING(FillMode, cusparseFillMode_t, fill)
TESSERA_SETTING(DiagType, cusparseDiagType_t, diagonal)
TESSERA_SETTING(IndexBase, cusparseIndexBase_t, base)
#undef TESSERA_SETTING

cusparseStatus_t cusparseCreateDnVec(cusparseDnVecDescr_t* made, std::int64_t count, void* values, cudaDataType type) {
  if (!is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  *made = new cusparseDnVecDescr{count, values, type};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroyDnVec(cusparseConstDnVecDescr_t made) { return destroy(made); }
cusparseStatus_t cusparseDnVecGetValues(cusparseDnVecDescr_t vector, void** values) {
  *values = vector->values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDnVecSetValues(cusparseDnVecDescr_t vector, void* values) {
  vector->values = values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCreateDnMat(cusparseDnMatDescr_t* made, std::int64_t rows, std::int64_t cols, std::int64_t ld,
                                     void* values, cudaDataType type, cusparseOrder_t order) {
  if (!is_real(type)) return CUSPARSE_STATUS_NOT_SUPPORTED;
  if (ld < (order == CUSPARSE_ORDER_COL ? rows : cols)) return CUSPARSE_STATUS_INVALID_VALUE;
  *made = new cusparseDnMatDescr{rows, cols, ld, values, type, order};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroyDnMat(cusparseConstDnMatDescr_t made) { return destroy(made); }
cusparseStatus_t cusparseDnMatGetValues(cusparseDnMatDescr_t matrix, void** values) {
  *values = matrix->values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDnMatSetValues(cusparseDnMatDescr_t matrix, void* values) {
  matrix->values = values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDnMatSetStridedBatch(cusparseDnMatDescr_t matrix, int batches, std::int64_t step) {
  matrix->batches = batches;
  matrix->batch_step = step;
  return CUSPARSE_STATUS_SUCCESS;
}

cusparseStatus_t cusparseCreateSpVec(cusparseSpVecDescr_t* made, std::int64_t size, std::int64_t count, void* indices,
                                     void* values, cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                     cudaDataType type) {
  if (!is_real(type) || index_type == CUSPARSE_INDEX_16U) return CUSPARSE_STATUS_NOT_SUPPORTED;
  *made = new cusparseSpVecDescr{size, count, indices, values, index_type, base, type};
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroySpVec(cusparseConstSpVecDescr_t made) { return destroy(made); }

cusparseStatus_t cusparseCreateCsr(cusparseSpMatDescr_t* made, std::int64_t rows, std::int64_t cols, std::int64_t count,
                                   void* offsets, void* indices, void* values, cusparseIndexType_t offset_type,
                                   cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
  return make(made,
              {CUSPARSE_FORMAT_CSR, rows, cols, count, offsets, indices, values, offset_type, index_type, base, type});
}
cusparseStatus_t cusparseCreateCsc(cusparseSpMatDescr_t* made, std::int64_t rows, std::int64_t cols, std::int64_t count,
                                   void* offsets, void* indices, void* values, cusparseIndexType_t offset_type,
                                   cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type) {
  return make(made,
              {CUSPARSE_FORMAT_CSC, rows, cols, count, offsets, indices, values, offset_type, index_type, base, type});
}
cusparseStatus_t cusparseCreateCoo(cusparseSpMatDescr_t* made, std::int64_t rows, std::int64_t cols, std::int64_t count,
                                   void* row_indices, void* indices, void* values, cusparseIndexType_t index_type,
                                   cusparseIndexBase_t base, cudaDataType type) {
  return make(
      made, {CUSPARSE_FORMAT_COO, rows, cols, count, row_indices, indices, values, index_type, index_type, base, type});
}
cusparseStatus_t cusparseDestroySpMat(cusparseConstSpMatDescr_t made) { return destroy(made); }
cusparseStatus_t cusparseCsrSetPointers(cusparseSpMatDescr_t matrix, void* offsets, void* indices, void* values) {
  matrix->offsets = offsets;
  matrix->indices = indices;
  matrix->values = values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCscSetPointers(cusparseSpMatDescr_t matrix, void* offsets, void* indices, void* values) {
  return cusparseCsrSetPointers(matrix, offsets, indices, values);
}
cusparseStatus_t cusparseCooSetPointers(cusparseSpMatDescr_t matrix, void* rows, void* cols, void* values) {
  return cusparseCsrSetPointers(matrix, rows, cols, values);
}
cusparseStatus_t cusparseSpMatGetSize(cusparseConstSpMatDescr_t matrix, std::int64_t* rows, std::int64_t* cols,
                                      std::int64_t* count) {
  *rows = matrix->rows;
  *cols = matrix->cols;
  *count = matrix->count;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpMatGetValues(cusparseSpMatDescr_t matrix, void** values) {
  *values = matrix->values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpMatSetValues(cusparseSpMatDescr_t matrix, void* values) {
  matrix->values = values;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSpMatSetAttribute(cusparseSpMatDescr_t matrix, cusparseSpMatAttribute_t which, void* data,
                                           std::size_t bytes) {
  if (data == nullptr || bytes != sizeof(int)) return CUSPARSE_STATUS_INVALID_VALUE;
  if (which == CUSPARSE_SPMAT_FILL_MODE)
    std::memcpy(&matrix->fill, data, bytes);
  else
    std::memcpy(&matrix->diagonal, data, bytes);
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCsrSetStridedBatch(cusparseSpMatDescr_t matrix, int batches, std::int64_t offset_step,
                                            std::int64_t value_step) {
  matrix->batches = batches;
  matrix->offset_step = offset_step;
  matrix->value_step = value_step;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCooSetStridedBatch(cusparseSpMatDescr_t matrix, int batches, std::int64_t step) {
  return cusparseCsrSetStridedBatch(matrix, batches, 0, step);
}

}  // extern "C"
