// A launch as a Chrome trace, which Perfetto opens: a process for each CTA, named with its schedule and seed, a track
// for each warp, waits and asynchronous operations as spans of their own, findings as marks. Time counts executed warp
// instructions of the whole launch, one a nanosecond: it shows who waited for whom, and no hardware's clock.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <string_view>
#include <unordered_map>

#include "emulator/observers/observer.h"

namespace tessera::emulator {

class TimelineObserver final : public Observer {
 public:
  /// Writes as it goes; close() ends the document. The file stays open and the caller's.
  explicit TimelineObserver(std::FILE* file);
  void close();
  /// True when the launch had more events than the file takes.
  bool is_truncated() const noexcept { return num_events_ >= kMaxEvents; }

  void started(const Launch& launch) override;
  void before(Warp& warp, const Instruction& in, Mask active, std::uint64_t time) override;
  void after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t time) override;
  void slice(const Warp& warp, std::uint64_t begin, std::uint64_t end) override;
  void pushed(const AsyncOperation& operation, std::uint64_t time) override;
  void completing(const AsyncOperation& operation, std::uint64_t time) override;
  void completed(const AsyncOperation& operation, std::uint64_t time) override;
  void finished(const Launch& launch) override;

 private:
  static constexpr std::uint64_t kMaxEvents = 2'000'000;
  struct Span {
    std::string name;
    std::uint64_t id = 0;
    std::uint64_t process = 0;
    const char* category = "";
  };
  void put(std::string_view text);
  void write(const std::string& event);
  std::uint64_t process_of(const std::array<std::uint32_t, 3>& cta, int warp);
  void mark_findings(std::uint64_t time);
  void begin(const Span& span, std::uint64_t time);
  void end(const Span& span, std::uint64_t time);

  std::FILE* file_;
  std::uint64_t num_events_ = 0;
  std::uint64_t next_id_ = 1;
  std::uint64_t base_ = 0;  ///< where this launch's time starts: launches follow each other
  std::uint64_t last_ = 0;
  const Launch* launch_ = nullptr;
  std::size_t num_marked_ = 0;  ///< of its findings
  std::unordered_map<std::string, std::uint64_t> processes_;
  std::unordered_map<std::uint64_t, bool> named_tracks_;
  std::unordered_map<const AsyncOperation*, Span> operations_;
  std::unordered_map<std::uint64_t, Span> waits_;
  Span running_;  ///< what pushes the next operation: an instruction, or an operation that completes
  int first_line_ = 0, last_line_ = 0;
};

}  // namespace tessera::emulator
