// A store of blobs by name, somewhere else. Names are those of Bazel's HTTP caches: ac/<64 hexadecimal digits> and
// cas/<SHA-256 of the bytes>.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/remote.h"

namespace tessera::remote {

enum class Verdict : std::uint8_t {
  ok,
  absent,   ///< the store answered: it has no such thing
  refused,  ///< the store answered otherwise, and would again: no right, no room, no sense
  failed,   ///< an answer that may be another next time: 5xx, busy
  silent,   ///< no answer: nobody there, too late, cut off
  stopped,  ///< the caller wants it no more
};

struct Answer {
  Verdict verdict = Verdict::silent;
  std::string body{};    ///< of get(), where ok
  std::string reason{};  ///< where not: says what happened, with no credential in it
};

/// Whether another try may help.
inline bool may_pass(const Answer& answer) {
  return answer.verdict == Verdict::failed || answer.verdict == Verdict::silent;
}

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
  /// Many at a time, in the order of the names, with as few round trips as the store allows. After one that fails the
  /// others may fail unasked.
  virtual std::vector<Answer> get_all(std::span<const std::string> names, const Bounds& bounds) = 0;
  virtual std::vector<Answer> has_all(std::span<const std::string> names, const Bounds& bounds) = 0;

  enum class Claim : std::uint8_t { got, held, none, silent };
  /// A name that one machine alone holds, until it gives it back or the time has passed. `token`: who asks. `none`: the
  /// store has no such thing, or none for us; `silent`: it did not answer.
  virtual Claim claim(const std::string& name, const std::string& token, std::chrono::milliseconds time,
                      const Bounds& bounds) {
    static_cast<void>(name), static_cast<void>(token), static_cast<void>(time), static_cast<void>(bounds);
    return Claim::none;
  }
  virtual void give_up(const std::string& name, const Bounds& bounds) {
    static_cast<void>(name), static_cast<void>(bounds);
  }
};

/// The store of a URL. Throws Error{usage} for one that is malformed or holds credentials, Error{unsupported} for a
/// scheme that this build does not have, Error{io} where the file of credentials cannot be read.
std::unique_ptr<Store> open_store(const RemoteOptions& options);

}  // namespace tessera::remote
