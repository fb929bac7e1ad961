// The one exception for expected failures, and the value type for problems found in text that a user wrote.
//
// Error: what went wrong with a request that the program understood. The message gives subject, value found, bound,
// reason and remedy in one sentence; notes carry what does not fit one line (a compiler log, a list of candidates).
// Bugs never become an Error: see assert.h. Diagnostic: one problem at a place in a text (shape list, option,
// expression, PTX). Parsers collect them and fail once, with all of them.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Why a request failed; the command maps each kind to an exit code (usage 2, unsupported 3, compile 4, device and io
/// 5).
enum class ErrorKind : std::uint8_t {
  usage,        ///< the request itself is malformed: unknown key, wrong type, overflow, misaligned pointer, outside the
                ///< domain
  unsupported,  ///< well-formed, but no kernel exists for it: head_dim 80, an arch that the compiler does not know
  compile,      ///< the compiler refused generated code; notes hold the log, the options and the repro folder
  device,       ///< the driver or the device failed
  io            ///< files, folders, archives; a compiler that has to be loaded and is not there
};

std::string_view to_string(ErrorKind kind) noexcept;

class Error : public std::runtime_error {
 public:
  Error(ErrorKind error_kind, const std::string& message, std::vector<std::string> note_lines = {})
      : std::runtime_error(message), kind_(error_kind), notes_(std::move(note_lines)) {}

  ErrorKind kind() const noexcept { return kind_; }
  /// Further lines for a person, in order; may be empty.
  const std::vector<std::string>& notes() const noexcept { return notes_; }

 private:
  ErrorKind kind_;
  std::vector<std::string> notes_;
};

/// One problem at a place in a text. line and column are 1-based; 0 means "the whole text".
struct Diagnostic {
  std::string file;
  int line = 0;
  int column = 0;
  std::string message;
  std::string source_line;  ///< the offending line, for the caret; may be empty

  /// "file:line:column: message", then the source line and a caret under the column.
  std::string to_string() const;
};

/// Throws Error{kind} that carries every diagnostic: the first as message, all of them as notes. Precondition: not
/// empty.
[[noreturn]] void throw_diagnostics(ErrorKind kind, const std::vector<Diagnostic>& diagnostics);

}  // namespace tessera
