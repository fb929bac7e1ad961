// The stand-in for cuRAND's host interface: what cuRAND 10.4.0 (CUDA 13.0) gave by its generators on the host, as
// hashes of all bits and, of normal values, as numbers; the streams of NVIDIA's own device code, curand_kernel.h;
// mistakes.
#include <curand.h>
#include <curand_kernel.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

static int failures = 0;
static void expect(bool is_right, const char* what) {
  if (is_right) return;
  std::printf("FAIL %s\n", what);
  ++failures;
}
#define EXPECT(x) expect((x) == CURAND_STATUS_SUCCESS, #x)

// FNV-1a.
template <class T>
static unsigned long long hash(const std::vector<T>& values) {
  unsigned long long result = 0xCBF29CE484222325;
  std::vector<unsigned char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  for (const unsigned char byte : bytes) result = (result ^ byte) * 0x100000001B3;
  return result;
}

// `draw` fills memory of the device, or of the host; one element more stays as it is.
template <class T, class Draw>
static std::vector<T> drawn(bool on_device, std::size_t count, Draw draw) {
  std::vector<T> host(count + 1);
  std::memset(host.data(), 0x5A, (count + 1) * sizeof(T));
  const T untouched = host[count];
  T* to = host.data();
  if (on_device) {
    cudaMalloc(&to, (count + 1) * sizeof(T));
    cudaMemset(to, 0x5A, (count + 1) * sizeof(T));
  }
  EXPECT(draw(to));
  if (on_device) {
    cudaMemcpy(host.data(), to, (count + 1) * sizeof(T), cudaMemcpyDeviceToHost);
    cudaFree(to);
  }
  expect(std::memcmp(&host[count], &untouched, sizeof(T)) == 0, "what lies behind the results");
  host.pop_back();
  return host;
}

struct Expected {
  curandRngType_t type;
  unsigned long long seed, offset;
  curandOrdering_t ordering;
  unsigned long long hashes[4];
  double normal[3], normal_double[3], log_normal;
};
static const Expected kExpected[] = {
    {CURAND_RNG_PSEUDO_XORWOW,
     1234,
     0,
     CURAND_ORDERING_PSEUDO_DEFAULT,
     {0x59a5efaf0d320098, 0x51054cee4b377525, 0xc3a0d5722a5080d3, 0xfbfb4bf90906f9d0},
     {6.11225796, 5.34628248, 2.80325532},
     {-2.9475710443857781, 1.7669803397074038, 0.37496288685766777},
     1.8997947689623771},
    {CURAND_RNG_PSEUDO_DEFAULT,
     0x123456789ABCDEF0,
     987654321,
     CURAND_ORDERING_PSEUDO_LEGACY,
     {0x8e840e2ddd353d0f, 0x3164a981a0ad98ad, 0xa9ecfefab9dd1259, 0x5a6f1d62e3e65353},
     {4.37003708, 7.66862392, 6.79136848},
     {-3.1805778489977881, -1.6528286158421988, -0.46184754434179798},
     1.1528254904606494},
    {CURAND_RNG_PSEUDO_MRG32K3A,
     1234,
     0,
     CURAND_ORDERING_PSEUDO_DEFAULT,
     {0xf63523705de27b93, 0xc6ea834bc961151b, 0x44f92a7b62671c20, 0x2563bfe5b33a835d},
     {2.71442127, 5.0249486, 6.64486265},
     {-4.8119874656734671, -0.72348582414070806, -5.4604962137613695},
     1.5198214186151298},
    {CURAND_RNG_PSEUDO_MRG32K3A,
     77,
     123456789,
     CURAND_ORDERING_PSEUDO_LEGACY,
     {0xa43c34330d14078e, 0x98c93639565de62e, 0xa9c11f6b76b3d4ad, 0x7cc8714d5c4bec2c},
     {5.56283712, 7.32497787, 5.41995764},
     {-1.4347195129183099, 1.3872428363735447, -0.21791056305105172},
     2.403998793252264},
    {CURAND_RNG_PSEUDO_PHILOX4_32_10,
     1234,
     0,
     CURAND_ORDERING_PSEUDO_DEFAULT,
     {0x552b2830845b6553, 0x9c09749b7438aa7d, 0x70ea6e415652014b, 0x6b62d3e5846c3f5a},
     {3.71372843, 3.49643683, 4.18472862},
     {0.20455527716330169, -0.32730566678680617, 5.7812387869202189},
     0.79868985001422699},
    {CURAND_RNG_PSEUDO_PHILOX4_32_10,
     0xFEDCBA9876543210,
     1000003,
     CURAND_ORDERING_PSEUDO_BEST,
     {0xb54d78f1241c6617, 0x6782a583845211e3, 0x642effa7ddb6eaeb, 0x6ff8ad54066c884f},
     {4.89186764, 3.87095022, 5.28530979},
     {-1.7984483097720376, 0.84460275462241841, -0.23638000308359564},
     3.0291239352687134},
};

template <class T>
static bool is_near(const std::vector<T>& found, const double (&expected)[3], double allowed) {
  const double values[] = {found[0], found[1], found.back()};
  bool is_it = true;
  for (int i = 0; i < 3; ++i) is_it = is_it && std::fabs(values[i] - expected[i]) <= allowed;
  return is_it;
}

static void check(const Expected& e, bool on_device) {
  curandGenerator_t g;
  EXPECT(on_device ? curandCreateGenerator(&g, e.type) : curandCreateGeneratorHost(&g, e.type));
  EXPECT(curandSetPseudoRandomGeneratorSeed(g, e.seed));
  EXPECT(curandSetGeneratorOffset(g, e.offset));
  EXPECT(curandSetGeneratorOrdering(g, e.ordering));
  const auto bits = [&](std::size_t n) {
    return hash(drawn<unsigned>(on_device, n, [&](unsigned* to) { return curandGenerate(g, to, n); }));
  };
  expect(bits(300007) == e.hashes[0], "curandGenerate");
  expect(
      hash(drawn<float>(on_device, 5001, [&](float* to) { return curandGenerateUniform(g, to, 5001); })) == e.hashes[1],
      "curandGenerateUniform");
  expect(hash(drawn<double>(on_device, 100003,
                            [&](double* to) { return curandGenerateUniformDouble(g, to, 100003); })) == e.hashes[2],
         "curandGenerateUniformDouble");
  expect(bits(97) == e.hashes[3], "curandGenerate after others");
  // Two operations in float and a sine whose last bit is the C library's.
  expect(is_near(drawn<float>(on_device, 1000, [&](float* to) { return curandGenerateNormal(g, to, 1000, 5, 2); }),
                 e.normal, 4e-6),
         "curandGenerateNormal");
  expect(is_near(
             drawn<double>(on_device, 1000, [&](double* to) { return curandGenerateNormalDouble(g, to, 1000, -1, 3); }),
             e.normal_double, 1e-14),
         "curandGenerateNormalDouble");
  const std::vector<double> logs =
      drawn<double>(on_device, 10, [&](double* to) { return curandGenerateLogNormalDouble(g, to, 10, 0, 0.5); });
  expect(std::fabs(logs[9] / e.log_normal - 1) < 1e-14, "curandGenerateLogNormalDouble");
  EXPECT(curandDestroyGenerator(g));
}

// The first numbers of streams, by the device's own functions.
template <class State>
__global__ void first_of_streams(unsigned* to) {
  State state;
  curand_init(1234, threadIdx.x, 0, &state);
  to[threadIdx.x] = curand(&state);
}
template <class State>
static void check_streams(curandRngType_t type, int step) {
  constexpr int kStreams = 40;
  unsigned *by_kernel, *by_host;
  cudaMalloc(&by_kernel, kStreams * sizeof(unsigned));
  cudaMalloc(&by_host, kStreams * step * sizeof(unsigned));
  first_of_streams<State><<<1, kStreams>>>(by_kernel);
  curandGenerator_t g;
  EXPECT(curandCreateGenerator(&g, type));
  EXPECT(curandSetPseudoRandomGeneratorSeed(g, 1234));
  EXPECT(curandGenerate(g, by_host, kStreams * step));
  std::vector<unsigned> a(kStreams), b(kStreams * step);
  cudaMemcpy(a.data(), by_kernel, a.size() * sizeof(unsigned), cudaMemcpyDeviceToHost);
  cudaMemcpy(b.data(), by_host, b.size() * sizeof(unsigned), cudaMemcpyDeviceToHost);
  for (int i = 0; i < kStreams; ++i) expect(a[i] == b[i * step], "a stream of curand_kernel.h");
  EXPECT(curandDestroyGenerator(g));
  cudaFree(by_kernel);
  cudaFree(by_host);
}

int main() {
  for (const Expected& e : kExpected)
    for (const bool on_device : {false, true}) check(e, on_device);
  check_streams<curandStateXORWOW_t>(CURAND_RNG_PSEUDO_XORWOW, 1);
  check_streams<curandStateMRG32k3a_t>(CURAND_RNG_PSEUDO_MRG32K3A, 1);
  check_streams<curandStatePhilox4_32_10_t>(CURAND_RNG_PSEUDO_PHILOX4_32_10, 4);
  curandGenerator_t g;
  float* to;
  cudaMalloc(&to, 16);
  EXPECT(curandCreateGenerator(&g, CURAND_RNG_PSEUDO_DEFAULT));
  expect(curandGenerateNormal(g, to, 3, 0, 1) == CURAND_STATUS_LENGTH_NOT_MULTIPLE, "an odd count");
  expect(curandGenerateLongLong(g, reinterpret_cast<unsigned long long*>(to), 1) == CURAND_STATUS_TYPE_ERROR,
         "64 bits");
  expect(curandGenerateUniform(g, to, 5) == CURAND_STATUS_LAUNCH_FAILURE, "more than there is room for");
  expect(curandGenerateUniform(nullptr, to, 4) == CURAND_STATUS_NOT_INITIALIZED, "no generator");
  expect(curandCreateGenerator(&g, CURAND_RNG_PSEUDO_MT19937) == CURAND_STATUS_TYPE_ERROR, "MT19937");
  std::printf("%d failures\n", failures);
  return failures != 0;
}
