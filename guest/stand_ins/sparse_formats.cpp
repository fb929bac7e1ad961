// The stand-in for cuSPARSE: from one format to another, sorting, counting, incomplete LU.
#include <numeric>

#include "guest/stand_ins/sparse.h"

using namespace tessera::guest;

struct csrilu02Info {
  int zero_pivot = -1;
};

namespace {

constexpr std::size_t kBuffer = 256;

// The elements that are not 0, in the order of the format.
Entries entries_of(const cusparseDnMatDescr& matrix, bool is_by_columns) {
  const std::vector<double> values = read_dense(matrix);
  Entries entries;
  const std::int64_t lines = is_by_columns ? matrix.cols : matrix.rows,
                     others = is_by_columns ? matrix.rows : matrix.cols;
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t other = 0; other < others; ++other) {
      const std::int64_t row = is_by_columns ? other : line, col = is_by_columns ? line : other;
      const double value = values[as_size(col * matrix.rows + row)];
      if (value == 0) continue;
      entries.rows.push_back(row);
      entries.cols.push_back(col);
      entries.values.push_back(value);
    }
  return entries;
}

template <class E>
cusparseStatus_t count_nonzeros(const char* name, cusparseHandle_t handle, cusparseDirection_t direction, int m, int n,
                                const E* a, int lda, int* of_lines, int* total) {
  return sparse(name, handle, [=] {
    const std::vector<double> values = read_matrix<double>({a, Kind<E>::kType, m, n, lda});
    const bool is_by_rows = direction == CUSPARSE_DIRECTION_ROW;
    std::vector<int> counts(as_size(is_by_rows ? m : n));
    int all = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      ++counts[is_by_rows ? i % as_size(m) : i / as_size(m)];
      ++all;
    }
    write_bytes(of_lines, counts.data(), counts.size() * sizeof(int));
    write_bytes(total, &all, sizeof(all));
  });
}

cusparseSpMatDescr csr_of(int rows, int count, cusparseMatDescr_t facts, const void* values, cudaDataType type,
                          const int* offsets, const int* indices) {
  cusparseSpMatDescr made;
  made.rows = made.cols = rows;
  made.count = count;
  made.base = facts->base;
  made.type = type;
  made.values = const_cast<void*>(values);
  made.offsets = const_cast<int*>(offsets);
  made.indices = const_cast<int*>(indices);
  return made;
}

// a becomes L and U with the pattern of a; the first row without a pivot is noted.
template <class E>
cusparseStatus_t factor(const char* name, cusparseHandle_t handle, int rows, int count, cusparseMatDescr_t facts,
                        E* values, const int* offsets, const int* indices, csrilu02Info_t info) {
  return sparse(name, handle, [=] {
    const cusparseSpMatDescr matrix = csr_of(rows, count, facts, values, Kind<E>::kType, offsets, indices);
    Entries a = read_entries(matrix);
    const std::vector<std::int64_t> begins = offsets_of(a.rows, rows);
    std::vector<std::int64_t> place(as_size(rows), -1);  // of the columns of the row at hand
    info->zero_pivot = -1;
    std::vector<std::int64_t> diagonals(as_size(rows), -1);
    for (std::int64_t row = 0; row < rows; ++row) {
      const std::int64_t begin = begins[as_size(row)], end = begins[as_size(row + 1)];
      for (std::int64_t i = begin; i < end; ++i) place[as_size(a.cols[as_size(i)])] = i;
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t col = a.cols[as_size(i)];
        if (col == row) diagonals[as_size(row)] = i;
        if (col >= row || diagonals[as_size(col)] < 0) continue;
        const double by = a.values[as_size(i)] /= a.values[as_size(diagonals[as_size(col)])];
        for (std::int64_t k = begins[as_size(col)]; k < begins[as_size(col + 1)]; ++k) {
          const std::int64_t to = place[as_size(a.cols[as_size(k)])];
          if (a.cols[as_size(k)] > col && to >= 0) a.values[as_size(to)] -= by * a.values[as_size(k)];
        }
      }
      const std::int64_t diagonal = diagonals[as_size(row)];
      if (info->zero_pivot < 0 && (diagonal < 0 || a.values[as_size(diagonal)] == 0))
        info->zero_pivot = static_cast<int>(row);
      for (std::int64_t i = begin; i < end; ++i) place[as_size(a.cols[as_size(i)])] = -1;
    }
    write_values(matrix, a.values);
  });
}

}  // namespace

extern "C" {

cusparseStatus_t cusparseSparseToDense_bufferSize(cusparseHandle_t, cusparseConstSpMatDescr_t, cusparseDnMatDescr_t,
                                                  cusparseSparseToDenseAlg_t, std::size_t* bytes) {
  *bytes = kBuffer;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseSparseToDense(cusparseHandle_t handle, cusparseConstSpMatDescr_t a, cusparseDnMatDescr_t b,
                                       cusparseSparseToDenseAlg_t, void*) {
  return sparse("cusparseSparseToDense", handle, [from = *a, to = *b] {
    std::vector<double> values(as_size(to.rows * to.cols));
    const Entries entries = read_entries(from);
    for (std::size_t i = 0; i < entries.size(); ++i)
      values.at(as_size(entries.cols[i] * to.rows + entries.rows[i])) = entries.values[i];
    write_dense(to, values);
  });
}
cusparseStatus_t cusparseDenseToSparse_bufferSize(cusparseHandle_t, cusparseConstDnMatDescr_t, cusparseSpMatDescr_t,
                                                  cusparseDenseToSparseAlg_t, std::size_t* bytes) {
  *bytes = kBuffer;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDenseToSparse_analysis(cusparseHandle_t handle, cusparseConstDnMatDescr_t a,
                                                cusparseSpMatDescr_t b, cusparseDenseToSparseAlg_t, void*) {
  return sparse("cusparseDenseToSparse_analysis", handle, [from = *a, b] {
    const bool is_csc = b->format == CUSPARSE_FORMAT_CSC;
    const Entries entries = entries_of(from, is_csc);
    b->count = static_cast<std::int64_t>(entries.size());
    if (b->format != CUSPARSE_FORMAT_COO)
      write_indices(b->offsets, b->offset_type,
                    offsets_of(is_csc ? entries.cols : entries.rows, is_csc ? b->cols : b->rows), b->base);
  });
}
cusparseStatus_t cusparseDenseToSparse_convert(cusparseHandle_t handle, cusparseConstDnMatDescr_t a,
                                               cusparseSpMatDescr_t b, cusparseDenseToSparseAlg_t, void*) {
  return sparse("cusparseDenseToSparse_convert", handle, [from = *a, to = *b] {
    const bool is_csc = to.format == CUSPARSE_FORMAT_CSC;
    const Entries entries = entries_of(from, is_csc);
    if (to.format == CUSPARSE_FORMAT_COO) write_indices(to.offsets, to.offset_type, entries.rows, to.base);
    write_indices(to.indices, to.index_type, is_csc ? entries.rows : entries.cols, to.base);
    write_values(to, entries.values);
  });
}

cusparseStatus_t cusparseCsr2cscEx2_bufferSize(cusparseHandle_t, int, int, int, const void*, const int*, const int*,
                                               void*, int*, int*, cudaDataType, cusparseAction_t, cusparseIndexBase_t,
                                               cusparseCsr2CscAlg_t, std::size_t* bytes) {
  *bytes = kBuffer;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseCsr2cscEx2(cusparseHandle_t handle, int m, int n, int count, const void* values,
                                    const int* offsets, const int* indices, void* to_values, int* to_offsets,
                                    int* to_indices, cudaDataType type, cusparseAction_t action,
                                    cusparseIndexBase_t base, cusparseCsr2CscAlg_t, void*) {
  if (is_complex(type) || bytes_of(type) == 0) return CUSPARSE_STATUS_NOT_SUPPORTED;
  return sparse("cusparseCsr2cscEx2", handle, [=] {
    cusparseMatDescr facts;
    facts.base = base;
    cusparseSpMatDescr matrix = csr_of(m, count, &facts, values, type, offsets, indices);
    matrix.cols = n;
    Entries entries = read_entries(matrix, 0, action == CUSPARSE_ACTION_NUMERIC);
    std::swap(entries.rows, entries.cols);
    entries = sorted(entries);
    write_indices(to_offsets, CUSPARSE_INDEX_32I, offsets_of(entries.rows, n), base);
    write_indices(to_indices, CUSPARSE_INDEX_32I, entries.cols, base);
    if (action == CUSPARSE_ACTION_NUMERIC) write_vector(to_values, type, 1, entries.values);
  });
}

cusparseStatus_t cusparseXcoo2csr(cusparseHandle_t handle, const int* rows, int count, int m, int* offsets,
                                  cusparseIndexBase_t base) {
  return sparse("cusparseXcoo2csr", handle, [=] {
    write_indices(offsets, CUSPARSE_INDEX_32I, offsets_of(read_indices(rows, CUSPARSE_INDEX_32I, count, base), m),
                  base);
  });
}
cusparseStatus_t cusparseXcsr2coo(cusparseHandle_t handle, const int* offsets, int count, int m, int* rows,
                                  cusparseIndexBase_t base) {
  return sparse("cusparseXcsr2coo", handle, [=] {
    const std::vector<std::int64_t> begins = read_indices(offsets, CUSPARSE_INDEX_32I, m + 1, base);
    std::vector<std::int64_t> all(as_size(count));
    for (std::int64_t row = 0; row < m; ++row)
      for (std::int64_t i = begins[as_size(row)]; i < begins[as_size(row + 1)]; ++i) all.at(as_size(i)) = row;
    write_indices(rows, CUSPARSE_INDEX_32I, all, base);
  });
}

cusparseStatus_t cusparseCreateIdentityPermutation(cusparseHandle_t handle, int count, int* places) {
  return sparse("cusparseCreateIdentityPermutation", handle, [=] {
    std::vector<int> all(as_size(count));
    std::iota(all.begin(), all.end(), 0);
    write_bytes(places, all.data(), all.size() * sizeof(int));
  });
}
cusparseStatus_t cusparseXcsrsort_bufferSizeExt(cusparseHandle_t, int, int, int, const int*, const int*,
                                                std::size_t* bytes) {
  *bytes = kBuffer;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseXcsrsort(cusparseHandle_t handle, int m, int n, int count, const cusparseMatDescr_t facts,
                                  const int* offsets, int* indices, int* places, void*) {
  return sparse("cusparseXcsrsort", handle, [=] {
    cusparseSpMatDescr matrix = csr_of(m, count, facts, nullptr, CUDA_R_32F, offsets, indices);
    matrix.cols = n;
    std::vector<std::size_t> order;
    const Entries entries = sorted(read_entries(matrix, 0, false), &order);
    write_indices(indices, CUSPARSE_INDEX_32I, entries.cols, facts->base);
    if (places == nullptr) return;
    const std::vector<int> before = read_array(places, as_size(count));
    std::vector<int> after;
    for (const std::size_t place : order) after.push_back(before[place]);
    write_bytes(places, after.data(), after.size() * sizeof(int));
  });
}

#define TESSERA_REAL(L, E)                                                                                          \
  cusparseStatus_t cusparse##L##nnz(cusparseHandle_t handle, cusparseDirection_t direction, int m, int n,           \
                                    const cusparseMatDescr_t, const E* a, int lda, int* of_lines, int* total) {     \
    return count_nonzeros("cusparse" #L "nnz", handle, direction, m, n, a, lda, of_lines, total);                   \
  }                                                                                                                 \
  cusparseStatus_t cusparse##L##csrilu02_bufferSize(cusparseHandle_t, int, int, const cusparseMatDescr_t, E*,       \
                                                    const int*, const int*, csrilu02Info_t, int* bytes) {           \
    *bytes = static_cast<int>(kBuffer);                                                                             \
    return CUSPARSE_STATUS_SUCCESS;                                                                                 \
  }                                                                                                                 \
  cusparseStatus_t cusparse##L##csrilu02_analysis(cusparseHandle_t, int, int, const cusparseMatDescr_t, const E*,   \
                                                  const int*, const int*, csrilu02Info_t, cusparseSolvePolicy_t,    \
                                                  void*) {                                                          \
    return CUSPARSE_STATUS_SUCCESS;                                                                                 \
  }                                                                                                                 \
  cusparseStatus_t cusparse##L##csrilu02(cusparseHandle_t handle, int m, int count, const cusparseMatDescr_t facts, \
                                         E* values, const int* offsets, const int* indices, csrilu02Info_t info,    \
                                         cusparseSolvePolicy_t, void*) {                                            \
    return factor("cusparse" #L "csrilu02", handle, m, count, facts, values, offsets, indices, info);               \
  }
TESSERA_REAL(S, float)
TESSERA_REAL(D, double)

cusparseStatus_t cusparseCreateCsrilu02Info(csrilu02Info_t* made) {
  *made = new csrilu02Info;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseDestroyCsrilu02Info(csrilu02Info_t made) {
  delete made;
  return CUSPARSE_STATUS_SUCCESS;
}
cusparseStatus_t cusparseXcsrilu02_zeroPivot(cusparseHandle_t, csrilu02Info_t info, int* position) {
  write_bytes(position, &info->zero_pivot, sizeof(int));
  return info->zero_pivot < 0 ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ZERO_PIVOT;
}

}  // extern "C"
