// Differential fuzz: cuTensorMapEncodeTiled against first_broken_rule, on this machine's GPU.
//
//   tensor_map_fuzz [--calls N] [--threads T] [--seed S] [--report FILE] [--table FILE] [--commit NAME]
//
// Prints, and writes to --report as markdown, how many sets both accept, how many both refuse by the rule that fired
// first, and every disagreement with all arguments. --table writes the boundary cases and some random ones with the
// driver's verdicts: tests/base/tensor_map_cases.inc. Ends with 0 when driver and rules agree on every call, 1 when
// not, 77 without a driver or a device.
//
// Threads of one process wait for each other in the driver: 16 threads made 3.3 million calls a second on an H200 host,
// 16 processes with a seed each 28 million. So run processes.
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "tests/gpu_fuzz/tensor_map_driver.h"
#include "tests/gpu_fuzz/tensor_map_generator.h"

namespace tessera {
namespace {

constexpr std::size_t kRules = kNumTensorMapRules + 1;
constexpr std::uint64_t kChunk = 1 << 16;
constexpr std::size_t kDisagreementsKept = 200;
using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t calls = 10'000'000;
  unsigned threads = 1;
  std::uint64_t seed = 1;
  std::string report;
  std::string table;
  std::string commit = "unknown";
};

struct Counts {
  std::uint64_t accepted = 0;
  std::uint64_t only_driver_refuses = 0;
  std::array<std::uint64_t, kRules> refused{};  // by the rule that fired first
  std::array<std::uint64_t, kRules> only_rule_refuses{};
  std::array<std::array<std::uint64_t, 2>, kNumStrategies> by_strategy{};  // accepted, refused by the driver
  std::map<int, std::uint64_t> results;                                    // CUresults
  std::vector<std::string> disagreements;

  std::uint64_t disagreed() const {
    std::uint64_t sum = only_driver_refuses;
    for (const std::uint64_t n : only_rule_refuses) sum += n;
    return sum;
  }

  void judge(const RawMap& map, Strategy strategy, int result, TensorMapRule rule) {
    const bool refused_by_driver = result != 0;
    ++by_strategy[static_cast<std::size_t>(strategy)][refused_by_driver ? 1 : 0];
    const std::size_t r = static_cast<std::size_t>(rule);
    if (refused_by_driver) ++results[result];
    if (rule == TensorMapRule::none && !refused_by_driver) {
      ++accepted;
    } else if (rule != TensorMapRule::none && refused_by_driver) {
      ++refused[r];
    } else {
      ++(refused_by_driver ? only_driver_refuses : only_rule_refuses[r]);
      if (disagreements.size() < kDisagreementsKept)
        disagreements.push_back(
            fmt::format("driver {}, rule {} ({}): {}", result, r, to_string(rule), initializer(map)));
    }
  }

  void add(const Counts& other) {
    accepted += other.accepted;
    only_driver_refuses += other.only_driver_refuses;
    for (std::size_t r = 0; r < kRules; ++r) {
      refused[r] += other.refused[r];
      only_rule_refuses[r] += other.only_rule_refuses[r];
    }
    for (std::size_t s = 0; s < by_strategy.size(); ++s)
      for (std::size_t k = 0; k < 2; ++k) by_strategy[s][k] += other.by_strategy[s][k];
    for (const auto& [result, n] : other.results) results[result] += n;
    for (const std::string& text : other.disagreements)
      if (disagreements.size() < kDisagreementsKept) disagreements.push_back(text);
  }
};

Counts fuzz(const TensorMapDriver& driver, const Options& options) {
  const TensorMapTarget target{driver.compute_major()};
  std::atomic<std::uint64_t> next{0};
  std::mutex mutex;
  Counts total;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < options.threads; ++t) {
    threads.emplace_back([&] {
      if (!driver.make_current()) std::abort();
      Counts counts;
      TensorMapObject object;
      for (std::uint64_t first = next.fetch_add(kChunk); first < options.calls; first = next.fetch_add(kChunk)) {
        const std::uint64_t end = std::min(options.calls, first + kChunk);
        for (std::uint64_t i = first; i < end; ++i) {
          const RawMap map = generate(options.seed, i);
          counts.judge(map, strategy_of(i), driver.encode(&object, map), verdict(map, target));
        }
      }
      const std::lock_guard lock(mutex);
      total.add(counts);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return total;
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// What the driver says to groups of sets that all of the rules refuse, and to odd pointers: facts for the docs.
std::string side_questions(const TensorMapDriver& driver) {
  std::string text;
  alignas(128) std::array<std::uint8_t, 512> room{};
  std::array<std::uint64_t, 2> atoms{};
  std::array<std::uint64_t, 2> packed{};
  for (int type = 0; type <= 15; ++type)
    for (int interleave = 0; interleave <= 2; ++interleave)
      for (int swizzle = 0; swizzle <= 6; ++swizzle)
        for (std::uint32_t box = 8; box <= 256; box += 8) {
          if (type < 13 && swizzle < 4) continue;
          RawMap map;
          map.type = type;
          map.rank = 3;
          map.dims[0] = 1024;
          map.box[0] = box;
          map.interleave = interleave;
          map.swizzle = swizzle;
          ++(type < 13 ? atoms : packed)[driver.encode(room.data(), map) == 0 ? 0 : 1];
        }
  text += fmt::format(
      "- Atom swizzles (4 to 6), types 0 to 12, every interleave, box[0] 8 to 256: {} accepted, {} refused.\n",
      atoms[0], atoms[1]);
  text +=
      fmt::format("- Packed types 13 to 15, every interleave and swizzle, box[0] 8 to 256: {} accepted, {} refused.\n",
                  packed[0], packed[1]);
  text += "- Object pointer at an offset from 128-byte alignment, result:";
  for (const std::size_t offset : {0u, 1u, 4u, 8u, 16u, 64u})
    text += fmt::format(" {}: {}", offset, driver.encode(&room[offset], {}));
  text += ".\n- Rank, result:";  // not above 256: rank 2^31 made the driver read far past the arrays and crash
  for (const std::uint32_t rank : {6u, 9u, 256u}) {
    RawMap map;
    map.rank = rank;
    text += fmt::format(" {}: {}", rank, driver.encode(room.data(), map));
  }
  RawMap base;
  base.rank = 3;
  RawMap interleaved = base;
  interleaved.interleave = 2;
  text += ".\n- cuTensorMapReplaceAddress, result by address (interleave none, then 32B):";
  for (const std::uint64_t address : {0ull, 1ull, 8ull, 16ull, 32ull, (1ull << 57) - 32, 1ull << 57, ~0ull - 31}) {
    text += fmt::format(" {:#x}:", address);
    for (const RawMap& map : {base, interleaved}) {
      if (driver.encode(room.data(), map) != 0) std::abort();
      text += fmt::format(" {}", driver.replace_address(room.data(), address));
    }
  }
  return text + ".\n";
}

// cuTensorMapReplaceAddress on legal maps against rules 11 and 12, and its bytes against a fresh encode.
std::string replace_questions(const TensorMapDriver& driver, std::uint64_t seed) {
  constexpr std::uint64_t kCalls = 1'000'000;
  std::array<std::array<std::uint64_t, 2>, 2> agreement{};  // [rule broken][driver refuses]
  std::uint64_t other_bytes = 0;
  alignas(128) std::array<std::uint8_t, 128> replaced{};
  alignas(128) std::array<std::uint8_t, 128> fresh{};
  for (std::uint64_t i = 0; i < kCalls; ++i) {
    const RawMap map = generate(seed, i * 16);  // the legal strategy
    RawMap moved = map;
    moved.address = generate(seed, i * 16 + 5).address;  // often odd
    if (i % 2 == 0) moved.address = generate(seed, i * 16 + 15).address;
    if (driver.encode(replaced.data(), map) != 0) continue;
    const TensorMapRule rule = verdict(moved, TensorMapTarget{driver.compute_major()});
    const int result = driver.replace_address(replaced.data(), moved.address);
    ++agreement[rule == TensorMapRule::none ? 0 : 1][result == 0 ? 0 : 1];
    if (rule == TensorMapRule::none && result == 0 &&
        (driver.encode(fresh.data(), moved) != 0 || std::memcmp(fresh.data(), replaced.data(), 128) != 0))
      ++other_bytes;
  }
  return fmt::format(
      "- cuTensorMapReplaceAddress on {} legal maps: both accept {}, both refuse (rules 11, 12) {}, only the driver "
      "refuses {}, only the rules refuse {}; bytes other than those of a fresh encode: {}.\n",
      kCalls, agreement[0][0], agreement[1][1], agreement[0][1], agreement[1][0], other_bytes);
}

// One thread, one legal set: nanoseconds of an encode and of the rules.
std::string timing(const TensorMapDriver& driver) {
  constexpr int kCalls = 2'000'000;
  RawMap map;
  map.type = 9;
  map.rank = 4;
  std::copy_n(std::array<std::uint64_t, 4>{128, 4096, 16, 4}.begin(), 4, map.dims);
  std::copy_n(std::array<std::uint64_t, 3>{4096, 256, 16777216}.begin(), 3, map.strides);
  std::copy_n(std::array<std::uint32_t, 4>{64, 128, 1, 1}.begin(), 4, map.box);
  map.swizzle = 3;
  TensorMapObject object;
  Clock::time_point start = Clock::now();
  int refused = 0;
  for (int i = 0; i < kCalls; ++i) {
    map.address = static_cast<std::uint64_t>(i) * 16;
    refused += driver.encode(&object, map);
  }
  const double encode_ns = seconds_since(start) / kCalls * 1e9;
  ResolvedTensorMap checked = resolved(map);
  start = Clock::now();
  for (int i = 0; i < kCalls; ++i) {
    checked.address = static_cast<std::uint64_t>(i) * 16;
    refused += first_broken_rule(checked) == TensorMapRule::none ? 0 : 1;
  }
  const double rules_ns = seconds_since(start) / kCalls * 1e9;
  return fmt::format(
      "- One thread, a legal map of rank 4, {} calls: encode {:.1f} ns, first_broken_rule {:.1f} ns ({} refused).\n",
      kCalls, encode_ns, rules_ns, refused);
}

std::string report_of(const TensorMapDriver& driver, const Options& options, const Counts& counts, double seconds) {
  std::string text = fmt::format(
      "| set | accepted by both | refused by both | only the driver refuses | only the rules refuse |\n"
      "|---|---|---|---|---|\n");
  std::uint64_t both_refuse = 0;
  std::uint64_t rules_refuse = 0;
  for (std::size_t r = 0; r < kRules; ++r)
    both_refuse += counts.refused[r], rules_refuse += counts.only_rule_refuses[r];
  text += fmt::format("| {} calls, seed {} | {} | {} | {} | {} |\n\n", options.calls, options.seed, counts.accepted,
                      both_refuse, counts.only_driver_refuses, rules_refuse);
  text += fmt::format("{:.1f} s with {} threads. Disagreements: **{}**. Results of refusals:", seconds, options.threads,
                      counts.disagreed());
  for (const auto& [result, n] : counts.results) text += fmt::format(" {} ({} times)", result, n);
  text += ".\n\n| strategy | accepted by the driver | refused |\n|---|---|---|\n";
  for (std::size_t s = 0; s < kNumStrategies; ++s)
    text += fmt::format("| {} | {} | {} |\n", to_string(static_cast<Strategy>(s)), counts.by_strategy[s][0],
                        counts.by_strategy[s][1]);
  text += "\n| rule | fired first | accepted by the driver all the same |\n|---|---|---|\n";
  for (std::size_t r = 1; r < kRules; ++r)
    text += fmt::format("| {} {} | {} | {} |\n", r, to_string(static_cast<TensorMapRule>(r)), counts.refused[r],
                        counts.only_rule_refuses[r]);
  for (const std::string& line : counts.disagreements) text += "\n    " + line;
  return fmt::format("Device: {}, compute capability {}.{}, driver API {}, commit {}.\n\n", driver.device_name(),
                     driver.compute_major(), driver.compute_minor(), driver.driver_version(), options.commit) +
         text;
}

// Boundary cases, and of the random ones every refusal that one mutation caused until each rule has eight, and 64
// legal.
void write_table(const TensorMapDriver& driver, const Options& options) {
  const TensorMapTarget target{driver.compute_major()};
  std::ofstream file(options.table);
  TensorMapObject object;
  const auto write = [&](const RawMap& map) {
    const int result = driver.encode(&object, map);
    file << fmt::format("{{{}, {}, {}}},\n", static_cast<int>(verdict(map, target)), result, initializer(map));
  };
  file << "// Written by tensor_map_fuzz --table: {rule, the driver's result, arguments as in RawMap}.\n";
  file << fmt::format("// {}, driver API {}. Boundary cases, then random ones.\n", driver.device_name(),
                      driver.driver_version());
  for (const RawMap& map : boundary_cases()) write(map);
  std::array<int, kRules> kept{};
  for (std::uint64_t i = 0; i < 1'000'000; ++i) {
    if (strategy_of(i) != Strategy::one && strategy_of(i) != Strategy::footprint) continue;
    const RawMap map = generate(options.seed, i);
    const std::size_t rule = static_cast<std::size_t>(verdict(map, target));
    if (kept[rule] >= (rule == 0 ? 64 : 8) || map.rank > kRawEntries) continue;
    ++kept[rule];
    write(map);
  }
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--calls")
      options.calls = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--threads")
      options.threads = static_cast<unsigned>(std::strtoul(value.c_str(), nullptr, 10));
    else if (flag == "--seed")
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--report")
      options.report = value;
    else if (flag == "--table")
      options.table = value;
    else if (flag == "--commit")
      options.commit = value;
    else
      return false;
  }
  return argc % 2 == 1 && options.threads > 0 && options.calls > 0;
}

int run(const Options& options) {
  TensorMapDriver driver;
  if (!driver.error().empty()) {
    fmt::print(stderr, "skipped: {}\n", driver.error());
    return 77;
  }
  alignas(128) std::array<std::uint8_t, 128> room{};
  const int without_context = driver.encode(room.data(), {});
  if (!driver.retain_context() || !driver.make_current()) {
    fmt::print(stderr, "skipped: {}\n", driver.error());
    return 77;
  }
  const Clock::time_point start = Clock::now();
  const Counts counts = fuzz(driver, options);
  std::string text = report_of(driver, options, counts, seconds_since(start));
  text += fmt::format("\n\n- A legal set without a current context: result {}.\n", without_context);
  text += side_questions(driver) + replace_questions(driver, options.seed) + timing(driver);
  fmt::print("{}", text);
  std::fflush(stdout);
  if (!options.report.empty()) std::ofstream(options.report) << text;
  if (!options.table.empty()) write_table(driver, options);
  return counts.disagreed() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::Options options;
  if (!tessera::parse(argc, argv, options)) {
    fmt::print(
        stderr,
        "usage: tensor_map_fuzz [--calls N] [--threads T] [--seed S] [--report FILE] [--table FILE] [--commit NAME]\n");
    return 2;
  }
  return tessera::run(options);
}
