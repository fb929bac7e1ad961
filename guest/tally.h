// What a process has done so far, where it is found however the process ends: by exit, _exit, quick_exit or a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::guest {

/// Under the session's mutex, but for say(). With a report the command reads it from REPORT.counts, a file of texts of
/// kBytes each, which it made; without one it is said on stderr when the process ends.
class Tally {
 public:
  static constexpr std::size_t kBytes = 256;  ///< of one process

  std::uint64_t launches = 0, warp_instructions = 0, hazards = 0, failures = 0, problems = 0;
  double seconds = 0;

  void open(const std::string& report, std::string_view gpu, std::string_view arch);
  void write();
  /// The summary on stderr, where no command reads it; once. For handlers of signals, too.
  void say();
  /// From now on an exit code of 0 is 1; or no more.
  void fail(bool fails = true);

 private:
  std::string gpu_, arch_;
  char* place_ = nullptr;  ///< in the file
  bool has_reader_ = false;
};

std::uint64_t hash_of(const void* bytes, std::size_t count);

}  // namespace tessera::guest
