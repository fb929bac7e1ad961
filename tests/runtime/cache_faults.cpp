// Faults of the file system, injected at each operation in turn: the result is right, there is at most one warning,
// and the next process finds a cache that works.
#include <cerrno>

#include "tests/runtime/cache_fixture.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

std::shared_ptr<FileHooks> hooks_failing(std::function<int(FileOperation, std::string_view)> before) {
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = std::move(before);
  return hooks;
}

bool is_writing(FileOperation operation) {
  switch (operation) {
    case FileOperation::write:
    case FileOperation::sync:
    case FileOperation::make_folder:
    case FileOperation::rename:
    case FileOperation::remove_file:
    case FileOperation::remove_folder:
    case FileOperation::set_modified:
    case FileOperation::lock:
      return true;
    default:
      return false;
  }
}

/// Builds entries 1 and 2 and finds them again in memory while the faults last; then all is well on disk without them.
void check_degrades(Bench& bench, std::size_t expected_warnings, const std::string& reason) {
  const int before = bench.compiler.calls;
  const auto cache = bench.open();
  CHECK(is_right(*bench.build(*cache, 1), 1, bench.compiler));
  CHECK(is_right(*bench.build(*cache, 2), 2, bench.compiler));
  CHECK(is_right(*bench.build(*cache, 1), 1, bench.compiler));
  CHECK(bench.compiler.calls == before + 2);
  CHECK(bench.warnings.size() == expected_warnings);
  if (expected_warnings == 1 && !bench.warnings.empty()) {
    CHECK_MESSAGE(bench.warnings[0].find(reason) != std::string::npos, bench.warnings[0]);
    CHECK(bench.warnings[0].find("kernels are kept in memory only") != std::string::npos);
  }
}

}  // namespace

TEST_CASE("cache: an unwritable home, a read-only or full disk keep kernels in memory with one warning") {
  struct Fault {
    int number;
    FileOperation at;
    const char* reason;
  };
  for (const Fault& fault : {Fault{EACCES, FileOperation::make_folder, "cannot be created (Permission denied)"},
                             Fault{EROFS, FileOperation::make_folder, "cannot be created (Read-only file system)"},
                             Fault{ENOSPC, FileOperation::make_folder, "cannot be created (No space left on device)"},
                             Fault{ENOSPC, FileOperation::write, "cannot be written (No space left on device)"},
                             Fault{EDQUOT, FileOperation::write, "cannot be written (Disk quota exceeded)"},
                             Fault{EIO, FileOperation::write, "cannot be written (Input/output error)"},
                             Fault{EIO, FileOperation::sync, "cannot be written (Input/output error)"},
                             Fault{EXDEV, FileOperation::rename, "cannot be written (Invalid cross-device link)"}}) {
    CAPTURE(fault.reason);
    Bench bench;
    bench.options.hooks = hooks_failing(
        [fault](FileOperation operation, std::string_view) { return operation == fault.at ? fault.number : 0; });
    check_degrades(bench, 1, fault.reason);
    CHECK(bench.staged() <= 1);  // what could not be removed by a failing rename, either
    bench.options.hooks = nullptr;
    CHECK(is_right(*bench.build(1), 1, bench.compiler));
    CHECK(bench.find(1)->tier == CacheTier::user);
    CHECK(bench.warnings.size() == 1);
  }
}

TEST_CASE("cache: a read-only folder still serves what it has") {
  Bench bench;
  bench.build(1);
  bench.options.hooks = hooks_failing([](FileOperation operation, std::string_view path) {
    const bool is_creating = operation == FileOperation::open && path == "lock";
    return is_creating || is_writing(operation) ? EROFS : 0;
  });
  const auto cache = bench.open();
  CHECK(bench.build(*cache, 1)->tier == CacheTier::user);
  CHECK(bench.warnings.empty());
  CHECK(bench.build(*cache, 2)->tier == CacheTier::compiled);
  CHECK(bench.build(*cache, 3)->tier == CacheTier::compiled);
  CHECK(bench.warnings.size() == 1);
}

TEST_CASE("cache: a real folder without permission") {
  if (::geteuid() == 0) {
    MESSAGE("not run: root may write anywhere");
    return;
  }
  Bench bench;
  fs::create_directory(bench.options.user_folder);
  fs::permissions(bench.options.user_folder, fs::perms::owner_read | fs::perms::owner_exec);
  check_degrades(bench, 1, "cannot be created (Permission denied)");
}

TEST_CASE("cache: a path that is a file, or lies under one") {
  Bench bench;
  write_file(bench.options.user_folder, "x");
  check_degrades(bench, 1, "cache: is a file");

  Bench below;
  write_file(below.folder / "file", "x");
  below.options.user_folder = below.folder / "file/cache";
  check_degrades(below, 1, "Not a directory");

  Bench inside;
  fs::create_directories(inside.options.user_folder);
  write_file(inside.options.user_folder / "v1", "x");
  check_degrades(inside, 1, "v1: is a file");
}

TEST_CASE("cache: missing parents are made") {
  Bench bench;
  bench.options.user_folder = bench.folder / "a/b/c/cache";
  bench.build(1);
  CHECK(bench.find(1)->tier == CacheTier::user);
  CHECK(bench.warnings.empty());
  const auto mode = fs::status(bench.options.user_folder / "v1/staging").permissions();
  CHECK((mode & (fs::perms::group_all | fs::perms::others_all)) == fs::perms::none);
}

TEST_CASE("cache: a full disk is tried again later, other faults are not") {
  // Only the time since the failure counts, so a second entry right after it is not tried.
  Bench bench;
  int writes = 0;
  bench.options.hooks = hooks_failing([&](FileOperation operation, std::string_view) {
    return operation == FileOperation::write && ++writes > 0 ? ENOSPC : 0;
  });
  const auto cache = bench.open();
  bench.build(*cache, 1);
  bench.build(*cache, 2);
  CHECK(writes == 1);
  CHECK(cache->stats().publish_failures == 1);
}

TEST_CASE("cache: a file system without locks compiles without them") {
  for (const int number : {ENOLCK, EOPNOTSUPP, ENOSYS, EINVAL}) {
    CAPTURE(number);
    Bench bench;
    bench.options.hooks = hooks_failing(
        [number](FileOperation operation, std::string_view) { return operation == FileOperation::lock ? number : 0; });
    const auto cache = bench.open();
    CHECK(bench.build(*cache, 1)->tier == CacheTier::compiled);
    CHECK(bench.find(1)->tier == CacheTier::user);
    CHECK(bench.compiler.calls == 1);
    CHECK(bench.warnings.empty());

    // Two at once compile twice; the loser of the rename keeps its own bytes.
    const auto other = bench.open();
    const CacheRequest request = request_for(sample_bundle(2), &bench.compiler);
    const auto slow = cache->find_or_build(request, [&] {
      bench.build(*other, 2);
      return bench.compiler.compile(sample_bundle(2));
    });
    CHECK(is_right(*slow, 2, bench.compiler));
    CHECK(slow->tier == CacheTier::compiled);
    CHECK(bench.find(2)->tier == CacheTier::user);
    CHECK(bench.compiler.calls == 3);
    CHECK(bench.staged() == 0);
  }
}

TEST_CASE("cache: each operation fails once, with each errno: right result, at most one warning, healthy after") {
  const int numbers[] = {EIO, ENOSPC, EACCES, ENOENT, EMFILE};
  // Three situations: nothing on disk, an entry on disk, a damaged entry on disk.
  testing::Stride victims(3);
  for (int situation = 0; situation < 3; ++situation) {
    for (const int number : numbers) {
      for (int victim = victims.first();; victim += victims.step()) {
        CAPTURE(situation);
        CAPTURE(number);
        CAPTURE(victim);
        Bench bench;
        bench.compiler.cubin_bytes = 100;
        bench.compiler.ptx_bytes = 100;
        if (situation > 0) bench.build(1);
        if (situation > 1) fs::resize_file(bench.entry_folder(1) / kCubinFile, 10);
        int count = 0;
        bench.options.hooks =
            hooks_failing([&](FileOperation, std::string_view) { return count++ == victim ? number : 0; });
        const auto entry = bench.build(1);
        CHECK(is_right(*entry, 1, bench.compiler));
        // A damaged entry has a warning of its own.
        CHECK(bench.warnings.size() <= (situation == 2 ? 2U : 1U));
        bench.options.hooks = nullptr;
        bench.warnings.clear();
        CHECK(is_right(*bench.build(1), 1, bench.compiler));
        CHECK(bench.find(1)->tier == CacheTier::user);
        if (count <= victim) {
          CHECK(victim > 20);
          break;
        }
      }
    }
  }
}

TEST_CASE("cache: from the n-th operation on everything fails: right result, one warning") {
  testing::Stride firsts(2);
  for (const int number : {EIO, ENOSPC, EROFS, EDQUOT}) {
    for (int first = firsts.first();; first += firsts.step()) {
      CAPTURE(number);
      CAPTURE(first);
      Bench bench;
      bench.compiler.cubin_bytes = 100;
      bench.compiler.ptx_bytes = 100;
      int count = 0;
      bench.options.hooks =
          hooks_failing([&](FileOperation, std::string_view) { return count++ >= first ? number : 0; });
      const auto cache = bench.open();
      CHECK(is_right(*bench.build(*cache, 1), 1, bench.compiler));
      const bool has_happened = count > first;
      CHECK(is_right(*bench.build(*cache, 2), 2, bench.compiler));
      CHECK(is_right(*bench.build(*cache, 1), 1, bench.compiler));
      CHECK(bench.compiler.calls == 2);
      CHECK(bench.warnings.size() <= 1);
      if (first < 3) CHECK(bench.warnings.size() == 1);
      bench.options.hooks = nullptr;
      CHECK(is_right(*bench.build(1), 1, bench.compiler));
      CHECK(bench.find(1)->tier == CacheTier::user);
      if (!has_happened) break;
    }
  }
}

TEST_CASE("cache: a folder that cannot be opened for want of descriptors is a miss with one warning") {
  for (const int number : {EMFILE, ENFILE, ENOMEM, EACCES}) {
    for (const int let_through : {0, 1}) {  // of the openings of v1: the first asks whether it may be used
      CAPTURE(number);
      CAPTURE(let_through);
      Bench bench;
      bench.build(1);
      int count = 0;
      bench.options.hooks = hooks_failing([&](FileOperation operation, std::string_view path) {
        return operation == FileOperation::open && path == "v1" && count++ >= let_through ? number : 0;
      });
      CHECK_FALSE(bench.open()->contains(request_for(sample_bundle(1), &bench.compiler)).has_value());
      REQUIRE(bench.warnings.size() == 1);
      CHECK(bench.warnings[0].find(describe_errno(-number)) != std::string::npos);
      bench.options.hooks = nullptr;
      CHECK(bench.find(1)->tier == CacheTier::user);
    }
  }
}

TEST_CASE("cache: reads that are refused are misses, not damage") {
  for (const int number : {EACCES, EMFILE, ENOMEM}) {
    Bench bench;
    bench.build(1);
    bench.options.hooks = hooks_failing([&](FileOperation operation, std::string_view path) {
      return operation == FileOperation::open && path == kCubinFile ? number : 0;
    });
    CHECK(is_right(*bench.build(1), 1, bench.compiler));
    CHECK(bench.quarantined() == 0);
    CHECK(bench.warnings.size() == 1);
    bench.options.hooks = nullptr;
    CHECK(bench.find(1)->tier == CacheTier::user);
  }
}
