// --stats, --trace and --timeline of a command that runs in the emulator.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include "base/launch_json.h"
#include "cli/emulation.h"
#include "emulator/observers/observer.h"
#include "emulator/observers/statistics.h"
#include "emulator/observers/timeline.h"
#include "emulator/observers/trace.h"

namespace tessera::cli {

class Observation {
 public:
  /// Opens the files. Throws Error{io} when one cannot be written.
  explicit Observation(const EmulatorFlags& flags);
  ~Observation();
  Observation(const Observation&) = delete;
  Observation& operator=(const Observation&) = delete;

  /// Null when nothing was asked for.
  emulator::Observer* observer() { return list_.empty() ? nullptr : &list_; }
  /// Ends the files. Throws Error{io} when they could not be written in full.
  void finish();
  /// The statistics of all launches so far; null and empty without --stats.
  OrderedJson json() const;
  std::string text() const;
  bool is_timeline_truncated() const { return timeline_ && timeline_->is_truncated(); }

 private:
  struct File {
    std::FILE* file = nullptr;
    std::string name;
  };
  static File open(const std::string& name);
  static void close(File& file);

  File trace_file_, timeline_file_;
  std::unique_ptr<emulator::StatisticsObserver> statistics_;
  std::unique_ptr<emulator::TraceObserver> trace_;
  std::unique_ptr<emulator::TimelineObserver> timeline_;
  emulator::ObserverList list_;
};

}  // namespace tessera::cli
