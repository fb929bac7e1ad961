#include "emulator/syntax/resolver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "emulator/machine.h"
#include "emulator/memory/memory.h"
#include "emulator/syntax/lexer.h"
#include "emulator/syntax/parser.h"
#include "emulator/syntax/resolver_state.h"

namespace tessera::emulator {
namespace {

constexpr std::size_t kMaxDiagnostics = 20;
constexpr std::uint64_t kMaxVariableBytes = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxLocalBytes = std::uint64_t{512} << 10;   // of a thread, as on every GPU
constexpr std::uint64_t kMaxModuleBytes = std::uint64_t{256} << 20;  // far above what constant tables take
constexpr std::uint64_t kMaxRegisterFileBytes = std::uint64_t{1} << 27;

std::uint64_t align_up(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

std::uint64_t element_bytes(const syntax::Variable& variable) {
  return static_cast<std::uint64_t>(std::max(bits_of(variable.type), 8)) / 8 *
         static_cast<std::uint64_t>(variable.vector);
}

/// Bytes of the variable; an open extent takes what the initialiser has.
std::uint64_t variable_bytes(const syntax::Variable& variable) {
  std::uint64_t count = 1;
  for (const std::int64_t extent : variable.extents) {
    const std::uint64_t n = extent < 0 ? variable.values.size() : static_cast<std::uint64_t>(extent);
    if (n != 0 && count > kMaxVariableBytes / n) return kMaxVariableBytes + 1;
    count *= n;
  }
  return count > kMaxVariableBytes ? count : count * element_bytes(variable);
}

std::uint64_t alignment_of(const syntax::Variable& variable) {
  return variable.alignment != 0 ? static_cast<std::uint64_t>(variable.alignment) : element_bytes(variable);
}

// The handler of the rows that the table has only to name them.
Step refuse(Warp& w, const Instruction& in, Mask) {
  return w.fault(in, "not-supported", fmt::format("'{}': {}", in.opcode, in.form->refusal));
}

constexpr std::uint64_t kFunctionBase = 0x0400'0000'0000;  // below global memory, beside the other spaces' windows
constexpr std::uint64_t kFunctionStep = 16;

}  // namespace

std::uint64_t Program::function_address(std::string_view name) const {
  // A declaration may stand before the function; the body's place counts where there is one.
  std::uint64_t address = 0;
  for (std::size_t i = 0; i < module.functions.size(); ++i) {
    const syntax::Function& function = module.functions[i];
    if (function.name != name || (address != 0 && !function.has_body)) continue;
    address = kFunctionBase + kFunctionStep * i;
  }
  return address;
}

const syntax::Function* Program::function_at(std::uint64_t address) const {
  const std::uint64_t index = (address - kFunctionBase) / kFunctionStep;
  if (address < kFunctionBase || address % kFunctionStep != 0 || index >= module.functions.size()) return nullptr;
  return &module.functions[index];
}

void EntryResolver::fail(syntax::Place place, std::string message) {
  diagnostics_.push_back({program_.module.file, place.line, place.column, std::move(message),
                          std::string(line_text(*program_.module.text, place.line))});
  throw ResolveProblem{};
}

std::uint32_t EntryResolver::new_register(Type type, bool pinned) {
  register_bytes_ += static_cast<std::uint64_t>(std::max(register_bytes(type), 1)) * kLanes;
  if (register_bytes_ > kMaxRegisterFileBytes) fail(place_, "more registers than the emulator has room for");
  registers_.push_back({type, pinned});
  return static_cast<std::uint32_t>(registers_.size() - 1);
}

void EntryResolver::declare_module_variables() {
  for (const ModuleVariable& variable : program_.variables)
    scopes_.add_symbol(variable.name, {syntax::Space::global, variable.address, false});
  for (const syntax::Variable& variable : program_.module.variables) {
    if (variable.space != syntax::Space::shared) continue;
    scopes_.add_symbol(variable.name, {syntax::Space::shared, 0, variable.is_extern, &variable});
  }
}

/// A name in an operand. A shared variable of the module gets its place in this entry's memory when it is first named.
std::optional<Symbol> EntryResolver::use_symbol(std::string_view name) {
  const Symbol* const found = scopes_.find_symbol(name);
  if (found == nullptr) return std::nullopt;
  Symbol symbol = *found;
  if (symbol.module_shared == nullptr) return symbol;
  const syntax::Variable& variable = *symbol.module_shared;
  if (symbol.is_dynamic_smem) {
    dynamic_alignment_ = std::max(dynamic_alignment_, alignment_of(variable));
    return symbol;
  }
  const auto [placed, is_new] = placed_shared_.try_emplace(&variable, align_up(shared_bytes_, alignment_of(variable)));
  if (is_new) shared_bytes_ = placed->second + variable_bytes(variable);
  symbol.address = placed->second;
  return symbol;
}

void EntryResolver::declare_parameters() {
  std::uint64_t offset = 0;
  for (const syntax::Variable& variable : function_.parameters) {
    const std::uint64_t bytes = variable_bytes(variable);
    if (bytes > 65536) fail(variable.place, fmt::format("parameter '{}' is too large", variable.name));
    offset = align_up(offset, alignment_of(variable));
    scopes_.add_symbol(variable.name, {syntax::Space::param, offset, false});
    entry_.parameters.push_back({std::string(variable.name), offset, bytes});
    offset += bytes;
  }
  entry_.parameter_bytes = offset;
}

void EntryResolver::declare_registers(const syntax::Statement& statement) {
  const syntax::Register& reg = statement.reg;
  if (bits_of(reg.type) < 8 && reg.type != Type::pred) fail(statement.place, "no registers have this type");
  const std::int64_t count = reg.count < 0 ? 1 : reg.count;
  const NamedRegister first{static_cast<std::uint32_t>(registers_.size()), reg.type, reg.vector};
  for (std::int64_t i = 0; i < count * reg.vector; ++i) new_register(reg.type, false);
  const bool is_new =
      reg.count < 0 ? scopes_.add_register(reg.name, first) : scopes_.add_range(reg.name, reg.count, first);
  if (!is_new) fail(statement.place, fmt::format("'{}' is declared twice in one scope", reg.name));
}

void EntryResolver::declare_variable(const syntax::Statement& statement) {
  const syntax::Variable& variable = statement.variable;
  const std::uint64_t bytes = variable_bytes(variable);
  if (bytes > (std::uint64_t{1} << 24)) fail(variable.place, fmt::format("'{}' is too large", variable.name));
  const auto add = [&](const Symbol& symbol) {
    if (!scopes_.add_symbol(variable.name, symbol))
      fail(variable.place, fmt::format("'{}' is declared twice in one scope", variable.name));
  };
  if (variable.space == syntax::Space::shared) {
    shared_bytes_ = align_up(shared_bytes_, alignment_of(variable));
    add({syntax::Space::shared, shared_bytes_, false});
    shared_bytes_ += bytes;
  } else if (variable.space == syntax::Space::local || variable.space == syntax::Space::param) {
    // .param: what a call passes and gets back. It lies in the thread's own memory too.
    const bool is_param = variable.space == syntax::Space::param;
    const std::uint64_t alignment = std::max<std::uint64_t>(alignment_of(variable), is_param ? 8 : 1);
    const std::uint64_t offset = align_up(frame_ != nullptr ? frame_->bytes : entry_.local_bytes, alignment);
    if (bytes > kMaxLocalBytes || offset > kMaxLocalBytes - bytes)
      fail(variable.place, fmt::format("'{}' makes {} bytes of local memory: a thread has {}", variable.name,
                                       offset + bytes, kMaxLocalBytes));
    add({syntax::Space::local, offset, false, nullptr, frame_ != nullptr});
    if (frame_ == nullptr) {
      entry_.local_bytes = static_cast<std::uint32_t>(offset + bytes);
    } else {
      frame_->bytes = offset + bytes;
      frame_->made->alignment = std::max(frame_->made->alignment, static_cast<std::uint32_t>(alignment));
    }
  } else {
    fail(variable.place, "only .reg, .shared, .local and .param are declared in a body here");
  }
}

// Labels of the scope whose first statement is body[from]; nested scopes have their own.
void EntryResolver::collect_labels(const syntax::Function& function, std::size_t from) {
  int depth = 0;
  std::uint64_t pc = entry_.code.size();
  for (std::size_t i = from; i < function.body.size() && depth >= 0; ++i) {
    const syntax::Statement& statement = function.body[i];
    using Kind = syntax::Statement::Kind;
    if (statement.kind == Kind::open_scope) ++depth;
    if (statement.kind == Kind::close_scope) --depth;
    if (statement.kind == Kind::instruction) pc += emitted(statement);
    if (statement.kind == Kind::label && depth == 0 &&
        !scopes_.add_label(statement.label, static_cast<std::uint32_t>(pc)))
      fail(statement.place, fmt::format("label '{}' stands twice in one scope", statement.label));
    if (statement.kind == Kind::branch_targets && depth == 0) scopes_.add_targets(statement.label, &statement.targets);
  }
}

Instruction& EntryResolver::new_instruction(const syntax::Statement& statement) {
  Instruction& in = entry_.code.emplace_back();
  in.line = statement.place.line;
  in.source_file = statement.file;
  in.source_line = statement.line;
  in.caller = statement.caller;
  in.opcode = statement.instruction.opcode;
  place_ = statement.place;
  return in;
}

// A vector register stands for the list of its elements: `ld.global.v2.b32 v, [p]`, `mov.b64 v, d`.
syntax::Instruction EntryResolver::with_vectors_listed(const syntax::Instruction& instruction,
                                                       std::deque<std::string>& names) {
  syntax::Instruction listed = instruction;
  for (syntax::Operand& operand : listed.operands) {
    if (operand.kind != syntax::Operand::Kind::name) continue;
    const auto vector = scopes_.find_vector(operand.name);
    if (!vector) continue;
    syntax::Operand list;
    list.kind = syntax::Operand::Kind::list;
    list.place = operand.place;
    for (int i = 0; i < vector->vector; ++i) {
      syntax::Operand& element = list.elements.emplace_back();
      element.place = operand.place;
      element.name = names.emplace_back(fmt::format("{}.{}", operand.name, "xyzw"[static_cast<std::size_t>(i)]));
    }
    operand = std::move(list);
  }
  return listed;
}

void EntryResolver::resolve_instruction(const syntax::Statement& statement) {
  if (resolve_call(statement) || resolve_return(statement)) return;
  const syntax::Instruction& syntax = statement.instruction;
  Instruction& in = new_instruction(statement);
  Decoded decoded;
  decoded.in = &in;
  decoded.target = program_.module.target;
  std::string problem, why;
  decoded.why = &why;
  if (!find_form(syntax.opcode, decoded, problem)) fail(statement.place, problem);
  if (!target_has(program_.module.target, decoded.form->target))
    fail(statement.place, fmt::format("'{}' needs the target {}; the module is for {}", syntax.opcode,
                                      decoded.form->target, program_.module.target));
  in.form = decoded.form;
  if (!syntax.guard.empty()) {
    const auto guard = scopes_.find_register(syntax.guard);
    if (!guard || guard->type != Type::pred)
      fail(statement.place, fmt::format("'{}' is not a predicate register", syntax.guard));
    in.guard = guard->id;
    in.guard_negated = syntax.guard_negated;
  }
  if (!decoded.form->refusal.empty()) {
    in.run = refuse;
    return;
  }
  names_local_ = false;
  const auto is_vector = [&](const syntax::Operand& operand) {
    return operand.kind == syntax::Operand::Kind::name && scopes_.find_vector(operand.name);
  };
  if (std::any_of(syntax.operands.begin(), syntax.operands.end(), is_vector)) {
    std::deque<std::string> names;
    bind_operands(with_vectors_listed(syntax, names), statement.place, decoded, in);
  } else {
    bind_operands(syntax, statement.place, decoded, in);
  }
  if (names_local_) {
    // A call's parameters: ld.param and st.param of a variable that stands in local memory.
    for (int i = 0; i < decoded.num_modifiers; ++i)
      if (std::string_view& word = decoded.modifiers[static_cast<std::size_t>(i)];
          word == "param" || word == "param::func")
        word = "local";
  }
  in.run = decoded.form->bind(decoded);
  if (in.run == nullptr)
    fail(statement.place, fmt::format("'{}': {}", syntax.opcode,
                                      why.empty() ? "the emulator has no such form with these operands" : why));
}

void EntryResolver::place_shared_variables() {
  entry_.static_smem_bytes = static_cast<std::uint32_t>(shared_bytes_);
  entry_.dynamic_smem_offset =
      static_cast<std::uint32_t>(align_up(kSharedBase + shared_bytes_, dynamic_alignment_) - kSharedBase);
  for (const std::size_t constant : dynamic_symbols_) entry_.constants[constant].bits += entry_.dynamic_smem_offset;
}

void EntryResolver::resolve_body(const syntax::Function& function) {
  if (!function.problems.empty()) {
    if (unread_.insert(&function).second)
      diagnostics_.insert(diagnostics_.end(), function.problems.begin(), function.problems.end());
    return;
  }
  const std::size_t base = scopes_.depth();
  using Kind = syntax::Statement::Kind;
  for (std::size_t i = 0; i < function.body.size() && diagnostics_.size() < kMaxDiagnostics; ++i) {
    const syntax::Statement& statement = function.body[i];
    try {
      switch (statement.kind) {
        case Kind::open_scope:
          scopes_.open();
          collect_labels(function, i + 1);
          break;
        case Kind::close_scope:
          if (scopes_.depth() > base) scopes_.close();
          break;
        case Kind::registers:
          declare_registers(statement);
          break;
        case Kind::variable:
          declare_variable(statement);
          break;
        case Kind::label:
        case Kind::branch_targets:
          break;
        case Kind::instruction:
          resolve_instruction(statement);
          break;
      }
    } catch (const ResolveProblem&) {
    }
  }
}

void EntryResolver::run() {
  entry_.name = std::string(function_.name);
  const auto threads = [](const syntax::Dimensions& d) { return d.x * d.y * d.z; };
  entry_.max_threads = threads(function_.required_threads.x != 0 ? function_.required_threads : function_.max_threads);
  entry_.max_registers = function_.max_registers;
  entry_.min_ctas_per_sm = function_.min_ctas_per_sm;
  if (function_.required_cluster.x != 0)
    entry_.required_cluster = {function_.required_cluster.x, function_.required_cluster.y,
                               function_.required_cluster.z};
  scopes_.open();
  declare_module_variables();
  find_out_of_line();
  // Functions stand before the kernel's body: the lowest pc runs first, so lanes that call come back before the others
  // go on.
  for (OutOfLine& made : entry_.functions) resolve_out_of_line(made);
  entry_.start_pc = static_cast<std::uint32_t>(entry_.code.size());
  try {
    declare_parameters();
  } catch (const ResolveProblem&) {
  }
  resolve_body(function_);
  if (shared_bytes_ > (1 << 24)) {
    diagnostics_.push_back(
        {program_.module.file, function_.place.line, 0, "more shared memory than any target has", {}});
    return;
  }
  place_shared_variables();
  if (!diagnostics_.empty()) return;
  // A pc past the end behaves as an exit.
  Instruction& last = entry_.code.emplace_back();
  Decoded decoded;
  std::string problem;
  find_form("exit", decoded, problem);
  decoded.in = &last;
  last.form = decoded.form;
  last.opcode = "exit";
  last.run = decoded.form->bind(decoded);
  find_undefined_reads(entry_, registers_.size());
  find_ignored_waits(entry_);
  find_given_up_waits(entry_);
  if (options_.finds_reads_under_way) find_reads_under_way(entry_, registers_.size());
  assign_registers(entry_, registers_, options_.shares_places);
}

namespace {

void make_variables(Program& program, const std::function<std::uint64_t(const ModuleVariable&)>& place,
                    std::vector<Diagnostic>& diagnostics) {
  const auto problem = [&](const syntax::Variable& v, std::string message) {
    diagnostics.push_back({program.module.file, v.place.line, v.place.column, std::move(message),
                           std::string(line_text(*program.module.text, v.place.line))});
  };
  std::vector<const syntax::Variable*> sources;
  std::uint64_t total = 0;
  for (const syntax::Variable& v : program.module.variables) {
    if (v.space != syntax::Space::global && v.space != syntax::Space::constant) continue;
    if (v.is_extern) continue;  // who names it is told
    ModuleVariable variable;
    variable.name = std::string(v.name);
    const std::uint64_t bytes = variable_bytes(v);
    total = std::min(total + std::min(bytes, kMaxModuleBytes + 1), kMaxModuleBytes + 1);
    if (total > kMaxModuleBytes ||
        v.values.size() * element_bytes(v) / static_cast<std::uint64_t>(v.vector) > std::max<std::uint64_t>(bytes, 1)) {
      problem(v, fmt::format("'{}' has {} bytes: too large, or smaller than its initialiser", v.name, bytes));
      continue;
    }
    variable.bytes = bytes;
    variable.alignment = alignment_of(v);
    variable.address = place(variable);
    program.variables.push_back(std::move(variable));
    sources.push_back(&v);
  }
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const syntax::Variable& v = *sources[i];
    ModuleVariable& variable = program.variables[i];
    variable.initial.assign(variable.bytes, std::byte{0});
    const std::size_t step = element_bytes(v) / static_cast<std::uint64_t>(v.vector);
    for (std::size_t j = 0; j < v.values.size(); ++j) {
      std::uint64_t bits = v.values[j].bits;
      if (!v.values[j].symbol.empty()) {
        const auto found = std::find_if(program.variables.begin(), program.variables.end(),
                                        [&](const ModuleVariable& m) { return m.name == v.values[j].symbol; });
        const std::uint64_t function = program.function_address(v.values[j].symbol);
        if (found == program.variables.end() && function == 0)
          problem(v, fmt::format("the initialiser names '{}', which is no global variable and no function",
                                 v.values[j].symbol));
        else
          bits += function != 0 ? function : found->address;
      }
      std::memcpy(variable.initial.data() + j * step, &bits, std::min<std::size_t>(step, 8));
    }
  }
}

}  // namespace

std::unique_ptr<Program> load_program(std::string_view ptx, std::string_view file,
                                      const std::function<std::uint64_t(const ModuleVariable&)>& place,
                                      LoadOptions options) {
  auto program = std::make_unique<Program>();
  program->module = parse_ptx(ptx, file);
  std::vector<Diagnostic> diagnostics;
  make_variables(*program, place, diagnostics);
  const CallGraph graph(program->module);
  for (const syntax::Function& function : program->module.functions) {
    if (!function.is_entry || !function.has_body) continue;
    for (const Entry& other : program->entries)
      if (other.name == function.name)
        diagnostics.push_back({program->module.file, function.place.line, function.place.column,
                               fmt::format("kernel '{}' is defined twice", function.name),
                               std::string(line_text(ptx, function.place.line))});
    Entry& entry = program->entries.emplace_back();
    EntryResolver(*program, graph, function, entry, options).run();
  }
  // Where no kernel can be launched, that is said at once.
  const bool is_any_good = std::any_of(program->entries.begin(), program->entries.end(),
                                       [](const Entry& entry) { return entry.problems.empty(); });
  if (program->entries.empty())
    for (const syntax::Function& function : program->module.functions)
      diagnostics.insert(diagnostics.end(), function.problems.begin(), function.problems.end());
  if (!is_any_good)
    for (const Entry& entry : program->entries)
      diagnostics.insert(diagnostics.end(), entry.problems.begin(), entry.problems.end());
  if (diagnostics.size() > kMaxDiagnostics) diagnostics.resize(kMaxDiagnostics);
  if (!diagnostics.empty()) throw_diagnostics(ErrorKind::compile, diagnostics);
  return program;
}

}  // namespace tessera::emulator
