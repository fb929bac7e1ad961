// Floating-point arithmetic as a program starts with it, while what must give the same bits everywhere is computed:
// rounding to nearest, no traps. Threads that are started meanwhile have it too.
#pragma once

#include <fenv.h>

namespace tessera {

/// Puts the caller's rounding mode, flags and traps back at its end.
class DefaultArithmetic {
 public:
  DefaultArithmetic() {
    feholdexcept(&callers_);
    fesetenv(FE_DFL_ENV);
  }
  ~DefaultArithmetic() { fesetenv(&callers_); }
  DefaultArithmetic(const DefaultArithmetic&) = delete;
  DefaultArithmetic& operator=(const DefaultArithmetic&) = delete;

 private:
  fenv_t callers_;
};

}  // namespace tessera
