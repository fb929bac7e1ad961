#include "reference/fmha_nvfp4.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>
#include <vector>

#include "reference/fmha_nvfp4_rows.h"
#include "reference/fmha_sample.h"
#include "reference/number.h"
#include "reference/parallel.h"
#include "tessera/error.h"

namespace tessera::reference {

namespace {

Nvfp4Sizes sizes_of(const Nvfp4Inputs& in, const Nvfp4Outputs& out, const Nvfp4Check& check) {
  if (out.o.shape.size() != 4 || in.k.shape.size() != 3 || in.k.shape[0] == 0)
    throw Error(ErrorKind::usage, "o [batch, seqlen_q, heads_q, head_dim] and k [heads_kv, key_blocks, bytes] needed");
  const Nvfp4Sizes s{out.o.shape[0], out.o.shape[2], in.k.shape[0], out.o.shape[1], check.seqlen_k, out.o.shape[3]};
  const std::int64_t q_blocks = s.batch * s.q_blocks(), key_blocks = s.batch * s.key_blocks();
  const int head_dim = static_cast<int>(s.head_dim);
  const std::vector<std::int64_t> keys{s.heads_kv, key_blocks, nvfp4::key_block_bytes(head_dim)};
  if (in.q.shape != std::vector<std::int64_t>{s.heads_q, q_blocks, nvfp4::q_block_bytes(head_dim)} ||
      in.k.shape != keys || in.v.shape != keys ||
      in.delta_s.shape != std::vector<std::int64_t>{s.heads_q, q_blocks, s.key_blocks() * nvfp4::kBlockRows} ||
      in.row_shift.shape != std::vector<std::int64_t>{s.batch, s.heads_q, s.seqlen_q})
    throw Error(ErrorKind::usage, "q, k, v, delta_s and row_shift must have shapes that fit o and seqlen_k");
  return s;
}

}  // namespace

std::vector<std::vector<double>> fmha_nvfp4_rows(const Nvfp4Inputs& in, const FmhaSizes& sizes, const Nvfp4Check& check,
                                                 std::int64_t batch, std::int64_t head,
                                                 std::span<const std::int64_t> rows) {
  const Nvfp4Sizes s{sizes.batch, sizes.heads_q, sizes.heads_kv, sizes.seqlen_q, sizes.seqlen_k, sizes.head_dim};
  const UnitHead q = decode_units(in.q, UnitOperand::q, s.head_dim, head, batch * s.q_blocks(), s.seqlen_q);
  const Nvfp4KeyHead keys = keys_of(in, s, batch, head);
  std::vector<std::vector<double>> values;
  for (const std::int64_t row : rows) values.push_back(nvfp4_row(in, s, check, q, keys, batch, head, row).o);
  return values;
}

Comparison check_fmha_nvfp4(const Nvfp4Inputs& in, const Nvfp4Outputs& out, const Nvfp4Check& check) {
  const Nvfp4Sizes s = sizes_of(in, out, check);
  FmhaCheck sampling;
  sampling.tile_m = check.tile_m;
  sampling.max_multiply_adds = check.max_multiply_adds / 4;  // codes cost more than products
  sampling.seed = check.seed;
  const std::vector<HeadRows> chosen =
      choose_rows({s.batch, s.heads_q, s.heads_kv, s.seqlen_q, s.seqlen_k, s.head_dim}, sampling);
  // lse, row_max, row_sum: what is there of them.
  struct Statistic {
    const char* name;
    const std::optional<TensorView>& view;
    double Nvfp4Row::*value;
    double Nvfp4Row::*bound;
  };
  const Statistic statistics[] = {{"lse", out.lse, &Nvfp4Row::lse, &Nvfp4Row::lse_bound},
                                  {"row_max", out.row_max, &Nvfp4Row::row_max, &Nvfp4Row::row_max_bound},
                                  {"row_sum", out.row_sum, &Nvfp4Row::row_sum, &Nvfp4Row::row_sum_bound}};
  struct Sums {
    ElementSums o;
    std::array<ElementSums, 3> statistics;
    std::int64_t rows = 0;
  };
  std::vector<Sums> parts(chosen.size());
  parallel_for(static_cast<std::int64_t>(chosen.size()), check.jobs, [&](std::int64_t i) {
    const HeadRows& of = chosen[static_cast<std::size_t>(i)];
    Sums& sums = parts[static_cast<std::size_t>(i)];
    const UnitHead q = decode_units(in.q, UnitOperand::q, s.head_dim, of.head, of.batch * s.q_blocks(), s.seqlen_q);
    const Nvfp4KeyHead keys = keys_of(in, s, of.batch, of.head);
    const double roundoff = unit_roundoff(out.o.dtype), least = half_subnormal(out.o.dtype);
    for (const std::int64_t row : of.rows) {
      const Nvfp4Row result = nvfp4_row(in, s, check, q, keys, of.batch, of.head, row);
      ++sums.rows;
      for (std::int64_t c = 0; c < s.head_dim; ++c) {
        Element element;
        element.expected = result.o[static_cast<std::size_t>(c)];
        const double rest = result.bound[static_cast<std::size_t>(c)], value = std::fabs(element.expected);
        element.found = out.o.at(of.batch * out.o.strides[0] + row * out.o.strides[1] + of.head * out.o.strides[2] +
                                 c * out.o.strides[3]);
        element.bound = rest + roundoff * (value + rest) + least;
        element.expected_square = roundoff * roundoff * value * value + rest * rest + least * least;
        element.at = {of.batch, row, of.head, c, 0};
        sums.o.add(element);
      }
      for (std::size_t j = 0; j < std::size(statistics); ++j) {
        const Statistic& of_row = statistics[j];
        if (!of_row.view) continue;
        const TensorView& view = *of_row.view;
        Element element;
        element.expected = result.*of_row.value;
        element.found = view.at(of.batch * view.strides[0] + of.head * view.strides[1] + row * view.strides[2]);
        element.at = {of.batch, of.head, row, 0, 0};
        element.bound = result.*of_row.bound;
        element.expected_square = element.bound * element.bound;
        if (std::isinf(element.expected) && element.found == element.expected) element = {};
        sums.statistics[j].add(element);
      }
    }
  });
  Sums sums;
  for (const Sums& part : parts) {
    sums.o.merge(part.o);
    for (std::size_t j = 0; j < std::size(statistics); ++j) sums.statistics[j].merge(part.statistics[j]);
    sums.rows += part.rows;
  }
  Comparison result;
  result.rel_error = sums.o.rel_error();
  result.rel_bound = sums.o.rel_bound();
  result.max_abs_error = sums.o.max_abs_error;
  result.cosine = sums.o.cosine();
  result.rows_checked = sums.rows;
  result.rows_total = s.batch * s.heads_q * s.seqlen_q;
  result.mismatches = sums.o.mismatches;
  if (sums.o.mismatched > 0)
    result.problems.push_back(describe_mismatches("o", sums.o,
                                                  {{"batch", s.batch, {}},
                                                   {"seqlen_q", s.seqlen_q, {8, 16, check.tile_m}},
                                                   {"heads_q", s.heads_q, {}},
                                                   {"head_dim", s.head_dim, {2, 8, 32}}}));
  for (std::size_t j = 0; j < std::size(statistics); ++j)
    if (sums.statistics[j].mismatched > 0)
      result.problems.push_back(
          describe_mismatches(statistics[j].name, sums.statistics[j],
                              {{"batch", s.batch, {}}, {"heads_q", s.heads_q, {}}, {"seqlen_q", s.seqlen_q, {8, 16}}}));
  if (result.problems.empty() && result.rel_error > result.rel_bound)
    result.problems.push_back(fmt::format(
        "o: relative error {:.3g} over all checked rows, at most {:.3g} is explained by independent roundings",
        result.rel_error, result.rel_bound));
  result.pass = result.problems.empty();
  return result;
}

}  // namespace tessera::reference
