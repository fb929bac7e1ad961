// Launches inside programs of XLA: handlers of its foreign function interface, on the stream and the buffers that it
// gives.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>
#include <vector>

#include "launch_values.h"

namespace xla {

/// A launch as it was bound, and which buffer each operand and each result is. It keeps its kernel.
struct Call {
  LaunchValues values;
  std::vector<std::size_t> operands, results;
  bool with_workspace;  ///< the last result is memory for the kernel
};
using SharedCall = std::shared_ptr<const Call>;

/// text: what the call is, the handler's attribute `launch`. It takes the place of what the text stood for, which is
/// returned; the same code, perhaps by another jit. Values of scalars are no part of it: they are the attribute
/// `scalars`, "0=4607182418800017408 3=..." by index and the bits of the number.
SharedCall remember(const std::string& text, SharedCall call);

/// restore(text): makes and remembers a call of another process. emulate(text, scalars, operands, results): runs one on
/// the host, with lists of addresses. Both are called with the interpreter's lock.
void set_functions(nanobind::object restore, nanobind::object emulate);

/// A handler, as the capsule that JAX registers: "launch" on a GPU, "emulate" on the host, "refuse" for a launch that
/// was meant for a GPU and is compiled for the host. What they fail with reads "tessera: [KIND] MESSAGE".
nanobind::object handler(const std::string& what);

}  // namespace xla
