// NVRTC has frames of 80 KB (13.0, seen in a debugger) and takes the limit off the process's stack while it compiles,
// which is not its to change (guest_library.h). So it gets a thread whose stack is large enough whatever the calling
// thread has: a main thread under `ulimit -s 64`, a fibre, a pool of many small threads.
#pragma once

#include <cstddef>
#include <functional>

namespace tessera {

inline constexpr std::size_t kCompileStackBytes = std::size_t{8} << 20;

/// Calls the function on a thread of its own, which takes no signal of the process, and returns when it has ended. Its
/// stack has kCompileStackBytes, or what threads have by default where that is more; where no such thread can be
/// started the caller's own is used. The function must not throw.
void with_own_stack(const std::function<void()>& body);

}  // namespace tessera
