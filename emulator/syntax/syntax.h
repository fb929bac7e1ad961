// A PTX module as it was written: what the parser hands to the resolver. PTX ISA, "Syntax", "Directives".
//
// Nothing is looked up here: names are views into the text, opcodes are words with all their modifiers. A body is a
// flat list of statements in which scopes open and close, so nested inline-assembly blocks need no recursion.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/syntax/types.h"
#include "tessera/error.h"

namespace tessera::emulator::syntax {

struct Place {
  int line = 0;
  int column = 0;
};

struct Operand {
  enum class Kind : std::uint8_t {
    name,     ///< register, symbol, label, special register; displacement for `symbol+4`
    integer,  ///< value
    real32,   ///< value is the bit pattern
    real64,   ///< value is the bit pattern
    list,     ///< {a, b}: elements
    address,  ///< [base+displacement] or [base, {list}]: name or value, elements holds the lists that follow
    pair,     ///< p|q: elements
    tuple     ///< (a, b): a call's parameters: elements
  };
  Kind kind = Kind::name;
  std::string_view name;
  std::uint64_t value = 0;
  std::int64_t displacement = 0;
  bool is_negated = false;  ///< !p
  bool is_minus = false;    ///< -%r, of a register
  std::vector<Operand> elements;
  Place place;
};

struct Instruction {
  std::string_view guard;  ///< predicate register of @p or @!p; empty without one
  bool guard_negated = false;
  std::string_view opcode;  ///< with all modifiers
  std::vector<Operand> operands;
};

struct Register {
  Type type = Type::none;
  std::string_view name;
  std::int64_t count = -1;  ///< %r<100>: 100; -1: one register of this very name
  int vector = 1;           ///< .v2, .v4: elements .x, .y, .z, .w
};

enum class Space : std::uint8_t { global, constant, shared, local, param };

/// One value of an initialiser: bits of the element type, or the address of a symbol.
struct Initializer {
  std::uint64_t bits = 0;
  std::string_view symbol;  ///< not empty: its address plus bits
  bool is_generic = false;  ///< generic(symbol)
};

struct Variable {
  Space space = Space::global;
  Type type = Type::b8;
  int vector = 1;     ///< .v2, .v4
  int alignment = 0;  ///< 0: the element's
  std::string_view name;
  std::vector<std::int64_t> extents;  ///< empty: a scalar; -1: open ([])
  std::vector<Initializer> values;
  bool is_extern = false;
  bool is_register = false;  ///< a function's parameter in a register: `.reg`
  bool is_opaque = false;    ///< .texref, .samplerref, .surfref
  Place place;
};

struct Statement {
  enum class Kind : std::uint8_t { instruction, label, open_scope, close_scope, registers, variable, branch_targets };
  Kind kind = Kind::instruction;
  Place place;
  int file = 0;  ///< the source place that .loc gave: file index and line; 0: none
  int line = 0;
  int caller = -1;  ///< index into Module::callers: where the function of that place was inlined
  Instruction instruction;
  std::string_view label;
  std::vector<std::string_view> targets;  ///< branch_targets: the labels that `label: .branchtargets` lists
  Register reg;
  Variable variable;
};

struct Dimensions {
  std::uint32_t x = 0, y = 1, z = 1;  ///< x = 0: not given
};

struct Function {
  std::string_view name;
  bool is_entry = false;
  bool has_body = false;
  std::vector<Variable> parameters;
  std::vector<Variable> results;  ///< of a .func
  Dimensions max_threads;         ///< .maxntid
  Dimensions required_threads;    ///< .reqntid
  Dimensions required_cluster;    ///< .reqnctapercluster
  std::uint32_t max_registers = 0;
  std::uint32_t min_ctas_per_sm = 0;
  std::vector<Statement> body;
  std::vector<Diagnostic> problems;  ///< what the parser could not read in the body: of those who use the function
  Place place;
};

struct SourceFile {
  int index = 0;
  std::string_view path;
};

/// A place that another function was inlined at.
struct Caller {
  int file = 0;
  int line = 0;
  int parent = -1;  ///< where this place's own function was inlined
};

struct Module {
  std::shared_ptr<const std::string> text;  ///< everything points into it
  /// And here, for words that the text has in parts.
  std::shared_ptr<std::deque<std::string>> joined = std::make_shared<std::deque<std::string>>();
  std::string file;  ///< for messages
  int version_major = 0;
  int version_minor = 0;
  std::string_view target;  ///< "sm_90a"
  int address_bits = 64;
  std::vector<Variable> variables;
  std::vector<Function> functions;
  std::vector<SourceFile> files;
  std::vector<Caller> callers;
};

}  // namespace tessera::emulator::syntax
