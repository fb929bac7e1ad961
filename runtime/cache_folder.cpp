#include "runtime/cache_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <tuple>

namespace tessera {

namespace {
std::int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace

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
  return fmt::format("{}/{}/{}/{}", base_, keys.source.substr(0, 2), keys.source, keys.entry);
}

std::string CacheFolder::why_refused() const {
  for (const std::string& path : {root_, base_}) {
    FileStatus found;
    const int fault = shared_.files.status(Files::kWorkingFolder, path, found, true);
    if (fault == -ENOENT) return {};
    if (fault != 0) return fmt::format("cache folder {}: cannot be read ({})", path, describe_errno(fault));
    if (!found.is_folder) return fmt::format("cache folder {}: is a file", path);
    const std::uint32_t user = shared_.files.effective_user();
    if (shared_.trust_folder) continue;
    if (found.owner != user && found.owner != 0) {
      return fmt::format(
          "cache folder {}: belongs to user {}, not to you ({}): whoever can write there can run code "
          "as you; take a folder of your own or say that you trust it",
          path, found.owner, user);
    }
    if ((found.mode & 0002U) != 0) {
      return fmt::format(
          "cache folder {}: everybody may write there (mode {:04o}) and so run code as you; chmod o-w "
          "it or say that you trust it",
          path, found.mode);
    }
    if ((found.mode & 0020U) != 0) {
      shared_.warnings.once(root_ + " group", fmt::format("cache folder {}: its group may write there (mode {:04o}): "
                                                          "each member can run code as you",
                                                          path, found.mode));
    }
  }
  return {};
}

bool CacheFolder::is_usable() {
  if (is_accepted_.load(std::memory_order_relaxed)) return true;
  const std::string reason = why_refused();
  if (!reason.empty()) {
    shared_.warnings.once(
        root_, fmt::format("{}; {}", reason, is_writable_ ? "kernels are kept in memory only" : "it is not used"));
    return false;
  }
  FileStatus found;
  if (shared_.files.status(Files::kWorkingFolder, base_, found, true) != 0) return false;  // does not exist yet
  is_accepted_.store(true, std::memory_order_relaxed);
  return true;
}

std::optional<ReadEntry> CacheFolder::read(const EntryKeys& keys, EntryParts parts, bool is_use) {
  if (!is_usable()) return std::nullopt;
  const std::string path = entry_path(keys);
  ReadEntry found = read_entry(shared_.files, path, keys, parts);
  switch (found.verdict) {
    case ReadVerdict::ok:
      if (is_writable_ && is_use) note_use(path);
      return found;
    case ReadVerdict::absent:
      return std::nullopt;
    case ReadVerdict::damaged:
      quarantine(path, found);
      return std::nullopt;
    case ReadVerdict::unreadable:
      shared_.warnings.once(root_, fmt::format("cache folder {}: entry {}: {}; it is built again", root_,
                                               keys.entry.substr(0, 16), found.reason));
      return std::nullopt;
  }
  return std::nullopt;
}

std::vector<std::string> CacheFolder::newest_first(const std::string& source_key) {
  const std::string folder = entry_path({source_key, {}});
  std::vector<std::string> names;
  const int fault = shared_.files.list(folder, names);
  if (fault != 0 && fault != -ENOENT) {
    shared_.warnings.once(root_, fmt::format("cache folder {}: cannot be read ({})", root_, describe_errno(fault)));
  }
  std::erase_if(names, [](const std::string& name) { return !is_key(name); });
  if (names.size() < 2) return names;
  std::vector<std::tuple<int, int, std::int64_t, std::string>> ranked;
  for (const std::string& name : names) {
    const ReadEntry found = read_entry(shared_.files, folder + name, {source_key, name}, EntryParts::record);
    const CompilerIdentity& compiler = found.record.report.compiler;
    ranked.emplace_back(compiler.major_version, compiler.minor_version, found.made_ns, name);
  }
  std::sort(ranked.rbegin(), ranked.rend());
  names.clear();
  for (const auto& each : ranked) names.push_back(std::get<3>(each));
  return names;
}

std::optional<ReadEntry> CacheFolder::read_newest(const std::string& source_key, EntryParts parts, bool is_use) {
  if (!is_usable()) return std::nullopt;
  for (const std::string& name : newest_first(source_key)) {
    if (auto found = read({source_key, name}, parts, is_use)) return found;
  }
  return std::nullopt;
}

void CacheFolder::quarantine(const std::string& path, const ReadEntry& found) {
  if (!is_writable_) {
    shared_.warnings.once(path, fmt::format("cache entry {} is damaged ({}) and not used", path, found.reason));
    return;
  }
  FileStatus now;
  const Files& files = shared_.files;
  const bool is_replaced =
      files.status(Files::kWorkingFolder, path, now) == 0 && found.folder_inode != 0 && now.inode != found.folder_inode;
  if (is_replaced) return;  // another process has healed it meanwhile
  const std::string folder = base_ + "/quarantine";
  const std::string aside = folder + "/" + unique_name(path.substr(path.find_last_of('/') + 1, 16).c_str());
  int fault = files.rename(path, aside);
  if (fault == -ENOENT) {
    files.make_folder(folder, 0700);
    fault = files.rename(path, aside);
  }
  if (fault == -ENOENT) return;
  shared_.quarantined.fetch_add(1, std::memory_order_relaxed);
  if (fault != 0) {
    // The folder's fault more than the entry's: it counts as the one warning of the folder.
    shared_.warnings.once(root_,
                          fmt::format("cache folder {}: entry {} is damaged ({}) and cannot be moved aside ({}); "
                                      "kernels are kept in memory only",
                                      root_, path, found.reason, describe_errno(fault)));
    return;
  }
  shared_.warnings.once(path, fmt::format("cache entry {} is damaged ({}): moved to {}", path, found.reason, folder));
  files.set_modified(aside, next_stamp());

  std::vector<std::string> names;
  files.list(folder, names);
  if (names.size() <= kQuarantineLimit) return;
  std::vector<std::pair<std::int64_t, std::string>> by_age;
  for (const std::string& name : names) {
    if (files.status(Files::kWorkingFolder, folder + "/" + name, now) == 0) by_age.emplace_back(now.modified_ns, name);
  }
  std::sort(by_age.begin(), by_age.end());
  for (std::size_t i = 0; i + kQuarantineLimit < by_age.size(); ++i) files.remove_tree(folder + "/" + by_age[i].second);
}

void CacheFolder::fail(int negative_errno, const char* what) {
  const bool may_pass = negative_errno == -ENOSPC || negative_errno == -EDQUOT;
  blocked_until_ns_ = may_pass ? steady_ns() + kDiskFullPauseNs : std::numeric_limits<std::int64_t>::max();
  shared_.publish_failures.fetch_add(1, std::memory_order_relaxed);
  shared_.warnings.once(root_, fmt::format("cache folder {}: {} ({}); kernels are kept in memory only", root_, what,
                                           describe_errno(negative_errno)));
}

std::uint32_t CacheFolder::folder_mode() const {
  FileStatus found;
  const bool is_shared =
      shared_.files.status(Files::kWorkingFolder, root_, found, true) == 0 && (found.mode & 0020U) != 0;
  return is_shared ? 0775 : 0755;  // less what the umask takes away
}

bool CacheFolder::prepare() {
  if (!is_writable_ || steady_ns() < blocked_until_ns_) return false;
  if (is_usable()) {
    FileStatus found;
    if (shared_.files.status(Files::kWorkingFolder, base_ + "/staging", found) == 0 && found.is_folder) return true;
  } else if (!why_refused().empty()) {
    return false;
  }
  int fault = shared_.files.make_folders(base_, folder_mode());
  if (fault == 0) fault = shared_.files.make_folder(base_ + "/staging", folder_mode() == 0775 ? 0770 : 0700);
  if (fault < 0 && fault != -EEXIST) fail(fault, "cannot be created");
  return (fault == 0 || fault == -EEXIST) && is_usable();
}

ProcessLock CacheFolder::lock(const std::string& name, const LockWait& wait) const {
  return ProcessLock(shared_.files, base_ + "/lock", name, wait);
}

std::string CacheFolder::unique_name(const char* prefix) const {
  std::random_device random;
  return fmt::format("{}-{}-{:08x}{:08x}", prefix, ::getpid(), random(), random());
}

std::int64_t CacheFolder::next_stamp() const {
  FileStatus clock;
  const std::int64_t now = shared_.files.now_ns();
  if (shared_.files.status(Files::kWorkingFolder, base_ + "/clock", clock) != 0) return now;
  return std::max(now, clock.modified_ns + 1);
}

void CacheFolder::note_use(const std::string& path) {
  const std::int64_t stamp = next_stamp();
  shared_.files.set_modified(path, stamp);
  shared_.files.set_modified(base_ + "/clock", stamp);
}

}  // namespace tessera
