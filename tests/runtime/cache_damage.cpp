// Every way in which bytes of an entry can be wrong: it is moved aside, reported once, and built again.
#include <random>

#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

/// Damages the entry, then asks for it: healed, right, one warning, and a hit after.
void check_heals(const std::function<void(const fs::path&)>& damage, const std::string& reason) {
  Bench bench;
  bench.build(1);
  damage(bench.entry_folder(1));
  const CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  const auto cache = bench.open();
  const auto healed = bench.build(*cache, 1);
  CHECK(healed->tier == CacheTier::compiled);
  CHECK(is_right(*healed, 1, bench.compiler));
  CHECK(bench.compiler.calls == 2);
  CHECK(cache->stats().quarantined == 1);
  CHECK(bench.quarantined() == 1);
  REQUIRE(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find(reason) != std::string::npos);
  CHECK(bench.find(1)->tier == CacheTier::user);
  CHECK(bench.compiler.calls == 2);
  CHECK(bench.staged() == 0);
}

void flip_bit(const fs::path& path, std::size_t position, int bit) {
  std::string text = read_text(path);
  text[position] = static_cast<char>(text[position] ^ (1 << bit));
  write_file(path, text);
}

constexpr const char* kFiles[] = {kCompileFile, kCubinFile, kPtxFile, kPlanFile};

}  // namespace

TEST_CASE("cache: truncated files are healed") {
  for (const char* name : kFiles) {
    CAPTURE(name);
    check_heals([&](const fs::path& entry) { fs::resize_file(entry / name, fs::file_size(entry / name) - 1); }, name);
    check_heals([&](const fs::path& entry) { fs::resize_file(entry / name, fs::file_size(entry / name) / 2); }, name);
  }
}

TEST_CASE("cache: emptied, missing, grown and replaced files are healed") {
  for (const char* name : kFiles) {
    CAPTURE(name);
    check_heals([&](const fs::path& entry) { fs::resize_file(entry / name, 0); }, name);
    check_heals([&](const fs::path& entry) { fs::remove(entry / name); }, std::string(name) + " is missing");
    check_heals([&](const fs::path& entry) { write_file(entry / name, read_text(entry / name) + "\n"); }, name);
    check_heals(
        [&](const fs::path& entry) {
          fs::remove(entry / name);
          fs::create_directory(entry / name);
        },
        std::string(name) + " is not a regular file");
    check_heals(
        [&](const fs::path& entry) {  // even to the right bytes: a link can lead out of the cache
          fs::rename(entry / name, entry / "elsewhere");
          fs::create_symlink("elsewhere", entry / name);
        },
        std::string(name) + " is not a regular file");
  }
  check_heals(
      [](const fs::path& entry) {
        for (const char* name : kFiles) fs::remove(entry / name);
      },
      "compile.json is missing");
  check_heals(
      [](const fs::path& entry) {
        fs::remove_all(entry);
        write_file(entry, "a file where the folder was");
      },
      "the folder cannot be opened");
}

TEST_CASE("cache: a flipped bit anywhere is healed") {
  std::mt19937 random(7);
  for (const char* name : kFiles) {
    CAPTURE(name);
    for (int round = 0; round < 20; ++round) {
      check_heals(
          [&](const fs::path& entry) {
            const std::size_t size = fs::file_size(entry / name);
            flip_bit(entry / name, random() % size, static_cast<int>(random() % 8));
          },
          name);
    }
  }
}

TEST_CASE("cache: swapped files and swapped entries are healed") {
  check_heals(
      [](const fs::path& entry) {
        fs::rename(entry / kCubinFile, entry / "x");
        fs::rename(entry / kPtxFile, entry / kCubinFile);
        fs::rename(entry / "x", entry / kPtxFile);
      },
      kCubinFile);

  for (const char* name : kFiles) {
    CAPTURE(name);
    Bench bench;
    bench.build(1);
    bench.build(2);
    const fs::path one = bench.entry_folder(1), two = bench.entry_folder(2);
    fs::rename(one / name, one / "x");
    fs::rename(two / name, one / name);
    fs::rename(one / "x", two / name);
    CHECK(is_right(*bench.build(1), 1, bench.compiler));
    CHECK(is_right(*bench.build(2), 2, bench.compiler));
    // kernel.ptx of the samples is the same size, and so is plan.json: only digests tell.
    CHECK(bench.compiler.calls == 4);
    CHECK(bench.warnings.size() == 2);
  }
  Bench bench;
  bench.build(1);
  bench.build(2);
  fs::rename(bench.entry_folder(1), bench.folder / "x");
  fs::rename(bench.entry_folder(2), bench.entry_folder(1));
  fs::rename(bench.folder / "x", bench.entry_folder(2));
  CHECK(is_right(*bench.build(1), 1, bench.compiler));
  CHECK(is_right(*bench.build(2), 2, bench.compiler));
  CHECK(bench.warnings.size() == 2);
  CHECK(bench.warnings[0].find("compile.json belongs to another entry") != std::string::npos);
}

TEST_CASE("cache: damage is found without a compiler too, and then it is a miss") {
  Bench bench;
  bench.build(1);
  fs::resize_file(bench.entry_folder(1) / kCubinFile, 1);
  const CacheRequest request = request_for(sample_bundle(1), nullptr);
  CHECK_FALSE(bench.open()->contains(request));
  CHECK(bench.open()->find(request) == nullptr);
  CHECK(bench.quarantined() == 1);
}

TEST_CASE("cache: what it claims to contain was verified to the last bit, and no use of it") {
  Bench bench;
  bench.build(1);
  const fs::path entry = bench.entry_folder(1);
  const auto long_ago = fs::file_time_type::clock::now() - std::chrono::hours(48);
  for (const bool has_compiler : {true, false}) {
    CacheRequest request = request_for(sample_bundle(1), has_compiler ? &bench.compiler : nullptr);
    request.need_ptx = false;
    fs::last_write_time(entry, long_ago);
    CHECK(bench.open()->contains(request) == CacheTier::user);
    CHECK(fs::last_write_time(entry) == long_ago);
    for (const std::string_view name : {kPlanFile, kCubinFile}) {
      std::string bytes = read_text(entry / name);
      bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
      write_file(entry / name, bytes);
      CHECK_FALSE(bench.open()->contains(request));
      CHECK(bench.warnings.back().find("does not have the digest of its record") != std::string::npos);
      bench.build(1);
    }
  }
  CHECK(bench.quarantined() == 4);
}

TEST_CASE("cache: the quarantine keeps a bounded number") {
  Bench bench;
  for (int i = 0; i < 20; ++i) {
    bench.build(1);
    fs::resize_file(bench.entry_folder(1) / kPlanFile, 0);
  }
  bench.build(1);
  CHECK(bench.quarantined() == 16);
}

TEST_CASE("cache: many readers of a damaged entry heal it once") {
  Bench bench;
  bench.build(1);
  fs::resize_file(bench.entry_folder(1) / kCubinFile, 1);
  const auto cache = bench.open();
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { bench.build(*cache, 1); });
  for (std::thread& each : threads) each.join();
  CHECK(bench.compiler.calls == 2);
  CHECK(bench.warnings.size() == 1);
}
