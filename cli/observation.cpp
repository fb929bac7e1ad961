#include "cli/observation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "base/file.h"
#include "cli/call.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

std::string count(std::uint64_t value) { return grouped(static_cast<std::int64_t>(value)); }

OrderedJson to_json(const emulator::AccessCounts& counts) {
  return {{"instructions", counts.instructions}, {"read_bytes", counts.read_bytes}, {"write_bytes", counts.write_bytes},
          {"wavefronts", counts.wavefronts},     {"conflicts", counts.conflicts},   {"sectors", counts.sectors}};
}

}  // namespace

Observation::File Observation::open(const std::string& name) {
  if (name.empty()) return {};
  const std::optional<int> descriptor = descriptor_named(name);
  const int copy = descriptor ? copy_for_writing(*descriptor) : -1;
  std::FILE* const file = !descriptor ? std::fopen(name.c_str(), "w") : copy < 0 ? nullptr : ::fdopen(copy, "w");
  if (file == nullptr)
    throw Error(ErrorKind::io, fmt::format("{}: cannot be opened for writing: {}", name, std::strerror(errno)));
  return {file, name};
}

void Observation::close(File& file) {
  if (file.file == nullptr) return;
  const bool was_written = std::ferror(file.file) == 0;
  const bool is_closed = std::fclose(std::exchange(file.file, nullptr)) == 0;
  if (!was_written || !is_closed)
    throw Error(ErrorKind::io, fmt::format("{}: could not be written in full", file.name));
}

Observation::Observation(const EmulatorFlags& flags) {
  trace_file_ = open(flags.trace);
  try {
    timeline_file_ = open(flags.timeline);
  } catch (...) {
    if (trace_file_.file != nullptr) std::fclose(trace_file_.file);
    throw;
  }
  if (flags.shows_statistics) list_.add((statistics_ = std::make_unique<emulator::StatisticsObserver>()).get());
  if (trace_file_.file != nullptr)
    list_.add((trace_ = std::make_unique<emulator::TraceObserver>(trace_file_.file)).get());
  if (timeline_file_.file != nullptr)
    list_.add((timeline_ = std::make_unique<emulator::TimelineObserver>(timeline_file_.file)).get());
}

Observation::~Observation() {
  for (const File& file : {trace_file_, timeline_file_})
    if (file.file != nullptr) std::fclose(file.file);
}

void Observation::finish() {
  if (timeline_file_.file != nullptr) timeline_->close();
  close(trace_file_);
  close(timeline_file_);
}

OrderedJson Observation::json() const {
  if (!statistics_) return nullptr;
  OrderedJson json{{"warp_instructions", statistics_->warp_instructions},
                   {"thread_instructions", statistics_->thread_instructions},
                   {"instructions", statistics_->instructions},
                   {"accesses", OrderedJson::object()},
                   {"matrix", OrderedJson::object()},
                   {"waits", OrderedJson::object()}};
  for (const auto& [name, counts] : statistics_->accesses) json["accesses"][name] = to_json(counts);
  for (const auto& [opcode, counts] : statistics_->matrix)
    json["matrix"][opcode] = {{"instructions", counts.instructions}, {"multiply_adds", counts.multiply_adds}};
  for (const auto& [barrier, counts] : statistics_->waits)
    json["waits"][barrier] = {{"waits", counts.waits}, {"total", counts.total}, {"longest", counts.longest}};
  json["asynchronous"] = {{"operations", statistics_->async_operations},
                          {"global_read_bytes", statistics_->async_bytes.global_read},
                          {"global_written_bytes", statistics_->async_bytes.global_written},
                          {"shared_read_bytes", statistics_->async_bytes.shared_read},
                          {"shared_written_bytes", statistics_->async_bytes.shared_written}};
  return json;
}

std::string Observation::text() const {
  if (!statistics_) return {};
  std::string text = fmt::format("  statistics: {} warp instructions, {} thread instructions\n",
                                 count(statistics_->warp_instructions), count(statistics_->thread_instructions));
  std::vector<std::pair<std::string, std::uint64_t>> groups(statistics_->instructions.begin(),
                                                            statistics_->instructions.end());
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [name, executions] : groups) text += fmt::format("    {:>14}  {}\n", count(executions), name);
  for (const auto& [name, c] : statistics_->accesses) {
    text += fmt::format("    {}: {} bytes read, {} written", name, count(c.read_bytes), count(c.write_bytes));
    if (c.wavefronts > 0)
      text += fmt::format(", {} wavefronts, {} of them bank conflicts", count(c.wavefronts), count(c.conflicts));
    if (c.sectors > 0) text += fmt::format(", {} sectors of 32 bytes", count(c.sectors));
    text += "\n";
  }
  for (const auto& [opcode, c] : statistics_->matrix)
    text +=
        fmt::format("    {}: {} by warps, {} multiply-adds\n", opcode, count(c.instructions), count(c.multiply_adds));
  const emulator::AsyncBytes& bytes = statistics_->async_bytes;
  text += fmt::format("    asynchronous: {} operations; global {} bytes read, {} written; shared {} read, {} written\n",
                      count(statistics_->async_operations), count(bytes.global_read), count(bytes.global_written),
                      count(bytes.shared_read), count(bytes.shared_written));
  for (const auto& [barrier, c] : statistics_->waits)
    text += fmt::format("    waits for {}: {}, {} instructions of others in all, {} at most\n", barrier, count(c.waits),
                        count(c.total), count(c.longest));
  return text;
}

}  // namespace tessera::cli
