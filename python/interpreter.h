// The interpreter's lock, for threads that may meet the end of the interpreter. Python ends a thread that asks for the
// lock then, by pthread_exit() (3.13 and older): that unwinds C++ frames, of which one that may not throw aborts the
// process, and one that catches everything does, too. Here such a thread waits instead, for the process to be over.
#pragma once

#include <nanobind/nanobind.h>

namespace interpreter {

/// Without the lock, which this thread has, as long as it lives.
class Unlocked {
 public:
  Unlocked() : thread_(PyEval_SaveThread()) {}
  ~Unlocked();
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  PyThreadState* thread_;
};

/// With the lock, for a callback on any thread; false once the interpreter is about to end. Who calls back is then in
/// the midst of something that the end of the process may wait for, so it has to go on without.
class Locked {
 public:
  Locked();
  ~Locked();
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  explicit operator bool() const { return is_held_; }

 private:
  bool is_held_;
  PyGILState_STATE state_{};
};

/// From here on no callback begins; those that have begun are waited for, for at most a second. Of atexit, so with the
/// lock and before the interpreter ends.
void end_callbacks();

}  // namespace interpreter
