// What is not the cache's own is never followed, changed or removed: links, foreign names, pipes, second names of
// files, and a folder that turns into a link while it is worked on.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "runtime/cache_folder.h"
#include "tessera/cache_admin.h"
#include "tests/runtime/cache_fixture.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

const std::string kStaged = "new-1-0123456789abcdef", kMovedAside = "0123456789abcdef-1-0123456789abcdef";

void make_old(const fs::path& path) {
  const timespec times[2] = {{1'000'000'000, 0}, {1'000'000'000, 0}};
  REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

/// What somebody else keeps, with every name that the cache could take for its own, and all of it long unused.
struct Victim {
  explicit Victim(const fs::path& path, const EntryKeys& keys) : folder(path) {
    const std::string source = keys.source, entry = keys.entry;
    for (const std::string& inner :
         {std::string("."), kStaged, kMovedAside, "staging/" + kStaged, "quarantine/" + kMovedAside,
          source.substr(0, 2) + "/" + source + "/" + entry, source + "/" + entry, entry, std::string("photos/2019")}) {
      fs::create_directories(folder / inner);
      for (const char* name : {kCompileFile, kCubinFile, kPtxFile, kPlanFile, kSourceFile, "lock", "clock", "photo"}) {
        write_file(folder / inner / name, "precious");
      }
    }
    std::vector<fs::path> all{folder};
    for (const auto& each : fs::recursive_directory_iterator(folder)) all.push_back(each.path());
    for (const fs::path& each : all) make_old(each);
    before = snapshot();
  }
  std::map<std::string, std::string> snapshot() const {
    std::map<std::string, std::string> found;
    for (const auto& each : fs::recursive_directory_iterator(folder)) {
      struct stat status {};
      REQUIRE(::lstat(each.path().c_str(), &status) == 0);
      found[each.path().string()] = std::to_string(status.st_mtim.tv_sec) + " " + std::to_string(status.st_mode) + " " +
                                    (each.is_regular_file() ? read_text(each.path()) : "");
    }
    return found;
  }
  bool is_whole() const { return snapshot() == before; }

  fs::path folder;
  std::map<std::string, std::string> before;
};

/// All that walks the folder and removes.
void use_everything(Bench& bench) {
  const auto ignoring = [](const auto& call) {
    try {
      call();
    } catch (const Error&) {
    }
  };
  for (int i = 1; i <= 4; ++i) bench.build(i);
  ignoring([&] { verify_cache(bench.options, true); });
  ignoring([&] { list_cache(bench.options); });
  ignoring([&] { cache_usage(bench.options); });
  ignoring([&] { export_cache(bench.options, bench.folder / "archive"); });
  ignoring([&] { import_cache(bench.options, bench.folder / "archive"); });
  bench.options.max_bytes = 20'000;  // one entry
  for (int i = 1; i <= 4; ++i) bench.build(i);
  PruneRequest prune;
  prune.older_than = std::chrono::seconds(0);
  ignoring([&] { prune_cache(bench.options, prune); });
  prune.all = true;
  ignoring([&] { prune_cache(bench.options, prune); });
}

void exchange(const fs::path& a, const fs::path& b) {
  ::syscall(SYS_renameat2, AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE);
}

/// Swaps two names as fast as it can while it lives.
class Swapper {
 public:
  Swapper(const fs::path& a, const fs::path& b)
      : thread_([this, a, b] {
          while (!is_over_) {
            exchange(a, b);
            ++swaps;
          }
        }) {}
  ~Swapper() {
    is_over_ = true;
    thread_.join();
  }
  Swapper(const Swapper&) = delete;
  Swapper& operator=(const Swapper&) = delete;
  std::atomic<int> swaps{0};

 private:
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("cache links: a link in any place that the cache walks is not followed") {
  enum class Place { version, staging, quarantine, staged, moved_aside, shard, source, entry, files };
  for (const Place place : {Place::version, Place::staging, Place::quarantine, Place::staged, Place::moved_aside,
                            Place::shard, Place::source, Place::entry, Place::files}) {
    CAPTURE(static_cast<int>(place));
    Bench bench;
    bench.build(1);
    const EntryKeys keys = request_for(sample_bundle(1), &bench.compiler).keys;
    const Victim victim(bench.folder / "victim", keys);
    const fs::path version = bench.options.user_folder / "v1", entry = bench.entry_folder(1);
    const auto put_link = [&](const fs::path& at) {
      fs::remove_all(at);
      fs::create_directories(at.parent_path());
      fs::create_directory_symlink(victim.folder, at);
      make_old(at);
    };
    if (place == Place::version) put_link(version);
    if (place == Place::staging) put_link(version / "staging");
    if (place == Place::quarantine) put_link(version / "quarantine");
    if (place == Place::staged) put_link(version / "staging" / kStaged);
    if (place == Place::moved_aside) put_link(version / "quarantine" / kMovedAside);
    if (place == Place::shard) put_link(entry.parent_path().parent_path());
    if (place == Place::source) put_link(entry.parent_path());
    if (place == Place::entry) put_link(entry);
    if (place == Place::files) {
      for (const fs::path& file : {entry / kCubinFile, version / "lock", version / "clock"}) {
        fs::remove(file);
        fs::create_symlink(victim.folder / "photo", file);
      }
    }
    if (place == Place::quarantine) fs::resize_file(entry / kCubinFile, 3);  // something to move there
    const auto open_before = Bench::count("/proc/self/fd");
    use_everything(bench);
    CHECK(victim.is_whole());
    CHECK(Bench::count("/proc/self/fd") == open_before);
  }
}

TEST_CASE("cache links: a link below the root is named in the one warning, and what works goes on") {
  for (const char* name : {"v1", "v1/staging"}) {
    Bench bench;
    fs::create_directories(bench.folder / "elsewhere");
    fs::create_directories((bench.options.user_folder / name).parent_path());
    fs::create_directory_symlink(bench.folder / "elsewhere", bench.options.user_folder / name);
    const auto cache = bench.open();
    CHECK(is_right(*bench.build(*cache, 1), 1, bench.compiler));
    CHECK(is_right(*bench.build(*cache, 2), 2, bench.compiler));
    REQUIRE(bench.warnings.size() == 1);
    CHECK_MESSAGE(bench.warnings[0].find(name) != std::string::npos, bench.warnings[0]);
    CHECK(bench.warnings[0].find("a symbolic link, which is not followed") != std::string::npos);
    CHECK(bench.warnings[0].find("kernels are kept in memory only") != std::string::npos);
    CHECK(fs::is_empty(bench.folder / "elsewhere"));
  }
  Bench bench;
  bench.build(1);
  const fs::path shard = bench.entry_folder(1).parent_path().parent_path();
  fs::rename(shard, bench.folder / "moved");
  fs::create_directory_symlink(bench.folder / "moved", shard);
  CHECK(bench.build(1)->tier == CacheTier::compiled);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find("a symbolic link, which is not followed") != std::string::npos);
}

TEST_CASE("cache links: what the cache did not make stays, is counted and said once") {
  Bench bench;
  bench.build(1);
  const fs::path version = bench.options.user_folder / "v1", entry = bench.entry_folder(1);
  const std::vector<fs::path> foreign = {version / "notes.txt",
                                         version / "staging/notes.txt",
                                         version / "staging/new-1-xyz",
                                         version / "staging/mine/kernel.cubin",
                                         version / "quarantine/mine/kernel.cubin",
                                         version / "quarantine/README",
                                         entry.parent_path().parent_path() / "mine",
                                         entry.parent_path() / "mine"};
  for (const fs::path& path : foreign) {
    fs::create_directories(path.parent_path());
    write_file(path, "mine");
    make_old(path);
    if (path.parent_path().filename() == "mine") make_old(path.parent_path());
  }
  fs::create_directories(version / "staging" / kStaged);
  write_file(version / "staging" / kStaged / "mine", "mine");
  write_file(version / "staging" / kStaged / kCubinFile, "left by a dead writer");
  make_old(version / "staging" / kStaged);
  fs::create_directories(version / "quarantine" / kMovedAside / kCubinFile);
  write_file(version / "quarantine" / kMovedAside / kPtxFile, "damaged");

  PruneRequest request;
  request.all = true;
  const PruneResult result = prune_cache(bench.options, request);
  CHECK(result.removed.size() == 1);
  CHECK_FALSE(fs::exists(entry));
  for (const fs::path& path : foreign) CHECK_MESSAGE(read_text(path) == "mine", path);
  CHECK(read_text(version / "staging" / kStaged / "mine") == "mine");
  CHECK_FALSE(fs::exists(version / "staging" / kStaged / kCubinFile));
  CHECK(fs::is_directory(version / "quarantine" / kMovedAside / kCubinFile));
  CHECK_FALSE(fs::exists(version / "quarantine" / kMovedAside / kPtxFile));
  CHECK(result.foreign.size() == 10);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find("left alone because tessera did not make it: ") != std::string::npos);
  CHECK(bench.warnings[0].find(" and 9 more") != std::string::npos);
}

TEST_CASE("cache links: pipes and sockets in any place block nothing and stay") {
  Bench bench;
  bench.build(1);
  const fs::path version = bench.options.user_folder / "v1", entry = bench.entry_folder(1);
  const auto put_pipe = [](const fs::path& at) {
    fs::remove_all(at);
    fs::create_directories(at.parent_path());
    REQUIRE(::mkfifo(at.c_str(), 0600) == 0);
  };
  const fs::path pipes[] = {version / "staging" / kStaged, version / "quarantine" / kMovedAside};
  for (const fs::path& pipe : pipes) {
    put_pipe(pipe);
    make_old(pipe);
  }
  for (const fs::path& pipe : {version / "lock", version / "clock", entry / kCompileFile}) put_pipe(pipe);
  CHECK(bench.build(1)->tier == CacheTier::compiled);
  CHECK(bench.find(1)->tier == CacheTier::user);
  put_pipe(bench.entry_folder(1));
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (version / "staging/new-2-0123456789abcdef").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  REQUIRE(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
  CHECK(bench.build(1)->tier == CacheTier::compiled);
  use_everything(bench);
  for (const fs::path& pipe : pipes) CHECK(fs::is_fifo(pipe));
  CHECK(fs::is_socket(version / "staging/new-2-0123456789abcdef"));
  ::close(socket);
}

TEST_CASE("cache links: of a file with a second name only the name goes, and its time stays") {
  Bench bench;
  bench.build(1);
  const fs::path version = bench.options.user_folder / "v1", mine = bench.folder / "mine", clock = bench.folder / "day";
  write_file(mine, "mine");
  write_file(clock, "time");
  fs::remove(bench.entry_folder(1) / kSourceFile);
  fs::create_hard_link(mine, bench.entry_folder(1) / kSourceFile);
  fs::remove(version / "clock");
  fs::create_hard_link(clock, version / "clock");
  make_old(clock);
  const auto before = fs::last_write_time(clock);
  bench.find(1);
  bench.build(2);
  CHECK(fs::last_write_time(clock) == before);
  PruneRequest request;
  request.all = true;
  CHECK(prune_cache(bench.options, request).removed.size() == 2);
  CHECK(read_text(mine) == "mine");
  CHECK(fs::hard_link_count(mine) == 1);
}

TEST_CASE("cache links: a folder that turns into a link at any moment harms nothing outside") {
  Bench bench;
  bench.build(1);
  const EntryKeys keys = request_for(sample_bundle(1), &bench.compiler).keys;
  const Victim victim(bench.folder / "victim", keys);
  const fs::path version = bench.options.user_folder / "v1", entry = bench.entry_folder(1);
  CacheShared shared(bench.options);
  CacheFolder folder(shared, bench.options.user_folder, true);
  const fs::path link = version / "other";
  fs::create_directory_symlink(victim.folder, link);
  const int most = testing::takes_all_cases() ? 3000 : 1000;  // rounds, and swaps

  SUBCASE("a staged folder, swept") {
    const fs::path staged = version / "staging" / kStaged, filled = version / "filled";
    fs::create_directories(staged);
    const Swapper swapper(staged, link);
    for (int round = 0; round < most || swapper.swaps < most; ++round) {
      // Whichever of the two names has the folder at the moment, or a new one where it was removed.
      fs::create_directories(filled);
      write_file(filled / kCubinFile, "x");
      make_old(filled);
      ::rename(filled.c_str(), staged.c_str());  // refused while the link is there
      folder.sweep_staging();
      std::error_code ignored;
      fs::remove_all(filled, ignored);
    }
  }
  SUBCASE("staging itself, swept and used") {
    const Swapper swapper(version / "staging", link);
    for (int round = 0; round < most || swapper.swaps < most; ++round) {
      folder.sweep_staging();
      folder.remove({keys, entry.string(), 0, 0});
      if (round % 20 == 0)
        bench.open()->find_or_build(request_for(sample_bundle(1), &bench.compiler),
                                    [&] { return bench.compiler.compile(sample_bundle(1)); });
    }
  }
  SUBCASE("the folders above an entry, evicted and read") {
    const fs::path above = entry.parent_path();
    const Swapper swapper(above, link);
    for (int round = 0; round < most || swapper.swaps < most; ++round) {
      folder.remove({keys, entry.string(), 0, 0});
      folder.scan();
      folder.read(keys, EntryParts::all);
      if (round % 20 == 0) bench.build(1);
    }
  }
  SUBCASE("the quarantine, emptied") {
    const fs::path quarantine = version / "quarantine";
    fs::create_directories(quarantine);
    const Swapper swapper(quarantine, link);
    for (int round = 0; round < most || swapper.swaps < most; ++round) {
      WalkReport report;
      folder.empty_quarantine(report);
      ReadEntry damaged;
      folder.quarantine(keys, damaged);
      std::error_code ignored;
      if (!fs::exists(fs::symlink_status(quarantine, ignored))) fs::create_directory(quarantine, ignored);
    }
  }
  CHECK(victim.is_whole());
}

TEST_CASE("cache links: an export is written to a new file, whatever waits under a name that could be guessed") {
  Bench bench;
  bench.build(1);
  const fs::path mine = bench.folder / "mine", archive = bench.folder / "archive";
  write_file(mine, "mine");
  fs::create_symlink(mine, bench.folder / ("archive.partial-" + std::to_string(::getpid())));
  export_cache(bench.options, archive);
  CHECK(read_text(mine) == "mine");
  CHECK(fs::is_regular_file(archive));
}
