// Jit and kernels that are merged by another one: what is compiled, shared and kept of it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "base/file.h"
#include "tests/support/jit_fixture.h"

namespace tessera {
namespace {

using jit_test::CountingCompiler, jit_test::dealt, jit_test::error_of, jit_test::Fixture, jit_test::is_merge,
    jit_test::merge_of;

/// Sizes of pages, each another kernel with the same merge.
constexpr const char* kPages[] = {"8", "16", "32", "64"};

TEST_CASE("jit: kernels of one output share the kernel that merges, each has it in its entry") {
  const Fixture fixture;
  const Problem a = dealt("16"), b = dealt("64"), wide = dealt("16", "256");
  REQUIRE(merge_of(a) == merge_of(b));
  REQUIRE(merge_of(a) != merge_of(wide));
  const auto jit = fixture.jit();
  const auto first = jit->kernel(a);
  CHECK(fixture.compiler->compiles == 2);
  const CacheEntry& entry = first->entry();
  CHECK(entry.image.ptx == "// " + first->plan().kernel);
  CHECK(entry.image.merge.ptx == "// " + merge_of(a));
  CHECK(entry.image.merge.cubin.size() == 64);
  REQUIRE(entry.image.report.entries.size() == 2);
  CHECK(entry.image.report.entries[1].name == merge_of(a));
  CHECK(entry.image.report.compile_ms >= 1);
  CHECK(entry.image.report.compile_ms < 1000);
  const auto second = jit->kernel(b);
  CHECK(fixture.compiler->compiles == 3);
  CHECK(second->entry().image.merge.ptx == entry.image.merge.ptx);
  jit->kernel(wide);
  CHECK(fixture.compiler->compiles == 5);
  CHECK(jit->stats().cache.compiles == 5);
  // Another process finds both parts in the kernel's own entry.
  const auto other = fixture.jit();
  const CacheEntry& found = other->kernel(a)->entry();
  CHECK(found.tier == CacheTier::user);
  CHECK(found.image.merge.cubin == entry.image.merge.cubin);
  CHECK(found.whole_image().merge.ptx == entry.image.merge.ptx);
  CHECK(fixture.compiler->compiles == 5);
  // Options reach the merge.
  fixture.jit({.nvrtc_options = {"--use_fast_math"}})->kernel(a);
  CHECK(fixture.compiler->compiles == 7);
}

TEST_CASE("jit: a cache that has the merge and not the kernel, the kernel and not the merge, a damaged merge") {
  const Fixture fixture;
  const Problem a = dealt("16"), b = dealt("64");
  fixture.jit()->kernel(a);
  const auto entries = [&] { return list_cache(fixture.jit()->cache().options()); };
  REQUIRE(entries().size() == 2);
  const auto remove_those = [&](bool merges) {
    for (const CacheListing& entry : entries())
      if (is_merge(entry) == merges) std::filesystem::remove_all(entry.folder);
  };
  // The merge alone: the kernel is compiled.
  remove_those(false);
  fixture.compiler->compiled.clear();
  CHECK(fixture.jit()->check({&a, 1}).front().tier == std::nullopt);
  fixture.jit()->kernel(a);
  CHECK(fixture.compiler->compiled == std::vector<std::string>{planned_kernel(a)});
  // The kernel alone: nothing is.
  remove_those(true);
  fixture.compiler->compiled.clear();
  CHECK(fixture.jit()->check({&a, 1}).front().tier == CacheTier::user);
  CHECK(fixture.jit({.policy = CompilePolicy::forbid})->kernel(a)->entry().image.merge.cubin.size() == 64);
  CHECK(fixture.compiler->compiled.empty());
  // Neither for another one.
  fixture.jit()->kernel(b);
  CHECK(fixture.compiler->compiled.size() == 2);
  // A damaged merge is compiled again; who has its own does not look at it.
  for (const CacheListing& entry : entries())
    if (is_merge(entry)) write_file(entry.folder / "kernel.cubin", "damaged");
  fixture.compiler->compiled.clear();
  fixture.jit()->kernel(a);
  CHECK(fixture.compiler->compiled.empty());
  const Problem c = dealt("32");
  REQUIRE(merge_of(c) == merge_of(a));
  const auto jit = fixture.jit();
  CHECK(jit->kernel(c)->entry().image.merge.cubin.size() == 64);
  CHECK(fixture.compiler->compiled.size() == 2);
  CHECK(jit->stats().cache.quarantined == 1);
}

TEST_CASE("jit: two threads that want two kernels of one merge compile it once") {
  const Fixture fixture;
  fixture.compiler->delay_ms = 50;
  const auto jit = fixture.jit();
  {
    std::vector<std::jthread> threads;
    for (const char* const page : {"8", "16", "32", "64"})
      threads.emplace_back([&, page] { jit->kernel(dealt(page)); });
  }
  CHECK(fixture.compiler->compiles == 5);
  // Of a list likewise, which counts kernels alone.
  const Fixture other;
  const std::vector<Problem> problems{dealt("8"), dealt("16"), dealt("32"), dealt("64")};
  const WarmReport report = other.jit()->warm(problems, {.jobs = 4});
  CHECK(report.compiled == 4);
  CHECK(report.entries.front().registers == 168);
  CHECK(other.compiler->compiles == 5);
}

TEST_CASE("jit: without a folder kernels share a merge in memory") {
  const auto compiler = std::make_shared<CountingCompiler>();
  Jit jit({.use_disk_cache = false});
  jit.set_compiler(compiler);
  jit.kernel(dealt("16"));
  CHECK(jit.kernel(dealt("64"))->entry().image.merge.cubin.size() == 64);
  CHECK(compiler->compiles == 3);
}

TEST_CASE("jit: a merge that does not compile is the kernel's failure, and is tried again") {
  const Fixture fixture;
  const Problem a = dealt("16");
  const auto jit = fixture.jit();
  fixture.compiler->fail_on = "_merge";
  CHECK(error_of([&] { jit->kernel(a); }).kind() == ErrorKind::compile);
  CHECK(list_cache(jit->cache().options()).empty());
  fixture.compiler->fail_on.clear();
  CHECK_NOTHROW(jit->kernel(a));
  CHECK(fixture.compiler->compiles == 4);
  // The kernel's failure leaves the merge, which is whole.
  const Fixture other;
  other.compiler->fail_on = planned_kernel(a);
  CHECK(error_of([&] { other.jit()->kernel(a); }).kind() == ErrorKind::compile);
  REQUIRE(list_cache(other.jit()->cache().options()).size() == 1);
  other.compiler->fail_on.clear();
  other.compiler->compiled.clear();
  other.jit()->kernel(a);
  CHECK(other.compiler->compiled == std::vector<std::string>{planned_kernel(a)});
}

// Each of them wants another kernel, all of them the same merge: whoever is first compiles it.
void check_one_merge(const std::vector<std::string>& compiled) {
  std::vector<std::string> wanted{merge_of(dealt("8"))};
  for (const char* const page : kPages) wanted.push_back(planned_kernel(dealt(page)));
  std::vector<std::string> sorted = compiled;
  std::sort(sorted.begin(), sorted.end());
  std::sort(wanted.begin(), wanted.end());
  CHECK(sorted == wanted);
}

TEST_CASE("jit: several Jits on one folder that want one merge at once compile it once") {
  const Fixture fixture;
  fixture.compiler->delay_ms = 50;
  std::vector<std::unique_ptr<Jit>> jits;
  for (std::size_t i = 0; i < std::size(kPages); ++i) jits.push_back(fixture.jit());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < jits.size(); ++i) threads.emplace_back([&, i] { jits[i]->kernel(dealt(kPages[i])); });
  }
  check_one_merge(fixture.compiler->compiled);
  for (std::size_t i = 0; i < jits.size(); ++i) {
    const CacheEntry& entry = jits[i]->kernel(dealt(kPages[i]))->entry();
    CHECK(entry.whole_image().merge.ptx == "// " + merge_of(dealt("8")));
  }
  CHECK(list_cache(jits[0]->cache().options()).size() == 5);
}

TEST_CASE("jit: several processes on one folder that want one merge at once compile it once") {
  const Fixture fixture;
  fixture.compiler->log = fixture.folder / "compiles";
  fixture.compiler->delay_ms = 50;
  int gate[2];
  REQUIRE(::pipe(gate) == 0);
  std::vector<pid_t> children;
  for (const char* const page : kPages) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int code = 99;
      try {
        ::close(gate[1]);
        char byte = 0;
        const auto jit = fixture.jit();
        if (::read(gate[0], &byte, 1) == 0)  // ends when the parent closes its side
          code = jit->kernel(dealt(page))->entry().whole_image().merge.ptx == "// " + merge_of(dealt(page)) ? 0 : 1;
      } catch (...) {
      }
      ::_exit(code);
    }
    children.push_back(child);
  }
  ::close(gate[0]);
  ::close(gate[1]);
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  std::ifstream log(fixture.compiler->log);
  std::vector<std::string> compiled;
  for (std::string line; std::getline(log, line);) compiled.push_back(line);
  check_one_merge(compiled);
  // Each has it in its own entry: a process that may not compile finds all.
  const auto jit = fixture.jit({.policy = CompilePolicy::forbid});
  for (const char* const page : kPages) CHECK(jit->kernel(dealt(page))->entry().image.merge.cubin.size() == 64);
}

}  // namespace
}  // namespace tessera
