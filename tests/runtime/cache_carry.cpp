// Archives that come through pipes, and what killed exports leave.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <thread>

#include "tessera/cache_admin.h"
#include "tests/runtime/cache_fixture.h"

using namespace tessera;
using namespace tessera::testing;
namespace fs = std::filesystem;

namespace {

pid_t dead_process() {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(0);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return child;
}

/// Hands the bytes to a descriptor from a thread of its own.
std::thread feed(int descriptor, const std::string& bytes) {
  return std::thread([descriptor, bytes] {
    std::size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t put = ::write(descriptor, bytes.data() + done, bytes.size() - done);
      if (put <= 0) break;
      done += static_cast<std::size_t>(put);
    }
    ::close(descriptor);
  });
}

/// Stdin is a pipe that gives these bytes while `use` runs.
void with_stdin(const std::string& bytes, const std::function<void()>& use) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const int before = ::dup(STDIN_FILENO);
  REQUIRE(::dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
  ::close(ends[0]);
  const auto ignored = ::signal(SIGPIPE, SIG_IGN);
  std::thread writer = feed(ends[1], bytes);
  use();
  if (before >= 0) ::dup2(before, STDIN_FILENO);
  if (before < 0) ::close(STDIN_FILENO);
  if (before >= 0) ::close(before);
  writer.join();
  ::signal(SIGPIPE, ignored);
}

}  // namespace

TEST_CASE("cache carry: an archive comes through a pipe as well as from a file, a large one too") {
  Bench from;
  from.compiler.cubin_bytes = 3'000'000;
  from.compiler.ptx_bytes = 6'000'000;
  for (int i = 1; i <= 3; ++i) from.build(i);
  export_cache(from.options, from.folder / "archive");
  const std::string bytes = read_text(from.folder / "archive");
  CHECK(bytes.size() > 1'000'000);

  Bench by_stdin;
  with_stdin(bytes, [&] { CHECK(import_cache(by_stdin.options, "/dev/stdin").imported == 3); });
  CHECK(verify_cache(by_stdin.options).checked == 3);
  Bench by_name;
  const fs::path pipe = by_name.folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  std::thread writer([&] { feed(::open(pipe.c_str(), O_WRONLY | O_CLOEXEC), bytes).join(); });
  CHECK(import_cache(by_name.options, pipe).imported == 3);
  writer.join();
  CHECK(verify_cache(by_name.options).damaged.empty());

  // All or nothing holds there too.
  Bench cut;
  with_stdin(bytes.substr(0, bytes.size() - 1),
             [&] { CHECK_THROWS_AS(import_cache(cut.options, "/dev/stdin"), Error); });
  CHECK_FALSE(fs::exists(cut.options.user_folder));
  ArchiveLimits limits;
  limits.max_total_bytes = 1000;
  with_stdin(bytes, [&] { CHECK_THROWS_AS(import_cache(cut.options, "/dev/stdin", limits), Error); });
  CHECK_FALSE(fs::exists(cut.options.user_folder));
}

TEST_CASE("cache carry: stdin that is a file is read from where it stands, twice") {
  Bench from, to;
  from.build(1);
  export_cache(from.options, from.folder / "archive");
  write_file(from.folder / "with-head", "head" + read_text(from.folder / "archive"));
  const int before = ::dup(STDIN_FILENO);
  const int file = ::open((from.folder / "with-head").c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::dup2(file, STDIN_FILENO) == STDIN_FILENO);
  ::close(file);
  ::lseek(STDIN_FILENO, 4, SEEK_SET);
  CHECK(import_cache(to.options, "/dev/stdin").imported == 1);
  if (before >= 0) ::dup2(before, STDIN_FILENO);
  if (before >= 0) ::close(before);
}

TEST_CASE("cache carry: what a killed export left goes with the next one, and nothing else goes") {
  Bench bench;
  for (int i = 1; i <= 3; ++i) bench.build(i);
  const fs::path folder = bench.folder / "out", archive = folder / "kernels";
  fs::create_directories(folder);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    int opened = 0;
    auto hooks = std::make_shared<FileHooks>();
    hooks->before = [&](FileOperation operation, std::string_view path) {
      if (operation == FileOperation::open && path == kPtxFile && ++opened == 3) ::raise(SIGKILL);
      return 0;
    };
    bench.options.hooks = hooks;
    export_cache(bench.options, archive);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  // Nothing where files may be without a name.
  const int nameless = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  CHECK(Bench::count(folder) == (nameless >= 0 && fs::exists("/proc/self/fd") ? 0 : 1));
  if (nameless >= 0) ::close(nameless);

  const std::string dead = std::to_string(dead_process()), alive = std::to_string(::getppid());
  const auto partial = [&](const std::string& rest) { return folder / ("kernels.partial-" + rest); };
  write_file(partial(dead), "of an earlier version");
  write_file(partial(dead + "-0123abcd"), "x");
  std::vector<fs::path> kept = {partial(alive),
                                partial(alive + "-0123abcd"),
                                partial(dead + ".txt"),
                                partial(dead + "-0123abcd.txt"),
                                partial("x"),
                                partial(""),
                                partial("-1"),
                                folder / ("other.partial-" + dead),
                                folder / ("kernels.partial." + dead)};
  for (const fs::path& path : kept) write_file(path, "x");
  const fs::path locked = partial(dead + "-00000001");
  write_file(locked, "x");
  const int lock = ::open(locked.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(::flock(lock, LOCK_EX) == 0);
  kept.push_back(locked);
  const fs::path link = partial(dead + "-00000002"), nested = partial(dead + "-00000003");
  fs::create_symlink(bench.folder / "mine", link);
  write_file(bench.folder / "mine", "mine");
  fs::create_directory(nested);
  kept.push_back(nested);
  if (::geteuid() == 0) {
    const fs::path foreign = partial(dead + "-00000004");
    write_file(foreign, "x");
    REQUIRE(::chown(foreign.c_str(), 4343, 4343) == 0);
    kept.push_back(foreign);
  }
  CHECK(export_cache(bench.options, archive).entries == 3);
  CHECK(Bench::count(folder) == kept.size() + 2);  // the archive and the link
  for (const fs::path& path : kept) CHECK_MESSAGE(fs::exists(path), path);
  CHECK(fs::is_symlink(link));
  CHECK(read_text(bench.folder / "mine") == "mine");
  ::close(lock);
}

TEST_CASE("cache carry: an import that cannot write always says why") {
  Bench from;
  from.build(1);
  export_cache(from.options, from.folder / "archive");
  // v1 goes away from the n-th time on that it is opened.
  for (int first = 0; first < 40; ++first) {
    CAPTURE(first);
    Bench to;
    int opened = 0;
    auto hooks = std::make_shared<FileHooks>();
    hooks->before = [&](FileOperation operation, std::string_view path) {
      return operation == FileOperation::open && path == "v1" && opened++ >= first ? ENOENT : 0;
    };
    to.options.hooks = hooks;
    try {
      import_cache(to.options, from.folder / "archive");
    } catch (const Error& error) {
      const std::string message = error.what();
      CHECK_MESSAGE(message.find("then: cache folder ") != std::string::npos, message);
    }
  }
}
