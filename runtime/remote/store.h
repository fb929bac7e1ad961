// A store of blobs by name, somewhere else. Names are those of Bazel's HTTP caches: ac/<64 hexadecimal digits> and
// cas/<SHA-256 of the bytes>.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "tessera/remote.h"

namespace tessera::remote {

enum class Verdict : std::uint8_t {
  ok,
  absent,   ///< the store answered: it has no such thing
  refused,  ///< the store answered otherwise, and would again: no right, no room, no sense
  failed,   ///< no answer, or one that may be another next time: nobody there, too late, cut off, 5xx
  stopped,  ///< the caller wants it no more
};

struct Answer {
  Verdict verdict = Verdict::failed;
  std::string body{};    ///< of get(), where ok
  std::string reason{};  ///< where not: says what happened, with no credential in it
};

/// For one call. Nothing outlasts `until`.
struct Bounds {
  std::chrono::steady_clock::time_point until{};
  std::int64_t max_bytes = 0;          ///< of an answer; more is `refused`
  std::function<bool()> is_stopped{};  ///< asked now and then; may be empty
};

/// Safe from many threads. Does not throw but std::bad_alloc.
class Store {
 public:
  Store() = default;
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual Answer get(const std::string& name, const Bounds& bounds) = 0;
  virtual Answer put(const std::string& name, std::string_view bytes, const Bounds& bounds) = 0;
  /// `ok` or `absent` without the bytes.
  virtual Answer has(const std::string& name, const Bounds& bounds) = 0;
};

/// The store of a URL. Throws Error{usage} for one that is malformed or holds credentials, Error{unsupported} for a
/// scheme that this build does not have, Error{io} where the file of credentials cannot be read.
std::unique_ptr<Store> open_store(const RemoteOptions& options);

}  // namespace tessera::remote
