// The thread that host functions of streams run on, one after the other, as they do on that of NVIDIA's runtime: none
// of the program's own, so that a function may wait for its caller, and beside every lock of ours.
#pragma once

#include <functional>

namespace tessera::guest {

/// Runs the work behind what it was given before. From work to work it is the same thread.
void run_on_host_thread(std::function<void()> work);
bool is_host_thread();

}  // namespace tessera::guest
