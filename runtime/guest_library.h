// A library of others in a process of others: opened so that it leaves alone what belongs to the process.
//
// What NVRTC 12.8 to 13.5 does to its process in each compile (seen with strace and in its code): signal() sets
// handlers of its own for SIGINT and SIGTERM, which end the compile, and ignores SIGXFSZ; at the end signal() puts back
// what it found, so that of two compiles at a time one may put back the other's handler for good. Until then a signal
// never reaches its handler in the host, and handlers come back without their flags and masks. setrlimit() takes the
// limit off the stack, which a program that is started meanwhile inherits, and with two compiles at a time it can stay
// so. Copies of LLVM in it have sigaction() and alarm() besides.
//
// So the calls that NVRTC makes to these functions are replaced, in its own table of imports and nowhere else: there is
// no moment at which a disposition differs, hence nothing to restore and no race with the host (a compile of the host's
// own that began before still gives back what it took: guest_calls.h). A library that imports
// neither signal() nor sigaction() is one that this cannot see into: there the dispositions are saved when a compile
// begins and put back when the last one ends.
#pragma once

#include <fenv.h>
#include <locale.h>

#include <string>

#include "runtime/dynamic_library.h"

namespace tessera {

struct GuestLibrary {
  DynamicLibrary library;
  /// Its calls that change signals go nowhere. False: it has none that are known, or its table cannot be written.
  bool is_contained = false;
};

/// Opens as DynamicLibrary::open does, without the effects above; what its initialisers did to signals is undone, and
/// nothing is where the process has the library already.
GuestLibrary open_guest_library(const std::string& name, std::string* why = nullptr);

/// While it lives the calling thread is as a program starts: locale "C", rounding to nearest, no flags of arithmetic,
/// denormals kept, so that a compile gives the same bytes in any host. Then the thread is as it was. For a library that
/// is not contained, signals are saved and put back, too.
class GuestScope {
 public:
  explicit GuestScope(const GuestLibrary& guest);
  ~GuestScope();
  GuestScope(const GuestScope&) = delete;
  GuestScope& operator=(const GuestScope&) = delete;

 private:
  const GuestLibrary& guest_;
  fenv_t arithmetic_;
  locale_t locale_;
};

}  // namespace tessera
