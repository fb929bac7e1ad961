#include "emulator/observers/timeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "emulator/machine.h"
#include "emulator/scheduler.h"

namespace tessera::emulator {
namespace {

const char* unit_of(std::string_view opcode) {
  if (opcode.starts_with("cp.async.bulk") || opcode.starts_with("cp.reduce.async.bulk")) return "TMA";
  if (opcode.starts_with("wgmma") || opcode.starts_with("tcgen05")) return "tensor core";
  return "copies";
}

/// Microseconds, as the format wants them.
std::string stamp(std::uint64_t time) { return fmt::format("{}.{:03}", time / 1000, time % 1000); }

std::uint64_t wait_key(const Warp& warp, const Instruction& in) {
  return reinterpret_cast<std::uintptr_t>(&warp) ^ (reinterpret_cast<std::uintptr_t>(&in) << 20);
}

const char* wait_name(Wait::Kind kind) {
  switch (kind) {
    case Wait::Kind::mbarrier:
      return "mbarrier";
    case Wait::Kind::cta_barrier:
      return "bar.sync";
    case Wait::Kind::cluster_barrier:
      return "barrier.cluster";
    case Wait::Kind::converge:
      return "other lanes";
    case Wait::Kind::wgmma_groups:
      return "wgmma.wait_group";
    case Wait::Kind::wgmma_issue:
      return "the warpgroup's other warps";
    case Wait::Kind::bulk_groups:
    case Wait::Kind::copy_groups:
      return "copies";
    case Wait::Kind::tensor_space:
      return "tcgen05.alloc";
    case Wait::Kind::tensor_pair:
      return "the peer CTA";
    default:
      return "other";
  }
}

}  // namespace

TimelineObserver::TimelineObserver(std::FILE* file) : file_(file) { put("{\"traceEvents\": ["); }

void TimelineObserver::close() { put("\n]}\n"); }

void TimelineObserver::put(std::string_view text) { std::fwrite(text.data(), 1, text.size(), file_); }

void TimelineObserver::write(const std::string& event) {
  if (num_events_ >= kMaxEvents) return;
  put(num_events_++ == 0 ? "\n" : ",\n");
  put(event);
}

std::uint64_t TimelineObserver::process_of(const std::array<std::uint32_t, 3>& cta, int warp) {
  const LaunchOptions& options = launch_->options;
  const std::string name = fmt::format("{} CTA ({}, {}, {}), schedule {}, seed {}", launch_->entry.name, cta[0], cta[1],
                                       cta[2], to_string(options.schedule), options.seed);
  const auto [it, is_new] = processes_.try_emplace(name, processes_.size() + 1);
  if (is_new)
    write(
        fmt::format(R"({{"ph": "M", "name": "process_name", "pid": {}, "args": {{"name": "{}"}}}})", it->second, name));
  const std::uint64_t track = it->second << 16 | static_cast<std::uint64_t>(warp);
  if (named_tracks_.try_emplace(track, true).second)
    write(fmt::format(R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, "args": {{"name": "warp {}"}}}})",
                      it->second, warp, warp));
  return it->second;
}

// What was found since the last call, each where it was found; of no warp: with the CTA's first.
void TimelineObserver::mark_findings(std::uint64_t time) {
  const std::vector<EmulatorFinding>& all = launch_->findings.all();
  for (; num_marked_ < all.size(); ++num_marked_) {
    const EmulatorFinding& finding = all[num_marked_];
    const int warp = std::max(finding.warp, 0);
    write(fmt::format(R"({{"ph": "i", "s": "t", "name": "{}, PTX line {}", "pid": {}, "tid": {}, "ts": {}}})",
                      finding.name, finding.ptx_line, process_of(finding.cta, warp), warp, stamp(base_ + time)));
  }
}

void TimelineObserver::begin(const Span& span, std::uint64_t time) {
  write(fmt::format(R"({{"ph": "b", "cat": "{}", "name": "{}", "id": {}, "pid": {}, "ts": {}}})", span.category,
                    span.name, span.id, span.process, stamp(base_ + time)));
}

void TimelineObserver::end(const Span& span, std::uint64_t time) {
  write(fmt::format(R"({{"ph": "e", "cat": "{}", "name": "{}", "id": {}, "pid": {}, "ts": {}}})", span.category,
                    span.name, span.id, span.process, stamp(base_ + time)));
}

void TimelineObserver::started(const Launch& launch) {
  launch_ = &launch;
  num_marked_ = 0;
  base_ += last_;
  last_ = 0;
  operations_.clear();
  waits_.clear();
}

void TimelineObserver::before(Warp& warp, const Instruction& in, Mask, std::uint64_t) {
  if (first_line_ == 0) first_line_ = in.line;
  last_line_ = in.line;
  running_.name = in.opcode;
  running_.category = unit_of(in.opcode);
  running_.process = process_of(warp.cta->id, static_cast<int>(warp.index));
}

void TimelineObserver::after(Warp& warp, const Instruction& in, Mask, Step step, std::uint64_t time) {
  const std::uint64_t key = wait_key(warp, in);
  if (step == Step::blocked) {
    const auto [it, is_new] = waits_.try_emplace(key);
    if (!is_new) return;
    const Wait& wait = warp.wait;
    const std::string place = wait.kind == Wait::Kind::mbarrier      ? fmt::format(" 0x{:x}", kSharedBase + wait.index)
                              : wait.kind == Wait::Kind::cta_barrier ? fmt::format(" {}", wait.index)
                                                                     : std::string();
    it->second = {fmt::format("warp {}: {}{}, PTX line {}", warp.index, wait_name(wait.kind), place, in.line),
                  next_id_++, process_of(warp.cta->id, static_cast<int>(warp.index)), "wait"};
    begin(it->second, time);
    return;
  }
  if (waits_.empty()) return;
  if (const auto it = waits_.find(key); it != waits_.end()) {
    end(it->second, time);
    waits_.erase(it);
  }
}

void TimelineObserver::slice(const Warp& warp, std::uint64_t begin_time, std::uint64_t end_time) {
  last_ = end_time;
  mark_findings(end_time);
  if (end_time == begin_time) return;
  write(fmt::format(R"({{"ph": "X", "name": "PTX {}..{}", "pid": {}, "tid": {}, "ts": {}, "dur": {}}})", first_line_,
                    last_line_, process_of(warp.cta->id, static_cast<int>(warp.index)), warp.index,
                    stamp(base_ + begin_time), stamp(end_time - begin_time)));
  first_line_ = 0;
}

void TimelineObserver::pushed(const AsyncOperation& operation, std::uint64_t time) {
  Span span = running_;
  span.id = next_id_++;
  begin(span, time);
  operations_[&operation] = std::move(span);
}

// What a completing operation pushes, the second half of a copy, continues it.
void TimelineObserver::completing(const AsyncOperation& operation, std::uint64_t) {
  if (const auto it = operations_.find(&operation); it != operations_.end()) running_ = it->second;
}

void TimelineObserver::completed(const AsyncOperation& operation, std::uint64_t time) {
  const auto it = operations_.find(&operation);
  if (it == operations_.end()) return;
  end(it->second, time);
  operations_.erase(it);
}

void TimelineObserver::finished(const Launch& launch) {
  last_ = launch.time;
  mark_findings(last_);
  for (const auto& [key, span] : waits_) end(span, last_);
  for (const auto& [operation, span] : operations_) end(span, last_);
}

}  // namespace tessera::emulator
