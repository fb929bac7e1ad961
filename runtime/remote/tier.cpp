#include "runtime/remote/tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <tuple>

#include "base/hash.h"
#include "runtime/compiler_suffix.h"
#include "runtime/remote/attempts.h"
#include "tessera/error.h"

namespace tessera::remote {

namespace {

constexpr std::int64_t kMaxResultBytes = std::int64_t{64} << 10;
constexpr int kNoteVersion = 1;
/// Of one call for many.
constexpr std::size_t kAtOnce = 512;
/// A machine that dies while it compiles holds the others up for so long, and a store whose locks never go away holds
/// each machine up once.
constexpr std::chrono::milliseconds kLongestTurn{15'000}, kBetweenClaims{100}, kLongestGiveUp{1'000};

/// Adds the time that it lives.
class Stopwatch {
 public:
  explicit Stopwatch(std::atomic<std::int64_t>& us) : us_(us) {}
  ~Stopwatch() {
    const auto time = std::chrono::steady_clock::now() - start_;
    us_ += std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::atomic<std::int64_t>& us_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string random_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

std::string action_name(const std::string& key) { return "ac/" + key; }
std::string blob_name(const std::string& sha256) { return "cas/" + sha256; }

/// A note's lines: "tessera 1", "compiler MAJOR MINOR NAME", and "signature HEX" where there is one.
struct Note {
  CompilerIdentity compiler;
  std::string signature;
};

std::string compiler_line(const CompilerIdentity& compiler) {
  return fmt::format("compiler {} {} {}", compiler.major_version, compiler.minor_version, compiler.name);
}

std::optional<Note> parse_note(std::string_view text) {
  Note note;
  int line_number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string line(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line_number++ == 0) {
      if (line != fmt::format("tessera {}", kNoteVersion)) return std::nullopt;
    } else if (line.starts_with("compiler ")) {
      char name[64] = {};
      if (std::sscanf(line.c_str(), "compiler %d %d %63[^\n]", &note.compiler.major_version,
                      &note.compiler.minor_version, name) < 2)
        return std::nullopt;
      note.compiler.name = name;
    } else if (line.starts_with("signature ")) {
      note.signature = line.substr(10);
    }
  }
  return line_number > 1 ? std::optional(note) : std::nullopt;
}

/// What is signed: all that says which kernel is served, so that one key's blob cannot stand under another.
std::string signed_text(const std::string& key, const ActionResult& result, const CompilerIdentity& compiler) {
  return fmt::format("tessera remote entry {}\n{}\n{}\n{}\n{}\n", kNoteVersion, key, result.sha256, result.bytes,
                     compiler_line(compiler));
}

std::string blob_of(const EncodedEntry& encoded) {
  ReadEntry entry;
  entry.verdict = ReadVerdict::ok;
  entry.record = encoded.record;
  entry.compile_json = encoded.compile_json;
  entry.plan_json = encoded.plan;
  entry.ptx = encoded.ptx;
  entry.source = encoded.source;
  entry.merge_ptx = encoded.merge_ptx;
  const auto take = [](std::vector<std::byte>& to, std::string_view from) {
    const auto bytes = std::as_bytes(std::span(from));
    to.assign(bytes.begin(), bytes.end());
  };
  take(entry.cubin, encoded.cubin);
  take(entry.merge_cubin, encoded.merge_cubin);
  std::string blob;
  ArchiveWriter writer([&blob](std::string_view bytes) { blob.append(bytes); });
  writer.add(entry);
  writer.finish();
  return blob;
}

/// The blob's one entry; Error{io} where it is not that.
ArchivedEntry entry_in(std::string_view blob) {
  std::optional<ArchivedEntry> found;
  const ByteSource source = [rest = blob](std::span<std::byte> to) mutable {
    const std::size_t bytes = std::min(to.size(), rest.size());
    std::memcpy(to.data(), rest.data(), bytes);
    rest.remove_prefix(bytes);
    return bytes;
  };
  ArchiveLimits limits;
  limits.max_entries = 1;
  read_archive(source, limits, [&found](ArchivedEntry&& entry) { found = std::move(entry); });
  if (!found) throw Error(ErrorKind::io, "the archive is empty");
  return std::move(*found);
}

}  // namespace

RemoteTier::RemoteTier(const RemoteOptions& options, Warnings& warnings)
    : options_(options), warnings_(warnings), store_(open_store(options)) {
  if (!options.signing_key.empty()) signer_ = std::make_unique<Signer>(options.signing_key);
  if (!options.trusted_keys.empty()) verifier_ = std::make_unique<Verifier>(options.trusted_keys);
}

Bounds RemoteTier::bounds(const std::stop_token& stop, std::chrono::steady_clock::time_point until) const {
  return {.until = until, .max_bytes = kMaxResultBytes, .is_stopped = [stop] { return stop.stop_requested(); }};
}

void RemoteTier::end_reads(const std::string& why) {
  reads_ = false;
  warnings_.once("remote reads", fmt::format("remote cache {}: {}; it is not asked any more", options_.url, why));
}

void RemoteTier::end_all(const std::string& why) {
  writes_ = false;
  end_reads(why);
}

void RemoteTier::end_writes(const std::string& why) {
  writes_ = false;
  warnings_.once("remote writes", fmt::format("remote cache {}: {}; nothing more is stored there", options_.url, why));
}

bool RemoteTier::has_failed(const Answer& answer, const std::string& name) {
  if (answer.verdict == Verdict::stopped)
    throw WaitInterrupted(fmt::format("interrupted while the remote cache {} was asked", options_.url));
  if (answer.verdict == Verdict::ok || answer.verdict == Verdict::absent) return false;
  const std::string why = fmt::format("{}: {}", name, answer.reason);
  may_pass(answer) ? end_all(why) : end_reads(why);
  return true;
}

bool RemoteTier::is_believed(const std::string& key, const ActionResult& result) {
  if (!verifier_) return true;
  const std::optional<Note> note = parse_note(result.note);
  if (note && verifier_->is_signed(signed_text(key, result, note->compiler), note->signature)) return true;
  warnings_.once("remote signature",
                 fmt::format("remote cache {}: ac/{} {}; entries like it are not loaded", options_.url, key,
                             note && !note->signature.empty() ? "is signed by none of the keys of --remote-trusted-keys"
                                                              : "is not signed"));
  return false;
}

std::optional<ActionResult> RemoteTier::result_in(const std::string& key, const Answer& answer) {
  const std::string name = action_name(key);
  if (has_failed(answer, name) || answer.verdict == Verdict::absent) return std::nullopt;
  const std::optional<ActionResult> result = parse_action_result(answer.body);
  if (!result) {
    end_reads(fmt::format("{}: is no ActionResult of an entry ({} bytes)", name, answer.body.size()));
    return std::nullopt;
  }
  return is_believed(key, *result) ? result : std::nullopt;
}

std::optional<ActionResult> RemoteTier::result_of(const std::string& key, const Bounds& bounds) {
  return result_in(key, store_->get(action_name(key), bounds));
}

std::optional<ArchivedEntry> RemoteTier::entry_of(const std::string& key, const CacheRequest& request,
                                                  const Bounds& bounds) {
  const std::optional<ActionResult> result = result_of(key, bounds);
  if (!result) return std::nullopt;
  if (result->bytes > options_.max_entry_bytes) {
    warnings_.once("remote size", fmt::format("remote cache {}: an entry of {} bytes is not loaded (limit {})",
                                              options_.url, result->bytes, options_.max_entry_bytes));
    return std::nullopt;
  }
  Bounds of_blob = bounds;
  of_blob.max_bytes = result->bytes;
  const std::string name = blob_name(result->sha256);
  const Answer answer = store_->get(name, of_blob);
  // A store that drops what was not used may have dropped the blob first.
  if (has_failed(answer, name) || answer.verdict == Verdict::absent) return std::nullopt;
  std::string why;
  if (static_cast<std::int64_t>(answer.body.size()) != result->bytes || sha256_hex(answer.body) != result->sha256) {
    why = "its bytes are not those of its name";
    has_wrong_blobs_ = true;
  } else {
    try {
      ArchivedEntry entry = entry_in(answer.body);
      const EntryKeys& keys = entry.record.keys;
      if (keys.source == request.keys.source && (key == keys.source || key == keys.entry)) return entry;
      why = "it is another kernel's entry";
    } catch (const Error& error) {
      why = error.what();
    }
  }
  end_reads(fmt::format("{}: {}", name, why));
  return std::nullopt;
}

std::optional<ArchivedEntry> RemoteTier::fetch_within(const CacheRequest& request, const Bounds& bounds) {
  if (reads_ && !request.keys.entry.empty()) {
    if (auto entry = entry_of(request.keys.entry, request, bounds)) return entry;
  }
  if (reads_ && !request.require_compiler) return entry_of(request.keys.source, request, bounds);
  return std::nullopt;
}

std::optional<ArchivedEntry> RemoteTier::fetch(const CacheRequest& request) {
  if (!reads_) return std::nullopt;
  const Stopwatch stopwatch(us_);
  auto entry = fetch_within(request, bounds(request.stop, std::chrono::steady_clock::now() + options_.time_limit));
  // Whatever goes wrong ends the reads.
  if (!entry) (reads_ ? misses_ : errors_).fetch_add(1, std::memory_order_relaxed);
  return entry;
}

void Turn::give_back() {
  if (store_ == nullptr) return;
  const auto now = std::chrono::steady_clock::now();
  // Later it may be another machine's.
  if (now < until_)
    store_->give_up(name_, {.until = std::min(until_, now + kLongestGiveUp), .max_bytes = kMaxResultBytes});
  store_ = nullptr;
}

std::optional<ArchivedEntry> RemoteTier::await_turn(const CacheRequest& request, Turn& turn) {
  if (!options_.is_written || !reads_ || !writes_ || !takes_turns_ || request.keys.entry.empty()) return std::nullopt;
  using Clock = std::chrono::steady_clock;
  const Stopwatch stopwatch(us_);
  const std::string name = "lock/" + request.keys.entry, token = random_token();
  const Clock::time_point last = Clock::now() + kLongestTurn;
  while (true) {
    const Clock::time_point now = Clock::now();
    const Bounds all = bounds(request.stop, now + options_.time_limit);
    const Store::Claim claim = store_->claim(name, token, kLongestTurn, all);
    if (all.is_stopped())
      throw WaitInterrupted(fmt::format("{}: interrupted while another machine compiled it", request.kernel));
    if (claim == Store::Claim::silent) {
      end_all(name + ": no answer");
      return std::nullopt;
    }
    if (claim == Store::Claim::none) {
      takes_turns_ = false;
      return std::nullopt;
    }
    if (claim == Store::Claim::got) {
      turn.store_ = store_.get();
      turn.name_ = name;
      turn.until_ = now + kLongestTurn;
      // Between the look-up and this another machine may have had its turn.
      auto entry = entry_of(request.keys.entry, request, all);
      if (entry) turn.give_back();
      return entry;
    }
    if (now >= last) {
      takes_turns_ = false;
      warnings_.once("remote turns",
                     fmt::format("remote cache {}: another machine has compiled {} for {:.0f} s; it is compiled here "
                                 "too, and nothing is waited for there any more",
                                 options_.url, request.kernel, std::chrono::duration<double>(kLongestTurn).count()));
      return std::nullopt;
    }
    const Bounds wait = bounds(request.stop, last);
    if (!pause_unless_stopped(some_of(kBetweenClaims), wait))
      throw WaitInterrupted(fmt::format("{}: interrupted while another machine compiled it", request.kernel));
  }
}

void RemoteTier::look_for(const std::vector<std::string>& keys, const std::vector<std::size_t>& chosen,
                          const Bounds& bounds, std::vector<std::optional<bool>>& found) {
  std::vector<std::string> names, blobs;
  for (const std::string& key : keys) names.push_back(action_name(key));
  const std::vector<Answer> answers = store_->get_all(names, bounds);
  std::vector<std::size_t> with_blob;
  for (std::size_t i = 0; i < keys.size() && reads_; ++i) {
    const std::optional<ActionResult> result = result_in(keys[i], answers[i]);
    if (!result) continue;
    blobs.push_back(blob_name(result->sha256));
    with_blob.push_back(chosen[i]);
  }
  if (!reads_ || blobs.empty()) return;
  const std::vector<Answer> there = store_->has_all(blobs, bounds);
  for (std::size_t i = 0; i < blobs.size(); ++i) {
    if (has_failed(there[i], blobs[i])) return;
    if (there[i].verdict == Verdict::ok) found[with_blob[i]] = true;
  }
}

std::vector<std::optional<bool>> RemoteTier::has(std::span<const CacheRequest> requests) {
  const Stopwatch stopwatch(us_);
  std::vector<std::optional<bool>> found(requests.size(), false);
  for (const bool is_by_source : {false, true}) {
    for (std::size_t at = 0; at < requests.size() && reads_;) {
      std::vector<std::string> keys;
      std::vector<std::size_t> chosen;
      for (; at < requests.size() && keys.size() < kAtOnce; ++at) {
        const CacheRequest& request = requests[at];
        if (*found[at] || (is_by_source ? request.require_compiler : request.keys.entry.empty())) continue;
        keys.push_back(is_by_source ? request.keys.source : request.keys.entry);
        chosen.push_back(at);
      }
      if (!keys.empty())
        look_for(keys, chosen, bounds(requests.front().stop, std::chrono::steady_clock::now() + options_.time_limit),
                 found);
    }
  }
  if (!reads_)
    for (std::optional<bool>& one : found)
      if (!*one) one.reset();
  return found;
}

std::string RemoteTier::note_of(const std::string& key, const ActionResult& result,
                                const CompilerIdentity& compiler) const {
  std::string note = fmt::format("tessera {}\n{}\n", kNoteVersion, compiler_line(compiler));
  if (signer_) note += fmt::format("signature {}\n", signer_->sign(signed_text(key, result, compiler)));
  return note;
}

RemoteTier::Stored RemoteTier::store(const EncodedEntry& entry, const std::stop_token& stop) {
  if (!options_.is_written || !writes_) return Stored::failed;
  const Stopwatch stopwatch(us_);
  const Bounds all = bounds(stop, std::chrono::steady_clock::now() + options_.time_limit);
  const EntryKeys& keys = entry.record.keys;
  const CompilerIdentity& compiler = entry.record.report.compiler;
  const auto has_gone = [&](const Answer& answer, const std::string& name) {
    if (answer.verdict == Verdict::ok) return true;
    // Nothing else went wrong: what was compiled is there, and who was stopped says so elsewhere.
    if (answer.verdict == Verdict::silent)
      end_all(fmt::format("{}: {}", name, answer.reason));
    else if (answer.verdict != Verdict::stopped)
      end_writes(fmt::format("{}: {}", name, answer.reason));
    return false;
  };
  const std::string blob = blob_of(entry);
  ActionResult result{.sha256 = sha256_hex(blob), .bytes = static_cast<std::int64_t>(blob.size()), .note = {}};
  const std::string name = blob_name(result.sha256);
  const Answer found = store_->has(name, all);
  if (found.verdict != Verdict::absent && !has_gone(found, name)) return Stored::failed;
  const bool is_present = found.verdict == Verdict::ok && !has_wrong_blobs_;
  // The blob first: whoever finds the ActionResult finds it.
  if (!is_present && !has_gone(store_->put(name, blob, all), name)) return Stored::failed;
  result.note = note_of(keys.entry, result, compiler);
  if (!has_gone(store_->put(action_name(keys.entry), to_bytes(result), all), action_name(keys.entry)))
    return Stored::failed;
  if (!keeps_what_it_takes_) {
    const Answer kept = store_->get(action_name(keys.entry), all);
    if (kept.verdict != Verdict::absent && !has_gone(kept, action_name(keys.entry))) return Stored::failed;
    if (!parse_action_result(kept.body)) {
      end_writes(fmt::format("{}: was taken, and is not there", action_name(keys.entry)));
      return Stored::failed;
    }
    keeps_what_it_takes_ = true;
  }
  const Answer newest = store_->get(action_name(keys.source), all);
  if (newest.verdict == Verdict::ok) {
    const std::optional<ActionResult> other = parse_action_result(newest.body);
    const std::optional<Note> note = other && is_believed(keys.source, *other) ? parse_note(other->note) : std::nullopt;
    const auto version = [](const CompilerIdentity& of) {
      return std::tuple(of.major_version, of.minor_version, !is_lesser(of));
    };
    if (note && version(note->compiler) > version(compiler)) return is_present ? Stored::present : Stored::stored;
  } else if (newest.verdict != Verdict::absent) {
    has_gone(newest, action_name(keys.source));
    return Stored::failed;
  }
  result.note = note_of(keys.source, result, compiler);
  if (!has_gone(store_->put(action_name(keys.source), to_bytes(result), all), action_name(keys.source)))
    return Stored::failed;
  return is_present ? Stored::present : Stored::stored;
}

}  // namespace tessera::remote
