// Operands after the patterns of the instruction table. A pattern is role, width, slot, type, in this order:
//   d s     destination, source: a register, for sources also an immediate, a symbol's address, a special register
//   p P     predicate destination; P may be a pair p|q and always makes two operands
//   D       destination with an optional predicate, d|p: two operands
//   c       predicate source, may be negated
//   q       source, or a predicate source: ignore-src of cp.async
//   m M     address; M is followed by coordinates [map, {x, y}]: two operands
//   v u     destination, source of a vector instruction: a list or one register
//   V       list of destinations with an optional predicate, {d, ..}|p: two operands
//   L S     list of .b32 registers that an instruction writes, reads
//   w       list of .b32 registers, or one .b64 descriptor: A of wgmma
//   a       address, or one .b64 descriptor: A of tcgen05.mma
//   l t i   label; name of a list of labels; immediate integer
//   width   x: the register may be wider than the type; w: twice the type
//   slot    0...5: the type slot, 0 when left out;  :b32  this type instead
//   ?       may be left out; of several, the last ones are missing
#include <fmt/format.h>

#include <utility>

#include "emulator/syntax/resolver_state.h"

namespace tessera::emulator {

namespace {

using Kind = syntax::Operand::Kind;

/// The letter of a role, by what it asks for.
enum class Role : char {
  destination = 'd',
  source = 's',
  predicate_destination = 'p',
  predicate_pair = 'P',
  destination_and_predicate = 'D',
  predicate_source = 'c',
  source_or_predicate = 'q',
  address = 'm',
  map_and_coordinates = 'M',
  vector_destination = 'v',
  vector_source = 'u',
  vector_and_predicate = 'V',
  written_list = 'L',
  read_list = 'S',
  list_or_descriptor = 'w',
  address_or_descriptor = 'a',
  label = 'l',
  branch_targets = 't',
  number = 'i',
};

bool makes_two_operands(Role role) {
  return role == Role::predicate_pair || role == Role::destination_and_predicate || role == Role::map_and_coordinates ||
         role == Role::vector_and_predicate;
}

bool is_optional(std::string_view pattern) { return pattern.back() == '?'; }

std::vector<std::string_view> patterns_of(std::string_view operands) {
  std::vector<std::string_view> patterns;
  while (!operands.empty()) {
    const std::size_t end = operands.find(' ');
    patterns.push_back(operands.substr(0, end));
    operands = end == std::string_view::npos ? std::string_view{} : operands.substr(end + 1);
  }
  return patterns;
}

/// Slot and type, which end a pattern.
Type type_of_pattern(std::string_view rest, const Decoded& decoded) {
  Type type = decoded.num_types > 0 ? decoded.type(0) : Type::b32;
  if (!rest.empty() && rest[0] >= '0' && rest[0] <= '5') {
    type = decoded.type(rest[0] - '0');
    rest.remove_prefix(1);
  }
  if (!rest.empty() && rest[0] == ':') type = type_of(rest.substr(1, rest.find('?') - 1));
  return type;
}

/// Which patterns have no operand where `missing` are missing: an optional list where none stands, then the last
/// optional ones. Counts down what is still missing.
std::vector<bool> absent_patterns(const std::vector<std::string_view>& patterns,
                                  const std::vector<syntax::Operand>& given, std::size_t& missing) {
  std::vector<bool> is_absent(patterns.size(), false);
  for (std::size_t i = 0; i < given.size() && missing > 0; ++i) {
    if (patterns[i] != "S?" || given[i].kind == Kind::list) continue;
    is_absent[i] = true;
    --missing;
  }
  for (std::size_t i = patterns.size(); i-- > 0 && missing > 0;) {
    if (!is_optional(patterns[i]) || is_absent[i]) continue;
    is_absent[i] = true;
    --missing;
  }
  return is_absent;
}

}  // namespace

void EntryResolver::bind_operands(const syntax::Instruction& syntax, syntax::Place place, Decoded& decoded,
                                  Instruction& in) {
  const std::vector<std::string_view> patterns = patterns_of(decoded.form->operands);
  const std::size_t given = syntax.operands.size();
  if (given > patterns.size())
    fail(syntax.operands[patterns.size()].place,
         fmt::format("'{}' has {} operands; it takes at most {}", syntax.opcode, given, patterns.size()));
  std::size_t missing = patterns.size() - given;
  const std::vector<bool> is_absent = absent_patterns(patterns, syntax.operands, missing);
  if (missing > 0) fail(place, fmt::format("'{}' has {} operands; it needs {} more", syntax.opcode, given, missing));
  std::vector<Operand> bound;
  std::size_t next = 0;
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    if (!is_absent[i]) {
      bind_one(patterns[i], syntax.operands[next++], decoded, bound);
    } else {
      bound.resize(bound.size() + (makes_two_operands(Role{patterns[i][0]}) ? 2 : 1));
    }
  }
  entry_.operand_lists.push_back(std::move(bound));
  in.op = entry_.operand_lists.back().data();
  in.num_operands = static_cast<std::uint8_t>(entry_.operand_lists.back().size());
}

void EntryResolver::bind_one(std::string_view pattern, const syntax::Operand& syntax, const Decoded& decoded,
                             std::vector<Operand>& out) {
  const Role role{pattern[0]};
  const bool has_width = pattern.size() > 1 && (pattern[1] == 'x' || pattern[1] == 'w');
  const char width = has_width ? pattern[1] : ' ';
  const Type type = type_of_pattern(pattern.substr(has_width ? 2 : 1), decoded);
  switch (role) {
    case Role::destination:
      return out.push_back(bind_value(syntax, type, width, true, decoded));
    case Role::source:
      return out.push_back(bind_value(syntax, type, width, false, decoded));
    case Role::predicate_destination:
      return out.push_back(bind_predicate(syntax, true));
    case Role::predicate_source:
      return out.push_back(bind_predicate(syntax, false));
    case Role::source_or_predicate:
      return out.push_back(bind_value_or_predicate(syntax, type, width, decoded));
    case Role::predicate_pair:
    case Role::destination_and_predicate:
      return bind_pair(syntax, type, width, role == Role::predicate_pair, decoded, out);
    case Role::address:
      return out.push_back(bind_address(syntax, decoded));
    case Role::map_and_coordinates:
      return bind_map_and_coordinates(syntax, decoded, out);
    case Role::vector_destination:
      return out.push_back(bind_value_or_list(syntax, type, width, true, decoded));
    case Role::vector_and_predicate: {
      const bool is_pair = syntax.kind == Kind::pair;
      out.push_back(bind_list(is_pair ? syntax.elements[0] : syntax, type, width, true, decoded));
      return out.push_back(is_pair ? bind_predicate(syntax.elements[1], true) : sink(Type::pred));
    }
    case Role::vector_source:
      return out.push_back(bind_value_or_list(syntax, type, width, false, decoded));
    case Role::written_list:
      return out.push_back(bind_list(syntax, Type::b32, ' ', true, decoded));
    case Role::read_list:
      return out.push_back(bind_list(syntax, Type::b32, ' ', false, decoded));
    case Role::list_or_descriptor:
      return out.push_back(syntax.kind == Kind::list ? bind_list(syntax, Type::b32, ' ', false, decoded)
                                                     : bind_value(syntax, Type::b64, ' ', false, decoded));
    case Role::address_or_descriptor:
      return out.push_back(syntax.kind == Kind::address ? bind_address(syntax, decoded)
                                                        : bind_value(syntax, Type::b64, ' ', false, decoded));
    case Role::label:
      return out.push_back(bind_label(syntax));
    case Role::branch_targets:
      return out.push_back(bind_targets(syntax));
    case Role::number:
      return out.push_back(bind_number(syntax));
  }
  fail(syntax.place, "the instruction table has a pattern that nobody reads");
}

Operand EntryResolver::bind_value_or_predicate(const syntax::Operand& syntax, Type type, char width,
                                               const Decoded& decoded) {
  const auto reg = syntax.kind == Kind::name ? scopes_.find_register(syntax.name) : std::nullopt;
  const bool is_predicate = reg && reg->type == Type::pred;
  return is_predicate ? bind_predicate(syntax, false) : bind_value(syntax, type, width, false, decoded);
}

Operand EntryResolver::bind_value_or_list(const syntax::Operand& syntax, Type type, char width, bool is_destination,
                                          const Decoded& decoded) {
  return syntax.kind == Kind::list ? bind_list(syntax, type, width, is_destination, decoded)
                                   : bind_value(syntax, type, width, is_destination, decoded);
}

// d|p, or p|q; without the second one its predicate goes nowhere.
void EntryResolver::bind_pair(const syntax::Operand& syntax, Type type, char width, bool are_predicates,
                              const Decoded& decoded, std::vector<Operand>& out) {
  const bool is_pair = syntax.kind == Kind::pair;
  const syntax::Operand& first = is_pair ? syntax.elements[0] : syntax;
  out.push_back(are_predicates ? bind_predicate(first, true) : bind_value(first, type, width, true, decoded));
  out.push_back(is_pair ? bind_predicate(syntax.elements[1], true) : sink(Type::pred));
}

void EntryResolver::bind_map_and_coordinates(const syntax::Operand& syntax, const Decoded& decoded,
                                             std::vector<Operand>& out) {
  out.push_back(bind_address(syntax, decoded));
  if (syntax.elements.size() != 1) fail(syntax.place, "expected [map, {coordinates}]");
  out.push_back(bind_list(syntax.elements[0], Type::b32, ' ', false, decoded));
}

Operand EntryResolver::bind_targets(const syntax::Operand& syntax) {
  const auto* labels = scopes_.find_targets(syntax.name);
  if (syntax.kind != Kind::name || labels == nullptr)
    fail(syntax.place, fmt::format("'{}' is not a list of branch targets", syntax.name));
  std::vector<Operand> elements;
  for (const std::string_view label : *labels) {
    syntax::Operand named;
    named.name = label;
    named.place = syntax.place;
    elements.push_back(bind_label(named));
  }
  return list_of(std::move(elements));
}

Operand EntryResolver::bind_number(const syntax::Operand& syntax) {
  if (syntax.kind != Kind::integer) fail(syntax.place, "expected a number that is known when it is compiled");
  return constant(syntax.value, Type::b64, ConstantSlot::Relocation::none);
}

}  // namespace tessera::emulator
