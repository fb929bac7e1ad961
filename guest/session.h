// One process that believes to have a GPU: the device, what was found so far, the error that its context is in.
//
// Every entry of an API (runtime_*.cpp, driver_*.cpp) is a call of guarded(): one at a time, but while it waits
// (turns.h), refused after a failure, and with the emulator's exceptions as error codes. cudaError_t and CUresult have
// the same numbers for all that is given here, so one set of functions below serves both.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "guest/monitor.h"
#include "guest/options.h"
#include "guest/tally.h"
#include "tessera/emulator/device.h"
#include "tessera/emulator/gpu_limits.h"

namespace tessera::guest {

using emulator::Gpu;

class Session {
 public:
  static Session& instance();

  const Options& options() const { return options_; }
  const Gpu& gpu() const { return *gpu_; }
  const std::string& arch() const { return arch_; }
  int num_sms() const { return num_sms_; }
  emulator::EmulatedDevice& device();

  /// Takes what the launch left: prints and reports findings, and puts the context into the error of a failure.
  void finish_launch(const std::string& kernel, const std::string& shape);
  /// Seconds that all launches so far would have taken on the GPU of --time; 0 without one.
  double predicted_seconds() const { return predicted_seconds_; }
  bool is_predicting() const { return !options_.time.empty(); }
  /// What keeps the program from running as it would on a GPU: said once, on stderr and in the report. A refusal fails
  /// the call also where the program does not look at its errors.
  void add_problem(const std::string& text, bool is_refusal = false);
  /// What the host got, by a copy or in memory that both sides have, for runs that are compared.
  void note_copy(const void* bytes, std::size_t count, bool is_shared = false);
  /// Marks that the process uses CUDA. False in a child of a process that did before the fork: nothing works there.
  bool begin_use() {
    is_used_ = true;
    return !is_lost_by_fork_;
  }
  /// The program ends, by itself or by a signal: the summary, once. Gives the exit code.
  int conclude(int status);
  /// Why the call that runs now is refused; empty: it has begun.
  void note_refusal(const std::string& text) { last_problem_ = text; }

  /// Says and reports the finding; a failure is the context's error from now on.
  void add_finding(const emulator::EmulatorFinding& finding);
  /// The context's error; what is asked of it answers this.
  cudaError_t error() const { return error_; }
  void lose(cudaError_t error) { error_ = error; }
  /// cudaDeviceReset: a fresh context, which knows nothing of work that was not done.
  void reset();
  /// Threads of the host that have called CUDA.
  void add_thread() { ++num_threads_; }
  /// What the last launch left and what the last refused call said, as JSON: {"findings": [...], "problem": "..."}.
  std::string last_report() const;
  /// Hazards that are not reported: names with commas between.
  void leave_out(const std::string& names);
  /// From now on the process keeps its own exit code: who calls has the failures as exceptions.
  void leave_exit_code() {
    keeps_exit_code_ = true;
    tally_.fail(false);
  }

  Monitor mutex;

 private:
  Session();
  static void at_exit(int status, void* session);
  static void after_fork();
  void append(const std::string& line);
  void tell_times(const std::string& shape);

  Options options_;
  const Gpu* gpu_ = nullptr;
  std::string arch_;
  int num_sms_ = 0;
  std::unique_ptr<emulator::EmulatedDevice> device_;
  std::atomic<cudaError_t> error_ = cudaSuccess;
  std::set<std::string> said_;
  std::vector<emulator::EmulatorFinding> last_findings_;
  std::string last_problem_;
  std::set<std::string> left_out_;
  bool keeps_exit_code_ = false;
  std::atomic<bool> is_used_ = false;
  bool is_lost_by_fork_ = false;
  int num_threads_ = 0;
  Tally tally_;
  double predicted_seconds_ = 0;
};

/// Runs the work of one call.
cudaError_t guarded(const char* function, const std::function<cudaError_t()>& work);
/// The same for the runtime's functions, which keep an error for cudaGetLastError.
cudaError_t called(const char* function, const std::function<cudaError_t()>& work);
/// Keeps an error for cudaGetLastError; gives it back.
cudaError_t told(cudaError_t error);
/// The kept error, which a success takes its place of.
cudaError_t take_last_error();
cudaError_t last_error();

/// What a call without an implementation answers: stderr names it, once.
cudaError_t missing(const char* function);

/// "cudaErrorInvalidValue", "CUDA_ERROR_INVALID_VALUE" and "invalid argument"; null for a number that is none.
const char* error_name(int error) noexcept;
const char* driver_error_name(int error) noexcept;
const char* error_text(int error) noexcept;

}  // namespace tessera::guest
