// Jit over a store that several machines share: kernels that are merged by another one.
#include "tests/remote/machine.h"
#include "tests/support/jit_fixture.h"

namespace tessera::testing {
namespace {

using jit_test::dealt, jit_test::merge_of;

/// A machine: a folder and a compiler of its own.
struct JitMachine : jit_test::Fixture {
  std::unique_ptr<Jit> open(const StoreServer& server, bool is_written) const {
    JitOptions options;
    server.add_to(options.remote);
    options.remote.is_written = is_written;
    options.remote.time_limit = milliseconds{20'000};
    return jit(std::move(options));
  }
};

TEST_CASE("remote: a Jit finds a kernel with its merge in the store, and the merge for another kernel") {
  StoreServer server;
  const JitMachine writer;
  const Problem a = dealt("16"), b = dealt("64");
  REQUIRE(merge_of(a) == merge_of(b));
  const Image image = writer.open(server, true)->kernel(a)->entry().whole_image();
  CHECK(writer.compiler->compiles == 2);
  const JitMachine reader;
  {
    const auto jit = reader.open(server, false);
    const CacheEntry& found = jit->kernel(a)->entry();
    CHECK(found.tier == CacheTier::remote);
    CHECK(found.image.merge.cubin == image.merge.cubin);
    CHECK(found.whole_image().merge.ptx == image.merge.ptx);
    CHECK(found.whole_image().ptx == image.ptx);
    CHECK(reader.compiler->compiles == 0);
    // Another kernel of the same output: its merge comes from the store.
    const CacheEntry& other = jit->kernel(b)->entry();
    CHECK(reader.compiler->compiled == std::vector<std::string>{planned_kernel(b)});
    CHECK(other.image.merge.cubin == image.merge.cubin);
    CHECK(jit->stats().cache.remote_hits == 2);
  }
  // The folder has all of it now, and asks nobody.
  server.forget_asked();
  const auto jit = reader.open(server, false);
  CHECK(jit->kernel(a)->entry().tier == CacheTier::user);
  CHECK(jit->kernel(b)->entry().whole_image().merge.ptx == image.merge.ptx);
  CHECK(server.asked().empty());
}

TEST_CASE("remote: a store that lost a kernel or its merge, or has damaged ones") {
  const Problem a = dealt("16"), b = dealt("64");
  using Names = std::vector<std::string>;
  StoreServer server;
  const JitMachine writer;
  const auto of_writer = writer.open(server, true);
  of_writer->kernel(a);
  const std::map<std::string, std::string> whole = server.blobs();
  const auto lose = [&](bool merges) {
    for (const CacheListing& entry : list_cache(of_writer->cache().options()))
      if (jit_test::is_merge(entry) == merges)
        for (const std::string& key : {entry.keys.entry, entry.keys.source}) server.erase("ac/" + key);
  };
  const auto restore = [&] {
    for (const auto& [path, bytes] : whole) server.set(path, bytes);
  };
  // Without the merge the kernel is whole, and another one's merge is compiled.
  lose(true);
  REQUIRE(server.blobs().size() < whole.size());
  {
    const JitMachine reader;
    const auto jit = reader.open(server, false);
    CHECK(jit->kernel(a)->entry().image.merge.cubin.size() == 64);
    CHECK(reader.compiler->compiles == 0);
    jit->kernel(b);
    CHECK(reader.compiler->compiles == 2);
  }
  // Without the kernel it alone is compiled.
  restore();
  lose(false);
  {
    const JitMachine reader;
    const auto jit = reader.open(server, false);
    CHECK(jit->kernel(a)->entry().image.merge.cubin.size() == 64);
    CHECK(reader.compiler->compiled == Names{planned_kernel(a)});
  }
  // What is not what its digest says counts as not there: both are compiled.
  restore();
  for (const auto& [path, bytes] : whole)
    if (path.starts_with("cas/")) server.set(path, bytes + " ");
  const JitMachine reader;
  const auto jit = reader.open(server, false);
  const CacheEntry& entry = jit->kernel(a)->entry();
  CHECK(entry.tier == CacheTier::compiled);
  CHECK(entry.whole_image().merge.ptx == "// " + merge_of(a));
  CHECK(reader.compiler->compiles == 2);
}

}  // namespace
}  // namespace tessera::testing
