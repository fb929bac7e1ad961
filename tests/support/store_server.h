// A server of blobs on the loopback address that does on request what servers do on bad days. It speaks HTTP as Bazel's
// caches do, S3 (whose signatures it checks with code of its own) or the protocol of Redis, as the variable
// TESSERA_TEST_STORE says: http, s3 or redis. One thread for each connection; everything ends with the object.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "tessera/remote.h"

namespace tessera::testing {

struct StoreReply {
  int status = 200;
  std::string headers{}, body{};
  std::size_t cut_at = std::string::npos;  ///< bytes of the whole reply that are sent; then the connection ends
  std::chrono::milliseconds delay{0};      ///< before the reply
  std::chrono::milliseconds between{0};    ///< between its bytes
};

struct StoreRequest {
  std::string method, path, headers, body;
};

enum class Dialect : std::uint8_t { http, s3, redis };

inline Dialect test_dialect() {
  const char* const name = std::getenv("TESSERA_TEST_STORE");
  const std::string_view text = name == nullptr ? "http" : name;
  return text == "s3" ? Dialect::s3 : text == "redis" ? Dialect::redis : Dialect::http;
}

/// The words of a request in Redis's protocol that `bytes` begins with, and its length; 0: it is not whole yet.
inline std::size_t parse_redis_command(const std::string& bytes, std::vector<std::string>& words) {
  words.clear();
  std::size_t at = 0;
  const auto number_after = [&](char mark) -> long {
    const std::size_t end = bytes.find("\r\n", at);
    if (end == std::string::npos || bytes[at] != mark) return -1;
    const long number = std::stol(bytes.substr(at + 1, end - at - 1));
    at = end + 2;
    return number;
  };
  const long count = number_after('*');
  for (long i = 0; i < count; ++i) {
    if (at >= bytes.size()) return 0;
    const long size = number_after('$');
    if (size < 0 || bytes.size() < at + static_cast<std::size_t>(size) + 2) return 0;
    words.push_back(bytes.substr(at, static_cast<std::size_t>(size)));
    at += static_cast<std::size_t>(size) + 2;
  }
  return count < 0 ? 0 : at;
}

class StoreServer {
 public:
  static constexpr const char* kAccessKey = "AKIDTEST";
  static constexpr const char* kSecretKey = "s3cret/key";
  static constexpr const char* kRegion = "eu-test-1";

  explicit StoreServer(Dialect dialect = test_dialect()) : dialect_(dialect) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(listener_, 64) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~StoreServer() { stop(); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  /// Nobody listens from here on.
  void stop() {
    if (!acceptor_.joinable()) return;
    is_stopped_ = true;
    acceptor_.join();
    ::close(listener_);
    for (std::thread& thread : connections_) thread.join();
  }

  Dialect dialect() const { return dialect_; }
  std::string url() const {
    if (dialect_ == Dialect::s3) return "s3://bucket/cache";
    return (dialect_ == Dialect::redis ? "redis://127.0.0.1:" : "http://127.0.0.1:") + std::to_string(port_) +
           (dialect_ == Dialect::redis ? "/0/cache" : "/cache");
  }
  void add_to(RemoteOptions& options) const {
    options.url = url();
    if (dialect_ != Dialect::s3) return;
    options.endpoint = "http://127.0.0.1:" + std::to_string(port_);
    options.region = kRegion;
    options.aws_access_key_id = kAccessKey;
    options.aws_secret_access_key = kSecretKey;
  }
  /// What a client says of such an answer.
  std::string says(int status) const {
    if (dialect_ != Dialect::redis) return "HTTP " + std::to_string(status);
    return redis_error(status);
  }
  /// How many bytes a reply with a body of so many has.
  std::size_t reply_bytes(std::size_t body) const {
    return std::to_string(body).size() + body + (dialect_ == Dialect::redis ? 5 : 36);
  }

  /// What is stored, by path ("ac/...", "cas/..."), and what was asked ("GET ac/...").
  std::map<std::string, std::string> blobs() {
    const std::lock_guard lock(mutex_);
    return blobs_;
  }
  void set(const std::string& path, const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    blobs_[path] = bytes;
  }
  void erase(const std::string& path) {
    const std::lock_guard lock(mutex_);
    blobs_.erase(path);
  }
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  std::vector<std::string> headers() {
    const std::lock_guard lock(mutex_);
    return headers_;
  }
  void forget_asked() {
    const std::lock_guard lock(mutex_);
    asked_.clear();
  }
  /// Changes a reply before it is sent.
  void spoil(std::function<void(const StoreRequest&, StoreReply&)> how) {
    const std::lock_guard lock(mutex_);
    spoil_ = std::move(how);
  }

 private:
  void accept_all() {
    while (!is_stopped_) {
      pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      const int connection = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (connection < 0) continue;
      connections_.emplace_back([this, connection] {
        std::string bytes;  // received and not looked at yet
        while (dialect_ == Dialect::redis ? serve_redis(connection, bytes) : serve_http(connection, bytes)) {
        }
        ::close(connection);
      });
    }
  }

  /// False at the end.
  bool receive(int connection, std::string& bytes) const {
    while (!is_stopped_) {
      pollfd waiting{.fd = connection, .events = POLLIN, .revents = 0};
      if (::poll(&waiting, 1, 20) <= 0) continue;
      char buffer[65536];
      const ssize_t got = ::recv(connection, buffer, sizeof buffer, 0);
      if (got <= 0) return false;
      bytes.append(buffer, static_cast<std::size_t>(got));
      return true;
    }
    return false;
  }

  bool pause(std::chrono::milliseconds time) const {
    const auto until = std::chrono::steady_clock::now() + time;
    while (!is_stopped_ && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    return !is_stopped_;
  }

  static std::string redis_error(int status) {
    switch (status) {
      case 302:
        return "MOVED";
      case 507:
        return "OOM";
      case 500:
      case 503:
        return "LOADING";
      default:
        return "NOPERM";
    }
  }

  /// False: the connection ends.
  bool serve_redis(int connection, std::string& bytes) {
    std::vector<std::string> words;
    std::size_t size = 0;
    while ((size = parse_redis_command(bytes, words)) == 0)
      if (!receive(connection, bytes)) return false;
    bytes.erase(0, size);
    StoreRequest request{.method = words[0], .path = words.size() > 1 ? words[1] : "", .headers = {}, .body = {}};
    if (words[0] == "AUTH" || words[0] == "SELECT") {
      const std::lock_guard lock(mutex_);
      std::string all;
      for (const std::string& word : words) all += (all.empty() ? "" : " ") + word;
      headers_.push_back(all);
      return send_reply(connection, {}, "+OK\r\n");
    }
    if (const std::string prefix = "cache:"; request.path.starts_with(prefix)) request.path.erase(0, prefix.size());
    request.method = words[0] == "EXISTS" ? "HEAD" : words[0] == "SET" ? words.size() > 3 ? "LOCK" : "PUT" : words[0];
    if (words.size() > 2) request.body = words[2];
    StoreReply reply = answer(request);
    std::string text;
    if (request.method == "PUT" || request.method == "LOCK")
      text = reply.status == 409 ? "$-1\r\n" : "+OK\r\n";
    else if (request.method != "GET")
      text = reply.status == 404 ? ":0\r\n" : ":1\r\n";
    else
      text = reply.status == 404 ? "$-1\r\n" : "$" + std::to_string(reply.body.size()) + "\r\n" + reply.body + "\r\n";
    if (reply.status != 200 && reply.status != 201 && reply.status != 404 && reply.status != 409)
      text = "-" + redis_error(reply.status) + " sorry, s3cret\r\n";
    return send_reply(connection, reply, text);
  }

  /// Whether the request is signed by the test's key: the process that AWS describes, for what this client sends.
  static bool is_signed(const StoreRequest& request, const std::string& target) {
    const auto field = [&](const std::string& name) {
      const std::size_t at = request.headers.find("\r\n" + name + ": ");
      if (at == std::string::npos) return std::string();
      const std::size_t start = at + name.size() + 4;
      return request.headers.substr(start, request.headers.find("\r\n", start) - start);
    };
    const auto hash = [](const std::string& key, const std::string& text) {
      unsigned char digest[EVP_MAX_MD_SIZE];
      unsigned int size = 0;
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(text.data()),
           text.size(), digest, &size);
      return std::string(reinterpret_cast<const char*>(digest), size);
    };
    const std::string time = field("x-amz-date"), payload = field("x-amz-content-sha256"),
                      given = field("Authorization");
    const std::string scope = time.substr(0, 8) + "/" + kRegion + "/s3/aws4_request";
    const std::string names = "host;x-amz-content-sha256;x-amz-date";
    const std::string canonical = request.method + "\n" + target + "\n\nhost:" + field("Host") +
                                  "\nx-amz-content-sha256:" + payload + "\nx-amz-date:" + time + "\n\n" + names + "\n" +
                                  payload;
    const std::string text = "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + sha256_hex(canonical);
    std::string key = std::string("AWS4") + kSecretKey;
    for (const std::string& part :
         {time.substr(0, 8), std::string(kRegion), std::string("s3"), std::string("aws4_request")})
      key = hash(key, part);
    std::string signature;
    for (const char byte : hash(key, text)) {
      static constexpr const char* kDigits = "0123456789abcdef";
      signature += kDigits[static_cast<unsigned char>(byte) >> 4];
      signature += kDigits[static_cast<unsigned char>(byte) & 15];
    }
    return payload == sha256_hex(request.body) && given == "AWS4-HMAC-SHA256 Credential=" + std::string(kAccessKey) +
                                                               "/" + scope + ", SignedHeaders=" + names +
                                                               ", Signature=" + signature;
  }

  /// Notes the request, and what the store says to it on this day.
  StoreReply answer(const StoreRequest& request) {
    StoreReply reply;
    std::function<void(const StoreRequest&, StoreReply&)> spoil;
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(request.method + " " + request.path);
      headers_.push_back(request.headers);
      spoil = spoil_;
      const auto found = blobs_.find(request.path);
      if (request.method == "PUT") {
        reply.status = 201;
      } else if (request.method == "LOCK") {
        reply.status = found == blobs_.end() ? 201 : 409;
      } else if (found == blobs_.end()) {
        reply.status = 404;
      } else {
        reply.body = found->second;
      }
    }
    if (spoil) spoil(request, reply);
    if ((request.method == "PUT" || request.method == "LOCK") && reply.status == 201) set(request.path, request.body);
    if (request.method == "DEL") erase(request.path);
    return reply;
  }

  bool serve_http(int connection, std::string& bytes) {
    bytes.clear();
    std::size_t end = 0;
    while ((end = bytes.find("\r\n\r\n")) == std::string::npos)
      if (!receive(connection, bytes)) return false;
    StoreRequest request;
    const std::size_t first = bytes.find(' '), second = bytes.find(' ', first + 1);
    request.method = bytes.substr(0, first);
    request.path = bytes.substr(first + 1, second - first - 1);
    request.headers = bytes.substr(0, end);
    std::size_t length = 0;
    if (const std::size_t at = request.headers.find("Content-Length: "); at != std::string::npos)
      length = std::stoul(request.headers.substr(at + 16));
    while (bytes.size() < end + 4 + length)
      if (!receive(connection, bytes)) return false;
    request.body = bytes.substr(end + 4, length);
    const std::string target = request.path, prefix = dialect_ == Dialect::s3 ? "/bucket/cache/" : "/cache/";
    if (request.path.starts_with(prefix)) request.path.erase(0, prefix.size());
    StoreReply reply;
    if (dialect_ == Dialect::s3 && !is_signed(request, target))
      reply = {.status = 403, .headers = {}, .body = "<Error><Code>SignatureDoesNotMatch</Code></Error>"};
    else
      reply = answer(request);
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " X\r\n" + reply.headers;
    if (text.find("Content-Length") == std::string::npos)
      text += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    text += "\r\n";
    if (request.method != "HEAD") text += reply.body;
    return send_reply(connection, reply, text);
  }

  /// False: the connection ends.
  bool send_reply(int connection, const StoreReply& reply, std::string text) {
    if (!pause(reply.delay)) return false;
    const bool is_cut = reply.cut_at < text.size();
    text.resize(std::min(text.size(), reply.cut_at));
    if (reply.between.count() == 0) {
      for (std::size_t sent = 0; sent < text.size();) {
        const ssize_t part = ::send(connection, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (part <= 0) return false;
        sent += static_cast<std::size_t>(part);
      }
    } else {
      for (const char byte : text)
        if (::send(connection, &byte, 1, MSG_NOSIGNAL) != 1 || !pause(reply.between)) return false;
    }
    return !is_cut;
  }

  const Dialect dialect_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> is_stopped_{false};
  std::thread acceptor_;
  std::vector<std::thread> connections_;  // the acceptor's, until it has ended
  std::mutex mutex_;
  std::map<std::string, std::string> blobs_;
  std::vector<std::string> asked_, headers_;
  std::function<void(const StoreRequest&, StoreReply&)> spoil_;
};

}  // namespace tessera::testing
