#include "runtime/remote/store.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "runtime/remote/http_store.h"
#include "tessera/error.h"

namespace tessera::remote {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::usage, "remote cache: " + what); }

/// Lines "Name: value"; empty ones and those that begin with # are passed over.
std::vector<std::string> read_headers(const std::filesystem::path& path) {
  if (path.empty()) return {};
  struct stat status = {};
  std::ifstream file(path);
  if (!file || ::stat(path.c_str(), &status) != 0)
    throw Error(ErrorKind::io, fmt::format("remote cache: credentials {}: cannot be read", path.string()));
  if ((status.st_mode & 0077U) != 0)
    refuse(
        fmt::format("credentials {}: others than their owner may read or write the file; chmod 600 it", path.string()));
  std::vector<std::string> headers;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    const std::size_t colon = line.find(':');
    const bool is_header = colon != std::string::npos && colon > 0 && line.find_first_of(" \t\r\n") > colon;
    if (!is_header)
      refuse(fmt::format("credentials {}, line {}: is no header line, NAME: VALUE", path.string(), number));
    headers.push_back(std::move(line));
  }
  return headers;
}

}  // namespace

std::unique_ptr<Store> open_store(const RemoteOptions& options) {
  const std::string& url = options.url;
  const std::size_t mark = url.find("://");
  if (mark == std::string::npos) refuse("the URL has no scheme: give http://HOST/PREFIX or https://HOST/PREFIX");
  const std::string scheme = url.substr(0, mark);
  const std::size_t slash = std::min(url.find('/', mark + 3), url.size());
  const std::string host = url.substr(mark + 3, slash - mark - 3);
  if (host.find('@') != std::string::npos)
    refuse("the URL holds credentials, which would be shown: put a header line into the file of --remote-credentials");
  if (scheme != "http" && scheme != "https")
    throw Error(ErrorKind::unsupported,
                fmt::format("remote cache: no stores of scheme {}: give http or https", scheme));
  if (host.empty() || url.find_first_of(" \t\r\n?#") != std::string::npos)
    refuse(fmt::format("{}: is no URL of the form {}://HOST[:PORT][/PREFIX]", url, scheme));
  std::string base = url;
  while (base.back() == '/') base.pop_back();
  return make_http_store(base, read_headers(options.credentials), options.ca_file.string());
}

}  // namespace tessera::remote
