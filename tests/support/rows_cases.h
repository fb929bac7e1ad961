// Running a row operator on a device and judging it, for the emulator's and the GPU's tests.
#pragma once

#include <string>
#include <vector>

#include "reference/rows.h"
#include "spec/rows.h"
#include "tessera/problem.h"
#include "tessera/row_chain.h"
#include "tests/support/block_scale_cases.h"

namespace tessera {

inline reference::RowsRun rows_run(const Rows& problem, std::int64_t rows, std::int64_t heads = 1) {
  reference::RowsRun run;
  run.chain = problem.chain;
  run.dtype = problem.dtype;
  run.columns = problem.columns;
  run.eps = static_cast<double>(1e-6F);
  // Of heads rows are whole tokens.
  run.rows = has_heads(run.chain) ? (rows + heads - 1) / heads * heads : rows;
  run.heads = heads;
  run.x_rows = rows::has_named_rows(run.chain) ? rows / 2 + 3 : rows;
  run.placed_rows = has_placed_sink(run.chain) ? rows + 5 : rows;
  run.page_size = 8;
  if (has_rope_table(run.chain)) run.table_rows = 29;
  if (begins_with_product(run.chain)) run.parts = 3;
  run.pages = has_paged_sink(run.chain) || has_part(run.chain, RowPart::cache) ? rows / 8 + 2 : 0;
  return run;
}

/// Launches and compares; what is wrong, or nothing.
inline std::vector<std::string> judge(Device& device, const Launcher& launcher, const reference::RowsRun& run,
                                      const reference::Tensors& inputs) {
  NamedSizes sizes{{"rows", run.rows}};
  for (const SizeSpec& size : launcher.plan().sizes) {
    if (size.name == "x_rows") sizes["x_rows"] = run.x_rows;
    if (size.name == "heads") sizes["heads"] = run.heads;
    if (size.name == "placed_rows") sizes["placed_rows"] = run.placed_rows;
    if (size.name == "pages") sizes["pages"] = run.pages;
    if (size.name == "table_rows") sizes["table_rows"] = run.table_rows;
    if (size.name == "parts") sizes["parts"] = run.parts;
    if (size.name == "page_size") sizes["page_size"] = run.page_size;
  }
  const std::vector<double> scalars(launcher.plan().scalars.size(), 1e-6);
  std::vector<std::string> problems;
  const reference::Tensors outputs = launch_once(device, launcher, sizes, scalars, inputs, problems);
  const reference::Comparison result = reference::check_rows(run, inputs, outputs, 1);
  problems.insert(problems.end(), result.problems.begin(), result.problems.end());
  return problems;
}

}  // namespace tessera
