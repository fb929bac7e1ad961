// SIGINT and SIGTERM of the process: it ends within a second with 128 + the signal's number, and says what it has done.
//
// A thread of its own waits for the interrupt, because what the command does (a compile in a library of others, a read
// from a pipe) cannot be broken off. It asks the command to stop; a command with last words has 0.4 s to end by itself
// and then speaks through them; one without ends at once. The caches bear that: entries are published by rename.
#pragma once

#include <functional>
#include <mutex>
#include <stop_token>

namespace tessera::cli {

class Interrupt {
 public:
  /// Installs the handlers; once in a process, which never lets go of it.
  static Interrupt& of_process();

  /// Requested by the interrupt.
  std::stop_token token() const { return source_.get_token(); }
  /// What to say when the command cannot end in time; called on another thread. Nothing: the command says it itself,
  /// now; where the words are being spoken already this does not return.
  void set_last_words(std::function<void()> words);
  /// The signal that came; 0: none.
  int signal() const;

 private:
  Interrupt();
  void wait();
  [[noreturn]] void leave(int signal) const;

  enum class State { silent, has_words, speaks };
  std::stop_source source_;
  std::mutex mutex_;  ///< held while the last words are spoken
  State state_ = State::silent;
  std::function<void()> words_;
};

}  // namespace tessera::cli
