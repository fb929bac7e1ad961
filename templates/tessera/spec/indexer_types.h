// Facts of an indexer's scores: which columns they go to, and what stands where a query sees no key.
#pragma once

namespace tessera {

// Columns of scores: of key j column j, or the column of its place in the query's range.
enum class ScoreColumns { keys, compressed };

// What columns outside of a query's range hold: -inf, or what they held.
enum class Outside { minus_inf, unwritten };

// Whose numbers context_lens are: one for each sequence, of its last query; or one for each query.
enum class ContextLengths { sequence, query };

}  // namespace tessera
