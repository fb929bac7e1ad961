#include "runtime/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "tessera/error.h"

namespace tessera {

namespace {

/// A file without a name: it goes with the process.
int open_unnamed(const std::filesystem::path& folder) {
  const int unnamed = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (unnamed >= 0) return unnamed;
  std::string name = (folder / "tessera-import-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

std::filesystem::path temporary_folder() {
  std::error_code code;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(code);
  return code ? std::filesystem::path("/tmp") : folder;
}

}  // namespace

void InputFile::fail(const std::filesystem::path& path, const char* what, const char* remedy) {
  has_failed_ = true;
  throw Error(ErrorKind::io, fmt::format("{}: {}: {}{}", path.string(), what, std::strerror(errno), remedy));
}

InputFile::InputFile(const std::filesystem::path& path, std::int64_t max_bytes) : path_(path), max_bytes_(max_bytes) {
  descriptor_ =
      path == "/dev/stdin" ? ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3) : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) fail(path, "cannot be opened for reading");
  struct stat found {};
  const bool is_known = ::fstat(descriptor_, &found) == 0;
  if (is_known && S_ISDIR(found.st_mode)) {
    ::close(descriptor_);
    errno = EISDIR;
    fail(path, "cannot be opened for reading");
  }
  start_ = is_known && S_ISREG(found.st_mode) ? ::lseek(descriptor_, 0, SEEK_CUR) : -1;
  if (start_ >= 0) return;
  kept_ = open_unnamed(temporary_folder());
  if (kept_ >= 0) return;
  const int fault = errno;
  ::close(descriptor_);
  errno = fault;
  fail(temporary_folder(), "no temporary file can be made", "; set TMPDIR, or import from a file");
}

InputFile::~InputFile() {
  for (const int each : {descriptor_, kept_})
    if (each >= 0) ::close(each);
}

std::size_t InputFile::read(std::span<std::byte> to) {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t got = ::read(descriptor_, to.data() + done, to.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "cannot be read");
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  if (kept_ >= 0) keep(to.first(done));
  return done;
}

void InputFile::keep(std::span<const std::byte> bytes) {
  kept_bytes_ += static_cast<std::int64_t>(bytes.size());
  if (kept_bytes_ > max_bytes_) {
    has_failed_ = true;
    throw Error(ErrorKind::io, fmt::format("{}: more than {} bytes: no more are read", path_.string(), max_bytes_));
  }
  while (!bytes.empty()) {
    const ssize_t put = ::write(kept_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(temporary_folder(), "cannot be written", "; set TMPDIR, or import from a file");
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void InputFile::rewind() {
  if (kept_ >= 0) {
    ::close(descriptor_);
    descriptor_ = kept_;
    kept_ = -1;
    start_ = 0;
  }
  if (::lseek(descriptor_, start_, SEEK_SET) < 0) fail(path_, "cannot be read again");
}

}  // namespace tessera
