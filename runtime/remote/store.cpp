#include "runtime/remote/store.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/remote/credentials.h"
#include "runtime/remote/http_store.h"
#include "runtime/remote/redis_store.h"
#include "runtime/remote/s3_store.h"
#include "tessera/error.h"

namespace tessera::remote {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::usage, "remote cache: " + what); }

}  // namespace

std::unique_ptr<Store> open_store(const RemoteOptions& options) {
  const std::string& url = options.url;
  const std::size_t mark = url.find("://");
  if (mark == std::string::npos)
    refuse("the URL has no scheme: give http(s)://HOST/PREFIX, s3://BUCKET/PREFIX or redis://HOST");
  const std::string scheme = url.substr(0, mark);
  const std::size_t slash = std::min(url.find('/', mark + 3), url.size());
  const std::string host = url.substr(mark + 3, slash - mark - 3);
  if (host.find('@') != std::string::npos)
    refuse("the URL holds credentials, which would be shown: put them into the file of --remote-credentials");
  const bool is_http = scheme == "http" || scheme == "https", is_s3 = scheme == "s3",
             is_redis = scheme == "redis" || scheme == "rediss";
  if (!is_http && !is_s3 && !is_redis)
    throw Error(ErrorKind::unsupported,
                fmt::format("remote cache: no stores of scheme {}: give http, https, s3, redis or rediss", scheme));
  if (host.empty() || url.find_first_of(" \t\r\n?#") != std::string::npos)
    refuse(fmt::format("{}: is no URL of the form {}://{}[/PREFIX]", url, scheme, is_s3 ? "BUCKET" : "HOST[:PORT]"));
  std::string prefix = url.substr(slash);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (is_redis) return make_redis_store(options, host, prefix, scheme == "rediss");
  if (is_s3) return make_s3_store(options, host, prefix.empty() ? prefix : prefix.substr(1));
  return make_http_store({.shown = url,
                          .base = url.substr(0, slash) + prefix,
                          .headers = read_header_lines(options.credentials),
                          .ca_file = options.ca_file.string()});
}

}  // namespace tessera::remote
