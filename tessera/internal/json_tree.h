// JSON with places: every value and key knows where it stands in the text, so that a problem found later can be shown
// with line, column and caret. Strict (RFC 8259): no comments, no trailing commas, valid UTF-8, one value a file.
//
// Nodes live in one array and point into the text. An object that stands in a list is checked with the rest and then
// folded: one node without members, which unfold() reads from the text again. So a list of a million objects costs its
// text and 32 bytes for each of them. An object's children are key, value, key, value.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"

namespace tessera {

enum class JsonKind : std::uint8_t { null, boolean, number, string, array, object };
/// With article, for messages: "a string", "an object".
std::string_view to_string(JsonKind kind) noexcept;

struct JsonNode {
  std::string_view text;          ///< a string's characters; else the source text of a scalar
  std::uint32_t offset = 0;       ///< of the first byte in the text, a byte order mark left out
  std::uint32_t first_child = 0;  ///< so many nodes on; 0: none
  std::uint32_t next = 0;         ///< so many nodes on; 0: last
  JsonKind kind = JsonKind::null;
};

inline const JsonNode* first_child(const JsonNode& node) {
  return node.first_child == 0 ? nullptr : &node + node.first_child;
}
inline const JsonNode* next(const JsonNode& node) { return node.next == 0 ? nullptr : &node + node.next; }

/// Nodes of one value, the value first.
struct JsonNodes {
  std::vector<JsonNode> nodes;
  std::deque<std::string> decoded;  ///< strings with escapes
};

class JsonTree {
 public:
  static constexpr int kMaxDepth = 32;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

  /// Throws Error{usage} with file, line, column and caret at the first offence against the grammar.
  JsonTree(std::string text, std::string file);
  JsonTree(const JsonTree&) = delete;
  JsonTree& operator=(const JsonTree&) = delete;

  const JsonNode& root() const { return root_.nodes.front(); }
  /// An object with its members; one that was not folded is returned as it is. What `into` held before is gone.
  const JsonNode& unfold(const JsonNode& object, JsonNodes& into) const;
  /// A problem with the text at this byte.
  Diagnostic diagnostic(std::uint32_t offset, std::string message) const;
  /// 1-based. A cursor makes asking for ascending offsets linear in all.
  struct Cursor {
    std::uint32_t offset = 0, line_start = 0;
    int line = 1;
  };
  std::pair<int, int> advance(Cursor& cursor, std::uint32_t offset) const;

 private:
  friend class JsonParser;

  std::string text_, file_;
  JsonNodes root_;
};

}  // namespace tessera
