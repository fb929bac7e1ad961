#include "guest/session.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "emulator/findings/finding_json.h"
#include "emulator/memory/fork.h"
#include "emulator/time/report.h"
#include "guest/capture.h"
#include "guest/host_thread.h"
#include "guest/libraries.h"
#include "guest/memory.h"
#include "guest/stream_order.h"
#include "guest/turns.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::guest {
namespace {

thread_local cudaError_t kept_error = cudaSuccess;

// CUDA_ERROR_ASSERT and the like, as hardware reports what the emulator calls by more names.
cudaError_t error_of(const emulator::EmulatorFinding& finding) {
  const std::string& name = finding.name;
  if (name == "assert") return cudaErrorAssert;
  if (name == "misaligned-address") return cudaErrorMisalignedAddress;
  if (name == "global-out-of-bounds" || name == "generic-out-of-bounds") return cudaErrorIllegalAddress;
  if (name == "deadlock" || name == "time-budget" || name == "instruction-budget") return cudaErrorLaunchTimeout;
  return cudaErrorLaunchFailure;
}

}  // namespace

Session& Session::instance() {
  static Session* const made = new Session;  // never destroyed: programs free at exit
  return *made;
}

Session::Session() : options_(Options::from_environment()) {
  gpu_ = emulator::find_gpu(options_.gpu, options_.arch);
  if (const std::string wrong = emulator::contradiction(options_.gpu, options_.arch); !wrong.empty()) {
    std::fprintf(stderr, "tessera: %s\n", wrong.c_str());
    append(OrderedJson{{"kind", "problem"}, {"is_refusal", true}, {"text", wrong}}.dump());
    _exit(2);
  }
  arch_ = options_.arch.empty() ? std::string(gpu_->arch) : options_.arch;
  num_sms_ = options_.num_sms == 0 ? gpu_->num_sms : options_.num_sms;
  tally_.open(options_.report, gpu_->name, arch_);
  on_exit(&Session::at_exit, this);
  emulator::follow_forks();
  pthread_atfork(nullptr, nullptr, &Session::after_fork);
}

// Memory is the parent's, and so is its context, which no GPU shares with a child.
void Session::after_fork() {
  Session& self = instance();
  self.is_lost_by_fork_ = self.is_used_;
  self.tally_ = Tally();
  self.tally_.open(self.options_.report, self.gpu_->name, self.arch_);
}

emulator::EmulatedDevice& Session::device() {
  if (device_) return *device_;
  emulator::DeviceOptions options;
  options.arch = arch_;
  options.num_sms = num_sms_;
  // Two where there is one core: how a grid is run, by its parts or as a whole, is not the machine's affair.
  const int threads =
      options_.threads != 0 ? options_.threads : std::max(2, static_cast<int>(std::thread::hardware_concurrency()));
  options.threads = std::clamp(threads, 1, emulator::kMostHostThreads);
  options.seed = options_.seed;
  options.schedule = options_.schedule;
  options.memory_bytes = static_cast<std::uint64_t>(gpu_->memory_bytes);
  options.max_warp_instructions = options_.max_warp_instructions;
  options.max_seconds = options_.max_seconds;
  options.detects_races = options_.detects_races;
  options.detects_unwritten_registers = options_.is_strict;
  options.tears_vectors = options_.tears_vectors;
  options.rest = rest;
  if (options_.detects_races)
    options.after_launch = [](const emulator::RaceDetector& race) { StreamOrder::instance().note_launch(race); };
  if (!options_.time.empty()) {
    options.time = emulator::find_gpu_time(options_.time);
    options.skips_values = options_.skips_values;
    options.threads = 1;
  }
  device_ = std::make_unique<emulator::EmulatedDevice>(options);
  return *device_;
}

void Session::append(const std::string& line) {
  if (options_.report.empty()) return;
  const int file = open(options_.report.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return;
  const std::string whole = line + "\n";
  if (write(file, whole.data(), whole.size()) < 0) std::fprintf(stderr, "tessera: the report cannot be written\n");
  close(file);
}

// Of each launch a line on stderr, and all of it for the report.
void Session::tell_times(const std::string& shape) {
  const std::vector<emulator::LaunchTime> times = device().take_times();
  if (times.empty()) return;
  for (const emulator::LaunchTime& time : times) {
    predicted_seconds_ += time.microseconds * 1e-6;
    std::fprintf(stderr, "tessera: predicted on %s: %.1f us: %s %s; limit: %s\n", time.gpu.c_str(), time.microseconds,
                 time.entry.c_str(), shape.c_str(), time.limit.c_str());
  }
  OrderedJson json{{"kind", "time"}, {"shape", shape}};
  json.update(emulator::time_json(times));
  append(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

void Session::finish_launch(const std::string& kernel, const std::string& shape) {
  const emulator::LaunchStatistics statistics = device().statistics();
  ++tally_.launches;
  tally_.warp_instructions += statistics.warp_instructions;
  tally_.seconds += statistics.seconds;
  tally_.write();
  if (options_.shows_launches) {
    const std::string& why_one = statistics.why_one_thread;
    std::fprintf(stderr, "tessera: %s %s: %llu warp instructions, %.1f ms, %d thread%s%s%s%s\n", kernel.c_str(),
                 shape.c_str(), static_cast<unsigned long long>(statistics.warp_instructions), statistics.seconds * 1e3,
                 statistics.threads, statistics.threads == 1 ? "" : "s", why_one.empty() ? "" : " (", why_one.c_str(),
                 why_one.empty() ? "" : ")");
  }
  tell_times(shape);
  last_findings_ = device().take_findings();
  for (emulator::ScheduleClue& clue : device().take_clues()) {
    // Of a program each is a hazard: there is no second run in this process to compare with.
    if (clue.finding.name != "vector-access-torn") continue;
    clue.finding.message = "this load met one element of a vector store and another from before it";
    last_findings_.push_back(std::move(clue.finding));
  }
  std::erase_if(last_findings_, [&](const emulator::EmulatorFinding& finding) {
    return !finding.is_failure && left_out_.contains(finding.name);
  });
  for (const emulator::EmulatorFinding& finding : last_findings_) add_finding(finding);
}

void Session::add_finding(const emulator::EmulatorFinding& finding) {
  if (finding.is_failure) lose(error_of(finding));
  const bool is_new = said_.insert(finding.name + finding.entry + std::to_string(finding.ptx_line)).second;
  if (!is_new) return;
  ++(finding.is_failure ? tally_.failures : tally_.hazards);
  tally_.write();
  if ((finding.is_failure || options_.is_strict) && !keeps_exit_code_) tally_.fail();
  std::fprintf(stderr, "%s\n", finding.to_string().c_str());
  OrderedJson json{{"kind", "finding"}};
  json.update(emulator::finding_json(finding));
  append(json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
}

void Session::reset() {
  const std::lock_guard lock(mutex);
  forget_all();
  error_ = cudaSuccess;
}

void Session::add_problem(const std::string& text, bool is_refusal) {
  if (!said_.insert(text).second) return;
  ++tally_.problems;
  tally_.write();
  std::fprintf(stderr, "tessera: %s\n", text.c_str());
  append(OrderedJson{{"kind", "problem"}, {"is_refusal", is_refusal}, {"text", text}}.dump(
      -1, ' ', false, OrderedJson::error_handler_t::replace));
}

void Session::note_copy(const void* bytes, std::size_t count, bool is_shared) {
  if (!options_.hashes_copies) return;
  append(OrderedJson{{"kind", "copy"},
                     {"bytes", count},
                     {"hash", hash_of(bytes, count)},
                     {"is_shared", is_shared},
                     {"process", getpid()},
                     {"threads", num_threads_}}
             .dump());
}

void Session::leave_out(const std::string& names) {
  std::istringstream text(names);
  left_out_.clear();
  for (std::string name; std::getline(text, name, ',');) left_out_.insert(name);
}

std::string Session::last_report() const {
  OrderedJson findings = OrderedJson::array();
  for (const emulator::EmulatorFinding& finding : last_findings_) {
    OrderedJson json = emulator::finding_json(finding);
    json["text"] = finding.to_string();
    findings.push_back(std::move(json));
  }
  const OrderedJson json{{"findings", std::move(findings)}, {"problem", last_problem_}};
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

int Session::conclude(int status) {
  if (status != 0) tell_loaded_libraries();
  if (!is_lost_by_fork_) Blocks::instance().note_shared();
  tally_.say();
  const bool is_bad = tally_.failures != 0 || (options_.is_strict && tally_.hazards != 0);
  return status == 0 && is_bad && !keeps_exit_code_ ? 1 : status;
}

void Session::at_exit(int status, void* session) {
  Session& self = *static_cast<Session*>(session);
  // What rests does not go on behind the summary (turns.h). Another thread's launch may take longer than a user waits.
  bool is_locked = self.mutex.try_lock();
  for (int i = 0; i < 200 && !is_locked; ++i) {
    usleep(1000);
    is_locked = self.mutex.try_lock();
  }
  constexpr std::chrono::seconds kPatience{10};
  if (const std::size_t left = is_locked && !self.is_lost_by_fork_ ? complete(kPatience) : 0; left != 0)
    std::fprintf(stderr,
                 "warning: %zu launches and host functions had not ended %d seconds after the program, and are not "
                 "completed\n",
                 left, static_cast<int>(kPatience.count()));
  const int code = self.conclude(status);
  if (code == status) return;
  std::fflush(nullptr);
  _exit(code);
}

cudaError_t guarded(const char* function, const std::function<cudaError_t()>& work) {
  Session& session = Session::instance();
  if (!session.begin_use()) return cudaErrorInitializationError;
  const std::lock_guard lock(session.mutex);
  if (is_host_thread()) {
    session.add_problem(fmt::format(
        "{} is called by a host function of a stream, which may call none of CUDA's: it answers 'not permitted'",
        function));
    return cudaErrorNotPermitted;
  }
  static thread_local bool is_known = false;
  if (!std::exchange(is_known, true)) session.add_thread();
  if (session.error() != cudaSuccess) return session.error();
  session.note_refusal("");
  if (const cudaError_t refused = refused_in_capture(function); refused != cudaSuccess) return refused;
  try {
    return work();
  } catch (const Error& error) {
    std::string text = fmt::format("{}: {}", function, error.what());
    for (const std::string& note : error.notes()) text += "\n  " + note;
    session.note_refusal(text);
    const bool is_full = std::string_view(error.what()).find("out of memory") != std::string_view::npos;
    if (is_full) return cudaErrorMemoryAllocation;
    if (error.kind() == ErrorKind::device) {
      std::fprintf(stderr, "tessera: %s\n", text.c_str());
      return cudaErrorInvalidValue;
    }
    session.add_problem(text, true);
    return error.kind() == ErrorKind::compile ? cudaErrorInvalidPtx : cudaErrorNoKernelImageForDevice;
  } catch (const std::bad_alloc&) {
    return cudaErrorMemoryAllocation;
  }
}

cudaError_t told(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) kept_error = error;
  return error;
}
cudaError_t called(const char* function, const std::function<cudaError_t()>& work) {
  return told(guarded(function, work));
}
cudaError_t take_last_error() {
  const cudaError_t kept = std::exchange(kept_error, cudaSuccess), sticky = Session::instance().error();
  return sticky != cudaSuccess ? sticky : kept;
}
cudaError_t last_error() {
  const cudaError_t sticky = Session::instance().error();
  return sticky != cudaSuccess ? sticky : kept_error;
}

cudaError_t missing(const char* function) {
  Session& session = Session::instance();
  const std::lock_guard lock(session.mutex);
  session.add_problem(fmt::format("{} is not provided: it answers 'operation not supported'", function));
  return told(cudaErrorNotSupported);
}

}  // namespace tessera::guest

// What an adapter asks besides CUDA's own functions (python/tessera_triton).
extern "C" {
/// The text lives until the next call.
const char* tessera_guest_last_report() {
  static std::string kept;
  tessera::guest::Session& session = tessera::guest::Session::instance();
  const std::lock_guard lock(session.mutex);
  kept = session.last_report();
  return kept.c_str();
}
void tessera_guest_leave_out(const char* names) {
  tessera::guest::Session& session = tessera::guest::Session::instance();
  const std::lock_guard lock(session.mutex);
  session.leave_out(names);
}
void tessera_guest_leave_exit_code() { tessera::guest::Session::instance().leave_exit_code(); }
}

extern "C" int tessera_missing_call(const char* name) { return tessera::guest::missing(name); }
/// What the libraries of other names refer to, so that they lead here.
extern "C" {
extern int tessera_guest_named;
int tessera_guest_named = 1;
}
