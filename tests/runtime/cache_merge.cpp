// Entries with a merge beside the kernel: two files more.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "runtime/cache_entry.h"
#include "tessera/cache_admin.h"
#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

SourceBundle merging_bundle(int number) {
  SourceBundle bundle = sample_bundle(number);
  SourceBundle merge = sample_bundle(1000);
  merge.entries = {"tessera_sample_merge"};
  bundle.merge = std::make_shared<const SourceBundle>(std::move(merge));
  return bundle;
}

std::shared_ptr<const CacheEntry> build(Bench& bench, int number) {
  const SourceBundle bundle = merging_bundle(number);
  return bench.open()->find_or_build(request_for(bundle, &bench.compiler),
                                     [&] { return bench.compiler.compile(bundle); });
}

CacheRequest lean_request(const Bench& bench, int number) {
  CacheRequest request = request_for(merging_bundle(number), &bench.compiler);
  request.need_ptx = false;
  return request;
}

}  // namespace

TEST_CASE("cache: an entry with a merge comes back whole, with its PTX or without") {
  Bench bench;
  const auto made = build(bench, 1);
  REQUIRE(made->image.merge.cubin.size() == 4000);
  REQUIRE_FALSE(made->image.merge.ptx.empty());
  CHECK(made->image.merge.cubin != made->image.cubin);
  const auto full = bench.open()->find(request_for(merging_bundle(1), &bench.compiler));
  REQUIRE(full != nullptr);
  CHECK(full->image.merge.cubin == made->image.merge.cubin);
  CHECK(full->image.merge.ptx == made->image.merge.ptx);
  CHECK(full->image.report.entries.size() == 2);
  const auto lean = bench.open()->find(lean_request(bench, 1));
  REQUIRE(lean != nullptr);
  CHECK(lean->image.merge.cubin == made->image.merge.cubin);
  CHECK(lean->image.merge.ptx.empty());
  CHECK(lean->whole_image().merge.ptx == made->image.merge.ptx);
  CHECK(lean->whole_image().ptx == made->image.ptx);
  const CacheDetails details = show_cache_entry(bench.options, made->keys.entry);
  CHECK(details.merge.ptx == made->image.merge.ptx);
  CHECK(details.merge.cubin == made->image.merge.cubin);
  // Whoever knows no merges is told so by the record.
  CHECK(read_text(made->folder / kCompileFile).find("\"schema\": 2,") != std::string::npos);
  CHECK(read_text(bench.build(2)->folder / kCompileFile).find("\"schema\": 1,") != std::string::npos);
}

TEST_CASE("cache: a damaged merge is damage of its entry") {
  for (const char* const name : {kMergeCubinFile, kMergePtxFile}) {
    for (const int how : {0, 1, 2}) {
      CAPTURE(name);
      CAPTURE(how);
      Bench bench;
      const fs::path file = build(bench, 1)->folder / name;
      if (how == 0) fs::resize_file(file, 10);
      if (how == 1) fs::remove(file);
      if (how == 2) {
        std::string bytes = read_text(file);
        bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
        write_file(file, bytes);
      }
      const int before = bench.compiler.calls;
      CHECK(verify_cache(bench.options).damaged.size() == 1);
      CHECK_FALSE(bench.open()->contains(request_for(merging_bundle(1), &bench.compiler)).has_value());
      CHECK(build(bench, 1)->image.merge.cubin.size() == 4000);
      CHECK(bench.compiler.calls == before + 2);
      CHECK(bench.warnings.size() == 1);
      CHECK(verify_cache(bench.options).damaged.empty());
    }
  }
}

TEST_CASE("cache: merges go through archives, and go with their entries") {
  Bench bench, other;
  const auto made = build(bench, 1);
  bench.build(2);
  CHECK(export_cache(bench.options, bench.folder / "archive").entries == 2);
  CHECK(import_cache(other.options, bench.folder / "archive").imported == 2);
  const auto found = other.open()->find(request_for(merging_bundle(1), &other.compiler));
  REQUIRE(found != nullptr);
  CHECK(found->image.merge.cubin == made->image.merge.cubin);
  CHECK(found->image.merge.ptx == made->image.merge.ptx);
  CHECK(export_cache(other.options, other.folder / "archive").entries == 2);
  CHECK(read_text(bench.folder / "archive") == read_text(other.folder / "archive"));
  PruneRequest all;
  all.all = true;
  prune_cache(bench.options, all);
  CHECK_FALSE(fs::exists(made->folder));
  CHECK(fs::is_empty(bench.folder / "cache" / "v1" / "staging"));
}
