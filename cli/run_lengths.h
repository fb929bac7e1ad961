// How many queries and keys each sequence of attention has in `run`: drawn, or from a file of --lengths.
//
// A line of the file is a sequence, "queries keys"; empty lines and what follows a # count for nothing. Queries are
// those of cu_seqlens_q or seqused_q, keys those of seqused_k or cu_seqlens_k; where a launch has no such buffer, all
// sequences have as many.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/run_operator.h"
#include "reference/ragged.h"
#include "reference/tensor.h"
#include "tessera/plan.h"
#include "tessera/spec/attention_types.h"

namespace tessera::cli {

/// Throws Error{usage} with the file's name and the line that does not read, Error{io} where there is no file.
std::vector<SequenceLengths> read_lengths(const std::string& file);
/// The same of a file's text.
std::vector<SequenceLengths> parse_lengths(const std::string& text, const std::string& file);

/// Sizes of a launch that these lengths need: batch, seqlen_q, seqlen_k, tokens_k.
std::vector<GivenSize> sizes_of(const std::vector<SequenceLengths>& lengths, const AttentionFacts& facts);

/// Throws Error{usage} where a kernel reads no lengths at all, and where those of a file do not fit the sizes of the
/// launch (flags.sizes) or meet a file of --input for the same buffer.
void check_lengths(const Plan& plan, const RunFlags& flags);

/// Valid lengths of `batch` sequences, each from 0 to `most`: the first is all, every fourth none. Or a file's keys.
reference::Tensor key_lengths(const RunFlags& flags, std::int64_t batch, std::int64_t most);
/// Likewise for queries that have `most` places each (seqused_q).
reference::Tensor used_queries(const RunFlags& flags, std::int64_t batch, std::int64_t most);
/// Queries of sequences that share `all` places (cu_seqlens_q): all of them, some sequences having none, where they are
/// drawn.
std::vector<std::int64_t> query_lengths(const RunFlags& flags, std::int64_t batch, std::int64_t all);
/// int32 [batch + 1] for keys of which a sequence has at most `most` and all together `tokens`.
reference::Tensor key_ends(const RunFlags& flags, std::int64_t batch, std::int64_t most, std::int64_t tokens);

/// NaNs in the rows of [rows, ..] from `first` on: nobody may read them.
void hide_rows(std::int64_t first, reference::Tensor& tensor);
/// Throws Error{usage} where a cu_seqlens_q of --input gives a query to two sequences: both would write its rows.
void check_query_ends(const RunFlags& flags);
/// "o: row 7 belongs to no sequence, and was written", of packed outputs, o [queries, ..] and others [heads, queries].
std::vector<std::string> writes_beyond(const std::vector<reference::QueryRange>& ranges,
                                       const std::map<std::string, reference::Tensor>& outputs);

}  // namespace tessera::cli
