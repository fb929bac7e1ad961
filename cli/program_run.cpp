#include "cli/program_run.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/file.h"
#include "cli/call.h"
#include "tessera/emulator/gpu_limits.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNotFound = 127;

/// A file that goes when this goes.
class ReportFile {
 public:
  ReportFile() {
    std::string path = (fs::temp_directory_path() / "tessera-emulate-XXXXXX").string();
    const int file = mkstemp(path.data());
    if (file < 0) throw Error(ErrorKind::io, "no temporary file can be made for the report: see TMPDIR");
    close(file);
    path_ = path;
    // Where each process of the program keeps its counts, which a process that is killed leaves behind: 4096 of them.
    const int counts = open(counts_path().c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (counts < 0 || ftruncate(counts, 1 << 20) != 0)
      throw Error(ErrorKind::io, fmt::format("{}: cannot be written", counts_path()));
    close(counts);
  }
  ~ReportFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
    fs::remove(counts_path(), ignored);
  }
  ReportFile(const ReportFile&) = delete;
  ReportFile& operator=(const ReportFile&) = delete;
  const std::string& path() const { return path_; }
  std::string counts_path() const { return path_ + ".counts"; }

 private:
  std::string path_;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// A file's path for a program that may change its folder.
std::string time_argument(const std::string& time) {
  const bool is_file = time.find('/') != std::string::npos || time.ends_with(".json");
  return is_file ? fs::absolute(time).string() : time;
}

Variables variables_of(const Call& call, const ProgramFlags& flags, const EmulatorFlags& emulation,
                       emulator::Schedule schedule, const std::string& report, bool is_compared) {
  std::string preload;
  for (const char* name : {"libtessera_guest.so", "libcudart.so.12", "libcudart.so.13", "libcuda.so.1"})
    preload += (preload.empty() ? "" : ":") + (fs::path(guest_folder()) / name).string();
  for (const char* name : {"libcublas.so.12", "libcublas.so.13", "libcublasLt.so.12", "libcublasLt.so.13",
                           "libcusparse.so.12", "libcurand.so.10"})
    if (fs::exists(fs::path(guest_folder()) / name)) preload += ":" + (fs::path(guest_folder()) / name).string();
  if (!call.host().preload.empty()) preload += ":" + call.host().preload;
  // Where Triton finds the backend that is ours (python/tessera_triton).
  std::string python = (fs::path(guest_folder()) / "python").string();
  if (!call.host().python_path.empty()) python += ":" + call.host().python_path;
  return {
      {"LD_PRELOAD", preload},
      {"PYTHONPATH", python},
      {"TESSERA_EMULATE_ARCH", flags.arch},
      {"TESSERA_EMULATE_GPU", flags.gpu},
      {"TESSERA_EMULATE_SEED", std::to_string(flags.seed)},
      {"TESSERA_EMULATE_SCHEDULE", emulator::to_string(schedule)},
      {"TESSERA_EMULATE_SMS", std::to_string(emulation.num_sms)},
      {"TESSERA_EMULATE_CPU_THREADS", is_compared && emulation.threads == 0 ? "1" : std::to_string(emulation.threads)},
      {"TESSERA_EMULATE_MAX_INSTRUCTIONS", std::to_string(emulation.max_instructions)},
      {"TESSERA_EMULATE_MAX_SECONDS", std::to_string(emulation.max_seconds)},
      {"TESSERA_EMULATE_RACES", emulation.detects_races ? "1" : "0"},
      {"TESSERA_EMULATE_STRICT", emulation.is_strict ? "1" : "0"},
      {"TESSERA_EMULATE_TIME", emulation.time.empty() ? "" : time_argument(emulation.time)},
      {"TESSERA_EMULATE_NO_VALUES", emulation.skips_values ? "1" : "0"},
      {"TESSERA_EMULATE_LAUNCHES", flags.shows_launches ? "1" : "0"},
      {"TESSERA_EMULATE_TEAR_VECTORS", flags.tears_vectors ? "1" : "0"},
      {"TESSERA_EMULATE_COMPARE", is_compared ? "1" : "0"},
      {"TESSERA_EMULATE_REPORT", report}};
}

/// In the child: does not return. `shows`: its output is the user's; with --json stdout is for the result alone.
[[noreturn]] void become(pid_t parent, const std::vector<std::string>& program, const Variables& variables, bool shows,
                         bool is_json) {
  for (const int signal : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // interrupted or killed, the command takes the program along
  if (getppid() != parent) _exit(kNotFound);
  if (!shows) {
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
  } else if (is_json) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
  }
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> arguments;
  for (const std::string& argument : program) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  _exit(kNotFound);
}

struct Ended {
  int code = 0;  ///< 128 and the signal, as a shell has it
  bool is_by_signal = false;
};
Ended wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return {128 + WTERMSIG(status), true};
  return {WEXITSTATUS(status), false};
}

std::vector<OrderedJson> read_lines(const std::string& path) {
  std::vector<OrderedJson> lines;
  std::istringstream text(read_text(path));
  for (std::string line; std::getline(text, line);) {
    line.erase(0, std::min(line.find('{'), line.size()));  // what a file of counts has between its texts
    OrderedJson json = OrderedJson::parse(line, nullptr, false);
    if (!json.is_discarded()) lines.push_back(std::move(json));
  }
  return lines;
}

/// Adds what is new, as merge_findings does; false: it was known.
bool add_finding(OrderedJson& all, OrderedJson finding) {
  finding.erase("kind");
  for (const OrderedJson& known : all)
    if (known["name"] == finding["name"] && known.value("entry", "") == finding.value("entry", "") &&
        known.value("ptx_line", 0) == finding.value("ptx_line", 0))
      return false;
  all.push_back(std::move(finding));
  return true;
}

/// One thread of one process got them, so their order means something.
bool has_order(const OrderedJson& copies) {
  return std::all_of(copies.begin(), copies.end(), [&](const OrderedJson& copy) {
    return copy["threads"] == 1 && copy["process"] == copies.front()["process"];
  });
}

using Content = std::pair<std::int64_t, std::uint64_t>;  ///< bytes, hash
Content content_of(const OrderedJson& copy) {
  return {copy["bytes"].get<std::int64_t>(), copy["hash"].get<std::uint64_t>()};
}

/// Whatever their order. What threads share is not compared: what one finds when it waits depends on time.
std::string difference_without_order(const OrderedJson& first, const OrderedJson& later, const std::string& schedules) {
  std::multiset<Content> all, others;
  bool has_shared = false;
  for (const OrderedJson* const run : {&first, &later})
    for (const OrderedJson& copy : *run) {
      if (copy.value("is_shared", false))
        has_shared = true;
      else
        (run == &first ? all : others).insert(content_of(copy));
    }
  std::vector<Content> apart;
  std::set_symmetric_difference(all.begin(), all.end(), others.begin(), others.end(), std::back_inserter(apart));
  if (!apart.empty())
    return fmt::format("{}: a copy of {} bytes to the host in one of them is not the same as any in the other",
                       schedules, apart.front().first);
  if (!has_shared) return "";
  return "memory that kernels and the host share is not compared: several threads of the host call CUDA, and what one "
         "finds when it waits depends on time";
}

/// What the host got in the first run and in a later one and is not the same.
std::string difference(const OrderedJson& first, const OrderedJson& later, const std::string& schedules) {
  if (!has_order(first) || !has_order(later)) return difference_without_order(first, later, schedules);
  std::size_t copies = 0, changes = 0;
  for (std::size_t i = 0; i < std::min(first.size(), later.size()); ++i) {
    const bool is_shared = first[i].value("is_shared", false), is_same = content_of(first[i]) == content_of(later[i]);
    if (!is_same && is_shared && later[i].value("is_shared", false))
      return fmt::format(
          "{}: memory of {} bytes that kernels and the host share is not the same (the {}. time that "
          "kernels have changed any when the host waits)",
          schedules, first[i]["bytes"].get<std::int64_t>(), changes + 1);
    if (!is_same || is_shared != later[i].value("is_shared", false))
      return fmt::format("{}: copy {} to the host, of {} bytes, is not the same", schedules, copies,
                         first[i]["bytes"].get<std::int64_t>());
    ++(is_shared ? changes : copies);
  }
  if (first.size() == later.size()) return "";
  return fmt::format("{}: {} and {} copies to the host and changes of memory that is shared with it", schedules,
                     first.size(), later.size());
}

}  // namespace

std::string guest_folder() {
  std::error_code ignored;
  const fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const char* place : {"../guest/lib", "../" TESSERA_GUEST_FOLDER})
    if (fs::exists(folder / place / "libtessera_guest.so", ignored)) return fs::canonical(folder / place, ignored);
  return "";
}

ProgramReport run_program(const Call& call, const std::vector<std::string>& program, const ProgramFlags& flags,
                          const EmulatorFlags& emulation) {
  if (const std::string wrong = emulator::contradiction(flags.gpu, flags.arch); !wrong.empty())
    throw Error(ErrorKind::usage, wrong);
  if (guest_folder().empty())
    throw Error(ErrorKind::unsupported,
                "emulate -- PROGRAM: this build has no libtessera_guest.so: it needs the CUDA toolkit's headers when "
                "tessera is built");
  const std::vector<emulator::Schedule> schedules = emulation.schedules();
  ProgramReport report;
  OrderedJson first_copies;
  for (const emulator::Schedule schedule : schedules) {
    const bool is_first = report.schedules.empty();
    const ReportFile file;
    const Variables variables = variables_of(call, flags, emulation, schedule, file.path(), schedules.size() > 1);
    call.flush();
    const pid_t self = getpid(), child = fork();
    if (child < 0) throw Error(ErrorKind::io, fmt::format("fork: {}", std::strerror(errno)));
    if (child == 0) become(self, program, variables, is_first, call.is_json());
    const Ended ended = wait_for(child);
    const int code = ended.code;
    if (code == kNotFound && is_first && read_text(file.path()).empty())
      throw Error(ErrorKind::usage, fmt::format("emulate: {}: cannot be started", program.front()));
    OrderedJson run{{"schedule", emulator::to_string(schedule)},
                    {"seed", flags.seed},
                    {"exit_code", code},
                    {"launches", 0},
                    {"warp_instructions", 0},
                    {"seconds", 0.0}};
    OrderedJson copies = OrderedJson::array();
    std::vector<OrderedJson> lines = read_lines(file.path());
    for (OrderedJson& line : read_lines(file.counts_path())) lines.push_back(std::move(line));
    for (OrderedJson& line : lines) {
      const std::string kind = line.value("kind", "");
      if (kind == "finding") {
        const bool is_failure = line["is_failure"];
        const std::string message = line["name"].get<std::string>() + ": " + line["message"].get<std::string>();
        if (!add_finding(report.findings, std::move(line))) continue;
        ++(is_failure ? report.failures : report.hazards);
        if (!is_first) call.warn(fmt::format("under {}: {}", emulator::to_string(schedule), message));
      } else if (kind == "problem") {
        const std::string text = line["text"];
        report.is_refused = report.is_refused || line.value("is_refusal", false);
        if (std::find(report.problems.begin(), report.problems.end(), text) != report.problems.end()) continue;
        report.problems.push_back(text);
        if (!is_first) call.warn(text);
      } else if (kind == "time") {
        line.erase("kind");
        report.predicted.push_back(std::move(line));
      } else if (kind == "process") {
        report.gpu = line["gpu"];
        for (const char* key : {"launches", "warp_instructions"})
          run[key] = run[key].get<std::int64_t>() + line[key].get<std::int64_t>();
        run["seconds"] = run["seconds"].get<double>() + line["seconds"].get<double>();
      } else if (kind == "copy") {
        copies.push_back(std::move(line));
      }
    }
    const auto complain = [&](std::string text) {
      call.warn(text);
      report.problems.push_back(std::move(text));
    };
    if (ended.is_by_signal) complain(fmt::format("the program was ended by signal {}", code - 128));
    if (is_first) first_copies = copies;
    const std::string apart =
        difference(first_copies, copies,
                   fmt::format("{} and {}", emulator::to_string(schedules.front()), emulator::to_string(schedule)));
    if (!apart.empty() && std::find(report.problems.begin(), report.problems.end(), apart) == report.problems.end())
      complain(apart);
    report.exit_code = std::max(report.exit_code, code);
    report.schedules.push_back(std::move(run));
  }
  const bool is_bad = report.failures > 0 || (emulation.is_strict && report.hazards > 0);
  if (report.exit_code == 0) report.exit_code = is_bad ? kWrong : report.is_refused ? kUnsupported : kOk;
  return report;
}

}  // namespace tessera::cli
