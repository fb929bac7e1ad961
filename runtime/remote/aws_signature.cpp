#include "runtime/remote/aws_signature.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>

#include "base/hash.h"
#include "tessera/error.h"

namespace tessera::remote {

namespace {

std::string hmac(std::string_view key, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest.data(), &size) == nullptr)
    throw Error(ErrorKind::io, "remote cache: OpenSSL could not sign a request");
  return {reinterpret_cast<const char*>(digest.data()), size};
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string lower(std::string_view text) {
  std::string result;
  for (const char c : text) result.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  return result;
}

/// Without spaces at the ends, and with one where there are several.
std::string trimmed_value(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\t';
    if (!is_space) result.push_back(c);
    if (is_space && !result.empty() && result.back() != ' ') result.push_back(' ');
  }
  if (!result.empty() && result.back() == ' ') result.pop_back();
  return result;
}

std::string canonical_query(const AwsRequest::Fields& query) {
  AwsRequest::Fields encoded;
  for (const auto& [name, value] : query) encoded.emplace_back(uri_encoded(name, false), uri_encoded(value, false));
  std::sort(encoded.begin(), encoded.end());
  std::string text;
  for (const auto& [name, value] : encoded) text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

}  // namespace

std::string uri_encoded(std::string_view text, bool keeps_slash) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '.' || c == '_' || c == '~' || (keeps_slash && c == '/');
    result += is_plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return result;
}

std::string aws_authorization(const AwsRequest& request, const AwsCredentials& credentials, std::string_view region,
                              std::string_view service, std::string_view time) {
  std::map<std::string, std::string> headers;  // of one name: joined in their order
  for (const auto& [name, value] : request.headers) {
    const auto [slot, is_new] = headers.try_emplace(lower(name), trimmed_value(value));
    if (!is_new) slot->second += "," + trimmed_value(value);
  }
  std::string lines, names;
  for (const auto& [name, value] : headers) {
    lines += name + ":" + value + "\n";
    names += (names.empty() ? "" : ";") + name;
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            canonical_query(request.query), lines, names, request.payload_sha256);
  const std::string_view date = time.substr(0, 8);
  const std::string scope = fmt::format("{}/{}/{}/aws4_request", date, region, service);
  const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(canonical));
  const std::string key =
      hmac(hmac(hmac(hmac("AWS4" + credentials.secret_access_key, date), region), service), "aws4_request");
  return fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}", credentials.access_key_id,
                     scope, names, hex(hmac(key, text)));
}

}  // namespace tessera::remote
