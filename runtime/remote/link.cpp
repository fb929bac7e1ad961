#include "runtime/remote/link.h"

#ifdef TESSERA_HAS_REDIS

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>

#include "base/quiet_thread.h"

namespace tessera::remote {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// How long a stop request may wait.
constexpr milliseconds kGlance{20};
constexpr milliseconds kLongestConnect{2'000};

bool fail(Answer& problem, std::string reason) {
  problem = {.verdict = Verdict::silent, .reason = std::move(reason)};
  return false;
}

/// False: out of time, or stopped.
bool has_time(const Bounds& bounds, Clock::time_point until, Answer& problem) {
  if (bounds.is_stopped && bounds.is_stopped()) {
    problem = {.verdict = Verdict::stopped};
    return false;
  }
  return Clock::now() < until || fail(problem, "timeout: no answer in time");
}

/// Until the socket is ready for `events`.
bool wait_for(int socket, short events, const Bounds& bounds, Clock::time_point until, Answer& problem) {
  while (has_time(bounds, until, problem)) {
    const auto left = std::chrono::ceil<milliseconds>(std::min<Clock::duration>(kGlance, until - Clock::now()));
    pollfd waiting{.fd = socket, .events = events, .revents = 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::max(left, milliseconds{0}).count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return fail(problem, fmt::format("poll: {}", std::strerror(errno)));
  }
  return false;
}

using Addresses = std::shared_ptr<addrinfo>;
struct Resolved {
  int code = 0;
  Addresses addresses{};
};

Resolved resolve_now(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* first = nullptr;
  Resolved result;
  result.code = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &first);
  if (result.code == 0) result.addresses = Addresses(first, ::freeaddrinfo);
  return result;
}

/// A name is looked up by a thread of its own, since the resolver has no time limit: one that does not answer is left
/// behind.
Addresses resolve(const LinkTarget& target, const Bounds& bounds, Clock::time_point until, Answer& problem) {
  Resolved resolved = resolve_now(target.host, target.port, AI_NUMERICHOST);
  if (resolved.code != 0) {
    const auto promise = std::make_shared<std::promise<Resolved>>();
    std::future<Resolved> future = promise->get_future();
    try {
      quiet_thread<std::thread>([promise, host = target.host, port = target.port] {
        promise->set_value(resolve_now(host, port, AI_ADDRCONFIG));
      }).detach();
    } catch (const std::system_error&) {
      fail(problem, "no thread for the look-up of the host's name");
      return nullptr;
    }
    while (future.wait_for(kGlance) != std::future_status::ready)
      if (!has_time(bounds, until, problem)) return nullptr;
    resolved = future.get();
  }
  if (resolved.code != 0) fail(problem, fmt::format("could not resolve host: {}", ::gai_strerror(resolved.code)));
  return resolved.addresses;
}

struct FreeTlsContext {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};

}  // namespace

struct Link::State {
  ~State() {
    ssl.reset();
    if (socket >= 0) ::close(socket);
  }

  bool connect(const addrinfo& address, const Bounds& bounds, Clock::time_point until, Answer& problem) {
    if (socket >= 0) ::close(socket);
    socket = ::socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address.ai_protocol);
    if (socket < 0) return fail(problem, fmt::format("socket: {}", std::strerror(errno)));
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (::connect(socket, address.ai_addr, address.ai_addrlen) == 0) return true;
    int code = errno;
    if (code == EINPROGRESS) {
      if (!wait_for(socket, POLLOUT, bounds, until, problem)) return false;
      socklen_t size = sizeof code;
      if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &code, &size) != 0) code = errno;
    }
    return code == 0 || fail(problem, fmt::format("could not connect: {}", std::strerror(code)));
  }

  /// Waits for what TLS waits for; false where it is an error.
  bool after(int result, const Bounds& bounds, Clock::time_point until, Answer& problem) {
    switch (SSL_get_error(ssl.get(), result)) {
      case SSL_ERROR_WANT_READ:
        return wait_for(socket, POLLIN, bounds, until, problem);
      case SSL_ERROR_WANT_WRITE:
        return wait_for(socket, POLLOUT, bounds, until, problem);
      case SSL_ERROR_ZERO_RETURN:
        return fail(problem, "the connection was closed");
      default:
        if (const long code = SSL_get_verify_result(ssl.get()); code != X509_V_OK) {
          // Another time it will be no better.
          problem = {.verdict = Verdict::refused,
                     .reason = fmt::format("the certificate: {}", X509_verify_cert_error_string(code))};
          return false;
        }
        return fail(problem, "the connection was closed, or speaks no TLS");
    }
  }

  bool begin_tls(const LinkTarget& target, const Bounds& bounds, Clock::time_point until, Answer& problem) {
    ERR_clear_error();
    context.reset(SSL_CTX_new(TLS_client_method()));
    if (!context) return fail(problem, "OpenSSL gave no context");
    SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
    const bool has_certificates =
        target.ca_file.empty() ? SSL_CTX_set_default_verify_paths(context.get()) == 1
                               : SSL_CTX_load_verify_locations(context.get(), target.ca_file.c_str(), nullptr) == 1;
    ERR_clear_error();
    if (!has_certificates) {
      problem = {.verdict = Verdict::refused, .reason = "the certificates to trust cannot be read"};
      return false;
    }
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
    ssl.reset(SSL_new(context.get()));
    const bool is_address = resolve_now(target.host, target.port, AI_NUMERICHOST).code == 0;
    const bool is_set = ssl && SSL_set_fd(ssl.get(), socket) == 1 &&
                        (is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), target.host.c_str()) == 1
                                    : SSL_set1_host(ssl.get(), target.host.c_str()) == 1 &&
                                          SSL_set_tlsext_host_name(ssl.get(), target.host.c_str()) == 1);
    if (!is_set) return fail(problem, "OpenSSL gave no connection");
    while (true) {
      ERR_clear_error();
      const int result = SSL_connect(ssl.get());
      if (result == 1) return true;
      if (!after(result, bounds, until, problem)) return false;
    }
  }

  int socket = -1;
  std::unique_ptr<SSL_CTX, FreeTlsContext> context;
  std::unique_ptr<SSL, FreeSsl> ssl;
};

Link::Link(std::unique_ptr<State> state) : state_(std::move(state)) {}
Link::~Link() = default;

std::unique_ptr<Link> Link::open(const LinkTarget& target, const Bounds& bounds, Answer& problem) {
  const Clock::time_point until = std::min(bounds.until, Clock::now() + kLongestConnect);
  const Addresses addresses = resolve(target, bounds, until, problem);
  for (const addrinfo* one = addresses.get(); one != nullptr; one = one->ai_next) {
    auto state = std::make_unique<State>();
    if (!state->connect(*one, bounds, until, problem)) {
      if (problem.verdict == Verdict::stopped) return nullptr;
      continue;
    }
    if (target.has_tls && !state->begin_tls(target, bounds, until, problem)) return nullptr;
    return std::unique_ptr<Link>(new Link(std::move(state)));
  }
  return nullptr;
}

bool Link::send(std::string_view bytes, const Bounds& bounds, Answer& problem) {
  while (!bytes.empty()) {
    if (!has_time(bounds, bounds.until, problem)) return false;
    std::size_t sent = 0;
    if (state_->ssl) {
      ERR_clear_error();
      const int result = SSL_write_ex(state_->ssl.get(), bytes.data(), bytes.size(), &sent);
      if (result != 1 && !state_->after(result, bounds, bounds.until, problem)) return false;
      if (result != 1) sent = 0;
    } else {
      const ssize_t count = ::send(state_->socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EAGAIN) {
        if (!wait_for(state_->socket, POLLOUT, bounds, bounds.until, problem)) return false;
      } else if (count < 0 && errno != EINTR) {
        return fail(problem, fmt::format("the connection was lost: {}", std::strerror(errno)));
      }
      sent = count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    bytes.remove_prefix(sent);
  }
  return true;
}

bool Link::receive(std::string& bytes, const Bounds& bounds, Answer& problem) {
  std::array<char, 65'536> buffer;
  while (has_time(bounds, bounds.until, problem)) {
    if (state_->ssl) {
      std::size_t count = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(state_->ssl.get(), buffer.data(), buffer.size(), &count);
      if (result == 1) {
        bytes.append(buffer.data(), count);
        return true;
      }
      if (!state_->after(result, bounds, bounds.until, problem)) return false;
      continue;
    }
    const ssize_t count = ::recv(state_->socket, buffer.data(), buffer.size(), 0);
    if (count > 0) {
      bytes.append(buffer.data(), static_cast<std::size_t>(count));
      return true;
    }
    if (count == 0) return fail(problem, "the connection was closed");
    if (errno == EAGAIN) {
      if (!wait_for(state_->socket, POLLIN, bounds, bounds.until, problem)) return false;
    } else if (errno != EINTR) {
      return fail(problem, fmt::format("the connection was lost: {}", std::strerror(errno)));
    }
  }
  return false;
}

bool Link::is_stale() const {
  pollfd waiting{.fd = state_->socket, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, 0) == 0) return false;
  // TLS 1.3 sends tickets after the handshake; a close is found when it is read.
  if (state_->ssl) {
    char byte = 0;
    std::size_t count = 0;
    ERR_clear_error();
    const int result = SSL_peek_ex(state_->ssl.get(), &byte, 1, &count);
    return result == 1 || SSL_get_error(state_->ssl.get(), result) != SSL_ERROR_WANT_READ;
  }
  return true;
}

}  // namespace tessera::remote

#endif
