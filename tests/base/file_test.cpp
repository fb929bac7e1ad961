// Files that are written: what was there stays until all of the new text is there; text as words of a shell.
#include "base/file.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/shell.h"
#include "tessera/error.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// No file may grow beyond `bytes` while this lives.
struct SizeLimit {
  rlimit before{};
  explicit SizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
    rlimit limit = before;
    limit.rlim_cur = bytes;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~SizeLimit() { setrlimit(RLIMIT_FSIZE, &before); }
  SizeLimit(const SizeLimit&) = delete;
  SizeLimit& operator=(const SizeLimit&) = delete;
};

std::size_t files_in(const fs::path& folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder)) ++count;
  return count;
}

TEST_CASE("the name of an open descriptor is written from where that stands") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path / "results";
  const int descriptor = open(file.c_str(), O_WRONLY | O_CREAT, 0600);
  REQUIRE(descriptor >= 0);
  REQUIRE(write(descriptor, "before\n", 7) == 7);
  const std::string number = std::to_string(descriptor);
  const fs::path link = folder.path / "link";
  fs::create_symlink("/dev/fd/" + number, link);
  for (const fs::path& name : {fs::path("/dev/fd/" + number), fs::path("/proc/self/fd/" + number),
                               fs::path("/proc/" + std::to_string(getpid()) + "/fd/" + number), link}) {
    CHECK(descriptor_named(name) == descriptor);
    write_file(name, "text\n");
  }
  REQUIRE(write(descriptor, "behind\n", 7) == 7);
  close(descriptor);
  CHECK(read_text(file) == "before\ntext\ntext\ntext\ntext\nbehind\n");
  CHECK(fs::is_symlink(link));
  CHECK_THROWS_WITH_AS(write_file("/dev/fd/" + number, "text"),
                       ("/dev/fd/" + number + ": cannot be opened for writing: Bad file descriptor").c_str(), Error);
  const int for_reading = open(file.c_str(), O_RDONLY);
  CHECK_THROWS_AS(write_file("/dev/fd/" + std::to_string(for_reading), "text"), Error);
  close(for_reading);
  CHECK(descriptor_named("/dev/stdout") == STDOUT_FILENO);
  CHECK(descriptor_named("/dev/../dev/stderr") == STDERR_FILENO);
  for (const char* const other : {"/dev/null", "/dev/fd", "/dev/fd/", "/dev/fd/1x", "/dev/fd/-1", "stdout", "/nowhere"})
    CHECK_FALSE(descriptor_named(other));
}

TEST_CASE("a file that cannot be written whole leaves the old one, and nothing beside it") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path / "old";
  write_file(file, "what was there");
  std::string message;
  {
    const SizeLimit limit(64 * 1024);
    try {
      write_file(file, std::string(200'000, 'x'));
    } catch (const Error& error) {
      message = error.what();
    }
  }
  CHECK(message.starts_with(file.string() + ": cannot be written: "));
  CHECK(read_text(file) == "what was there");
  CHECK(files_in(folder.path) == 1);
}

TEST_CASE("a file that is replaced keeps its mode; what a link leads to is written, the link stays") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path / "script", link = folder.path / "link";
  write_file(file, "1");
  fs::permissions(file, fs::perms::owner_all);
  write_file(file, "2");
  CHECK(fs::status(file).permissions() == fs::perms::owner_all);
  fs::create_symlink("script", link);
  write_file(link, "3");
  CHECK(fs::is_symlink(link));
  CHECK(read_text(file) == "3");
  CHECK(files_in(folder.path) == 2);
  CHECK_NOTHROW(write_file("/dev/null", "4"));
  CHECK(fs::is_character_file("/dev/null"));
}

TEST_CASE("a file is written beside its place as a new one, whatever waits there under a name that could be guessed") {
  const testing::TemporaryFolder folder;
  const fs::path file = folder.path / "file", mine = folder.path / "mine";
  write_file(mine, "mine");
  // The number that comes next is not known here: of those that may come, each is a link.
  for (int i = 0; i < 50; ++i)
    fs::create_symlink(mine, folder.path / ("file." + std::to_string(getpid()) + "." + std::to_string(i) + ".new"));
  write_file(file, "text");
  CHECK(read_text(mine) == "mine");
  CHECK(read_text(file) == "text");
  CHECK(fs::is_regular_file(fs::symlink_status(file)));
  CHECK(files_in(folder.path) == 52);
}

TEST_CASE("a word of a shell is in quotes where it must be") {
  CHECK(shell_word("a/b-1.cu") == "a/b-1.cu");
  CHECK(shell_word("my kernel.cu") == "'my kernel.cu'");
  CHECK(shell_word("it's") == "'it'\\''s'");
  CHECK(shell_word("") == "''");
  CHECK(shell_quoted("plain") == "'plain'");
}

}  // namespace
}  // namespace tessera
