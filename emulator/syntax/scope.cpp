#include "emulator/syntax/scope.h"

#include <charconv>

namespace tessera::emulator {

std::optional<NamedRegister> Scopes::find_register(std::string_view name) const {
  if (const auto found = find_named(name); found && found->vector == 1) return found;
  // PTX ISA, "Vectors": elements are .x .y .z .w, or .r .g .b .a.
  const std::size_t dot = name.size() > 2 ? name.size() - 2 : 0;
  if (dot == 0 || name[dot] != '.') return std::nullopt;
  std::size_t element = std::string_view("xyzw").find(name[dot + 1]);
  if (element == std::string_view::npos) element = std::string_view("rgba").find(name[dot + 1]);
  const auto vector = find_named(name.substr(0, dot));
  if (!vector || element >= static_cast<std::size_t>(vector->vector) || vector->vector == 1) return std::nullopt;
  return NamedRegister{vector->id + static_cast<std::uint32_t>(element), vector->type};
}

std::optional<NamedRegister> Scopes::find_vector(std::string_view name) const {
  const auto found = find_named(name);
  return found && found->vector > 1 ? found : std::nullopt;
}

std::optional<NamedRegister> Scopes::find_named(std::string_view name) const {
  // %r12 of .reg .b32 %r<100>: the prefix is the name without its trailing number.
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  std::optional<NamedRegister> found;
  search([&](const Scope& scope) {
    if (const auto it = scope.registers.find(name); it != scope.registers.end()) {
      found = it->second;
      return true;
    }
    // A prefix may itself end in digits: try every split.
    for (std::size_t split = digits; split < name.size(); ++split) {
      const auto it = scope.ranges.find(name.substr(0, split));
      if (it == scope.ranges.end()) continue;
      std::int64_t index = -1;
      const char* end = name.data() + name.size();
      const auto result = std::from_chars(name.data() + split, end, index);
      const bool has_leading_zero = name[split] == '0' && split + 1 < name.size();
      if (result.ec == std::errc{} && result.ptr == end && !has_leading_zero && index < it->second.count) {
        found = it->second.first;
        found->id += static_cast<std::uint32_t>(index * found->vector);
        return true;
      }
    }
    return false;
  });
  return found;
}

const Symbol* Scopes::find_symbol(std::string_view name) const {
  const Symbol* found = nullptr;
  search([&](const Scope& scope) {
    const auto it = scope.symbols.find(name);
    if (it != scope.symbols.end()) found = &it->second;
    return found != nullptr;
  });
  return found;
}

std::optional<std::uint32_t> Scopes::find_label(std::string_view name) const {
  std::optional<std::uint32_t> found;
  search([&](const Scope& scope) {
    const auto it = scope.labels.find(name);
    if (it != scope.labels.end()) found = it->second;
    return found.has_value();
  });
  return found;
}

const std::vector<std::string_view>* Scopes::find_targets(std::string_view name) const {
  const std::vector<std::string_view>* found = nullptr;
  search([&](const Scope& scope) {
    const auto it = scope.targets.find(name);
    if (it != scope.targets.end()) found = it->second;
    return found != nullptr;
  });
  return found;
}

}  // namespace tessera::emulator
