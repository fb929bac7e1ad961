// Pins of a product's Config whose kernel may have taken b for a: what the Config calls m is then the product's n, and
// pins are of the product.
#pragma once

#include <string_view>
#include <utility>

namespace tessera {

/// The pin behind a field of such a Config.
constexpr std::string_view product_pin(std::string_view field, bool is_swapped) {
  constexpr std::pair<std::string_view, std::string_view> kPairs[] = {{"tile_m", "tile_n"}, {"cluster_m", "cluster_n"}};
  if (!is_swapped) return field;
  for (const auto& [m, n] : kPairs)
    if (field == m || field == n) return field == m ? n : m;
  return field;
}

/// Visits a Config's fields by the names of their pins; `fields(visit)` visits them by their own. A gate's interleave
/// is a pin that not every family has.
template <class Fields, class Visit>
void visit_product_pins(bool is_swapped, bool has_interleave, Fields&& fields, Visit&& visit) {
  fields([&](std::string_view name, const auto& value) {
    if (has_interleave || name != "interleave") visit(product_pin(name, is_swapped), value);
  });
}

}  // namespace tessera
