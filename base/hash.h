// SHA-256 over length-prefixed parts: two lists of parts never collide by sliding bytes from one part into the next.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tessera {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  /// Adds one part: its length as 8 little-endian bytes, then its bytes.
  Sha256& part(std::string_view bytes);
  /// Lower-case hexadecimal, 64 characters. Call once.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Digest of the bytes alone, no length prefix: what `sha256sum` prints for a file.
std::string sha256_hex(std::span<const std::byte> bytes);
std::string sha256_hex(std::string_view text);

}  // namespace tessera
