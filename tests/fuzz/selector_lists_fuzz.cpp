// libFuzzer: the first line names an operator, each further one is KEY=V,V,...: refused with Error{usage}, or a product
// that holds exactly as many problems as the lists' lengths multiply to.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tessera/error.h"
#include "tessera/internal/problem_list.h"
#include "tests/fuzz/target.h"

TESSERA_FUZZ_TARGET(selector_lists)(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto line = [&] {
    const std::size_t end = text.find('\n');
    const std::string_view taken = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    return taken;
  };
  const std::string_view op = line();
  std::vector<TypedSelector> typed;
  while (!text.empty()) {
    const std::string_view one = line();
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos) continue;
    typed.push_back({std::string(one.substr(0, equals)), std::string(one.substr(equals + 1))});
  }
  try {
    const ProblemList list = parse_selectors(op, typed);
    if (list.num_products() != 1) std::abort();
    std::int64_t expected = 1, count = 0;
    list.for_each_product([&](const Product& product) {
      for (const FieldValues& field : product.fields) expected *= static_cast<std::int64_t>(field.values.size());
      return true;
    });
    if (expected != list.count()) std::abort();
    if (expected > 20'000) return 0;
    list.for_each([&](const Problem&, std::size_t) { ++count; });
    if (count != expected) std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) std::abort();
  }
  return 0;
}
