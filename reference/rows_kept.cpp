#include "reference/rows_kept.h"

#include <fmt/format.h>

#include <vector>

#include "reference/poison.h"
#include "tessera/spec/block_scale.h"
#include "tessera/spec/row_cache.h"
#include "tessera/spec/row_chain.h"

namespace tessera::reference {

std::string kept_problem(const std::string& name, const Tensor& out, std::int64_t rows,
                         const std::set<std::int64_t>& written, const Tensor* before) {
  if (rows == 0) return {};
  const auto bytes = static_cast<std::int64_t>(out.bytes.size()) / rows;
  for (std::int64_t row = 0; row < rows; ++row) {
    if (written.count(row) != 0) continue;
    for (std::int64_t i = 0; i < bytes; ++i)
      if (const auto at = static_cast<std::size_t>(row * bytes + i);
          out.bytes[at] != (before != nullptr ? before->bytes[at] : std::byte{kPoisonByte}))
        return fmt::format("{}: row {} was written, which no slot names", name, row);
  }
  return {};
}

std::string kept_token_problem(const std::string& name, const Tensor& out, RowCache cache, std::int64_t page_size,
                               const std::set<std::int64_t>& written) {
  if (out.bytes.empty()) return {};
  const std::int64_t page_bytes = out.shape[1];
  std::vector<bool> is_written(out.bytes.size());
  const auto mark = [&](std::int64_t from, std::int64_t count) {
    for (std::int64_t i = from; i < from + count; ++i) is_written[static_cast<std::size_t>(i)] = true;
  };
  for (const std::int64_t slot : written) {
    if (slot < 0) continue;
    const std::int64_t page = slot / page_size * page_bytes, place = slot % page_size;
    const CacheLayout l = cache_layout(cache);
    mark(page + place * l.token_bytes, l.token_bytes);
    if (l.tail_bytes > 0) mark(page + cache_scale_at(cache, page_size, place, 0), l.tail_bytes);
  }
  for (std::size_t i = 0; i < is_written.size(); ++i)
    if (!is_written[i] && static_cast<std::uint8_t>(out.bytes[i]) != kPoisonByte)
      return fmt::format("{}: byte {} of page {} was written, which belongs to no slot that is named", name,
                         static_cast<std::int64_t>(i) % page_bytes, static_cast<std::int64_t>(i) / page_bytes);
  return {};
}

int packed_scale(const Tensor& scales, std::int64_t row, std::int64_t block) {
  const long long at = packed_scale_at(scales.shape[1], row, static_cast<int>(block));
  return static_cast<int>(scales.bytes[static_cast<std::size_t>(at)]);
}

std::string packed_padding_problem(const std::string& name, const Tensor& scales, std::int64_t rows,
                                   const std::set<std::int64_t>& slots, std::int64_t blocks) {
  std::set<std::int64_t> written = slots;
  for (std::int64_t row = 0; slots.empty() && row < rows; ++row) written.insert(row);
  for (const std::int64_t row : written)
    for (std::int64_t block = blocks; row >= 0 && block % 4 != 0; ++block)
      if (packed_scale(scales, row, block) != 0)
        return fmt::format("{}: byte {} of row {}'s last word belongs to no block and is not 0", name, block % 4, row);
  return {};
}

std::string padding_problem(const std::string& name, const Tensor& scales, std::int64_t rows, std::int64_t blocks) {
  if (scales.bytes.empty()) return {};
  std::vector<bool> is_scale(scales.bytes.size());
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t j = 0; j < blocks; ++j)
      is_scale[static_cast<std::size_t>(scale_offset(ScaleForm::tile, rows, blocks, 0, row, j))] = true;
  for (std::size_t i = 0; i < is_scale.size(); ++i)
    if (!is_scale[i] && scales.bytes[i] != std::byte{0})
      return fmt::format("{}: byte {} belongs to no block and is {:#x}, not 0", name, i,
                         static_cast<unsigned>(scales.bytes[i]));
  return {};
}

}  // namespace tessera::reference
