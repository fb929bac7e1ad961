/// What the planner refuses: the kind, the words, the notes.
#pragma once
#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "generator/candidates.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"

namespace tessera {

struct Refusal {
  ErrorKind kind = ErrorKind::io;
  std::string message;
  std::vector<std::string> notes;
};

inline Refusal refusal(std::string_view op, const Fields& fields) {
  try {
    make_plan(problem_of(op, fields));
  } catch (const Error& error) {
    return {error.kind(), error.what(), error.notes()};
  }
  return {ErrorKind::io, "no error", {}};
}

inline std::string unsupported(std::string_view op, const Fields& fields) {
  const Refusal found = refusal(op, fields);
  CHECK(found.kind == ErrorKind::unsupported);
  try {
    planned_kernel(problem_of(op, fields));
    FAIL("planned_kernel accepts what make_plan refuses");
  } catch (const Error& error) {
    CHECK(error.what() == found.message);
  }
  return found.message;
}

}  // namespace tessera
