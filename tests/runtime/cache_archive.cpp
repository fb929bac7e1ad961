// The archive: its bytes, and what the reader refuses.
#include "runtime/cache_archive.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "tessera/cache_admin.h"
#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

std::string compress(const std::string& content) {
  std::string bytes(ZSTD_compressBound(content.size()), '\0');
  const std::size_t size = ZSTD_compress(bytes.data(), bytes.size(), content.data(), content.size(), 3);
  REQUIRE(ZSTD_isError(size) == 0);
  bytes.resize(size);
  return bytes;
}

ByteSource source_of(const std::string& bytes) {
  auto at = std::make_shared<std::size_t>(0);
  return [bytes, at](std::span<std::byte> to) {
    const std::size_t take = std::min(to.size(), bytes.size() - *at);
    std::copy_n(reinterpret_cast<const std::byte*>(bytes.data()) + *at, take, to.data());
    *at += take;
    return take;
  };
}

/// The reader's complaint about these bytes; "" when it has none.
std::string complaint(const std::string& bytes, const ArchiveLimits& limits = {}) {
  try {
    read_archive(source_of(bytes), limits, [](ArchivedEntry&&) {});
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    return error.what();
  }
  return "";
}

std::string complaint_about(const std::string& content, const ArchiveLimits& limits = {}) {
  return complaint(compress(content), limits);
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// The decompressed archive of two entries, cut into members (header and padded content); the end is the last.
struct Content {
  std::vector<std::string> members;
  std::vector<std::string> paths;
  std::string end = std::string(1024, '\0');

  Content() {
    Bench bench;
    bench.compiler.cubin_bytes = 700;
    bench.compiler.ptx_bytes = 700;
    bench.build(1);
    bench.build(2);
    const fs::path file = bench.folder / "a.tar.zst";
    export_cache(bench.options, file);
    const std::string packed = read_text(file);
    std::string all(1 << 20, '\0');
    all.resize(ZSTD_decompress(all.data(), all.size(), packed.data(), packed.size()));
    std::size_t at = 0;
    while (all[at] != '\0') {
      const std::size_t bytes = std::stoul(all.substr(at + 124, 11), nullptr, 8);
      const std::size_t size = 512 + (bytes + 511) / 512 * 512;
      members.push_back(all.substr(at, size));
      const std::string prefix = all.substr(at + 345).c_str();
      paths.push_back((prefix.empty() ? "" : prefix + "/") + all.substr(at).c_str());
      at += size;
    }
    REQUIRE(all.size() - at == 1024);
  }
  std::string joined() const {
    std::string all;
    for (const std::string& member : members) all += member;
    return all + end;
  }
};

std::string member(const std::string& path, const std::string& bytes) {
  return archive::header(path, static_cast<std::int64_t>(bytes.size())) + bytes +
         std::string((512 - bytes.size() % 512) % 512, '\0');
}

}  // namespace

TEST_CASE("cache archive: members, order, headers") {
  const Content content;
  REQUIRE(content.paths.size() == 9);
  CHECK(std::is_sorted(content.paths.begin(), content.paths.end() - 1));
  CHECK(content.paths.back() == "manifest.json");
  CHECK(complaint_about(content.joined()).empty());
  for (const std::string& each : content.members) {
    CHECK(each.substr(100, 24) == std::string("0000644\0"
                                              "0000000\0"
                                              "0000000\0",
                                              24));
    CHECK(each.substr(136, 12) == std::string("00000000000\0", 12));
    CHECK(each.substr(257, 8) == std::string("ustar\0"
                                             "00",
                                             8));
  }
}

TEST_CASE("cache archive: tar lists it and unpacks a folder that serves") {
  if (std::system("tar --version > /dev/null 2>&1 && zstd --version > /dev/null 2>&1") != 0) {
    MESSAGE("not run: no tar or no zstd here");
    return;
  }
  Bench bench;
  bench.build(1);
  export_cache(bench.options, bench.folder / "a.tar.zst");
  fs::create_directory(bench.folder / "unpacked");
  const std::string tar = "tar --zstd -f " + (bench.folder / "a.tar.zst").string();
  const std::string list = (bench.folder / "list").string();
  REQUIRE(std::system(
              (tar + " -t > " + list + " && " + tar + " -x -C " + (bench.folder / "unpacked").string()).c_str()) == 0);
  const std::string names = read_text(list);
  CHECK(std::count(names.begin(), names.end(), '\n') == 5);
  bench.options.user_folder.clear();
  bench.options.system_folders = {bench.folder / "unpacked"};
  CHECK(bench.build(1)->tier == CacheTier::system);
}

TEST_CASE("cache archive: the same content gives the same bytes, whenever and wherever it was compiled") {
  Bench one, two;
  for (const int number : {1, 2, 3}) one.build(number);
  for (const int number : {3, 1, 2}) two.build(number);
  two.find(1);
  export_cache(one.options, one.folder / "a");
  export_cache(one.options, one.folder / "b");
  CHECK(read_text(one.folder / "a") == read_text(one.folder / "b"));

  // The other machine took another time to compile, and its log says so.
  CacheOptions options;
  options.user_folder = two.folder / "slow";
  Cache slow(options);
  for (const int number : {2, 3, 1}) {
    const SourceBundle bundle = sample_bundle(number);
    slow.find_or_build(request_for(bundle, &two.compiler), [&] {
      Image image = two.compiler.compile(bundle);
      image.report.compile_ms = 99.5;
      image.report.log = "ptxas info    : Used 168 registers, 16 barriers\nptxas info    : Compile time = 77.1 ms\n";
      return image;
    });
  }
  export_cache(options, two.folder / "c");
  CHECK(read_text(one.folder / "a") == read_text(two.folder / "c"));
}

TEST_CASE("cache archive: refuses what is cut, and what follows the end") {
  const Content content;
  const std::string packed = compress(content.joined());
  for (std::size_t i = 0; i < packed.size(); ++i) CHECK_FALSE(complaint(packed.substr(0, i)).empty());
  CHECK(contains(complaint(""), "ends too early"));
  CHECK(contains(complaint(packed + "x"), "has more bytes after its end"));
  CHECK(contains(complaint(packed + packed), "has more bytes after its end"));
  CHECK(contains(complaint_about(content.joined() + "x"), "has more content after its end"));
  CHECK_FALSE(complaint("certainly no archive").empty());
  const std::string all = content.joined();
  for (std::size_t cut = 0; cut < all.size(); cut += 97) CHECK_FALSE(complaint_about(all.substr(0, cut)).empty());
}

TEST_CASE("cache archive: refuses any changed bit") {
  const Content content;
  const std::string all = content.joined();
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string changed = all;
    const std::size_t at = random() % all.size();
    changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
    CAPTURE(at);
    CHECK_FALSE(complaint_about(changed).empty());
  }
}

TEST_CASE("cache archive: refuses members that are missing, twice, in another order, or not ours") {
  const Content content;
  for (std::size_t i = 0; i < content.members.size(); ++i) {
    CAPTURE(i);
    Content changed = content;
    changed.members.erase(changed.members.begin() + static_cast<std::ptrdiff_t>(i));
    CHECK_FALSE(complaint_about(changed.joined()).empty());
    changed = content;
    changed.members.insert(changed.members.begin() + static_cast<std::ptrdiff_t>(i), content.members[i]);
    CHECK_FALSE(complaint_about(changed.joined()).empty());
    for (std::size_t j = 0; j < i; ++j) {
      changed = content;
      std::swap(changed.members[i], changed.members[j]);
      CHECK_FALSE(complaint_about(changed.joined()).empty());
    }
  }
  Content twice = content;  // a whole entry twice
  twice.members.insert(twice.members.begin() + 4, content.members.begin(), content.members.begin() + 4);
  CHECK(contains(complaint_about(twice.joined()), "is there twice or out of order"));
  Content swapped = content;  // whole entries out of order
  std::rotate(swapped.members.begin(), swapped.members.begin() + 4, swapped.members.begin() + 8);
  CHECK(contains(complaint_about(swapped.joined()), "is there twice or out of order"));
  Content without = content;  // a whole entry less than the manifest says
  without.members.erase(without.members.begin(), without.members.begin() + 4);
  CHECK(contains(complaint_about(without.joined()), "manifest.json does not match the entries"));

  for (const char* const path :
       {"../../etc/passwd", "/etc/passwd", "v1/../x/compile.json", "compile.json", "x", "v1/aa/../../compile.json"}) {
    Content foreign = content;
    foreign.members.insert(foreign.members.begin(), member(path, "x"));
    CHECK_FALSE(complaint_about(foreign.joined()).empty());
    foreign = content;  // a payload under another name
    foreign.members[1] = member(path, content.members[1].substr(512, 700));
    CHECK_FALSE(complaint_about(foreign.joined()).empty());
    foreign = content;  // a record under another name
    const std::size_t bytes = std::stoul(content.members[0].substr(124, 11), nullptr, 8);
    foreign.members[0] = member(path, content.members[0].substr(512, bytes));
    CHECK_FALSE(complaint_about(foreign.joined()).empty());
  }
}

TEST_CASE("cache archive: refuses links, folders, owners, times and other spellings of a header") {
  const Content content;
  const auto with = [&](std::size_t at, const std::string& bytes) {
    Content changed = content;
    std::string& block = changed.members[1];
    block.replace(at, bytes.size(), bytes);
    block.replace(148, 8, "        ");
    unsigned sum = 0;
    for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(block[i]);
    block.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
    return complaint_about(changed.joined());
  };
  CHECK(with(156, "0").empty());  // the checksum alone is right
  for (const char* type : {"1", "2", "3", "5", "6", "L", "x", "g"}) {
    CHECK(contains(with(156, type), "a member that tessera has not written"));
  }
  CHECK(contains(with(100, "0000755"), "a member that tessera has not written"));
  CHECK(contains(with(108, "0000001"), "a member that tessera has not written"));
  CHECK(contains(with(146, "1"), "a member that tessera has not written"));
  CHECK(contains(with(157, "/etc/passwd"), "a member that tessera has not written"));
  CHECK(contains(with(265, "root"), "a member that tessera has not written"));
  CHECK(contains(with(124, "77777777777"), "at most 268435456 are allowed"));
  CHECK(contains(with(124, "\xff\xff\xff\xff"), "a member that tessera has not written"));
  CHECK(contains(with(124, "-0000000001"), "a member that tessera has not written"));
}

TEST_CASE("cache archive: limits") {
  const Content content;
  ArchiveLimits limits;
  limits.max_entries = 1;
  CHECK(contains(complaint_about(content.joined(), limits), "more than 1 entries"));
  limits = {};
  limits.max_entry_bytes = 1400;
  CHECK(contains(complaint_about(content.joined(), limits), "at most 1400 are allowed"));
  limits = {};
  limits.max_total_bytes = 4000;
  CHECK(contains(complaint_about(content.joined(), limits), "at most 4000 are allowed in all"));

  // A bomb: zeros without end behind a header that announces them.
  const std::string path = content.paths[0];
  const std::string bomb = compress(archive::header(path, 200 << 20) + std::string(std::size_t{64} << 20, '\0'));
  CHECK(bomb.size() < 10'000);
  CHECK(contains(complaint(bomb), "a compile.json that is too large"));
  limits = {};
  limits.max_total_bytes = 1 << 20;
  CHECK_FALSE(complaint(bomb, limits).empty());
  // A frame that asks for a window of gigabytes.
  std::string wide("\x28\xb5\x2f\xfd\x00\xa8", 6);
  CHECK(contains(complaint(wide + std::string(64, '\0')), "zstd"));
}

TEST_CASE("cache archive: archives written before are still read, and bad ones still refused") {
  int good = 0, bad = 0;
  for (const auto& each : fs::directory_iterator(fs::path(TESSERA_SOURCE_DIR) / "tests/fuzz/corpus/archive")) {
    const std::string name = each.path().filename().string(), bytes = read_text(each.path());
    if (name.rfind("entries-", 0) != 0 && name.rfind("bad-", 0) != 0) continue;  // what the fuzzer has found
    CAPTURE(name);
    const std::string found = bytes[0] % 2 == 1 ? complaint_about(bytes.substr(1)) : complaint(bytes.substr(1));
    CHECK(found.empty() == (name[0] == 'e'));
    ++(name[0] == 'e' ? good : bad);
  }
  CHECK(good == 6);
  CHECK(bad == 8);
}
