// libFuzzer: the first line names an operator, each further one is KEY=TEXT. Every field is refused with Error{usage}
// and left as it was, or is set and spells itself back; the resulting Problem has a sound plan or is
// Error{unsupported}.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "generator/selectors.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/fuzz/target.h"

namespace {

std::string_view next_line(std::string_view& text) {
  const std::size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  return line;
}

void demand(bool condition) {
  if (!condition) std::abort();
}

void set(tessera::Problem& problem, std::string_view key, std::string_view value) {
  const tessera::Problem before = problem;
  try {
    tessera::set_field(problem, key, value);
  } catch (const tessera::Error& error) {
    demand(error.kind() == tessera::ErrorKind::usage);
    demand(problem == before);
    return;
  }
  tessera::Problem again = before;
  tessera::set_field(again, key, tessera::field_text(problem, key));
  demand(again == problem);
  demand(tessera::ProblemHash{}(again) == tessera::ProblemHash{}(problem));
}

}  // namespace

TESSERA_FUZZ_TARGET(selectors)(const std::uint8_t* data, std::size_t size) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  tessera::Problem problem;
  try {
    problem = tessera::default_problem(next_line(text));
  } catch (const tessera::Error& error) {
    demand(error.kind() == tessera::ErrorKind::usage);
    return 0;
  }
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) set(problem, line.substr(0, equals), line.substr(equals + 1));
  }
  try {
    const tessera::Plan plan = tessera::make_plan(problem);
    tessera::check_launch_plan(plan.launch);
    demand(tessera::planned_kernel(problem) == plan.kernel);
  } catch (const tessera::Error& error) {
    demand(error.kind() == tessera::ErrorKind::unsupported);
  }
  return 0;
}
