#include "tessera/cache_admin.h"

#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;
using std::chrono::seconds;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

/// Three entries of two operators and two archs, used one, two and three hours after the start.
struct Warm : Bench {
  std::int64_t now = std::int64_t{1'800'000'000} * kSecond;
  Warm() {
    auto made = std::make_shared<FileHooks>();
    made->now_ns = [this] { return now; };
    options.hooks = made;
    const auto cache = open();
    now += 3600 * kSecond;
    build(*cache, 1);
    now += 3600 * kSecond;
    build(*cache, 2, "copy2d");
    now += 3600 * kSecond;
    build(*cache, 3, "fmha", "sm_100a");
  }
};

std::vector<std::string> kernels(const std::vector<CacheListing>& listings) {
  std::vector<std::string> names;
  names.reserve(listings.size());
  for (const CacheListing& each : listings) names.push_back(each.kernel);
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;
const std::string kOne = "tessera_sample_1", kTwo = "tessera_sample_2", kThree = "tessera_sample_3";

}  // namespace

TEST_CASE("cache admin: list, with filters, over all tiers") {
  Warm warm;
  const auto all = list_cache(warm.options);
  CHECK(kernels(all) == Names{kOne, kTwo, kThree});
  for (const CacheListing& each : all) {
    CHECK(each.tier == CacheTier::user);
    CHECK(each.bytes > 12'000);
    CHECK(each.compiler == warm.compiler.identity());
    CHECK(each.damage.empty());
    if (each.kernel == kTwo) {
      CHECK(each.op == "copy2d");
      CHECK(std::chrono::duration_cast<seconds>(each.last_use.time_since_epoch()).count() == 1'800'000'000 + 7200);
    }
  }
  CHECK(kernels(list_cache(warm.options, {{"fmha"}, {}})) == Names{kOne, kThree});
  CHECK(kernels(list_cache(warm.options, {{"fmha", "copy2d"}, {"sm_90a"}})) == Names{kOne, kTwo});
  CHECK(list_cache(warm.options, {{"gemm"}, {}}).empty());

  CacheOptions both;
  both.user_folder = warm.folder / "none";
  both.system_folders = {warm.options.user_folder};
  const auto system = list_cache(both);
  CHECK(system.size() == 3);
  CHECK(system[0].tier == CacheTier::system);

  fs::resize_file(warm.entry_folder(1) / kCompileFile, 5);
  const auto damaged = list_cache(warm.options, {{"copy2d"}, {}});
  CHECK(kernels(damaged) == Names{"", kTwo});
  CHECK(warm.warnings.empty());
  CHECK(warm.quarantined() == 0);  // looking changes nothing
}

TEST_CASE("cache admin: show by the beginning of a key") {
  Warm warm;
  const EntryKeys keys = request_for(sample_bundle(1), &warm.compiler).keys;
  for (const std::string& prefix : {keys.entry, keys.entry.substr(0, 8), keys.source.substr(0, 8)}) {
    const CacheDetails details = show_cache_entry(warm.options, prefix);
    CHECK(details.listing.keys == keys);
    CHECK(details.listing.kernel == kOne);
    CHECK(details.cubin.size() == 4000);
    CHECK(details.ptx.size() >= 8000);
    CHECK(details.plan_json == request_for(sample_bundle(1), nullptr).plan_json);
    CHECK(details.report.entries.at(0).registers == 168);
    CHECK(details.report.notes == Names{"a note of the assembler"});
    CHECK(details.source.empty());
  }
  CHECK_THROWS_WITH_AS(show_cache_entry(warm.options, "abcde"),
                       "cache entry abcde: give at least 6 characters of its key", Error);
  CHECK_THROWS_WITH_AS(show_cache_entry(warm.options, "xyzxyz"), "cache entry xyzxyz: there is none", Error);

  // Two compilers' entries of one source: its source key names both.
  CountingCompiler other(12);
  CacheRequest request = request_for(sample_bundle(1), &other);
  request.require_compiler = true;
  warm.open()->find_or_build(request, [&] { return other.compile(sample_bundle(1)); });
  try {
    show_cache_entry(warm.options, keys.source.substr(0, 10));
    FAIL("not ambiguous");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    CHECK(error.what() == "cache entry " + keys.source.substr(0, 10) + ": 2 entries begin so: give more characters");
    REQUIRE(error.notes().size() == 2);
    CHECK(error.notes()[0].find(kOne) != std::string::npos);
  }
  fs::resize_file(warm.entry_folder(1) / kCubinFile, 5);
  CHECK_THROWS_AS(show_cache_entry(warm.options, keys.entry), Error);
}

TEST_CASE("cache admin: usage by folder, operator and arch") {
  Warm warm;
  fs::resize_file(warm.entry_folder(2) / kCompileFile, 5);
  CacheOptions options = warm.options;
  options.system_folders = {warm.folder / "missing"};
  const CacheUsage usage = cache_usage(options);
  REQUIRE(usage.folders.size() == 2);
  CHECK(usage.folders[0].entries == 3);
  CHECK(usage.folders[0].damaged == 1);
  CHECK(usage.folders[0].exists);
  CHECK(usage.folders[0].max_bytes == std::int64_t{8} << 30);
  CHECK_FALSE(usage.folders[1].exists);
  CHECK(usage.folders[1].refused.empty());
  REQUIRE(usage.groups.size() == 2);
  CHECK(usage.groups[0].op == "fmha");
  CHECK(usage.groups[0].arch == "sm_100a");
  CHECK(usage.groups[1].arch == "sm_90a");
  CHECK(usage.groups[1].entries == 1);
  CHECK(usage.entries == 3);
  CHECK(usage.bytes == usage.folders[0].bytes);

  fs::permissions(warm.options.user_folder, fs::perms::all);
  CHECK(cache_usage(warm.options).folders[0].refused.find("everybody may write there") != std::string::npos);
}

TEST_CASE("cache admin: verify finds each damaged entry and heals on request") {
  Warm warm;
  CHECK(verify_cache(warm.options).checked == 3);
  CHECK(verify_cache(warm.options).damaged.empty());
  std::string cubin = read_text(warm.entry_folder(2) / kCubinFile);
  cubin[77] = static_cast<char>(cubin[77] ^ 16);
  write_file(warm.entry_folder(2) / kCubinFile, cubin);
  const CacheVerification found = verify_cache(warm.options);
  REQUIRE(found.damaged.size() == 1);
  CHECK(found.damaged[0].kernel == kTwo);
  CHECK(found.damaged[0].damage == "kernel.cubin does not have the digest of its record");
  CHECK(warm.quarantined() == 0);
  CHECK(verify_cache(warm.options, true).damaged.size() == 1);
  CHECK(warm.quarantined() == 1);
  CHECK(verify_cache(warm.options).checked == 2);
  CHECK(verify_cache(warm.options).damaged.empty());
}

TEST_CASE("cache admin: prune by size, age, filter, all; dry run") {
  Warm warm;
  CHECK_THROWS_AS(prune_cache(warm.options, {}), Error);
  PruneRequest request;
  request.all = true;
  request.dry_run = true;
  CHECK(prune_cache(warm.options, request).removed.size() == 3);
  CHECK(list_cache(warm.options).size() == 3);

  request = {};
  request.older_than = seconds(3600 + 1800);  // now: the time of the third
  PruneResult result = prune_cache(warm.options, request);
  CHECK(kernels(result.removed) == Names{kOne});
  CHECK(result.kept_entries == 2);
  CHECK(result.removed_bytes == result.removed[0].bytes);

  request = {};
  request.max_bytes = result.kept_bytes - 1;
  result = prune_cache(warm.options, request);
  CHECK(kernels(result.removed) == Names{kTwo});
  CHECK(kernels(list_cache(warm.options)) == Names{kThree});

  const auto cache = warm.open();
  warm.build(*cache, 1);
  warm.build(*cache, 2, "copy2d");
  request = {};
  request.all = true;
  request.filter.ops = {"fmha"};
  CHECK(kernels(prune_cache(warm.options, request).removed) == Names{kOne, kThree});
  fs::resize_file(warm.entry_folder(2) / kCubinFile, 5);
  warm.find(2);
  CHECK(warm.quarantined() == 1);
  request.filter = {};
  CHECK(prune_cache(warm.options, request).removed.empty());
  CHECK(warm.quarantined() == 0);
  CHECK(warm.staged() == 0);
}

TEST_CASE("cache admin: an export serves another machine") {
  Warm warm;
  const fs::path archive = warm.folder / "kernels.tar.zst";
  const ExportResult exported = export_cache(warm.options, archive);
  CHECK(exported.entries == 3);
  CHECK(exported.damaged.empty());

  Bench other;
  ImportResult imported = import_cache(other.options, archive);
  CHECK(imported.imported == 3);
  CHECK(imported.present == 0);
  const auto cache = other.open();
  const auto entry = other.build(*cache, 1);
  CHECK(entry->tier == CacheTier::user);
  CHECK(entry->image.cubin == warm.find(1)->image.cubin);
  CHECK(cache->find(request_for(sample_bundle(2), nullptr)) != nullptr);
  CHECK(other.compiler.calls == 0);
  imported = import_cache(other.options, archive);
  CHECK(imported.imported == 0);
  CHECK(imported.present == 3);

  // An entry that is damaged there is replaced; what is exported from there is the same archive.
  fs::resize_file(other.entry_folder(1) / kPtxFile, 1);
  CHECK(import_cache(other.options, archive).imported == 1);
  export_cache(other.options, other.folder / "again");
  CHECK(read_text(other.folder / "again") == read_text(archive));
}

TEST_CASE("cache admin: export by operator and arch, and without what is damaged") {
  Warm warm;
  CHECK(export_cache(warm.options, warm.folder / "a", {{"fmha"}, {"sm_90a"}}).entries == 1);
  Bench other;
  import_cache(other.options, warm.folder / "a");
  CHECK(kernels(list_cache(other.options)) == Names{kOne});
  CHECK(export_cache(warm.options, warm.folder / "b", {{"none"}, {}}).entries == 0);
  CHECK_FALSE(fs::exists(warm.folder / "b"));

  write_file(warm.entry_folder(1) / kCubinFile, std::string(4000, 'x'));
  const ExportResult result = export_cache(warm.options, warm.folder / "c");
  CHECK(result.entries == 2);
  REQUIRE(result.damaged.size() == 1);
  CHECK(result.damaged[0].kernel == kOne);
  CHECK_THROWS_AS(export_cache(warm.options, warm.folder / "no/such/folder"), Error);
  CHECK(Bench::count(warm.folder / "") == 3);  // the cache, a, c: no partial file
}

TEST_CASE("cache admin: prune counts what it could not remove") {
  Warm warm;
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = [](FileOperation operation, std::string_view) {
    return operation == FileOperation::rename ? EROFS : 0;
  };
  warm.options.hooks = hooks;
  PruneRequest request;
  request.all = true;
  const PruneResult result = prune_cache(warm.options, request);
  CHECK(result.removed.empty());
  CHECK(result.kept_entries == 3);
  CHECK(result.stuck_entries == 3);
}

TEST_CASE("cache admin: an export goes through links and into pipes, and replaces neither") {
  Warm warm;
  const fs::path file = warm.folder / "a.tar.zst", link = warm.folder / "link", pipe = warm.folder / "pipe";
  export_cache(warm.options, file);
  const std::string bytes = read_text(file);
  write_file(file, "old");
  fs::create_symlink(file, link);
  export_cache(warm.options, link);
  CHECK(fs::is_symlink(link));
  CHECK(read_text(file) == bytes);
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  std::string piped;
  std::thread reader([&] { piped = read_text(pipe); });
  export_cache(warm.options, pipe);
  reader.join();
  CHECK(fs::is_fifo(pipe));
  CHECK(piped == bytes);
  CHECK_THROWS_AS(export_cache(warm.options, fs::path(warm.folder / ".")), Error);
}

TEST_CASE("cache admin: a bad archive imports nothing, a bad folder is an error") {
  Warm warm;
  const fs::path archive = warm.folder / "a";
  export_cache(warm.options, archive);
  const std::string whole = read_text(archive);
  Bench other;
  write_file(archive, whole.substr(0, whole.size() - 1));
  CHECK_THROWS_AS(import_cache(other.options, archive), Error);
  CHECK_FALSE(fs::exists(other.options.user_folder));
  CHECK_THROWS_AS(import_cache(other.options, warm.folder / "missing"), Error);
  CHECK_THROWS_AS(import_cache(other.options, warm.folder / ""), Error);

  write_file(archive, whole);
  auto hooks = std::make_shared<FileHooks>();
  int writes = 0;
  hooks->before = [&](FileOperation operation, std::string_view) {
    return operation == FileOperation::write && ++writes > 6 ? ENOSPC : 0;
  };
  other.options.hooks = hooks;
  try {
    import_cache(other.options, archive);
    FAIL("a full disk was not noticed");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    CHECK(std::string(error.what()).find("1 entry imported, then:") != std::string::npos);
    CHECK(std::string(error.what()).find("No space left on device") != std::string::npos);
  }
  other.options.hooks = nullptr;
  CHECK(verify_cache(other.options).checked == 1);
  CHECK(verify_cache(other.options).damaged.empty());
  CHECK(import_cache(other.options, archive).imported == 2);
}
