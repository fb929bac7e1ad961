// Small problems are compared whole. Otherwise faults are sought at edges: first and last row of several heads, both
// sides of every tile edge of the first head, random rows for what nobody thought of. The choice is a function of the
// seed.
#include "reference/fmha_sample.h"

#include <algorithm>
#include <numeric>
#include <set>

namespace tessera::reference {

namespace {

void add_tile_edges(std::set<std::int64_t>& rows, std::int64_t extent, std::int64_t tile, std::size_t most) {
  for (std::int64_t edge = tile; edge < extent && rows.size() < most; edge += tile) {
    rows.insert(edge - 1);
    rows.insert(edge);
  }
}

}  // namespace

std::vector<HeadRows> choose_rows(const FmhaSizes& sizes, const FmhaCheck& check) {
  std::vector<HeadRows> chosen;
  const std::int64_t heads = sizes.batch * sizes.heads_q;
  if (heads == 0 || sizes.seqlen_q == 0) return chosen;
  // A row costs about one multiply-add per key and column for the score, and two for the output and its bound.
  const double row_cost = static_cast<double>(std::max<std::int64_t>(sizes.seqlen_k, 1)) *
                          static_cast<double>(sizes.head_dim + 2 * sizes.v_columns());
  const double total = row_cost * static_cast<double>(heads) * static_cast<double>(sizes.seqlen_q);
  const bool is_full = total <= static_cast<double>(check.max_multiply_adds);
  if (is_full) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(sizes.seqlen_q));
    std::iota(all.begin(), all.end(), std::int64_t{0});
    for (std::int64_t i = 0; i < heads; ++i) chosen.push_back({i / sizes.heads_q, i % sizes.heads_q, all});
    return chosen;
  }
  const auto budget =
      std::max<std::int64_t>(64, static_cast<std::int64_t>(static_cast<double>(check.max_multiply_adds) / row_cost));
  const CounterRandom random(check.seed, 0x5A4D);
  const std::int64_t num_heads = std::min(heads, std::max<std::int64_t>(4, budget / 64));
  std::set<std::int64_t> which{0, heads - 1};
  for (std::uint64_t i = 0; static_cast<std::int64_t>(which.size()) < num_heads; ++i)
    which.insert(random.integer(i, 0, heads - 1));
  const auto per_head = static_cast<std::size_t>(
      std::clamp<std::int64_t>(budget / static_cast<std::int64_t>(which.size()), 4, sizes.seqlen_q));
  std::uint64_t counter = 1 << 20;
  for (const std::int64_t head : which) {
    std::set<std::int64_t> rows{0, sizes.seqlen_q - 1};
    if (head == 0) add_tile_edges(rows, sizes.seqlen_q, std::max(check.tile_m, 1), 4096);
    while (rows.size() < per_head) rows.insert(random.integer(counter++, 0, sizes.seqlen_q - 1));
    chosen.push_back({head / sizes.heads_q, head % sizes.heads_q, {rows.begin(), rows.end()}});
  }
  return chosen;
}

}  // namespace tessera::reference
