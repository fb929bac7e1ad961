// The remote tier against a server on the loopback address: what is stored and served, and every bad day of a store.
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>

#include <cstdio>
#include <thread>

#include "base/hash.h"
#include "runtime/remote/action_result.h"
#include "tests/remote/machine.h"

namespace tessera::testing {

namespace {

/// Asks for kernel 1 and 2 from a store that misbehaves: both are compiled, the first costs the limit at most, and the
/// store is not asked for the second.
void check_ends_tier(FullStore& server, const std::string& warning) {
  Machine reader(server);
  const auto cache = reader.open();
  const auto start = Clock::now();
  const auto entry = reader.get(*cache, 1);
  CHECK(Clock::now() - start < kLimit + milliseconds{400});
  CHECK(entry->image.cubin == server.entries[0]->image.cubin);
  CHECK(entry->tier == CacheTier::compiled);
  CHECK(reader.has_warned_of(warning));
  CHECK(reader.has_warned_of("it is not asked any more"));
  server.forget_asked();
  CHECK(reader.get(*cache, 2)->tier == CacheTier::compiled);
  CHECK(server.asked().empty());
  CHECK(reader.mine.calls == 2);
  CHECK(cache->stats().remote_hits == 0);
}

struct KeyPair {
  std::filesystem::path secret, open;
};

/// An ed25519 pair in PEM files, as `openssl genpkey` and `openssl pkey -pubout` write them.
KeyPair make_keys_in(const TemporaryFolder& folder, const std::string& name) {
  const KeyPair paths{folder / (name + ".pem"), folder / (name + ".pub")};
  EVP_PKEY* const key = EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519");
  REQUIRE(key != nullptr);
  std::FILE* file = std::fopen(paths.secret.c_str(), "w");
  PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(file);
  ::chmod(paths.secret.c_str(), 0600);
  file = std::fopen(paths.open.c_str(), "w");
  PEM_write_PUBKEY(file, key);
  std::fclose(file);
  EVP_PKEY_free(key);
  return paths;
}

}  // namespace

TEST_CASE("remote: an ActionResult's bytes are those of the API's wire format") {
  using remote::ActionResult;
  const std::string hash(64, 'a');
  const ActionResult result{.sha256 = hash, .bytes = 300, .note = "hi"};
  const std::string digest = "\x0a\x40" + hash + "\x10\xac\x02";
  const std::string file = std::string("\x0a\x0d") + "entry.tar.zst" + "\x12\x45" + digest;
  REQUIRE(digest.size() == 0x45);
  REQUIRE(file.size() == 86);
  CHECK(remote::to_bytes(result) == "\x12\x56" + file + "\x2a\x02hi");
  CHECK(remote::parse_action_result(remote::to_bytes(result)) == result);
  // A store adds exit_code and execution_metadata, say.
  CHECK(remote::parse_action_result("\x20\x01" + remote::to_bytes(result) + "\x4a\x03\x0a\x01w") == result);
  const std::string bytes = remote::to_bytes(result);
  for (std::size_t size = 0; size < 88; ++size) CHECK(!remote::parse_action_result(bytes.substr(0, size)));
  CHECK(!remote::parse_action_result(bytes + bytes));  // two files
  CHECK(!remote::parse_action_result("<html>"));
}

TEST_CASE("remote: what one machine compiles the others load, and compile nothing") {
  StoreServer server;
  Machine first(server, true), second(server), third(server);
  const auto made = first.get(1);
  CHECK(made->tier == CacheTier::compiled);
  CHECK(server.blobs().size() == 3);  // the blob, and two names of it
  for (const auto& [path, bytes] : server.blobs()) {
    CAPTURE(path);
    if (path.starts_with("cas/")) CHECK(path == "cas/" + sha256_hex(bytes));
    if (path.starts_with("ac/")) CHECK((path == "ac/" + made->keys.entry || path == "ac/" + made->keys.source));
  }
  const auto loaded = second.get(1);
  CHECK(loaded->tier == CacheTier::remote);
  CHECK(second.mine.calls == 0);
  CHECK(loaded->keys == made->keys);
  CHECK(loaded->plan_json == made->plan_json);
  CHECK(loaded->image.cubin == made->image.cubin);
  CHECK(loaded->read_ptx() == made->image.ptx);
  CHECK(loaded->image.report.entries.front().registers == 168);
  // It is in the folder from then on.
  server.forget_asked();
  CHECK(second.get(1)->tier == CacheTier::user);
  CHECK(server.asked().empty());
  // Without a folder it comes from the store each time.
  third.options.user_folder.clear();
  CHECK(third.get(1)->tier == CacheTier::remote);
  CHECK(third.get(1)->folder.empty());
  CHECK(third.warnings.empty());
  // Who may not write does not try.
  CHECK(third.get(2)->tier == CacheTier::compiled);
  for (const std::string& asked : server.asked()) CHECK(!asked.starts_with("PUT"));
}

TEST_CASE("remote: without a compiler the newest compiler's entry is served, in whatever order they were stored") {
  for (const bool newer_first : {true, false}) {
    StoreServer server;
    Machine older(server, true, 12), newer(server, true, 13), none(server);
    for (Machine* machine : newer_first ? std::vector{&newer, &older} : std::vector{&older, &newer}) {
      // Pinned, for else another compiler's entry would do.
      CacheRequest request = request_for(sample_bundle(1), &machine->mine);
      request.require_compiler = true;
      machine->open()->find_or_build(request, [&] { return machine->mine.compile(sample_bundle(1)); });
      CHECK(machine->mine.calls == 1);
    }
    const CacheRequest request = request_for(sample_bundle(1), nullptr);
    const auto found =
        none.open()->find_or_build(request, []() -> Image { throw Error(ErrorKind::io, "no compiler"); });
    CHECK(found->image.report.compiler.major_version == 13);
    // Who pins the compiler gets no other's.
    Machine pinned(server, false, 11);
    CacheRequest own = request_for(sample_bundle(1), &pinned.mine);
    own.require_compiler = true;
    const auto cache = pinned.open();
    const auto compiled = cache->find_or_build(own, [&] { return pinned.mine.compile(sample_bundle(1)); });
    CHECK(compiled->image.report.compiler.major_version == 11);
    CHECK(pinned.mine.calls == 1);
  }
}

TEST_CASE("remote: a look-up that may not compile asks no store") {
  FullStore server;
  Machine reader(server);
  CHECK(reader.open()->find(request_for(sample_bundle(1), &reader.mine)) == nullptr);
  CHECK(!reader.open()->contains(request_for(sample_bundle(1), &reader.mine)));
  CHECK(server.asked().empty());
  CHECK(reader.open()->remote_contains(request_for(sample_bundle(1), &reader.mine)) == true);
  CHECK(reader.open()->remote_contains(request_for(sample_bundle(3), &reader.mine)) == false);
}

TEST_CASE("remote: an entry of a folder is pushed once") {
  StoreServer server;
  Machine machine(server, true);
  {
    CacheOptions alone = machine.options;
    alone.remote = {};
    Cache cache(alone);
    const SourceBundle bundle = sample_bundle(1);
    cache.find_or_build(request_for(bundle, &machine.mine), [&] { return machine.mine.compile(bundle); });
  }
  const auto cache = machine.open();
  const CacheRequest request = request_for(sample_bundle(1), &machine.mine);
  CHECK(server.blobs().empty());
  CHECK(cache->push(request));
  CHECK(cache->push(request));
  CHECK(cache->stats().remote_stored == 1);
  CHECK(!cache->push(request_for(sample_bundle(2), &machine.mine)));
  Machine reader(server);
  CHECK(reader.get(1)->tier == CacheTier::remote);
}

TEST_CASE("remote: a reply cut at any byte loads nothing wrong") {
  // Each cut costs the time limit, in which nothing is computed: so many at a time.
  constexpr std::size_t kAtOnce = 16;
  std::atomic<int> wrong{0}, cuts{0};
  std::vector<std::thread> threads;
  for (std::size_t first = 0; first < kAtOnce; ++first) {
    threads.emplace_back([&wrong, &cuts, first] {
      FullStore server;
      const auto blobs = server.blobs();
      const std::string action = blobs.at("ac/" + server.entries[0]->keys.entry);
      const std::string blob = blobs.at("cas/" + remote::parse_action_result(action)->sha256);
      for (const bool cuts_blob : {false, true}) {
        for (std::size_t cut = first; cut < server.reply_bytes((cuts_blob ? blob : action).size()); cut += kAtOnce) {
          server.spoil([&](const StoreRequest& request, StoreReply& reply) {
            if (cuts_blob ? is_blob(request) : is_action(request)) reply.cut_at = cut;
          });
          Machine reader(server);
          reader.options.remote.time_limit = milliseconds{8};
          const auto entry = reader.get(1);
          ++cuts;
          if (entry->image.cubin != server.entries[0]->image.cubin || entry->tier != CacheTier::compiled) ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(cuts > 500);
}

TEST_CASE("remote: any bit of a blob or an ActionResult that changes is found") {
  FullStore server;
  const auto blobs = server.blobs();
  const std::string action = "ac/" + server.entries[0]->keys.entry;
  const std::string blob = "cas/" + remote::parse_action_result(blobs.at(action))->sha256;
  for (const std::string& path : {action, blob}) {
    const std::string whole = blobs.at(path);
    for (std::size_t at = 0; at < whole.size(); at += path == blob ? 53U : 1U) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
      server.set(path, changed);
      Machine reader(server);
      const auto entry = reader.get(1);
      CAPTURE(path);
      CAPTURE(at);
      CHECK(entry->image.cubin == server.entries[0]->image.cubin);
    }
    server.set(path, whole);
  }
}

TEST_CASE("remote: whatever fails or lies costs its time once, and is said") {
  FullStore server;
  const std::string first = server.entries[0]->keys.entry, second = server.entries[1]->keys.entry;
  using Spoil = std::function<void(const StoreRequest&, StoreReply&)>;
  const auto on_blob = [](const Spoil& how) -> Spoil {
    return [how](const StoreRequest& request, StoreReply& reply) {
      if (is_blob(request)) how(request, reply);
    };
  };
  const auto status = [](int code) -> Spoil {
    return [code](const StoreRequest&, StoreReply& reply) { reply = {.status = code, .headers = {}, .body = "sorry"}; };
  };
  struct Case {
    const char* what;
    Spoil spoil;
    std::string warning;
  };
  const Case cases[] = {
      {"500", status(500), server.says(500)},
      {"503", status(503), server.says(503)},
      {"403", status(403), server.says(403)},
      {"a blob that is forbidden", on_blob(status(401)), server.says(401)},
      {"a redirect",
       [&](const StoreRequest&, StoreReply& reply) {
         reply = {.status = 302, .headers = "Location: " + server.url() + "/else\r\n", .body = {}};
       },
       server.says(302)},
      {"no answer", [](const StoreRequest&, StoreReply& reply) { reply.delay = milliseconds{5000}; }, "imeout"},
      {"bytes that drip", [](const StoreRequest&, StoreReply& reply) { reply.between = milliseconds{20}; }, "imeout"},
      {"a blob that drips", on_blob([](const StoreRequest&, StoreReply& reply) { reply.between = milliseconds{5}; }),
       "imeout"},
      {"a page",
       [](const StoreRequest&, StoreReply& reply) { reply = {.status = 200, .headers = {}, .body = "<html>"}; },
       "is no ActionResult"},
      {"a huge answer",
       [](const StoreRequest&, StoreReply& reply) {
         reply = {.status = 200, .headers = {}, .body = std::string(std::size_t{1} << 20, 'x')};
       },
       "an answer of more than 65536 bytes"},
      {"a blob longer than it should be",
       on_blob([](const StoreRequest&, StoreReply& reply) { reply.body += std::string(100'000, 'x'); }),
       "an answer of more than"},
      {"a blob of other bytes", on_blob([](const StoreRequest&, StoreReply& reply) {
         reply.body.back() = static_cast<char>(~reply.body.back());
       }),
       "its bytes are not those of its name"},
      {"another kernel's ActionResult",
       [&](const StoreRequest& request, StoreReply& reply) {
         if (request.path == "ac/" + first) reply.body = server.blobs().at("ac/" + second);
       },
       "it is another kernel's entry"},
  };
  for (const Case& each : cases) {
    CAPTURE(each.what);
    server.spoil(each.spoil);
    check_ends_tier(server, each.warning);
  }
  server.stop();
  check_ends_tier(server, "onnect");
}

TEST_CASE("remote: a store that has lost a blob is asked again for the next") {
  FullStore server;
  const auto lost = remote::parse_action_result(server.blobs().at("ac/" + server.entries[0]->keys.entry));
  server.erase("cas/" + lost->sha256);
  Machine reader(server);
  const auto cache = reader.open();
  CHECK(reader.get(*cache, 1)->tier == CacheTier::compiled);
  CHECK(reader.get(*cache, 2)->tier == CacheTier::remote);
  CHECK(reader.warnings.empty());
  // The next machine that may write brings it back.
  Machine writer(server, true);
  CHECK(writer.get(1)->tier == CacheTier::compiled);
  CHECK(Machine(server).get(1)->tier == CacheTier::remote);
}

TEST_CASE("remote: a failure that passes is tried again within the limit") {
  FullStore server;
  std::atomic<int> left{2};
  server.spoil([&](const StoreRequest&, StoreReply& reply) {
    if (left.fetch_sub(1) > 0) reply = {.status = 503, .headers = {}, .body = {}};
  });
  Machine reader(server);
  reader.options.remote.time_limit = milliseconds{5000};
  CHECK(reader.get(1)->tier == CacheTier::remote);
  CHECK(reader.warnings.empty());
}

TEST_CASE("remote: a store that takes nothing more is still read") {
  for (const int status : {507, 413, 403, 405, 500}) {
    CAPTURE(status);
    FullStore server;
    server.spoil([&](const StoreRequest& request, StoreReply& reply) {
      if (request.method == "PUT") reply = {.status = status, .headers = {}, .body = {}};
    });
    Machine writer(server, true);
    const auto cache = writer.open();
    CHECK(writer.get(*cache, 3)->tier == CacheTier::compiled);
    CHECK(writer.has_warned_of("nothing more is stored there"));
    server.forget_asked();
    CHECK(writer.get(*cache, 4)->tier == CacheTier::compiled);
    for (const std::string& asked : server.asked()) CHECK(!asked.starts_with("PUT"));
    CHECK(writer.get(*cache, 1)->tier == CacheTier::remote);
    CHECK(cache->stats().remote_stored == 0);
  }
}

TEST_CASE("remote: signed entries load where their key is trusted, and nothing else does") {
  const TemporaryFolder folder;
  const KeyPair ours = make_keys_in(folder, "ours"), other = make_keys_in(folder, "other");
  StoreServer server;
  Machine writer(server, true), stranger(server, true), plain(server, true);
  writer.options.remote.signing_key = ours.secret;
  stranger.options.remote.signing_key = other.secret;
  const auto made = writer.get(1);
  stranger.get(2);
  plain.get(3);
  const auto tier_of = [&](int number, const std::filesystem::path& trusted, const std::string& warning) {
    Machine reader(server);
    reader.options.remote.trusted_keys = trusted;
    const CacheTier tier = reader.get(number)->tier;
    CHECK(reader.has_warned_of("--remote-trusted-keys") == (warning == "other"));
    CHECK(reader.has_warned_of("is not signed") == (warning == "none"));
    return tier;
  };
  CHECK(tier_of(1, {}, "") == CacheTier::remote);
  CHECK(tier_of(1, ours.open, "") == CacheTier::remote);
  CHECK(tier_of(2, ours.open, "other") == CacheTier::compiled);
  CHECK(tier_of(3, ours.open, "none") == CacheTier::compiled);
  // Two keys in one file: while one takes the other's place.
  write_file(folder / "both.pub", read_text(other.open) + read_text(ours.open));
  CHECK(tier_of(1, folder / "both.pub", "") == CacheTier::remote);
  CHECK(tier_of(2, folder / "both.pub", "") == CacheTier::remote);
  // A signature holds for its key alone.
  server.set("ac/" + request_for(sample_bundle(3), &plain.mine).keys.entry,
             server.blobs().at("ac/" + made->keys.entry));
  CHECK(tier_of(3, ours.open, "other") == CacheTier::compiled);
}

TEST_CASE("remote: keys and credentials that others may read, or that are none, are refused") {
  const TemporaryFolder folder;
  const KeyPair keys = make_keys_in(folder, "ours");
  StoreServer server;
  const auto refusal = [&](const std::function<void(RemoteOptions&)>& change) -> std::string {
    Machine machine(server);
    change(machine.options.remote);
    try {
      machine.open();
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  CHECK(refusal([](RemoteOptions&) {}).empty());
  CHECK(has(refusal([](RemoteOptions& o) { o.url = "http://user:secret@host/x"; }), "holds credentials"));
  CHECK(!has(refusal([](RemoteOptions& o) { o.url = "http://user:secret@host/x"; }), "secret"));
  CHECK(has(refusal([](RemoteOptions& o) { o.url = "ftp://host/x"; }), "scheme ftp"));
  CHECK(has(refusal([](RemoteOptions& o) { o.url = "host/x"; }), "no scheme"));
  CHECK(has(refusal([](RemoteOptions& o) { o.url = "http:///x"; }), "is no URL"));
  CHECK(has(refusal([](RemoteOptions& o) { o.url = "http://host/x?y"; }), "is no URL"));
  CHECK(has(refusal([&](RemoteOptions& o) { o.trusted_keys = folder / "none"; }), "cannot be read"));
  CHECK(has(refusal([&](RemoteOptions& o) { o.trusted_keys = keys.secret; }), "no public ed25519 key"));
  CHECK(has(refusal([&](RemoteOptions& o) { o.signing_key = keys.open; }), "others than its owner"));
  ::chmod(keys.open.c_str(), 0600);
  CHECK(has(refusal([&](RemoteOptions& o) { o.signing_key = keys.open; }), "no private ed25519 key"));
}

TEST_CASE("remote: credentials go with the requests, and into no message") {
  const TemporaryFolder folder;
  StoreServer server;
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  const std::filesystem::path file = folder / "credentials";
  const auto refusal = [&](const std::string& text, unsigned mode = 0600) -> std::string {
    write_file(file, text);
    ::chmod(file.c_str(), mode);
    Machine machine(server);
    machine.options.remote.credentials = file;
    try {
      machine.open();
    } catch (const Error& error) {
      CHECK(!has(error.what(), "s3cret"));
      return error.what();
    }
    return {};
  };
  const bool is_s3 = server.dialect() == Dialect::s3;
  const std::string good = server.dialect() == Dialect::http
                               ? "# a comment\nAuthorization: Bearer s3cret\n\nX-Team: kernels\n"
                           : is_s3 ? "[default]\naws_access_key_id = AKIDTEST\naws_secret_access_key=s3cret/other\n"
                                   : "username: reader\npassword: s3cret\n";
  CHECK(refusal(good).empty());
  CHECK(has(refusal(good, 0644), "chmod 600"));
  CHECK(has(refusal("s3cret\n"), "line 1"));
  if (is_s3) {
    CHECK(has(refusal("[other]\naws_access_key_id = a\naws_secret_access_key=s3cret\n"), "has no aws_access_key_id"));
    Machine none(server);
    none.options.remote.aws_secret_access_key.clear();
    CHECK_THROWS_WITH(none.open(), doctest::Contains("s3 needs credentials: AWS_ACCESS_KEY_ID"));
    none.options.remote.region.clear();
    CHECK_THROWS_WITH(none.open(), doctest::Contains("s3 needs a region"));
  }
  CHECK(refusal(good).empty());
  // The server of S3 refuses the file's key by itself.
  server.spoil([](const StoreRequest&, StoreReply& reply) { reply = {.status = 403, .headers = {}, .body = {}}; });
  Machine machine(server);
  machine.options.remote.credentials = file;
  machine.get(1);
  CHECK(machine.has_warned_of(is_s3 ? "HTTP 403 SignatureDoesNotMatch" : server.says(403)));
  CHECK(!machine.has_warned_of("s3cret"));
  if (server.dialect() == Dialect::http) {
    CHECK(has(server.headers().front(), "Authorization: Bearer s3cret"));
    CHECK(has(server.headers().front(), "X-Team: kernels"));
  }
  if (server.dialect() == Dialect::redis) CHECK(server.headers().front() == "AUTH reader s3cret");
}

TEST_CASE("remote: sixteen machines that start cold together end with the same bytes") {
  StoreServer server;
  std::vector<std::unique_ptr<Machine>> machines;
  for (int i = 0; i < 16; ++i) {
    machines.push_back(std::make_unique<Machine>(server, true));
    machines.back()->options.remote.time_limit = milliseconds{20'000};
  }
  std::vector<std::shared_ptr<const CacheEntry>> entries(machines.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < machines.size(); ++i) threads.emplace_back([&, i] { entries[i] = machines[i]->get(1); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& entry : entries) CHECK(entry->image.cubin == entries.front()->image.cubin);
  for (const auto& machine : machines) CHECK(machine->warnings.empty());
  CHECK(server.blobs().size() == 3);
  CHECK(Machine(server).get(1)->tier == CacheTier::remote);
}

TEST_CASE("remote: a stop ends a look-up at once") {
  FullStore server;
  server.spoil([](const StoreRequest&, StoreReply& reply) { reply.delay = milliseconds{30'000}; });
  Machine reader(server);
  reader.options.remote.time_limit = milliseconds{30'000};
  std::stop_source stop;
  CacheRequest request = request_for(sample_bundle(1), &reader.mine);
  request.stop = stop.get_token();
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds{100});
    stop.request_stop();
  });
  const auto start = Clock::now();
  const auto cache = reader.open();
  CHECK_THROWS_AS(cache->find_or_build(request, [&] { return reader.mine.compile(sample_bundle(1)); }),
                  WaitInterrupted);
  CHECK(Clock::now() - start < milliseconds{2'500});
  stopper.join();
  CHECK(reader.mine.calls == 0);
}

}  // namespace tessera::testing
