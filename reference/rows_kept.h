// Bytes that row operators must leave as they are, or clear. Each function says what is wrong, or nothing.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "reference/tensor.h"
#include "tessera/spec/row_chain.h"

namespace tessera::reference {

/// Bytes of rows that nobody writes: as before, poison if nothing else was there.
std::string kept_problem(const std::string& name, const Tensor& out, std::int64_t rows,
                         const std::set<std::int64_t>& written, const Tensor* before = nullptr);
/// Bytes of tokens that nobody writes, and those behind a page's last.
std::string kept_token_problem(const std::string& name, const Tensor& out, RowCache cache, std::int64_t page_size,
                               const std::set<std::int64_t>& written);
/// The byte of a scale of e4m3(packed).
int packed_scale(const Tensor& scales, std::int64_t row, std::int64_t block);
/// Bytes behind the scales of a row's last word are 0: of all rows, or of those that slots name.
std::string packed_padding_problem(const std::string& name, const Tensor& scales, std::int64_t rows,
                                   const std::set<std::int64_t>& slots, std::int64_t blocks);
/// Bytes of scales in tiles that belong to no block are 0.
std::string padding_problem(const std::string& name, const Tensor& scales, std::int64_t rows, std::int64_t blocks);

}  // namespace tessera::reference
