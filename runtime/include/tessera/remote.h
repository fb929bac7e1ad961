// A cache that several machines share, behind the folders and before the compiler: see docs/remote.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

namespace tessera {

struct RemoteOptions {
  /// http://HOST[:PORT][/PREFIX] or https://...: whatever serves GET, HEAD and PUT of PREFIX/ac/KEY and
  /// PREFIX/cas/SHA256 (bazel-remote, nginx with DAV, other WebDAV servers). Empty: no remote tier, and no request.
  std::string url{};
  bool is_written = false;  ///< kernels that are compiled here are stored there
  std::filesystem::path
      credentials{};  ///< a file of HTTP header lines, "Authorization: Bearer ..."; readable by its owner alone
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
