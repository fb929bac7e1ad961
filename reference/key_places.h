// Keys that do not lie dense, and the dense tensor [batch, seqlen_k, heads, head_dim] that they stand for: in pages of
// a pool, which a table [batch, max_pages] (int32) lists for each sequence, or packed sequence behind sequence.
//
// Key i of sequence b lies in page table[b][i / page_size], as its key i % page_size. An entry that is no page of the
// pool stands for keys of zeros. What is of no valid key is NaN, in pools and in dense tensors: nobody may use it.
#pragma once

#include "reference/tensor.h"

namespace tessera::reference {

/// Random pages of a pool, none twice. What stands behind a sequence's last page is, half of the time each, a page that
/// no sequence has, whose keys are NaN, and a random number that is hardly any page's. lengths [batch]: valid keys, of
/// which no more than max_pages * page_size count. Throws Error{usage} where the pool is too small.
Tensor draw_block_table(const Tensor& lengths, std::int64_t page_size, std::int64_t pages, std::int64_t max_pages,
                        std::uint64_t seed);

/// A pool [pages, page_size, heads, head_dim] in memory, with strides.
struct PoolView {
  std::byte* data = nullptr;
  DType dtype = DType::bf16;
  std::vector<std::int64_t> shape, strides;
};
/// Puts valid keys of a dense tensor where they belong, and leaves all other bytes as they are.
void put_pages(const Tensor& dense, const Tensor& lengths, const Tensor& table, const PoolView& pool);
Tensor take_pages(const PoolView& pool, const Tensor& lengths, const Tensor& table, std::int64_t seqlen_k);

/// Ends of sequences, from 0 on: [batch + 1].
Tensor ends_of(const Tensor& lengths);
/// [tokens, heads, head_dim], NaN behind the last sequence. Ends may be anything: they are cut to the tensor.
Tensor pack_keys(const Tensor& dense, const Tensor& ends, std::int64_t tokens);
Tensor unpack_keys(const Tensor& packed, const Tensor& ends, std::int64_t seqlen_k);
/// Valid keys of each sequence, none more than `most`.
Tensor lengths_of(const Tensor& ends, std::int64_t tokens, std::int64_t most);

}  // namespace tessera::reference
