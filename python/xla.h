// Launches inside programs of XLA: handlers of its foreign function interface, on the stream and the buffers that it
// gives.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "launch_values.h"

namespace xla {

/// A launch as it was bound, and which buffer each operand and each result is. The kernel lives as long as the process.
struct Call {
  LaunchValues values;
  std::vector<std::size_t> operands, results;
  bool with_workspace;  ///< the last result is memory for the kernel
};

/// text: what the call is, the handler's attribute `launch`. A call that is known already stays.
void remember(const std::string& text, Call call);

/// restore(text): makes and remembers a call of another process. emulate(text, operands, results): runs one on the
/// host, with lists of addresses. Both are called with the interpreter's lock.
void set_functions(nanobind::object restore, nanobind::object emulate);

/// The handler for a platform, "CUDA" or "cpu", as the capsule that JAX registers.
nanobind::object handler(const std::string& platform);

}  // namespace xla
