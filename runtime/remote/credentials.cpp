#include "runtime/remote/credentials.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <memory>
#include <sstream>

#include "tessera/error.h"

namespace tessera::remote {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw Error(ErrorKind::usage, fmt::format("remote cache: credentials {}{}", path.string(), why));
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

/// Of the file that was looked at, and not of one that takes its place meanwhile.
std::string read_private(const std::filesystem::path& path) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "re"));
  struct stat status = {};
  if (!file || ::fstat(::fileno(file.get()), &status) != 0 || S_ISDIR(status.st_mode))
    throw Error(ErrorKind::io, fmt::format("remote cache: credentials {}: cannot be read", path.string()));
  if ((status.st_mode & 0077U) != 0) refuse(path, ": others than their owner may read or write the file; chmod 600 it");
  std::string text;
  std::array<char, 4096> some;
  while (const std::size_t bytes = std::fread(some.data(), 1, some.size(), file.get())) text.append(some.data(), bytes);
  return text;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

}  // namespace

std::vector<std::pair<int, std::string>> read_credential_lines(const std::filesystem::path& path) {
  std::istringstream file(read_private(path));
  std::vector<std::pair<int, std::string>> lines;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') lines.emplace_back(number, std::move(line));
  }
  return lines;
}

std::vector<std::string> read_header_lines(const std::filesystem::path& path) {
  std::vector<std::string> headers;
  if (path.empty()) return headers;
  for (auto& [number, line] : read_credential_lines(path)) {
    const std::size_t colon = line.find(':');
    const bool is_header = colon != std::string::npos && colon > 0 && line.find_first_of(" \t\r\n") > colon;
    if (!is_header) refuse(path, fmt::format(", line {}: is no header line, NAME: VALUE", number));
    headers.push_back(std::move(line));
  }
  if (headers.empty()) refuse(path, ": has no header line, NAME: VALUE");
  return headers;
}

RedisCredentials read_redis_credentials(const std::filesystem::path& path) {
  RedisCredentials credentials;
  for (const auto& [number, line] : read_credential_lines(path)) {
    const std::size_t colon = line.find(':');
    const std::string name = trimmed(line.substr(0, colon));
    if (colon == std::string::npos || (name != "username" && name != "password"))
      refuse(path, fmt::format(", line {}: is neither username: NAME nor password: SECRET", number));
    (name == "username" ? credentials.username : credentials.password) = trimmed(line.substr(colon + 1));
  }
  if (credentials.password.empty()) refuse(path, ": has no line password: SECRET");
  return credentials;
}

AwsCredentials read_aws_credentials(const std::filesystem::path& path) {
  AwsCredentials credentials;
  std::string section = "default";
  for (const auto& [number, line] : read_credential_lines(path)) {
    const std::string text = trimmed(line);
    if (text.empty() || text.front() == ';') continue;
    if (text.front() == '[') {
      section = trimmed(text.substr(1, text.find(']') - 1));
      continue;
    }
    const std::size_t sign = text.find('=');
    if (sign == std::string::npos) refuse(path, fmt::format(", line {}: is no line NAME = VALUE", number));
    if (section != "default") continue;
    const std::string name = trimmed(text.substr(0, sign)), value = trimmed(text.substr(sign + 1));
    if (name == "aws_access_key_id") credentials.access_key_id = value;
    if (name == "aws_secret_access_key") credentials.secret_access_key = value;
    if (name == "aws_session_token") credentials.session_token = value;
  }
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty())
    refuse(path, ": has no aws_access_key_id and aws_secret_access_key (section [default], or without sections)");
  return credentials;
}

}  // namespace tessera::remote
