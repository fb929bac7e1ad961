#include <sys/stat.h>

#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

TEST_CASE("cache: a world-writable folder is refused unless trusted") {
  for (const char* inner : {"", "v1"}) {
    Bench bench;
    bench.build(1);
    const fs::path folder = bench.options.user_folder / inner;
    REQUIRE(::chmod(folder.c_str(), 0777) == 0);
    const auto cache = bench.open();
    CHECK(bench.build(*cache, 1)->tier == CacheTier::compiled);
    CHECK(bench.build(*cache, 2)->folder.empty());
    REQUIRE(bench.warnings.size() == 1);
    CHECK(bench.warnings[0].find("everybody may write there (mode 0777)") != std::string::npos);
    CHECK(bench.warnings[0].find("kernels are kept in memory only") != std::string::npos);
    CHECK_FALSE(fs::exists(bench.entry_folder(2)));

    bench.options.trust_folder = true;
    CHECK(bench.build(1)->tier == CacheTier::user);
    CHECK(bench.warnings.size() == 1);
  }
}

TEST_CASE("cache: what everybody may write inside a good folder is not loaded unless trusted") {
  const auto with = [](const std::function<fs::path(const fs::path& entry)>& which, bool heals,
                       const std::string& said) {
    Bench bench;
    bench.build(1);
    const fs::path open = which(bench.entry_folder(1));
    CAPTURE(open.string());
    REQUIRE(::chmod(open.c_str(), fs::is_directory(open) ? 0777 : 0666) == 0);
    bench.options.trust_folder = true;
    CHECK(bench.build(1)->tier == CacheTier::user);
    bench.options.trust_folder = false;
    CHECK(bench.warnings.empty());
    CHECK(bench.build(1)->tier == CacheTier::compiled);
    REQUIRE(bench.warnings.size() == 1);
    CHECK_MESSAGE(bench.warnings[0].find(said) != std::string::npos, bench.warnings[0]);
    CHECK(bench.quarantined() == (heals ? 1 : 0));
    CHECK(bench.build(1)->tier == (heals ? CacheTier::user : CacheTier::compiled));
  };
  for (const char* name : {kCompileFile, kCubinFile, kPtxFile, kPlanFile})
    with([name](const fs::path& entry) { return entry / name; }, true,
         std::string("everybody may write ") + name + " (mode 0666)");
  with([](const fs::path& entry) { return entry; }, true, "everybody may write its folder (mode 0777)");
  with([](const fs::path& entry) { return entry.parent_path(); }, false, "everybody may write a folder above it");
  with([](const fs::path& entry) { return entry.parent_path().parent_path(); }, false,
       "everybody may write a folder above it (mode 0777)");
}

TEST_CASE("cache: a foreign folder is refused unless trusted, root's is fine") {
  Bench bench;
  bench.build(1);
  auto hooks = std::make_shared<FileHooks>();
  hooks->effective_user = 4242;
  bench.options.hooks = hooks;
  const std::string owner = std::to_string(::geteuid());
  if (::geteuid() == 0) {
    CHECK(bench.build(1)->tier == CacheTier::user);
    REQUIRE(::chown(bench.options.user_folder.c_str(), 4343, 4343) == 0);
  }
  CHECK(bench.build(1)->tier == CacheTier::compiled);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find("belongs to user " + (owner == "0" ? "4343" : owner) + ", not to you (4242)") !=
        std::string::npos);

  Bench system;
  system.options.hooks = hooks;
  system.options.system_folders = {bench.options.user_folder};
  const auto cache = system.open();
  CHECK(cache->find(request_for(sample_bundle(1), &system.compiler)) == nullptr);
  REQUIRE(system.warnings.size() == 1);
  CHECK(system.warnings[0].find("it is not used") != std::string::npos);

  bench.options.trust_folder = true;
  CHECK(bench.build(1)->tier == CacheTier::user);
}

TEST_CASE("cache: a group-writable folder warns once, works, and stays shared") {
  Bench bench;
  fs::create_directory(bench.options.user_folder);
  REQUIRE(::chmod(bench.options.user_folder.c_str(), 0770) == 0);
  const mode_t before = ::umask(0002);
  const auto cache = bench.open();
  bench.build(*cache, 1);
  bench.build(*cache, 2);
  ::umask(before);
  CHECK(bench.find(1)->tier == CacheTier::user);
  CHECK(bench.warnings.size() == 2);  // one for each cache object
  CHECK(bench.warnings[0].find("its group may write there (mode 0770)") != std::string::npos);
  struct stat found {};
  REQUIRE(::stat((bench.options.user_folder / "v1").c_str(), &found) == 0);
  CHECK((found.st_mode & 0777U) == 0775);
  // Each member takes locks and moves the clock; an entry is written once.
  const fs::path files[] = {bench.options.user_folder / "v1/lock", bench.options.user_folder / "v1/clock",
                            bench.entry_folder(1) / kCubinFile};
  for (const fs::path& file : files) {
    CAPTURE(file.string());
    REQUIRE(::stat(file.c_str(), &found) == 0);
    CHECK((found.st_mode & 0777U) == (file.filename() == kCubinFile ? 0644U : 0664U));
  }
}

TEST_CASE("cache: what it makes for itself nobody else can write, whatever the umask") {
  Bench bench;
  const mode_t before = ::umask(0);
  bench.build(1);
  ::umask(before);
  for (const auto& each : fs::recursive_directory_iterator(bench.options.user_folder)) {
    struct stat found {};
    REQUIRE(::stat(each.path().c_str(), &found) == 0);
    CAPTURE(each.path().string());
    CHECK((found.st_mode & 0022U) == 0);
  }
  CHECK(bench.warnings.empty());
}

TEST_CASE("cache: a folder that turns bad before its first use is refused, a link to a good one is followed") {
  Bench bench;
  bench.build(1);
  fs::create_directory_symlink(bench.options.user_folder, bench.folder / "link");
  bench.options.user_folder = bench.folder / "link";
  CHECK(bench.find(1)->tier == CacheTier::user);
}
