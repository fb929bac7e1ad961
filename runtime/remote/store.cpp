#include "runtime/remote/store.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/remote/authority.h"
#include "runtime/remote/credentials.h"
#include "runtime/remote/http_store.h"
#include "runtime/remote/redis_store.h"
#include "runtime/remote/s3_store.h"
#include "tessera/error.h"

namespace tessera::remote {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorKind::usage, "remote cache: " + what); }

/// As S3 has them, and as older buckets of AWS are called.
bool is_bucket(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

}  // namespace

std::unique_ptr<Store> open_store(const RemoteOptions& options) {
  const std::string& url = options.url;
  const std::size_t mark = url.find("://");
  if (mark == std::string::npos)
    refuse("the URL has no scheme: give http(s)://HOST/PREFIX, s3://BUCKET/PREFIX or redis://HOST");
  const std::string scheme = url.substr(0, mark);
  const std::size_t slash = std::min(url.find('/', mark + 3), url.size());
  const std::string host = url.substr(mark + 3, slash - mark - 3);
  const bool is_http = scheme == "http" || scheme == "https", is_s3 = scheme == "s3",
             is_redis = scheme == "redis" || scheme == "rediss";
  // A password may have slashes in it, so the whole URL is looked at; a prefix of S3 may have an @.
  if (url.find('@') != std::string::npos && !(is_s3 && is_bucket(host)))
    refuse(
        "the URL holds credentials, which would be shown: put them into the file of --remote-credentials (an @ of a "
        "path is written %40)");
  if (!is_http && !is_s3 && !is_redis)
    throw Error(ErrorKind::unsupported,
                fmt::format("remote cache: no stores of scheme {}: give http, https, s3, redis or rediss", scheme));
  // What is malformed is not shown: it may be that a password stands in the wrong place.
  if (!(is_s3 ? is_bucket(host) : parse_authority(host).has_value()) ||
      url.find_first_of(" \t\r\n?#") != std::string::npos)
    refuse(fmt::format("what was given is no URL of the form {}://{}", scheme,
                       is_s3      ? "BUCKET[/PREFIX]"
                       : is_redis ? "HOST[:PORT][/DATABASE[/PREFIX]]"
                                  : "HOST[:PORT][/PREFIX]"));
  std::string prefix = url.substr(slash);
  while (prefix.ends_with('/')) prefix.pop_back();
  if (is_redis) return make_redis_store(options, *parse_authority(host), prefix, scheme == "rediss");
  if (is_s3) return make_s3_store(options, host, prefix.empty() ? prefix : prefix.substr(1));
  return make_http_store({.shown = url,
                          .base = url.substr(0, slash) + prefix,
                          .headers = read_header_lines(options.credentials),
                          .ca_file = options.ca_file.string()});
}

}  // namespace tessera::remote
