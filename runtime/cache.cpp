// Cache: memory, then the folders, then one build for all who ask.
//
// find_or_build, in order: memory; join a flight of the same key in this process, or lead one. The leader: the folders;
// the lock of the key among processes; the folders again, for another process may have been faster; the remote tier;
// build; publish.
#include "tessera/cache.h"

#include <fmt/format.h>

#include <array>
#include <future>
#include <mutex>
#include <span>
#include <unordered_map>

#include "runtime/cache_folder.h"
#include "runtime/cache_memory.h"
#include "runtime/compiler_suffix.h"
#include "runtime/remote/tier.h"
#include "runtime/underway.h"
#include "tessera/error.h"

namespace tessera {

namespace {

using Pointer = std::shared_ptr<const CacheEntry>;

EntryParts parts_of(const CacheRequest& request) {
  return request.need_ptx ? EntryParts::code_and_ptx : EntryParts::code;
}

Pointer to_entry(ReadEntry&& read, const CacheFolder& folder, EntryParts parts) {
  auto entry = std::make_shared<CacheEntry>();
  entry->keys = read.record.keys;
  entry->op = std::move(read.record.op);
  entry->arch = std::move(read.record.arch);
  entry->kernel = std::move(read.record.kernel);
  entry->plan_json = std::move(read.plan_json);
  entry->image.report = std::move(read.record.report);
  entry->image.cubin = std::move(read.cubin);
  entry->image.ptx = std::move(read.ptx);
  entry->image.merge = {std::move(read.merge_ptx), std::move(read.merge_cubin)};
  entry->has_ptx = parts != EntryParts::code;
  entry->folder = folder.entry_path(entry->keys);
  entry->tier = folder.is_writable() ? CacheTier::user : CacheTier::system;
  return entry;
}

}  // namespace

std::string_view to_string(CacheTier tier) noexcept {
  static constexpr std::array<std::string_view, 5> kNames{"memory", "user", "system", "compiled", "remote"};
  return kNames[static_cast<std::size_t>(tier)];
}

std::string CacheEntry::read_ptx() const { return whole_image().ptx; }

Image CacheEntry::whole_image() const {
  if (has_ptx) return image;
  const Files files;
  const std::filesystem::path version = folder.parent_path().parent_path().parent_path();
  const Descriptor root(files, files.open_root(version.parent_path().string()));
  const Descriptor base(files, files.open_folder(root.get(), version.filename().string()));
  ReadEntry read = read_entry(files, base.get(), keys, EntryParts::code_and_ptx, true);
  if (read.verdict == ReadVerdict::ok) {
    Image whole = image;
    whole.ptx = std::move(read.ptx);
    whole.merge.ptx = std::move(read.merge_ptx);
    return whole;
  }
  throw Error(ErrorKind::io,
              fmt::format("cache entry {}: its PTX cannot be read any more ({}); ask the cache again", folder.string(),
                          read.verdict == ReadVerdict::absent ? "it was removed" : read.reason));
}

struct Cache::State {
  explicit State(CacheOptions given) : options(std::move(given)), shared(options), memory(options.max_memory_bytes) {
    if (!options.user_folder.empty()) {
      folders.push_back(std::make_unique<CacheFolder>(shared, options.user_folder, true));
      user = folders.front().get();
    }
    for (const std::filesystem::path& folder : options.system_folders) {
      folders.push_back(std::make_unique<CacheFolder>(shared, folder, false));
    }
    if (!options.remote.url.empty()) remote = std::make_unique<remote::RemoteTier>(options.remote, shared.warnings);
  }

  Pointer find_on_disk(const CacheRequest& request);
  Pointer find_and_count(const CacheRequest& request);
  Pointer find_remote(const CacheRequest& request, remote::Turn* turn);
  Pointer find_remote_or_build(const CacheRequest& request, const std::function<Image()>& build);
  std::string publish(const EncodedEntry& encoded);
  bool store_remotely(const EncodedEntry& encoded, const std::stop_token& stop);
  LockWait wait_of(const CacheRequest& request);
  Pointer lead(const CacheRequest& request, const std::function<Image()>& build);
  Pointer build_and_publish(const CacheRequest& request, const std::function<Image()>& build);
  Pointer join_or_lead(const CacheRequest& request, const std::function<Image()>& build);

  CacheOptions options;
  CacheShared shared;
  MemoryTier memory;
  std::vector<std::unique_ptr<CacheFolder>> folders;  // in the order of the search
  CacheFolder* user = nullptr;
  std::unique_ptr<remote::RemoteTier> remote;  // null: there is none

  std::mutex flights_mutex;
  std::unordered_map<std::string, std::shared_future<Pointer>> flights;

  std::atomic<std::int64_t> memory_hits{0}, user_hits{0}, system_hits{0}, compiles{0}, failures{0}, lock_waits{0};
  std::atomic<std::int64_t> compile_us{0}, remote_hits{0}, remote_stored{0}, remote_failures{0};
};

Pointer Cache::State::find_on_disk(const CacheRequest& request) {
  const EntryParts parts = parts_of(request);
  if (!request.keys.entry.empty()) {
    for (const auto& folder : folders) {
      if (auto read = folder->read(request.keys, parts)) return to_entry(std::move(*read), *folder, parts);
    }
  }
  if (request.require_compiler) return nullptr;
  for (const auto& folder : folders) {
    if (auto read = folder->read_newest(request.keys.source, parts)) return to_entry(std::move(*read), *folder, parts);
  }
  return nullptr;
}

Pointer Cache::State::find_and_count(const CacheRequest& request) {
  Pointer found = find_on_disk(request);
  if (!found) return nullptr;
  (found->tier == CacheTier::user ? user_hits : system_hits).fetch_add(1, std::memory_order_relaxed);
  return memory.insert(request, std::move(found));
}

/// Into the user folder; its path, or nothing.
std::string Cache::State::publish(const EncodedEntry& encoded) {
  if (user == nullptr) return {};
  std::string path = user->publish(encoded);
  if (!path.empty()) {
    const auto bytes = encoded.record.payload_bytes() + static_cast<std::int64_t>(encoded.compile_json.size());
    user->keep_within(options.max_bytes, path, bytes);
  }
  return path;
}

bool Cache::State::store_remotely(const EncodedEntry& encoded, const std::stop_token& stop) {
  using Stored = remote::RemoteTier::Stored;
  const Stored stored = remote->store(encoded, stop);
  if (stored == Stored::stored) remote_stored.fetch_add(1, std::memory_order_relaxed);
  if (stored == Stored::failed) remote_failures.fetch_add(1, std::memory_order_relaxed);
  return stored != Stored::failed;
}

/// turn: null where nothing would be built.
Pointer Cache::State::find_remote(const CacheRequest& request, remote::Turn* turn) {
  if (remote == nullptr) return nullptr;
  std::optional<ArchivedEntry> found = remote->fetch(request);
  if (!found && turn != nullptr) found = remote->await_turn(request, *turn);
  if (!found) return nullptr;
  remote_hits.fetch_add(1, std::memory_order_relaxed);
  auto entry = std::make_shared<CacheEntry>();
  entry->keys = found->record.keys;
  entry->op = found->record.op;
  entry->arch = found->record.arch;
  entry->kernel = found->record.kernel;
  entry->plan_json = found->plan_json;
  entry->image.report = found->record.report;
  const auto bytes_of = [](const std::string& text) {
    const auto bytes = std::as_bytes(std::span(text));
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  entry->image.cubin = bytes_of(found->cubin);
  entry->image.ptx = found->ptx;
  entry->image.merge = {found->merge_ptx, bytes_of(found->merge_cubin)};
  entry->folder = publish(found->encoded());
  entry->tier = CacheTier::remote;
  return entry;
}

Pointer Cache::State::build_and_publish(const CacheRequest& request, const std::function<Image()>& build) {
  const Underway underway;
  auto entry = std::make_shared<CacheEntry>();
  entry->keys = request.keys;
  entry->op = request.op;
  entry->arch = request.arch;
  entry->kernel = request.kernel;
  entry->plan_json = request.plan_json;
  entry->tier = CacheTier::compiled;
  try {
    entry->image = build();
    if (entry->image.cubin.empty()) {
      throw Error(ErrorKind::compile, fmt::format("{}: the compiler returned an empty cubin", request.kernel));
    }
  } catch (...) {
    failures.fetch_add(1, std::memory_order_relaxed);
    throw;
  }
  compiles.fetch_add(1, std::memory_order_relaxed);
  // What was compiled otherwise than this compiler would is another's.
  const CompilerIdentity& compiler = entry->image.report.compiler;
  if (!entry->keys.entry.empty() && is_lesser(compiler)) entry->keys.entry = entry_key(entry->keys.source, compiler);
  compile_us.fetch_add(static_cast<std::int64_t>(entry->image.report.compile_ms * 1000), std::memory_order_relaxed);
  const bool is_pushed = remote != nullptr && remote->is_written();
  if ((user != nullptr || is_pushed) && !request.keys.entry.empty()) {
    CacheRequest made = request;
    made.keys = entry->keys;
    const EncodedEntry encoded = encode_entry(made, entry->image);
    entry->folder = publish(encoded);
    if (is_pushed) store_remotely(encoded, request.stop);
  }
  return entry;
}

LockWait Cache::State::wait_of(const CacheRequest& request) {
  const auto say = [this, &request] {
    shared.warnings.once(
        "wait " + request.keys.entry,
        fmt::format("cache folder {}: another process compiles {}; waiting for it, up to {:.0f} s", user->root(),
                    request.kernel, std::chrono::duration<double>(options.lock_wait).count()));
  };
  return {.longest = options.lock_wait, .stop = request.stop, .on_long = say};
}

Pointer Cache::State::find_remote_or_build(const CacheRequest& request, const std::function<Image()>& build) {
  remote::Turn turn;  // until what is built is stored
  Pointer found = find_remote(request, &turn);
  return found ? found : build_and_publish(request, build);
}

Pointer Cache::State::lead(const CacheRequest& request, const std::function<Image()>& build) {
  if (Pointer found = find_and_count(request)) return found;
  Pointer built;
  if (user != nullptr && !request.keys.entry.empty() && user->prepare()) {
    const ProcessLock lock = user->lock("build " + request.keys.entry, wait_of(request));
    if (lock.has_waited()) lock_waits.fetch_add(1, std::memory_order_relaxed);
    if (lock.outcome() == LockOutcome::stopped) {
      throw WaitInterrupted(fmt::format("{}: interrupted while another process compiled it", request.kernel));
    }
    if (lock.outcome() == LockOutcome::timed_out) {
      shared.warnings.once(
          "lock " + request.keys.entry,
          fmt::format("cache folder {}: another process has held the lock of {} for {:.0f} s; it is "
                      "compiled here too",
                      user->root(), request.kernel, std::chrono::duration<double>(options.lock_wait).count()));
    }
    if (Pointer found = find_and_count(request)) return found;
    built = find_remote_or_build(request, build);
  } else {
    built = find_remote_or_build(request, build);
  }
  return memory.insert(request, std::move(built));
}

/// Null: ask again (the entry came in meanwhile, or another's flight was interrupted or brought less than this request
/// needs).
Pointer Cache::State::join_or_lead(const CacheRequest& request, const std::function<Image()>& build) {
  const std::string& key = request.keys.entry.empty() ? request.keys.source : request.keys.entry;
  std::promise<Pointer> promise;
  std::shared_future<Pointer> flight;
  {
    const std::lock_guard lock(flights_mutex);
    // Under the lock: since the caller looked, a flight may have ended.
    if (memory.find(request)) return nullptr;
    const auto [found, is_leader] = flights.try_emplace(key);
    if (is_leader) {
      found->second = promise.get_future().share();
    } else {
      flight = found->second;
    }
  }
  if (flight.valid()) {
    Pointer joined;
    try {
      while (request.stop.stop_possible() &&
             flight.wait_for(std::chrono::milliseconds{20}) != std::future_status::ready) {
        if (request.stop.stop_requested())
          throw WaitInterrupted(fmt::format("{}: interrupted while another thread got it", request.kernel));
      }
      joined = flight.get();
    } catch (const WaitInterrupted&) {
      // Its leader was asked to stop; who was not leads the next flight.
      if (request.stop.stop_requested()) throw;
      return nullptr;
    }
    const bool is_enough = joined->has_ptx || !request.need_ptx;
    const bool is_right = !request.require_compiler || joined->keys.entry == request.keys.entry;
    return is_enough && is_right ? joined : nullptr;
  }
  // The flight ends before its result is handed out, so that whoever asks again does not meet it.
  const auto land = [&] {
    const std::lock_guard lock(flights_mutex);
    flights.erase(key);
  };
  try {
    Pointer result = lead(request, build);
    land();
    promise.set_value(result);
    return result;
  } catch (...) {
    land();
    promise.set_exception(std::current_exception());
    throw;
  }
}

Cache::Cache(CacheOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Cache::~Cache() = default;

const CacheOptions& Cache::options() const noexcept { return state_->options; }

std::shared_ptr<const CacheEntry> Cache::find(const CacheRequest& request) {
  if (Pointer found = state_->memory.find(request)) {
    state_->memory_hits.fetch_add(1, std::memory_order_relaxed);
    return found;
  }
  return state_->find_and_count(request);
}

std::shared_ptr<const CacheEntry> Cache::find_or_build(const CacheRequest& request,
                                                       const std::function<Image()>& build) {
  while (true) {
    if (Pointer found = state_->memory.find(request)) {
      state_->memory_hits.fetch_add(1, std::memory_order_relaxed);
      return found;
    }
    if (Pointer found = state_->join_or_lead(request, build)) return found;
  }
}

std::optional<CacheTier> Cache::contains(const CacheRequest& request) {
  if (state_->memory.find(request)) return CacheTier::memory;
  const auto tier_of = [](const CacheFolder& folder) {
    return folder.is_writable() ? CacheTier::user : CacheTier::system;
  };
  const EntryParts parts = parts_of(request);
  if (!request.keys.entry.empty()) {
    for (const auto& folder : state_->folders) {
      if (folder->read(request.keys, parts, false)) return tier_of(*folder);
    }
  }
  if (request.require_compiler) return std::nullopt;
  for (const auto& folder : state_->folders) {
    if (folder->read_newest(request.keys.source, parts, false)) return tier_of(*folder);
  }
  return std::nullopt;
}

std::optional<bool> Cache::remote_contains(const CacheRequest& request) {
  return remote_contains(std::span(&request, 1)).front();
}

std::vector<std::optional<bool>> Cache::remote_contains(std::span<const CacheRequest> requests) {
  if (state_->remote == nullptr) return std::vector<std::optional<bool>>(requests.size());
  return state_->remote->has(requests);
}

std::shared_ptr<const CacheEntry> Cache::pull(const CacheRequest& request) {
  if (Pointer found = find(request)) return found;
  Pointer found = state_->find_remote(request, nullptr);
  return found ? state_->memory.insert(request, std::move(found)) : nullptr;
}

bool Cache::push(const CacheRequest& request) {
  if (state_->remote == nullptr) return false;
  for (const auto& folder : state_->folders) {
    std::optional<ReadEntry> read;
    if (!request.keys.entry.empty()) read = folder->read(request.keys, EntryParts::all, false);
    if (!read && !request.require_compiler) read = folder->read_newest(request.keys.source, EntryParts::all, false);
    if (!read) continue;
    EncodedEntry encoded;
    encoded.record = read->record;
    encoded.compile_json = read->compile_json;
    encoded.cubin = view_of(read->cubin);
    encoded.ptx = read->ptx;
    encoded.merge_cubin = view_of(read->merge_cubin);
    encoded.merge_ptx = read->merge_ptx;
    encoded.plan = read->plan_json;
    encoded.source = read->source;
    return state_->store_remotely(encoded, request.stop);
  }
  return false;
}

CacheStats Cache::stats() const {
  const State& from = *state_;
  CacheStats stats;
  stats.memory_hits = from.memory_hits;
  stats.user_hits = from.user_hits;
  stats.system_hits = from.system_hits;
  stats.compiles = from.compiles;
  stats.failures = from.failures;
  stats.quarantined = from.shared.quarantined;
  stats.compile_ms = static_cast<double>(from.compile_us) / 1000;
  stats.published = from.shared.published;
  stats.publish_failures = from.shared.publish_failures;
  stats.evicted = from.shared.evicted;
  stats.lock_waits = from.lock_waits;
  stats.remote_hits = from.remote_hits;
  stats.remote_stored = from.remote_stored;
  stats.remote_failures = from.remote_failures;
  if (from.remote != nullptr) {
    const remote::RemoteTier::Counts counts = from.remote->counts();
    stats.remote_misses = counts.misses;
    stats.remote_errors = counts.errors;
    stats.remote_ms = static_cast<double>(counts.us) / 1000;
  }
  return stats;
}

}  // namespace tessera
