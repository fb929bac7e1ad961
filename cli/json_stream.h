// A JSON object on stdout, member by member, in the form of Call::print_json: what a list of a million problems gives
// does not stand in memory.
#pragma once

#include <string>
#include <string_view>

#include "cli/call.h"

namespace tessera::cli {

class JsonStream {
 public:
  explicit JsonStream(const Call& call) : call_(call) {}

  void member(std::string_view key, const OrderedJson& value);
  void begin_array(std::string_view key);
  /// Of the array that was begun.
  void item(const OrderedJson& value);
  /// The same for what was dumped already, with an indentation of 2.
  void item_text(std::string_view text);
  void end_array();
  /// Ends the object.
  void end();

 private:
  void begin_member(std::string_view key);
  /// A value whose lines but the first stand so far to the right.
  void print_indented(std::string_view text, std::string_view indentation);

  const Call& call_;
  bool is_empty_ = true, is_array_empty_ = true;
};

}  // namespace tessera::cli
