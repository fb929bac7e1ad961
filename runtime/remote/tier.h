// The remote tier of a cache: which blobs an entry is, what is believed of a store, and when it is asked no more.
//
//   cas/<SHA-256 of the blob>   an archive (cache_archive.h) of the one entry
//   ac/<entry key>              an ActionResult that names the blob
//   ac/<source key>             the same for the entry by the newest compiler, for those who have none
//
// A blob counts once its digest is that of its name, it is an archive of one entry, and the entry's keys are those that
// were asked for; where there are keys to trust, once the ActionResult's note is signed by one of them. Whatever fails,
// lies or takes longer than the limit ends the tier for this object: it costs that once.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/cache_archive.h"
#include "runtime/cache_folder.h"
#include "runtime/remote/action_result.h"
#include "runtime/remote/signature.h"
#include "runtime/remote/store.h"

namespace tessera::remote {

/// The right to build a kernel that the store does not have: while one machine holds it the others wait for what it
/// stores. Given back with the object.
class Turn {
 public:
  Turn() = default;
  ~Turn() { give_back(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  void give_back();

 private:
  friend class RemoteTier;
  Store* store_ = nullptr;  // null: it holds none
  std::string name_;
  std::chrono::steady_clock::time_point until_;
};

class RemoteTier {
 public:
  /// Asks nothing of the store yet. Throws what open_store() and the keys throw.
  RemoteTier(const RemoteOptions& options, Warnings& warnings);

  /// The entry, verified: of the compiler's key, then, unless the request pins its compiler, the newest of the source
  /// key. Throws WaitInterrupted where the request's stop ended it, nothing else but std::bad_alloc.
  std::optional<ArchivedEntry> fetch(const CacheRequest& request);
  /// Where the store has locks, this machine may write and the request has a compiler: waits for its turn to build, or
  /// for the entry that another machine stores meanwhile. Throws as fetch() does.
  std::optional<ArchivedEntry> await_turn(const CacheRequest& request, Turn& turn);
  /// Of each, whether fetch() would find an entry's ActionResult; the blobs are asked for, not loaded. Nothing: the
  /// store could not say.
  std::vector<std::optional<bool>> has(std::span<const CacheRequest> requests);
  enum class Stored : std::uint8_t { stored, present, failed };
  Stored store(const EncodedEntry& entry, const std::stop_token& stop);

  struct Counts {
    std::int64_t misses = 0, errors = 0, us = 0;
  };
  Counts counts() const { return {misses_, errors_, us_}; }
  bool is_written() const noexcept { return options_.is_written; }
  std::string shown() const { return options_.url; }

 private:
  struct Looked;
  Bounds bounds(const std::stop_token& stop, std::chrono::steady_clock::time_point until) const;
  std::optional<ActionResult> result_of(const std::string& key, const Bounds& bounds);
  std::optional<ActionResult> result_in(const std::string& key, const Answer& answer);
  /// Whether those of `chosen` are there by these keys.
  void look_for(const std::vector<std::string>& keys, const std::vector<std::size_t>& chosen, const Bounds& bounds,
                std::vector<std::optional<bool>>& found);
  std::optional<ArchivedEntry> fetch_within(const CacheRequest& request, const Bounds& bounds);
  std::optional<ArchivedEntry> entry_of(const std::string& key, const CacheRequest& request, const Bounds& bounds);
  bool is_believed(const std::string& key, const ActionResult& result);
  std::string note_of(const std::string& key, const ActionResult& result, const CompilerIdentity& compiler) const;
  /// No more of this, which is said once. All: where nobody is there, or not now, the other would cost the limit again.
  void end_all(const std::string& why);
  void end_reads(const std::string& why);
  void end_writes(const std::string& why);
  bool has_failed(const Answer& answer, const std::string& name);

  const RemoteOptions options_;
  Warnings& warnings_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Signer> signer_;      // null: nothing is signed
  std::unique_ptr<Verifier> verifier_;  // null: nothing has to be
  std::atomic<bool> reads_{true}, writes_{true}, takes_turns_{true};
  /// Whether a thing that was stored has been found there: a log-in page says 200 to a PUT too.
  std::atomic<bool> keeps_what_it_takes_{false};
  /// Whether a blob had other bytes than its name says: then what is compiled takes the place of what is there.
  std::atomic<bool> has_wrong_blobs_{false};
  std::atomic<std::int64_t> misses_{0}, errors_{0}, us_{0};
};

}  // namespace tessera::remote
