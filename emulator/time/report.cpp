#include "emulator/time/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tessera::emulator {
namespace {

double rounded(double value, double unit) { return std::round(value / unit) * unit; }

OrderedJson kernel_json(const LaunchTime& time) {
  OrderedJson json{{"entry", time.entry},
                   {"time_us", rounded(time.microseconds, 0.001)},
                   {"launch_us", rounded(time.launch_us, 0.001)},
                   {"cycles", std::round(time.cycles)},
                   {"clock_mhz", time.clock_mhz},
                   {"limit", time.limit},
                   {"clusters", time.clusters},
                   {"ctas_per_sm", time.ctas_per_sm},
                   {"waves", rounded(time.waves, 0.001)},
                   {"simulated", time.is_whole ? "all" : "samples"},
                   {"global_read_bytes", std::round(time.global_read_bytes)},
                   {"global_written_bytes", std::round(time.global_written_bytes)},
                   {"memory_bytes", std::round(time.hbm_bytes)},
                   {"samples", OrderedJson::array()},
                   {"roles", OrderedJson::array()},
                   {"units", OrderedJson::object()}};
  for (const SampleTime& sample : time.samples)
    json["samples"].push_back(
        {{"cluster", sample.cluster}, {"clusters", sample.clusters}, {"cycles", std::round(sample.cycles)}});
  for (const RoleTime& role : time.roles) {
    OrderedJson waits = OrderedJson::object();
    for (const auto& [name, cycles] : role.waits) waits[name] = std::round(cycles);
    json["roles"].push_back({{"first_warp", role.first_warp},
                             {"last_warp", role.last_warp},
                             {"instructions", std::round(role.instructions)},
                             {"cycles", std::round(role.cycles)},
                             {"waits", std::move(waits)}});
  }
  for (const UnitTime& unit : time.units) json["units"][unit.name] = rounded(unit.busy, 0.001);
  if (time.registers != 0) json["registers"] = time.registers;
  if (time.spill_bytes >= 0) json["spill_bytes"] = time.spill_bytes;
  return json;
}

}  // namespace

double total_microseconds(const std::vector<LaunchTime>& kernels) {
  double sum = 0;
  for (const LaunchTime& kernel : kernels) sum += kernel.microseconds;
  return sum;
}

OrderedJson time_json(const std::vector<LaunchTime>& kernels) {
  OrderedJson json{{"gpu", kernels.empty() ? "" : kernels.front().gpu},
                   {"time_us", rounded(total_microseconds(kernels), 0.001)},
                   {"kernels", OrderedJson::array()}};
  for (const LaunchTime& kernel : kernels) json["kernels"].push_back(kernel_json(kernel));
  return json;
}

std::string time_text(const std::vector<LaunchTime>& kernels) {
  std::string text;
  for (const LaunchTime& time : kernels) {
    text +=
        fmt::format("  predicted on {}: {:.1f} us = {:.0f} cycles at {:.0f} MHz and {:.1f} us of launch; limit: {}\n",
                    time.gpu, time.microseconds, time.cycles, time.clock_mhz, time.launch_us, time.limit);
    if (time.is_whole) {
      text += fmt::format("    all {} clusters simulated\n", time.clusters);
    } else {
      text += fmt::format("    {} clusters, {:.2f} waves of {} CTAs a multiprocessor; simulated:", time.clusters,
                          time.waves, time.ctas_per_sm);
      for (const SampleTime& sample : time.samples) text += fmt::format(" {} ({:.0f})", sample.cluster, sample.cycles);
      text += " cycles; the others are extrapolated\n";
    }
    if (time.registers != 0) text += fmt::format("    machine code: {} registers a thread", time.registers);
    if (time.registers != 0 && time.spill_bytes > 0)
      text += fmt::format(", {} bytes of spills, which the time has not", time.spill_bytes);
    if (time.registers != 0) text += time.spill_bytes == 0 ? ", no spills\n" : "\n";
    text += "    busy:";
    for (const UnitTime& unit : time.units)
      if (unit.busy >= 0.005) text += fmt::format(" {} {:.0f} %,", unit.name, 100 * unit.busy);
    text.back() = '\n';
    for (const RoleTime& role : time.roles) {
      text += fmt::format("    warps {}..{}: {:.0f} instructions, {:.0f} cycles:", role.first_warp, role.last_warp,
                          role.instructions, role.cycles);
      for (const auto& [name, cycles] : role.waits)
        if (cycles >= 0.005 * role.cycles)
          text += fmt::format(" {} {:.0f} %,", name, 100 * cycles / std::max(role.cycles, 1.0));
      text.back() = '\n';
    }
  }
  return text;
}

}  // namespace tessera::emulator
