#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

static SourceBundle kept_bundle() {
  SourceBundle bundle = sample_bundle(1);
  bundle.pieces = {{.header = {"piece.cuh", "// 1\n"}, .keeps_values = true}};
  return bundle;
}

TEST_CASE("cache: memory, then the user folder, then the compiler") {
  Bench bench;
  const auto cache = bench.open();
  const CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  CHECK(cache->find(request) == nullptr);
  CHECK_FALSE(cache->contains(request));

  const auto built = bench.build(*cache, 1);
  CHECK(built->tier == CacheTier::compiled);
  CHECK(built->folder == bench.entry_folder(1));
  CHECK(bench.build(*cache, 1) == built);
  CHECK(cache->find(request) == built);
  CHECK(cache->contains(request) == CacheTier::memory);

  const auto fresh = bench.open();
  CHECK(fresh->contains(request) == CacheTier::user);
  const auto loaded = bench.build(*fresh, 1);
  CHECK(loaded->tier == CacheTier::user);
  CHECK(loaded->keys == request.keys);
  CHECK(is_right(*loaded, 1, bench.compiler));
  CHECK(bench.compiler.calls == 1);
  CHECK(cache->stats().memory_hits == 2);
  CHECK(cache->stats().compiles == 1);
  CHECK(cache->stats().compile_ms == doctest::Approx(12.5));
  CHECK(cache->stats().published == 1);
  CHECK(fresh->stats().user_hits == 1);
  CHECK(fresh->stats().compiles == 0);
  CHECK(bench.staged() == 0);
  CHECK(bench.warnings.empty());
}

TEST_CASE("cache: without any folder it works in memory") {
  Bench bench;
  bench.options.user_folder.clear();
  const auto cache = bench.open();
  const auto built = bench.build(*cache, 1);
  CHECK(built->folder.empty());
  CHECK(bench.build(*cache, 1) == built);
  CHECK(bench.compiler.calls == 1);
  CHECK(bench.warnings.empty());
}

TEST_CASE("cache: a warm cache serves a machine without a compiler") {
  Bench bench;
  bench.build(1);
  const auto cache = bench.open();
  CacheRequest request = request_for(sample_bundle(1), nullptr);
  const auto refuse = []() -> Image { throw Error(ErrorKind::compile, "no compiler here"); };
  CHECK(cache->contains(request) == CacheTier::user);
  const auto found = cache->find_or_build(request, refuse);
  CHECK(is_right(*found, 1, bench.compiler));
  CHECK(cache->find(request) == found);
  request = request_for(sample_bundle(2), nullptr);
  CHECK_THROWS_WITH(cache->find_or_build(request, refuse), "no compiler here");
}

TEST_CASE("cache: another compiler's entry serves unless the request pins its own") {
  Bench bench;
  CountingCompiler old_compiler(12), new_compiler(13), newest_compiler(14);
  const SourceBundle bundle = sample_bundle(1);
  const auto build_with = [&](CountingCompiler& compiler, bool is_pinned) {
    CacheRequest request = request_for(bundle, &compiler);
    request.require_compiler = is_pinned;
    return bench.open()->find_or_build(request, [&] { return compiler.compile(bundle); });
  };
  // The newest compiler's entry is written first: its version decides, not the time.
  const auto new_entry = build_with(new_compiler, true);
  const auto old_entry = build_with(old_compiler, true);
  CHECK(new_compiler.calls == 1);
  CHECK(old_compiler.calls == 1);
  CHECK(old_entry->keys.entry != new_entry->keys.entry);
  CHECK(build_with(old_compiler, false)->keys == old_entry->keys);

  const auto served = build_with(newest_compiler, false);
  CHECK(newest_compiler.calls == 0);
  CHECK(served->keys == new_entry->keys);
  CHECK(bench.open()->find(request_for(bundle, nullptr))->keys == new_entry->keys);

  CacheRequest pinned = request_for(bundle, &newest_compiler);
  pinned.require_compiler = true;
  CHECK_FALSE(bench.open()->contains(pinned));
  CHECK(build_with(newest_compiler, true)->tier == CacheTier::compiled);
  CHECK(newest_compiler.calls == 1);
  CacheRequest nobody = request_for(bundle, nullptr);
  nobody.require_compiler = true;
  CHECK(bench.open()->find(nobody) == nullptr);
}

TEST_CASE("cache: one object tells apart a pinned request and one that takes any compiler's entry") {
  Bench bench;
  CountingCompiler other(12);
  const SourceBundle bundle = sample_bundle(1);
  bench.build(1);
  const auto cache = bench.open();
  CacheRequest request = request_for(bundle, &other);
  const auto any = cache->find(request);
  REQUIRE(any != nullptr);
  request.require_compiler = true;
  CHECK(cache->find(request) == nullptr);
  const auto own = cache->find_or_build(request, [&] { return other.compile(bundle); });
  CHECK(own->keys.entry == request.keys.entry);
  request.require_compiler = false;
  CHECK(cache->find(request) == own);
}

TEST_CASE("cache: system folders are searched in order and never written") {
  Bench warm;
  warm.build(1);
  Bench second;
  second.build(1);
  second.build(2);
  const fs::path read_only = warm.options.user_folder;
  const auto stamp = fs::last_write_time(warm.entry_folder(1));

  Bench bench;
  bench.options.system_folders = {bench.folder / "missing", read_only, second.options.user_folder};
  const auto cache = bench.open();
  const auto one = bench.build(*cache, 1), two = bench.build(*cache, 2), three = bench.build(*cache, 3);
  CHECK(one->tier == CacheTier::system);
  CHECK(one->folder == warm.entry_folder(1));
  CHECK(two->folder == second.entry_folder(2));
  CHECK(three->tier == CacheTier::compiled);
  CHECK(cache->stats().system_hits == 2);
  CHECK(fs::last_write_time(warm.entry_folder(1)) == stamp);
  CHECK(bench.warnings.empty());

  // A damaged system entry is reported, left alone, and built into the user folder.
  write_file(warm.entry_folder(1) / kCubinFile, "x");
  bench.options.system_folders = {read_only};
  const auto again = bench.build(1);
  CHECK(again->tier == CacheTier::compiled);
  CHECK(bench.warnings.size() == 1);
  CHECK(bench.warnings[0].find("kernel.cubin has 1 bytes: its record says 4000") != std::string::npos);
  CHECK(fs::exists(warm.entry_folder(1)));
  CHECK(warm.quarantined() == 0);
}

TEST_CASE("cache: a moved folder hits") {
  Bench bench;
  bench.build(1);
  const fs::path moved = bench.folder / "elsewhere/deeper";
  fs::create_directories(moved.parent_path());
  fs::rename(bench.options.user_folder, moved);
  bench.options.user_folder = moved;
  CHECK(bench.build(1)->tier == CacheTier::user);
  fs::copy(moved, bench.folder / "copy", fs::copy_options::recursive);
  bench.options.user_folder = (bench.folder / "copy/").string();  // a slash at the end is no other folder
  CHECK(bench.build(1)->tier == CacheTier::user);
  CHECK(bench.compiler.calls == 1);
}

TEST_CASE("cache: a request without need_ptx reads no PTX, which can be read later") {
  Bench bench;
  bench.build(1);
  CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  request.need_ptx = false;
  const auto cache = bench.open();
  const auto lean = cache->find(request);
  REQUIRE(lean != nullptr);
  CHECK_FALSE(lean->has_ptx);
  CHECK(lean->image.ptx.empty());
  const std::string ptx = lean->read_ptx();
  CHECK(ptx.size() >= bench.compiler.ptx_bytes);

  request.need_ptx = true;
  const auto full = cache->find(request);
  CHECK(full->image.ptx == ptx);
  request.need_ptx = false;
  CHECK(cache->find(request) == full);

  fs::resize_file(bench.entry_folder(1) / kPtxFile, 10);
  CHECK_THROWS_AS(lean->read_ptx(), Error);
  fs::remove_all(bench.options.user_folder);
  CHECK_THROWS_AS(lean->read_ptx(), Error);
  CHECK(full->read_ptx() == ptx);
}

TEST_CASE("cache: an entry that left the disk is built again for who needs its PTX") {
  Bench bench;
  bench.build(1);
  CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  request.need_ptx = false;
  const auto cache = bench.open();
  REQUIRE(cache->find(request) != nullptr);
  fs::remove_all(bench.options.user_folder);
  const auto full = bench.build(*cache, 1);
  CHECK(full->has_ptx);
  CHECK(bench.compiler.calls == 2);
}

TEST_CASE("cache: a source that is kept is stored beside the code") {
  Bench bench;
  CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  request.source = "// nvcc ...\n";
  bench.open()->find_or_build(request, [&] { return bench.compiler.compile(sample_bundle(1)); });
  CHECK(read_text(bench.entry_folder(1) / kSourceFile) == request.source);
  CHECK(is_right(*bench.find(1), 1, bench.compiler));
}

TEST_CASE("cache: an empty cubin is a failed compile") {
  Bench bench;
  bench.compiler.cubin_bytes = 0;
  CHECK_THROWS_WITH_AS(bench.build(1), "tessera_sample_1: the compiler returned an empty cubin", Error);
  CHECK_FALSE(fs::exists(bench.entry_folder(1)));
}

TEST_CASE("cache: the memory tier is bounded and keeps what is used") {
  Bench bench;
  bench.options.user_folder.clear();
  bench.options.max_memory_bytes = 10 * 13'000;
  const auto cache = bench.open();
  bench.build(*cache, 0);
  for (int i = 1; i < 50; ++i) {
    bench.build(*cache, i);
    bench.build(*cache, 0);
  }
  CHECK(bench.compiler.calls == 50);  // entry 0, used all the time, was never built twice
  bench.build(*cache, 1);
  CHECK(bench.compiler.calls == 51);

  bench.options.max_memory_bytes = 1;
  const auto tiny = bench.open();
  const auto entry = bench.build(*tiny, 7);
  CHECK(bench.build(*tiny, 7) == entry);
}

TEST_CASE("cache: what was compiled otherwise than was asked for is another compiler's") {
  Bench bench;
  CountingCompiler full(13, "c0+a1"), alone(13, "c0-alone");
  const SourceBundle bundle = kept_bundle();
  CacheRequest of_full = request_for(bundle, &full), of_alone = request_for(bundle, &alone);
  CHECK(of_full.keys.source == of_alone.keys.source);
  CHECK(of_full.keys.entry != of_alone.keys.entry);
  const auto built = bench.open()->find_or_build(of_full, [&] { return alone.compile(bundle); });
  CHECK(built->keys == of_alone.keys);
  CHECK(bench.open()->contains(of_full) == CacheTier::user);
  of_full.require_compiler = true;
  of_alone.require_compiler = true;
  CHECK_FALSE(bench.open()->contains(of_full));
  CHECK(bench.open()->contains(of_alone) == CacheTier::user);
  // A bundle without such pieces does not depend on the second NVRTC.
  CHECK(request_for(sample_bundle(1), &full).keys == request_for(sample_bundle(1), &alone).keys);
}

TEST_CASE("cache: without a compiler an entry made with less serves only where there is no other") {
  Bench bench;
  const SourceBundle bundle = kept_bundle();
  const auto build_with = [&](const char* build_id) {
    CountingCompiler compiler(13, build_id);
    CacheRequest request = request_for(bundle, &compiler);
    request.require_compiler = true;
    return bench.open()->find_or_build(request, [&] { return compiler.compile(bundle); })->keys;
  };
  const auto served = [&] { return bench.open()->find(request_for(bundle, nullptr))->keys; };
  const EntryKeys alone = build_with("c0-alone");
  CHECK(served() == alone);
  const EntryKeys full = build_with("c0+a1");
  build_with("c0-whole");  // the last one written
  CHECK(served() == full);
}
