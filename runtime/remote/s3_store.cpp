#include "runtime/remote/s3_store.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/hash.h"
#include "runtime/remote/authority.h"
#include "runtime/remote/aws_signature.h"
#include "runtime/remote/credentials.h"
#include "runtime/remote/http_store.h"
#include "tessera/error.h"

namespace tessera::remote {

namespace {

[[noreturn]] void refuse_s3(const std::string& what) { throw Error(ErrorKind::usage, "remote cache: " + what); }

/// The code of an S3 error, <Code>AccessDenied</Code>: a word, and nothing else of the answer.
std::string code_of(std::string_view body) {
  const std::size_t at = body.find("<Code>");
  if (at == std::string_view::npos) return {};
  const std::string_view rest = body.substr(at + 6, 64);
  const std::string_view code = rest.substr(0, rest.find('<'));
  const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
  return std::all_of(code.begin(), code.end(), is_letter) ? std::string(code) : std::string();
}

AwsCredentials credentials_of(const RemoteOptions& options) {
  if (!options.credentials.empty()) return read_aws_credentials(options.credentials);
  AwsCredentials credentials{options.aws_access_key_id, options.aws_secret_access_key, options.aws_session_token};
  if (credentials.access_key_id.empty() || credentials.secret_access_key.empty())
    refuse_s3(
        "s3 needs credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a file with aws_access_key_id and "
        "aws_secret_access_key (--remote-credentials)");
  return credentials;
}

}  // namespace

S3Place s3_place(const RemoteOptions& options, const std::string& bucket, const std::string& prefix) {
  if (options.region.empty()) refuse_s3("s3 needs a region: give --remote-region or AWS_REGION");
  const bool is_aws = options.endpoint.empty();
  std::string endpoint = is_aws ? fmt::format("https://s3.{}.amazonaws.com", options.region) : options.endpoint;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  const std::size_t mark = endpoint.find("://");
  const std::string scheme = endpoint.substr(0, mark == std::string::npos ? 0 : mark);
  std::string host = mark == std::string::npos ? "" : endpoint.substr(mark + 3);
  if ((scheme != "http" && scheme != "https") || !parse_authority(host))
    refuse_s3("the endpoint is no URL of the form http(s)://HOST[:PORT]; credentials have no place in it");
  if (const std::string port = scheme == "http" ? ":80" : ":443"; host.ends_with(port))
    host.resize(host.size() - port.size());
  // A certificate for *.s3.REGION.amazonaws.com holds for one label alone.
  const bool is_by_host =
      options.s3_style == "host" || (options.s3_style.empty() && is_aws && bucket.find('.') == std::string::npos);
  if (!options.s3_style.empty() && options.s3_style != "host" && options.s3_style != "path")
    refuse_s3(fmt::format("s3 style {}: must be path or host", options.s3_style));
  S3Place place;
  place.host = is_by_host ? bucket + "." + host : host;
  place.path =
      (is_by_host ? "" : "/" + uri_encoded(bucket, false)) + (prefix.empty() ? "" : "/" + uri_encoded(prefix, true));
  place.base = scheme + "://" + place.host + place.path;
  return place;
}

std::unique_ptr<Store> make_s3_store(const RemoteOptions& options, const std::string& bucket,
                                     const std::string& prefix) {
  const S3Place place = s3_place(options, bucket, prefix);
  HttpTarget target{.shown = options.url, .base = place.base, .ca_file = options.ca_file.string()};
  target.error_word = code_of;
  target.signed_headers = [place, credentials = credentials_of(options), region = options.region](
                              std::string_view method, const std::string& name, std::string_view sent) {
    const auto now = std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
    const std::string time = fmt::format("{:%Y%m%dT%H%M%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
    AwsRequest request{.method = std::string(method),
                       .path = place.path + "/" + name,
                       .headers = {{"host", place.host}, {"x-amz-date", time}},
                       .payload_sha256 = sha256_hex(sent)};
    request.headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
    if (!credentials.session_token.empty())
      request.headers.emplace_back("x-amz-security-token", credentials.session_token);
    std::vector<std::string> lines;
    for (const auto& [field, value] : request.headers) lines.push_back(field + ": " + value);
    lines.push_back("Authorization: " + aws_authorization(request, credentials, region, "s3", time));
    return lines;
  };
  return make_http_store(std::move(target));
}

}  // namespace tessera::remote
