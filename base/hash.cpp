// SHA-256 through the EVP interface of OpenSSL; the length of a part goes in before its bytes.
#include "base/hash.h"

#include <openssl/evp.h>

#include <array>
#include <cstdint>

#include "base/assert.h"

namespace tessera {

namespace {
struct Digest {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  Digest() {
    const bool ok = context != nullptr && EVP_DigestInit_ex(context, EVP_sha256(), nullptr) == 1;
    TESSERA_ASSERT(ok, "EVP_DigestInit_ex(SHA-256)");
  }
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;
  ~Digest() { EVP_MD_CTX_free(context); }
  void update(const void* bytes, std::size_t count) const { EVP_DigestUpdate(context, bytes, count); }
  std::string hex() const {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    EVP_DigestFinal_ex(context, digest.data(), &size);
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    text.reserve(std::size_t{2} * size);
    for (unsigned int i = 0; i < size; ++i) {
      text += kDigits[digest[i] >> 4];
      text += kDigits[digest[i] & 15];
    }
    return text;
  }
};
}  // namespace

struct Sha256::State : Digest {};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;

Sha256& Sha256::part(std::string_view bytes) {
  std::array<unsigned char, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i) {
    length[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(bytes.size()) >> (8 * i));
  }
  state_->update(length.data(), length.size());
  state_->update(bytes.data(), bytes.size());
  return *this;
}

std::string Sha256::hex() { return state_->hex(); }

std::string sha256_hex(std::string_view text) {
  return sha256_hex(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  const Digest digest;
  digest.update(bytes.data(), bytes.size());
  return digest.hex();
}

}  // namespace tessera
