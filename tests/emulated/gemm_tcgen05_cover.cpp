// Products on tcgen05 over types, arrangements, tile widths, layouts and what happens to a result, on random ragged
// shapes, exact where sums are whole numbers.
//
// CI runs a pairwise cover: every two values of two of these dimensions that some kernel has stand together in a case,
// each with two seeds of schedule and inputs. TESSERA_NIGHTLY=1 runs the full product with all pairs of types and
// twenty seeds; TESSERA_SHARD shares either among processes.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "generator/candidates.h"
#include "generator/products/gemm_tcgen05_operator.h"
#include "generator/selectors.h"
#include "generator/words.h"
#include "tessera/error.h"
#include "tests/emulated/gemm_tcgen05_run.h"
#include "tests/support/pairwise.h"
#include "tests/support/sample.h"
#include "tests/support/shard.h"

namespace tessera::gemm_tcgen05_cover_test {
namespace {

using emulator::EmulatedDevice;
using EmulatorSchedule = emulator::Schedule;
using reference::Fill;
using Fields = std::vector<std::pair<std::string, std::string>>;

bool is_nightly() {
  const char* const text = std::getenv("TESSERA_NIGHTLY");
  return text != nullptr && std::string(text) == "1";
}

std::vector<Fields> type_pairs() {
  if (!is_nightly())
    return {{{"dtype", "bf16"}},
            {{"dtype", "tf32"}},
            {{"dtype", "e4m3"}, {"b_dtype", "e5m2"}},
            {{"dtype", "s8"}, {"b_dtype", "u8"}},
            {{"dtype", "nvfp4"}},
            {{"dtype", "mxfp4"}},
            {{"dtype", "mxfp8_e5m2"}, {"b_dtype", "mxfp8_e4m3"}},
            {{"dtype", "mxfp8_e4m3"}, {"b_dtype", "mxfp4"}},
            {{"dtype", "mxfp6_e3m2"}, {"b_dtype", "mxfp6_e2m3"}}};
  std::vector<Fields> all;
  for (const Word<OperandType>& a : kOperandTypeWords)
    for (const Word<OperandType>& b : kOperandTypeWords) {
      layout::Tcgen05Kind kind{};
      if (find_kind(a.value, b.value, kind))
        all.push_back({{"dtype", std::string(a.text)}, {"b_dtype", std::string(b.text)}});
    }
  return all;
}

/// The dimensions of the cover, and the values of each as fields of a Problem. What depends on the arrangement is said
/// twice: `columns` is tile_n, or tile_m where operands change places.
std::vector<std::vector<Fields>> dimensions() {
  std::vector<std::vector<Fields>> all{type_pairs()};
  all.push_back({{{"tile_m", "128"}, {"cluster_m", "1"}, {"split_k", "1"}},
                 {{"tile_m", "128"}, {"cluster_m", "2"}, {"cluster_n", "1"}},
                 {{"tile_m", "128"}, {"cluster_m", "4"}},
                 {{"tile_m", "128"}, {"cluster_m", "2"}, {"cluster_n", "2"}},
                 {{"tile_n", "128"}, {"cluster_n", "1"}, {"split_k", "1"}},
                 {{"tile_n", "128"}, {"cluster_n", "2"}},
                 {{"tile_m", "128"}, {"cluster_m", "1"}, {"split_k", "2"}}});
  all.push_back({{{"columns", "64"}}, {{"columns", "128"}}, {{"columns", "192"}}});
  if (is_nightly())
    for (const char* const columns : {"32", "256"}) all.back().push_back({{"columns", columns}});
  all.push_back({{{"d_dtype", "bf16"}},
                 {{"d_dtype", "f32"}, {"c", "matrix"}},
                 {{"d_dtype", "f16"}, {"bias", "column"}, {"activation", "relu"}},
                 {{"gate", "dual"}},
                 {{"gate", "interleaved"}, {"interleave", "8"}, {"d_dtype", "nvfp4"}},
                 {{"d_dtype", "mxfp8_e4m3"}}});
  // With parts of k each: the place along k is another coordinate of an MN-major operand.
  all.push_back({{}, {{"a_layout", "mn"}, {"b_layout", "mn"}}, {{"b_layout", "mn"}}});
  return all;
}

/// Compiles each kernel once: seeds differ in shapes only.
class OnceCompiler final : public Compiler {
 public:
  explicit OnceCompiler(Compiler& compiler) : compiler_(compiler) {}
  const CompilerIdentity& identity() const override { return compiler_.identity(); }
  const std::vector<std::string>& architectures() const override { return compiler_.architectures(); }
  Image compile(const SourceBundle& bundle) override {
    const std::string& kernel = bundle.entries.front();
    if (kernel != kernel_) image_ = compiler_.compile(bundle);
    kernel_ = kernel;
    return image_;
  }

 private:
  Compiler& compiler_;
  std::string kernel_;
  Image image_;
};

struct Choice {
  std::vector<std::size_t> values;  ///< one for each dimension
  Fields fields;
};

Fields fields_of(const std::vector<std::vector<Fields>>& all, const std::vector<std::size_t>& values) {
  Fields fields;
  bool has_lanes_of_a = false;
  for (std::size_t d = 0; d < all.size(); ++d)
    for (const auto& [key, text] : all[d][values[d]]) {
      has_lanes_of_a = has_lanes_of_a || key == "tile_m";
      fields.emplace_back(key == "columns" ? (has_lanes_of_a ? "tile_n" : "tile_m") : key, text);
    }
  return fields;
}

bool has_kernel(const Fields& fields) {
  Problem problem = Gemm{.arch = {.number = 100, .suffix = 'a'}};
  try {
    for (const auto& [key, text] : fields) set_field(problem, key, text);
    planned_kernel(problem);
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// Every choice that a kernel exists for.
std::vector<Choice> legal_choices() {
  const std::vector<std::vector<Fields>> all = dimensions();
  std::vector<Choice> choices;
  std::vector<std::size_t> values(all.size(), 0);
  while (true) {
    Choice choice{values, fields_of(all, values)};
    if (has_kernel(choice.fields)) choices.push_back(std::move(choice));
    std::size_t d = 0;
    while (d < values.size() && ++values[d] == all[d].size()) values[d++] = 0;
    if (d == values.size()) return choices;
  }
}

/// A ragged shape that the kernel takes.
std::map<std::string, std::int64_t> shape_of(const Problem& problem, const reference::CounterRandom& random) {
  const gemm_tcgen05::Config c = chosen_config<GemmTcgen05Operator>(problem);
  const bool has_padded = gemm_tcgen05::is_padded(c, c.facts.a_type) || gemm_tcgen05::is_padded(c, c.facts.b_type);
  const std::int64_t k_unit = has_padded ? 128 : gemm_tcgen05::is_scaled(c) ? gemm_tcgen05::scale_block(c) : 1;
  std::int64_t n_unit = c.facts.gate == Gate::interleaved ? 2 * c.facts.interleave : 1;
  if (gemm_tcgen05::is_quantized(c))
    n_unit = block_elements(block_format(c.facts.d_format)) * (c.facts.gate == Gate::interleaved ? 2 : 1);
  std::map<std::string, std::int64_t> sizes;
  sizes["m"] = random.integer(10, 0, 3) == 0 ? c.tile_m + 1 : random.integer(0, 1, 300);
  sizes["n"] = n_unit * random.integer(1, 1, 300 / n_unit);
  sizes["k"] = k_unit * random.integer(2, 1, 3 * gemm_tcgen05::tile_k(c) / k_unit);
  sizes["l"] = random.integer(3, 1, 2);
  const std::int64_t pitch = round_up(sizes["k"], 64);
  sizes["lda"] = c.facts.a_layout == Layout::mn_major ? round_up(sizes["m"], 64) : pitch;
  sizes["ldb"] = c.facts.b_layout == Layout::mn_major ? round_up(sizes["n"], 64) : pitch;
  if (c.facts.gate == Gate::dual) sizes["ldb2"] = sizes["ldb"];
  const std::int64_t columns = gemm_tcgen05::columns_of_d(c, static_cast<int>(sizes["n"]));
  if (gemm_tcgen05::is_quantized(c)) sizes["ldd"] = round_up(columns, 32);
  return sizes;
}

std::string text_of(const Fields& fields) {
  std::string text;
  for (const auto& [key, value] : fields) text += fmt::format("{}={} ", key, value);
  return text;
}

void run_choice(const Choice& choice, std::uint64_t seed, Compiler& compiler) {
  ProductCase test{text_of(choice.fields), choice.fields, {}};
  Problem problem = Gemm{.arch = {.number = 100, .suffix = 'a'}};
  for (const auto& [key, text] : choice.fields) set_field(problem, key, text);
  std::uint64_t mixed = seed;
  for (const std::size_t value : choice.values) mixed = mixed * 131 + value + 7;
  const reference::CounterRandom random(mixed, 1);
  test.sizes = shape_of(problem, random);
  test.fill = random.integer(9, 0, 2) == 0 ? Fill::standard : Fill::integer;
  std::string shape;
  for (const auto& [name, value] : test.sizes) shape += fmt::format("{} {} ", name, value);
  CAPTURE(test.name);
  CAPTURE(shape);
  CAPTURE(seed);
  emulator::DeviceOptions options;
  options.arch = "sm_100a";
  options.schedule = static_cast<EmulatorSchedule>(random.integer(8, 0, 3));
  options.seed = seed;
  EmulatedDevice device(options);
  ProductRun run(test, compiler, device);
  std::vector<Finding> findings;
  run.run(findings);
  for (const Finding& finding : findings) FAIL_CHECK(finding.message);
  const reference::Comparison comparison = run.compare();
  for (const std::string& text : comparison.problems) FAIL_CHECK(text);
  CHECK(comparison.pass);
  CHECK(run.are_gaps_intact());
}

TEST_CASE("products on tcgen05: a pairwise cover of types, arrangements, widths, results and layouts") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  std::vector<Choice> choices = legal_choices();
  CHECK(choices.size() > 200);
  if (!is_nightly()) {
    std::vector<std::vector<std::size_t>> values;
    for (const Choice& choice : choices) values.push_back(choice.values);
    std::vector<Choice> cover;
    for (const std::size_t chosen : testing::pairwise(values)) cover.push_back(choices[chosen]);
    choices = std::move(cover);
  }
  OnceCompiler once(*compiler);
  const testing::Shard shard = testing::Shard::from_environment();
  std::size_t kernels = 0;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (!shard.takes(i)) continue;
    if (!is_nightly() && !testing::is_in_sample(i, 6)) continue;
    ++kernels;
    for (std::uint64_t seed = 1; seed <= (is_nightly() ? 20 : 2); ++seed) run_choice(choices[i], seed, once);
  }
  MESSAGE(kernels << " of " << choices.size() << " kernels");
}

}  // namespace
}  // namespace tessera::gemm_tcgen05_cover_test
