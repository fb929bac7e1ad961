// What a command about the cache could not look into is a fault of its result: a gate does not pass on what was
// skipped.
#include <sys/stat.h>
#include <sys/wait.h>

#include <functional>
#include <map>
#include <string_view>

#include "tessera/cache_admin.h"
#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

using Faults = std::vector<CacheFault>;

bool names(const Faults& faults, const std::string& path, const std::string& reason) {
  for (const CacheFault& fault : faults)
    if (fault.path == path && fault.reason.find(reason) != std::string::npos) return true;
  for (const CacheFault& fault : faults) MESSAGE(fault.to_string());
  return false;
}

std::string export_error(const Bench& bench, const fs::path& archive) {
  try {
    export_cache(bench.options, archive);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    return error.what();
  }
  return "";
}

/// Every command names the path and the reason; an export leaves what was there.
void check_all_fail(Bench& bench, const std::string& path, const std::string& reason, bool is_missing = false) {
  CAPTURE(path);
  CHECK(names(verify_cache(bench.options).faults, path, reason));
  Faults faults;
  list_cache(bench.options, {}, &faults);
  CHECK(names(faults, path, reason));
  CHECK(cache_usage(bench.options).faults.empty() == is_missing);
  PruneRequest request;
  request.older_than = std::chrono::hours(24 * 365);
  CHECK(names(prune_cache(bench.options, request).faults, path, reason));
  request.dry_run = true;
  CHECK(names(prune_cache(bench.options, request).faults, path, reason));

  const fs::path archive = bench.folder / "out/kernels.archive";
  fs::create_directories(archive.parent_path());
  const std::string message = export_error(bench, archive);
  CHECK_MESSAGE(message.find(path + ": ") != std::string::npos, message);
  CHECK(message.find("is not written, for it would not be complete") != std::string::npos);
  CHECK(fs::is_empty(archive.parent_path()));
  write_file(archive, "the last one");
  export_error(bench, archive);
  CHECK(read_text(archive) == "the last one");
  CHECK(Bench::count(archive.parent_path()) == 1);
}

std::shared_ptr<FileHooks> hooks_failing(std::function<int(FileOperation, std::string_view)> before) {
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = std::move(before);
  return hooks;
}

std::shared_ptr<FileHooks> failing(FileOperation operation, const std::string& path, int number) {
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = [=](FileOperation each, std::string_view at) { return each == operation && at == path ? number : 0; };
  return hooks;
}

/// The exit code of a process of a user who is not root: 0 where `holds` does, 1 where not.
int as_somebody(const std::function<bool()>& holds) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (::geteuid() == 0 && ::setresuid(65534, 65534, 65534) != 0) ::_exit(90);
    ::_exit(holds() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("cache gate: a cache folder that is missing, empty, a file or refused fails each command") {
  const auto with = [](const std::function<void(const fs::path&)>& make, const std::string& inner,
                       const std::string& reason, bool is_missing = false) {
    Bench bench;
    make(bench.options.user_folder);
    check_all_fail(bench, bench.options.user_folder.string() + inner, reason, is_missing);
  };
  with([](const fs::path&) {}, "", "does not exist", true);
  with([](const fs::path& path) { fs::create_directories(path); }, "", "holds no cache: there is no v1 in it", true);
  with([](const fs::path& path) { write_file(path, "x"); }, "", "is a file");
  with(
      [](const fs::path& path) {
        fs::create_directories(path);
        write_file(path / "v1", "x");
      },
      "/v1", "is a file");
  with(
      [](const fs::path& path) {
        fs::create_directories(path);
        fs::create_directory_symlink("/usr", path / "v1");
      },
      "/v1", "is a symbolic link, which is not followed");
  with(
      [](const fs::path& path) {
        fs::create_directories(path / "v1");
        fs::permissions(path / "v1", fs::perms::all);
      },
      "/v1", "everybody may write there");

  Bench none;
  none.options.user_folder.clear();
  check_all_fail(none, "(none)", "name one with --cache-dir", true);
  // Of several folders each counts.
  Bench system;
  system.build(1);
  system.options.system_folders = {system.folder / "missing"};
  CHECK(verify_cache(system.options).checked == 1);
  CHECK(names(verify_cache(system.options).faults, (system.folder / "missing").string(), "does not exist"));
  CHECK_FALSE(export_error(system, system.folder / "archive").empty());
  CHECK_FALSE(fs::exists(system.folder / "archive"));
}

TEST_CASE("cache gate: a part that cannot be read fails each command, the rest is looked at") {
  enum class Part { shard_file, shard_link, source_file, shard_refused, source_refused, list_fails };
  for (const Part part : {Part::shard_file, Part::shard_link, Part::source_file, Part::shard_refused,
                          Part::source_refused, Part::list_fails}) {
    CAPTURE(static_cast<int>(part));
    Bench bench;
    for (int i = 1; i <= 3; ++i) bench.build(i);
    CHECK(verify_cache(bench.options).faults.empty());
    const fs::path source = bench.entry_folder(1).parent_path(), shard = source.parent_path();
    const auto replace = [&](const fs::path& path, bool is_link) {
      fs::rename(path, bench.folder / "moved");
      is_link ? fs::create_directory_symlink(bench.folder / "moved", path) : write_file(path, "x");
    };
    if (part == Part::shard_file) replace(shard, false);
    if (part == Part::shard_link) replace(shard, true);
    if (part == Part::source_file) replace(source, false);
    if (part == Part::shard_refused)
      bench.options.hooks = failing(FileOperation::open, shard.filename().string(), EACCES);
    if (part == Part::source_refused)
      bench.options.hooks = failing(FileOperation::open, source.filename().string(), EACCES);
    if (part == Part::list_fails) bench.options.hooks = failing(FileOperation::list, shard.filename().string(), EIO);
    static const std::map<Part, std::string> kReasons = {
        {Part::shard_file, "cannot be read (Not a directory)"},
        {Part::shard_link, "cannot be read (a symbolic link, which is not followed)"},
        {Part::source_file, "cannot be read (Not a directory)"},
        {Part::shard_refused, "cannot be read (Permission denied)"},
        {Part::source_refused, "cannot be read (Permission denied)"},
        {Part::list_fails, "cannot be read (Input/output error)"}};
    const bool is_source = part == Part::source_file || part == Part::source_refused;
    check_all_fail(bench, (is_source ? source : shard).string(), kReasons.at(part));
    CHECK(verify_cache(bench.options).checked == 2);
    CHECK(list_cache(bench.options).size() == 2);
    CHECK_THROWS_WITH_AS(
        show_cache_entry(bench.options, source.filename().string()),
        ("cache entry " + source.filename().string() + ": not found, but not everything can be read").c_str(), Error);
  }
}

TEST_CASE("cache gate: an entry whose files are refused is not checked, and not left out of an export in silence") {
  Bench bench;
  for (int i = 1; i <= 3; ++i) bench.build(i);
  int opened = 0;
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = [&](FileOperation operation, std::string_view path) {
    return operation == FileOperation::open && path == kCubinFile && ++opened == 2 ? EACCES : 0;
  };
  bench.options.hooks = hooks;
  const CacheVerification found = verify_cache(bench.options);
  CHECK(found.checked == 2);
  CHECK(found.damaged.empty());
  REQUIRE(found.faults.size() == 1);
  CHECK(found.faults[0].reason == "kernel.cubin cannot be read: Permission denied");
  opened = 0;
  CHECK(export_error(bench, bench.folder / "archive").find("kernel.cubin cannot be read: Permission denied") !=
        std::string::npos);
  CHECK(Bench::count(bench.folder / "") == 1);  // the cache: no archive, no part of one
}

TEST_CASE("cache gate: a folder without permission, as somebody who is not root") {
  Bench bench;
  for (int i = 1; i <= 2; ++i) bench.build(i);
  const fs::path shard = bench.entry_folder(1).parent_path().parent_path();
  REQUIRE(::chmod(bench.folder.path.c_str(), 0755) == 0);
  REQUIRE(::chmod(shard.c_str(), 0) == 0);
  const int code = as_somebody([&] {
    const CacheVerification found = verify_cache(bench.options);
    PruneRequest request;
    request.older_than = std::chrono::hours(24 * 365);
    request.dry_run = true;
    return found.faults.size() == 1 && found.faults[0].path == shard.string() &&
           found.faults[0].reason == "cannot be read (Permission denied)" && found.checked == 1 &&
           names(prune_cache(bench.options, request).faults, shard.string(), "cannot be read (Permission denied)");
  });
  CHECK(code == 0);
  REQUIRE(::chmod(shard.c_str(), 0755) == 0);
}

TEST_CASE("cache gate: a folder above entries that can be listed and not entered fails each command") {
  for (const int number : {EACCES, EIO, EMFILE}) {
    Bench bench;
    for (int i = 1; i <= 2; ++i) bench.build(i);
    const fs::path entry = bench.entry_folder(1);
    bench.options.hooks = failing(FileOperation::status, entry.filename().string(), number);
    check_all_fail(bench, entry.string(), "cannot be read (" + describe_errno(-number) + ")");
  }
  Bench bench;
  for (int i = 1; i <= 2; ++i) bench.build(i);
  const fs::path entry = bench.entry_folder(1), source = entry.parent_path();
  bench.options.hooks = failing(FileOperation::status, entry.filename().string(), ENOENT);  // evicted meanwhile
  CHECK(verify_cache(bench.options).faults.empty());
  bench.options.hooks = nullptr;

  REQUIRE(::chmod(bench.folder.path.c_str(), 0755) == 0);
  REQUIRE(::chmod(source.c_str(), 0444) == 0);
  const int code = as_somebody([&] {
    const CacheVerification found = verify_cache(bench.options);
    const bool is_told = found.checked == 1 && found.faults.size() == 1 && found.faults[0].path == entry.string() &&
                         found.faults[0].reason == "cannot be read (Permission denied)";
    return is_told && export_error(bench, bench.folder / "a").find("would not be complete") != std::string::npos;
  });
  CHECK(code == 0);
  REQUIRE(::chmod(source.c_str(), 0755) == 0);
}

TEST_CASE("cache gate: a folder that stops being readable at any moment fails each command") {
  for (const int number : {EIO, EACCES}) {
    for (int victim = 0;; ++victim) {
      CAPTURE(number);
      CAPTURE(victim);
      Bench bench;
      for (int i = 1; i <= 2; ++i) bench.build(i);
      int count = 0;
      bench.options.hooks =
          hooks_failing([&](FileOperation, std::string_view) { return count++ >= victim ? number : 0; });
      const auto says = [&](const std::function<bool()>& passes) {
        count = 0;
        try {
          return !passes();
        } catch (const Error&) {
          return true;
        }
      };
      const bool verify_says = says([&] {
        const CacheVerification found = verify_cache(bench.options);
        return found.faults.empty() && found.damaged.empty() && found.checked != 2;
      });
      const int of_verify = count;
      const bool export_says = says([&] {
        const ExportResult result = export_cache(bench.options, bench.folder / "archive", {});
        return result.damaged.empty() && result.entries != 2;
      });
      CHECK(verify_says);
      CHECK(export_says);
      if (of_verify <= victim && count <= victim) {
        CHECK(victim > 40);
        break;
      }
    }
  }
}

TEST_CASE("cache gate: a dry run of prune fails where prune would") {
  struct Place {
    std::string name;
    std::function<fs::path(const Bench&)> path;
  };
  const Place places[] = {
      {"entry", [](const Bench& bench) { return bench.entry_folder(1); }},
      {"source", [](const Bench& bench) { return bench.entry_folder(1).parent_path(); }},
      {"staging", [](const Bench& bench) { return bench.options.user_folder / "v1/staging"; }},
      {"quarantine", [](const Bench& bench) { return bench.options.user_folder / "v1/quarantine"; }},
      {"set aside",
       [](const Bench& bench) { return fs::directory_iterator(bench.options.user_folder / "v1/quarantine")->path(); }}};
  for (const Place& place : places) {
    for (const mode_t mode : {0U, 0100U, 0200U, 0400U, 0500U, 0600U, 0700U}) {
      CAPTURE(place.name);
      CAPTURE(mode);
      Bench bench;
      for (int i = 1; i <= 3; ++i) bench.build(i);
      fs::resize_file(bench.entry_folder(3) / kCubinFile, 1);
      CHECK(verify_cache(bench.options, true).healed == 1);
      REQUIRE(::chmod(bench.folder.path.c_str(), 0755) == 0);
      const fs::path refused = place.path(bench);
      if (::geteuid() == 0) {
        REQUIRE(::chown(bench.options.user_folder.c_str(), 65534, 65534) == 0);
        for (const auto& each : fs::recursive_directory_iterator(bench.options.user_folder))
          REQUIRE(::chown(each.path().c_str(), 65534, 65534) == 0);
      }
      REQUIRE(::chmod(refused.c_str(), mode) == 0);
      // Such an entry can be moved aside, and its files cannot be removed there: only the real call counts it as gone.
      const bool is_half_gone = place.name == "entry" && (mode == 0200U || mode == 0600U);
      const int code = as_somebody([&] {
        PruneRequest request;
        request.all = request.dry_run = true;
        const PruneResult dry = prune_cache(bench.options, request);
        request.dry_run = false;
        const PruneResult real = prune_cache(bench.options, request);
        return dry.faults.empty() == real.faults.empty() && dry.faults.empty() == (mode == 0700U) &&
               (is_half_gone || (dry.stuck_entries == real.stuck_entries && dry.kept_entries == real.kept_entries));
      });
      CHECK(code == 0);
      if (fs::exists(refused)) REQUIRE(::chmod(refused.c_str(), 0755) == 0);
    }
  }
}

TEST_CASE("cache gate: with a filter, what is damaged and may match is left out of no answer") {
  Bench bench;
  const auto cache = bench.open();
  bench.build(*cache, 1, "fmha");
  bench.build(*cache, 2, "copy2d");
  bench.build(*cache, 3, "copy2d");
  const CacheFilter fmha{{"fmha"}, {}}, copy2d{{"copy2d"}, {"sm_90a"}};
  const fs::path archive = bench.folder / "archive";
  // Its record is whole: it is known what it was.
  fs::resize_file(bench.entry_folder(2) / kCubinFile, 3);
  ExportResult result = export_cache(bench.options, archive, copy2d);
  CHECK(result.entries == 1);
  REQUIRE(result.damaged.size() == 1);
  CHECK(result.damaged[0].kernel == "tessera_sample_2");
  result = export_cache(bench.options, archive, fmha);
  CHECK(result.entries == 1);
  CHECK(result.damaged.empty());
  CHECK(list_cache(bench.options, fmha).size() == 1);

  const std::function<void(const fs::path&)> damages[] = {
      [](const fs::path& entry) { fs::resize_file(entry / kCompileFile, 3); },
      [](const fs::path& entry) { fs::remove(entry / kCompileFile); },
      [](const fs::path& entry) { fs::copy_file(entry / kPlanFile, entry / kCompileFile); },
      [](const fs::path& entry) { REQUIRE(::chmod((entry / kCompileFile).c_str(), 0666) == 0); },
      [](const fs::path& entry) { REQUIRE(::chmod(entry.c_str(), 0777) == 0); }};
  for (const auto& damage : damages) {
    damage(bench.entry_folder(2));
    CHECK(export_cache(bench.options, archive, copy2d).damaged.size() == 1);
    result = export_cache(bench.options, archive, fmha);
    CHECK(result.entries == 1);
    CHECK(result.damaged.size() == 1);
  }
  // Nothing that is whole: no archive, and the last one stays.
  fs::resize_file(bench.entry_folder(3) / kPtxFile, 3);
  write_file(archive, "the last one");
  result = export_cache(bench.options, archive, copy2d);
  CHECK(result.entries == 0);
  CHECK(result.damaged.size() == 2);
  CHECK(read_text(archive) == "the last one");
  CHECK(Bench::count(bench.folder / "") == 2);

  PruneRequest request;
  request.all = true;
  request.filter = copy2d;
  for (const bool is_dry : {true, false}) {
    request.dry_run = is_dry;
    const PruneResult pruned = prune_cache(bench.options, request);
    REQUIRE(pruned.removed.size() == 1);
    CHECK(pruned.removed[0].kernel == "tessera_sample_3");
    CHECK(pruned.kept_entries == 1);
    REQUIRE(pruned.damaged.size() == 1);
    CHECK(pruned.damaged[0].folder == bench.entry_folder(2));
  }
  CHECK(fs::exists(bench.entry_folder(2)));
  request.filter = {};
  const PruneResult pruned = prune_cache(bench.options, request);
  CHECK(pruned.removed.size() == 2);
  CHECK(pruned.damaged.empty());
}

TEST_CASE("cache gate: a socket in place of a file is damage") {
  for (const char* name : kEntryFiles) {
    CAPTURE(name);
    Bench bench;
    SourceBundle bundle = sample_bundle(1);
    bundle.merge = std::make_shared<const SourceBundle>(sample_bundle(2));
    CacheRequest request = request_for(bundle, &bench.compiler);
    request.source = "// nvcc ...\n";
    const auto build = [&] {
      return bench.open()->find_or_build(request, [&] { return bench.compiler.compile(bundle); });
    };
    const fs::path socket = build()->folder / name;
    const auto put_socket = [&] {
      fs::remove(socket);
      REQUIRE(::mknod(socket.c_str(), S_IFSOCK | 0644, 0) == 0);
    };
    put_socket();
    const CacheVerification found = verify_cache(bench.options, true);
    CHECK(found.checked == 1);
    CHECK(found.faults.empty());
    REQUIRE(found.damaged.size() == 1);
    CHECK(found.damaged[0].damage == std::string(name) + " is not a regular file");
    CHECK(found.healed == 1);
    CHECK(build()->tier == CacheTier::compiled);
    CHECK(verify_cache(bench.options).damaged.empty());
    PruneRequest prune;
    prune.all = true;
    CHECK(prune_cache(bench.options, prune).faults.empty());
    CHECK(bench.quarantined() == 0);
    if (std::string_view(name) == kSourceFile) continue;  // no launch needs it
    build();
    put_socket();
    CHECK(build()->tier == CacheTier::compiled);
    CHECK(bench.open()->find(request)->tier == CacheTier::user);
    CHECK(bench.quarantined() == 1);
  }
}

TEST_CASE("cache gate: what cannot be healed or removed is a fault, and is not said to be done") {
  Bench bench;
  for (int i = 1; i <= 2; ++i) bench.build(i);
  fs::resize_file(bench.entry_folder(1) / kCubinFile, 1);
  auto hooks = std::make_shared<FileHooks>();
  hooks->before = [](FileOperation operation, std::string_view) {
    return operation == FileOperation::rename ? EROFS : 0;
  };
  bench.options.hooks = hooks;
  const CacheVerification found = verify_cache(bench.options, true);
  CHECK(found.damaged.size() == 1);
  CHECK(found.healed == 0);
  CHECK(names(found.faults, bench.entry_folder(1).string(), "cannot be moved aside (Read-only file system)"));
  PruneRequest request;
  request.all = true;
  const PruneResult pruned = prune_cache(bench.options, request);
  CHECK(pruned.stuck_entries == 2);
  CHECK(names(pruned.faults, bench.entry_folder(2).string(), "cannot be removed (Read-only file system)"));
  bench.options.hooks = nullptr;
  CHECK(verify_cache(bench.options, true).healed == 1);
  CHECK(verify_cache(bench.options).faults.empty());
  CHECK(prune_cache(bench.options, request).faults.empty());
}
