// A cache that several machines share, behind the folders and before the compiler: see docs/remote.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

struct RemoteOptions {
  /// http://HOST[:PORT][/PREFIX] or https://...: whatever serves GET, HEAD and PUT of PREFIX/ac/KEY and
  /// PREFIX/cas/SHA256 (bazel-remote, nginx with DAV, other WebDAV servers). s3://BUCKET[/PREFIX]: objects of those
  /// names in whatever speaks S3. Empty: no remote tier, and no request.
  std::string url{};
  bool is_written = false;  ///< kernels that are compiled here are stored there
  /// A file that its owner alone may read. HTTP: header lines, "Authorization: Bearer ..."; S3: as ~/.aws/credentials;
  /// Redis: lines "username: NAME" and "password: SECRET".
  std::filesystem::path credentials{};
  std::string endpoint{};  ///< S3: http(s)://HOST[:PORT]; empty: AWS
  std::string region{};    ///< S3
  std::string s3_style{};  ///< S3: where the bucket's name goes, "path" or "host"; empty: host for AWS, else path
  /// S3, where there is no file of credentials.
  std::string aws_access_key_id{}, aws_secret_access_key{}, aws_session_token{};
  std::filesystem::path ca_file{};  ///< certificates to trust in place of the system's (https)
  /// Longest time of one look-up or one store, attempts included. Whatever fails for that long ends the tier for this
  /// Cache.
  std::chrono::milliseconds time_limit{5'000};
  std::int64_t max_entry_bytes = std::int64_t{256} << 20;  ///< compressed; a larger one is not loaded
  std::filesystem::path signing_key{};                     ///< ed25519, PEM: signs what is stored
  std::filesystem::path
      trusted_keys{};  ///< ed25519 public keys, PEM, one or more: what none of them signed is not loaded
};

}  // namespace tessera
