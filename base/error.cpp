#include "tessera/error.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "base/assert.h"

namespace tessera {

std::string_view to_string(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::unsupported:
      return "unsupported";
    case ErrorKind::compile:
      return "compile";
    case ErrorKind::device:
      return "device";
    case ErrorKind::io:
      return "io";
  }
  return "unknown";
}

std::string Diagnostic::to_string() const {
  std::string text = file.empty() ? "" : file;
  if (line > 0) text += fmt::format("{}{}:{}", text.empty() ? "" : ":", line, column);
  text += fmt::format("{}{}", text.empty() ? "" : ": ", message);
  if (source_line.empty() || column <= 0) return text;
  return fmt::format("{}\n  {}\n  {:>{}}", text, source_line, '^', column);
}

void throw_diagnostics(ErrorKind kind, const std::vector<Diagnostic>& diagnostics) {
  TESSERA_ASSERT(!diagnostics.empty(), "no diagnostics");
  std::vector<std::string> notes;
  if (diagnostics.size() > 1) {
    notes.reserve(diagnostics.size() - 1);
    for (std::size_t i = 1; i < diagnostics.size(); ++i) notes.push_back(diagnostics[i].to_string());
  }
  throw Error(kind, diagnostics.front().to_string(), std::move(notes));
}

void assertion_failed(const char* condition, const char* file, int line, std::string_view values) {
  fmt::print(stderr, "{}:{}: assertion failed: {} ({})\nThis is a bug in tessera.\n", file, line, condition, values);
  std::abort();
}

}  // namespace tessera
