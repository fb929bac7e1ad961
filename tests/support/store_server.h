// A server of blobs on the loopback address, as Bazel's HTTP caches are, that does on request what servers do on bad
// days. One thread for each connection; everything ends with the object.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

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

class StoreServer {
 public:
  StoreServer() {
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

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/cache"; }

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
        while (serve(connection)) {
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

  bool serve(int connection) {
    std::string bytes;
    std::size_t end = 0;
    while ((end = bytes.find("\r\n\r\n")) == std::string::npos)
      if (!receive(connection, bytes)) return false;
    StoreRequest request;
    const std::size_t first = bytes.find(' '), second = bytes.find(' ', first + 1);
    request.method = bytes.substr(0, first);
    request.path = bytes.substr(first + 1, second - first - 1);
    request.headers = bytes.substr(0, end);
    if (const std::string prefix = "/cache/"; request.path.starts_with(prefix)) request.path.erase(0, prefix.size());
    std::size_t length = 0;
    if (const std::size_t at = request.headers.find("Content-Length: "); at != std::string::npos)
      length = std::stoul(request.headers.substr(at + 16));
    while (bytes.size() < end + 4 + length)
      if (!receive(connection, bytes)) return false;
    request.body = bytes.substr(end + 4, length);
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
      } else if (found == blobs_.end()) {
        reply.status = 404;
      } else {
        reply.body = found->second;
      }
    }
    if (spoil) spoil(request, reply);
    if (request.method == "PUT" && reply.status == 201) set(request.path, request.body);
    std::string text = "HTTP/1.1 " + std::to_string(reply.status) + " X\r\n" + reply.headers;
    if (text.find("Content-Length") == std::string::npos)
      text += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    text += "\r\n";
    if (request.method != "HEAD") text += reply.body;
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
