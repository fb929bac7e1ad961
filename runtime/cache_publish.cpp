// How an entry gets onto the disk.
//
// A folder under staging/ (its name locked, so that a sweep sees a live owner), every file written and fsynced, the
// folder fsynced, one rename to its place, the parents fsynced. A crash at any point leaves either no entry or the
// whole one, and at worst a staging folder, which a later sweep removes.
#include <fmt/format.h>

#include <cerrno>

#include "runtime/cache_folder.h"

namespace tessera {

namespace {
std::string parent_of(const std::string& path) { return path.substr(0, path.find_last_of('/')); }
}  // namespace

int CacheFolder::write_staged(int base, const std::string& staged, const EncodedEntry& encoded) {
  const Files& files = shared_.files;
  const Descriptor folder(files, files.open_folder(base, staged));
  std::vector<int> open;
  int fault = 0;
  // First all writes, then all fsyncs: the journal commits once.
  for (const auto& [name, bytes] : encoded.files()) {
    const int descriptor = files.create_file(folder.get(), name, true);
    fault = descriptor < 0 ? descriptor : 0;
    if (fault != 0) break;
    open.push_back(descriptor);
    fault = files.write_all(descriptor, bytes);
    if (fault != 0) break;
  }
  for (const int descriptor : open) {
    if (fault == 0) fault = files.sync(descriptor);
    const int closed = files.close(descriptor);
    if (fault == 0) fault = closed;
  }
  return fault != 0 ? fault : files.sync_folder(base, staged);
}

int CacheFolder::publish_staged(int base, const std::string& staged, const std::string& to) {
  const Files& files = shared_.files;
  const std::string source = parent_of(to);
  int fault = files.rename(base, staged, to);
  // An eviction may remove the empty parents between our making them and the rename.
  for (int attempt = 0; fault == -ENOENT && attempt < 3; ++attempt) {
    fault = files.make_folders(base, source, folder_mode());
    if (fault != 0) return fault;
    fault = files.rename(base, staged, to);
  }
  if (fault != 0) return fault;
  for (const std::string& folder : {source, parent_of(source), std::string(".")}) {
    const int synced = files.sync_folder(base, folder);
    if (synced != 0 && synced != -ENOENT) return synced;
  }
  return 0;
}

std::string CacheFolder::publish(const EncodedEntry& encoded) {
  if (!prepare()) return {};
  const Files& files = shared_.files;
  const Descriptor base = open_base();
  const std::string name = unique_name("new"), staged = fmt::format("{}/{}", kStagingFolder, name);
  const std::string to = entry_path_below(encoded.record.keys);
  const ProcessLock alive = lock("staging " + name);

  int fault = files.make_folder(base.get(), staged, folder_mode());
  const bool is_made = fault == 0;
  if (fault == 0) fault = write_staged(base.get(), staged, encoded);
  if (fault == 0) {
    const Descriptor clock(files, files.create_file(base.get(), "clock", false));
    note_use(base.get(), staged);
    fault = publish_staged(base.get(), staged, to);
  }
  if (fault == 0) {
    shared_.published.fetch_add(1, std::memory_order_relaxed);
    return entry_path(encoded.record.keys);
  }
  if (is_made) remove_entry_folder(files, base.get(), staged);
  // Another process was faster: the caller has its own bytes.
  if (fault == -ENOTEMPTY || fault == -EEXIST) return entry_path(encoded.record.keys);
  const std::string obstacle = fault == -ENOTDIR || fault == -ELOOP ? first_obstacle(base.get(), to) : std::string();
  fail(fault, obstacle.empty() ? "cannot be written" : fmt::format("v{}/{} is no folder", kCacheSchema, obstacle));
  return {};
}

}  // namespace tessera
