// One cache object, many threads. Clean under the thread sanitizer.
#include <random>

#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {
void run_threads(int number, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  threads.reserve(static_cast<std::size_t>(number));
  for (int i = 0; i < number; ++i) threads.emplace_back([&run, i] { run(i); });
  for (std::thread& each : threads) each.join();
}
}  // namespace

TEST_CASE("cache threads: one key is compiled once and shared") {
  for (const bool has_folder : {true, false}) {
    Bench bench;
    if (!has_folder) bench.options.user_folder.clear();
    bench.compiler.delay = std::chrono::milliseconds{20};
    const auto cache = bench.open();
    std::vector<std::shared_ptr<const CacheEntry>> results(8);
    run_threads(8, [&](int i) { results[static_cast<std::size_t>(i)] = bench.build(*cache, 1); });
    for (const auto& result : results) CHECK(result == results[0]);
    CHECK(bench.compiler.calls == 1);
    CHECK(cache->stats().compiles == 1);
  }
}

TEST_CASE("cache threads: different keys compile side by side") {
  Bench bench;
  const auto cache = bench.open();
  std::atomic<int> inside{0}, met{0};
  run_threads(2, [&](int i) {
    const SourceBundle bundle = sample_bundle(i);
    cache->find_or_build(request_for(bundle, &bench.compiler), [&] {
      ++inside;
      for (int wait = 0; wait < 5000 && inside < 2; ++wait) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      if (inside == 2) ++met;
      return bench.compiler.compile(bundle);
    });
  });
  CHECK(met == 2);
}

TEST_CASE("cache threads: a failure reaches every waiter, the next caller tries again, nothing is published") {
  Bench bench;
  const auto cache = bench.open();
  const SourceBundle bundle = sample_bundle(1);
  const CacheRequest request = request_for(bundle, &bench.compiler);
  std::atomic<int> calls{0}, failed{0}, inside{0};
  run_threads(8, [&](int) {
    ++inside;
    try {
      cache->find_or_build(request, [&]() -> Image {
        ++calls;
        // Until all have had the time to join.
        while (inside < 8) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds{200});
        throw Error(ErrorKind::compile, "no", {"log"});
      });
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::compile && error.notes().size() == 1) ++failed;
    }
  });
  CHECK(failed == 8);
  CHECK(calls == 1);
  CHECK(cache->stats().failures == 1);
  CHECK_FALSE(fs::exists(bench.entry_folder(1)));
  CHECK(bench.staged() == 0);
  CHECK(bench.build(*cache, 1)->tier == CacheTier::compiled);
  CHECK(bench.warnings.empty());
}

TEST_CASE("cache threads: an exception that is no Error passes through") {
  Bench bench;
  const auto cache = bench.open();
  const CacheRequest request = request_for(sample_bundle(1), &bench.compiler);
  CHECK_THROWS_AS(cache->find_or_build(request, []() -> Image { throw std::bad_alloc(); }), std::bad_alloc);
  CHECK_THROWS_AS(cache->find_or_build(request, []() -> Image { throw 7; }), int);
  CHECK(is_right(*bench.build(*cache, 1), 1, bench.compiler));
}

TEST_CASE("cache threads: everything at once") {
  Bench bench;
  bench.options.max_bytes = 60'000;         // eviction from disk
  bench.options.max_memory_bytes = 60'000;  // and from memory
  const auto cache = bench.open();
  std::atomic<int> wrong{0};
  run_threads(8, [&](int i) {
    std::mt19937 random(static_cast<unsigned>(i));
    for (int round = 0; round < 100; ++round) {
      const int number = static_cast<int>(random() % 10);
      CacheRequest request = request_for(sample_bundle(number), &bench.compiler);
      request.need_ptx = random() % 2 == 0;
      request.require_compiler = random() % 2 == 0;
      const auto action = random() % 8;
      if (action == 0) {
        cache->contains(request);
        cache->stats();
        continue;
      }
      if (action == 1) {
        std::error_code ignored;
        fs::resize_file(bench.entry_folder(number) / kCubinFile, random() % 4000, ignored);
      }
      const auto entry =
          action < 5 ? cache->find_or_build(request, [&] { return bench.compiler.compile(sample_bundle(number)); })
                     : cache->find(request);
      if (entry && !is_right(*entry, number, bench.compiler)) ++wrong;
      if (entry && request.need_ptx && !entry->has_ptx) ++wrong;
    }
  });
  CHECK(wrong == 0);
}
