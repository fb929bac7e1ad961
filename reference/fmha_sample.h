// Which rows of an attention output are compared with the reference.
#pragma once

#include <cstdint>
#include <vector>

#include "reference/fmha.h"

namespace tessera::reference {

/// Rows of one head, ascending.
struct HeadRows {
  std::int64_t batch = 0, head = 0;
  std::vector<std::int64_t> rows;
};

/// All rows when they fit check.max_multiply_adds, else a sample (see fmha.h). The same for the same arguments.
std::vector<HeadRows> choose_rows(const FmhaSizes& sizes, const FmhaCheck& check);

}  // namespace tessera::reference
