// A cache folder, or its v1, that goes away while a gate looks into it: an entry that is not found then was not
// evicted, and the gate says so instead of passing over what it did not see.
#include <cerrno>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/cache_admin.h"
#include "tests/runtime/cache_fixture.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kEntries = 2;

/// What a gate said of a cache of two entries.
struct Verdict {
  bool is_told = false;  ///< a fault or an error: the command ends with 5
  bool is_whole = false;
};

struct Gate {
  std::string name;
  std::function<Verdict(const Bench&)> run;
  bool needs_folder = true;  ///< false: a folder that is not there when it begins is no error
};

Verdict prune(const Bench& bench, bool is_dry) {
  PruneRequest request;
  request.all = true;
  request.dry_run = is_dry;
  const PruneResult result = prune_cache(bench.options, request);
  return {!result.faults.empty(), result.removed.size() == kEntries};
}

Verdict export_whole(const Bench& bench) {
  try {
    return {false, export_cache(bench.options, bench.folder / "archive").entries == kEntries};
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    CHECK_FALSE(fs::exists(bench.folder / "archive"));
    return {true, false};
  }
}

const std::vector<Gate>& gates() {
  static const std::vector<Gate> all = {{"verify",
                                         [](const Bench& bench) {
                                           const CacheVerification found = verify_cache(bench.options);
                                           CHECK(found.damaged.empty());
                                           return Verdict{!found.faults.empty(), found.checked == kEntries};
                                         }},
                                        {"export", export_whole},
                                        {"prune", [](const Bench& bench) { return prune(bench, false); }},
                                        {"prune --dry-run", [](const Bench& bench) { return prune(bench, true); }},
                                        {"list",
                                         [](const Bench& bench) {
                                           std::vector<CacheFault> faults;
                                           const std::size_t entries = list_cache(bench.options, {}, &faults).size();
                                           return Verdict{!faults.empty(), entries == kEntries};
                                         }},
                                        {"stat",
                                         [](const Bench& bench) {
                                           const CacheUsage usage = cache_usage(bench.options);
                                           return Verdict{!usage.faults.empty(), usage.entries == kEntries};
                                         },
                                         false},
                                        {"show",
                                         [](const Bench& bench) {
                                           try {
                                             show_cache_entry(bench.options, bench.entry_folder(1).filename().string());
                                             return Verdict{false, true};
                                           } catch (const Error& error) {
                                             return Verdict{error.kind() == ErrorKind::io, false};
                                           }
                                         },
                                         false},
                                        {"watch",
                                         [](const Bench& bench) {
                                           const CacheWatch watch(bench.options);
                                           return Verdict{!watch.lost().empty(), true};
                                         },
                                         false}};
  return all;
}

struct Filled : Bench {
  Filled() {
    compiler.cubin_bytes = compiler.ptx_bytes = 100;
    for (int i = 1; i <= kEntries; ++i) build(i);
  }
};

using Hook = std::function<int(FileOperation, std::string_view)>;

/// Runs the gate with the hook; how often the hook was called.
Verdict run(const Gate& gate, Filled& bench, const Hook& hook) {
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = hook;
  bench.options.hooks = hooks;
  const Verdict verdict = gate.run(bench);
  bench.options.hooks = nullptr;
  return verdict;
}

/// The operations that find v1: what is gone by then is a cache that is not there.
constexpr int kToOpen = 2;

/// An operation on the cache folder itself or on its v1.
bool is_of_folder(const Bench& bench, std::string_view path) {
  return path == bench.options.user_folder.string() || path == "v1" || path == ".";
}

}  // namespace

TEST_CASE("cache gate: ENOENT of the folder or of v1, at any operation, is no eviction") {
  testing::Stride victims(3);
  for (const Gate& gate : gates()) {
    for (const bool is_persistent : {false, true}) {
      for (int victim = victims.first();; victim += victims.step()) {
        CAPTURE(gate.name);
        CAPTURE(is_persistent);
        CAPTURE(victim);
        Filled bench;
        int count = 0;
        const Verdict verdict = run(gate, bench, [&](FileOperation, std::string_view path) {
          if (!is_of_folder(bench, path)) return 0;
          const int at = count++;
          return (is_persistent ? at >= victim : at == victim) ? ENOENT : 0;
        });
        if (count <= victim) {
          CHECK(verdict.is_whole);
          CHECK_FALSE(verdict.is_told);
          CHECK(victim >= 4);
          break;
        }
        // Of an entry that was found nothing more is asked.
        if (gate.name == "show" && verdict.is_whole) continue;
        if (is_persistent && victim < kToOpen && !gate.needs_folder) continue;
        CHECK(verdict.is_told);
      }
    }
  }
}

TEST_CASE("cache gate: from any operation on nothing is there") {
  testing::Stride firsts(3);
  for (const Gate& gate : gates()) {
    for (int first = firsts.first();; first += firsts.step()) {
      CAPTURE(gate.name);
      CAPTURE(first);
      Filled bench;
      int count = 0;
      const Verdict verdict =
          run(gate, bench, [&](FileOperation, std::string_view) { return count++ >= first ? ENOENT : 0; });
      const bool is_late = first >= kToOpen || gate.needs_folder;
      if (!verdict.is_told && is_late) CHECK(verdict.is_whole);
      if (count <= first) break;
    }
  }
}

TEST_CASE("cache gate: a folder that is moved, removed or replaced at any moment") {
  enum class How { folder_moved, v1_moved, v1_replaced, folder_replaced, removed };
  testing::Stride victims(6);
  for (const Gate& gate : gates()) {
    for (const How how : {How::folder_moved, How::v1_moved, How::v1_replaced, How::folder_replaced, How::removed}) {
      int silent = 0;
      for (int victim = victims.first();; victim += victims.step()) {
        CAPTURE(gate.name);
        CAPTURE(static_cast<int>(how));
        CAPTURE(victim);
        Filled bench, other;
        const fs::path folder = bench.options.user_folder, away = bench.folder / "away";
        const auto count_entries = [](const fs::path& v1) {
          std::int64_t entries = 0;
          for (const auto& each : fs::recursive_directory_iterator(v1))
            if (each.path().filename() == kPlanFile) ++entries;
          return entries;
        };
        int count = 0;
        std::int64_t before = 0;
        const Verdict verdict = run(gate, bench, [&](FileOperation, std::string_view) {
          if (count++ != victim) return 0;
          before = count_entries(folder / "v1");
          if (how == How::removed) fs::remove_all(folder);
          if (how == How::folder_moved || how == How::folder_replaced) fs::rename(folder, away);
          if (how == How::v1_moved || how == How::v1_replaced) fs::rename(folder / "v1", away);
          if (how == How::v1_replaced) fs::rename(other.options.user_folder / "v1", folder / "v1");
          if (how == How::folder_replaced) fs::rename(other.options.user_folder, folder);
          return 0;
        });
        if (count <= victim) break;
        const bool is_prune = gate.name.starts_with("prune");
        if (is_prune && how != How::removed) {
          // Of what was moved away no more than the entry that was under way is removed.
          const bool is_folder = how == How::folder_moved || how == How::folder_replaced;
          CHECK(count_entries(is_folder ? away / "v1" : away) >= before - 1);
        }
        if (verdict.is_told || (victim < kToOpen && !gate.needs_folder)) continue;
        CHECK(verdict.is_whole);
        if (gate.name != "show") ++silent;
      }
      // At the first opening what replaced it is what the gate looks into; after the last look it is past.
      CAPTURE(gate.name);
      CHECK(silent <= 6);
    }
  }
}

TEST_CASE("cache gate: an entry that is evicted while a gate looks on is no fault") {
  testing::Stride victims(3);
  for (const Gate& gate : gates()) {
    for (int victim = victims.first();; victim += victims.step()) {
      CAPTURE(gate.name);
      CAPTURE(victim);
      Filled bench;
      int count = 0;
      const Verdict verdict = run(gate, bench, [&](FileOperation, std::string_view) {
        if (count++ != victim) return 0;
        std::error_code gone;  // prune may have been faster
        fs::rename(bench.entry_folder(2), bench.folder / "evicted", gone);
        return 0;
      });
      CHECK_FALSE(verdict.is_told);
      if (count <= victim) break;
    }
  }
}

TEST_CASE("cache gate: where all that an export chose is evicted meanwhile, nothing is written") {
  Filled bench;
  int opened = 0;
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = [&](FileOperation operation, std::string_view path) {
    // Listing opens each record once, then reading begins.
    if (operation == FileOperation::open && path == kCompileFile && ++opened == kEntries + 1)
      for (int i = 1; i <= kEntries; ++i) fs::remove_all(bench.entry_folder(i).parent_path().parent_path());
    return 0;
  };
  bench.options.hooks = hooks;
  const ExportResult result = export_cache(bench.options, bench.folder / "archive");
  CHECK(result.entries == 0);
  CHECK(result.damaged.empty());
  CHECK_FALSE(fs::exists(bench.folder / "archive"));
}

TEST_CASE("cache gate: an import into a folder that is moved away meanwhile is an error") {
  Filled from;
  const fs::path archive = from.folder / "archive";
  REQUIRE(export_cache(from.options, archive).entries == kEntries);
  testing::Stride victims(2);
  for (const bool is_there : {false, true}) {
    int told = 0;
    for (int victim = victims.first();; victim += victims.step()) {
      CAPTURE(is_there);
      CAPTURE(victim);
      Filled other;
      Bench bench;
      if (is_there) fs::copy(other.options.user_folder, bench.options.user_folder, fs::copy_options::recursive);
      int count = 0;
      auto hooks = std::make_shared<FileHooks>();
      hooks->before = [&](FileOperation, std::string_view) {
        std::error_code not_there;
        if (count++ == victim) fs::rename(bench.options.user_folder, bench.folder / "away", not_there);
        return 0;
      };
      bench.options.hooks = hooks;
      bool is_error = false;
      try {
        import_cache(bench.options, archive);
      } catch (const Error& error) {
        CHECK(error.kind() == ErrorKind::io);
        is_error = true;
      }
      bench.options.hooks = nullptr;
      told += is_error ? 1 : 0;
      if (count <= victim) break;
      if (is_error || !fs::exists(bench.folder / "away")) continue;
      // All of them lie in one place: it was moved before the first, or after the last look.
      const fs::path at = fs::exists(bench.options.user_folder) ? bench.options.user_folder : bench.folder / "away";
      CacheOptions options;
      options.user_folder = at;
      CHECK(verify_cache(options).checked == kEntries);
    }
    CHECK(told > 10 / victims.step());
  }
}

TEST_CASE("cache gate: a file of an entry that cannot be looked at is said by stat and list") {
  for (const int number : {EIO, EACCES, EMFILE}) {
    for (const char* name : kEntryFiles) {
      CAPTURE(number);
      CAPTURE(name);
      Filled bench;
      const std::int64_t bytes = cache_usage(bench.options).bytes;
      int count = 0;
      auto hooks = std::make_shared<FileHooks>();
      hooks->before = [&](FileOperation operation, std::string_view path) {
        return operation == FileOperation::status && path == name && count++ == 0 ? number : 0;
      };
      bench.options.hooks = hooks;
      const CacheUsage usage = cache_usage(bench.options);
      REQUIRE(usage.faults.size() == 1);
      CHECK(usage.faults[0].reason == "cannot be read (" + describe_errno(-number) + ")");
      const bool is_there = name != std::string(kSourceFile) && !std::string_view(name).starts_with("merge.");
      CHECK((usage.bytes < bytes) == is_there);
      count = 0;
      std::vector<CacheFault> faults;
      list_cache(bench.options, {}, &faults);
      CHECK(faults.size() == 1);
    }
  }
  Filled bench;
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = [](FileOperation operation, std::string_view path) {
    return operation == FileOperation::open && path == "quarantine" ? EIO : 0;
  };
  bench.options.hooks = hooks;
  CHECK(cache_usage(bench.options).faults.size() == 1);
}
