// Signature Version 4 held to what AWS publishes: the requests of its test suite (aws-sig-v4-test-suite) that go
// without normalised paths, which S3 does not have, and the examples of the S3 API reference, "Authenticating
// Requests".
#include "runtime/remote/aws_signature.h"

#include <doctest/doctest.h>

#include "base/hash.h"
#include "runtime/remote/s3_store.h"
#include "tessera/error.h"

namespace tessera::testing {

namespace {

using remote::AwsRequest;
using Fields = AwsRequest::Fields;

const char* const kToken =
    "AQoDYXdzEPT//////////"
    "wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx"
    "7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9"
    "q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
const char* const kUnreserved = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

struct Vector {
  const char* name;
  const char* method;
  std::string path;  ///< not encoded
  Fields query, headers;
  std::string body;
  const char* signed_headers;
  const char* signature;
};

}  // namespace

TEST_CASE("S3 signatures: AWS's test suite") {
  const Vector vectors[] = {
      {"get-vanilla",
       "GET",
       "/",
       {},
       {},
       "",
       "host;x-amz-date",
       "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"},
      {"get-header-key-duplicate",
       "GET",
       "/",
       {},
       {{"My-Header1", "value2"}, {"My-Header1", "value2"}, {"My-Header1", "value1"}},
       "",
       "host;my-header1;x-amz-date",
       "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"},
      {"get-header-value-order",
       "GET",
       "/",
       {},
       {{"My-Header1", "value4"}, {"My-Header1", "value1"}, {"My-Header1", "value3"}, {"My-Header1", "value2"}},
       "",
       "host;my-header1;x-amz-date",
       "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"},
      {"get-header-value-trim",
       "GET",
       "/",
       {},
       {{"My-Header1", " value1"}, {"My-Header2", " \"a   b   c\""}},
       "",
       "host;my-header1;my-header2;x-amz-date",
       "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"},
      {"get-unreserved",
       "GET",
       std::string("/") + kUnreserved,
       {},
       {},
       "",
       "host;x-amz-date",
       "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"},
      {"get-utf8",
       "GET",
       "/\xe1\x88\xb4",
       {},
       {},
       "",
       "host;x-amz-date",
       "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"},
      {"get-space",
       "GET",
       "/example space/",
       {},
       {},
       "",
       "host;x-amz-date",
       "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"},
      {"get-vanilla-empty-query-key",
       "GET",
       "/",
       {{"Param1", "value1"}},
       {},
       "",
       "host;x-amz-date",
       "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"},
      {"get-vanilla-query-order-key-case",
       "GET",
       "/",
       {{"Param2", "value2"}, {"Param1", "value1"}},
       {},
       "",
       "host;x-amz-date",
       "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"},
      {"get-vanilla-query-order-key",
       "GET",
       "/",
       {{"Param1", "value2"}, {"Param1", "Value1"}},
       {},
       "",
       "host;x-amz-date",
       "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1"},
      {"get-vanilla-query-order-value",
       "GET",
       "/",
       {{"Param1", "value2"}, {"Param1", "value1"}},
       {},
       "",
       "host;x-amz-date",
       "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694"},
      {"get-vanilla-query-unreserved",
       "GET",
       "/",
       {{kUnreserved, kUnreserved}},
       {},
       "",
       "host;x-amz-date",
       "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197"},
      {"get-vanilla-utf8-query",
       "GET",
       "/",
       {{"\xe1\x88\xb4", "bar"}},
       {},
       "",
       "host;x-amz-date",
       "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"},
      {"post-vanilla",
       "POST",
       "/",
       {},
       {},
       "",
       "host;x-amz-date",
       "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"},
      {"post-header-key-sort",
       "POST",
       "/",
       {},
       {{"My-Header1", "value1"}},
       "",
       "host;my-header1;x-amz-date",
       "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"},
      {"post-header-value-case",
       "POST",
       "/",
       {},
       {{"My-Header1", "VALUE1"}},
       "",
       "host;my-header1;x-amz-date",
       "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"},
      {"post-sts-header-before",
       "POST",
       "/",
       {},
       {{"X-Amz-Security-Token", kToken}},
       "",
       "host;x-amz-date;x-amz-security-token",
       "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"},
      {"post-vanilla-query",
       "POST",
       "/",
       {{"Param1", "value1"}},
       {},
       "",
       "host;x-amz-date",
       "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"},
      {"post-x-www-form-urlencoded",
       "POST",
       "/",
       {},
       {{"Content-Type", "application/x-www-form-urlencoded"}},
       "Param1=value1",
       "content-type;host;x-amz-date",
       "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a"},
  };
  for (const Vector& vector : vectors) {
    CAPTURE(vector.name);
    AwsRequest request{.method = vector.method,
                       .path = remote::uri_encoded(vector.path, true),
                       .query = vector.query,
                       .headers = {{"Host", "example.amazonaws.com"}, {"X-Amz-Date", "20150830T123600Z"}},
                       .payload_sha256 = sha256_hex(vector.body)};
    request.headers.insert(request.headers.end(), vector.headers.begin(), vector.headers.end());
    CHECK(remote::aws_authorization(request, {"AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", ""},
                                    "us-east-1", "service", "20150830T123600Z") ==
          "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, SignedHeaders=" +
              std::string(vector.signed_headers) + ", Signature=" + vector.signature);
  }
}

TEST_CASE("S3 signatures: the examples of the S3 API reference") {
  const std::string text = "Welcome to Amazon S3.";
  struct Example {
    const char* method;
    std::string path;
    Fields query, headers;
    std::string body;
    const char* signature;
  };
  const Example examples[] = {
      {"GET",
       "/test.txt",
       {},
       {{"range", "bytes=0-9"}},
       "",
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {"PUT",
       "/test$file.text",
       {},
       {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
       text,
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {"GET", "/", {{"lifecycle", ""}}, {}, "", "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {"GET",
       "/",
       {{"max-keys", "2"}, {"prefix", "J"}},
       {},
       "",
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
  };
  for (const Example& example : examples) {
    CAPTURE(example.signature);
    AwsRequest request{.method = example.method,
                       .path = remote::uri_encoded(example.path, true),
                       .query = example.query,
                       .headers = {{"host", "examplebucket.s3.amazonaws.com"}, {"x-amz-date", "20130524T000000Z"}},
                       .payload_sha256 = sha256_hex(example.body)};
    request.headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
    request.headers.insert(request.headers.end(), example.headers.begin(), example.headers.end());
    const std::string value =
        remote::aws_authorization(request, {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""},
                                  "us-east-1", "s3", "20130524T000000Z");
    CHECK(value.substr(value.find("Signature=") + 10) == example.signature);
  }
}

TEST_CASE("S3: where a bucket's objects lie") {
  const auto place = [](const std::string& endpoint, const std::string& style, const std::string& bucket) {
    RemoteOptions options;
    options.endpoint = endpoint;
    options.region = "eu-west-1";
    options.s3_style = style;
    try {
      return remote::s3_place(options, bucket, "a b/c").base;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  CHECK(place("", "", "kernels") == "https://kernels.s3.eu-west-1.amazonaws.com/a%20b/c");
  CHECK(place("", "", "ker.nels") == "https://s3.eu-west-1.amazonaws.com/ker.nels/a%20b/c");
  CHECK(place("", "path", "kernels") == "https://s3.eu-west-1.amazonaws.com/kernels/a%20b/c");
  CHECK(place("http://minio:9000/", "", "kernels") == "http://minio:9000/kernels/a%20b/c");
  CHECK(place("http://minio:9000", "host", "kernels") == "http://kernels.minio:9000/a%20b/c");
  // As a client names the host that it asks.
  CHECK(place("https://minio:443", "", "kernels") == "https://minio/kernels/a%20b/c");
  CHECK(place("http://minio:443", "", "kernels") == "http://minio:443/kernels/a%20b/c");
  for (const char* wrong : {"minio:9000", "http://minio/x", "http://me:secret@minio"})
    CHECK(place(wrong, "", "k") ==
          "remote cache: the endpoint is no URL of the form http(s)://HOST[:PORT]; credentials have no place in it");
  CHECK(place("", "both", "k") == "remote cache: s3 style both: must be path or host");
}

}  // namespace tessera::testing
