// Device code that is generated as text: functions of assembly statements.
#pragma once

#include <string>

namespace tessera::fmha {

/// A name and a number: "s0", and "%0", an operand.
std::string name(const char* kind, int i);
/// `count` of them from `first` on, separated by commas.
std::string names(const char* kind, int first, int count);
/// A small whole number as a float of PTX.
std::string float_of(int i);
/// An array's elements as operands: "\"f\"(array[0]), \"f\"(array[1])".
std::string operands(const char* constraint, const std::string& array, int count);

/// One statement of assembly: instructions, local registers included.
class Statement {
 public:
  Statement& operator<<(const std::string& instruction);
  /// In lines of at most 120 columns. `operand_lists`: what stands behind the first colon.
  std::string text(const std::string& operand_lists) const;

 private:
  std::string text_;
};

/// A static function of the device. `head`: name and parameters.
std::string function(const std::string& head, const std::string& body);

}  // namespace tessera::fmha
