#include "emulator/syntax/lexer.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <string>

namespace tessera::emulator {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '%'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

class Lexer {
 public:
  Lexer(std::string_view text, std::string_view file, std::vector<Diagnostic>& diagnostics)
      : text_(text), file_(file), diagnostics_(diagnostics) {
    while (text_.ends_with('\0')) text_.remove_suffix(1);  // PTX in an image ends in one
  }

  std::vector<Token> run() {
    std::vector<Token> tokens;
    for (skip_blank(); at_ < text_.size(); skip_blank()) {
      Token token = next();
      if (token.kind != TokenKind::end) tokens.push_back(token);
    }
    tokens.push_back(start(TokenKind::end));
    return tokens;
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }

  void advance() {
    if (text_[at_] == '\n') {
      ++line_;
      line_start_ = at_ + 1;
    }
    ++at_;
  }

  void skip_blank() {
    while (at_ < text_.size()) {
      const char c = peek();
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v') {
        advance();
      } else if (c == '/' && peek(1) == '/') {
        while (at_ < text_.size() && peek() != '\n') advance();
      } else if (c == '/' && peek(1) == '*') {
        const Token token = start(TokenKind::punctuation);
        advance(), advance();
        while (at_ < text_.size() && !(peek() == '*' && peek(1) == '/')) advance();
        if (at_ < text_.size())
          advance(), advance();
        else
          problem(token, "this comment does not end");
      } else {
        return;
      }
    }
  }

  Token start(TokenKind kind) const {
    return {kind, text_.substr(at_, 0), 0, line_, static_cast<int>(at_ - line_start_) + 1};
  }
  Token finish(Token token, std::size_t from) const {
    token.text = text_.substr(from, at_ - from);
    return token;
  }

  Token next() {
    const char c = peek();
    if (is_letter(c) || (c == '.' && is_letter(peek(1)))) return word();
    if (is_digit(c)) return number();
    if (c == '"') return string();
    Token token = start(TokenKind::punctuation);
    const std::size_t from = at_;
    advance();
    if (std::string_view("{}[]()<>,;:+-*/@!|=~&^?").find(c) == std::string_view::npos) {
      problem(token, "this character has no meaning in PTX");
      token.kind = TokenKind::end;
    }
    return finish(token, from);
  }

  // Words that begin with a dot are directives and types; they end at the next dot: `.reg.b32` is two.
  Token word() {
    const Token token = start(TokenKind::word);
    const std::size_t from = at_;
    const bool is_directive = peek() == '.';
    while (at_ < text_.size()) {
      const char c = peek();
      if (is_directive && c == '.' && at_ > from && is_letter(peek(1))) break;
      if (is_letter(c) || is_digit(c) || c == '.') {
        advance();
      } else if (c == ':' && peek(1) == ':' && (is_letter(peek(2)) || is_digit(peek(2)))) {
        advance(), advance();
      } else {
        break;
      }
    }
    return finish(token, from);
  }

  Token string() {
    const Token token = start(TokenKind::string);
    advance();
    const std::size_t from = at_;
    while (at_ < text_.size() && peek() != '"' && peek() != '\n') {
      if (peek() == '\\' && at_ + 1 < text_.size()) advance();
      advance();
    }
    const Token done = finish(token, from);
    if (peek() == '"')
      advance();
    else
      problem(token, "this string does not end on its line");
    return done;
  }

  // 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX are bit patterns; a dot or an exponent makes a decimal f64; 0x, 0b, a leading 0
  // and nothing choose the base of an integer, U may end it.
  Token number() {
    Token token = start(TokenKind::integer);
    const std::size_t from = at_;
    const char prefix = peek(1);
    if (peek() == '0' && (prefix == 'f' || prefix == 'F' || prefix == 'd' || prefix == 'D')) {
      const std::size_t digits = prefix == 'f' || prefix == 'F' ? 8 : 16;
      token.kind = digits == 8 ? TokenKind::real32 : TokenKind::real64;
      at_ += 2;
      return integer(token, from, 16, digits);
    }
    if (peek() == '0' && (prefix == 'x' || prefix == 'X')) {
      at_ += 2;
      return integer(token, from, 16, 0);
    }
    if (peek() == '0' && (prefix == 'b' || prefix == 'B')) {
      at_ += 2;
      return integer(token, from, 2, 0);
    }
    std::size_t end = at_;
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const char after = end < text_.size() ? text_[end] : '\0';
    if (after == '.' || after == 'e' || after == 'E') return decimal(token, from);
    return integer(token, from, peek() == '0' && end - from > 1 ? 8 : 10, 0);
  }

  Token decimal(Token token, std::size_t from) {
    token.kind = TokenKind::real64;
    double value = 0;
    const auto result = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    at_ = static_cast<std::size_t>(result.ptr - text_.data());
    if (at_ == from) at_ = from + 1;
    token.bits = std::bit_cast<std::uint64_t>(value);
    token = finish(token, from);
    if (result.ec != std::errc{}) problem(token, "this number is not a double");
    return token;
  }

  Token integer(Token token, std::size_t from, int base, std::size_t exact_digits) {
    const std::size_t digits_from = at_;
    while (at_ < text_.size() && is_hex(peek())) ++at_;
    const auto result = std::from_chars(text_.data() + digits_from, text_.data() + at_, token.bits, base);
    const std::size_t digits = at_ - digits_from;
    if (peek() == 'U') ++at_;
    token = finish(token, from);
    if (result.ec != std::errc{} || digits == 0 || result.ptr != text_.data() + digits_from + digits)
      problem(token, fmt::format("'{}' is not a number of base {} with at most 64 bits", token.text, base));
    else if (exact_digits != 0 && digits != exact_digits)
      problem(token, fmt::format("'{}': a floating-point bit pattern has {} digits", token.text, exact_digits));
    return token;
  }

  void problem(const Token& token, std::string message) {
    diagnostics_.push_back(
        {std::string(file_), token.line, token.column, std::move(message), std::string(line_text(text_, token.line))});
  }

  std::string_view text_;
  std::string_view file_;
  std::vector<Diagnostic>& diagnostics_;
  std::size_t at_ = 0;
  std::size_t line_start_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, std::string_view file, std::vector<Diagnostic>& diagnostics) {
  return Lexer(text, file, diagnostics).run();
}

std::string_view line_text(std::string_view text, int line) {
  std::size_t from = 0;
  for (int i = 1; i < line; ++i) {
    from = text.find('\n', from);
    if (from == std::string_view::npos) return {};
    ++from;
  }
  return text.substr(from, text.find('\n', from) - from);
}

}  // namespace tessera::emulator
