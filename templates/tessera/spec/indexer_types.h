// Facts of an indexer's scores: which columns they go to, and what stands where a query sees no key.
#pragma once

namespace tessera {

// Columns of scores: of key j column j, or the column of its place in the query's range.
enum class ScoreColumns { keys, compressed };

// What columns outside of a query's range hold: -inf, or what they held.
enum class Outside { minus_inf, unwritten };

// Whose numbers context_lens are: one for each sequence, of its last query; or one for each query.
enum class ContextLengths { sequence, query };

// What q and keys are: e4m3, keys with an fp32 scale each; or e2m1 with ue8m0 for 32 elements, two to a byte, the first
// in the low four bits. A key, and a head of q, then has four bytes of scales; of a head_dim of 64 the last two are not
// looked at.
enum class IndexFormat { e4m3, mxfp4 };

// What instructions multiply: operands as they are stored, or, of mxfp4, as bf16: code times scale, which is exact up
// to a scale of 2^125; beyond it what is too large becomes infinite.
enum class IndexOperands { stored, bf16 };

}  // namespace tessera
