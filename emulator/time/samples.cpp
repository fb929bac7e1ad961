// Which clusters of a grid run, so that the others' times follow from theirs.
#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>

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

double softened(double cycles, double alone, double memory, double sharpness) {
  const double most = std::max(alone, memory);
  if (sharpness <= 0 || most <= 0) return std::max(cycles, memory);
  const double both = std::pow(std::pow(alone / most, sharpness) + std::pow(memory / most, sharpness), 1 / sharpness);
  return std::max(cycles, memory) + most * (both - 1);
}

double cycles_in_waves(const std::vector<SampleTime>& samples, std::uint64_t clusters, std::uint64_t resident,
                       std::uint64_t row, double between) {
  const auto place_of = [&](std::uint64_t cluster) { return static_cast<double>(row != 0 ? cluster % row : cluster); };
  const auto duration = [&](double place) {
    for (std::size_t i = 1; i < samples.size(); ++i) {
      const double a = place_of(samples[i - 1].cluster), b = place_of(samples[i].cluster);
      if (place <= b || i + 1 == samples.size())
        return samples[i - 1].cycles +
               (samples[i].cycles - samples[i - 1].cycles) * std::min(1.0, (place - a) / std::max(1.0, b - a));
    }
    return samples.front().cycles;
  };
  std::priority_queue<double, std::vector<double>, std::greater<>> free;
  for (std::uint64_t i = 0; i < resident; ++i) free.push(0);
  double end = 0;
  for (std::uint64_t cluster = 0; cluster < clusters; ++cluster) {
    const double over = free.top() + duration(place_of(cluster)) + (cluster >= resident ? between : 0);
    free.pop();
    end = std::max(end, over);
    free.push(over);
  }
  return end;
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
