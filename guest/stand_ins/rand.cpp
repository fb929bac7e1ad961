// The stand-in for cuRAND's host interface: pseudorandom generators whose numbers the host computes. Generators of the
// device and of the host (curandCreateGeneratorHost) give the same.
#include <curand.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "guest/session.h"
#include "guest/stand_ins/random_sequences.h"
#include "guest/stand_ins/values.h"
#include "guest/work.h"

struct curandGenerator_st {
  curandRngType_t type = CURAND_RNG_PSEUDO_XORWOW;
  std::uint64_t seed = 0, offset = 0;
  curandOrdering_t ordering = CURAND_ORDERING_PSEUDO_DEFAULT;
  cudaStream_t stream = nullptr;
  std::unique_ptr<tessera::guest::RandomSequence> sequence;  ///< made when numbers are wanted; null after a setting

  tessera::guest::RandomSequence& numbers() {
    using namespace tessera::guest;
    if (sequence) return *sequence;
    if (type == CURAND_RNG_PSEUDO_XORWOW) sequence = make_xorwow(seed, offset);
    if (type == CURAND_RNG_PSEUDO_PHILOX4_32_10) sequence = make_philox(seed, offset);
    if (!sequence) sequence = make_mrg32k3a(seed, offset, ordering == CURAND_ORDERING_PSEUDO_LEGACY ? 4096 : 81920);
    return *sequence;
  }
};

namespace tessera::guest {
namespace {

/// `fill` writes some of the results after the others.
template <class T, class Fill>
curandStatus_t generate(const char* function, curandGenerator_t generator, T* to, std::size_t count, Fill fill) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  if (count == 0) return CURAND_STATUS_SUCCESS;
  if (to == nullptr) return CURAND_STATUS_LAUNCH_FAILURE;
  const cudaError_t error = guarded(function, [&] {
    return submit(generator->stream, LibraryWork{[=] {
                    std::vector<T> some(std::min(count, std::size_t{1} << 20));
                    for (std::size_t done = 0; done < count; done += some.size()) {
                      some.resize(std::min(some.size(), count - done));
                      fill(generator->numbers(), some.data(), some.size());
                      write_bytes(to + done, some.data(), some.size() * sizeof(T));
                    }
                    return cudaSuccess;
                  }});
  });
  return error == cudaSuccess ? CURAND_STATUS_SUCCESS : CURAND_STATUS_LAUNCH_FAILURE;
}

/// Normal ones come in pairs.
template <class T, class Change>
curandStatus_t generate_normal(const char* function, curandGenerator_t generator, T* to, std::size_t count,
                               Change change) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  if (count % 2 != 0 && generator->type != CURAND_RNG_PSEUDO_PHILOX4_32_10) return CURAND_STATUS_LENGTH_NOT_MULTIPLE;
  return generate(function, generator, to, count, [=](RandomSequence& numbers, T* some, std::size_t n) {
    numbers.normal(some, n);
    for (std::size_t i = 0; i < n; ++i) some[i] = change(some[i]);
  });
}

curandStatus_t refuse(const std::string& what, curandStatus_t status) {
  Session::instance().add_problem("cuRAND: " + what + " is not provided");
  return status;
}

curandStatus_t make(curandGenerator_t* made, curandRngType_t type) {
  if (made == nullptr) return CURAND_STATUS_INITIALIZATION_FAILED;
  if (type == CURAND_RNG_PSEUDO_DEFAULT) type = CURAND_RNG_PSEUDO_XORWOW;
  switch (type) {
    case CURAND_RNG_PSEUDO_XORWOW:
    case CURAND_RNG_PSEUDO_MRG32K3A:
    case CURAND_RNG_PSEUDO_PHILOX4_32_10:
      break;
    case CURAND_RNG_PSEUDO_MTGP32:
      return refuse("MTGP32", CURAND_STATUS_TYPE_ERROR);
    case CURAND_RNG_PSEUDO_MT19937:
      return refuse("MT19937", CURAND_STATUS_TYPE_ERROR);
    case CURAND_RNG_QUASI_DEFAULT:
    case CURAND_RNG_QUASI_SOBOL32:
    case CURAND_RNG_QUASI_SCRAMBLED_SOBOL32:
    case CURAND_RNG_QUASI_SOBOL64:
    case CURAND_RNG_QUASI_SCRAMBLED_SOBOL64:
      return refuse("a quasirandom generator", CURAND_STATUS_TYPE_ERROR);
    default:
      return CURAND_STATUS_TYPE_ERROR;
  }
  *made = new curandGenerator_st{.type = type, .sequence = nullptr};
  return CURAND_STATUS_SUCCESS;
}

}  // namespace
}  // namespace tessera::guest

using namespace tessera::guest;

extern "C" {

curandStatus_t curandCreateGenerator(curandGenerator_t* made, curandRngType_t type) { return make(made, type); }
curandStatus_t curandCreateGeneratorHost(curandGenerator_t* made, curandRngType_t type) { return make(made, type); }
curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  delete generator;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGetVersion(int* version) {
  *version = CURAND_VERSION;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGetProperty(libraryPropertyType type, int* value) {
  if (type != MAJOR_VERSION && type != MINOR_VERSION && type != PATCH_LEVEL) return CURAND_STATUS_OUT_OF_RANGE;
  *value = type == MAJOR_VERSION ? CURAND_VER_MAJOR : type == MINOR_VERSION ? CURAND_VER_MINOR : CURAND_VER_PATCH;
  return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  generator->stream = stream;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  generator->seed = seed;
  generator->sequence = nullptr;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  generator->offset = offset;
  generator->sequence = nullptr;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t ordering) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  if (ordering == CURAND_ORDERING_PSEUDO_SEEDED || ordering == CURAND_ORDERING_PSEUDO_DYNAMIC)
    return refuse(ordering == CURAND_ORDERING_PSEUDO_SEEDED ? "the ordering SEEDED" : "the ordering DYNAMIC",
                  CURAND_STATUS_OUT_OF_RANGE);
  if (ordering != CURAND_ORDERING_PSEUDO_DEFAULT && ordering != CURAND_ORDERING_PSEUDO_BEST &&
      ordering != CURAND_ORDERING_PSEUDO_LEGACY)
    return CURAND_STATUS_OUT_OF_RANGE;
  generator->ordering = ordering;
  generator->sequence = nullptr;
  return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t generator, unsigned int) {
  return generator == nullptr ? CURAND_STATUS_NOT_INITIALIZED : CURAND_STATUS_TYPE_ERROR;
}
curandStatus_t curandGenerateSeeds(curandGenerator_t generator) {
  if (generator == nullptr) return CURAND_STATUS_NOT_INITIALIZED;
  generator->numbers();
  return CURAND_STATUS_SUCCESS;
}

curandStatus_t curandGenerate(curandGenerator_t generator, unsigned int* to, std::size_t count) {
  return generate("curandGenerate", generator, to, count,
                  [](RandomSequence& numbers, unsigned int* some, std::size_t n) { numbers.bits(some, n); });
}
/// For quasirandom numbers of 64 bits alone.
curandStatus_t curandGenerateLongLong(curandGenerator_t generator, unsigned long long*, std::size_t) {
  return generator == nullptr ? CURAND_STATUS_NOT_INITIALIZED : CURAND_STATUS_TYPE_ERROR;
}
curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* to, std::size_t count) {
  return generate("curandGenerateUniform", generator, to, count,
                  [](RandomSequence& numbers, float* some, std::size_t n) { numbers.uniform(some, n); });
}
curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* to, std::size_t count) {
  return generate("curandGenerateUniformDouble", generator, to, count,
                  [](RandomSequence& numbers, double* some, std::size_t n) { numbers.uniform(some, n); });
}
curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* to, std::size_t count, float mean,
                                    float deviation) {
  return generate_normal("curandGenerateNormal", generator, to, count, [=](float z) { return mean + deviation * z; });
}
curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double* to, std::size_t count, double mean,
                                          double deviation) {
  return generate_normal("curandGenerateNormalDouble", generator, to, count,
                         [=](double z) { return mean + deviation * z; });
}
curandStatus_t curandGenerateLogNormal(curandGenerator_t generator, float* to, std::size_t count, float mean,
                                       float deviation) {
  return generate_normal("curandGenerateLogNormal", generator, to, count,
                         [=](float z) { return std::exp(mean + deviation * z); });
}
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t generator, double* to, std::size_t count, double mean,
                                             double deviation) {
  return generate_normal("curandGenerateLogNormalDouble", generator, to, count,
                         [=](double z) { return std::exp(mean + deviation * z); });
}

}  // extern "C"
