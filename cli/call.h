// One call of a subcommand: common flags, and how results, warnings and progress leave the program.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/launch_json.h"
#include "cli/flags.h"
#include "cli/host.h"

namespace tessera::cli {

/// As typed; JitOptions come of it in Call::options().
struct CommonFlags {
  bool is_json = false, is_quiet = false, is_verbose = false, is_trusted = false, requires_compiler = false,
       checks_pointers = false, writes_remote = false;
  std::int64_t jobs = 0, cache_max_bytes = -1, compile_time_limit_ms = -1, remote_time_limit_ms = -1;
  std::string cache_dir, system_cache_dirs, compile_policy, nvrtc, repro_dir, templates;
  std::string remote, remote_credentials, remote_ca_file, remote_signing_key, remote_trusted_keys;
  std::string remote_endpoint, remote_region, remote_s3_style;
  std::vector<std::string> nvrtc_options;

  void add_to(FlagSet& flags);
  /// The environment's options, overridden by the flags. Throws Error{usage}.
  JitOptions apply_to(JitOptions options) const;
};

/// An environment variable and the flag of the same meaning; docs/cli.md shows this table.
struct EnvironmentVariable {
  std::string_view name, flag;
};
const std::vector<EnvironmentVariable>& environment_variables();

class Call {
 public:
  Call(Host& host, const CommonFlags& flags) : host_(host), flags_(flags) {}

  Host& host() const { return host_; }
  const CommonFlags& flags() const { return flags_; }
  bool is_json() const { return flags_.is_json; }
  int jobs() const { return static_cast<int>(std::min<std::int64_t>(flags_.jobs, 1024)); }
  JitOptions options() const;
  /// The Jit of this call, made on first use.
  Jit& jit();

  /// Results: to stdout. Nothing where its reader is gone, or BrokenPipe after stops_without_reader(); Error{io} when
  /// stdout cannot be written.
  void print(std::string_view text) const;
  /// Before the end, and where a command's last word must be out.
  void flush() const;
  /// Showing is all that the command does: without a reader it ends, as a success. Others go on to their exit code.
  void stops_without_reader() { stops_without_reader_ = true; }
  void print_json(const OrderedJson& json) const;
  /// Everything else: to stderr, nothing with --quiet.
  void note(std::string_view text) const;
  void warn(std::string_view text) const;
  /// Why the call will fail: to stderr, after the warnings that --quiet has held back.
  void complain(std::string_view text) const;
  /// Overwrites itself; only on a terminal.
  void progress(std::string_view line) const;
  void clear_progress() const;

 private:
  Host& host_;
  const CommonFlags& flags_;
  std::unique_ptr<Jit> jit_;
  void stdout_failed() const;

  bool stops_without_reader_ = false;
  mutable bool is_unread_ = false;
  mutable std::mutex unsaid_mutex_;
  mutable std::vector<std::string> unsaid_;
};

/// A subcommand: registers its flags, then runs. `run` returns the process's code.
class Command {
 public:
  virtual ~Command() = default;
  virtual HelpPage help() const = 0;
  virtual void add_flags(FlagSet& flags) = 0;
  virtual ExitCode run(Call& call) = 0;
  /// What stands behind `--`, of a command that starts a program; false: it starts none.
  virtual bool take_program(const std::vector<std::string>&) { return false; }
};

std::unique_ptr<Command> make_plan_command();
std::unique_ptr<Command> make_emit_command();
std::unique_ptr<Command> make_warm_command();
std::unique_ptr<Command> make_check_command();
std::unique_ptr<Command> make_run_command();
std::unique_ptr<Command> make_emulate_command();
std::unique_ptr<Command> make_cache_command();
std::unique_ptr<Command> make_doctor_command();
std::unique_ptr<Command> make_layout_command();
std::unique_ptr<Command> make_tune_command();

struct CommandEntry {
  std::string name;
  std::unique_ptr<Command> (*make)();
};
/// In the order of help.
const std::vector<CommandEntry>& commands();

/// A path among kernels: the problems of a shape list or of selectors after an operator's name. Throws Error{usage}.
ProblemList read_problems(const std::string& subject, const SelectorFlags& selectors);
/// "fmha --head-dim 64 --mask causal": what differs from the operator's default.
std::string describe(const Problem& problem);
/// 1,234,567
std::string grouped(std::int64_t value);
/// "1 kernel", "1,200 kernels"; many: where it is not one and an s.
std::string counted(std::int64_t count, std::string_view one, std::string_view many = {});
/// "12.3 s", "4 min 5 s"
std::string duration(double seconds);
/// Every line of a text two columns to the right.
std::string indented(std::string_view text);

}  // namespace tessera::cli
