// Signatures of entries: ed25519 (RFC 8032) by OpenSSL, keys in PEM files as `openssl genpkey -algorithm ed25519` and
// `openssl pkey -pubout` write them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace tessera::remote {

/// Throws Error{io} where the file cannot be read, Error{usage} where it holds no such key or, the private one, others
/// than its owner may read it.
class Signer {
 public:
  explicit Signer(const std::filesystem::path& private_key);
  ~Signer();
  Signer(const Signer&) = delete;
  Signer& operator=(const Signer&) = delete;
  std::string sign(std::string_view message) const;  ///< 128 hexadecimal digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class Verifier {
 public:
  explicit Verifier(const std::filesystem::path& public_keys);  ///< one or more, one after the other
  ~Verifier();
  Verifier(const Verifier&) = delete;
  Verifier& operator=(const Verifier&) = delete;
  /// Whether one of the keys signed it.
  bool is_signed(std::string_view message, std::string_view signature) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::remote
