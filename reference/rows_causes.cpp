#include "reference/rows_causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>

#include "reference/number.h"
#include "reference/quantize.h"
#include "tessera/row_chain.h"
#include "tessera/spec/row_cache.h"

namespace tessera::reference {

namespace {

using Tensors = std::map<std::string, Tensor>;
constexpr std::size_t kMostRows = 16;  // that are looked at

/// What a mistake is put into.
struct Scene {
  RowsRun run;
  Tensors in, out;
};

struct RowMistake {
  std::string cause;
  std::function<void(Scene&)> make;
};

bool has_slot_of_own(const RowStep& step) { return step.is_placed || step.is_paged || step.kind == RowPart::cache; }

/// Of `rows` rows of a tensor, each is taken from the place `from` of it.
void move_rows(Tensor& tensor, std::int64_t rows, const std::function<std::int64_t(std::int64_t)>& from) {
  if (rows == 0) return;
  const auto bytes = tensor.bytes.size() / static_cast<std::size_t>(rows);
  const std::vector<std::byte> before = tensor.bytes;
  for (std::int64_t row = 0; row < rows; ++row)
    std::memcpy(tensor.bytes.data() + static_cast<std::size_t>(row) * bytes,
                before.data() + static_cast<std::size_t>((from(row) % rows + rows) % rows) * bytes, bytes);
}

void move_rows(Tensor& tensor, const std::function<std::int64_t(std::int64_t)>& from) {
  move_rows(tensor, tensor.shape[0], from);
}

/// Elements of each row, likewise.
void move_columns(Tensor& tensor, const std::function<std::int64_t(std::int64_t)>& from) {
  Tensor row(tensor.dtype, {tensor.shape[1]});
  for (std::int64_t i = 0; i < tensor.shape[0]; ++i) {
    const auto start = tensor.bytes.begin() + i * static_cast<std::ptrdiff_t>(row.bytes.size());
    std::copy_n(start, row.bytes.size(), row.bytes.begin());
    move_rows(row, from);
    std::copy(row.bytes.begin(), row.bytes.end(), start);
  }
}

/// Units of `bytes` exchanged in pairs.
void exchange_pairs(Tensor& tensor, std::size_t bytes) {
  for (std::size_t i = 0; i + 2 * bytes <= tensor.bytes.size(); i += 2 * bytes)
    std::swap_ranges(tensor.bytes.begin() + static_cast<std::ptrdiff_t>(i),
                     tensor.bytes.begin() + static_cast<std::ptrdiff_t>(i + bytes),
                     tensor.bytes.begin() + static_cast<std::ptrdiff_t>(i + bytes));
}

void exchange_halves(Tensor& x) {
  const std::int64_t columns = x.shape.back(), half = columns / 2 * dtype_bytes(x.dtype);
  for (std::int64_t row = 0; row < x.elements() / columns; ++row) {
    const auto start = x.bytes.begin() + row * 2 * half;
    std::swap_ranges(start, start + half, start + half);
  }
}

/// Where the scales stand that a sink has written: of rows as they lie there, and blocks.
struct ScalePlaces {
  std::string name;
  std::int64_t rows = 0, blocks = 0, bytes = 1;
  std::function<std::int64_t(std::int64_t, std::int64_t)> at;  ///< in bytes
};

ScalePlaces scales_of(const RowsRun& run, const Tensors& out, const RowStep& step, const RowStepNames& names) {
  ScalePlaces places{names.out2, step.is_placed ? run.placed_rows : run.rows, 1, 1, {}};
  const std::int64_t rows = places.rows, columns = width(step, static_cast<int>(run.columns));
  if (step.kind == RowPart::cache) {
    places = {names.out, run.pages * run.page_size, cache_blocks(step.cache), cache_layout(step.cache).scale_bytes, {}};
    const std::int64_t page_bytes = run.pages == 0 ? 0 : out.at(names.out).shape[1];
    places.at = [page_bytes, size = run.page_size, cache = step.cache](std::int64_t row, std::int64_t block) {
      return row / size * page_bytes + cache_scale_at(cache, size, row % size, static_cast<int>(block));
    };
  } else if (step.kind == RowPart::quantize) {
    const std::int64_t blocks = places.blocks = columns / block_elements(step.format);
    places.at = [form = step.form, rows, blocks](std::int64_t row, std::int64_t block) {
      return scale_offset(form, rows, blocks, 0, row, block);
    };
  } else {
    const std::int64_t blocks = places.blocks = step.block > 0 ? columns / step.block : 1;
    const bool is_by_columns = step.is_column_major && step.block > 0;
    places.bytes = step.is_packed ? 1 : 4;
    places.at = [=, padded = scale_rows(step, rows), is_packed = step.is_packed](std::int64_t row,
                                                                                 std::int64_t block) -> std::int64_t {
      if (is_packed) return packed_scale_at(padded, row, static_cast<int>(block));
      return 4 * (is_by_columns ? block * padded + row : row * blocks + block);
    };
  }
  return places;
}

/// Each scale is taken from some rows on, and from another block, around the end.
void move_scales(const ScalePlaces& places, Tensor& scales, std::int64_t rows,
                 const std::function<std::int64_t(std::int64_t)>& block_from) {
  const std::vector<std::byte> before = scales.bytes;
  for (std::int64_t row = 0; row < places.rows; ++row)
    for (std::int64_t block = 0; block < places.blocks; ++block) {
      const std::int64_t from =
          places.at((row + rows + places.rows) % places.rows, (block_from(block) + places.blocks) % places.blocks);
      std::memcpy(scales.bytes.data() + places.at(row, block), before.data() + from,
                  static_cast<std::size_t>(places.bytes));
    }
}

void add_mistakes_of_scales(const RowStep& step, int number, std::vector<RowMistake>& list, const std::string& name) {
  for (const auto& [rows, blocks, where] : {std::tuple(0, 1, "next block"), std::tuple(0, -1, "last block"),
                                            std::tuple(1, 0, "next row"), std::tuple(-1, 0, "last row")}) {
    const bool is_one =
        step.kind == RowPart::scaled_8 ? step.block == 0 : step.kind == RowPart::cache && cache_blocks(step.cache) == 1;
    if (blocks != 0 && is_one) continue;
    list.push_back(
        {fmt::format("{}: a scale lies with the {}", name, where), [=, rows = rows, blocks = blocks](Scene& s) {
           const RowStepNames names = row_step_names(s.run.chain)[static_cast<std::size_t>(number)];
           const ScalePlaces places = scales_of(s.run, s.out, step, names);
           move_scales(places, s.out.at(places.name), rows, [=](std::int64_t block) { return block + blocks; });
         }});
  }
  list.push_back({fmt::format("{}: scales of neighbouring blocks are exchanged", name), [=](Scene& s) {
                    const RowStepNames names = row_step_names(s.run.chain)[static_cast<std::size_t>(number)];
                    const ScalePlaces places = scales_of(s.run, s.out, step, names);
                    move_scales(places, s.out.at(places.name), 0, [count = places.blocks](std::int64_t block) {
                      return (block ^ 1) < count ? block ^ 1 : block;
                    });
                  }});
}

/// Rows of x that a list names: those beside them are taken.
void add_mistakes_of_list(const std::string& list_name, const std::string& part, std::vector<RowMistake>& list) {
  for (const int distance : {1, -1})
    list.push_back({fmt::format("{} takes the row {} the one that is named", part, distance > 0 ? "behind" : "before"),
                    [=](Scene& s) {
                      Tensor& rows = s.in.at(list_name);
                      for (std::int64_t i = 0; i < rows.elements(); ++i) {
                        const double at = rows.at(i);
                        if (at >= 0 && at < static_cast<double>(s.run.x_rows)) rows.set(i, at + distance);
                      }
                    }});
}

/// Of the tokens' data `count` bytes from `first` on; units of `bytes` are exchanged in pairs, or the nibbles of each.
void exchange_in_tokens(Scene& s, const std::string& name, RowCache cache, int first, int count, int bytes) {
  Tensor& out = s.out.at(name);
  for (std::int64_t row = 0; row < s.run.pages * s.run.page_size; ++row) {
    const std::int64_t token =
        row / s.run.page_size * out.shape[1] + row % s.run.page_size * cache_layout(cache).token_bytes;
    const auto from = out.bytes.begin() + token + first;
    if (bytes == 0) std::for_each(from, from + count, [](std::byte& b) { b = (b << 4) | (b >> 4); });
    for (int i = 0; bytes > 0 && i < count; i += 2 * bytes)
      std::swap_ranges(from + i, from + i + bytes, from + i + bytes);
  }
}

void add_mistakes_of_cache(const RowStep& step, const std::string& name, std::vector<RowMistake>& list) {
  const CacheLayout l = cache_layout(step.cache);
  const bool is_e2m1 = l.value == ValueType::e2m1;
  const auto of_values = [name, cache = step.cache, is_e2m1, values = l.values](Scene& s) {
    exchange_in_tokens(s, name, cache, 0, is_e2m1 ? values / 2 : values, is_e2m1 ? 0 : 1);
  };
  const auto of_bf16 = [name, cache = step.cache, l](Scene& s) {
    exchange_in_tokens(s, name, cache, l.bf16_at, 2 * l.bf16, 2);
  };
  list.push_back({fmt::format("{}: {}", name,
                              is_e2m1 ? "the two values of a byte are exchanged"
                                      : "neighbouring columns of the e4m3 values are exchanged"),
                  of_values});
  if (l.bf16 == 0) return;
  list.push_back({fmt::format("{}: neighbouring columns in bf16 are exchanged", name), of_bf16});
  list.push_back({fmt::format("{}: neighbouring columns are exchanged", name), [=](Scene& s) {
                    of_values(s);
                    of_bf16(s);
                  }});
}

void add_mistakes_of_step(const RowStep& step, int number, const RowStepNames& names, std::vector<RowMistake>& list) {
  const auto change = [&](std::string cause, void (*edit)(RowStep&)) {
    list.push_back({std::move(cause), [number, edit](Scene& s) { edit(s.run.chain.steps[number]); }});
  };
  switch (step.kind) {
    case RowPart::gate:
      list.push_back({"gate and up are exchanged", [is_interleaved = step.is_interleaved](Scene& s) {
                        Tensor& x = s.in.at("x");
                        is_interleaved ? exchange_pairs(x, static_cast<std::size_t>(dtype_bytes(x.dtype)))
                                       : exchange_halves(x);
                      }});
      if (step.is_gpt_oss) change("the gate is silu's, not gpt_oss'", [](RowStep& s) { s.is_gpt_oss = false; });
      if (step.limit > 0) change("the gate's limit is left out", [](RowStep& s) { s.limit = 0; });
      change("gate and up are taken from halves where they alternate, or the other way round",
             [](RowStep& s) { s.is_interleaved = !s.is_interleaved; });
      break;
    case RowPart::join:
      list.push_back({"x and x2 are exchanged", [](Scene& s) {
                        if (s.in.at("x").bytes.size() == s.in.at("x2").bytes.size())
                          std::swap(s.in.at("x").bytes, s.in.at("x2").bytes);
                      }});
      list.push_back({"x is taken in place of x2", [](Scene& s) {
                        if (s.in.at("x").bytes.size() == s.in.at("x2").bytes.size())
                          s.in.at("x2").bytes = s.in.at("x").bytes;
                      }});
      break;
    case RowPart::combine:
      if (step.has_weight) change("combine's weights are left out", [](RowStep& s) { s.has_weight = false; });
      add_mistakes_of_list("indices", "combine", list);
      break;
    case RowPart::gather:
      add_mistakes_of_list("indices", "gather", list);
      break;
    case RowPart::compress:
      list.push_back({"ape is left out", [](Scene& s) {
                        Tensor& ape = s.in.at("ape");
                        std::fill(ape.bytes.begin(), ape.bytes.end(), std::byte{0});
                      }});
      if (step.overlaps)
        list.push_back({"the entry before has the second halves of rows", [](Scene& s) {
                          for (const char* const name : {"x", "scores", "ape"}) exchange_halves(s.in.at(name));
                        }});
      add_mistakes_of_list("tokens", "compress", list);
      break;
    case RowPart::dequant:
      if (!step.is_e4m3 && value_bits(step.format) == 4)
        list.push_back({"x: the two values of a byte are exchanged", [](Scene& s) {
                          for (std::byte& byte : s.in.at("x").bytes) byte = (byte << 4) | (byte >> 4);
                        }});
      if (step.form == ScaleForm::plain && !step.is_column_major && step.block > 0)
        list.push_back({"x_scales: the scale of the next block is taken", [](Scene& s) {
                          move_columns(s.in.at("x_scales"), [](std::int64_t block) { return block + 1; });
                        }});
      break;
    case RowPart::residual:
      list.push_back({fmt::format("{} is not added", names.in), [number](Scene& s) {
                        const RowStepNames of = row_step_names(s.run.chain)[static_cast<std::size_t>(number)];
                        std::fill(s.in.at(of.in).bytes.begin(), s.in.at(of.in).bytes.end(), std::byte{0});
                      }});
      break;
    case RowPart::rmsnorm:
    case RowPart::layernorm:
      if (step.adds_one) change("1 is not added to the norm's weight", [](RowStep& s) { s.adds_one = false; });
      if (!step.adds_one && step.has_weight)
        change("1 is added to the norm's weight", [](RowStep& s) { s.adds_one = true; });
      break;
    case RowPart::rope:
      if (step.has_table) {
        list.push_back({fmt::format("{}: the next position's row is taken", names.in), [](Scene& s) {
                          Tensor& positions = s.in.at("positions");
                          const auto count = static_cast<double>(s.run.table_rows);
                          for (std::int64_t i = 0; i < positions.elements(); ++i)
                            if (const double at = positions.at(i); at >= 0 && at < count)
                              positions.set(i, at + 1 < count ? at + 1 : 0);
                        }});
        list.push_back({fmt::format("{}: cosines are taken for sines", names.in), [name = names.in](Scene& s) {
                          Tensor& table = s.in.at(name);
                          const std::int64_t columns = table.shape[1];
                          for (std::int64_t i = 0; i < table.elements(); ++i)
                            if (i % columns >= columns / 2) table.set(i, table.at(i - columns / 2));
                        }});
      }
      change(step.is_inverse ? "rope turns forward, its inverse is right" : "rope turns the wrong way round",
             [](RowStep& s) { s.is_inverse = !s.is_inverse; });
      if (step.magnitude != kOneMagnitude) {
        change("rope's magnitude is left out", [](RowStep& s) { s.magnitude = kOneMagnitude; });
        if (step.is_inverse)
          list.push_back({"the inverse rope multiplies by the magnitude, and does not divide", [number](Scene& s) {
                            RowStep& rope = s.run.chain.steps[number];
                            rope.magnitude = static_cast<int>(std::lround(1e6 * rope_magnitude(rope)));
                          }});
      } else if (step.scaling == RopeScaling::yarn) {
        change("cosines and sines have yarn's factor, 0.1 ln(N) + 1", [](RowStep& s) { s.magnitude = kYarnMagnitude; });
      }
      change(step.is_halves ? "rope turns pairs (2i, 2i + 1), not (i, i + d / 2)"
                            : "rope turns pairs (i, i + d / 2), not (2i, 2i + 1)",
             [](RowStep& s) { s.is_halves = !s.is_halves; });
      for (const std::int64_t distance : {1, -1})
        list.push_back(
            {fmt::format("rope has the position of the {} row", distance > 0 ? "next" : "last"), [distance](Scene& s) {
               move_rows(s.in.at("positions"), [distance](std::int64_t row) { return row + distance; });
             }});
      list.push_back({"rope is left out", [](Scene& s) {
                        Tensor& positions = s.in.at("positions");
                        std::fill(positions.bytes.begin(), positions.bytes.end(), std::byte{0});
                      }});
      break;
    case RowPart::mhc_mix:
    case RowPart::mhc_pre:
      if (step.iterations > 1 && (step.has_product || step.kind == RowPart::mhc_mix))
        change("Sinkhorn ends an iteration early", [](RowStep& s) { --s.iterations; });
      if (step.has_product)
        list.push_back({"the last part of product is left out", [](Scene& s) { s.run.parts -= s.run.parts > 1; }});
      break;
    case RowPart::mhc_post:
      if (step.has_product) {
        list.push_back({"mix_weight is taken as one bf16 number", [](Scene& s) {
                          Tensor& weight = s.in.at("mix_weight");
                          for (std::int64_t i = 0; i < weight.elements(); ++i)
                            weight.set(i, to_double(DType::bf16, from_double(DType::bf16, weight.at(i))));
                        }});
        list.push_back({"neighbouring rows of mix_weight are exchanged", [](Scene& s) {
                          Tensor& weight = s.in.at("mix_weight");
                          exchange_pairs(weight, weight.bytes.size() / kMixColumns);
                        }});
      }
      list.push_back({"comb is taken by columns, not by rows", [name = names.in2](Scene& s) {
                        Tensor& mix = s.in.at(name);
                        const Tensor before = mix;
                        for (std::int64_t row = 0; row < mix.shape[0]; ++row)
                          for (std::int64_t i = 0; i < kStreams * kStreams; ++i)
                            mix.set(row * kMixColumns + kMixComb + i,
                                    before.at(row * kMixColumns + kMixComb + i % kStreams * kStreams + i / kStreams));
                      }});
      break;
    case RowPart::quantize:
    case RowPart::scaled_8:
      if (!names.out2.empty()) add_mistakes_of_scales(step, number, list, names.out2);
      break;
    case RowPart::cache:
      add_mistakes_of_scales(step, number, list, names.out);
      add_mistakes_of_cache(step, names.out, list);
      break;
    default:
      break;
  }
  if (!is_row_sink(step.kind)) return;
  if (step.is_paged)
    list.push_back(
        {fmt::format("{}: tokens and heads of a page are exchanged", names.out), [name = names.out](Scene& s) {
           Tensor& y = s.out.at(name);
           const std::int64_t pages = y.shape[0], tokens = y.shape[1], heads = y.shape[2];
           move_rows(y, pages * tokens * heads, [tokens, heads](std::int64_t row) {
             const std::int64_t token = row / heads % tokens, head = row % heads;
             return row / (tokens * heads) * tokens * heads + head * tokens + token;
           });
         }});
  if (has_slot_of_own(step))
    for (const std::int64_t distance : {1, -1})
      list.push_back({fmt::format("{}: rows go to the slot {} theirs", names.out, distance > 0 ? "behind" : "before"),
                      [step, name = names.out, distance](Scene& s) {
                        if (step.is_placed && !step.is_added)
                          return move_rows(s.out.at(name), [distance](std::int64_t i) { return i + distance; });
                        Tensor& slots = s.in.at("slots");
                        for (std::int64_t i = 0; i < slots.elements(); ++i) {
                          const double to = slots.at(i) + static_cast<double>(distance);
                          if (slots.at(i) >= 0 && to >= 0) slots.set(i, to);
                        }
                      }});
  if (step.kind == RowPart::quantize && value_bits(step.format) == 4)
    list.push_back({fmt::format("{}: the two values of a byte are exchanged", names.out), [name = names.out](Scene& s) {
                      for (std::byte& byte : s.out.at(name).bytes) byte = (byte << 4) | (byte >> 4);
                    }});
  if (step.kind != RowPart::cache)
    list.push_back(
        {fmt::format("{}: neighbouring columns are exchanged", names.out), [step, name = names.out](Scene& s) {
           Tensor& y = s.out.at(name);
           exchange_pairs(y, step.kind == RowPart::store ? static_cast<std::size_t>(dtype_bytes(y.dtype)) : 1);
         }});
}

}  // namespace

std::string likely_cause_of_rows(const RowsRun& run, const Tensors& in, const Tensors& out,
                                 std::vector<std::int64_t> wrong_rows) {
  if (wrong_rows.size() > kMostRows) wrong_rows.resize(kMostRows);
  const std::int64_t wrong = count_wrong_rows(run, in, out, wrong_rows);
  std::vector<RowMistake> mistakes;
  const std::vector<RowStepNames> names = row_step_names(run.chain);
  for (std::size_t i = 0; i < names.size(); ++i)
    add_mistakes_of_step(run.chain.steps[i], static_cast<int>(i), names[i], mistakes);
  for (const RowMistake& mistake : mistakes) {
    Scene scene{run, in, out};
    mistake.make(scene);
    const std::int64_t left = count_wrong_rows(scene.run, scene.in, scene.out, wrong_rows);
    if (10 * left <= wrong)
      return fmt::format("likely cause: {} (explains {} of {} wrong elements that were looked at)", mistake.cause,
                         wrong - left, wrong);
  }
  return {};
}

}  // namespace tessera::reference
