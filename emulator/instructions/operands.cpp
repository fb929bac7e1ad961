// What an operand of an instruction stands for: a register, an immediate, an address, a list, a label. Which of them an
// instruction takes where: operand_patterns.cpp.
#include <fmt/format.h>

#include <bit>

#include "emulator/memory/memory.h"
#include "emulator/syntax/resolver_state.h"
#include "emulator/syntax/special_names.h"

namespace tessera::emulator {
namespace {

Type register_type(int bytes) {
  return bytes == 0   ? Type::pred
         : bytes == 2 ? Type::b16
         : bytes == 4 ? Type::b32
         : bytes == 8 ? Type::b64
                      : Type::b128;
}

// A space word says in whose addresses the operands are; without one they are generic.
bool names_a_space(const Decoded& decoded) {
  if (decoded.form->mnemonic.substr(0, 8) == "cp.async" || decoded.form->mnemonic == "mov") return true;
  for (const std::string_view space :
       {"shared", "shared::cta", "shared::cluster", "global", "local", "param", "const", "param::entry"})
    if (decoded.has(space)) return true;
  return false;
}

}  // namespace

Operand EntryResolver::constant(std::uint64_t bits, Type type, ConstantSlot::Relocation relocation) {
  const int bytes = register_bytes(type);
  if (bytes == 2) bits &= 0xFFFF;
  if (bytes == 4) bits &= 0xFFFFFFFF;
  const auto key = std::make_tuple(bits, bytes, static_cast<int>(relocation));
  auto it = constants_.find(key);
  if (it == constants_.end()) {
    const std::uint32_t id = new_register(type, true);
    entry_.constants.push_back({bits, id, static_cast<std::uint8_t>(bytes), relocation});
    it = constants_.emplace(key, id).first;
  }
  Operand operand;
  operand.kind = bytes == 0 ? Operand::Kind::predicate : Operand::Kind::reg;
  operand.bytes = static_cast<std::uint8_t>(bytes);
  operand.is_immediate = true;
  operand.offset = it->second;
  operand.value = static_cast<std::int64_t>(bits);
  return operand;
}

Operand EntryResolver::sink(Type type) {
  Operand operand;
  operand.kind = type == Type::pred ? Operand::Kind::predicate : Operand::Kind::reg;
  operand.bytes = static_cast<std::uint8_t>(register_bytes(type));
  operand.is_sink = true;
  operand.is_destination = true;
  operand.offset = new_register(type, true);
  return operand;
}

std::uint64_t EntryResolver::immediate_bits(const syntax::Operand& syntax, Type type) {
  using Kind = syntax::Operand::Kind;
  if (syntax.kind == Kind::integer) {
    if (type == Type::f32 || type == Type::f64)
      fail(syntax.place, "a floating-point operand needs a floating-point number");
    return syntax.value;
  }
  const double value = syntax.kind == Kind::real32
                           ? static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(syntax.value)))
                           : std::bit_cast<double>(syntax.value);
  switch (type) {
    case Type::f32:
    case Type::b32:
      return syntax.kind == Kind::real32 ? syntax.value : std::bit_cast<std::uint32_t>(static_cast<float>(value));
    case Type::f64:
    case Type::b64:
      return syntax.kind == Kind::real64 ? syntax.value : std::bit_cast<std::uint64_t>(value);
    default:
      fail(syntax.place, fmt::format("a floating-point number cannot be a .{} operand", name_of(type)));
  }
}

Operand EntryResolver::bind_value(const syntax::Operand& syntax, Type type, char width, bool is_destination,
                                  const Decoded& decoded) {
  using Kind = syntax::Operand::Kind;
  if (syntax.kind == Kind::name) return bind_name(syntax, type, width, is_destination, decoded);
  const bool is_number = syntax.kind == Kind::integer || syntax.kind == Kind::real32 || syntax.kind == Kind::real64;
  if (is_destination || !is_number) fail(syntax.place, "expected a register here");
  if (type == Type::pred) return bind_predicate(syntax, false);  // a number is every lane's truth value
  if (width == 'w') type = type == Type::u16 || type == Type::s16 ? Type::b32 : Type::b64;
  return constant(immediate_bits(syntax, type), type, ConstantSlot::Relocation::none);
}

Operand EntryResolver::bind_name(const syntax::Operand& syntax, Type type, char width, bool is_destination,
                                 const Decoded& decoded) {
  const int bits = width == 'w' ? 2 * bits_of(type) : bits_of(type);
  if (syntax.name == "_") {
    if (!is_destination) fail(syntax.place, "'_' is no source");
    return sink(register_type(bits <= 16 ? 2 : bits / 8));
  }
  if (syntax.is_minus || syntax.is_negated) fail(syntax.place, "a register cannot be negated here");
  Operand operand;
  if (const auto reg = scopes_.find_register(syntax.name)) {
    if (syntax.displacement != 0) fail(syntax.place, "a register has no displacement outside an address");
    const int have = bits_of(reg->type);
    const bool fits = width == 'x' ? have >= bits && have > 1 : have == bits;
    if (!fits)
      fail(syntax.place, fmt::format("register '{}' has {} bits; '{}' needs {}{} here", syntax.name, have,
                                     decoded.in->opcode, width == 'x' ? "at least " : "", bits));
    operand.kind = have == 1 ? Operand::Kind::predicate : Operand::Kind::reg;
    operand.bytes = static_cast<std::uint8_t>(register_bytes(reg->type));
    operand.offset = reg->id;
    operand.is_destination = is_destination;
    return operand;
  }
  if (is_destination) fail(syntax.place, fmt::format("'{}' is not a register", syntax.name));
  if (syntax.name == "WARP_SZ") return constant(32, type, ConstantSlot::Relocation::none);
  if (special_register(syntax.name, type, operand)) return operand;
  if (syntax.name == "%reserved_smem_offset_0" || syntax.name == "%reserved_smem_offset_1")
    return reserved_shared_memory(type);
  if (std::optional<Symbol> symbol = use_symbol(syntax.name)) {
    symbol->address += static_cast<std::uint64_t>(syntax.displacement);
    return symbol_address(*symbol, type, false);
  }
  if (const std::uint64_t function = program_.function_address(syntax.name); function != 0)
    return constant(function, type, ConstantSlot::Relocation::none);
  fail_undeclared(syntax);
}

void EntryResolver::fail_undeclared(const syntax::Operand& syntax) {
  for (const syntax::Variable& variable : program_.module.variables)
    if (variable.is_extern && variable.name == syntax.name)
      fail(syntax.place, fmt::format("'{}' is external: one module stands alone here", syntax.name));
  fail(syntax.place, fmt::format("'{}' is not declared", syntax.name));
}

bool EntryResolver::special_register(std::string_view name, Type type, Operand& out) {
  for (const SpecialName& special : kSpecials) {
    if (special.name != name) continue;
    const Type reg_type = register_type(special.bytes);
    auto it = specials_.find(name);
    if (it == specials_.end()) {
      const std::uint32_t id = new_register(reg_type, true);
      entry_.specials.push_back({special.special, id, static_cast<std::uint8_t>(special.bytes)});
      it = specials_.emplace(special.name, id).first;
    }
    out.kind = special.bytes == 0 ? Operand::Kind::predicate : Operand::Kind::reg;
    out.bytes = static_cast<std::uint8_t>(special.bytes);
    out.offset = it->second;
    if (special.special >= Special::clock) out.value = static_cast<std::int64_t>(special.special);
    (void)type;
    return true;
  }
  return false;
}

// Hardware keeps it below the kernel's own shared memory; here it is a variable behind what is known so far.
Operand EntryResolver::reserved_shared_memory(Type type) {
  constexpr std::uint32_t kReservedBytes = 512;  // cooperative groups may use 288
  if (reserved_shared_ == kNotPlaced) {
    reserved_shared_ = (shared_bytes_ + 15) / 16 * 16;
    shared_bytes_ = reserved_shared_ + kReservedBytes;
    entry_.reserved_smem_offset = static_cast<std::uint32_t>(reserved_shared_);
    entry_.reserved_smem_bytes = kReservedBytes;
  }
  Symbol symbol;
  symbol.space = syntax::Space::shared;
  symbol.address = reserved_shared_;
  return symbol_address(symbol, type, false);
}

// A register that a call of the function fills.
Operand EntryResolver::frame_address(std::uint64_t offset, int bytes) {
  auto it = frame_->addresses.find({offset, bytes});
  if (it == frame_->addresses.end()) {
    const std::uint32_t id = new_register(register_type(bytes), true);
    frame_->made->addresses.push_back({{id, static_cast<std::uint8_t>(bytes)}, offset});
    it = frame_->addresses.emplace(std::make_tuple(offset, bytes), id).first;
  }
  Operand operand;
  operand.kind = Operand::Kind::reg;
  operand.bytes = static_cast<std::uint8_t>(bytes);
  operand.offset = it->second;
  return operand;
}

Operand EntryResolver::symbol_address(const Symbol& symbol, Type type, bool generic) {
  std::uint64_t address = symbol.address;
  if (symbol.is_in_frame)
    return frame_address(address + (generic ? kLocalWindow : 0), register_bytes(type) == 4 ? 4 : 8);
  const bool is_shared = symbol.space == syntax::Space::shared;
  if (is_shared) address += kSharedBase;
  if (generic && is_shared) address += kSharedWindow;
  if (generic && symbol.space == syntax::Space::local) address += kLocalWindow;
  if (generic && symbol.space == syntax::Space::param) address += kParamWindow;
  const auto relocation = is_shared ? ConstantSlot::Relocation::shared : ConstantSlot::Relocation::none;
  if (!symbol.is_dynamic_smem) return constant(address, register_bytes(type) == 4 ? Type::b32 : Type::b64, relocation);
  // Its place is added once all static variables are known, so this constant is shared with nobody.
  const Type reg_type = register_bytes(type) == 4 ? Type::b32 : Type::b64;
  Operand operand;
  operand.kind = Operand::Kind::reg;
  operand.bytes = static_cast<std::uint8_t>(register_bytes(reg_type));
  operand.offset = new_register(reg_type, true);
  entry_.constants.push_back({address, operand.offset, operand.bytes, relocation});
  dynamic_symbols_.push_back(entry_.constants.size() - 1);
  return operand;
}

Operand EntryResolver::bind_predicate(const syntax::Operand& syntax, bool is_destination) {
  using Kind = syntax::Operand::Kind;
  if (syntax.kind == Kind::integer && !is_destination)
    return constant(syntax.value != 0 ? kAllLanes : 0, Type::pred, ConstantSlot::Relocation::none);
  if (syntax.kind != Kind::name) fail(syntax.place, "expected a predicate register here");
  if (syntax.name == "_" && is_destination) return sink(Type::pred);
  const auto reg = scopes_.find_register(syntax.name);
  if (!reg || reg->type != Type::pred) fail(syntax.place, fmt::format("'{}' is not a predicate register", syntax.name));
  if (is_destination && syntax.is_negated) fail(syntax.place, "a destination cannot be negated");
  Operand operand;
  operand.kind = Operand::Kind::predicate;
  operand.is_negated = syntax.is_negated;
  operand.is_destination = is_destination;
  operand.offset = reg->id;
  return operand;
}

Operand EntryResolver::bind_address(const syntax::Operand& syntax, const Decoded& decoded) {
  if (syntax.kind != syntax::Operand::Kind::address) fail(syntax.place, "expected an address in brackets here");
  Operand operand;
  if (syntax.name.empty()) {
    operand = constant(syntax.value, Type::b64, ConstantSlot::Relocation::none);
  } else if (const auto reg = scopes_.find_register(syntax.name)) {
    if (bits_of(reg->type) != 32 && bits_of(reg->type) != 64)
      fail(syntax.place, fmt::format("an address has 32 or 64 bits; '{}' has {}", syntax.name, bits_of(reg->type)));
    operand.bytes = static_cast<std::uint8_t>(register_bytes(reg->type));
    operand.offset = reg->id;
  } else if (const std::optional<Symbol> symbol = use_symbol(syntax.name)) {
    operand = symbol_address(*symbol, Type::b64, !names_a_space(decoded));
    names_local_ = names_local_ || symbol->space == syntax::Space::local;
  } else {
    fail_undeclared(syntax);
  }
  operand.kind = Operand::Kind::address;
  operand.is_immediate = false;
  operand.value = syntax.displacement;
  return operand;
}

Operand EntryResolver::bind_list(const syntax::Operand& syntax, Type type, char width, bool is_destination,
                                 const Decoded& decoded) {
  if (syntax.kind != syntax::Operand::Kind::list) fail(syntax.place, "expected a list in braces here");
  const bool is_async = decoded.form->mnemonic == "wgmma.mma_async";
  std::vector<Operand> elements;
  if (decoded.form->mnemonic == "ldmatrix" || decoded.form->mnemonic == "stmatrix") type = Type::b32;
  if (decoded.form->mnemonic == "mov") {  // packs and unpacks: its binder compares the widths
    type = Type::b8;
    width = 'x';
  }
  Type unused = Type::none;  // what a `_` of an unpacking mov is as wide as: the other elements
  if (decoded.form->mnemonic == "mov" && is_destination)
    for (const syntax::Operand& element : syntax.elements)
      if (const auto reg = scopes_.find_register(element.name)) unused = reg->type;
  for (const syntax::Operand& element : syntax.elements) {
    if (unused != Type::none && element.name == "_") {
      elements.push_back(sink(unused));
      continue;
    }
    elements.push_back(bind_value(element, type, width, is_destination, decoded));
    // An asynchronous instruction reads its destinations too, and later than PTX's order of uses shows.
    if (is_async) registers_[elements.back().offset].is_pinned = true;
  }
  return list_of(std::move(elements));
}

Operand EntryResolver::list_of(std::vector<Operand> elements) {
  entry_.operand_lists.push_back(std::move(elements));
  Operand operand;
  operand.kind = Operand::Kind::list;
  operand.elements = entry_.operand_lists.back().data();
  operand.count = static_cast<std::uint16_t>(entry_.operand_lists.back().size());
  return operand;
}

Operand EntryResolver::bind_label(const syntax::Operand& syntax) {
  const auto pc = scopes_.find_label(syntax.name);
  if (syntax.kind != syntax::Operand::Kind::name || !pc)
    fail(syntax.place, fmt::format("'{}' is not a label of this scope", syntax.name));
  Operand operand;
  operand.kind = Operand::Kind::label;
  operand.value = *pc;
  return operand;
}

}  // namespace tessera::emulator
