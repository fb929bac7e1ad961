// JitOptions from the environment: the only place in tessera that reads it.

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "tessera/internal/environment.h"
#include "tessera/jit.h"

namespace tessera {

std::string_view environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view{} : std::string_view{value};
}

namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    const std::string_view part = text.substr(0, end);
    if (!part.empty()) parts.emplace_back(part);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
  return parts;
}

std::int64_t whole_number(const char* name, std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size() || value < 0) {
    throw Error(ErrorKind::usage, fmt::format("{} = {}: must be a whole number, 0 or more", name, text));
  }
  return value;
}

bool flag(const char* name, std::string_view text) {
  if (text == "1" || text == "true") return true;
  if (text == "0" || text == "false") return false;
  throw Error(ErrorKind::usage, fmt::format("{} = {}: must be 0 or 1", name, text));
}

CompilePolicy compile_policy(const char* name, std::string_view text) {
  if (text == "allow") return CompilePolicy::allow;
  if (text == "warn") return CompilePolicy::warn;
  if (text == "forbid") return CompilePolicy::forbid;
  throw Error(ErrorKind::usage, fmt::format("{} = {}: must be allow, warn or forbid", name, text));
}

/// $XDG_CACHE_HOME/tessera, ~/.cache/tessera, or empty: no disk tier then.
std::filesystem::path default_cache_dir() {
  if (const auto xdg = environment_variable("XDG_CACHE_HOME"); !xdg.empty() && xdg.front() == '/') {
    return std::filesystem::path(xdg) / "tessera";
  }
  if (const auto home = environment_variable("HOME"); !home.empty())
    return std::filesystem::path(home) / ".cache" / "tessera";
  return {};
}

}  // namespace

constexpr std::int64_t kDayMs = 86'400'000;

JitOptions JitOptions::from_environment() {
  JitOptions options;
  const auto with = [](const char* name, auto&& take) {
    if (const auto text = environment_variable(name); !text.empty()) take(name, text);
  };
  options.cache_dir = default_cache_dir();
  with("TESSERA_CACHE_DIR", [&](const char*, std::string_view text) { options.cache_dir = text; });
  with("TESSERA_SYSTEM_CACHE_DIRS", [&](const char*, std::string_view text) {
    for (std::string& part : split(text, ':')) options.system_cache_dirs.emplace_back(std::move(part));
  });
  with("TESSERA_CACHE_MAX_BYTES",
       [&](const char* name, std::string_view text) { options.cache_max_bytes = whole_number(name, text); });
  with("TESSERA_TRUST_CACHE_DIR",
       [&](const char* name, std::string_view text) { options.trust_cache_dir = flag(name, text); });
  with("TESSERA_REQUIRE_COMPILER",
       [&](const char* name, std::string_view text) { options.require_compiler = flag(name, text); });
  with("TESSERA_COMPILE_POLICY",
       [&](const char* name, std::string_view text) { options.policy = compile_policy(name, text); });
  with("TESSERA_CHECK_POINTERS",
       [&](const char* name, std::string_view text) { options.check_pointers = flag(name, text); });
  with("TESSERA_REMOTE", [&](const char*, std::string_view text) { options.remote.url = text; });
  with("TESSERA_REMOTE_WRITE",
       [&](const char* name, std::string_view text) { options.remote.is_written = flag(name, text); });
  with("TESSERA_REMOTE_CREDENTIALS", [&](const char*, std::string_view text) { options.remote.credentials = text; });
  with("TESSERA_REMOTE_CA_FILE", [&](const char*, std::string_view text) { options.remote.ca_file = text; });
  // As every program that speaks S3 reads them; the names of tessera's own come after, and so win.
  for (const char* name : {"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "TESSERA_REMOTE_ENDPOINT"})
    with(name, [&](const char*, std::string_view text) { options.remote.endpoint = text; });
  for (const char* name : {"AWS_DEFAULT_REGION", "AWS_REGION", "TESSERA_REMOTE_REGION"})
    with(name, [&](const char*, std::string_view text) { options.remote.region = text; });
  with("TESSERA_REMOTE_S3_STYLE", [&](const char*, std::string_view text) { options.remote.s3_style = text; });
  with("AWS_ACCESS_KEY_ID", [&](const char*, std::string_view text) { options.remote.aws_access_key_id = text; });
  with("AWS_SECRET_ACCESS_KEY",
       [&](const char*, std::string_view text) { options.remote.aws_secret_access_key = text; });
  with("AWS_SESSION_TOKEN", [&](const char*, std::string_view text) { options.remote.aws_session_token = text; });
  with("TESSERA_REMOTE_TIME_LIMIT_MS", [&](const char* name, std::string_view text) {
    options.remote.time_limit = std::chrono::milliseconds(std::min(whole_number(name, text), kDayMs));
  });
  with("TESSERA_REMOTE_SIGNING_KEY", [&](const char*, std::string_view text) { options.remote.signing_key = text; });
  with("TESSERA_REMOTE_TRUSTED_KEYS", [&](const char*, std::string_view text) { options.remote.trusted_keys = text; });
  with("TESSERA_NVRTC", [&](const char*, std::string_view text) { options.nvrtc_library = text; });
  with("TESSERA_REPRO_DIR", [&](const char*, std::string_view text) { options.repro_dir = text; });
  with("TESSERA_TEMPLATES", [&](const char*, std::string_view text) { options.templates_dir = text; });
  with("TESSERA_NVRTC_OPTIONS", [&](const char*, std::string_view text) { options.nvrtc_options = split(text, ' '); });
  with("TESSERA_COMPILE_TIME_LIMIT_MS", [&](const char* name, std::string_view text) {
    options.compile_time_limit = std::chrono::milliseconds(std::min(whole_number(name, text), kDayMs));
  });
  return options;
}

}  // namespace tessera
