// URLs of stores and files of credentials: what is none, and that a password in the wrong place is not shown.
#include <sys/stat.h>

#include "runtime/remote/authority.h"
#include "tests/remote/machine.h"

namespace tessera::testing {

TEST_CASE("remote: no refusal of a URL shows what may be a password") {
  StoreServer server;
  const auto refusal = [&](const std::string& url, const std::string& endpoint = {}) -> std::string {
    Machine machine(server);
    machine.options.remote.url = url;
    machine.options.remote.endpoint = endpoint.empty() ? "http://127.0.0.1:1" : endpoint;
    machine.options.remote.region = "x";
    machine.options.remote.aws_access_key_id = machine.options.remote.aws_secret_access_key = "key";
    try {
      machine.open();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  for (const char* url :
       {"http://user:s3c/ret@host/x", "redis://user:s3c/ret@host", "s3://AKID:s3c/ret@bucket/x",
        "http://user:12/s3cret@host", "http://host/x?signature=s3cret", "http://host/#s3cret", "http://host:s3cret/x",
        "redis://host:s3cret", "redis://host/s3cret", "redis://:s3cret", "http://user:s3cret@host", "user:s3cret@host",
        "https://host /s3cret", "s3://s3cret:/x", "http://[s3cret]/x", "http://host:70000/s3cret"}) {
    CAPTURE(url);
    const std::string text = refusal(url);
    CHECK(!text.empty());
    CHECK(text.find("s3c") == std::string::npos);
  }
  for (const char* endpoint : {"user:s3cret@host:9000", "http://user:s3cret@host", "http://host/s3cret", "s3cret"}) {
    CAPTURE(endpoint);
    const std::string text = refusal("s3://bucket/x", endpoint);
    CHECK(text.find("the endpoint is no URL") != std::string::npos);
    CHECK(text.find("s3c") == std::string::npos);
  }
  CHECK(refusal("s3://bucket/team@x").empty());
  CHECK(refusal("http://host/team%40x").empty());
}

TEST_CASE("remote: a URL's machine is a host, an address, and a port") {
  using remote::parse_authority;
  const auto parts = [](std::string_view text) {
    const auto authority = parse_authority(text);
    return authority ? authority->host + "|" + authority->port : "none";
  };
  CHECK(parts("store") == "store|");
  CHECK(parts("store.example-1:8080") == "store.example-1|8080");
  CHECK(parts("127.0.0.1:1") == "127.0.0.1|1");
  CHECK(parts("[::1]") == "::1|");
  CHECK(parts("[fe80::1%eth0]") == "none");
  CHECK(parts("[::1]:6379") == "::1|6379");
  for (const char* wrong : {"", ":1", "store:", "store:x", "store:65536", "store:1:2", "a@b", "[::1", "[]", "[::1]x",
                            "a b", "a\\b", "a/b", "::1"}) {
    CAPTURE(wrong);
    CHECK(parts(wrong) == "none");
  }
}

TEST_CASE("remote: a file of credentials that holds none, or is a folder, is refused") {
  const TemporaryFolder folder;
  StoreServer server;
  Machine machine(server);
  machine.options.remote.credentials = folder / "none";
  for (const char* text : {"", "# a comment\n", "\n\n"}) {
    write_file(folder / "none", text);
    ::chmod((folder / "none").c_str(), 0600);
    CHECK_THROWS_WITH(machine.open(), doctest::Contains("none: has no "));
  }
  std::filesystem::create_directory(folder / "folder");
  ::chmod((folder / "folder").c_str(), 0700);
  machine.options.remote.credentials = folder / "folder";
  CHECK_THROWS_WITH(machine.open(), doctest::Contains("cannot be read"));
}

}  // namespace tessera::testing
