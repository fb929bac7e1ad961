// The parser's cursor over tokens and its productions, one member function each; internal to parser*.cpp.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/syntax/lexer.h"
#include "emulator/syntax/syntax.h"
#include "tessera/error.h"

namespace tessera::emulator {

/// Thrown within the parser after a problem was recorded; caught where parsing can go on.
struct SyntaxProblem {};

class Parser {
 public:
  Parser(syntax::Module& module, std::vector<Diagnostic>& diagnostics);
  void parse_module();

 private:
  // parser.cpp: the cursor and the module level.
  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  bool at_end() const { return peek().kind == TokenKind::end; }
  bool is(std::string_view text) const {
    return peek().text == text && (peek().kind == TokenKind::punctuation || peek().kind == TokenKind::word);
  }
  Token take();
  bool accept(std::string_view text);
  void expect(std::string_view text);
  std::string_view expect_word(std::string_view what);
  std::int64_t expect_integer(std::string_view what);
  syntax::Place place() const { return {peek().line, peek().column}; }
  [[noreturn]] void fail(const Token& token, std::string message);
  void recover();

  void parse_top_level();
  void parse_version();
  void parse_target();
  void parse_file();
  void skip_section();
  void parse_linkage();
  void parse_function(bool is_entry);
  void parse_performance_directive(syntax::Function& function);
  syntax::Dimensions parse_dimensions();
  std::vector<syntax::Variable> parse_parameters(bool is_entry);

  // parser_body.cpp: variables, statements, operands.
  syntax::Variable parse_variable_head(syntax::Space space);
  void parse_variable_tail(syntax::Variable& variable);
  void parse_extents(syntax::Variable& variable);
  void parse_initializers(syntax::Variable& variable, int depth);
  syntax::Initializer parse_initializer(Type type);
  void parse_body(syntax::Function& function);
  void parse_statement(syntax::Function& function);
  void parse_directive(syntax::Function& function);
  void parse_registers(syntax::Function& function);
  void parse_loc();
  int caller_at(const std::array<int, 3>& at);
  void parse_instruction(syntax::Function& function);
  syntax::Operand parse_operand(int depth);
  syntax::Operand parse_second(syntax::Operand first);
  syntax::Operand parse_address();
  syntax::Operand parse_list(std::string_view close, int depth);
  void parse_primary(syntax::Operand& operand);
  std::int64_t parse_displacement();
  syntax::Statement statement(syntax::Statement::Kind kind) const;

  syntax::Module& module_;
  std::vector<Diagnostic>& diagnostics_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int first_file_ = 0;  // of the module, among the files of all
  int loc_file_ = 0;
  int loc_line_ = 0;
  int loc_caller_ = -1;
  std::map<std::array<int, 3>, int> loc_callers_;    // of a place: file, line, column
  std::map<std::array<int, 4>, int> known_callers_;  // file, line, column, parent -> Module::callers
};

}  // namespace tessera::emulator
