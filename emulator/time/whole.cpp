#include "emulator/time/whole.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "tessera/emulator/sample.h"

namespace tessera::emulator {
namespace {

constexpr double kGolden = 0.6180339887;  // places so far apart are spread whatever their number
std::uint64_t product(const std::array<std::uint32_t, 3>& x) { return std::uint64_t{x[0]} * x[1] * x[2]; }

class Grid {
 public:
  Grid(const GpuTime& gpu, const Program& program, const Entry& entry, GlobalMemory& memory, const LaunchShape& shape,
       const LaunchOptions& options, const std::vector<std::byte>& parameters, TimedResult& result, LaunchTime& time)
      : gpu_(gpu),
        program_(program),
        entry_(entry),
        memory_(memory),
        shape_(shape),
        options_(options),
        parameters_(parameters),
        result_(result),
        time_(time),
        clusters_(clusters_of(shape)),
        cluster_size_(product(shape.cluster)),
        at_once_(static_cast<std::uint64_t>(gpu.clusters_at_once(static_cast<int>(cluster_size_)))),
        per_sm_(ctas_per_sm(gpu, entry, shape, options.registers)),
        resident_(at_once_ * static_cast<std::uint64_t>(per_sm_)),
        counters_(std::min(resident_, clusters_)) {
    if (options.skips_values) around_.counters = &counters_;
    around_.active_sms = static_cast<double>(std::min(at_once_, clusters_) * cluster_size_);
    around_.l1_bytes =
        std::max(0.0, gpu.l1_bytes - per_sm_ * (cta_shared_bytes(entry, shape) + gpu.smem_per_cta_reserved));
  }

  void run() {
    LaunchTime& time = time_;
    time.gpu = gpu_.name, time.entry = entry_.name;
    time.clock_mhz = gpu_.clock_mhz;
    time.clusters = clusters_, time.ctas_per_sm = per_sm_;
    time.waves = static_cast<double>(clusters_) / static_cast<double>(resident_);
    // What a cluster reads tells how much of the grid's reads the L2 can answer.
    learn_traffic();
    if (has_failed()) return;
    time.is_whole = !options_.skips_values;
    const SampledLaunch steady = time.is_whole ? run_all() : run_samples();
    if (has_failed()) return;
    steady.clock->add_to(time);
    name_limit();
    time.clock_mhz = loaded_clock(*steady.clock, time.cycles / gpu_.clock_mhz);
    time.microseconds = time.launch_us + time.cycles / time.clock_mhz;
  }

 private:
  bool has_failed() const {
    const auto fails = [](const EmulatorFinding& finding) { return finding.is_failure; };
    return std::any_of(result_.findings.begin(), result_.findings.end(), fails);
  }

  /// Power lowers the clock where tensor cores work.
  double loaded_clock(const Clock& clock, double microseconds) const {
    return gpu_.clock_at(clock.tensor_load(), clock.part_of_8_bit(), microseconds);
  }

  /// On as many multiprocessors as these.
  SampledLaunch simulate(const ClusterRange& some, int num_sms, bool keeps_values, std::uint64_t stop_after = 0) {
    counters_.begin();
    SampledLaunch part;
    part.sample.cluster = some.first, part.sample.clusters = static_cast<int>(some.count);
    around_.is_cold = some.first < resident_ && !runs_warm_;
    part.clock = std::make_unique<Clock>(gpu_, entry_, memory_, around_, num_sms);
    part.clock->stop_after = stop_after, part.clock->cluster_step = some.step;
    LaunchOptions options = options_;
    options.clock = part.clock.get();
    options.skips_values = !keeps_values;
    options.num_sms = num_sms * per_sm_;
    options.schedule = Schedule::fair;
    if (!keeps_values) options.observer = observes_ ? options_.observer : nullptr;
    Launch launch(program_, entry_, memory_, shape_, options, parameters_);
    launch.next_cluster = some.first;
    launch.num_clusters = some.first + (some.count - 1) * some.step + 1;
    launch.run();
    if (counters_.found_one()) return simulate(some, num_sms, keeps_values, stop_after);
    part.sample.cycles = part.clock->last();
    const LaunchStatistics& run = launch.statistics;
    result_.statistics.warp_instructions += run.warp_instructions;
    result_.statistics.async_operations += run.async_operations, result_.statistics.seconds += run.seconds;
    for (const EmulatorFinding& finding : launch.findings.all())
      if (stop_after == 0 && (keeps_values || finding.is_failure)) result_.findings.push_back(finding);
    return part;
  }

  /// The same on multiprocessors of their own, as many as a cluster has; nothing is computed.
  SampledLaunch simulate(const ClusterRange& some, std::uint64_t stop_after = 0) {
    return simulate(some, static_cast<int>(cluster_size_), false, stop_after);
  }

  /// Of a grid that is resident at once, what runs on the same multiprocessors as this cluster, one of the first
  /// `at_once_`: clusters are dealt round all multiprocessors, and those that are left round them again.
  ClusterRange dealt_with(std::uint64_t cluster) const {
    return {cluster, (clusters_ - 1 - cluster) / at_once_ + 1, at_once_};
  }

  void learn_traffic() {
    if (!options_.skips_values) return;  // its stores must not happen twice: everything misses once, see run_all()
    learn_sharers();
    const SampledLaunch part = simulate({clusters_ / 2});
    if (has_failed()) return;
    take_traffic(*part.clock, static_cast<double>(clusters_));
    if (clusters_ > resident_ && clusters_ > 16) average_traffic(*part.clock);
    if (clusters_ <= resident_ && clusters_ > 2) learn_shares();
    take_displaced();
  }

  // Of a grid that is resident at once: where some multiprocessors read more than others, these have ended before them
  // and leave them their part of the rates. What several clusters of one read the L1 may have. Those with a cluster
  // more come first.
  void learn_shares() {
    const std::uint64_t sets = std::min(clusters_, at_once_), more = clusters_ > at_once_ ? clusters_ % at_once_ : 0;
    Traffic all;
    double most = 0;
    for (const auto& [begin, end] : {std::pair(std::uint64_t{0}, more), std::pair(more, sets)})
      if (begin < end) most = std::max(most, add_traffic_of(begin, end, all));
    if (has_failed() || most <= 0 || all.read_total <= 0) return;
    take_traffic(all, 1);
    around_.active_sms *= all.read_total / static_cast<double>(sets) / most;
    take_rates();
  }

  // What multiprocessors from `begin` to `end` read and write; the most that one of these reads. Where they are not
  // alike some tell that are in step with no row of the grid.
  double add_traffic_of(std::uint64_t begin, std::uint64_t end, Traffic& all) {
    const auto count = static_cast<double>(end - begin);
    double most = 0;
    const auto read_at = [&](std::uint64_t cluster, double times) {
      if (has_failed()) return 0.0;
      const SampledLaunch part = simulate(dealt_with(cluster));
      if (times > 0) all.add(*part.clock, times);
      most = std::max(most, part.clock->read_total);
      return part.clock->read_total;
    };
    const double first = read_at(begin, 0);
    const bool are_alike = read_at(end - 1, 0) == first && read_at(begin + (end - begin) / 2, 0) == first;
    const int some = are_alike ? 1 : 20;
    for (int i = 0; i < some; ++i)
      read_at(begin + static_cast<std::uint64_t>(std::fmod(0.5 + i * kGolden, 1.0) * count), count / some);
    return most;
  }

  // Of many clusters the middle one may read more or less than others (a causal mask, by the row of the grid): some
  // that are spread over the grid, none in step with its rows, tell.
  void average_traffic(Clock& sum) {
    constexpr std::uint64_t kMore = 6;
    const double first = sum.read_total;
    for (std::uint64_t i = 1; i <= kMore && !has_failed(); ++i) {
      const double at = std::fmod(0.5 + static_cast<double>(i) * kGolden, 1.0) * static_cast<double>(clusters_);
      const SampledLaunch part = simulate({static_cast<std::uint64_t>(at)});
      constexpr std::uint64_t kEnough = 2;
      for (const auto& [address, bytes] : part.clock->read_bytes) sum.read_bytes[address] += bytes;
      sum.read_total += part.clock->read_total;
      sum.written_bytes += part.clock->written_bytes;
      const auto count = static_cast<double>(i + 1);
      if (i < kEnough) continue;
      if (i == kMore || std::abs(sum.read_total / count - first) < 0.01 * first) {
        take_traffic(sum, static_cast<double>(clusters_) / count);
        return;
      }
    }
  }

  // How many multiprocessors copy the same tile of each allocation when all begin.
  void learn_sharers() {
    if (gpu_.l2_by_sharers.points.empty()) return;
    constexpr std::uint64_t kInstructions = 4096;  // of a cluster: until its first copies
    observes_ = false;
    struct Copies {
      double count = 0;
      std::set<std::uint64_t> begins{};
      std::set<std::pair<std::uint64_t, std::uint64_t>> of_gpcs{};  // the same, by GPC: clusters go round them
    };
    std::map<std::uint64_t, Copies> copies;
    const std::uint64_t begin = std::min(clusters_, at_once_);
    for (std::uint64_t cluster = 0; cluster < begin; ++cluster) {
      const SampledLaunch part = simulate({cluster}, kInstructions);
      for (const auto& [key, first] : part.clock->first_copies) {
        Copies& one = copies[key.second];
        one.count += 1;
        one.begins.insert(first);
        one.of_gpcs.emplace(cluster % gpu_.gpcs, first);
      }
    }
    for (const auto& [address, one] : copies) {
      sharers_[address] = one.count / static_cast<double>(one.begins.size());
      neighbours_[address] = one.count / static_cast<double>(one.of_gpcs.size());
    }
  }

  // What the clusters that are there at once read of an allocation, several of them each part. Where they take several
  // tiles each, all that is read is more than its bytes so many times: the rest has been read for earlier tiles. The
  // next ones read other parts of it, or it all again; what they read again is still in the L2 where it can hold all
  // that comes between. Each half of it holds its own copy (lives.cu: 26 MiB are there again, 38 are not).
  template <class T>
  void learn_what_comes(const T& clock, double factor) {
    around_.on_their_way.clear();
    around_.cold_of.clear();
    rereads_.clear();
    const double rounds = std::max(1.0, time_.waves);
    const auto live = memory_.live();
    std::map<std::uint64_t, double> parts;
    double all = clock.written_bytes * factor / rounds;
    for (const auto& [address, bytes] : clock.read_bytes) {
      const auto size = live.find(address);
      const auto together = sharers_.find(address);
      if (size == live.end() || together == sharers_.end()) continue;
      parts[address] = std::min(static_cast<double>(size->second), bytes * factor / rounds / together->second);
      all += 2 * parts[address];
      if (rounds > 1 || bytes <= 0) continue;
      const double part = std::min(1.0, static_cast<double>(size->second) * together->second / (bytes * factor));
      const auto begin = static_cast<double>(std::min(clusters_, at_once_) * cluster_size_);
      around_.cold_of[address] = {part * bytes * factor / begin, part};
    }
    for (const auto& [address, part] : parts) {
      constexpr double kWhole = 0.7;
      const bool is_again = rounds > 1 && part > kWhole * static_cast<double>(live.at(address));
      if (is_again && all > gpu_.l2_bytes) rereads_[address] = rounds;
      constexpr double kTogether = 2;
      if (sharers_.at(address) >= kTogether && (!is_again || all > gpu_.l2_bytes)) around_.on_their_way.insert(address);
    }
  }

  template <class T>
  void take_traffic(const T& clock, double factor) {
    if (options_.skips_values) learn_what_comes(clock, factor);
    LaunchTime& time = time_;
    time.global_read_bytes = clock.read_total * factor;
    time.global_written_bytes = clock.written_bytes * factor;
    time.hbm_bytes = time.global_written_bytes;
    const std::map<std::uint64_t, std::uint64_t> live = memory_.live();
    for (const auto& [address, bytes] : clock.read_bytes) {
      const auto size = live.find(address);
      const double all = bytes * factor;
      const auto again = rereads_.find(address);
      const double times = again != rereads_.end() ? again->second : 1;
      const double unique = size == live.end() ? all : std::min(all, times * static_cast<double>(size->second));
      around_.miss_of[address] = all > 0 ? unique / all : 1;
      // Fewer multiprocessors than all leave each a larger part.
      const auto together = sharers_.find(address);
      const double sharers = together != sharers_.end() ? together->second : unique > 0 ? all / unique : 1;
      if (!gpu_.l2_by_sharers.points.empty() && unique > 0) read_by_[address] = std::min(around_.active_sms, sharers);
      time.hbm_bytes += unique;
    }
    take_rates();
  }

  // What the L2 gives each multiprocessor of an allocation. What several of a GPC read at the same time it reads once
  // for them, as long as they are in step: they begin so, and drift apart (fed.cu drift).
  void take_rates() {
    for (const auto& [address, sharers] : read_by_) {
      double rate = gpu_.l2_by_sharers.at(sharers);
      const auto found = neighbours_.find(address);
      if (!gpu_.l2_in_step_after.points.empty() && sharers >= 2 && found != neighbours_.end()) {
        const double most = std::min(found->second, gpu_.l2_neighbours);
        const double at_once = 1 + (most - 1) * gpu_.in_step_after(expected_cycles_);
        rate = std::max(rate, 1 / (1 / (gpu_.l2_distinct * at_once) + 1 / gpu_.l2_each));
      }
      around_.rate_of[address] = rate * gpu_.sms / around_.active_sms;
    }
  }

  // What was written before the launch goes to the memory when reads displace it, as many bytes at least as the kernel
  // writes: these take the place of others, and are in the L2 at its end.
  void take_displaced() {
    const double written = time_.global_written_bytes, read = time_.hbm_bytes - written;
    const double displaced = gpu_.displaced_by(read);
    time_.hbm_bytes = read + std::max(written, displaced);
    if (read > 0) around_.hbm_factor = 1 + std::max(0.0, displaced - written) / read;
    around_.hbm_bytes_per_us = memory_rate();
    around_.hbm_written = time_.hbm_bytes > 0 ? 1 - read / time_.hbm_bytes : 0;
  }

  /// Bytes a microsecond; where it writes, too, the memory turns round.
  double memory_rate() const {
    const double written = time_.hbm_bytes > 0 ? time_.global_written_bytes / time_.hbm_bytes : 0;
    return gpu_.hbm_bytes_per_us - (gpu_.hbm_bytes_per_us - gpu_.hbm_mixed_bytes_per_us) * std::min(1.0, 2 * written);
  }

  /// Of the whole grid: bytes that nobody can move faster.
  double cycles_of_memory() const { return time_.hbm_bytes / memory_rate() * gpu_.clock_mhz * around_.clock_part; }

  SampledLaunch run_all() {
    SampledLaunch part = simulate({0, clusters_}, gpu_.sms, true);
    take_traffic(*part.clock, 1);
    time_.cycles = part.sample.cycles;
    time_.samples.push_back(part.sample);
    return part;
  }

  SampledLaunch run_samples() {
    const bool is_one_wave = clusters_ <= resident_;
    const std::uint64_t together =
        std::min<std::uint64_t>(static_cast<std::uint64_t>(per_sm_), (clusters_ + at_once_ - 1) / at_once_);
    const std::uint64_t wanted = is_one_wave ? 4 : 9;
    row_ = shape_.grid[0] / shape_.cluster[0];
    goes_by_row_ = !is_one_wave && together < row_ && row_ >= wanted && clusters_ > row_;
    const std::vector<std::uint64_t> starts =
        is_one_wave ? places_of_samples(std::min(clusters_, at_once_), 1, wanted, 0)
                    : places_of_samples(clusters_, together, wanted, goes_by_row_ ? row_ : 0);
    const auto beginning_at = [&](std::uint64_t start) {
      return is_one_wave ? dealt_with(start) : ClusterRange{start, std::min(together, clusters_ - start)};
    };
    LaunchTime& time = time_;
    SampledLaunch steady;
    double most = 0, unwritten = 0;  // with what the L2 has not taken when the warps have ended; of the last sample
    observes_ = false;
    learn_clock(beginning_at(starts[starts.size() / 2]));
    const auto look_at = [&](std::uint64_t start) {
      SampledLaunch part = simulate(beginning_at(start));
      time.samples.push_back(part.sample);
      unwritten = part.clock->unwritten();
      most = std::max(most, part.sample.cycles + unwritten);
      if (!steady.clock || part.sample.cycles > steady.sample.cycles) steady = std::move(part);
    };
    for (std::size_t i = 0; i < starts.size() && !has_failed(); ++i) {
      observes_ = i == starts.size() / 2;
      look_at(starts[i]);
    }
    observes_ = false;
    for (int round = 0; is_one_wave && round < 2 && !has_failed(); ++round)
      for (const std::uint64_t start : beside_longest(time.samples)) look_at(start);
    if (has_failed()) return steady;
    constexpr double kMatters = 0.05;
    if (is_one_wave) {
      time.cycles = most;
    } else if ((together > 1 || unwritten > kMatters * steady.sample.cycles) && are_alike(time.samples)) {
      time.cycles = in_a_stream();
    } else {
      time.cycles =
          unwritten + cycles_in_waves(time.samples, clusters_, resident_, goes_by_row_ ? row_ : 0, gpu_.cta_start);
    }
    if (is_one_wave || is_stream_) learn_alone(beginning_at(steady.sample.cluster));
    return steady;
  }

  // What the same takes with a memory that is never busy, where it matters.
  void learn_alone(const ClusterRange& longest) {
    constexpr double kMatters = 0.4;
    if (has_failed() || gpu_.hbm_sharpness <= 0 || cycles_of_memory() < kMatters * time_.cycles) return;
    constexpr double kFast = 100;
    around_.hbm_bytes_per_us *= kFast;
    alone_ = is_stream_ ? in_a_stream() : simulate(longest).sample.cycles;
    around_.hbm_bytes_per_us /= kFast;
  }

  // But for what those of the first round, which are cold, take more: what the first cluster does.
  bool are_alike(const std::vector<SampleTime>& samples) {
    if (differ_by_little(samples, resident_, 0)) return true;
    runs_warm_ = true;
    const SampleTime& cold = samples.front();
    const auto count = static_cast<std::uint64_t>(cold.clusters);
    const SampledLaunch warm = simulate({cold.cluster, count});
    runs_warm_ = false;
    return differ_by_little(samples, resident_, cold.cycles - warm.sample.cycles);
  }

  // Of clusters that are alike, several on a multiprocessor: each begins when one of them has ended, so that they drift
  // apart, and a last round that is not full does not take as long as a full one. What one multiprocessor has of the
  // grid runs as it is; of more than a few rounds the last ones tell what each further cluster takes.
  double in_a_stream() {
    const bool is_first = !std::exchange(is_stream_, true);
    const double mean = static_cast<double>(clusters_) / static_cast<double>(at_once_);
    const auto each = static_cast<std::uint64_t>(std::ceil(mean));
    const auto round = static_cast<std::uint64_t>(per_sm_);
    constexpr std::uint64_t kRounds = 4;
    // Multiprocessors that have one less leave the others their part of the rates.
    if (is_first && each <= kRounds * round) {
      around_.active_sms *= mean / static_cast<double>(each);
      take_rates();
    }
    const auto run = [&](std::uint64_t count) {
      const SampledLaunch some = simulate({0, count});
      return some.sample.cycles + some.clock->unwritten();
    };
    if (each <= kRounds * round) return run(each);
    const double shorter = run((kRounds - 1) * round), longer = run(kRounds * round);
    return longer + (longer - shorter) / static_cast<double>(round) * (mean - static_cast<double>(kRounds * round));
  }

  // How busy tensor cores are decides the clock, and the clock how fast the L2 is in its cycles: by one run more. And
  // multiprocessors that read the same drift apart, the further the longer it takes (fed.cu drift): by another one.
  void learn_clock(const ClusterRange& some) {
    constexpr double kMatters = 0.5;
    const bool is_by_time = !gpu_.l2_in_step_after.points.empty();
    for (int run = 0; run < (is_by_time ? 2 : 1) && !has_failed(); ++run) {
      const SampledLaunch part = simulate(some);
      expected_cycles_ = std::max(1.0, std::ceil(time_.waves)) * part.sample.cycles;
      around_.clock_part = loaded_clock(*part.clock, expected_cycles_ / gpu_.clock_mhz) / gpu_.clock_mhz;
      if (is_by_time) take_rates();
      if (part.clock->l2_load() < kMatters) break;
    }
  }

  void name_limit() {
    LaunchTime& time = time_;
    const double memory_cycles = cycles_of_memory();
    // Before the first bytes have come it does nothing.
    const double first = time.global_read_bytes > 0 ? gpu_.first_access + gpu_.hbm_latency : 0;
    time.cycles = softened(std::max(time.cycles, first + memory_cycles), alone_, memory_cycles, gpu_.hbm_sharpness);
    for (UnitTime& unit : time.units)
      if (unit.name == "memory") unit.busy = std::max(unit.busy, time.cycles > 0 ? memory_cycles / time.cycles : 0);
    const auto is_less = [](const UnitTime& a, const UnitTime& b) { return a.busy < b.busy; };
    const auto most = std::max_element(time.units.begin(), time.units.end(), is_less);
    if (most == time.units.end()) return;
    time.limit = most->name;
    constexpr double kBinds = 0.6;
    if (most->busy >= kBinds) return;
    // No unit is near its rate: what the busiest warps wait for.
    const RoleTime* busiest = nullptr;
    for (const RoleTime& role : time.roles)
      if (busiest == nullptr || role.instructions > busiest->instructions) busiest = &role;
    if (busiest == nullptr || busiest->waits.empty()) return;
    const auto wait = std::max_element(busiest->waits.begin(), busiest->waits.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    time.limit = fmt::format("latency: {}", wait->first);
  }

  const GpuTime& gpu_;
  const Program& program_;
  const Entry& entry_;
  GlobalMemory& memory_;
  const LaunchShape& shape_;
  const LaunchOptions& options_;
  const std::vector<std::byte>& parameters_;
  TimedResult& result_;
  LaunchTime& time_;
  std::uint64_t clusters_, cluster_size_;
  std::uint64_t at_once_;  ///< clusters, one CTA a multiprocessor
  int per_sm_;
  std::uint64_t resident_;  ///< clusters, as many CTAs a multiprocessor as fit
  TileCounters counters_;
  bool observes_ = true;
  bool is_stream_ = false;                        ///< clusters are alike, and run one after the other
  bool runs_warm_ = false;                        ///< the first round, too
  std::uint64_t row_ = 1;                         ///< clusters of a row of the grid
  bool goes_by_row_ = false;                      ///< samples differ by their place in a row
  std::map<std::uint64_t, double> sharers_{};     ///< by allocation
  std::map<std::uint64_t, double> neighbours_{};  ///< the same, of one GPC
  std::map<std::uint64_t, double> read_by_{};     ///< by allocation: multiprocessors that read the same, for its rate
  std::map<std::uint64_t, double> rereads_{};  ///< how often an allocation comes from the memory, where more than once
  double expected_cycles_ = 0;
  double alone_ = 0;  ///< cycles with a memory that is never busy; 0: it does not matter
  Surroundings around_;
};

}  // namespace

TimedResult run_on_clock(const GpuTime& gpu, const Program& program, const Entry& entry, GlobalMemory& memory,
                         const LaunchShape& shape, const LaunchOptions& options,
                         const std::vector<std::byte>& parameters, bool skips_values, std::vector<LaunchTime>& times) {
  TimedResult result;
  LaunchOptions own = options;
  own.skips_values = skips_values;
  LaunchTime time;
  // More shared memory than a kernel has without asking for it is taken from the L1, which costs the launch.
  constexpr double kGiven = 48 * 1024;
  const double launch_us = cta_shared_bytes(entry, shape) > kGiven ? gpu.launch_us : gpu.plain_launch_us;
  time.launch_us = times.empty() ? launch_us : gpu.next_launch_us;
  Grid(gpu, program, entry, memory, shape, own, parameters, result, time).run();
  times.push_back(std::move(time));
  return result;
}

}  // namespace tessera::emulator
