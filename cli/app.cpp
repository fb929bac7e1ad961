// From arguments to a subcommand to an exit code. Errors become messages here and nowhere else.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/shown.h"
#include "cli/call.h"
#include "tessera/error.h"

namespace tessera::cli {

ExitCode exit_code_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
      return kUsage;
    case ErrorKind::unsupported:
      return kUnsupported;
    case ErrorKind::compile:
      return kCompile;
    case ErrorKind::device:
    case ErrorKind::io:
      return kDevice;
  }
  return kBug;
}

const std::vector<CommandEntry>& commands() {
  static const std::vector<CommandEntry> table = {{"plan", make_plan_command},     {"emit", make_emit_command},
                                                  {"warm", make_warm_command},     {"check", make_check_command},
                                                  {"run", make_run_command},       {"emulate", make_emulate_command},
                                                  {"layout", make_layout_command}, {"tune", make_tune_command},
                                                  {"cache", make_cache_command},   {"doctor", make_doctor_command}};
  return table;
}

namespace {

constexpr const char* kOverview =
    "tessera: generate, compile, cache and run tensor-core kernels\n"
    "\n"
    "Usage: tessera COMMAND [arguments] [flags]\n"
    "       tessera COMMAND --help\n"
    "       tessera --version\n"
    "\n"
    "A shape list or an operator with selectors names problems; a problem is planned (which Config, why), emitted as\n"
    "CUDA source, compiled by NVRTC in tenths of a second, kept in a cache folder, and launched: on a GPU, or in an\n"
    "emulator on the CPU. No command needs a GPU, only warm and run a compiler.\n"
    "\n"
    "Commands:\n";

constexpr const char* kOverviewEnd =
    "\n"
    "Start here:\n"
    "  tessera warm fmha --head-dim 64,128 --mask none,causal   compile four attention kernels into the cache\n"
    "  tessera cache list                                       see them\n"
    "  tessera run fmha --head-dim 128 --seqlen-q 1000          launch one, compare it with a float64 reference\n"
    "  tessera doctor                                           what works on this machine, and why the rest does not\n"
    "\n"
    "Every environment variable is the name of a flag: TESSERA_CACHE_DIR is --cache-dir (docs/cli.md has the table).\n"
    "Exit codes: 0 ok, 1 ran but the result is wrong or the check failed, 2 usage, 3 unsupported, 4 compile,\n"
    "5 device or I/O, 70 bug in tessera, 130 or 143 interrupted. stdout holds results only, stderr the rest.\n";

std::string overview() {
  std::string text = kOverview;
  for (const CommandEntry& entry : commands()) {
    const std::string summary = entry.make()->help().summary;
    text += fmt::format("  {:<8} {}\n", entry.name, summary.substr(summary.find(": ") + 2));
  }
  return text + kOverviewEnd;
}

ExitCode run_command(const CommandEntry& entry, std::vector<std::string> arguments, Host& host) {
  const std::unique_ptr<Command> command = entry.make();
  // A program's arguments are its own.
  const auto program = std::find(arguments.begin(), arguments.end(), "--");
  if (program != arguments.end() && command->take_program({program + 1, arguments.end()}))
    arguments.erase(program, arguments.end());
  FlagSet flags;
  CommonFlags common;
  command->add_flags(flags);
  common.add_to(flags);
  Call call(host, common);
  // Help comes before what is wrong with the rest of the line.
  if (std::find(arguments.begin(), arguments.end(), "--help") != arguments.end() ||
      std::find(arguments.begin(), arguments.end(), "-h") != arguments.end()) {
    call.print(render_help(command->help(), flags.helps()));
    call.flush();
    return kOk;
  }
  flags.check(entry.name, arguments);
  for (const std::string& extra : flags.parse(entry.name, arguments))
    if (extra != "--")
      throw Error(ErrorKind::usage,
                  fmt::format("unexpected argument '{}' for {}; `tessera {} --help` lists what there is", shown(extra),
                              entry.name, entry.name));
  const ExitCode code = command->run(call);
  call.flush();
  return code;
}

[[noreturn]] void refuse_command(const std::string& name, const std::vector<std::string_view>& names) {
  const std::vector<std::string_view> operators = operator_names();
  const bool is_operator = std::find(operators.begin(), operators.end(), name) != operators.end();
  std::string hint = suggestion(name, names);
  if (hint.empty()) hint = suggestion(name, operators);
  if (is_operator)
    hint = fmt::format(": it is an operator, which stands behind a command, like `tessera run {}`", name);
  throw Error(ErrorKind::usage,
              fmt::format("unknown command {}{}; there are {}", shown(name), hint, fmt::join(names, ", ")));
}

ExitCode dispatch(const std::vector<std::string>& arguments, Host& host) {
  const CommonFlags none;
  Call call(host, none);
  if (arguments.empty()) {
    std::fputs(overview().c_str(), host.err);
    return kUsage;
  }
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    call.print(overview());
    call.flush();
    return kOk;
  }
  if (name == "--version") {
    call.print("tessera " TESSERA_VERSION "\n");
    call.flush();
    return kOk;
  }
  std::vector<std::string_view> names;
  for (const CommandEntry& entry : commands()) {
    if (entry.name == name) return run_command(entry, {arguments.begin() + 1, arguments.end()}, host);
    names.push_back(entry.name);
  }
  refuse_command(name, names);
}

}  // namespace

int run_tessera(const std::vector<std::string>& arguments, Host& host) {
  const auto say = [&](std::string line) { std::fprintf(host.err, "%s\n", printable(std::move(line)).c_str()); };
  try {
    return dispatch(arguments, host);
  } catch (const BrokenPipe&) {
    return kOk;
  } catch (const Error& error) {
    say(fmt::format("tessera: {}", error.what()));
    for (const std::string& text : error.notes()) say(indented(text));
    return exit_code_of(error.kind());
  } catch (const std::bad_alloc&) {
    std::fputs("tessera: out of memory: this machine, or a limit of the process (ulimit -v), gives no more\n",
               host.err);
    return kDevice;
  } catch (const std::length_error&) {
    std::fputs("tessera: out of memory: a size is larger than any memory\n", host.err);
    return kDevice;
  } catch (const std::system_error& error) {  // a thread that cannot be started, a folder that goes away
    say(fmt::format("tessera: {}", error.what()));
    return kDevice;
  } catch (const std::exception& error) {
    say(fmt::format("tessera: bug: {}", error.what()));
    return kBug;
  }
}

}  // namespace tessera::cli
