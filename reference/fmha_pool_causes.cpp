#include "reference/fmha_pool_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "reference/attention_cache.h"

namespace tessera::reference {

namespace {

constexpr std::size_t kQueriesLooked = 6;                          // wrong queries
constexpr double kTellingBound = 0.5;                              // where roundings explain more, nothing is told
constexpr std::int64_t kMostMultiplyAdds = std::int64_t{1} << 26;  // of a query: more is sampled

/// A problem with a slip, and what it owns.
struct Altered {
  FmhaPools in;
  FmhaCheck check;
  Tensor k{DType::bf16, {}}, swa_k{DType::bf16, {}}, v{DType::bf16, {}}, list{DType::s32, {}}, lens{DType::s32, {}},
      sink{DType::f32, {}}, q{DType::bf16, {}};
};

Tensor copy_of(const TensorView& view) {
  Tensor tensor(view.dtype, view.shape);
  std::memcpy(tensor.bytes.data(), view.data, tensor.bytes.size());
  return tensor;
}

std::int64_t length_of(const FmhaPools& in, std::int64_t list) {
  const std::int64_t topk = in.indices.shape[2];
  return in.topk_lens ? std::clamp<std::int64_t>(static_cast<std::int64_t>(in.topk_lens->at(list)), 0, topk) : topk;
}

/// Entries of lists by `entry_of(list, place)`.
void set_lists(Altered& a, const std::function<double(std::int64_t, std::int64_t)>& entry_of) {
  a.list = copy_of(a.in.indices);
  const std::int64_t topk = a.in.indices.shape[2];
  for (std::int64_t i = 0; i < a.list.elements(); ++i) a.list.set(i, entry_of(i / topk, i % topk));
  a.in.indices = a.list.view();
}
void set_lengths(Altered& a, const std::function<double(std::int64_t)>& length) {
  a.lens = Tensor(DType::s32, {a.in.q.shape[0], a.in.q.shape[1]});
  for (std::int64_t i = 0; i < a.lens.elements(); ++i) a.lens.set(i, length(i));
  a.in.topk_lens = a.lens.view();
}

bool is_none(const FmhaPools& in, double entry) { return entry < 0 || entry >= static_cast<double>(in.k.shape[0]); }

bool is_finite(const TensorView& o, std::int64_t batch, std::int64_t query) {
  const std::int64_t first = batch * o.strides[0] + query * o.strides[1];
  for (std::int64_t head = 0; head < o.shape[2]; ++head)
    for (std::int64_t column = 0; column < o.shape[3]; ++column)
      if (!std::isfinite(o.at(first + head * o.strides[2] + column * o.strides[3]))) return false;
  return true;
}

using Alter = std::function<bool(Altered&)>;  // false: there is no such slip here
struct Slip {
  const char* cause;
  Alter alter;
};

/// One row of zeros more, which entries that are none then name.
bool take_zeros(Altered& a) {
  const auto with_zeros = [](const TensorView& from, Tensor& to) {
    to = Tensor(from.dtype, {from.shape[0] + 1, from.shape[1]});
    const std::int64_t bytes = from.shape[1] * dtype_bytes(from.dtype);
    for (std::int64_t row = 0; row < from.shape[0]; ++row)
      std::memcpy(to.bytes.data() + row * bytes, from.data + row * from.strides[0] * dtype_bytes(from.dtype),
                  static_cast<std::size_t>(bytes));
  };
  const std::int64_t rows = a.in.k.shape[0];
  set_lists(a, [&, in = a.in](std::int64_t list, std::int64_t place) {
    const double entry = in.indices.at(list * in.indices.shape[2] + place);
    return is_none(in, entry) ? static_cast<double>(rows) : entry;
  });
  with_zeros(a.in.k, a.k);
  with_zeros(a.in.v, a.v);
  a.in.k = a.k.view();
  a.in.v = a.v.view();
  return true;
}

void add_lists(std::vector<Slip>& slips) {
  const auto entries = [&](const char* cause, auto entry_of) {
    slips.push_back(
        {cause, [entry_of](Altered& a) {
           if (a.in.indices.shape[2] == 0 || a.in.k.shape[0] == 0) return false;
           set_lists(a, [&, in = a.in](std::int64_t list, std::int64_t place) { return entry_of(in, list, place); });
           return true;
         }});
  };
  const auto at = [](const FmhaPools& in, std::int64_t list, std::int64_t place) {
    return in.indices.at(list * in.indices.shape[2] + place);
  };
  entries("-1 in a list is taken for row 0", [at](const FmhaPools& in, std::int64_t list, std::int64_t place) {
    const double entry = at(in, list, place);
    return is_none(in, entry) ? 0.0 : entry;
  });
  slips.push_back({"-1 in a list is taken for a row of zeros", take_zeros});
  entries("the last row of a list is exchanged with the next entry",
          [at](const FmhaPools& in, std::int64_t list, std::int64_t place) {
            const std::int64_t length = length_of(in, list);
            const bool is_exchanged = place + 1 == length && length < in.indices.shape[2];
            return at(in, list, is_exchanged ? place + 1 : place);
          });
  entries("lists begin at their second entry", [at](const FmhaPools& in, std::int64_t list, std::int64_t place) {
    return place + 1 < in.indices.shape[2] ? at(in, list, place + 1) : -1.0;
  });
  for (const auto& [cause, shift] :
       {std::pair("lists are those of the query before", -1), std::pair("lists are those of the next query", 1)})
    entries(cause, [at, shift = shift](const FmhaPools& in, std::int64_t list, std::int64_t place) {
      const std::int64_t queries = in.q.shape[1], query = list % queries;
      return at(in, list - query + std::clamp<std::int64_t>(query + shift, 0, queries - 1), place);
    });
  entries("lists are those of the first sequence", [at](const FmhaPools& in, std::int64_t list, std::int64_t place) {
    return at(in, list % in.q.shape[1], place);
  });
  for (const auto& [cause, by] :
       {std::pair("a list's last entry is left out", -1), std::pair("the entry behind a list is taken too", 1)})
    slips.push_back({cause, [by = by](Altered& a) {
                       const FmhaPools in = a.in;
                       set_lengths(a, [&](std::int64_t list) { return static_cast<double>(length_of(in, list) + by); });
                       return true;
                     }});
  slips.push_back({"topk_lens are ignored", [](Altered& a) {
                     if (!a.in.topk_lens) return false;
                     a.in.topk_lens.reset();
                     return true;
                   }});
}

void add_heads(std::vector<Slip>& slips) {
  slips.push_back({"sinks of neighbouring heads are exchanged", [](Altered& a) {
                     if (!a.check.sink || a.check.sink->shape[0] < 2) return false;
                     const std::int64_t heads = a.check.sink->shape[0];
                     a.sink = copy_of(*a.check.sink);
                     for (std::int64_t head = 0; head < heads; ++head)
                       a.sink.set(head, a.check.sink->at(std::min(head ^ 1, heads - 1)));
                     a.check.sink = a.sink.view();
                     return true;
                   }});
  slips.push_back({"the sink is left out", [](Altered& a) {
                     if (!a.check.sink) return false;
                     a.check.sink.reset();
                     return true;
                   }});
  slips.push_back({"queries of neighbouring heads are exchanged", [](Altered& a) {
                     const std::int64_t heads = a.in.q.shape[2], columns = a.in.q.shape[3];
                     if (heads < 2) return false;
                     a.q = copy_of(a.in.q);
                     const std::int64_t bytes = columns * dtype_bytes(a.in.q.dtype);
                     for (std::int64_t row = 0; row < a.q.elements() / columns; ++row) {
                       const std::int64_t head = row % heads, other = std::min(head ^ 1, heads - 1);
                       std::memcpy(a.q.bytes.data() + row * bytes, a.in.q.data + (row - head + other) * bytes,
                                   static_cast<std::size_t>(bytes));
                     }
                     a.in.q = a.q.view();
                     return true;
                   }});
}

void add_caches(const FmhaPoolCaches& caches, std::vector<Slip>& slips) {
  const bool is_e2m1 = cache_layout(cache_of(caches.facts)).value == ValueType::e2m1;
  const std::pair<const char*, CacheSlip> of_caches[] = {
      {"tokens are read from the page before their own", {.page_shift = -1}},
      {"tokens are read from the page behind their own", {.page_shift = 1}},
      {"scales are those of the token beside (number ^ 1)", {.has_scales_of_pair = true}},
      {"scales are those of the next token", {.scale_token_shift = 1}},
      {"scales are those of the token before", {.scale_token_shift = -1}},
      {"scales of neighbouring blocks are exchanged", {.has_scales_of_blocks = true}},
      {"of four blocks each has the scale of the next", {.turns_four_scales = true}},
      {"columns have the scale of the next block", {.scale_block_shift = 1}},
      {"columns have the scale of the block before", {.scale_block_shift = -1}},
      {"all columns have a token's first scale", {.has_first_scale = true}},
      {"scales count as 1", {.is_unscaled = true}},
      {"columns of a byte are exchanged", {.has_nibbles_exchanged = true}},
  };
  for (const auto& [cause, slip] : of_caches) {
    if (slip.has_nibbles_exchanged && !is_e2m1) continue;
    slips.push_back({cause, [&caches, slip = slip](Altered& a) {
                       a.k = rows_of_cache(caches.facts, caches.k.data, caches.tokens, slip);
                       a.swa_k = rows_of_window_cache(caches.facts, caches.swa_k, caches.tokens_of_window, slip);
                       a.in.k = a.k.view();
                       a.in.swa_k = a.swa_k.view();
                       a.in.v = first_columns(a.in.k, a.in.v.shape[1]);
                       a.in.swa_v = first_columns(a.in.swa_k, caches.facts.head_dim_v);
                       return true;
                     }});
  }
}

}  // namespace

std::string cause_of_pools(const FmhaPools& in, const std::optional<FmhaPoolCaches>& caches, const FmhaOutputs& outputs,
                           const FmhaCheck& check) {
  FmhaCheck of_few = check;
  of_few.max_multiply_adds = std::min(check.max_multiply_adds, kMostMultiplyAdds);
  // Queries that have a NaN or an infinity tell nothing about numbers: they are left out unless all have.
  std::vector<std::int64_t> wrong, others;
  for (std::int64_t list = 0; list < in.q.shape[0] * in.q.shape[1] && wrong.size() < kQueriesLooked; ++list)
    if (!check_pool_queries(in, outputs, of_few, {list}).front().pass)
      (is_finite(outputs.o, list / in.q.shape[1], list % in.q.shape[1]) ? wrong : others).push_back(list);
  if (wrong.empty()) wrong = std::move(others);
  if (wrong.empty()) return {};
  std::vector<Slip> slips;
  add_lists(slips);
  if (caches) add_caches(*caches, slips);
  add_heads(slips);
  for (const Slip& slip : slips) {
    Altered altered{.in = in, .check = of_few};
    if (!slip.alter(altered)) continue;
    const std::vector<Comparison> all = check_pool_queries(altered.in, outputs, altered.check, wrong);
    if (std::all_of(all.begin(), all.end(),
                    [](const Comparison& one) { return one.pass && one.rel_bound < kTellingBound; }))
      return fmt::format("likely cause: {} (explains the {} wrong queries that were looked at)", slip.cause,
                         wrong.size());
  }
  return {};
}

}  // namespace tessera::reference
