#include "tessera/internal/json_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tessera {

std::string_view to_string(JsonKind kind) noexcept {
  switch (kind) {
    case JsonKind::null:
      return "null";
    case JsonKind::boolean:
      return "a boolean";
    case JsonKind::number:
      return "a number";
    case JsonKind::string:
      return "a string";
    case JsonKind::array:
      return "a list";
    case JsonKind::object:
      return "an object";
  }
  return "?";
}

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Length of the well-formed UTF-8 sequence at the start of text (no overlong forms, no surrogates); 0: malformed.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const auto continues = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(0), second = byte(1);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return continues(1) ? 2 : 0;
  if (lead >= 0xE0 && lead < 0xF0) {
    const bool is_bad = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0);
    return !is_bad && continues(1) && continues(2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead < 0xF5) {
    const bool is_bad = (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90);
    return !is_bad && continues(1) && continues(2) && continues(3) ? 4 : 0;
  }
  return 0;
}

void append_utf8(std::string& out, unsigned code) {
  const auto push = [&](unsigned value) { out.push_back(static_cast<char>(value)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0 | (code >> 6));
    push(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    push(0xE0 | (code >> 12));
    push(0x80 | ((code >> 6) & 0x3F));
    push(0x80 | (code & 0x3F));
  } else {
    push(0xF0 | (code >> 18));
    push(0x80 | ((code >> 12) & 0x3F));
    push(0x80 | ((code >> 6) & 0x3F));
    push(0x80 | (code & 0x3F));
  }
}

}  // namespace

class JsonParser {
 public:
  JsonParser(const JsonTree& tree, JsonNodes& nodes)
      : tree_(tree), text_(tree.text_), nodes_(nodes.nodes), decoded_(nodes.decoded) {
    nodes_.clear();
    decoded_.clear();
  }

  void parse() {
    skip_space();
    value(0);
    skip_space();
    if (at_ != text_.size()) fail("end of file expected after the value");
  }
  /// The value that begins there.
  void parse_at(std::size_t offset) {
    at_ = offset;
    value(0);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const { fail(message, at_); }
  [[noreturn]] void fail(const std::string& message, std::size_t offset) const {
    throw_diagnostics(ErrorKind::usage, {tree_.diagnostic(static_cast<std::uint32_t>(offset), message)});
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }

  std::uint32_t add(JsonKind kind, std::size_t offset) {
    JsonNode node;
    node.kind = kind;
    node.offset = static_cast<std::uint32_t>(offset);
    nodes_.push_back(node);
    return static_cast<std::uint32_t>(nodes_.size() - 1);
  }

  std::uint32_t value(int depth) {
    if (depth > JsonTree::kMaxDepth) fail(fmt::format("nested more than {} levels deep", JsonTree::kMaxDepth));
    if (at_ >= text_.size()) fail("a value expected, end of file found");
    const char c = peek();
    if (c == '{' || c == '[') return container(depth, c == '{');
    if (c == '"') return string();
    if (c == '-' || is_digit(c)) return number();
    for (const auto& [word, kind] : {std::pair(std::string_view("true"), JsonKind::boolean),
                                     std::pair(std::string_view("false"), JsonKind::boolean),
                                     std::pair(std::string_view("null"), JsonKind::null)}) {
      if (text_.substr(at_, word.size()) != word) continue;
      const std::uint32_t node = add(kind, at_);
      nodes_[node].text = text_.substr(at_, word.size());
      at_ += word.size();
      return node;
    }
    fail(fmt::format("a value expected, {} found", shown(c)));
  }

  std::uint32_t container(int depth, bool is_object) {
    const std::size_t start = at_++;
    const char close = is_object ? '}' : ']';
    const std::uint32_t node = add(is_object ? JsonKind::object : JsonKind::array, start);
    std::uint32_t last = node;
    const auto append = [&](std::uint32_t child) {
      (last == node ? nodes_[node].first_child : nodes_[last].next) = child - last;
      last = child;
    };
    skip_space();
    if (peek() == close) {
      ++at_;
      return node;
    }
    while (true) {
      skip_space();
      if (is_object) {
        if (peek() != '"') fail(fmt::format("a key in quotes expected, {} found", found()));
        append(string());
        skip_space();
        if (peek() != ':') fail(fmt::format("':' expected after the key, {} found", found()));
        ++at_;
        skip_space();
      }
      const std::size_t num_decoded = decoded_.size();
      append(value(depth + 1));
      if (!is_object && nodes_[last].kind == JsonKind::object) fold(last, num_decoded);
      skip_space();
      if (peek() == ',') {
        ++at_;
        continue;
      }
      if (peek() == close) break;
      fail(fmt::format("',' or '{}' expected, {} found", close, found()));
    }
    ++at_;
    return node;
  }

  void fold(std::uint32_t object, std::size_t num_decoded) {
    nodes_.resize(object + 1);
    nodes_[object].first_child = 0;
    decoded_.resize(num_decoded);
  }

  std::uint32_t number() {
    const std::size_t start = at_;
    const auto digits = [&] {
      if (!is_digit(peek())) fail(fmt::format("a digit expected, {} found", found()));
      while (is_digit(peek())) ++at_;
    };
    if (peek() == '-') ++at_;
    if (peek() == '0' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) fail("a number must not start with 0");
    digits();
    if (peek() == '.') {
      ++at_;
      digits();
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    const std::uint32_t node = add(JsonKind::number, start);
    nodes_[node].text = text_.substr(start, at_ - start);
    return node;
  }

  std::uint32_t string() {
    const std::size_t start = at_++;
    const std::uint32_t node = add(JsonKind::string, start);
    std::string* decoded = nullptr;
    std::size_t plain_from = at_;
    while (true) {
      if (at_ >= text_.size()) fail("the string that starts here has no end", start);
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) fail("control character in a string: write it as \\u00XX");
      if (c == '\\') {
        if (decoded == nullptr) decoded = &decoded_.emplace_back();
        decoded->append(text_.substr(plain_from, at_ - plain_from));
        escape(*decoded);
        plain_from = at_;
        continue;
      }
      const std::size_t length = utf8_length(text_.substr(at_, 4));
      if (length == 0) fail("not valid UTF-8");
      at_ += length;
    }
    const std::string_view tail = text_.substr(plain_from, at_ - plain_from);
    if (decoded != nullptr) decoded->append(tail);
    nodes_[node].text = decoded != nullptr ? std::string_view(*decoded) : tail;
    ++at_;
    return node;
  }

  void escape(std::string& out) {
    static constexpr std::string_view kLetters = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
    const std::size_t start = at_++;
    const std::size_t letter = kLetters.find(peek());
    if (at_ < text_.size() && letter != std::string_view::npos) {
      out.push_back(kMeanings[letter]);
      ++at_;
      return;
    }
    if (peek() != 'u') fail("unknown escape: \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\uXXXX exist", start);
    ++at_;
    unsigned code = hex4(start);
    if (code >= 0xD800 && code < 0xDC00 && text_.substr(at_, 2) == "\\u") {
      at_ += 2;
      const unsigned low = hex4(start);
      if (low < 0xDC00 || low > 0xDFFF) fail("half of a surrogate pair", start);
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    if (code >= 0xD800 && code <= 0xDFFF) fail("half of a surrogate pair", start);
    append_utf8(out, code);
  }

  unsigned hex4(std::size_t start) {
    unsigned code = 0;
    for (int i = 0; i < 4; ++i) {
      const char c = peek();
      const bool is_hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
      if (!is_hex) fail("four hexadecimal digits expected after \\u", start);
      code = code * 16 + static_cast<unsigned>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
      ++at_;
    }
    return code;
  }

  static std::string shown(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte >= 0x7F ? fmt::format("byte 0x{:02x}", byte) : fmt::format("'{}'", c);
  }
  std::string found() const { return at_ < text_.size() ? shown(text_[at_]) : "end of file"; }

  const JsonTree& tree_;
  std::string_view text_;
  std::vector<JsonNode>& nodes_;
  std::deque<std::string>& decoded_;
  std::size_t at_ = 0;
};

JsonTree::JsonTree(std::string text, std::string file) : text_(std::move(text)), file_(std::move(file)) {
  if (text_.size() > kMaxBytes)
    throw Error(ErrorKind::usage, fmt::format("{}: {} bytes, at most {} are read", file_, text_.size(), kMaxBytes));
  // A byte order mark, which some editors write, takes no column.
  if (text_.starts_with("\xEF\xBB\xBF")) text_.erase(0, 3);
  JsonParser(*this, root_).parse();
}

const JsonNode& JsonTree::unfold(const JsonNode& object, JsonNodes& into) const {
  if (object.first_child != 0) return object;
  JsonParser(*this, into).parse_at(object.offset);
  return into.nodes.front();
}

std::pair<int, int> JsonTree::advance(Cursor& cursor, std::uint32_t offset) const {
  for (; cursor.offset < offset; ++cursor.offset) {
    if (text_[cursor.offset] != '\n') continue;
    ++cursor.line;
    cursor.line_start = cursor.offset + 1;
  }
  return {cursor.line, static_cast<int>(offset - cursor.line_start) + 1};
}

Diagnostic JsonTree::diagnostic(std::uint32_t offset, std::string message) const {
  Diagnostic diagnostic;
  diagnostic.file = file_;
  Cursor cursor;
  std::tie(diagnostic.line, diagnostic.column) = advance(cursor, offset);
  diagnostic.message = std::move(message);
  const std::size_t start = offset - static_cast<std::size_t>(diagnostic.column - 1);
  std::string_view line = std::string_view(text_).substr(start, text_.find('\n', start) - start);
  if (line.ends_with('\r')) line.remove_suffix(1);
  // A caret under one of thousands of columns, or beside bytes that take no column, shows nothing.
  constexpr std::size_t kMaxShown = 160;
  const bool is_printable = std::all_of(line.begin(), line.end(), [](char c) { return c >= 0x20 && c < 0x7F; });
  if (line.size() <= kMaxShown && is_printable) diagnostic.source_line = line;
  return diagnostic;
}

}  // namespace tessera
