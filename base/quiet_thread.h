// Threads that take no signal of the process. A signal that is sent to a process is handled on any thread that does not
// block it: one that the library started must not be that thread, because hosts wait for signals with sigwait or rely
// on EINTR in a thread of their own. POSIX 2.4.1, "Signal Generation and Delivery".
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace tessera {

/// Blocks what can be blocked in the calling thread while it lives; a thread created meanwhile inherits that. Faults of
/// a thread's own instructions stay deliverable to it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_BLOCK, &all, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// Thread(body) with signals blocked in it. Throws as the constructor does.
template <class Thread = std::jthread, class Body>
Thread quiet_thread(Body&& body) {
  const SignalsBlocked blocked;
  return Thread(std::forward<Body>(body));
}

}  // namespace tessera
