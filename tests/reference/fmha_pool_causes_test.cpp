// Slips with lists, pages, scales and heads: outputs that have one are explained by it, and by no other.
#include "reference/fmha_pool_causes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "reference/attention_cache.h"

namespace tessera::reference {
namespace {

constexpr std::int64_t kTokens = 96, kTopk = 30, kWindow = 16, kQueries = 2, kHeads = 2, kColumns = 512;

struct Case {
  AttentionFacts facts;
  FmhaPoolTensors t;
  Tensor cache, window, lengths, rows, window_rows;

  explicit Case(KvCache format) {
    facts.head_dim = facts.head_dim_v = kColumns;
    facts.kv_cache = format;
    facts.v_is_k = VIsK::on;
    facts.page_size = 16;
    const FmhaSizes sizes{1, kHeads, 1, kQueries, kTokens, kColumns, kColumns};
    t = make_pool_inputs(sizes, kTopk, kWindow, DType::bf16, Fill::normal, 3);
    cache = make_cache(facts, kTokens, Fill::normal, 3, 21);
    window = make_window_cache(facts, t.swa_lens, kWindow, Fill::normal, 3, 22);
    lengths = Tensor(DType::s32, {1, kQueries});
    lengths.set(0, 20), lengths.set(1, 25);
    read({});
  }
  void read(const CacheSlip& slip) {
    rows = rows_of_cache(facts, cache.bytes.data(), kTokens, slip);
    window_rows = rows_of_window_cache(facts, window.view(), kWindow, slip);
  }
  FmhaPools problem() const {
    const TensorView k = rows.view(), swa_k = window_rows.view();
    return {t.q.view(),
            k,
            first_columns(k, kColumns),
            swa_k,
            first_columns(swa_k, kColumns),
            t.indices.view(),
            t.swa_lens.view(),
            lengths.view(),
            {}};
  }
  FmhaPoolCaches caches() const { return {facts, cache.view(), window.view(), kTokens, kWindow}; }
  FmhaCheck check() const {
    FmhaCheck c;
    c.facts = facts;
    c.softmax_scale = 0.04;
    c.sink = t.sink.view();
    return c;
  }
  /// By hand, from what rows, lists and sinks are now.
  Tensor output() const {
    Tensor o(DType::bf16, {1, kQueries, kHeads, kColumns});
    for (std::int64_t query = 0; query < kQueries; ++query)
      for (std::int64_t head = 0; head < kHeads; ++head) {
        std::vector<double> sums(kColumns);
        double total = std::exp(t.sink.at(head));
        const auto add = [&](const Tensor& keys, std::int64_t row) {
          double score = 0;
          for (std::int64_t c = 0; c < kColumns; ++c)
            score += t.q.at((query * kHeads + head) * kColumns + c) * keys.at(row * kColumns + c);
          const double weight = std::exp(0.04 * score);
          total += weight;
          for (std::int64_t c = 0; c < kColumns; ++c)
            sums[static_cast<std::size_t>(c)] += weight * keys.at(row * kColumns + c);
        };
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(lengths.at(query)); ++i)
          if (const auto row = static_cast<std::int64_t>(t.indices.at(query * kTopk + i)); row >= 0 && row < kTokens)
            add(rows, row);
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(t.swa_lens.at(0)); ++i) add(window_rows, i);
        for (std::int64_t c = 0; c < kColumns; ++c)
          o.set((query * kHeads + head) * kColumns + c, sums[static_cast<std::size_t>(c)] / total);
      }
    return o;
  }
};

std::string cause_of(const Case& right, const Tensor& found) {
  return cause_of_pools(right.problem(), right.caches(), {found.view(), {}, {}, {}}, right.check());
}

}  // namespace

TEST_CASE("causes of pools: slips with caches of every format are named") {
  struct Named {
    CacheSlip slip;
    const char* cause;
  };
  const Named all[] = {{{.page_shift = -1}, "tokens are read from the page before their own"},
                       {{.page_shift = 1}, "tokens are read from the page behind their own"},
                       {{.has_scales_of_pair = true}, "scales are those of the token beside (number ^ 1)"},
                       {{.scale_token_shift = -1}, "scales are those of the token before"},
                       {{.scale_block_shift = 1}, "columns have the scale of the next block"},
                       {{.has_scales_of_blocks = true}, "scales of neighbouring blocks are exchanged"},
                       {{.is_unscaled = true}, "scales count as 1"},
                       {{.has_nibbles_exchanged = true}, "columns of a byte are exchanged"}};
  for (const KvCache format : {KvCache::mla_584, KvCache::mla_384}) {
    const Case right(format);
    CHECK(cause_of(right, right.output()).empty());
    for (const Named& one : all) {
      if (one.slip.has_nibbles_exchanged && format != KvCache::mla_384) continue;
      Case wrong(format);
      wrong.read(one.slip);
      CHECK(cause_of(right, wrong.output()).find(std::string("likely cause: ") + one.cause + " (") == 0);
    }
  }
}

TEST_CASE("causes of pools: slips with lists, lengths and heads are named, noise is not") {
  const Case right(KvCache::mla_584);
  const auto named = [&](const Case& wrong) { return cause_of(right, wrong.output()); };
  Case wrong = right;
  for (std::int64_t i = 0; i < wrong.t.indices.elements(); ++i)
    if (wrong.t.indices.at(i) < 0 || wrong.t.indices.at(i) >= kTokens) wrong.t.indices.set(i, 0);
  CHECK(named(wrong).find("-1 in a list is taken for row 0") != std::string::npos);
  wrong = right;
  for (std::int64_t query = 0; query < kQueries; ++query) {
    const auto last = static_cast<std::int64_t>(right.lengths.at(query)) - 1;
    wrong.t.indices.set(query * kTopk + last, right.t.indices.at(query * kTopk + last + 1));
  }
  CHECK(named(wrong).find("the last row of a list is exchanged with the next entry") != std::string::npos);
  wrong = right;
  for (std::int64_t i = 0; i < kTopk; ++i) wrong.t.indices.set(kTopk + i, right.t.indices.at(i));
  CHECK(named(wrong).find("lists are those of the query before") != std::string::npos);
  wrong = right;
  for (std::int64_t query = 0; query < kQueries; ++query) wrong.lengths.set(query, right.lengths.at(query) + 1);
  CHECK(named(wrong).find("the entry behind a list is taken too") != std::string::npos);
  wrong = right;
  wrong.t.sink.set(0, right.t.sink.at(1)), wrong.t.sink.set(1, right.t.sink.at(0));
  CHECK(named(wrong).find("sinks of neighbouring heads are exchanged") != std::string::npos);
  Tensor noise = right.output();
  for (std::int64_t i = 0; i < noise.elements(); ++i) noise.set(i, noise.at(i) + (i % 7 == 0 ? 0.5 : 0.0));
  CHECK(cause_of(right, noise).empty());
}

}  // namespace tessera::reference
