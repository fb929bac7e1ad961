#include "cli/run_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <string_view>

#include "base/file.h"
#include "base/shown.h"
#include "generator/facts.h"
#include "reference/key_places.h"
#include "reference/poison.h"
#include "reference/random.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

constexpr std::int64_t kMostTokens = 2147418112;  // what sizes of a launch may be

/// The next word of a line, and the rest of the line.
std::string_view take_word(std::string_view& line) {
  constexpr const char* kBlank = " \t\r";
  const std::size_t begin = std::min(line.find_first_not_of(kBlank), line.size());
  const std::size_t end = std::min(line.find_first_of(kBlank, begin), line.size());
  const std::string_view word = line.substr(begin, end - begin);
  line.remove_prefix(end);
  return word;
}

bool parse_length(std::string_view word, std::int64_t& length) {
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), length);
  return error == std::errc() && stop == word.data() + word.size() && length >= 0 && length <= kMostTokens;
}

using Member = std::int64_t SequenceLengths::*;

std::int64_t sum_of(const std::vector<SequenceLengths>& lengths, Member member) {
  std::int64_t sum = 0;
  for (const SequenceLengths& each : lengths) sum += each.*member;
  return sum;
}
std::int64_t longest_of(const std::vector<SequenceLengths>& lengths, Member member) {
  std::int64_t longest = 0;
  for (const SequenceLengths& each : lengths) longest = std::max(longest, each.*member);
  return longest;
}

/// Where a length may lie between 0 and a sequence's places.
bool has_used_queries(const AttentionFacts& facts) { return facts.seqused == UsedLengths::qk; }
bool has_used_keys(const AttentionFacts& facts) { return facts.seqused != UsedLengths::none; }

/// Lengths of one kind against the places that the launch has for them.
void check_each(const RunFlags& flags, Member member, const char* what, const char* size, bool may_be_less,
                const char* remedy) {
  const std::int64_t places = flags.sizes.at(size);
  for (const SequenceLengths& each : flags.lengths) {
    if (each.*member == places || (may_be_less && each.*member < places)) continue;
    throw Error(ErrorKind::usage,
                fmt::format("{}:{}: {} {}: must be {}{} = {}{}", flags.lengths_file, each.line, each.*member, what,
                            may_be_less ? "at most " : "", size, places, may_be_less ? "" : remedy));
  }
}
void check_sum(const RunFlags& flags, Member member, const char* what, const char* size) {
  const std::int64_t places = flags.sizes.at(size), sum = sum_of(flags.lengths, member);
  if (sum > places)
    throw Error(ErrorKind::usage,
                fmt::format("{}: {} {} in all: must be at most {} = {}", flags.lengths_file, sum, what, size, places));
}

reference::Tensor drawn_lengths(const RunFlags& flags, std::int64_t batch, std::int64_t most, std::uint64_t stream) {
  const reference::CounterRandom random(static_cast<std::uint64_t>(flags.seed), stream);
  reference::Tensor tensor(DType::s32, {batch});
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t length = i == 0 ? most : i % 4 == 2 ? 0 : random.integer(static_cast<std::uint64_t>(i), 0, most);
    tensor.set(i, static_cast<double>(length));
  }
  return tensor;
}

reference::Tensor lengths_of(const RunFlags& flags, Member member) {
  reference::Tensor tensor(DType::s32, {static_cast<std::int64_t>(flags.lengths.size())});
  for (std::size_t i = 0; i < flags.lengths.size(); ++i)
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(flags.lengths[i].*member));
  return tensor;
}

}  // namespace

std::vector<SequenceLengths> parse_lengths(const std::string& text, const std::string& file) {
  std::vector<SequenceLengths> lengths;
  std::int64_t number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view whole = std::string_view(text).substr(start, end - start);
    std::string_view line = whole.substr(0, whole.find('#'));
    start = end + 1;
    ++number;
    const std::string_view queries = take_word(line);
    if (queries.empty()) continue;
    SequenceLengths sequence{.line = number};
    if (!parse_length(queries, sequence.queries) || !parse_length(take_word(line), sequence.keys) ||
        !take_word(line).empty())
      throw Error(ErrorKind::usage, fmt::format("{}:{}: {}: must be \"queries keys\", two whole numbers of at most {}",
                                                file, number, shown(whole), kMostTokens));
    lengths.push_back(sequence);
  }
  if (lengths.empty()) throw Error(ErrorKind::usage, fmt::format("{}: has no line \"queries keys\"", file));
  return lengths;
}

std::vector<SequenceLengths> read_lengths(const std::string& file) { return parse_lengths(read_text(file), file); }

std::vector<GivenSize> sizes_of(const std::vector<SequenceLengths>& lengths, const AttentionFacts& facts) {
  const bool is_packed = facts.q_layout == QueryLayout::ragged;
  std::vector<GivenSize> sizes{{"batch", static_cast<std::int64_t>(lengths.size())},
                               {"seqlen_q", is_packed ? sum_of(lengths, &SequenceLengths::queries)
                                                      : longest_of(lengths, &SequenceLengths::queries)},
                               {"seqlen_k", longest_of(lengths, &SequenceLengths::keys)}};
  if (facts.kv_layout == KvLayout::ragged) sizes.push_back({"tokens_k", sum_of(lengths, &SequenceLengths::keys)});
  return sizes;
}

void check_lengths(const Plan& plan, const RunFlags& flags) {
  const AttentionFacts facts = attention_facts(plan.problem.as<Fmha>());
  const bool has_lengths = facts.q_layout == QueryLayout::ragged || facts.kv_layout != KvLayout::dense ||
                           facts.seqused != UsedLengths::none || facts.kv_pools != KvPools::dense;
  if (!has_lengths)
    throw Error(ErrorKind::usage, "--lengths: this kernel reads no lengths: give --seqused, --kv-layout or --q-layout");
  if (flags.lengths.empty()) return;  // drawn
  if (facts.kv_pools != KvPools::dense)
    throw Error(ErrorKind::usage, "--lengths FILE: keys of kv_pools sparse_window are lists: give random");
  for (const char* const buffer : {"seqused_q", "seqused_k", "cu_seqlens_q", "cu_seqlens_k"})
    if (flags.arrays.count(buffer) != 0)
      throw Error(ErrorKind::usage, fmt::format("--input {}: {} says the lengths", buffer, flags.lengths_file));
  if (const std::int64_t batch = flags.sizes.at("batch"); batch != static_cast<std::int64_t>(flags.lengths.size()))
    throw Error(ErrorKind::usage,
                fmt::format("{}: {} sequences, batch = {}", flags.lengths_file, flags.lengths.size(), batch));
  if (facts.q_layout == QueryLayout::ragged)
    check_sum(flags, &SequenceLengths::queries, "queries", "seqlen_q");
  else
    check_each(flags, &SequenceLengths::queries, "queries", "seqlen_q", has_used_queries(facts),
               " (or give --seqused qk or --q-layout ragged)");
  check_each(flags, &SequenceLengths::keys, "keys", "seqlen_k",
             has_used_keys(facts) || facts.kv_layout != KvLayout::dense,
             " (or give --seqused k, --kv-layout paged or ragged)");
  if (facts.kv_layout == KvLayout::ragged) check_sum(flags, &SequenceLengths::keys, "keys", "tokens_k");
}

reference::Tensor key_lengths(const RunFlags& flags, std::int64_t batch, std::int64_t most) {
  return flags.lengths.empty() ? drawn_lengths(flags, batch, most, 4) : lengths_of(flags, &SequenceLengths::keys);
}

reference::Tensor used_queries(const RunFlags& flags, std::int64_t batch, std::int64_t most) {
  return flags.lengths.empty() ? drawn_lengths(flags, batch, most, 3) : lengths_of(flags, &SequenceLengths::queries);
}

std::vector<std::int64_t> query_lengths(const RunFlags& flags, std::int64_t batch, std::int64_t all) {
  std::vector<std::int64_t> lengths;
  if (!flags.lengths.empty()) {
    for (const SequenceLengths& each : flags.lengths) lengths.push_back(each.queries);
    return lengths;
  }
  const reference::CounterRandom random(static_cast<std::uint64_t>(flags.seed), 5);
  for (std::int64_t i = 0; i < batch; ++i) {
    const bool is_last = i + 1 == batch;
    lengths.push_back(is_last ? all : i % 4 == 1 ? 0 : random.integer(static_cast<std::uint64_t>(i), 0, all));
    all -= lengths.back();
  }
  return lengths;
}

reference::Tensor key_ends(const RunFlags& flags, std::int64_t batch, std::int64_t most, std::int64_t tokens) {
  if (!flags.lengths.empty()) return reference::ends_of(lengths_of(flags, &SequenceLengths::keys));
  reference::Tensor drawn = drawn_lengths(flags, batch, most, 5);
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t length = std::min<std::int64_t>(std::llround(drawn.at(b)), tokens);
    drawn.set(b, static_cast<double>(length));
    tokens -= length;
  }
  return reference::ends_of(drawn);
}

void hide_rows(std::int64_t first, reference::Tensor& tensor) {
  const std::int64_t rows = tensor.shape[0];
  if (first >= rows || tensor.bytes.empty()) return;
  const auto from = static_cast<std::ptrdiff_t>(tensor.bytes.size() / static_cast<std::size_t>(rows)) * first;
  std::fill(tensor.bytes.begin() + from, tensor.bytes.end(), std::byte{0xFF});
}

void check_query_ends(const RunFlags& flags) {
  const auto given = flags.arrays.find("cu_seqlens_q");
  if (given == flags.arrays.end()) return;
  const std::vector<reference::QueryRange> ranges =
      reference::ranges_of(given->second.view(), flags.sizes.at("seqlen_q"));
  std::map<std::int64_t, std::size_t> begins;  // of sequences that have queries
  for (std::size_t b = 0; b < ranges.size(); ++b) {
    if (ranges[b].begin == ranges[b].end) continue;
    const auto [at, is_new] = begins.emplace(ranges[b].begin, b);
    const auto refuse = [&](std::size_t other) {
      throw Error(ErrorKind::usage,
                  fmt::format("--input cu_seqlens_q: sequences {} and {} both have query {}: queries of sequences must "
                              "lie apart (one that ends before it begins has none)",
                              std::min(b, other), std::max(b, other), std::max(ranges[b].begin, ranges[other].begin)));
    };
    if (!is_new) refuse(at->second);
    if (at != begins.begin() && ranges[std::prev(at)->second].end > ranges[b].begin) refuse(std::prev(at)->second);
    if (std::next(at) != begins.end() && std::next(at)->first < ranges[b].end) refuse(std::next(at)->second);
  }
}

std::vector<std::string> writes_beyond(const std::vector<reference::QueryRange>& ranges,
                                       const std::map<std::string, reference::Tensor>& outputs) {
  const auto is_owned = [&](std::int64_t row) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const reference::QueryRange& range) { return row >= range.begin && row < range.end; });
  };
  std::vector<std::string> problems;
  for (const auto& [name, tensor] : outputs) {
    const bool is_first = name == "o";  // whether rows are the first dimension
    const std::int64_t rows = tensor.shape[is_first ? 0 : 1],
                       others = tensor.elements() / std::max<std::int64_t>(rows, 1);
    const auto element = static_cast<std::size_t>(dtype_bytes(tensor.dtype));
    for (std::int64_t row = 0; row < rows; ++row) {
      if (is_owned(row)) continue;
      bool is_written = false;
      for (std::int64_t i = 0; i < others && !is_written; ++i) {
        const std::byte* const at =
            tensor.bytes.data() + element * static_cast<std::size_t>(is_first ? row * others + i : i * rows + row);
        is_written = std::any_of(at, at + element, [](std::byte b) { return b != std::byte{reference::kPoisonByte}; });
      }
      if (!is_written) continue;
      problems.push_back(fmt::format("{}: row {} belongs to no sequence, and was written", name, row));
      break;
    }
  }
  return problems;
}

}  // namespace tessera::cli
