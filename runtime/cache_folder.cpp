#include "runtime/cache_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <tuple>

#include "runtime/compiler_suffix.h"

namespace tessera {

namespace {
std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

std::string cannot_be_read(int negative_errno) {
  return fmt::format("cannot be read ({})", describe_errno(negative_errno));
}

void Warnings::once(const std::string& subject, const std::string& message) {
  {
    const std::lock_guard lock(mutex_);
    if (!said_.insert(subject).second) return;
  }
  if (sink_) sink_(message);
}

CacheFolder::CacheFolder(CacheShared& shared, const std::filesystem::path& root, bool is_writable)
    : shared_(shared), root_(root.string()), is_writable_(is_writable) {
  while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
  base_ = fmt::format("{}/v{}", root_, kCacheSchema);
}

std::string CacheFolder::entry_path(const EntryKeys& keys) const {
  return fmt::format("{}/{}", base_, entry_path_below(keys));
}

Descriptor CacheFolder::open_base() const {
  if (held_) return {shared_.files, held_->get(), false};
  const Descriptor root(shared_.files, shared_.files.open_root(root_));
  return {shared_.files, shared_.files.open_folder(root.get(), version_name())};
}

std::optional<CacheFault> CacheFolder::refusal() const {
  const Files& files = shared_.files;
  for (const bool is_root : {true, false}) {
    FileStatus found;
    int fault = 0;
    if (is_root) {
      fault = files.status_of_root(root_, found);
    } else {
      const Descriptor root(files, files.open_root(root_));
      fault = files.status(root.get(), version_name(), found);
    }
    if (fault == -ENOENT) return std::nullopt;
    const std::string& path = is_root ? root_ : base_;
    if (fault != 0) return CacheFault{path, cannot_be_read(fault)};
    if (std::optional<CacheFault> refused = judge(path, found)) return refused;
  }
  return std::nullopt;
}

std::optional<CacheFault> CacheFolder::judge(const std::string& path, const FileStatus& found) const {
  const auto refused = [&path](std::string reason) { return CacheFault{path, std::move(reason)}; };
  if (found.is_link) return refused("is " + describe_errno(-ELOOP));
  if (!found.is_folder) return refused("is a file");
  if (shared_.trust_folder) return std::nullopt;
  const std::uint32_t user = shared_.files.effective_user();
  if (found.owner != user && found.owner != 0) {
    return refused(
        fmt::format("belongs to user {}, not to you ({}): whoever can write there can run code "
                    "as you; take a folder of your own or say that you trust it",
                    found.owner, user));
  }
  if ((found.mode & 0002U) != 0) {
    return refused(
        fmt::format("everybody may write there (mode {:04o}) and so run code as you; chmod o-w "
                    "it or say that you trust it",
                    found.mode));
  }
  if ((found.mode & 0020U) != 0) {
    shared_.warnings.once(root_ + " group", fmt::format("cache folder {}: its group may write there (mode {:04o}): "
                                                        "each member can run code as you",
                                                        path, found.mode));
  }
  return std::nullopt;
}

std::string CacheFolder::why_refused() const {
  const std::optional<CacheFault> fault = refusal();
  return fault ? fault->to_string() : std::string();
}

CacheFault CacheFolder::why_not_open(int negative_errno) const {
  if (std::optional<CacheFault> refused = refusal()) return *refused;
  if (negative_errno != -ENOENT) return {base_, cannot_be_read(negative_errno)};
  FileStatus found;
  const Descriptor root(shared_.files, shared_.files.open_root(root_));
  if (root.get() == -ENOENT) return {root_, "does not exist", true};
  if (shared_.files.status(root.get(), version_name(), found) == 0) return {base_, kMovedMeanwhile};
  return {root_, fmt::format("holds no cache: there is no v{} in it", kCacheSchema), true};
}

std::optional<CacheFault> CacheFolder::hold() {
  const Files& files = shared_.files;
  const Descriptor root(files, files.open_root(root_));
  auto base = std::make_unique<const Descriptor>(files, files.open_folder(root.get(), version_name()));
  if (!*base) return why_not_open(base->get());
  for (const bool is_root : {true, false}) {
    FileStatus found;
    const std::string& path = is_root ? root_ : base_;
    const int fault = files.status(is_root ? root.get() : base->get(), found);
    if (fault != 0) return CacheFault{path, cannot_be_read(fault)};
    if (std::optional<CacheFault> refused = judge(path, found)) return refused;
  }
  held_ = std::move(base);
  return std::nullopt;
}

std::optional<CacheFault> CacheFolder::lost() const {
  if (!held_) return std::nullopt;
  const Files& files = shared_.files;
  FileStatus held, now;
  const Descriptor root(files, files.open_root(root_));
  int fault = files.status(root.get(), version_name(), now);
  if (fault == -ENOENT) return CacheFault{base_, kMovedMeanwhile};
  if (fault == 0) fault = files.status(held_->get(), held);
  if (fault != 0) return CacheFault{base_, cannot_be_read(fault)};
  if (held.inode == now.inode && held.device == now.device) return std::nullopt;
  return CacheFault{base_, kMovedMeanwhile};
}

bool CacheFolder::is_usable() {
  const auto unused = [this] { return is_writable_ ? "kernels are kept in memory only" : "it is not used"; };
  if (is_accepted_.load(std::memory_order_relaxed)) return true;
  const std::string reason = why_refused();
  if (!reason.empty()) {
    shared_.warnings.once(root_, fmt::format("{}; {}", reason, unused()));
    return false;
  }
  const Descriptor base = open_base();
  if (!base) {
    if (base.get() == -ENOENT) return false;  // does not exist yet
    shared_.warnings.once(root_, fmt::format("cache folder {}: {}; {}", base_, cannot_be_read(base.get()), unused()));
    return false;
  }
  is_accepted_.store(true, std::memory_order_relaxed);
  return true;
}

ReadEntry CacheFolder::look(const EntryKeys& keys, EntryParts parts) const {
  return read_entry(shared_.files, open_base().get(), keys, parts, shared_.trust_folder);
}

std::optional<ReadEntry> CacheFolder::read(const EntryKeys& keys, EntryParts parts, bool is_use) {
  if (!is_usable()) return std::nullopt;
  const Descriptor base = open_base();
  ReadEntry found = read_entry(shared_.files, base.get(), keys, parts, shared_.trust_folder);
  switch (found.verdict) {
    case ReadVerdict::ok:
      if (is_writable_ && is_use) note_use(base.get(), entry_path_below(keys));
      return found;
    case ReadVerdict::absent:
      return std::nullopt;
    case ReadVerdict::damaged:
      quarantine(keys, found);
      return std::nullopt;
    case ReadVerdict::unreadable:
      shared_.warnings.once(root_, fmt::format("cache folder {}: entry {}: {}; it is built again", root_,
                                               keys.entry.substr(0, 16), found.reason));
      return std::nullopt;
  }
  return std::nullopt;
}

std::vector<std::string> CacheFolder::newest_first(int base, const std::string& source_key) {
  std::vector<std::string> names;
  const int fault = shared_.files.list(base, source_key.substr(0, 2) + "/" + source_key, names);
  if (fault != 0 && fault != -ENOENT) {
    shared_.warnings.once(root_, fmt::format("cache folder {}: cannot be read ({})", root_, describe_errno(fault)));
  }
  std::erase_if(names, [](const std::string& name) { return !is_key(name); });
  if (names.size() < 2) return names;
  std::vector<std::tuple<int, int, bool, std::int64_t, std::string>> ranked;
  for (const std::string& name : names) {
    const ReadEntry found =
        read_entry(shared_.files, base, {source_key, name}, EntryParts::record, shared_.trust_folder);
    const CompilerIdentity& compiler = found.record.report.compiler;
    ranked.emplace_back(compiler.major_version, compiler.minor_version, !is_lesser(compiler), found.made_ns, name);
  }
  std::sort(ranked.rbegin(), ranked.rend());
  names.clear();
  for (const auto& each : ranked) names.push_back(std::get<4>(each));
  return names;
}

std::optional<ReadEntry> CacheFolder::read_newest(const std::string& source_key, EntryParts parts, bool is_use) {
  if (!is_usable()) return std::nullopt;
  for (const std::string& name : newest_first(open_base().get(), source_key)) {
    if (auto found = read({source_key, name}, parts, is_use)) return found;
  }
  return std::nullopt;
}

std::string CacheFolder::first_obstacle(int base, const std::string& path) const {
  for (std::size_t end = 0; end != std::string::npos;) {
    end = path.find('/', end + 1);
    const std::string part = path.substr(0, end);
    FileStatus found;
    if (shared_.files.status(base, part, found) == 0 && !found.is_folder) return part;
  }
  return {};
}

void CacheFolder::fail(int negative_errno, const std::string& what) {
  const bool may_pass = negative_errno == -ENOSPC || negative_errno == -EDQUOT;
  blocked_until_ns_ = may_pass ? steady_ns() + kDiskFullPauseNs : std::numeric_limits<std::int64_t>::max();
  shared_.publish_failures.fetch_add(1, std::memory_order_relaxed);
  shared_.warnings.once(root_, fmt::format("cache folder {}: {} ({}); kernels are kept in memory only", root_, what,
                                           describe_errno(negative_errno)));
}

std::uint32_t CacheFolder::folder_mode() const {
  FileStatus found;
  const bool is_shared = shared_.files.status_of_root(root_, found) == 0 && (found.mode & 0020U) != 0;
  return is_shared ? 0775 : 0755;  // less what the umask takes away
}

bool CacheFolder::prepare() {
  if (!is_writable_ || steady_ns() < blocked_until_ns_) return false;
  const Files& files = shared_.files;
  if (is_usable()) {
    if (Descriptor(files, files.open_folder(open_base().get(), kStagingFolder))) return true;
  } else if (!why_refused().empty()) {
    return false;
  }
  int fault = files.make_root(root_, folder_mode());
  if (fault == 0) {
    const Descriptor root(files, files.open_root(root_));
    fault = files.make_folders(root.get(), base_.substr(root_.size() + 1), folder_mode());
  }
  std::string what = "cannot be created";
  if (fault == 0) {
    const Descriptor base = open_base();
    fault = files.make_folders(base.get(), kStagingFolder, folder_mode() == 0775 ? 0770 : 0700);
    if (fault == -ELOOP || fault == -ENOTDIR) what = fmt::format("v{}/{} is no folder", kCacheSchema, kStagingFolder);
  }
  if (fault < 0) fail(fault, what);
  return fault == 0 && is_usable();
}

ProcessLock CacheFolder::lock(const std::string& name, const LockWait& wait) const {
  return ProcessLock(shared_.files, open_base().get(), "lock", name, wait);
}

std::string CacheFolder::unique_name(const std::string& prefix) const {
  std::random_device random;
  return fmt::format("{}-{}-{:08x}{:08x}", prefix, ::getpid(), random(), random());
}

std::int64_t CacheFolder::next_stamp(int base) const {
  FileStatus clock;
  const std::int64_t now = shared_.files.now_ns();
  if (shared_.files.status(base, "clock", clock) != 0) return now;
  return std::max(now, clock.modified_ns + 1);
}

void CacheFolder::note_use(int base, const std::string& path) {
  const std::int64_t stamp = next_stamp(base);
  shared_.files.set_modified(base, path, stamp);
  shared_.files.set_modified(base, "clock", stamp);
}

}  // namespace tessera
