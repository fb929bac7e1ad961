#include <algorithm>
#include <cmath>

#include "runtime/cache_folder.h"
#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

struct Clock {
  std::int64_t now = std::int64_t{1'800'000'000} * kSecond;
  std::shared_ptr<FileHooks> hooks() {
    auto made = std::make_shared<FileHooks>();
    made->now_ns = [this] { return now; };
    return made;
  }
};

std::int64_t entry_bytes(const Bench& bench, int number) {
  std::int64_t sum = 0;
  for (const auto& file : fs::directory_iterator(bench.entry_folder(number))) {
    sum += static_cast<std::int64_t>(file.file_size());
  }
  return sum;
}

}  // namespace

TEST_CASE("cache eviction: the least recently used go, the limit holds") {
  Bench bench;
  Clock clock;
  bench.options.hooks = clock.hooks();
  bench.build(1);
  const std::int64_t one = entry_bytes(bench, 1);
  for (int i = 2; i <= 5; ++i) {
    clock.now += kSecond;
    bench.build(i);
  }
  clock.now += kSecond;
  CHECK(bench.find(1)->tier == CacheTier::user);  // so 2 and 3 are the oldest now
  clock.now += kSecond;
  bench.options.max_bytes = 4 * one + one / 2;
  const auto cache = bench.open();
  bench.build(*cache, 6);
  CHECK(cache->stats().evicted == 2);
  CHECK(bench.find(1) != nullptr);
  CHECK(bench.find(2) == nullptr);
  CHECK(bench.find(3) == nullptr);
  for (int i = 4; i <= 6; ++i) CHECK(bench.find(i) != nullptr);
  CHECK(bench.staged() == 0);
  CHECK(bench.warnings.empty());

  // One object that goes on publishing stays within the limit all the time, and leaves no empty folders.
  CacheShared shared(bench.options);
  const CacheFolder folder(shared, bench.options.user_folder, false);
  for (int i = 7; i < 40; ++i) {
    bench.build(*cache, i);
    std::int64_t total = 0;
    for (const EntryPlace& place : folder.scan()) total += place.bytes;
    CHECK(total <= bench.options.max_bytes);
  }
  std::size_t sources = 0;
  for (const auto& shard : fs::directory_iterator(bench.options.user_folder / "v1")) {
    if (shard.path().filename().string().size() == 2) sources += Bench::count(shard.path());
  }
  CHECK(sources == folder.scan().size());
}

TEST_CASE("cache eviction: a clock that jumps back keeps the order of use") {
  Bench bench;
  Clock clock;
  bench.options.hooks = clock.hooks();
  bench.build(1);
  const std::int64_t one = entry_bytes(bench, 1);
  bench.build(2);
  clock.now -= 400 * 86'400 * kSecond;
  bench.build(3);
  bench.find(1);
  bench.options.max_bytes = 3 * one + one / 2;
  bench.build(4);  // 4 * one: one too many, so 2 goes though its time is the newest on the wall
  CHECK(bench.find(2) == nullptr);
  for (const int kept : {1, 3, 4}) CHECK(bench.find(kept) != nullptr);
}

TEST_CASE("cache eviction: an entry larger than the limit is kept while it is the newest") {
  Bench bench;
  bench.options.max_bytes = 10;
  bench.build(1);
  CHECK(bench.find(1) != nullptr);
  bench.build(2);
  CHECK(bench.find(1) == nullptr);
  CHECK(bench.find(2) != nullptr);
}

TEST_CASE("cache eviction: no limit, no eviction") {
  Bench bench;
  bench.options.max_bytes = 0;
  for (int i = 0; i < 5; ++i) bench.build(i);
  for (int i = 0; i < 5; ++i) CHECK(bench.find(i) != nullptr);
}

TEST_CASE("cache eviction: an entry that goes while it is read is a miss at worst, and is built again") {
  // The reader is stopped before each of its operations in turn; there the entry is removed as an eviction would.
  for (int victim = 0;; ++victim) {
    CAPTURE(victim);
    Bench bench;
    bench.build(1);
    CacheShared shared(bench.options);
    CacheFolder folder(shared, bench.options.user_folder, true);
    int count = 0;
    auto hooks = std::make_shared<FileHooks>();
    hooks->before = [&](FileOperation, std::string_view) {
      if (count++ == victim) {
        const auto places = folder.scan();
        REQUIRE(places.size() == 1);
        CHECK(folder.remove(places[0]));
      }
      return 0;
    };
    bench.options.hooks = hooks;
    const auto cache = bench.open();
    const auto entry = bench.build(*cache, 1);
    CHECK(is_right(*entry, 1, bench.compiler));
    CHECK(bench.quarantined() == 0);
    CHECK(cache->stats().quarantined == 0);
    CHECK(bench.warnings.empty());
    if (count <= victim) break;
    // Whoever had read all of it was served, everybody else has built it.
    CHECK((entry->tier == CacheTier::user || bench.compiler.calls == 2));
    if (entry->tier == CacheTier::user) CHECK(victim > 10);
  }
}

TEST_CASE("cache eviction: stale staging of dead writers is swept, live and young is not") {
  Bench bench;
  bench.build(1);
  const fs::path staging = bench.options.user_folder / "v1" / "staging";
  const std::string dead = "new-11-0123456789abcdef", alive = "new-12-0123456789abcdef",
                    young = "new-13-0123456789abcdef", half = "old-14-0123456789abcdef",
                    future = "new-15-0123456789abcdef";
  for (const std::string& name : {dead, alive, young, half, future}) {
    fs::create_directory(staging / name);
    write_file(staging / name / kCubinFile, "x");
  }
  Clock clock;
  bench.options.hooks = clock.hooks();
  CacheShared shared(bench.options);
  const std::int64_t old = clock.now - 2 * kStagingAgeNs;
  const Descriptor in_staging(shared.files, shared.files.open_root(staging.string()));
  const auto set_modified = [&](const std::string& name, std::int64_t time) {
    REQUIRE(shared.files.set_modified(in_staging.get(), name, time) == 0);
  };
  for (const std::string& name : {dead, alive, half}) set_modified(name, old);
  set_modified(young, clock.now);
  set_modified(future, clock.now + 2 * kStagingAgeNs);
  CacheFolder folder(shared, bench.options.user_folder, true);
  const ProcessLock owner = folder.lock("staging " + alive);
  REQUIRE(owner.outcome() == LockOutcome::held);
  bench.build(2);  // a fresh object sweeps with its first publication
  CHECK_FALSE(fs::exists(staging / dead));
  CHECK_FALSE(fs::exists(staging / half));
  CHECK_FALSE(fs::exists(staging / future));
  CHECK(fs::exists(staging / alive));
  CHECK(fs::exists(staging / young));

  // Without locks only what is a day old goes.
  auto lockless = clock.hooks();
  lockless->before = [](FileOperation operation, std::string_view) {
    return operation == FileOperation::lock ? ENOLCK : 0;
  };
  bench.options.hooks = lockless;
  CacheShared without(bench.options);
  CacheFolder same(without, bench.options.user_folder, true);
  set_modified(young, old);
  CHECK(same.sweep_staging() == 0);
  set_modified(young, clock.now - 2 * kStagingAgeWithoutLocksNs);
  CHECK(same.sweep_staging() == 1);
  CHECK(fs::exists(staging / alive));
}
