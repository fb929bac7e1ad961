#include "cli/json_stream.h"

#include <nlohmann/json.hpp>

namespace tessera::cli {

void JsonStream::begin_member(std::string_view key) {
  call_.print(is_empty_ ? "{\n  " : ",\n  ");
  is_empty_ = false;
  call_.print(OrderedJson(key).dump() + ": ");
}

// Lines end between tokens only: in a string they are escaped.
void JsonStream::print_indented(std::string_view text, std::string_view indentation) {
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  for (const char c : text) {
    out += c;
    if (c == '\n') out += indentation;
  }
  call_.print(out);
}

void JsonStream::member(std::string_view key, const OrderedJson& value) {
  begin_member(key);
  print_indented(value.dump(2), "  ");
}

void JsonStream::item(const OrderedJson& value) { item_text(value.dump(2)); }

void JsonStream::begin_array(std::string_view key) {
  begin_member(key);
  call_.print("[");
  is_array_empty_ = true;
}

void JsonStream::item_text(std::string_view text) {
  call_.print(is_array_empty_ ? "\n    " : ",\n    ");
  is_array_empty_ = false;
  print_indented(text, "    ");
}

void JsonStream::end_array() { call_.print(is_array_empty_ ? "]" : "\n  ]"); }

void JsonStream::end() { call_.print(is_empty_ ? "{}\n" : "\n}\n"); }

}  // namespace tessera::cli
