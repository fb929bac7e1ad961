#include "cli/call.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/shown.h"
#include "tessera/error.h"

namespace tessera::cli {

void CommonFlags::add_to(FlagSet& flags) {
  flags.group("Common flags");
  flags.text("--cache-dir", "DIR", cache_dir, "the cubin cache (default: $XDG_CACHE_HOME/tessera or ~/.cache/tessera)");
  flags.number("--jobs", "N", jobs, 0, "work in parallel on N cores (0: all)");
  flags.toggle("--json", is_json, "print the result as JSON");
  flags.toggle("--quiet", is_quiet, "no progress and no notes on stderr");
  flags.toggle("--verbose", is_verbose, "more on stderr: every hit and compile");
  flags.group("Compiler and cache");
  flags.text("--system-cache-dirs", "DIR:DIR", system_cache_dirs, "read-only caches, searched after the cache folder");
  flags.number("--cache-max-bytes", "N", cache_max_bytes, 0,
               "evict least recently used entries above this; 0: no limit");
  flags.toggle("--trust-cache-dir", is_trusted, "accept a cache folder that others can write");
  flags.toggle("--require-compiler", requires_compiler, "serve only entries that the compiler found here made");
  flags.text("--remote", "URL", remote, "a cache that machines share: http, s3 or redis (docs/remote.md)");
  flags.toggle("--remote-write", writes_remote, "store there what is compiled here");
  flags.text("--remote-credentials", "FILE", remote_credentials, "what its requests are allowed by");
  flags.text("--remote-ca-file", "FILE", remote_ca_file, "certificates to trust in place of the system's");
  flags.text("--remote-endpoint", "URL", remote_endpoint, "s3: the server (default: that of AWS)");
  flags.text("--remote-region", "NAME", remote_region, "s3: the region, us-east-1 say");
  flags.text("--remote-s3-style", "WORD", remote_s3_style, "s3: the bucket's name in the path or the host");
  flags.number("--remote-time-limit-ms", "N", remote_time_limit_ms, 1,
               "longest time of a look-up there; then it is asked no more (default: 5000)");
  flags.text("--remote-signing-key", "FILE", remote_signing_key, "signs what is stored: ed25519, PEM");
  flags.text("--remote-trusted-keys", "FILE", remote_trusted_keys, "load what one of these keys signed alone");
  flags.text("--compile-policy", "WORD", compile_policy, "run: on a miss allow, warn or forbid compiling");
  flags.number("--compile-time-limit-ms", "N", compile_time_limit_ms, 0,
               "run: give up waiting for a kernel after this; 0: never");
  flags.toggle("--check-pointers", checks_pointers, "run: ask the driver about every buffer before a launch");
  flags.text("--nvrtc", "FILE", nvrtc, "the libnvrtc.so to use");
  flags.text("--repro-dir", "DIR", repro_dir, "where a failing compile leaves what replays it");
  flags.text("--templates", "DIR", templates, "development: files here replace embedded templates");
  flags.list("--nvrtc-option", "OPTION", nvrtc_options, "development: one more option for NVRTC; repeatable");
}

const std::vector<EnvironmentVariable>& environment_variables() {
  static const std::vector<EnvironmentVariable> table = {{"TESSERA_CACHE_DIR", "--cache-dir"},
                                                         {"TESSERA_SYSTEM_CACHE_DIRS", "--system-cache-dirs"},
                                                         {"TESSERA_CACHE_MAX_BYTES", "--cache-max-bytes"},
                                                         {"TESSERA_TRUST_CACHE_DIR", "--trust-cache-dir"},
                                                         {"TESSERA_REQUIRE_COMPILER", "--require-compiler"},
                                                         {"TESSERA_REMOTE", "--remote"},
                                                         {"TESSERA_REMOTE_WRITE", "--remote-write"},
                                                         {"TESSERA_REMOTE_CREDENTIALS", "--remote-credentials"},
                                                         {"TESSERA_REMOTE_CA_FILE", "--remote-ca-file"},
                                                         {"TESSERA_REMOTE_ENDPOINT", "--remote-endpoint"},
                                                         {"TESSERA_REMOTE_REGION", "--remote-region"},
                                                         {"TESSERA_REMOTE_S3_STYLE", "--remote-s3-style"},
                                                         {"TESSERA_REMOTE_TIME_LIMIT_MS", "--remote-time-limit-ms"},
                                                         {"TESSERA_REMOTE_SIGNING_KEY", "--remote-signing-key"},
                                                         {"TESSERA_REMOTE_TRUSTED_KEYS", "--remote-trusted-keys"},
                                                         {"TESSERA_COMPILE_POLICY", "--compile-policy"},
                                                         {"TESSERA_COMPILE_TIME_LIMIT_MS", "--compile-time-limit-ms"},
                                                         {"TESSERA_CHECK_POINTERS", "--check-pointers"},
                                                         {"TESSERA_NVRTC", "--nvrtc"},
                                                         {"TESSERA_REPRO_DIR", "--repro-dir"},
                                                         {"TESSERA_TEMPLATES", "--templates"},
                                                         {"TESSERA_NVRTC_OPTIONS", "--nvrtc-option"}};
  return table;
}

JitOptions CommonFlags::apply_to(JitOptions options) const {
  if (!cache_dir.empty()) options.cache_dir = cache_dir;
  if (!system_cache_dirs.empty()) {
    options.system_cache_dirs.clear();
    for (std::size_t start = 0; start <= system_cache_dirs.size();) {
      const std::size_t end = std::min(system_cache_dirs.find(':', start), system_cache_dirs.size());
      if (end > start) options.system_cache_dirs.emplace_back(system_cache_dirs.substr(start, end - start));
      start = end + 1;
    }
  }
  if (cache_max_bytes >= 0) options.cache_max_bytes = cache_max_bytes;
  if (compile_time_limit_ms >= 0) options.compile_time_limit = std::chrono::milliseconds(compile_time_limit_ms);
  options.trust_cache_dir = options.trust_cache_dir || is_trusted;
  if (!remote.empty()) options.remote.url = remote;
  options.remote.is_written = options.remote.is_written || writes_remote;
  if (!remote_credentials.empty()) options.remote.credentials = remote_credentials;
  if (!remote_ca_file.empty()) options.remote.ca_file = remote_ca_file;
  if (!remote_endpoint.empty()) options.remote.endpoint = remote_endpoint;
  if (!remote_region.empty()) options.remote.region = remote_region;
  if (!remote_s3_style.empty()) options.remote.s3_style = remote_s3_style;
  if (remote_time_limit_ms > 0) options.remote.time_limit = std::chrono::milliseconds(remote_time_limit_ms);
  if (!remote_signing_key.empty()) options.remote.signing_key = remote_signing_key;
  if (!remote_trusted_keys.empty()) options.remote.trusted_keys = remote_trusted_keys;
  options.require_compiler = options.require_compiler || requires_compiler;
  options.check_pointers = options.check_pointers || checks_pointers;
  static constexpr CompilePolicy kPolicies[] = {CompilePolicy::allow, CompilePolicy::warn, CompilePolicy::forbid};
  if (!compile_policy.empty())
    options.policy = kPolicies[index_of_word("--compile-policy", compile_policy, {"allow", "warn", "forbid"})];
  if (!nvrtc.empty()) options.nvrtc_library = nvrtc;
  if (!repro_dir.empty()) options.repro_dir = repro_dir;
  if (!templates.empty()) options.templates_dir = templates;
  options.nvrtc_options.insert(options.nvrtc_options.end(), nvrtc_options.begin(), nvrtc_options.end());
  return options;
}

JitOptions Call::options() const {
  JitOptions options = flags_.apply_to(host_.options);
  options.on_event = [this](const JitEvent& event) {
    if (event.kind == JitEvent::Kind::warning) warn(event.message);
    if (!flags_.is_verbose) return;
    if (event.kind == JitEvent::Kind::hit)
      note(fmt::format("{}: found in the {} tier", event.kernel, to_string(event.tier)));
    if (event.kind == JitEvent::Kind::compile_finished)
      note(fmt::format("{}: compiled in {:.0f} ms", event.kernel, event.milliseconds));
  };
  return options;
}

Jit& Call::jit() {
  if (!jit_) {
    jit_ = std::make_unique<Jit>(options());
    if (host_.prepare_jit) host_.prepare_jit(*jit_);
  }
  return *jit_;
}

void Call::print(std::string_view text) const {
  if (is_unread_) return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), host_.out) != text.size()) stdout_failed();
}

void Call::flush() const {
  if (is_unread_) return;
  errno = 0;
  if (std::fflush(host_.out) != 0) stdout_failed();
}

void Call::stdout_failed() const {
  if (errno != EPIPE) throw Error(ErrorKind::io, fmt::format("stdout cannot be written: {}", std::strerror(errno)));
  if (stops_without_reader_) throw BrokenPipe{};
  is_unread_ = true;
}

void Call::print_json(const OrderedJson& json) const { print(json.dump(2) + "\n"); }

void Call::note(std::string_view text) const {
  if (flags_.is_quiet) return;
  clear_progress();
  std::fprintf(host_.err, "%s\n", printable(std::string(text)).c_str());
}

void Call::warn(std::string_view text) const {
  constexpr std::size_t kMaxUnsaid = 20;
  const std::lock_guard lock(unsaid_mutex_);
  if (!flags_.is_quiet) return note(fmt::format("warning: {}", text));
  if (unsaid_.size() < kMaxUnsaid) unsaid_.emplace_back(text);
}

void Call::complain(std::string_view text) const {
  const std::lock_guard lock(unsaid_mutex_);
  clear_progress();
  for (const std::string& warning : unsaid_) std::fprintf(host_.err, "warning: %s\n", printable(warning).c_str());
  unsaid_.clear();
  std::fprintf(host_.err, "%s\n", printable(std::string(text)).c_str());
}

void Call::progress(std::string_view line) const {
  if (!host_.is_terminal || flags_.is_quiet) return;
  // A line that wraps is not overwritten by the next one; some terminals wrap behind the last column already.
  const int columns = host_.terminal_columns ? host_.terminal_columns() : 80;
  const std::size_t bytes = std::min<std::size_t>(line.size(), columns > 1 ? static_cast<std::size_t>(columns) - 1 : 0);
  std::fprintf(host_.err, "\r\x1b[K%.*s", static_cast<int>(bytes), line.data());
  std::fflush(host_.err);
}

void Call::clear_progress() const {
  if (host_.is_terminal && !flags_.is_quiet) std::fputs("\r\x1b[K", host_.err);
}

namespace {

ProblemList read_untuned(const std::string& subject, const SelectorFlags& flags) {
  const std::vector<std::string_view> names = operator_names();
  if (std::find(names.begin(), names.end(), subject) != names.end()) return parse_selectors(subject, flags.typed());
  const bool is_file = subject.ends_with(".json") || subject.find('/') != std::string::npos || subject == "-";
  if (!is_file) {
    if (is_row_chain(subject)) {
      for (const TypedSelector& selector : flags.typed())
        if (selector.key == "chain")
          throw Error(ErrorKind::usage,
                      fmt::format("{} is a chain of rows already: leave --chain out", shown(subject)));
      return parse_selectors(subject, flags.typed());
    }
    throw Error(ErrorKind::usage,
                fmt::format("{}: is neither an operator ({}) nor a shape list (a file that ends in .json){}",
                            shown(subject), fmt::join(names, ", "), suggestion(subject, names)));
  }
  if (flags.is_any_given())
    throw Error(ErrorKind::usage,
                fmt::format("selectors go with an operator; the problems of {} stand in it", subject));
  return parse_shape_list(read_text(subject == "-" ? "/dev/stdin" : subject), subject);
}

}  // namespace

ProblemList read_problems(const std::string& subject, const SelectorFlags& flags) {
  ProblemList list = read_untuned(subject, flags);
  if (!flags.tuning_file().empty()) list.tuning = std::make_shared<const Tuning>(Tuning::read(flags.tuning_file()));
  return list;
}

std::string describe(const Problem& problem) {
  const std::string_view op = operator_name(problem);
  const Problem standard = default_problem(op);
  std::string text(op);
  for (const Selector& selector : selectors(op)) {
    const std::string value = selector.text(problem);
    if (value != selector.text(standard)) text += fmt::format(" --{} {}", selector.flag, value);
  }
  return text;
}

std::string grouped(std::int64_t value) {
  std::string digits = fmt::format("{}", value < 0 ? -value : value);
  for (std::size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return value < 0 ? "-" + digits : digits;
}

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  if (count == 1) return fmt::format("1 {}", one);
  return many.empty() ? fmt::format("{} {}s", grouped(count), one) : fmt::format("{} {}", grouped(count), many);
}

std::string indented(std::string_view text) {
  std::string out = "  ";
  for (const char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out;
}

std::string duration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 60) return fmt::format("{:.0f} s", seconds);
  const auto whole = static_cast<std::int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace tessera::cli
