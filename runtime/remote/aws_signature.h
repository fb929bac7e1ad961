// Signatures of requests as AWS and whatever speaks S3 wants them: AWS4-HMAC-SHA256, "Signature Version 4 signing
// process" of the IAM guide. Held to the published test suite by tests/remote/aws_signature_test.cpp.
//
// By OpenSSL's SHA-256 and HMAC, not by CURLOPT_AWS_SIGV4: libcurl 7.88 takes the time from its own clock, so no
// published vector can be held against it, and signs a PUT that is read from a callback without its payload.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::remote {

struct AwsCredentials {
  std::string access_key_id, secret_access_key;
  std::string session_token;  ///< empty: a key that lasts
};

struct AwsRequest {
  using Fields = std::vector<std::pair<std::string, std::string>>;
  std::string method;
  std::string path;            ///< encoded, as it is sent
  Fields query{};              ///< not encoded
  Fields headers{};            ///< those that are signed, `host` among them
  std::string payload_sha256;  ///< hexadecimal
};

/// The value of the Authorization header. `time`: as in x-amz-date, "20150830T123600Z".
std::string aws_authorization(const AwsRequest& request, const AwsCredentials& credentials, std::string_view region,
                              std::string_view service, std::string_view time);

/// Percent-encoded as signatures want it: all but letters, digits and -._~, and but the slash where it is kept.
std::string uri_encoded(std::string_view text, bool keeps_slash);

}  // namespace tessera::remote
