#include "guest/stand_ins/random_sequences.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <tuple>
#include <utility>
#include <vector>

namespace tessera::guest {
namespace {

constexpr float kTwoPi = 2 * std::numbers::pi_v<float>;

float uniform_float(std::uint32_t x) { return static_cast<float>(x) * 0x1p-32f + 0x1p-33f; }
double uniform_double(std::uint32_t low, std::uint32_t high) {
  return static_cast<double>(low ^ std::uint64_t{high} << 21) * 0x1p-53 + 0x1p-54;
}
std::pair<float, float> normal_floats(float u, float angle) {
  const float size = std::sqrt(-2.0f * std::log(u));
  return {size * std::sin(angle), size * std::cos(angle)};
}
std::pair<double, double> normal_doubles(double u, double half_turns) {
  const double size = std::sqrt(-2.0 * std::log(u)), angle = half_turns * std::numbers::pi;
  return {size * std::sin(angle), size * std::cos(angle)};
}
std::pair<float, float> normal_floats(std::uint32_t x, std::uint32_t y) {
  constexpr float kUnit = 0x1p-32f * kTwoPi;
  return normal_floats(uniform_float(x), static_cast<float>(y) * kUnit + kUnit / 2);
}
std::pair<double, double> normal_doubles(const std::array<std::uint32_t, 4>& x) {
  return normal_doubles(uniform_double(x[0], x[1]), 2 * uniform_double(x[2], x[3]));
}

/// Streams that take turns: each result, or pair of them, comes from the next one.
template <class Stream>
class InTurns : public RandomSequence {
 public:
  InTurns(std::vector<Stream> streams, std::uint64_t offset)
      : streams_(std::move(streams)), at_(offset % streams_.size()) {
    const std::uint64_t rounds = offset / streams_.size();
    for (std::size_t i = 0; i < streams_.size(); ++i) streams_[i].skip(rounds + (i < at_ ? 1 : 0));
  }
  void bits(std::uint32_t* to, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) to[i] = next().bits();
  }
  void uniform(float* to, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) to[i] = next().as_float();
  }
  void uniform(double* to, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i) to[i] = next().as_double();
  }
  void normal(float* to, std::size_t count) override {
    for (std::size_t i = 0; i + 1 < count; i += 2) std::tie(to[i], to[i + 1]) = next().normal_float();
  }
  void normal(double* to, std::size_t count) override {
    for (std::size_t i = 0; i + 1 < count; i += 2) std::tie(to[i], to[i + 1]) = next().normal_double();
  }

 private:
  Stream& next() {
    Stream& stream = streams_[at_];
    if (++at_ == streams_.size()) at_ = 0;
    return stream;
  }
  std::vector<Stream> streams_;
  std::size_t at_;
};

class Xorwow {
 public:
  using State = std::array<std::uint32_t, 5>;
  static constexpr std::uint32_t kWeyl = 362437;

  explicit Xorwow(std::uint64_t seed) {
    const std::uint32_t low = static_cast<std::uint32_t>(seed) ^ 0xAAD26B49u;
    const std::uint32_t high = static_cast<std::uint32_t>(seed >> 32) ^ 0xF7DCEFDDu;
    const std::uint32_t a = 1099087573u * low, b = 2591861531u * high;
    state = {123456789u + a, 362436069u ^ a, 521288629u + b, 88675123u ^ b, 5783321u + a};
    weyl = 6615241u + b + a;
  }
  static void step(State& x) {
    const std::uint32_t t = x[0] ^ (x[0] >> 2), last = x[4];
    x = {x[1], x[2], x[3], last, (last ^ (last << 4)) ^ (t ^ (t << 1))};
  }
  std::uint32_t bits() {
    step(state);
    return state[4] + (weyl += kWeyl);
  }
  float as_float() { return uniform_float(bits()); }
  double as_double() {
    const std::uint32_t low = bits();
    return uniform_double(low, bits());
  }
  std::pair<float, float> normal_float() {
    const std::uint32_t x = bits();
    return normal_floats(x, bits());
  }
  std::pair<double, double> normal_double() {
    std::array<std::uint32_t, 4> x{};
    for (std::uint32_t& word : x) word = bits();
    return normal_doubles(x);
  }
  void skip(std::uint64_t steps);

  State state{};
  std::uint32_t weyl = 0;
};

/// A linear map of xorwow's 160 bits: what each of them becomes.
class BitMatrix {
 public:
  /// One step of the generator.
  BitMatrix() {
    for (std::size_t i = 0; i < kBits; ++i) {
      image_[i] = {};
      image_[i][i / 32] = std::uint32_t{1} << (i % 32);
      Xorwow::step(image_[i]);
    }
  }
  Xorwow::State operator*(const Xorwow::State& x) const {
    Xorwow::State sum{};
    for (std::size_t i = 0; i < kBits; ++i) {
      const std::uint32_t taken = std::uint32_t{0} - (x[i / 32] >> (i % 32) & 1);
      for (std::size_t j = 0; j < sum.size(); ++j) sum[j] ^= image_[i][j] & taken;
    }
    return sum;
  }
  void square() {
    const BitMatrix before = *this;
    for (Xorwow::State& image : image_) image = before * image;
  }

 private:
  static constexpr std::size_t kBits = 160;
  std::array<Xorwow::State, kBits> image_;
};

/// Powers[i] is 2^i steps.
const std::vector<BitMatrix>& powers() {
  static const std::vector<BitMatrix> made = [] {
    std::vector<BitMatrix> all(1);
    while (all.size() < 68) {
      all.push_back(all.back());
      all.back().square();
    }
    return all;
  }();
  return made;
}

void Xorwow::skip(std::uint64_t steps) {
  weyl += static_cast<std::uint32_t>(steps) * kWeyl;
  for (std::size_t i = 0; steps != 0; ++i, steps >>= 1)
    if ((steps & 1) != 0) state = powers()[i] * state;
}

/// x(n) = a x(n - 2) + b x(n - 3) mod m, or with x(n - 1) in place of x(n - 2).
struct Recurrence {
  using Matrix = std::array<std::array<std::uint64_t, 3>, 3>;
  std::uint64_t modulus;
  Matrix step;

  Matrix product(const Matrix& a, const Matrix& b) const {
    Matrix c{};
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 3; ++j)
        for (std::size_t k = 0; k < 3; ++k) c[i][j] = (c[i][j] + a[i][k] * b[k][j] % modulus) % modulus;
    return c;
  }
  std::array<std::uint64_t, 3> apply(const Matrix& a, const std::array<std::uint64_t, 3>& x) const {
    std::array<std::uint64_t, 3> y{};
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t k = 0; k < 3; ++k) y[i] = (y[i] + a[i][k] * x[k] % modulus) % modulus;
    return y;
  }
  Matrix power(std::uint64_t steps) const {
    Matrix result{{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}};
    for (Matrix square = step; steps != 0; steps >>= 1, square = product(square, square))
      if ((steps & 1) != 0) result = product(result, square);
    return result;
  }
  Matrix squared(int times) const {
    Matrix result = step;
    for (int i = 0; i < times; ++i) result = product(result, result);
    return result;
  }
};
constexpr std::uint64_t kModulus1 = 4294967087, kModulus2 = 4294944443;
constexpr Recurrence kFirst{kModulus1, {{{0, 1, 0}, {0, 0, 1}, {kModulus1 - 810728, 1403580, 0}}}};
constexpr Recurrence kSecond{kModulus2, {{{0, 1, 0}, {0, 0, 1}, {kModulus2 - 1370589, 0, 527612}}}};

class Mrg32k3a {
 public:
  explicit Mrg32k3a(std::uint64_t seed) {
    first.fill(12345);
    second.fill(12345);
    if (seed == 0) return;
    const std::uint64_t a = static_cast<std::uint32_t>(seed) ^ 0x55555555u;
    const std::uint64_t b = static_cast<std::uint32_t>(seed >> 32) ^ 0xAAAAAAAAu;
    for (std::size_t i = 0; i < 3; ++i) {
      first[i] = (i == 1 ? b : a) * first[i] % kModulus1;
      second[i] = (i == 1 ? a : b) * second[i] % kModulus2;
    }
  }
  void skip(std::uint64_t steps) {
    if (steps == 0) return;
    first = kFirst.apply(kFirst.power(steps), first);
    second = kSecond.apply(kSecond.power(steps), second);
  }
  /// From 1 to the first modulus.
  double next() {
    const std::uint64_t a = (1403580 * first[1] + 810728 * (kModulus1 - first[0])) % kModulus1;
    const std::uint64_t b = (527612 * second[2] + 1370589 * (kModulus2 - second[0])) % kModulus2;
    first = {first[1], first[2], a};
    second = {second[1], second[2], b};
    return static_cast<double>(a > b ? a - b : a + kModulus1 - b);
  }
  std::uint32_t bits() { return static_cast<std::uint32_t>(next() * 1.000000048662); }
  double as_double() { return next() * 2.3283065498378288e-10; }
  float as_float() { return static_cast<float>(as_double()); }
  std::pair<float, float> normal_float() {
    const float x = as_float();
    return normal_floats(x, as_float() * kTwoPi);
  }
  std::pair<double, double> normal_double() {
    const double x = as_double();
    return normal_doubles(x, as_double() * 2);
  }

  std::array<std::uint64_t, 3> first{}, second{};
};

class Philox : public RandomSequence {
 public:
  Philox(std::uint64_t seed, std::uint64_t offset)
      : key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)}, at_(offset), taken_(kStreams) {
    const std::uint64_t fours = offset / 4;
    for (std::size_t i = 0; i < kStreams; ++i) taken_[i] = fours / kStreams + (i < fours % kStreams ? 1 : 0);
  }
  void bits(std::uint32_t* to, std::size_t count) override {
    deal(to, count, 1, [](const Words& x, const Words&) { return x; });
  }
  void uniform(float* to, std::size_t count) override {
    deal(to, count, 1, [](const Words& x, const Words&) {
      return std::array{uniform_float(x[0]), uniform_float(x[1]), uniform_float(x[2]), uniform_float(x[3])};
    });
  }
  void uniform(double* to, std::size_t count) override {
    deal(to, count, 2, [](const Words& x, const Words& y) {
      return std::array{uniform_double(x[0], x[1]), uniform_double(x[2], x[3]), uniform_double(y[0], y[1]),
                        uniform_double(y[2], y[3])};
    });
  }
  void normal(float* to, std::size_t count) override {
    deal(to, count, 1, [](const Words& x, const Words&) {
      const auto a = normal_floats(x[0], x[1]), b = normal_floats(x[2], x[3]);
      return std::array{a.first, a.second, b.first, b.second};
    });
  }
  void normal(double* to, std::size_t count) override {
    deal(to, count, 2, [](const Words& x, const Words& y) {
      const auto a = normal_doubles(x), b = normal_doubles(y);
      return std::array{a.first, a.second, b.first, b.second};
    });
  }
  bool takes_odd() const override { return true; }

 private:
  using Words = std::array<std::uint32_t, 4>;
  static constexpr std::size_t kStreams = 65536;

  /// Number `counter` of a subsequence, four words.
  Words words(std::uint64_t counter, std::uint64_t subsequence) const {
    Words x{static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
            static_cast<std::uint32_t>(subsequence), static_cast<std::uint32_t>(subsequence >> 32)};
    std::uint32_t key0 = key_[0], key1 = key_[1];
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * x[0], b = std::uint64_t{0xCD9E8D57} * x[2];
      x = {static_cast<std::uint32_t>(b >> 32) ^ x[1] ^ key0, static_cast<std::uint32_t>(b),
           static_cast<std::uint32_t>(a >> 32) ^ x[3] ^ key1, static_cast<std::uint32_t>(a)};
      key0 += 0x9E3779B9;
      key1 += 0xBB67AE85;
    }
    return x;
  }
  // Four results of a subsequence, which make() forms of one or two numbers of it, then four of the next.
  template <class T, class Make>
  void deal(T* to, std::size_t count, std::uint64_t numbers, Make make) {
    while (count > 0) {
      const std::size_t stream = at_ / 4 % kStreams, first = at_ % 4, some = std::min<std::size_t>(4 - first, count);
      std::uint64_t& counter = taken_[stream];
      const std::array<T, 4> four = make(words(counter, stream), numbers == 2 ? words(counter + 1, stream) : Words{});
      std::copy_n(four.begin() + static_cast<std::ptrdiff_t>(first), some, to);
      if (first + some == 4) counter += numbers;
      at_ += some;
      to += some;
      count -= some;
    }
  }

  std::array<std::uint32_t, 2> key_;
  std::uint64_t at_;
  std::vector<std::uint64_t> taken_;  // numbers, of each subsequence
};

}  // namespace

std::unique_ptr<RandomSequence> make_xorwow(std::uint64_t seed, std::uint64_t offset) {
  std::vector<Xorwow> streams(4096, Xorwow(seed));  // 2^67 steps leave the added sequence where it is
  for (std::size_t i = 1; i < streams.size(); ++i) streams[i].state = powers()[67] * streams[i - 1].state;
  return std::make_unique<InTurns<Xorwow>>(std::move(streams), offset);
}

std::unique_ptr<RandomSequence> make_mrg32k3a(std::uint64_t seed, std::uint64_t offset, std::size_t count) {
  std::vector<Mrg32k3a> streams(count, Mrg32k3a(seed));
  const Recurrence::Matrix first = kFirst.squared(76), second = kSecond.squared(76);
  for (std::size_t i = 1; i < count; ++i) {
    streams[i].first = kFirst.apply(first, streams[i - 1].first);
    streams[i].second = kSecond.apply(second, streams[i - 1].second);
  }
  return std::make_unique<InTurns<Mrg32k3a>>(std::move(streams), offset);
}

std::unique_ptr<RandomSequence> make_philox(std::uint64_t seed, std::uint64_t offset) {
  return std::make_unique<Philox>(seed, offset);
}

}  // namespace tessera::guest
