// libFuzzer: any text is refused with Error{usage}, or is a shape list whose problems are all expanded, as many as it
// counts, each of them equal to itself when its fields are spelled out and read back.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "tessera/error.h"
#include "tessera/internal/problem_list.h"
#include "tests/fuzz/target.h"

TESSERA_FUZZ_TARGET(shape_list)(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  try {
    const ProblemList list = parse_shape_list({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    if (list.count() > 20'000) return 0;
    std::int64_t count = 0;
    std::vector<std::string> operators;
    list.for_each_product([&](const Product& product) {
      operators.emplace_back(product.op);
      return true;
    });
    if (operators.size() != list.num_products()) std::abort();
    list.for_each([&](const Problem& problem, std::size_t product) {
      ++count;
      if (operator_name(problem) != operators[product]) std::abort();
      Problem again = default_problem(operator_name(problem));
      for (const Selector& selector : selectors(operator_name(problem)))
        set_field(again, selector.key, field_text(problem, selector.key));
      if (again != problem) std::abort();
    });
    if (count != list.count()) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) std::abort();
  }
  return 0;
}
