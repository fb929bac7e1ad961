// Random row operators and routers, their inputs, and two launches judged by float64: for the sweep on a GPU and the
// emulator's tests. A case is its seed's.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/bound_expression.h"
#include "reference/moe_route.h"
#include "reference/number.h"
#include "reference/poison.h"
#include "reference/rows.h"
#include "spec/rows.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tessera/problem.h"
#include "tessera/row_chain.h"

namespace tessera::rows_sweep {

using reference::Fill;
using reference::Tensor;
using Tensors = std::map<std::string, Tensor>;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, std::max(low, high))(random_);
  }
  bool one_in(int n) { return pick(1, n) == 1; }
  template <class T, std::size_t kCount>
  const T& of(const T (&list)[kCount]) {
    return list[static_cast<std::size_t>(pick(0, kCount - 1))];
  }

 private:
  std::mt19937_64 random_;
};

/// Columns from 0 to `columns`, in multiples of `unit`; all of them in half of the cases.
inline std::string range(Draw& draw, int columns, int unit, std::string_view more = {}) {
  std::string text;
  if (!draw.one_in(2) && columns > unit) {
    const std::int64_t from = draw.pick(0, columns / unit - 1), to = draw.pick(from, columns / unit - 1);
    text = fmt::format("{}..{}", from * unit, (to + 1) * unit - 1);
  }
  if (!more.empty()) text += (text.empty() ? "" : ",") + std::string(more);
  return text.empty() ? text : fmt::format("({})", text);
}

inline std::string drawn_step(Draw& draw, int columns) {
  switch (draw.pick(0, 10)) {
    case 0:
      return "residual" + range(draw, columns, 8, draw.one_in(2) ? "store" : "");
    case 1:
      return "factor" + range(draw, columns, 8);
    case 2:
      return "rmsnorm" + range(draw, columns, 8, draw.one_in(3) ? "plus_one" : draw.one_in(3) ? "no_weight" : "");
    case 3:
      return "layernorm" + range(draw, columns, 8);
    case 4:
    case 5: {
      constexpr const char* kScaled[] = {"base=500000",
                                         "yarn=16",
                                         "linear=4",
                                         "base=500000,llama3=8",
                                         "inverse",
                                         "table",
                                         "inverse,yarn=16,magnitude=yarn",
                                         "magnitude=0.75"};
      const std::string more = draw.of(kScaled);
      if (draw.one_in(2)) return "rope" + range(draw, columns, 8, more);
      const std::int64_t width = std::min<std::int64_t>(8 * draw.pick(2, 20), columns), left = columns - width;
      const std::int64_t at = 8 * draw.pick(0, left / 8);
      return fmt::format("rope({}..{},halves,{})", at, at + width - 1, more);
    }
    case 6: {
      constexpr int kBlocks[] = {64, 128, 256};
      const int block = draw.of(kBlocks);
      return columns % block == 0 ? fmt::format("hadamard({})", block) : "softcap(30)";
    }
    case 7:
      return "softmax" + range(draw, columns, 8);
    case 8:
      return "sigmoid" + range(draw, columns, 8);
    case 9:
      return "sqrt_softplus" + range(draw, columns, 8);
    default:
      return "softcap" + range(draw, columns, 8, fmt::format("limit={}", draw.pick(1, 50)));
  }
}

inline std::string drawn_sink(Draw& draw, int columns) {
  constexpr const char* kStores[] = {"bf16", "f16", "f32", "same"};
  constexpr const char* kOfE4m3[] = {"",       "pow2",    "columns",  "pow2,columns", "row",
                                     "tensor", "scatter", "block=64", "packed",       "64,packed,scatter"};
  switch (draw.pick(0, 4)) {
    case 0:
      return draw.of(kStores) + range(draw, columns, 8, draw.one_in(4) ? "scatter" : "");
    case 1:
      return "e4m3" + range(draw, columns, 128, draw.of(kOfE4m3));
    case 2:
      return "nvfp4" + range(draw, columns, 16, draw.one_in(3) ? "tile" : draw.one_in(3) ? "global" : "");
    case 3:
      return "mxfp4" + range(draw, columns, 32, draw.one_in(3) ? "tile" : "");
    default:
      return (draw.one_in(2) ? "mxfp8_e4m3" : "mxfp8_e5m2") + range(draw, columns, 32, draw.one_in(3) ? "tile" : "");
  }
}

inline std::string drawn_source(Draw& draw, int columns) {
  constexpr const char* kGates[] = {"silu",        "gelu",         "gelu_tanh",        "silu,limit=10",
                                    "interleaved", "relu,limit=1", "gelu,interleaved", "gpt_oss,interleaved,limit=7"};
  constexpr const char* kRead[] = {"nvfp4", "nvfp4,tile,global", "mxfp4",    "mxfp8_e4m3,tile", "mxfp8_e5m2",
                                   "e4m3",  "e4m3,columns",      "e4m3,row", "e4m3,tensor"};
  const std::string gathered = draw.one_in(3) ? "gather+" : "";
  switch (draw.pick(0, 9)) {
    case 0:
    case 1:
      return fmt::format("{}gate({})+", gathered, draw.of(kGates));
    case 2:
      return gathered + (draw.one_in(2) ? "mhc_pre+" : "mhc_post+");
    case 3:
      return fmt::format("{}mhc_pre(product,iterations={})+", gathered, draw.pick(1, 20));
    case 4:
      return fmt::format("{}join({})+", gathered, 8 * draw.pick(1, std::max(columns / 8 - 1, 1)));
    case 5:
      return fmt::format("combine({}{})+", draw.pick(1, 16), draw.one_in(3) ? ",no_weight" : "");
    case 6:
      return fmt::format("compress({}{})+", 1 << draw.pick(0, 7), draw.one_in(2) ? ",overlap" : "");
    case 7:
      return fmt::format("{}dequant({})+", gathered, draw.of(kRead));
    case 8:
      return draw.one_in(2) ? "heads+" : fmt::format("heads+gate({})+", draw.of(kGates));
    default:
      return gathered;
  }
}

/// A chain, and the columns that go with it.
inline std::string drawn_chain(Draw& draw, int most, int& columns) {
  constexpr std::pair<const char*, int> kCaches[] = {{"mla_656", 576},   {"mla_584", 512}, {"mla_384", 512},
                                                     {"mla_528", 512},   {"mla_288", 512}, {"indexer_132", 128},
                                                     {"indexer_68", 128}};
  constexpr const char* kPaged[] = {"", ",halves", ",e4m3", ",halves,e4m3", ",halves,f16", ",inverse,yarn=16"};
  switch (draw.pick(0, 9)) {
    case 0: {
      const std::int64_t head = 8 * draw.pick(2, 32);
      columns = static_cast<int>(2 * head);
      return fmt::format("append_kv({}{})", head, draw.of(kPaged));
    }
    case 1:
    case 2: {
      const auto& [cache, width] = draw.of(kCaches);
      columns = width;
      std::string chain = drawn_source(draw, columns);
      for (std::int64_t i = draw.pick(0, 2); i > 0; --i) chain += drawn_step(draw, columns) + "+";
      return chain + cache + (draw.one_in(3) ? "+" + drawn_sink(draw, columns) : "");
    }
    case 3:
      columns = kMixColumns;
      return fmt::format("mhc_mix(hidden={},iterations={})+f32", draw.pick(32, 20000), draw.pick(1, 25));
    case 4:
      columns = static_cast<int>(8 * draw.pick(1, std::max(most / 32, 1)));
      return "mhc_post(product)";
    default: {
      const int unit = draw.one_in(2) ? 128 : draw.one_in(2) ? 32 : 8;
      columns = static_cast<int>(unit * draw.pick(1, std::max(most / unit, 1)));
      std::string chain = drawn_source(draw, columns);
      for (std::int64_t i = draw.pick(0, 3); i > 0; --i) chain += drawn_step(draw, columns) + "+";
      chain += drawn_sink(draw, columns);
      for (std::int64_t i = draw.pick(0, 2); i > 0; --i) chain += "+" + drawn_sink(draw, columns);
      return chain;
    }
  }
}

/// A Problem with a plan; what is refused is drawn again, and counted.
inline Problem drawn_problem(Draw& draw, Arch arch, int most_columns, int& refused) {
  while (true) {
    if (draw.one_in(12)) {
      constexpr int kExperts[] = {8, 64, 128, 256, 384};
      constexpr Scoring kScorings[] = {Scoring::sigmoid, Scoring::softmax, Scoring::sqrt_softplus};
      constexpr Grouping kGroupings[] = {Grouping::contiguous, Grouping::masked, Grouping::none};
      constexpr DType kLogits[] = {DType::f32, DType::bf16, DType::f16};
      MoeRoute problem{.arch = arch,
                       .dtype = draw.of(kLogits),
                       .experts = draw.of(kExperts),
                       .top_k = static_cast<int>(draw.pick(1, 8)),
                       .scoring = draw.of(kScorings),
                       .bias = draw.one_in(2) ? Bias::column : Bias::none,
                       .renormalize = draw.one_in(2) ? Renormalize::on : Renormalize::off,
                       .grouping = draw.of(kGroupings)};
      if (problem.grouping == Grouping::contiguous && draw.one_in(2)) problem.alignment = draw.one_in(2) ? 128 : 3;
      return problem;
    }
    constexpr DType kTypes[] = {DType::bf16, DType::bf16, DType::f16, DType::f32};
    Rows problem{.arch = arch, .dtype = draw.of(kTypes)};
    const std::string chain = drawn_chain(draw, most_columns, problem.columns);
    if (chain == "mhc_post(product)") problem.dtype = DType::bf16;
    constexpr std::int64_t kExpected[] = {-1, 1, 64, 4096};
    if (const std::int64_t rows = draw.of(kExpected); rows > 0) problem.rows = rows;
    try {
      problem.chain = parse_row_chain(chain);
      (void)make_plan(problem);
      return problem;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage && error.kind() != ErrorKind::unsupported) throw;
      ++refused;
    }
  }
}

/// One buffer in memory: elements of a dense tensor at strides, the poison elsewhere.
struct Placed {
  std::vector<std::int64_t> shape, strides;
  std::int64_t bytes_of_element = 1;

  std::size_t bytes() const {
    std::int64_t last = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == 0) return 0;
      last += (shape[i] - 1) * strides[i];
    }
    return static_cast<std::size_t>((last + 1) * bytes_of_element);
  }
  /// visit(place in the dense tensor, place in memory), in bytes.
  template <class Visit>
  void each(Visit&& visit) const {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t at = 0, left = i;
      for (std::size_t d = shape.size(); d-- > 0;) {
        at += left % shape[d] * strides[d];
        left /= shape[d];
      }
      visit(static_cast<std::size_t>(i * bytes_of_element), static_cast<std::size_t>(at * bytes_of_element));
    }
  }
};

class Launches {
 public:
  Launches(Device& device, const Launcher& launcher, Draw& draw) : device_(device), launcher_(launcher), draw_(draw) {}
  ~Launches() {
    for (const DevicePointer base : bases_) device_.free(base);
    if (workspace_ != 0) device_.free(workspace_);
  }
  Launches(const Launches&) = delete;
  Launches& operator=(const Launches&) = delete;

  /// Sizes as told; rows are padded in some cases.
  Tensors run(const std::map<std::string, std::int64_t>& named, const std::vector<double>& scalars,
              const Tensors& inputs, std::vector<std::string>& problems) {
    const LaunchPlan& plan = launcher_.plan();
    LaunchArguments arguments;
    std::vector<std::string> names;
    for (const SizeSpec& size : plan.sizes) {
      names.push_back(size.name);
      sizes_.push_back(named.count(size.name) != 0 ? named.at(size.name) : kUseDefault);
    }
    arguments.sizes = sizes_;
    values_ = launcher_.resolve_sizes(arguments);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (const int step = names[i].ends_with("_stride_row") ? 8
                           : names[i].ends_with("_stride_m") ? 16
                                                             : 0;
          step > 0 && draw_.one_in(2))
        sizes_[i] = values_[i] + step * draw_.pick(1, 3);
    pad_heads(names);
    arguments.sizes = sizes_;
    values_ = launcher_.resolve_sizes(arguments);
    for (const BufferSpec& spec : plan.buffers) add(spec, names, inputs);
    arguments.scalars = scalars;
    arguments.buffers = pointers_;
    arguments.workspace_bytes = launcher_.workspace_bytes(arguments);
    if (arguments.workspace_bytes > 0)
      arguments.workspace = workspace_ = device_.allocate(static_cast<std::size_t>(arguments.workspace_bytes));
    const std::vector<std::vector<std::byte>> first = launched(arguments, problems);
    const std::vector<std::vector<std::byte>> second = launched(arguments, problems);
    if (first != second) problems.emplace_back("another launch with the same inputs gave other bits");
    Tensors outputs;
    for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
      if (plan.buffers[i].role != BufferRole::output) continue;
      Tensor tensor(*reference::dtype_from_name(plan.buffers[i].dtype), placed_[i].shape);
      std::vector<bool> is_of_row(second[i].size());
      const auto bytes = static_cast<std::size_t>(placed_[i].bytes_of_element);
      placed_[i].each([&](std::size_t dense, std::size_t at) {
        std::memcpy(tensor.bytes.data() + dense, second[i].data() + kGuard + at, bytes);
        std::fill_n(is_of_row.begin() + static_cast<std::ptrdiff_t>(kGuard + at), bytes, true);
      });
      for (std::size_t j = 0; j < second[i].size(); ++j)
        if (!is_of_row[j] && second[i][j] != std::byte{reference::kPoisonByte}) {
          problems.push_back(fmt::format("{}: memory beside or between its rows was written", plan.buffers[i].name));
          break;
        }
      outputs.emplace(plan.buffers[i].name, std::move(tensor));
    }
    return outputs;
  }

  std::string sizes() const {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < values_.size(); ++i)
      words.push_back(fmt::format("{}={}", launcher_.plan().sizes[i].name, values_[i]));
    return fmt::format("{}", fmt::join(words, " "));
  }

 private:
  /// Heads of tokens farther apart, as in a wider row, or tokens of a head side by side; pages behind each other.
  void pad_heads(const std::vector<std::string>& names) {
    const auto at = [&](const std::string& name) {
      return static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    };
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!names[i].ends_with("_stride_head") || at("heads") == names.size() || !draw_.one_in(2)) continue;
      const std::string buffer = names[i].substr(0, names[i].size() - std::string_view("_stride_head").size());
      const std::size_t page = at(buffer + "_stride_page");
      const std::int64_t heads = values_[at("heads")], head = values_[i] + 8 * draw_.pick(0, 3);
      const bool is_paged = page < names.size();
      const std::int64_t tokens = is_paged ? values_[at("page_size")] : (values_[at("rows")] + heads - 1) / heads;
      const bool is_by_heads = draw_.one_in(2);
      sizes_[i] = is_by_heads ? std::max<std::int64_t>(tokens, 1) * head : head;
      sizes_[at(buffer + "_stride_seqlen")] = is_by_heads ? head : heads * head + 8 * draw_.pick(0, 3);
      if (is_paged) sizes_[page] = heads * tokens * head + tokens * 24 + 8;
    }
  }

  static constexpr std::size_t kGuard = reference::kGuardBytes;

  void add(const BufferSpec& spec, const std::vector<std::string>& names, const Tensors& inputs) {
    Placed placed;
    for (const Expression& extent : spec.shape)
      placed.shape.push_back(BoundExpression(extent, names).evaluate(values_));
    for (const Expression& stride : spec.strides)
      placed.strides.push_back(BoundExpression(stride, names).evaluate(values_));
    placed.bytes_of_element = dtype_bytes(*reference::dtype_from_name(spec.dtype));
    std::vector<std::byte> memory(placed.bytes() + 2 * kGuard, std::byte{reference::kPoisonByte});
    if (spec.role != BufferRole::output) {
      const Tensor& given = inputs.at(spec.name);
      std::size_t count = 0;
      placed.each([&](std::size_t dense, std::size_t at) {
        ++count;
        std::memcpy(memory.data() + kGuard + at, given.bytes.data() + dense,
                    static_cast<std::size_t>(placed.bytes_of_element));
      });
      if (count * static_cast<std::size_t>(placed.bytes_of_element) != given.bytes.size())
        throw Error(ErrorKind::usage, fmt::format("{}: the input has other bytes than the launch", spec.name));
    }
    bases_.push_back(device_.allocate(memory.size()));
    pointers_.push_back(bases_.back() + kGuard);
    device_.copy_to_device(bases_.back(), memory.data(), memory.size());
    memory_.push_back(std::move(memory));
    placed_.push_back(std::move(placed));
  }

  std::vector<std::vector<std::byte>> launched(const LaunchArguments& arguments, std::vector<std::string>& problems) {
    const LaunchPlan& plan = launcher_.plan();
    for (std::size_t i = 0; i < bases_.size(); ++i)
      if (plan.buffers[i].role == BufferRole::output)
        device_.set_bytes(bases_[i], reference::kPoisonByte, memory_[i].size());
    if (workspace_ != 0)
      device_.set_bytes(workspace_, reference::kPoisonByte, static_cast<std::size_t>(arguments.workspace_bytes));
    launcher_.launch({}, arguments);
    for (const Finding& finding : device_.synchronize()) problems.push_back(finding.message);
    std::vector<std::vector<std::byte>> found(bases_.size());
    for (std::size_t i = 0; i < bases_.size(); ++i) {
      if (plan.buffers[i].role != BufferRole::output) continue;
      found[i].resize(memory_[i].size());
      device_.copy_to_host(found[i].data(), bases_[i], found[i].size());
    }
    return found;
  }

  Device& device_;
  const Launcher& launcher_;
  Draw& draw_;
  std::vector<std::int64_t> sizes_, values_;
  std::vector<DevicePointer> bases_, pointers_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<Placed> placed_;
  DevicePointer workspace_ = 0;
};

struct Judged {
  std::vector<std::string> problems;
  std::string sizes;
  std::int64_t rows = 0;
  double worst = 0;  ///< error over bound of the main output
};

inline Judged judged_route(const MoeRoute& problem, Device& device, const Launcher& launcher, Draw& draw, int most) {
  reference::MoeRouteRun run;
  run.dtype = problem.dtype;
  run.m = draw.pick(0, most);
  run.experts = problem.experts;
  run.top_k = problem.top_k;
  run.scoring = problem.scoring;
  run.bias = problem.bias;
  run.renormalize = problem.renormalize;
  run.grouping = problem.grouping;
  run.alignment = problem.alignment;
  run.scale = 2.5;
  const std::int64_t pairs = run.m * run.top_k;
  run.rows = problem.grouping == Grouping::contiguous ? pairs + std::min(pairs, run.experts) * (run.alignment - 1) + 19
                                                      : std::max<std::int64_t>(run.m / 8, 2);
  Judged judged;
  Launches launches(device, launcher, draw);
  const Tensors in = reference::moe_route_inputs(run, draw.one_in(3) ? Fill::integer : Fill::normal,
                                                 static_cast<std::uint64_t>(draw.pick(0, 1 << 30)));
  const Tensors out = launches.run({{"m", run.m}, {"grouped_rows", run.rows}, {"rows_of_group", run.rows}}, {run.scale},
                                   in, judged.problems);
  const reference::Comparison result = reference::check_moe_route(run, in, out);
  judged.problems.insert(judged.problems.end(), result.problems.begin(), result.problems.end());
  judged.sizes = launches.sizes();
  judged.rows = run.m;
  return judged;
}

inline Judged judged_rows(const Rows& problem, Device& device, const Launcher& launcher, Draw& draw, int most) {
  reference::RowsRun run;
  run.chain = problem.chain;
  run.dtype = problem.dtype;
  run.columns = problem.columns;
  run.eps = static_cast<double>(1e-6F);
  const bool is_paged = has_paged_sink(run.chain);
  run.heads = has_heads(run.chain) || has_part(run.chain, RowPart::rope) ? draw.pick(1, 8) : 1;
  run.rows = draw.pick(draw.one_in(10) ? 0 : 1, most);
  if (has_heads(run.chain)) run.rows = (run.rows + run.heads - 1) / run.heads * run.heads;
  run.x_rows = rows::has_named_rows(run.chain) ? draw.pick(1, most) : run.rows;
  run.placed_rows = has_placed_sink(run.chain) ? run.rows + draw.pick(0, 9) : run.rows;
  run.page_size = draw.pick(1, 70);
  if (is_paged || has_part(run.chain, RowPart::cache)) run.pages = run.rows / run.page_size + draw.pick(1, 3);
  run.table_rows = has_rope_table(run.chain) ? draw.pick(0, 200) : 0;
  run.parts = begins_with_product(run.chain) ? draw.pick(1, 60) : 1;
  constexpr Fill kFills[] = {Fill::standard, Fill::normal, Fill::uniform};
  Judged judged;
  Launches launches(device, launcher, draw);
  const Fill fill = draw.of(kFills);
  const Tensors in = reference::rows_inputs(run, fill, static_cast<std::uint64_t>(draw.pick(0, 1 << 30)));
  const std::vector<double> scalars(launcher.plan().scalars.size(), 1e-6);
  const Tensors out = launches.run({{"rows", run.rows},
                                    {"x_rows", run.x_rows},
                                    {"heads", run.heads},
                                    {"placed_rows", run.placed_rows},
                                    {"pages", run.pages},
                                    {"page_size", run.page_size},
                                    {"table_rows", run.table_rows},
                                    {"parts", run.parts}},
                                   scalars, in, judged.problems);
  const reference::Comparison result = reference::check_rows(run, in, out);
  judged.problems.insert(judged.problems.end(), result.problems.begin(), result.problems.end());
  judged.sizes = launches.sizes();
  judged.rows = run.rows;
  if (result.rel_bound > 0) judged.worst = result.rel_error / result.rel_bound;
  return judged;
}

inline Judged judged_case(const Problem& problem, Device& device, const Launcher& launcher, Draw& draw, int most) {
  if (operator_name(problem) == "moe_route") return judged_route(problem.as<MoeRoute>(), device, launcher, draw, most);
  return judged_rows(problem.as<Rows>(), device, launcher, draw, most);
}

}  // namespace tessera::rows_sweep
