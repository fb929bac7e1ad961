#include "emulator/time/gpu_time.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "tessera/error.h"

namespace tessera::emulator {
namespace {

using Json = nlohmann::json;

constexpr const char* kPipeNames[kPipes] = {"none",   "fma",    "alu",           "mufu",
                                            "memory", "branch", "tensor memory", "tensor core"};

class Reader {
 public:
  Reader(const Json& json, const std::string& file) : json_(json), file_(file) {}

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::usage, fmt::format("{}: {}", file_, what));
  }
  const Json& object(const Json& in, const std::string& path, const std::string& key) const {
    if (!in.is_object() || !in.contains(key)) refuse(fmt::format("{}{} is missing", path, key));
    return in.at(key);
  }
  /// {"value": 3, "source": "...", "certainty": "measured"}
  double number(const Json& in, const std::string& path) const {
    const Json& value = object(in, path + ".", "value");
    const Json& source = object(in, path + ".", "source");
    const Json& certainty = object(in, path + ".", "certainty");
    if (!value.is_number()) refuse(path + ".value: must be a number");
    if (!source.is_string() || source.get<std::string>().empty()) refuse(path + ".source: must say where it is from");
    const std::string word = certainty.is_string() ? certainty.get<std::string>() : "";
    if (word != "measured" && word != "published" && word != "inferred")
      refuse(path + ".certainty: must be measured, published or inferred");
    const double found = value.get<double>();
    if (!(found >= 0)) refuse(fmt::format("{}.value = {}: must not be negative", path, found));
    return found;
  }
  double leaf(const std::string& section, const std::string& key) const {
    return number(object(object(json_, "", section), section + ".", key), section + "." + key);
  }
  const Json& root() const { return json_; }

 private:
  const Json& json_;
  const std::string& file_;
};

// "RTX 5090" and "rtx5090" are one.
std::string plain(std::string_view text) {
  std::string name;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

void read_classes(const Reader& reader, GpuTime& gpu) {
  for (const auto& [name, json] : reader.object(reader.root(), "", "classes").items()) {
    const std::string path = "classes." + name;
    ClassTime time;
    const Json& pipe = reader.object(json, path + ".", "pipe");
    const auto* const found = std::find_if(std::begin(kPipeNames), std::end(kPipeNames),
                                           [&](const char* known) { return pipe.is_string() && pipe == known; });
    if (found == std::end(kPipeNames))
      reader.refuse(fmt::format("{}.pipe: must be {}", path, fmt::join(kPipeNames, ", ")));
    time.pipe = static_cast<Pipe>(found - std::begin(kPipeNames));
    time.interval = reader.number(reader.object(json, path + ".", "interval"), path + ".interval");
    time.latency = reader.number(reader.object(json, path + ".", "latency"), path + ".latency");
    if (json.contains("slots")) time.slots = reader.number(json.at("slots"), path + ".slots");
    if (json.contains("beside")) time.beside = reader.number(json.at("beside"), path + ".beside");
    if (json.contains("holds_warp")) time.holds_warp = reader.number(json.at("holds_warp"), path + ".holds_warp") != 0;
    gpu.classes[name] = time;
  }
  if (!gpu.classes.contains("other")) reader.refuse("classes.other is missing");
}

IntervalTable read_table(const Reader& reader, const Json& json, const std::string& path) {
  IntervalTable table;
  for (const auto& [at, value] : json.items())
    table.points.emplace_back(std::stod(at), reader.number(value, path + "." + at));
  if (table.points.empty()) reader.refuse(path + ": must have a point");
  std::sort(table.points.begin(), table.points.end());
  return table;
}

void read_wgmma(const Reader& reader, GpuTime& gpu) {
  if (!reader.root().contains("wgmma")) return;
  for (const auto& [form, json] : reader.object(reader.root().at("wgmma"), "wgmma.", "intervals").items()) {
    const std::string path = "wgmma.intervals." + form;
    gpu.wgmma[form] = read_table(reader, reader.object(json, path + ".", "by_n"), path + ".by_n");
  }
  gpu.wgmma_tail = reader.leaf("wgmma", "tail");
  gpu.wgmma_issue = reader.leaf("wgmma", "issue");
  const Json& json = reader.root().at("wgmma");
  if (!json.contains("beside")) return;
  for (const auto& [key, value] : json.at("beside").items()) {
    const auto* const found = std::find(std::begin(kPipeNames), std::end(kPipeNames), key);
    if (found == std::end(kPipeNames)) reader.refuse(fmt::format("wgmma.beside.{}: no such pipe", key));
    gpu.beside_wgmma[static_cast<std::size_t>(found - std::begin(kPipeNames))] =
        reader.number(value, "wgmma.beside." + key);
  }
}

void read_tcgen05(const Reader& reader, GpuTime& gpu) {
  const bool has_it = gpu.arch.starts_with("sm_100") || gpu.arch.starts_with("sm_103");
  if (!has_it && !reader.root().contains("tcgen05")) return;
  for (const auto& [form, json] :
       reader.object(reader.object(reader.root(), "", "tcgen05"), "tcgen05.", "forms").items()) {
    const std::string path = "tcgen05.forms." + form;
    const auto number = [&](const char* key) {
      return reader.number(reader.object(json, path + ".", key), path + "." + key);
    };
    gpu.tcgen05[form] = {number("per_n"), number("operands"), number("operands_per_n"), number("latency")};
  }
  if (gpu.tcgen05.empty()) reader.refuse("tcgen05.forms: must have a form");
  gpu.tcgen05_copy = reader.leaf("tcgen05", "copy");
}

void read_mma(const Reader& reader, GpuTime& gpu) {
  if (!reader.root().contains("mma")) return;
  for (const auto& [form, json] : reader.root().at("mma").items()) {
    const std::string path = "mma." + form;
    const auto number = [&](const char* key) {
      return reader.number(reader.object(json, path + ".", key), path + "." + key);
    };
    gpu.mma[form] = {number("flop_per_clock"), number("latency")};
    if (gpu.mma[form].flop_per_clock <= 0) reader.refuse(path + ".flop_per_clock: must be more than 0");
  }
}

}  // namespace

const char* to_string(Pipe pipe) { return kPipeNames[static_cast<std::size_t>(pipe)]; }

double IntervalTable::at(double n) const {
  if (points.size() == 1 || n <= points.front().first) return points.front().second;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto [n0, t0] = points[i - 1];
    const auto [n1, t1] = points[i];
    if (n <= n1 || i + 1 == points.size()) return t0 + (t1 - t0) * (n - n0) / (n1 - n0);
  }
  return points.back().second;
}

const ClassTime& GpuTime::class_of(const std::string& class_name) const {
  const auto found = classes.find(class_name);
  return found == classes.end() ? classes.at("other") : found->second;
}

double GpuTime::part_of_mma() const {
  const auto found = mma.find("f16");
  double all = 0;  // operations a cycle: 128 or 64 rows, N columns, K = 16
  if (const auto form = tcgen05.find("cg1 m128 smem"); form != tcgen05.end()) all = 2 * 128 * 16 / form->second.per_n;
  if (const auto form = wgmma.find("bf16 SS"); form != wgmma.end()) all = 2 * 64 * 16 * 256 / form->second.at(256);
  return found == mma.end() || all <= 0 ? 1 : std::min(1.0, found->second.flop_per_clock / all);
}

const TensorForm& GpuTime::tcgen05_form(int ctas, int m, bool a_in_tmem) const {
  const auto named = [&](int rows) {
    return tcgen05.find(fmt::format("cg{} m{} {}", ctas, rows, a_in_tmem ? "tmem" : "smem"));
  };
  constexpr int kMostRows = 256;
  for (int rows = m; rows <= kMostRows; rows *= 2)
    if (const auto found = named(rows); found != tcgen05.end()) return found->second;
  return tcgen05.rbegin()->second;
}

double GpuTime::clusters_at_once(int ctas) const {
  const auto found = clusters_of.find(ctas);
  return found != clusters_of.end() ? found->second : std::max(1, sms / ctas);
}

double GpuTime::displaced_by(double read) const {
  if (displaced.points.empty()) return std::min(dirty_bytes, displaced_part * read);
  const auto& [first, by_first] = displaced.points.front();
  return read < first ? by_first * read / first : displaced.at(std::min(read, displaced.points.back().first));
}

// Straight lines over the logarithm of time.
double GpuTime::in_step_after(double cycles) const {
  const auto& points = l2_in_step_after.points;
  if (cycles <= points.front().first) return points.front().second;
  for (std::size_t i = 1; i < points.size(); ++i) {
    const auto [t0, part0] = points[i - 1];
    const auto [t1, part1] = points[i];
    if (cycles <= t1) return part0 + (part1 - part0) * std::log(cycles / t0) / std::log(t1 / t0);
  }
  return points.back().second;
}

// Any work of tensor cores lowers the clock at once, random numbers and time lower it more.
double GpuTime::clock_at(double tensor_busy, double part_of_8_bit, double microseconds) const {
  if (tensor_busy <= 0) return clock_mhz;
  const double of_8_bit = 1 - (1 - clock_loaded_8_bit_mhz / clock_loaded_mhz) * part_of_8_bit * tensor_busy;
  if (clock_by_tensor.points.empty()) return clock_mhz - (clock_mhz - clock_loaded_mhz * of_8_bit) * tensor_busy;
  const auto at = [&](const IntervalTable& table) {
    return table.at(std::clamp(tensor_busy, table.points.front().first, table.points.back().first));
  };
  const double soon = at(clock_by_tensor);
  if (clock_by_tensor_long.points.empty()) return soon * of_8_bit;
  constexpr double kSoon = 100, kLong = 1000;  // microseconds
  const double part = std::clamp(std::log(std::max(1.0, microseconds) / kSoon) / std::log(kLong / kSoon), 0.0, 1.0);
  return (soon + (std::min(soon, at(clock_by_tensor_long)) - soon) * part) * of_8_bit;
}

GpuTime read_gpu_time(std::string_view text, const std::string& file) {
  const Json json = Json::parse(text, nullptr, false);
  const Reader reader(json, file);
  if (json.is_discarded()) reader.refuse("is not JSON");
  GpuTime gpu;
  gpu.beside_wgmma.fill(1);
  const auto word = [&](const char* key) {
    const Json& value = reader.object(json, "", key);
    if (!value.is_string()) reader.refuse(fmt::format("{}: must be a string", key));
    return value.get<std::string>();
  };
  gpu.name = word("name");
  gpu.arch = word("arch");
  gpu.sms = static_cast<int>(reader.leaf("sm", "count"));
  gpu.clock_mhz = reader.leaf("sm", "clock_mhz");
  gpu.clock_loaded_mhz = reader.leaf("sm", "clock_loaded_mhz");
  gpu.clock_loaded_8_bit_mhz = gpu.clock_loaded_mhz;
  if (json.at("sm").contains("clock_loaded_8_bit_mhz"))
    gpu.clock_loaded_8_bit_mhz = reader.leaf("sm", "clock_loaded_8_bit_mhz");
  for (auto& [key, table] : {std::pair("clock_by_tensor_core", &gpu.clock_by_tensor),
                             std::pair("clock_by_tensor_core_1_ms", &gpu.clock_by_tensor_long)})
    if (json.at("sm").contains(key)) *table = read_table(reader, json.at("sm").at(key), fmt::format("sm.{}", key));
  if (json.at("sm").contains("clusters_at_once"))
    for (const auto& [ctas, count] :
         read_table(reader, json.at("sm").at("clusters_at_once"), "sm.clusters_at_once").points)
      gpu.clusters_of[static_cast<int>(ctas)] = count;
  gpu.sub_cores = static_cast<int>(reader.leaf("sm", "sub_cores"));
  if (json.at("sm").contains("in_turn")) gpu.warps_take_turns = reader.leaf("sm", "in_turn") != 0;
  gpu.warps_per_sm = static_cast<int>(reader.leaf("sm", "warps"));
  gpu.registers_per_sm = static_cast<int>(reader.leaf("sm", "registers"));
  gpu.ctas_per_sm = static_cast<int>(reader.leaf("sm", "ctas"));
  gpu.smem_per_sm = reader.leaf("sm", "shared_bytes");
  gpu.smem_per_cta_reserved = reader.leaf("sm", "shared_bytes_of_cta");
  if (gpu.sms < 1 || gpu.clock_mhz <= 0 || gpu.clock_loaded_mhz <= 0 || gpu.sub_cores < 1)
    reader.refuse("sm: count, clock and sub_cores from 1 on");
  if (gpu.warps_per_sm < 1 || gpu.registers_per_sm < 1 || gpu.ctas_per_sm < 1)
    reader.refuse("sm: warps, registers and ctas from 1 on");
  gpu.launch_us = reader.leaf("launch", "empty_us");
  gpu.plain_launch_us = json.at("launch").contains("plain_us") ? reader.leaf("launch", "plain_us") : gpu.launch_us;
  if (json.at("launch").contains("cta_interval")) gpu.cta_interval = reader.leaf("launch", "cta_interval");
  gpu.next_launch_us = reader.leaf("launch", "next_us");
  gpu.dirty_bytes = reader.leaf("launch", "dirty_bytes");
  gpu.displaced_part = reader.leaf("launch", "displaced_part");
  if (json.at("launch").contains("displaced"))
    gpu.displaced = read_table(reader, json.at("launch").at("displaced"), "launch.displaced");
  gpu.cold_line = reader.leaf("launch", "cold_line");
  if (json.at("launch").contains("first_access")) gpu.first_access = reader.leaf("launch", "first_access");
  gpu.cta_start = reader.leaf("launch", "cta_start");
  gpu.smem_bytes_per_clock = reader.leaf("shared", "bytes_per_clock");
  gpu.smem_latency = reader.leaf("shared", "latency");
  if (json.at("shared").contains("queue")) gpu.smem_queue = static_cast<int>(reader.leaf("shared", "queue"));
  gpu.l1_bytes = reader.leaf("l1", "bytes");
  gpu.l1_latency = reader.leaf("l1", "latency");
  gpu.l1_sets = static_cast<int>(reader.leaf("l1", "sets"));
  gpu.l1_store_line = reader.leaf("l1", "store_line");
  gpu.l1_store_part = reader.leaf("l1", "store_part");
  for (auto [key, value] : {std::pair("wavefront_of_warp", &gpu.l1_wavefront_of_warp),
                            std::pair("copy_of_warp", &gpu.l1_copy_of_warp), std::pair("copy", &gpu.l1_copy)})
    if (json.at("l1").contains(key)) *value = reader.leaf("l1", key);
  if (gpu.l1_sets < 1) reader.refuse("l1.sets: from 1 on");
  gpu.tma_issue = reader.leaf("tma", "issue");
  if (json.at("tma").contains("prefetch_issue")) gpu.tma_prefetch_issue = reader.leaf("tma", "prefetch_issue");
  gpu.tma_bytes_per_clock = reader.leaf("tma", "bytes_per_clock");
  gpu.tma_least = reader.leaf("tma", "least");
  if (json.at("tma").contains("row")) gpu.tma_row = reader.leaf("tma", "row");
  if (json.at("tma").contains("split_row"))
    gpu.tma_split_row = read_table(reader, json.at("tma").at("split_row"), "tma.split_row");
  gpu.tma_first_use = reader.leaf("tma", "first_use");
  gpu.tma_latency_l2 = reader.leaf("tma", "latency_l2");
  gpu.tma_latency_hbm = reader.leaf("tma", "latency_hbm");
  gpu.tma_store_bytes_per_clock = reader.leaf("tma", "store_bytes_per_clock");
  gpu.tma_store_read_latency = reader.leaf("tma", "store_read_latency");
  gpu.tma_store_latency = reader.leaf("tma", "store_latency");
  gpu.l2_bytes = reader.leaf("l2", "bytes");
  gpu.l2_latency = reader.leaf("l2", "latency");
  if (json.at("l2").contains("tail")) gpu.l2_tail = reader.leaf("l2", "tail");
  gpu.l2_bytes_per_clock_sm = reader.leaf("l2", "bytes_per_clock_of_one_sm");
  gpu.l2_bytes_per_clock = reader.leaf("l2", "bytes_per_clock");
  if (json.at("l2").contains("by_sharers"))
    gpu.l2_by_sharers = read_table(reader, json.at("l2").at("by_sharers"), "l2.by_sharers");
  if (json.at("l2").contains("in_step_after")) {
    gpu.l2_in_step_after = read_table(reader, json.at("l2").at("in_step_after"), "l2.in_step_after");
    gpu.l2_distinct = reader.leaf("l2", "distinct_bytes_per_clock");
    gpu.l2_each = reader.leaf("l2", "each_bytes_per_clock");
    gpu.l2_neighbours = reader.leaf("l2", "neighbours");
    gpu.gpcs = static_cast<std::uint64_t>(reader.leaf("sm", "gpcs"));
    if (gpu.gpcs < 1) reader.refuse("sm.gpcs: from 1 on");
  }
  if (json.at("l2").contains("stored_bytes_per_clock_of_one_sm"))
    gpu.l2_stored_bytes_per_clock = reader.leaf("l2", "stored_bytes_per_clock_of_one_sm");
  if (json.at("l2").contains("lanes_wait")) gpu.l2_lanes_wait = reader.leaf("l2", "lanes_wait");
  if (json.at("l2").contains("of_multicast")) gpu.l2_of_multicast = reader.leaf("l2", "of_multicast");
  if (json.at("l2").contains("parts_per_clock")) gpu.l2_parts_per_clock = reader.leaf("l2", "parts_per_clock");
  gpu.port_bytes_per_clock = gpu.l2_bytes_per_clock_sm;
  if (json.at("l2").contains("port_bytes_per_clock"))
    gpu.port_bytes_per_clock = reader.leaf("l2", "port_bytes_per_clock");
  gpu.multicast_bytes_per_clock = gpu.port_bytes_per_clock;
  if (json.at("l2").contains("multicast_bytes_per_clock"))
    gpu.multicast_bytes_per_clock = reader.leaf("l2", "multicast_bytes_per_clock");
  gpu.hbm_latency = reader.leaf("hbm", "latency");
  if (json.at("hbm").contains("tail")) gpu.hbm_tail = reader.leaf("hbm", "tail");
  gpu.hbm_bytes_per_us = gpu.hbm_mixed_bytes_per_us = reader.leaf("hbm", "terabytes_per_second") * 1e6;
  if (json.at("hbm").contains("mixed_terabytes_per_second"))
    gpu.hbm_mixed_bytes_per_us = reader.leaf("hbm", "mixed_terabytes_per_second") * 1e6;
  for (auto [key, value] : {std::pair("behind", &gpu.hbm_behind), std::pair("behind_mixed", &gpu.hbm_behind_mixed),
                            std::pair("behind_copies", &gpu.tma_behind), std::pair("sharpness", &gpu.hbm_sharpness)})
    if (json.at("hbm").contains(key)) *value = reader.leaf("hbm", key);
  gpu.mbarrier_hand_off = reader.leaf("sync", "mbarrier_hand_off");
  gpu.barrier_base = reader.leaf("sync", "barrier_base");
  gpu.barrier_per_warp = reader.leaf("sync", "barrier_per_warp");
  gpu.cluster_barrier = reader.leaf("sync", "cluster_barrier");
  gpu.cluster_store = gpu.cluster_load = reader.leaf("sync", "cluster_store");
  if (json.at("sync").contains("cluster_load")) gpu.cluster_load = reader.leaf("sync", "cluster_load");
  gpu.cluster_bytes_per_clock = reader.leaf("sync", "cluster_bytes_per_clock");
  gpu.atomic_latency = reader.leaf("sync", "atomic");
  if (gpu.smem_bytes_per_clock <= 0 || gpu.tma_bytes_per_clock <= 0 || gpu.tma_store_bytes_per_clock <= 0 ||
      gpu.l2_bytes_per_clock_sm <= 0 || gpu.l2_bytes_per_clock <= 0 || gpu.hbm_bytes_per_us <= 0 ||
      gpu.hbm_mixed_bytes_per_us <= 0 || gpu.cluster_bytes_per_clock <= 0 || gpu.port_bytes_per_clock <= 0 ||
      gpu.multicast_bytes_per_clock <= 0)
    reader.refuse("a rate of bytes must be more than 0");
  if (json.contains("judged")) {
    gpu.judged.median_percent = reader.leaf("judged", "median_error_percent");
    gpu.judged.source = json.at("judged").at("median_error_percent").at("source").get<std::string>();
  }
  read_classes(reader, gpu);
  read_wgmma(reader, gpu);
  read_tcgen05(reader, gpu);
  read_mma(reader, gpu);
  return gpu;
}

int sms_of(const GpuTime& gpu) { return gpu.sms; }
const std::string& arch_of(const GpuTime& gpu) { return gpu.arch; }
const std::string& name_of(const GpuTime& gpu) { return gpu.name; }
PredictionError error_of(const GpuTime& gpu) { return gpu.judged; }

std::vector<std::string> gpu_time_names() {
  std::vector<std::string> names;
  for (const EmbeddedGpu& gpu : embedded_gpus()) names.emplace_back(gpu.name);
  return names;
}

std::shared_ptr<const GpuTime> find_gpu_time(const std::string& name_or_path) {
  for (const EmbeddedGpu& gpu : embedded_gpus())
    if (plain(gpu.name) == plain(name_or_path))
      return std::make_shared<const GpuTime>(read_gpu_time(gpu.text, std::string(gpu.name)));
  if (name_or_path.find('/') == std::string::npos && !name_or_path.ends_with(".json"))
    throw Error(ErrorKind::usage, fmt::format("--time {}: no such GPU: {}, or a JSON file", name_or_path,
                                              fmt::join(gpu_time_names(), ", ")));
  return std::make_shared<const GpuTime>(read_gpu_time(read_text(name_or_path), name_or_path));
}

}  // namespace tessera::emulator
