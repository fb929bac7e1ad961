// What the C functions for Python programs share: one Jit, Problems from text, errors as text.
#pragma once

#include <exception>
#include <string>

#include "generator/selectors.h"
#include "tessera/jit.h"

namespace tessera::bench {

inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

/// Null, or what went wrong, until the thread's next call.
template <class Function>
const char* guarded(Function&& function) {
  try {
    function();
    return nullptr;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return last_error().c_str();
  }
}

inline Jit& jit() {
  static Jit instance{JitOptions::from_environment()};
  return instance;
}

/// The comma behind the first field; commas in parentheses are part of a value.
inline std::size_t end_of_field(const std::string& text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '(' ? 1 : text[i] == ')' ? -1 : 0;
    if (text[i] == ',' && depth == 0) return i;
  }
  return std::string::npos;
}

/// "head_dim=128,mask=causal,dtype=bf16"
inline Problem problem_of(const char* op, std::string text) {
  Problem problem = default_problem(op);
  while (!text.empty()) {
    const std::size_t comma = end_of_field(text);
    const std::string field = text.substr(0, comma);
    const std::size_t equals = field.find('=');
    set_field(problem, field.substr(0, equals), field.substr(equals + 1));
    text = comma == std::string::npos ? "" : text.substr(comma + 1);
  }
  return problem;
}

}  // namespace tessera::bench
