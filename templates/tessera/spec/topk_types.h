// What the choice of a row's k largest is asked for. What each word means: Topk in tessera/topk_problem.h.
#pragma once

namespace tessera {

// Which of equal elements are taken where not all are: those with the smaller indices, or the larger.
enum class Ties { smaller, larger };
// By what a row's results stand in order: ascending index, or value, the largest first.
enum class ResultOrder { index, value };
// Which of a row's columns are looked at: all, the first lengths[row], or lengths[row] from row_starts[row] on.
enum class RowRange { all, lengths, starts };
// What indices are written as: columns, places in pages of a table, or columns plus a number of the row's.
enum class IndexForm { columns, pages, offsets };
// Whether the values are written too.
enum class WithValues { off, on };
// Whether each row comes with a guess of its k-th value, and that value is written.
enum class WithGuesses { off, on };

}  // namespace tessera
