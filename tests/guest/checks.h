// Checks of programs that compare answers of the API: a wrong one is told by its line, and counted.
#pragma once

#include <cuda_runtime.h>

#include <cstdio>

static int failures = 0;
static void check(bool is_right, int line) {
  if (is_right) return;
  std::printf("line %d is wrong\n", line);
  ++failures;
}
#define CHECK(condition) check(condition, __LINE__)
#define OK(call) check((call) == cudaSuccess, __LINE__)
#define GIVES(call, error) (check((call) == (error), __LINE__), cudaGetLastError())
