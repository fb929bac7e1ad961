// Work that must not meet the end of the process. exit() runs the handlers that libraries registered while other
// threads go on: NVRTC's take away what a compile works with, OpenSSL's what a digest needs, and the process ends by a
// signal instead of its exit code. So the end waits for compiles that are under way, for a bounded time.
//
// Handlers run in the reverse order of their registration (C11 7.22.4.4), so ours is registered anew whenever a
// library may have registered one: it then runs first. In a plugin it runs when the plugin is unloaded, too.
#pragma once

#include <chrono>

namespace tessera {

/// The end of the process waits no longer than this, in all.
inline constexpr std::chrono::milliseconds kLongestWaitAtExit{30'000};

/// While it lives exit() waits for the calling thread, unless that is the one that called it. Scopes may nest. Throws
/// Error{compile} where another thread has called exit() already.
class Underway {
 public:
  Underway();
  ~Underway();
  Underway(const Underway&) = delete;
  Underway& operator=(const Underway&) = delete;
};

/// After a library may have registered handlers of its own.
void wait_at_exit() noexcept;

/// For tests: another bound.
void set_longest_wait_at_exit(std::chrono::milliseconds longest) noexcept;

}  // namespace tessera
