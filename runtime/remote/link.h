// A TCP connection, with TLS where that is wanted, on which nothing outlasts the bounds of its call: not the look-up of
// the name, not the connection, not a peer that sends a byte a second.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "runtime/remote/store.h"

namespace tessera::remote {

struct LinkTarget {
  std::string host, port;
  bool has_tls = false;
  std::string ca_file{};  ///< certificates to trust in place of the system's
};

/// Of one thread at a time. What fails leaves it useless.
class Link {
 public:
  /// Null, and why not; `stopped` by the bounds.
  static std::unique_ptr<Link> open(const LinkTarget& target, const Bounds& bounds, Answer& problem);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  bool send(std::string_view bytes, const Bounds& bounds, Answer& problem);
  /// Appends what is there, at least one byte.
  bool receive(std::string& bytes, const Bounds& bounds, Answer& problem);
  /// Whether the peer has closed it, or said something that nobody asked for.
  bool is_stale() const;

 private:
  struct State;
  explicit Link(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera::remote
