// The functions of cuRAND that nobody has written: each answers CURAND_STATUS_INTERNAL_ERROR, as there is no status for
// it, and stderr names it (guest/missing.cpp).
extern "C" int tessera_missing_call(const char* name);

namespace {
constexpr int kInternalError = 999;  // CURAND_STATUS_INTERNAL_ERROR
}

// NOLINTBEGIN: a C++ declaration of each would need its parameters
#define TESSERA_CALL(name)                                             \
  extern "C" __attribute__((weak, visibility("default"))) int name() { \
    tessera_missing_call(#name);                                       \
    return kInternalError;                                             \
  }
TESSERA_CALL(curandCreatePoissonDistribution)
TESSERA_CALL(curandDestroyDistribution)
TESSERA_CALL(curandGenerateBinomial)
TESSERA_CALL(curandGenerateBinomialMethod)
TESSERA_CALL(curandGeneratePoisson)
TESSERA_CALL(curandGeneratePoissonMethod)
TESSERA_CALL(curandGetDirectionVectors32)
TESSERA_CALL(curandGetDirectionVectors64)
TESSERA_CALL(curandGetScrambleConstants32)
TESSERA_CALL(curandGetScrambleConstants64)
// NOLINTEND
