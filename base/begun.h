// Work on a thread of its own while the caller goes on.
#pragma once

#include <future>
#include <system_error>
#include <utility>

#include "base/quiet_thread.h"

namespace tessera {

/// The result of work(), which a thread does meanwhile; where none can be started, whoever asks for it. The future
/// waits for the thread when it goes.
template <class Work>
auto begun(Work work) -> std::future<decltype(work())> {
  const SignalsBlocked blocked;
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, std::move(work));
  }
}

}  // namespace tessera
