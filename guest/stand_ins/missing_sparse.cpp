// The functions of cuSPARSE that nobody has written: each answers CUSPARSE_STATUS_NOT_SUPPORTED, and stderr names it
// (guest/missing.cpp).
extern "C" int tessera_missing_call(const char* name);

namespace {
constexpr int kNotSupported = 10;  // CUSPARSE_STATUS_NOT_SUPPORTED
}

// NOLINTBEGIN: a C++ declaration of each would need its parameters
#define TESSERA_CALL(name)                                             \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    tessera_missing_call(#name);                                       \
    return kNotSupported;                                              \
  }
#include "guest/stand_ins/sparse_calls.inc"
// NOLINTEND
