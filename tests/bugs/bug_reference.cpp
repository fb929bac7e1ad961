// What the mended twins compute, in double.
#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "tests/bugs/bug_run.h"

namespace tessera::bugs {
namespace {

using Inputs = std::map<std::string, BugTensor>;
using Words = std::vector<std::string>;

// "copy a"
std::vector<double> copy(const Words& words, const Inputs& inputs) { return inputs.at(words.at(1)).values; }

// "matmul a b": out[m][n] = sum over k of a[m][k] b[n][k]; "matmul a b mn": b is [k][n].
std::vector<double> matmul(const Words& words, const Inputs& inputs) {
  const BugTensor& a = inputs.at(words.at(1));
  const BugTensor& b = inputs.at(words.at(2));
  const bool is_mn = words.size() > 3 && words[3] == "mn";
  const auto m = static_cast<std::size_t>(a.shape[0]);
  const auto k = static_cast<std::size_t>(a.shape[1]);
  const auto n = static_cast<std::size_t>(b.shape[is_mn ? 1 : 0]);
  std::vector<double> out(m * n);
  for (std::size_t i = 0; i < m; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t x = 0; x < k; ++x) sum += a.values[i * k + x] * b.values[is_mn ? x * n + j : j * k + x];
      out[i * n + j] = sum;
    }
  return out;
}

// "matmul2 a b v": (a b^T) v^T
std::vector<double> matmul2(const Words& words, const Inputs& inputs) {
  Inputs second = inputs;
  const auto m = inputs.at(words.at(1)).shape[0];
  const auto n = inputs.at(words.at(2)).shape[0];
  second["s"] = {"f32", {m, n}, matmul(words, inputs)};
  return matmul({"matmul", "s", words.at(3)}, second);
}

// "scaled a b scales 8": a matmul whose columns are scaled in blocks of 8.
std::vector<double> scaled(const Words& words, const Inputs& inputs) {
  std::vector<double> out = matmul({"matmul", words.at(1), words.at(2)}, inputs);
  const auto n = static_cast<std::size_t>(inputs.at(words[2]).shape[0]);
  const std::vector<double>& scales = inputs.at(words.at(3)).values;
  const std::size_t block = std::stoul(words.at(4));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] *= scales[i % n / block];
  return out;
}

double e2m1(unsigned code) {
  constexpr double kMagnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return (code & 8) != 0 ? -kMagnitude[code & 7] : kMagnitude[code & 7];
}
double ue4m3(unsigned bits) {
  const int exponent = static_cast<int>(bits >> 3 & 15);
  const double mantissa = bits & 7;
  if ((bits & 127) == 127) return std::nan("");
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

// "nvfp4 codes scales": rows of packed E2M1, the low half first, a UE4M3 scale for each 16.
std::vector<double> nvfp4(const Words& words, const Inputs& inputs) {
  const BugTensor& codes = inputs.at(words.at(1));
  const std::vector<double>& scales = inputs.at(words.at(2)).values;
  std::vector<double> out;
  for (std::size_t i = 0; i < 2 * codes.values.size(); ++i) {
    const auto byte = static_cast<unsigned>(codes.values[i / 2]);
    out.push_back(e2m1(byte >> (i % 2 * 4) & 15) * ue4m3(static_cast<unsigned>(scales[i / 16])));
  }
  return out;
}

// "rowsum a scales": sums of rows, blocks of 16 scaled by UE4M3; scales has four a row.
std::vector<double> rowsum(const Words& words, const Inputs& inputs) {
  const BugTensor& a = inputs.at(words.at(1));
  const auto k = static_cast<std::size_t>(a.shape[1]);
  std::vector<double> out(static_cast<std::size_t>(a.shape[0]), 0.0);
  for (std::size_t i = 0; i < a.values.size(); ++i)
    out[i / k] += a.values[i] * ue4m3(static_cast<unsigned>(inputs.at(words.at(2)).values[i / k * 4 + i % k / 16]));
  return out;
}

// "softmax s v": softmax of each row of s, times the vector v.
std::vector<double> softmax(const Words& words, const Inputs& inputs) {
  const BugTensor& s = inputs.at(words.at(1));
  const std::vector<double>& v = inputs.at(words.at(2)).values;
  const auto k = static_cast<std::size_t>(s.shape[1]);
  std::vector<double> out;
  for (std::size_t row = 0; row < s.values.size() / k; ++row) {
    double sum = 0;
    double output = 0;
    for (std::size_t i = 0; i < k; ++i) {
      const double p = std::exp(s.values[row * k + i]);
      sum += p;
      output += p * v[i];
    }
    out.push_back(output / sum);
  }
  return out;
}

// "peers": two CTAs of 32 threads, each has what the other wrote. "reversed": the count from its end.
std::vector<double> sequence(const std::string& word, std::size_t count) {
  std::vector<double> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = word == "peers" ? static_cast<double>(100 * (1 - i / 32) + i % 32) : static_cast<double>(count - 1 - i);
  return out;
}

// "fill 3"
std::vector<double> constant(const Words& words, std::size_t count) {
  return std::vector<double>(count, std::stod(words.at(1)));
}

}  // namespace

std::vector<double> reference_values(const Words& words, const Inputs& inputs, const std::vector<std::int64_t>& shape) {
  std::size_t count = 1;
  for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
  if (words.at(0) == "copy") return copy(words, inputs);
  if (words[0] == "matmul") return matmul(words, inputs);
  if (words[0] == "matmul2") return matmul2(words, inputs);
  if (words[0] == "scaled") return scaled(words, inputs);
  if (words[0] == "nvfp4") return nvfp4(words, inputs);
  if (words[0] == "rowsum") return rowsum(words, inputs);
  if (words[0] == "softmax") return softmax(words, inputs);
  if (words[0] == "peers" || words[0] == "reversed") return sequence(words[0], count);
  if (words[0] == "fill") return constant(words, count);
  throw std::runtime_error(fmt::format("no reference '{}'", words[0]));
}

}  // namespace tessera::bugs
