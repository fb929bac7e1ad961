#include "reference/groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "reference/gemm_gated.h"
#include "reference/poison.h"
#include "reference/random.h"
#include "tessera/spec/block_scale.h"

namespace tessera::reference {

namespace {

bool is_contiguous(Grouping grouping) { return grouping == Grouping::contiguous; }

std::int64_t tiles_of(std::int64_t rows) { return (rows + kTileRows - 1) / kTileRows; }

void merge(Comparison& all, const Comparison& of_group, std::int64_t number) {
  for (const std::string& problem : of_group.problems)
    all.problems.push_back(fmt::format("group {}: {}", number, problem));
  all.rel_error = std::max(all.rel_error, of_group.rel_error);
  all.rel_bound = std::max(all.rel_bound, of_group.rel_bound);
  all.max_abs_error = std::max(all.max_abs_error, of_group.max_abs_error);
  all.cosine = std::min(all.cosine, of_group.cosine);
  all.rows_checked += of_group.rows_checked;
  all.rows_total += of_group.rows_total;
}

/// Rows of d, or of its factors, that are in no group.
void check_untouched(const char* name, Grouping grouping, const std::vector<GroupRows>& groups, const TensorView& d,
                     Comparison& all) {
  std::vector<bool> is_of_group(static_cast<std::size_t>(d.shape[0] * d.shape[1]));
  for (std::size_t g = 0; g < groups.size(); ++g)
    for (std::int64_t r = 0; r < groups[g].rows; ++r) {
      const std::int64_t matrix = is_contiguous(grouping) ? 0 : static_cast<std::int64_t>(g);
      is_of_group[static_cast<std::size_t>(matrix * d.shape[1] + groups[g].first + r)] = true;
    }
  std::int64_t written = 0;
  const std::int64_t bytes = dtype_bytes(d.dtype);
  for (std::size_t i = 0; i < is_of_group.size(); ++i) {
    if (is_of_group[i]) continue;
    const auto row = static_cast<std::int64_t>(i);
    const std::byte* const at = d.data + (row / d.shape[1] * d.strides[0] + row % d.shape[1] * d.strides[1]) * bytes;
    bool is_untouched = true;
    for (std::int64_t c = 0; c < d.shape[2]; ++c)
      is_untouched = is_untouched && std::all_of(at + c * d.strides[2] * bytes, at + (c * d.strides[2] + 1) * bytes,
                                                 [](std::byte b) { return b == std::byte{kPoisonByte}; });
    written += is_untouched ? 0 : 1;
  }
  if (written > 0) all.problems.push_back(fmt::format("{}: {} rows that are in no group were written", name, written));
}

/// What a mistake takes in place of a group's operands: another group's b, rows of a that the list does not name.
std::vector<OtherOperands> other_operands(const GemmInputs& all, const GemmInputs& of_group, std::int64_t number,
                                          std::int64_t matrix, const GroupRows& rows,
                                          const std::optional<TensorView>& indices) {
  std::vector<OtherOperands> others;
  const auto add_b = [&](const char* cause, std::int64_t other) {
    if (other < 0 || other >= all.b.shape[0] || other == number) return;
    GemmInputs in = of_group;
    in.b = rows_of(all.b, other, 0, all.b.shape[1]);
    if (all.sfb) in.sfb = BlockFactors{rows_of(all.sfb->factors, other, 0, all.sfb->factors.shape[1]), all.sfb->rows};
    others.push_back({cause, in});
    if (!all.sfb) return;
    in.b = of_group.b;
    others.push_back({fmt::format("{} (its factors alone)", cause), in});
  };
  add_b("rows of the group are multiplied by b of the next group", number + 1);
  add_b("rows of the group are multiplied by b of the group before", number - 1);
  add_b("rows of the group are multiplied by b of the first group", 0);
  if (indices && rows.first + rows.rows <= all.a.shape[1]) {
    GemmInputs in = of_group;
    in.a = rows_of(all.a, 0, rows.first, rows.rows);
    others.push_back({"the list of rows is not followed: row i of d has row i of a", in});
  }
  if (!indices && rows.first > 0) {
    GemmInputs in = of_group;
    in.a = rows_of(all.a, matrix, 0, rows.rows);
    others.push_back({"rows of the group are those of a from row 0 on: the group's first row is left out", in});
  }
  return others;
}

}  // namespace

Tensor rows_by_list(const TensorView& from, const TensorView& list, std::int64_t first, std::int64_t count) {
  Tensor rows(from.dtype, {1, count, from.shape[2]});
  for (std::int64_t r = 0; r < count; ++r) {
    const auto row = static_cast<std::int64_t>(list.at(first + r));
    if (row < 0 || row >= from.shape[1]) continue;
    for (std::int64_t c = 0; c < from.shape[2]; ++c)
      rows.set(r * from.shape[2] + c, from.at(row * from.strides[1] + c * from.strides[2]));
  }
  return rows;
}

std::vector<GroupRows> group_rows(Grouping grouping, const TensorView& groups, std::int64_t m) {
  std::vector<GroupRows> rows;
  std::int64_t scales = 0;
  for (std::int64_t i = 0; i + (is_contiguous(grouping) ? 1 : 0) < groups.shape[0]; ++i) {
    GroupRows group;
    const auto value = static_cast<std::int64_t>(groups.at(i));
    if (is_contiguous(grouping)) {
      group.first = std::clamp<std::int64_t>(value, 0, m);
      group.rows =
          std::clamp<std::int64_t>(static_cast<std::int64_t>(groups.at(i + 1)) - group.first, 0, m - group.first);
    } else {
      group.rows = std::clamp<std::int64_t>(value, 0, m);
    }
    group.first_scales = scales;
    scales += tiles_of(group.rows);
    rows.push_back(group);
  }
  return rows;
}

Tensor groups_of(Grouping grouping, const std::vector<std::int64_t>& rows) {
  std::vector<std::int64_t> values;
  if (is_contiguous(grouping)) values.push_back(0);
  for (const std::int64_t count : rows) values.push_back(count + (is_contiguous(grouping) ? values.back() : 0));
  Tensor groups(DType::s32, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    groups.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return groups;
}

Tensor random_groups(Grouping grouping, std::int64_t l, std::int64_t m, std::uint64_t seed) {
  const CounterRandom random(seed, 0x67);
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < l + (is_contiguous(grouping) ? 1 : 0); ++i) {
    const std::int64_t value = random.integer(static_cast<std::uint64_t>(i), 0, m);
    // One group in five is empty.
    const bool is_empty = random.integer(static_cast<std::uint64_t>(i) + 1000, 0, 4) == 0;
    values.push_back(!is_empty ? value : grouping == Grouping::masked ? 0 : values.empty() ? 0 : values.back());
  }
  if (is_contiguous(grouping)) std::sort(values.begin(), values.end());
  Tensor groups(DType::s32, {static_cast<std::int64_t>(values.size())});
  for (std::size_t i = 0; i < values.size(); ++i)
    groups.set(static_cast<std::int64_t>(i), static_cast<double>(values[i]));
  return groups;
}

TensorView rows_of(const TensorView& view, std::int64_t matrix, std::int64_t first, std::int64_t rows) {
  TensorView part = view;
  part.data += (matrix * view.strides[0] + first * view.strides[1]) * dtype_bytes(view.dtype);
  part.shape[0] = 1;
  part.shape[1] = rows;
  return part;
}

TensorView bias_of_group(const TensorView& bias, std::int64_t number) {
  if (bias.shape.size() == 1) return bias;
  return {
      bias.data + number * bias.strides[0] * dtype_bytes(bias.dtype), bias.dtype, {bias.shape[1]}, {bias.strides[1]}};
}

Comparison check_groups(Grouping grouping, const TensorView& groups, const TensorView& d, const CheckGroup& check) {
  const std::vector<GroupRows> rows = group_rows(grouping, groups, d.shape[1]);
  Comparison all;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const GroupRows& group = rows[i];
    const auto number = static_cast<std::int64_t>(i), matrix = is_contiguous(grouping) ? 0 : number;
    if (group.rows == 0) continue;
    merge(all, check(number, matrix, group, rows_of(d, matrix, group.first, group.rows)), number);
  }
  check_untouched("d", grouping, rows, d, all);
  all.pass = all.problems.empty();
  return all;
}

Comparison check_grouped_gemm(Grouping grouping, const TensorView& groups, const GemmInputs& inputs,
                              const TensorView& d, const GemmCheck& check, const std::optional<TensorView>& indices) {
  Comparison all = check_groups(
      grouping, groups, d,
      [&](std::int64_t number, std::int64_t matrix, const GroupRows& rows, const TensorView& of_d) {
        std::vector<Tensor> listed;
        listed.reserve(2);  // views of both stay valid
        const auto of_a = [&](const TensorView& a) {
          if (!indices) return rows_of(a, matrix, rows.first, rows.rows);
          listed.push_back(rows_by_list(a, *indices, matrix * d.shape[1] + rows.first, rows.rows));
          return listed.back().view();
        };
        const auto of_b = [&](const TensorView& b) { return rows_of(b, number, 0, b.shape[1]); };
        GemmInputs in{of_a(inputs.a), of_b(inputs.b), {}, {}};
        if (inputs.bias) in.bias = bias_of_group(*inputs.bias, number);
        if (inputs.c) in.c = rows_of(*inputs.c, matrix, rows.first, rows.rows);
        if (inputs.sfa) {
          const BlockFactors& of = *inputs.sfa;  // a masked group's squares begin with its matrix
          in.sfa = {
              of.rows == 1 ? of_a(of.factors) : rows_of(of.factors, matrix, 0, (rows.rows + of.rows - 1) / of.rows),
              of.rows};
        }
        if (inputs.sfb) in.sfb = {of_b(inputs.sfb->factors), inputs.sfb->rows};
        GemmCheck of_group = check;
        if (check.sfd) of_group.sfd = rows_of(*check.sfd, matrix, rows.first, rows.rows);
        return check_plain_or_gated(in, of_d, of_group, other_operands(inputs, in, number, matrix, rows, indices));
      });
  if (check.sfd) check_untouched("sfd", grouping, group_rows(grouping, groups, d.shape[1]), *check.sfd, all);
  all.pass = all.problems.empty();
  return all;
}

}  // namespace tessera::reference
