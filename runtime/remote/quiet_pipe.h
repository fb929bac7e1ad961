// A connection that its other end has closed raises SIGPIPE in who writes to it through OpenSSL. The host's handlers
// and its other threads are left alone: the signal is blocked in this thread for as long as the object lives, and one
// that came meanwhile is taken away.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <time.h>

namespace tessera::remote {

class QuietPipe {
 public:
  QuietPipe() {
    sigset_t pending;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigemptyset(&pending);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~QuietPipe() {
    const timespec at_once{};
    while (!was_pending_ && sigtimedwait(&pipe_, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  QuietPipe(const QuietPipe&) = delete;
  QuietPipe& operator=(const QuietPipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

}  // namespace tessera::remote
