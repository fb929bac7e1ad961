#include "reference/key_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "reference/random.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

std::int64_t number(const Tensor& tensor, std::int64_t i) { return std::llround(tensor.at(i)); }

std::int64_t pages_of(std::int64_t length, std::int64_t page_size, std::int64_t max_pages) {
  return std::min((std::max<std::int64_t>(length, 0) + page_size - 1) / page_size, max_pages);
}

/// Packed keys of a sequence: the first, and how many. As a kernel does it cuts both ends to the tensor.
struct PackedKeys {
  std::int64_t first = 0, count = 0;
};
PackedKeys packed_keys(const Tensor& ends, std::int64_t b, std::int64_t tokens, std::int64_t most) {
  const std::int64_t begin = std::clamp<std::int64_t>(number(ends, b), 0, tokens);
  const std::int64_t end = std::clamp<std::int64_t>(number(ends, b + 1), begin, tokens);
  return {begin, std::min(end - begin, most)};
}

Tensor nans(DType dtype, std::vector<std::int64_t> shape) {
  Tensor tensor(dtype, std::move(shape));
  std::fill(tensor.bytes.begin(), tensor.bytes.end(), std::byte{0xFF});
  return tensor;
}

/// visit(place in the pool, or -1 for a key of zeros; place in the dense tensor): of each head of each valid key, in
/// elements.
template <class Visit>
void for_each_row(const PoolView& pool, const Tensor& lengths, const Tensor& table, std::int64_t seqlen_k,
                  const Visit& visit) {
  const std::int64_t pages = pool.shape[0], page_size = pool.shape[1], heads = pool.shape[2], columns = pool.shape[3];
  const std::int64_t max_pages = table.shape[1];
  for (std::int64_t b = 0; b < table.shape[0]; ++b) {
    const std::int64_t keys = std::min({number(lengths, b), max_pages * page_size, seqlen_k});
    for (std::int64_t key = 0; key < keys; ++key) {
      const std::int64_t page = number(table, b * max_pages + key / page_size);
      const bool is_page = page >= 0 && page < pages;
      for (std::int64_t head = 0; head < heads; ++head)
        visit(is_page ? page * pool.strides[0] + key % page_size * pool.strides[1] + head * pool.strides[2] : -1,
              ((b * seqlen_k + key) * heads + head) * columns);
    }
  }
}

}  // namespace

Tensor draw_block_table(const Tensor& lengths, std::int64_t page_size, std::int64_t pages, std::int64_t max_pages,
                        std::uint64_t seed) {
  const CounterRandom random(seed, 77);
  std::uint64_t turn = 0;
  std::vector<std::int64_t> free(static_cast<std::size_t>(pages));
  std::iota(free.begin(), free.end(), 0);
  for (std::int64_t i = pages - 1; i > 0; --i)
    std::swap(free[static_cast<std::size_t>(i)], free[static_cast<std::size_t>(random.integer(turn++, 0, i))]);
  std::int64_t needed = 0;
  for (std::int64_t b = 0; b < lengths.shape[0]; ++b) needed += pages_of(number(lengths, b), page_size, max_pages);
  if (needed > pages)
    throw Error(ErrorKind::usage, fmt::format("pages = {}: sequences of these lengths need {}", pages, needed));
  Tensor table(DType::s32, {lengths.shape[0], max_pages});
  const std::int64_t unused = pages - needed;  // the first of `free`: the last ones are given away
  for (std::int64_t b = 0; b < lengths.shape[0]; ++b)
    for (std::int64_t i = 0; i < max_pages; ++i) {
      std::int64_t entry = random.integer(turn++, -1000000, 2000000000);
      if (unused > 0 && random.integer(turn++, 0, 1) == 1)
        entry = free[static_cast<std::size_t>(random.integer(turn++, 0, unused - 1))];
      if (i < pages_of(number(lengths, b), page_size, max_pages)) {
        entry = free.back();
        free.pop_back();
      }
      table.set(b * max_pages + i, static_cast<double>(entry));
    }
  return table;
}

void put_pages(const Tensor& dense, const Tensor& lengths, const Tensor& table, const PoolView& pool) {
  const auto element = static_cast<std::size_t>(dtype_bytes(dense.dtype));
  const std::size_t bytes = element * static_cast<std::size_t>(pool.shape[3]);
  for_each_row(pool, lengths, table, dense.shape[1], [&](std::int64_t in_pool, std::int64_t in_dense) {
    if (in_pool < 0) return;
    std::memcpy(pool.data + static_cast<std::size_t>(in_pool) * element,
                dense.bytes.data() + static_cast<std::size_t>(in_dense) * element, bytes);
  });
}

Tensor take_pages(const PoolView& pool, const Tensor& lengths, const Tensor& table, std::int64_t seqlen_k) {
  Tensor dense = nans(pool.dtype, {table.shape[0], seqlen_k, pool.shape[2], pool.shape[3]});
  const auto element = static_cast<std::size_t>(dtype_bytes(pool.dtype));
  const std::size_t bytes = element * static_cast<std::size_t>(pool.shape[3]);
  for_each_row(pool, lengths, table, seqlen_k, [&](std::int64_t in_pool, std::int64_t in_dense) {
    std::byte* const to = dense.bytes.data() + static_cast<std::size_t>(in_dense) * element;
    if (in_pool < 0)
      std::memset(to, 0, bytes);
    else
      std::memcpy(to, pool.data + static_cast<std::size_t>(in_pool) * element, bytes);
  });
  return dense;
}

Tensor ends_of(const Tensor& lengths) {
  Tensor ends(DType::s32, {lengths.shape[0] + 1});
  std::int64_t end = 0;
  for (std::int64_t b = 0; b < lengths.shape[0]; ++b)
    ends.set(b + 1, static_cast<double>(end += std::max<std::int64_t>(number(lengths, b), 0)));
  return ends;
}

Tensor pack_keys(const Tensor& dense, const Tensor& ends, std::int64_t tokens) {
  Tensor packed = nans(dense.dtype, {tokens, dense.shape[2], dense.shape[3]});
  const auto key_bytes = static_cast<std::size_t>(dense.shape[2] * dense.shape[3] * dtype_bytes(dense.dtype));
  for (std::int64_t b = 0; b < dense.shape[0]; ++b) {
    const PackedKeys keys = packed_keys(ends, b, tokens, dense.shape[1]);
    if (keys.count > 0)
      std::memcpy(packed.bytes.data() + static_cast<std::size_t>(keys.first) * key_bytes,
                  dense.bytes.data() + static_cast<std::size_t>(b * dense.shape[1]) * key_bytes,
                  static_cast<std::size_t>(keys.count) * key_bytes);
  }
  return packed;
}

Tensor unpack_keys(const Tensor& packed, const Tensor& ends, std::int64_t seqlen_k) {
  const std::int64_t batch = ends.shape[0] - 1, tokens = packed.shape[0];
  Tensor dense = nans(packed.dtype, {batch, seqlen_k, packed.shape[1], packed.shape[2]});
  const auto key_bytes = static_cast<std::size_t>(packed.shape[1] * packed.shape[2] * dtype_bytes(packed.dtype));
  for (std::int64_t b = 0; b < batch; ++b) {
    const PackedKeys keys = packed_keys(ends, b, tokens, seqlen_k);
    if (keys.count > 0)
      std::memcpy(dense.bytes.data() + static_cast<std::size_t>(b * seqlen_k) * key_bytes,
                  packed.bytes.data() + static_cast<std::size_t>(keys.first) * key_bytes,
                  static_cast<std::size_t>(keys.count) * key_bytes);
  }
  return dense;
}

Tensor lengths_of(const Tensor& ends, std::int64_t tokens, std::int64_t most) {
  Tensor lengths(DType::s32, {ends.shape[0] - 1});
  for (std::int64_t b = 0; b + 1 < ends.shape[0]; ++b)
    lengths.set(b, static_cast<double>(packed_keys(ends, b, tokens, most).count));
  return lengths;
}

}  // namespace tessera::reference
