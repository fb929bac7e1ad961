#include "emulator/syntax/parser.h"

#include <fmt/format.h>

#include "emulator/syntax/parser_state.h"
#include "emulator/syntax/register_parameters.h"

namespace tessera::emulator {

namespace {
constexpr std::size_t kMaxDiagnostics = 20;
}

Parser::Parser(syntax::Module& module, std::vector<Diagnostic>& diagnostics)
    : module_(module), diagnostics_(diagnostics), tokens_(tokenize(*module.text, module.file, diagnostics)) {}

Token Parser::take() {
  const Token token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::accept(std::string_view text) {
  if (!is(text)) return false;
  take();
  return true;
}

void Parser::expect(std::string_view text) {
  if (!accept(text)) fail(peek(), fmt::format("expected '{}', found '{}'", text, at_end() ? "the end" : peek().text));
}

std::string_view Parser::expect_word(std::string_view what) {
  if (peek().kind != TokenKind::word)
    fail(peek(), fmt::format("expected {}, found '{}'", what, at_end() ? "the end" : peek().text));
  return take().text;
}

std::int64_t Parser::expect_integer(std::string_view what) {
  const bool is_minus = accept("-");
  if (peek().kind != TokenKind::integer)
    fail(peek(), fmt::format("expected {}, found '{}'", what, at_end() ? "the end" : peek().text));
  const auto value = static_cast<std::int64_t>(take().bits);
  return is_minus ? static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(value)) : value;
}

void Parser::fail(const Token& token, std::string message) {
  diagnostics_.push_back(
      {module_.file, token.line, token.column, std::move(message), std::string(line_text(*module_.text, token.line))});
  throw SyntaxProblem{};
}

// After a problem: on to the next statement of this scope.
void Parser::recover() {
  while (!at_end() && !is(";") && !is("}")) take();
  accept(";");
}

void Parser::parse_module() {
  while (!at_end() && diagnostics_.size() < kMaxDiagnostics) {
    try {
      parse_top_level();
    } catch (const SyntaxProblem&) {
      recover();
      accept("}");
    }
  }
}

void Parser::parse_top_level() {
  if (accept(";")) return;
  if (is(".version")) return parse_version();
  if (is(".target")) return parse_target();
  if (accept(".address_size")) {
    module_.address_bits = static_cast<int>(expect_integer("the address size"));
    if (module_.address_bits != 64) fail(peek(), "only .address_size 64 is executed");
    return;
  }
  if (is(".file")) return parse_file();
  if (accept(".section")) return skip_section();
  if (accept(".pragma")) {
    while (!at_end() && !accept(";")) take();
    return;
  }
  if (accept(".loc")) return parse_loc();
  parse_linkage();
}

// Behind another module: the kernels of one image are found together. Files count on from those of the module before.
void Parser::parse_version() {
  take();
  for (const syntax::SourceFile& file : module_.files) first_file_ = std::max(first_file_, file.index + 1);
  const Token token = take();  // "9.0" is one decimal number
  const std::size_t dot = token.text.find('.');
  if (token.kind != TokenKind::real64 || dot == std::string_view::npos) fail(token, "expected a version such as 9.0");
  for (const char c : token.text.substr(0, dot)) module_.version_major = module_.version_major % 1000 * 10 + (c - '0');
  for (const char c : token.text.substr(dot + 1))
    if (c >= '0' && c <= '9') module_.version_minor = module_.version_minor % 1000 * 10 + (c - '0');
}

void Parser::parse_target() {
  take();
  module_.target = expect_word("a target such as sm_90a");
  while (accept(",")) expect_word("a target option");
}

void Parser::parse_file() {
  take();
  const auto index = expect_integer("a file index");
  if (peek().kind != TokenKind::string) fail(peek(), "expected a file name in quotes");
  module_.files.push_back({first_file_ + static_cast<int>(index), take().text});
  while (accept(",")) expect_integer("a time stamp or a size");
}

void Parser::skip_section() {
  expect_word("a section name");
  expect("{");
  for (int depth = 1; depth > 0 && !at_end(); take()) depth += is("{") ? 1 : is("}") ? -1 : 0;
}

void Parser::parse_linkage() {
  bool is_extern = false;
  for (;; take()) {
    if (is(".extern"))
      is_extern = true;
    else if (!is(".visible") && !is(".weak") && !is(".common"))
      break;
  }
  if (accept(".entry")) return parse_function(true);
  if (accept(".func")) return parse_function(false);
  syntax::Space space = syntax::Space::global;
  if (accept(".const"))
    space = syntax::Space::constant;
  else if (accept(".shared"))
    space = syntax::Space::shared;
  else if (!accept(".global"))
    fail(peek(), fmt::format("'{}' is not a directive that can stand here", peek().text));
  do {
    syntax::Variable variable = parse_variable_head(space);
    variable.is_extern = is_extern;
    parse_variable_tail(variable);
    module_.variables.push_back(std::move(variable));
  } while (accept(","));
  expect(";");
}

void Parser::parse_function(bool is_entry) {
  syntax::Function function;
  function.is_entry = is_entry;
  function.place = place();
  if (!is_entry && is("(")) function.results = parse_parameters(false);
  function.name = expect_word("a function name");
  if (is("(")) function.parameters = parse_parameters(is_entry);
  while (!at_end() && !is("{") && !is(";")) parse_performance_directive(function);
  if (!accept(";")) {
    function.has_body = true;
    parse_body(function);
  }
  module_.functions.push_back(std::move(function));
}

syntax::Dimensions Parser::parse_dimensions() {
  syntax::Dimensions d;
  d.x = static_cast<std::uint32_t>(expect_integer("a count"));
  if (accept(",")) d.y = static_cast<std::uint32_t>(expect_integer("a count"));
  if (accept(",")) d.z = static_cast<std::uint32_t>(expect_integer("a count"));
  return d;
}

void Parser::parse_performance_directive(syntax::Function& function) {
  const Token token = take();
  if (token.text == ".maxntid") {
    function.max_threads = parse_dimensions();
  } else if (token.text == ".reqntid") {
    function.required_threads = parse_dimensions();
  } else if (token.text == ".reqnctapercluster") {
    function.required_cluster = parse_dimensions();
  } else if (token.text == ".minnctapersm" || token.text == ".maxnctapersm") {
    function.min_ctas_per_sm = static_cast<std::uint32_t>(expect_integer("a count"));
  } else if (token.text == ".maxnreg") {
    function.max_registers = static_cast<std::uint32_t>(expect_integer("a count"));
  } else if (token.text == ".maxclusterrank" || token.text == ".abi_preserve" ||
             token.text == ".abi_preserve_control") {
    expect_integer("a count");
  } else if (token.text == ".pragma") {
    while (!at_end() && !accept(";")) take();
  } else if (token.text != ".explicitcluster" && token.text != ".blocksareclusters" && token.text != ".noreturn") {
    fail(token, fmt::format("'{}' is not a directive that can follow a function's parameters", token.text));
  }
}

std::vector<syntax::Variable> Parser::parse_parameters(bool is_entry) {
  std::vector<syntax::Variable> parameters;
  expect("(");
  while (!at_end() && !is(")")) {
    const bool is_register = !is_entry && accept(".reg");
    if (!is_register) expect(".param");
    syntax::Variable variable = parse_variable_head(syntax::Space::param);
    variable.is_register = is_register;
    parse_extents(variable);
    parameters.push_back(std::move(variable));
    if (!accept(",")) break;
  }
  expect(")");
  return parameters;
}

syntax::Module parse_ptx(std::string_view text, std::string_view file) {
  syntax::Module module;
  module.text = std::make_shared<const std::string>(text);
  module.file = std::string(file);
  std::vector<Diagnostic> diagnostics;
  Parser(module, diagnostics).parse_module();
  if (diagnostics.empty()) pass_parameters_in_memory(module);
  if (diagnostics.size() > kMaxDiagnostics) diagnostics.resize(kMaxDiagnostics);
  if (!diagnostics.empty()) throw_diagnostics(ErrorKind::compile, diagnostics);
  return module;
}

}  // namespace tessera::emulator
