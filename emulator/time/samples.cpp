// Which clusters of a grid run, so that the others' times follow from theirs.
#include <algorithm>

#include "emulator/time/whole.h"

namespace tessera::emulator {

std::vector<std::uint64_t> places_of_samples(std::uint64_t clusters, std::uint64_t together, std::uint64_t wanted,
                                             std::uint64_t row) {
  std::vector<std::uint64_t> starts;
  const std::uint64_t last = clusters > together ? clusters - together : 0;
  for (std::uint64_t i = 0; i < wanted; ++i) {
    const std::uint64_t start =
        row == 0 ? last * i / (wanted - 1) : (row - together) * i / (wanted - 1) + clusters / row * i / wanted * row;
    if (starts.empty() || starts.back() != start) starts.push_back(start);
  }
  return starts;
}

std::vector<std::uint64_t> beside_longest(std::vector<SampleTime>& samples) {
  constexpr double kAlike = 1.02;
  const auto is_less = [](const SampleTime& a, const SampleTime& b) { return a.cycles < b.cycles; };
  std::sort(samples.begin(), samples.end(),
            [](const SampleTime& a, const SampleTime& b) { return a.cluster < b.cluster; });
  const auto [least, most] = std::minmax_element(samples.begin(), samples.end(), is_less);
  std::vector<std::uint64_t> found;
  if (least == samples.end() || most->cycles < kAlike * least->cycles) return found;
  const auto look_between = [&](const SampleTime& a, const SampleTime& b) {
    const std::uint64_t middle = a.cluster + (b.cluster - a.cluster) / 2;
    if (middle != a.cluster) found.push_back(middle);
  };
  if (most != samples.begin()) look_between(*(most - 1), *most);
  if (most + 1 != samples.end()) look_between(*most, *(most + 1));
  return found;
}

double cycles_of_memory(double all, double written, double rounds, double before, double after) {
  return before + std::max(all, all - written / std::max(1.0, rounds) + after);
}

bool differ_by_little(const std::vector<SampleTime>& samples, std::uint64_t resident, double cold_surplus) {
  constexpr double kAlike = 1.1;
  const auto warm = [&](const SampleTime& sample) {
    return sample.cluster < resident ? sample.cycles - cold_surplus : sample.cycles;
  };
  double least = warm(samples.front()), most = least;
  for (const SampleTime& sample : samples) {
    least = std::min(least, warm(sample));
    most = std::max(most, warm(sample));
  }
  return most < kAlike * least;
}

}  // namespace tessera::emulator
