// Entries as `tessera cache` lists them, with the folder that each lies in.
#pragma once

#include <memory>
#include <vector>

#include "runtime/cache_folder.h"
#include "tessera/cache_admin.h"

namespace tessera {

struct ListedEntry {
  CacheListing listing;
  CacheFolder* folder = nullptr;  ///< where to read it
};

struct ListedCache {
  std::vector<std::unique_ptr<CacheFolder>> folders;  ///< in the order of the search
  std::vector<ListedEntry> entries;
  WalkReport report;
  /// Reports folders that were moved away or replaced since they were listed: what was not found in them is no
  /// eviction.
  void add_lost();
};

/// User folder first.
std::vector<std::unique_ptr<CacheFolder>> open_folders(CacheShared& shared, const CacheOptions& options);
ListedCache list_folders(CacheShared& shared, const CacheOptions& options, const CacheFilter& filter);

}  // namespace tessera
