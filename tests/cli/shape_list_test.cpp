#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "tessera/error.h"
#include "tessera/internal/problem_list.h"
#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;

namespace {

/// What a person sees of a list: its problems, or every complaint.
std::string read_list(const std::string& text, const std::string& name) {
  std::string result;
  try {
    const ProblemList list = parse_shape_list(text, name);
    list.for_each([&](const Problem& problem, std::size_t product) {
      result += list.place(product) + " " + std::string(operator_name(problem));
      for (const Selector& selector : selectors(operator_name(problem)))
        if (field_text(problem, selector.key) != field_text(default_problem(operator_name(problem)), selector.key))
          result += " " + std::string(selector.key) + "=" + field_text(problem, selector.key);
      result += list.is_explicit(product) ? " (explicit)\n" : "\n";
    });
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    result = std::string(error.what()) + "\n";
    for (const std::string& note : error.notes()) result += note + "\n";
  }
  return result;
}

}  // namespace

TEST_CASE("shape lists: each golden file is read as its .txt says, bad ones with every complaint in its place") {
  const std::filesystem::path folder = std::filesystem::path(TESSERA_SOURCE_DIR) / "tests/golden/cli/shape_list";
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    if (file.path().extension() == ".json") files.push_back(file.path());
  std::sort(files.begin(), files.end());
  CHECK(files.size() >= 30);
  for (const auto& file : files) {
    const std::string result = read_list(read_text(file), file.filename().string());
    const bool is_bad = file.filename().string().starts_with("bad-");
    CAPTURE(file.filename().string());
    CHECK((result.find("(explicit)") != std::string::npos || result.find("fmha") == std::string::npos || is_bad ||
           file.stem() == "good-product"));
    check_golden("shape_list/" + file.stem().string() + ".txt", result);
  }
}

TEST_CASE("complaints stop at a number that a person can read") {
  std::string text = "{\"kernels\": [";
  for (int i = 0; i < 5000; ++i) text += std::string(i == 0 ? "" : ",") + "{\"op\": \"fmha\", \"mask\": \"x\"}";
  try {
    parse_shape_list(text + "]}", "many.json");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.notes().size() == kMaxDiagnostics);
    CHECK(error.notes().back() == "many.json: more problems follow; these are the first");
  }
}

TEST_CASE("a list of a million lines and a product of a hundred thousand problems take seconds") {
  const auto start = std::chrono::steady_clock::now();
  std::string text = "{\"kernels\": [{\"op\": \"fmha\", \"head_dim\": [64, 128], \"sizes\": [\n";
  constexpr int kLines = 1'000'000;
  for (int i = 0; i < kLines; ++i)
    text += std::string(i == 0 ? "" : ",\n") + "{\"batch\": 1, \"seqlen_q\": " + std::to_string(i + 1) + "}";
  const ProblemList list = parse_shape_list(text + "]}]}", "million.json");
  CHECK(list.count() == 2 * kLines);
  std::int64_t sum = 0;
  list.for_each([&](const Problem& problem, std::size_t) { sum += problem.as<Fmha>().seqlen_q; });
  CHECK(sum == std::int64_t{kLines} * (kLines + 1));
  // Some ten times what it takes, for sanitizers and busy machines.
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("selectors: comma lists make the cross product, in the order of the fields") {
  const ProblemList list = parse_selectors("fmha", {{"mask", "none,causal"}, {"head_dim", "64,128"}});
  std::vector<std::string> seen;
  list.for_each([&](const Problem& problem, std::size_t) {
    seen.push_back(field_text(problem, "head_dim") + field_text(problem, "mask"));
  });
  CHECK(seen == std::vector<std::string>{"64none", "64causal", "128none", "128causal"});
  const auto refusal = [](std::string_view op, const std::vector<TypedSelector>& typed) -> std::string {
    try {
      parse_selectors(op, typed);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal("fmha", {{"head_dim", "64,,128"}}) == "head_dim = : must be a whole number");
  CHECK(refusal("fmha", {{"head_dim", "64,"}}) == "head_dim = : must be a whole number");
  CHECK(refusal("fmha", {{"mask", "none,none"}}) == "--mask names none twice");
  CHECK(refusal("fmha", {{"rank", "1"}}).starts_with("fmha has no field rank: its fields are arch, "));
  CHECK(refusal("conv", {}) == fmt::format("op = conv: must be one of {}", fmt::join(operator_names(), ", ")));
}

TEST_CASE("suggestions name a near word and nothing else") {
  CHECK(suggestion("headdim", {"head_dim", "heads_q"}) == ", did you mean head_dim?");
  CHECK(suggestion("fhma", {"copy2d", "fmha"}) == ", did you mean fmha?");
  CHECK(suggestion("gemm", {"copy2d", "fmha"}) == "");
  CHECK(suggestion("", {"copy2d"}) == "");
  CHECK(suggestion(std::string(10000, 'x'), {"copy2d"}) == "");
}
