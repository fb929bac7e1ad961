#include "runtime/remote/signature.h"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "tessera/error.h"

namespace tessera::remote {

namespace {

constexpr std::size_t kSignatureBytes = 64;

struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
struct CloseKeyFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Key = std::unique_ptr<EVP_PKEY, FreeKey>;
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;
using File = std::unique_ptr<std::FILE, CloseKeyFile>;

File open(const std::filesystem::path& path) {
  File file(std::fopen(path.c_str(), "re"));
  if (!file) throw Error(ErrorKind::io, fmt::format("remote cache: key {}: cannot be read", path.string()));
  return file;
}

[[noreturn]] void refuse_key(const std::filesystem::path& path, const char* why) {
  throw Error(ErrorKind::usage, fmt::format("remote cache: key {}: {}", path.string(), why));
}

/// No prompt: a key behind a password is none that a pipeline can use.
int no_password(char*, int, int, void*) { return 0; }

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

std::optional<std::array<unsigned char, kSignatureBytes>> from_hex(std::string_view text) {
  std::array<unsigned char, kSignatureBytes> bytes;
  if (text.size() != 2 * bytes.size()) return std::nullopt;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const int high = digit(text[2 * i]), low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes[i] = static_cast<unsigned char>(16 * high + low);
  }
  return bytes;
}

}  // namespace

struct Signer::State {
  Key key;
};

Signer::Signer(const std::filesystem::path& private_key) : state_(std::make_unique<State>()) {
  const File file = open(private_key);
  struct stat status = {};
  if (::fstat(::fileno(file.get()), &status) != 0 || (status.st_mode & 0077U) != 0)
    refuse_key(private_key, "others than its owner may read or write it; chmod 600 it");
  state_->key.reset(PEM_read_PrivateKey(file.get(), nullptr, no_password, nullptr));
  if (!state_->key || EVP_PKEY_id(state_->key.get()) != EVP_PKEY_ED25519)
    refuse_key(private_key, "is no private ed25519 key in PEM (openssl genpkey -algorithm ed25519)");
}
Signer::~Signer() = default;

std::string Signer::sign(std::string_view message) const {
  const Context context(EVP_MD_CTX_new());
  std::array<unsigned char, kSignatureBytes> bytes{};
  std::size_t size = bytes.size();
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, state_->key.get()) != 1 ||
      EVP_DigestSign(context.get(), bytes.data(), &size, bytes_of(message), message.size()) != 1 ||
      size != bytes.size())
    throw Error(ErrorKind::io, "remote cache: OpenSSL could not sign an entry");
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

struct Verifier::State {
  std::vector<Key> keys;
};

Verifier::Verifier(const std::filesystem::path& public_keys) : state_(std::make_unique<State>()) {
  const File file = open(public_keys);
  while (Key key{PEM_read_PUBKEY(file.get(), nullptr, no_password, nullptr)}) {
    if (EVP_PKEY_id(key.get()) != EVP_PKEY_ED25519) refuse_key(public_keys, "one of its keys is not ed25519");
    state_->keys.push_back(std::move(key));
  }
  if (state_->keys.empty()) refuse_key(public_keys, "holds no public ed25519 key in PEM (openssl pkey -pubout)");
}
Verifier::~Verifier() = default;

bool Verifier::is_signed(std::string_view message, std::string_view signature) const {
  const auto bytes = from_hex(signature);
  if (!bytes) return false;
  for (const Key& key : state_->keys) {
    const Context context(EVP_MD_CTX_new());
    if (context && EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
        EVP_DigestVerify(context.get(), bytes->data(), bytes->size(), bytes_of(message), message.size()) == 1)
      return true;
  }
  return false;
}

}  // namespace tessera::remote
