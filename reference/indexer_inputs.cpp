// What an indexer is fed with by `run` and tests: see reference/indexer.h.
#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "reference/indexer.h"

namespace tessera::reference {

namespace {

using Tensors = std::map<std::string, Tensor>;

void set_integer(Tensor& tensor, std::int64_t i, std::int64_t value) {
  const auto narrow = static_cast<std::int32_t>(value);
  std::memcpy(tensor.bytes.data() + 4 * i, &narrow, 4);
}

/// Scales of `rows` times four blocks: powers of two about 1 that weigh little beside what a code does not say, and
/// some of the least ones. Of a head_dim of 64 the last two are NaN: nobody looks at them.
void draw_scales(const IndexerRun& run, std::int64_t rows, const CounterRandom& random, std::byte* to) {
  for (std::int64_t i = 0; i < 4 * rows; ++i) {
    const auto at = static_cast<std::uint64_t>(i);
    const std::int64_t power = 127 + random.integer(2 * at, -3, 3);
    to[i] = std::byte{random.integer(2 * at + 1, 0, 63) == 0 ? std::uint8_t{0} : static_cast<std::uint8_t>(power)};
    if (i % 4 >= run.head_dim / 32) to[i] = std::byte{0xff};
  }
}

/// Two codes of e2m1 to a byte, of all kinds.
void draw_codes(const CounterRandom& random, Tensor& tensor) {
  for (std::size_t i = 0; i < tensor.bytes.size(); ++i)
    tensor.bytes[i] = static_cast<std::byte>(random.integer(i, 0, 255));
}

void draw_ranges(const IndexerRun& run, std::uint64_t seed, Tensors& made) {
  const CounterRandom random(seed, 5);
  constexpr std::int64_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  Tensor ks(DType::s32, {run.m}), ke(DType::s32, {run.m});
  for (std::int64_t i = 0; i < run.m; ++i) {
    const auto draw = [&](std::uint64_t which, std::int64_t most) {
      return random.integer(static_cast<std::uint64_t>(i) * 4 + which, 0, std::max<std::int64_t>(most, 0));
    };
    // Neighbours see about the same keys, as those of one sequence do.
    std::int64_t begin = random.integer(static_cast<std::uint64_t>(i / 16) * 4 + 3, 0, run.n / 3);
    std::int64_t end = run.n - run.m + i + 1;
    if (run.is_usual) begin = 0;
    switch (run.is_usual ? 15 : draw(0, 15)) {
      case 0:
        end = begin;
        break;
      case 1:
        end = begin + 1;
        break;
      case 2:
        end = begin + 65;
        break;
      case 3:
        begin = kLeast;
        end = kMost;
        break;
      case 4:
        begin = draw(1, run.n);
        end = begin - 1 - draw(2, 10);
        break;
      case 5:
        begin = draw(1, run.n);
        end = run.n + 1000;
        break;
      case 6:
        begin = draw(1, run.n);
        end = begin + draw(2, 200);
        break;
      default:
        break;
    }
    set_integer(ks, i, begin);
    set_integer(ke, i, std::min(end, kMost));
  }
  made.emplace("ks", std::move(ks));
  made.emplace("ke", std::move(ke));
}

void draw_lengths(const IndexerRun& run, std::uint64_t seed, Tensors& made) {
  const CounterRandom random(seed, 6);
  const std::int64_t batch = run.next_n > 0 ? run.m / run.next_n : 0, most = run.max_pages * run.page_size;
  const bool is_own = run.context_lengths == ContextLengths::query;
  Tensor lengths(DType::s32, is_own ? std::vector<std::int64_t>{batch, run.next_n} : std::vector<std::int64_t>{batch});
  for (std::int64_t i = 0; i < lengths.elements(); ++i) {
    const auto draw = [&](std::uint64_t which, std::int64_t high) {
      return random.integer(static_cast<std::uint64_t>(i) * 4 + which, 0, std::max<std::int64_t>(high, 0));
    };
    const std::int64_t whole = draw(1, run.max_pages) * run.page_size;
    const std::int64_t odd[] = {0,
                                1,
                                whole,
                                whole + 1,
                                whole - 1,
                                most + 99,
                                -whole,
                                std::numeric_limits<std::int32_t>::min(),
                                std::numeric_limits<std::int32_t>::max()};
    const std::int64_t which = run.is_usual ? 23 : draw(0, 23);
    set_integer(lengths, i, which < 9 ? odd[which] : most - (run.is_usual ? 0 : draw(2, most * 2 / 3)));
  }
  made.emplace("context_lens", std::move(lengths));
}

void draw_cache(const IndexerRun& run, Fill kind, std::uint64_t seed, Tensors& made) {
  const CounterRandom random(seed, 7);
  const std::int64_t batch = run.m / run.next_n, row = index_row_bytes(run), page_bytes = run.page_size * (row + 4);
  Tensor table(DType::s32, {batch, run.max_pages});
  std::vector<std::int64_t> order(static_cast<std::size_t>(run.pages));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[static_cast<std::size_t>(random.integer(i, 0, static_cast<std::int64_t>(i) - 1))]);
  std::vector<std::int64_t> seen(static_cast<std::size_t>(run.pages), 0);  // keys of a page that somebody sees
  std::int64_t next = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    std::int64_t keys = 0;
    for (std::int64_t i = 0; i < run.next_n; ++i)
      keys = std::max(keys, indexer_range(run, made, b * run.next_n + i).end);
    for (std::int64_t entry = 0; entry < run.max_pages; ++entry) {
      const std::int64_t at = b * run.max_pages + entry, left = keys - entry * run.page_size;
      const std::int64_t kind_of_entry = random.integer(static_cast<std::uint64_t>(at) + (1u << 30), 0, 31);
      std::int64_t page = run.pages > 0 ? order[static_cast<std::size_t>(next++ % run.pages)] : 0;
      if (kind_of_entry == 0 && !run.is_usual) page = -1;
      if (kind_of_entry == 1 && !run.is_usual)
        page = run.pages + random.integer(static_cast<std::uint64_t>(at), 0, 1000);
      if (kind_of_entry == 2 && !run.is_usual) page = std::numeric_limits<std::int32_t>::min();
      if (left <= 0) page = std::numeric_limits<std::int32_t>::max() - at % 7;  // never read
      set_integer(table, at, page);
      if (left > 0 && page >= 0 && page < run.pages) {
        std::int64_t& most = seen[static_cast<std::size_t>(page)];
        most = std::max(most, std::min(left, run.page_size));
      }
    }
  }
  const bool is_fp4 = run.format == IndexFormat::mxfp4;
  Tensor keys(is_fp4 ? DType::u8 : DType::e4m3, {run.pages * run.page_size, row});
  Tensor scales(DType::u8, {is_fp4 ? run.pages * run.page_size : 0, 4});
  if (is_fp4) {
    draw_codes(CounterRandom(seed, 2), keys);
    draw_scales(run, run.pages * run.page_size, CounterRandom(seed, 3), scales.bytes.data());
  } else {
    fill(keys, kind, seed, 2);
  }
  Tensor cache(DType::u8, {run.pages, page_bytes});
  std::fill(cache.bytes.begin(), cache.bytes.end(), std::byte{0xff});  // NaN
  for (std::int64_t page = 0; page < run.pages; ++page)
    for (std::int64_t key = 0; key < seen[static_cast<std::size_t>(page)]; ++key) {
      const std::int64_t at = page * run.page_size + key;
      std::memcpy(cache.bytes.data() + page * page_bytes + key * row, keys.bytes.data() + at * row,
                  static_cast<std::size_t>(row));
      const auto scale = static_cast<float>((0.5 + random.uniform(static_cast<std::uint64_t>(at))) / 16);
      const void* const from = is_fp4 ? static_cast<const void*>(scales.bytes.data() + 4 * at) : &scale;
      std::memcpy(cache.bytes.data() + page * page_bytes + run.page_size * row + 4 * key, from, 4);
    }
  made.emplace("block_table", std::move(table));
  made.emplace("cache", std::move(cache));
}

}  // namespace

Tensors indexer_inputs(const IndexerRun& run, Fill kind, std::uint64_t seed) {
  Tensors made;
  const std::int64_t batch = run.m / run.next_n;
  const bool is_fp4 = run.format == IndexFormat::mxfp4;
  const std::int64_t row = index_row_bytes(run);
  const DType type = is_fp4 ? DType::u8 : DType::e4m3;
  Tensor q(type, run.is_paged ? std::vector{batch, run.next_n, run.heads, row} : std::vector{run.m, run.heads, row});
  Tensor weights(DType::f32, run.is_paged ? std::vector{batch, run.next_n, run.heads} : std::vector{run.m, run.heads});
  if (is_fp4) {
    Tensor scales(DType::u8, run.is_paged ? std::vector<std::int64_t>{batch, run.next_n, run.heads, 4}
                                          : std::vector<std::int64_t>{run.m, run.heads, 4});
    draw_codes(CounterRandom(seed, 0), q);
    draw_scales(run, run.m * run.heads, CounterRandom(seed, 8), scales.bytes.data());
    made.emplace("q_scales", std::move(scales));
  } else {
    fill(q, kind, seed, 0);
  }
  fill(weights, kind == Fill::standard ? Fill::normal : kind, seed, 1);
  made.emplace("q", std::move(q));
  made.emplace("weights", std::move(weights));
  if (run.is_paged) {
    draw_lengths(run, seed, made);
    draw_cache(run, kind, seed, made);
    return made;
  }
  draw_ranges(run, seed, made);
  Tensor keys(type, {run.n, row});
  if (is_fp4) {
    Tensor scales(DType::u8, {run.n, 4});
    draw_codes(CounterRandom(seed, 2), keys);
    draw_scales(run, run.n, CounterRandom(seed, 3), scales.bytes.data());
    made.emplace("k", std::move(keys));
    made.emplace("k_scales", std::move(scales));
    return made;
  }
  Tensor scales(DType::f32, {run.n});
  fill(keys, kind, seed, 2);
  const CounterRandom random(seed, 3);
  for (std::int64_t i = 0; i < run.n; ++i) scales.set(i, (0.5 + random.uniform(static_cast<std::uint64_t>(i))) / 16);
  made.emplace("k", std::move(keys));
  made.emplace("k_scales", std::move(scales));
  return made;
}

}  // namespace tessera::reference
