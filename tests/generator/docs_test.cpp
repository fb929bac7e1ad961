// Docs that speak of the generator are true to it: paths exist, tables are those of the code.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "generator/selectors.h"
#include "tessera/plan.h"

using namespace tessera;
namespace docs_test {

namespace {

const std::filesystem::path kRoot = TESSERA_SOURCE_DIR;

std::string values_of(const Selector& selector) {
  if (!selector.words.empty()) return fmt::format("{}", fmt::join(selector.words, ", "));
  if (selector.key == "arch") return "sm_90a, ...";
  return selector.is_number ? "whole number" : "text";
}

std::string fields_table(std::string_view op) {
  std::string table = "| field | kind | values | default | |\n|---|---|---|---|---|\n";
  for (const Selector& selector : selectors(op)) {
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", selector.key, to_string(selector.kind), values_of(selector),
                         field_text(default_problem(op), selector.key), selector.help);
  }
  return table;
}

std::string sizes_table(const LaunchPlan& launch) {
  std::string table = "| size | from | to | default | |\n|---|---|---|---|---|\n";
  for (const SizeSpec& size : launch.sizes) {
    table += fmt::format("| `{}` | {} | {} | {} | {} |\n", size.name, size.min, size.max,
                         size.default_value ? "`" + size.default_value->text() + "`" : "", size.help);
  }
  return table;
}

std::string buffers_table(const LaunchPlan& launch) {
  std::string table = "| buffer | role | type | shape | |\n|---|---|---|---|---|\n";
  for (const BufferSpec& buffer : launch.buffers) {
    std::string shape;
    for (const Expression& extent : buffer.shape) shape += (shape.empty() ? "" : ", ") + extent.text();
    table += fmt::format("| `{}` | {} | {} | [{}] | {} |\n", buffer.name, to_string(buffer.role), buffer.dtype, shape,
                         buffer.is_optional ? "may be null" : "");
  }
  return table;
}

std::string rules_list(const LaunchPlan& launch) {
  std::string list = "Besides:\n\n";
  for (const DomainRule& rule : launch.domain) list += fmt::format("- {}\n", rule.message);
  return list;
}

std::string tables(std::string_view op) {
  const LaunchPlan launch = make_plan(default_problem(op)).launch;
  return fmt::format("{}\n{}\n{}\n{}", fields_table(op), sizes_table(launch), buffers_table(launch),
                     rules_list(launch));
}

}  // namespace

TEST_CASE("every path that docs/new-operator.md names exists") {
  const std::string text = read_text(kRoot / "docs/new-operator.md");
  int paths = 0;
  for (std::size_t at = text.find('`'); at != std::string::npos; at = text.find('`', at + 1)) {
    const std::size_t end = text.find('`', at + 1);
    if (end == std::string::npos) break;
    const std::string word = text.substr(at + 1, end - at - 1);
    at = end;
    if (word.find('/') == std::string::npos || word.find_first_of(" {}(*<\n") != std::string::npos) continue;
    CAPTURE(word);
    CHECK(std::filesystem::exists(kRoot / word));
    ++paths;
  }
  CHECK(paths >= 15);
}

TEST_CASE("the tables of docs/operators.md are those of the code") {
  const std::filesystem::path path = kRoot / "docs/operators.md";
  const std::string text = read_text(path);
  std::string expected = text;
  for (const std::string_view op : operator_names()) {
    const std::string mark = fmt::format("<!-- tables of {} -->\n", op);
    const std::size_t mark_at = expected.find(mark);
    REQUIRE(mark_at != std::string::npos);
    const std::size_t start = mark_at + mark.size();
    const std::size_t end = expected.find("<!-- end -->", start);
    REQUIRE(end != std::string::npos);
    expected.replace(start, end - start, "\n" + tables(op) + "\n");
  }
  const char* const update = std::getenv("TESSERA_UPDATE_GOLDEN");
  if (update != nullptr && std::string_view(update) == "1") {
    write_file(path, expected);
    return;
  }
  INFO("TESSERA_UPDATE_GOLDEN=1 writes the tables anew");
  CHECK(text == expected);
}

// "// A CTA ...\n// and ..." as one line of prose.
static std::string head_of(const std::string& header) {
  const std::string text = read_text(kRoot / "templates/spec" / header);
  std::string head;
  for (std::size_t at = 0; text.compare(at, 2, "//") == 0;) {
    const std::size_t end = text.find('\n', at);
    head += text.substr(at + 2, end - at - 2);
    at = end + 1;
  }
  return head;
}

TEST_CASE("the heads of the templates' headers name the warp of each role as the plan does") {
  int named = 0;
  for (const auto& [header, op, arch] :
       {std::tuple("fmha.h", "fmha", "sm_90a"), std::tuple("fmha_tcgen05.h", "fmha", "sm_100a"),
        std::tuple("fmha.h", "fmha", "sm_120a"), std::tuple("gemm.h", "gemm", "sm_90a"),
        std::tuple("gemm_tcgen05.h", "gemm", "sm_100a"), std::tuple("gemm_mma.h", "gemm", "sm_120a")}) {
    Problem problem = default_problem(op);
    set_field(problem, "arch", arch);
    const std::string head = head_of(header);
    for (const RolePlan& role : make_plan(problem).roles) {
      if (role.warps != 1 || role.name == "idle") continue;
      const std::string words = fmt::format("arp {} ({})", role.first_warp, role.name);
      INFO(header << " says nothing of w" << words);
      CHECK(head.find(words) != std::string::npos);
      ++named;
    }
  }
  CHECK(named == 17);
}

}  // namespace docs_test
