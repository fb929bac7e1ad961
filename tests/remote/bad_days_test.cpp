// Stores that take a machine's time, or its entries, and give nothing for them.
#include "runtime/remote/action_result.h"
#include "tests/remote/machine.h"

namespace tessera::testing {

namespace {

void check_costs_once(FullStore& server, int number, CacheTier first_tier) {
  Machine writer(server, true);
  const auto cache = writer.open();
  const auto start = Clock::now();
  CHECK(writer.get(*cache, number)->tier == first_tier);
  CHECK(Clock::now() - start < kLimit + milliseconds{400});
  CHECK(writer.has_warned_of("it is not asked any more"));
  CHECK(cache->stats().remote_stored == 0);
  server.forget_asked();
  CHECK(writer.get(*cache, 2)->tier == CacheTier::compiled);
  CHECK(server.asked().empty());
  CHECK(writer.warnings.size() == 1);
}

}  // namespace

TEST_CASE("remote: a store that does not answer costs who writes the limit once, not once more to store") {
  FullStore server;
  const auto hang_at = [&](const std::vector<std::string>& methods) {
    server.spoil([methods](const StoreRequest& request, StoreReply& reply) {
      for (const std::string& method : methods)
        if (request.method == method) reply.delay = milliseconds{5'000};
    });
  };
  hang_at({"GET", "HEAD", "PUT", "LOCK"});
  check_costs_once(server, 1, CacheTier::compiled);
  // It goes away after the look-up: at the question whether the blob is there, or while that is sent.
  for (const char* method : {"HEAD", "PUT"}) {
    CAPTURE(method);
    hang_at({method});
    check_costs_once(server, 3, CacheTier::compiled);
  }
  if (test_dialect() != Dialect::redis) return;
  hang_at({"LOCK"});
  check_costs_once(server, 3, CacheTier::compiled);
}

TEST_CASE("remote: what says yes to everything and keeps nothing has stored nothing") {
  for (const bool is_page : {true, false}) {
    CAPTURE(is_page);
    StoreServer server;
    server.spoil([is_page](const StoreRequest& request, StoreReply& reply) {
      if (is_page) reply = {.status = 200, .headers = "Content-Type: text/html\r\n", .body = "<html>log in</html>"};
      if (request.method == "PUT") reply.status = 200;  // and it is not set
    });
    Machine machine(server, true);
    {
      CacheOptions alone = machine.options;
      alone.remote = {};
      Cache cache(alone);
      machine.get(cache, 1);
      machine.get(cache, 2);
    }
    const auto cache = machine.open();
    for (const int number : {1, 2}) CHECK(!cache->push(request_for(sample_bundle(number), &machine.mine)));
    CHECK(cache->stats().remote_stored == 0);
    CHECK(cache->stats().remote_failures == 2);
    CHECK(machine.has_warned_of("was taken, and is not there"));
  }
}

TEST_CASE("remote: who may write puts the right bytes in the place of wrong ones") {
  FullStore server;
  const std::string action = server.blobs().at("ac/" + server.entries[0]->keys.entry);
  const std::string blob = "cas/" + remote::parse_action_result(action)->sha256;
  const std::string right = server.blobs().at(blob);
  std::string wrong = right;
  wrong[wrong.size() / 2] = static_cast<char>(~wrong[wrong.size() / 2]);
  server.set(blob, wrong);
  CHECK(Machine(server).get(1)->tier == CacheTier::compiled);
  CHECK(server.blobs().at(blob) == wrong);
  CHECK(Machine(server, true).get(1)->tier == CacheTier::compiled);
  CHECK(server.blobs().at(blob) == right);
  CHECK(Machine(server).get(1)->tier == CacheTier::remote);
}

}  // namespace tessera::testing
