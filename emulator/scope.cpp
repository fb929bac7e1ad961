#include "emulator/scope.h"

#include <charconv>

namespace tessera::emulator {

std::optional<NamedRegister> Scopes::find_register(std::string_view name) const {
  // %r12 of .reg .b32 %r<100>: the prefix is the name without its trailing number.
  std::size_t digits = name.size();
  while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    if (const auto it = scope->registers.find(name); it != scope->registers.end()) return it->second;
    // A prefix may itself end in digits: try every split.
    for (std::size_t split = digits; split < name.size(); ++split) {
      const auto it = scope->ranges.find(name.substr(0, split));
      if (it == scope->ranges.end()) continue;
      std::int64_t index = -1;
      const char* end = name.data() + name.size();
      const auto result = std::from_chars(name.data() + split, end, index);
      const bool has_leading_zero = name[split] == '0' && split + 1 < name.size();
      if (result.ec == std::errc{} && result.ptr == end && !has_leading_zero && index < it->second.count)
        return NamedRegister{it->second.first.id + static_cast<std::uint32_t>(index), it->second.first.type};
    }
  }
  return std::nullopt;
}

const Symbol* Scopes::find_symbol(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto it = scope->symbols.find(name); it != scope->symbols.end()) return &it->second;
  return nullptr;
}

std::optional<std::uint32_t> Scopes::find_label(std::string_view name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
    if (const auto it = scope->labels.find(name); it != scope->labels.end()) return it->second;
  return std::nullopt;
}

}  // namespace tessera::emulator
