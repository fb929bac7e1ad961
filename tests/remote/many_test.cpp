// The remote tier where there are many: entries that are asked for at once, counts, and machines that miss together.
#include <thread>

#include "tests/remote/machine.h"

namespace tessera::testing {

TEST_CASE("remote: many entries are asked for at once") {
  FullStore server;
  Machine reader(server);
  reader.options.remote.time_limit = milliseconds{20'000};
  std::vector<CacheRequest> requests;
  for (int number = 0; number < 600; ++number)
    requests.push_back(request_for(sample_bundle(number % 40), number % 3 == 0 ? nullptr : &reader.mine));
  requests[5].require_compiler = true;
  server.forget_asked();
  const auto cache = reader.open();
  auto found = cache->remote_contains(requests);
  REQUIRE(found.size() == requests.size());
  for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == (i % 40 == 1 || i % 40 == 2));
  // Entries that lost their blob are none.
  for (const auto& [path, bytes] : server.blobs())
    if (path.starts_with("cas/")) server.erase(path);
  for (const auto& one : cache->remote_contains(requests)) CHECK(one == false);
  // One failure among many ends the tier, and the rest is not known.
  std::atomic<int> left{100};
  server.spoil([&](const StoreRequest&, StoreReply& reply) {
    if (left.fetch_sub(1) <= 0) reply = {.status = 503, .headers = {}, .body = {}};
  });
  for (const auto& one : cache->remote_contains(requests)) CHECK(one == std::nullopt);
  CHECK(reader.has_warned_of(server.says(503)));
  server.stop();
  for (const auto& one : Machine(server).open()->remote_contains(requests)) CHECK(one == std::nullopt);
}

TEST_CASE("remote: what it did is counted, and a pull compiles nothing") {
  FullStore server;
  Machine reader(server);
  const auto cache = reader.open();
  CHECK(cache->pull(request_for(sample_bundle(1), &reader.mine))->tier == CacheTier::remote);
  CHECK(cache->pull(request_for(sample_bundle(1), &reader.mine))->tier == CacheTier::remote);
  CHECK(reader.find(1)->tier == CacheTier::user);
  CHECK(cache->pull(request_for(sample_bundle(3), &reader.mine)) == nullptr);
  CHECK(cache->stats().remote_hits == 1);
  CHECK(cache->stats().memory_hits == 1);
  CHECK(cache->stats().remote_misses == 1);
  CHECK(cache->stats().remote_errors == 0);
  const double ms = cache->stats().remote_ms;
  CHECK(ms > 0);
  server.spoil([](const StoreRequest&, StoreReply& reply) { reply = {.status = 403, .headers = {}, .body = {}}; });
  CHECK(cache->pull(request_for(sample_bundle(2), &reader.mine)) == nullptr);
  CHECK(cache->pull(request_for(sample_bundle(2), &reader.mine)) == nullptr);
  CHECK(cache->stats().remote_errors == 1);
  CHECK(cache->stats().remote_misses == 1);
  CHECK(cache->stats().remote_ms > ms);
  CHECK(reader.mine.calls == 0);
}

TEST_CASE("remote: where the store has locks one machine compiles for all that may write") {
  if (test_dialect() != Dialect::redis) return;
  StoreServer server;
  std::vector<std::unique_ptr<Machine>> machines;
  for (int i = 0; i < 16; ++i) {
    machines.push_back(std::make_unique<Machine>(server, true));
    machines.back()->options.remote.time_limit = milliseconds{20'000};
  }
  std::vector<std::thread> threads;
  for (const auto& machine : machines) {
    threads.emplace_back([&machine] {
      const SourceBundle bundle = sample_bundle(1);
      machine->open()->find_or_build(request_for(bundle, &machine->mine), [&] {
        std::this_thread::sleep_for(milliseconds{300});
        return machine->mine.compile(bundle);
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  int calls = 0;
  for (const auto& machine : machines) calls += machine->mine.calls;
  CHECK(calls == 1);
  for (const auto& machine : machines) CHECK(machine->warnings.empty());
  for (const auto& [path, bytes] : server.blobs()) CHECK(!path.starts_with("lock/"));
  // Who was stopped while it waited says so; a failure gives the turn back.
  Machine other(server, true);
  other.options.remote.time_limit = milliseconds{20'000};
  const CacheRequest request = request_for(sample_bundle(2), &other.mine);
  const auto cache = other.open();
  CHECK_THROWS(cache->find_or_build(request, []() -> Image { throw Error(ErrorKind::compile, "no"); }));
  CHECK(server.blobs().count("lock/" + request.keys.entry) == 0);
  server.set("lock/" + request.keys.entry, "another's");
  CacheRequest stopped = request;
  std::stop_source stop;
  stopped.stop = stop.get_token();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds{150});
    stop.request_stop();
  });
  CHECK_THROWS_AS(cache->find_or_build(stopped, []() -> Image { throw Error(ErrorKind::compile, "no"); }),
                  WaitInterrupted);
  stopper.join();
  // A store that refuses locks, or a machine that may not write, compiles at once.
  server.spoil([](const StoreRequest& asked, StoreReply& reply) {
    if (asked.method == "LOCK") reply = {.status = 403, .headers = {}, .body = {}};
  });
  CHECK(Machine(server, true).get(2)->tier == CacheTier::compiled);
  CHECK(Machine(server, false).get(3)->tier == CacheTier::compiled);
}

}  // namespace tessera::testing
