#include "runtime/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "base/file.h"
#include "runtime/cache_files.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr std::string_view kInfix = ".partial-";

/// The process that NAME.partial-PID or NAME.partial-PID-RANDOM was written by; 0 where the name is none of these.
pid_t writer_of(std::string_view name, const std::string& target) {
  if (!name.starts_with(target) || !name.substr(target.size()).starts_with(kInfix)) return 0;
  name.remove_prefix(target.size() + kInfix.size());
  pid_t pid = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, fault] = std::from_chars(name.data(), end, pid);
  const std::string_view random(rest, static_cast<std::size_t>(end - rest));
  const bool is_ours = random.empty() || (random.size() == 9 && random[0] == '-' &&
                                          random.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos);
  return fault == std::errc() && pid > 0 && is_ours ? pid : 0;
}

std::string path_of(int descriptor) { return fmt::format("/proc/self/fd/{}", descriptor); }

void remove_left_behind(const std::filesystem::path& path) {
  const std::filesystem::path parent = path.has_parent_path() ? path.parent_path() : ".";
  const Files files;
  const Descriptor folder(files, files.open_root(parent.string()));
  std::vector<std::string> names;
  files.list(folder.get(), ".", names);
  for (const std::string& name : names) {
    const pid_t pid = writer_of(name, path.filename().string());
    if (pid == 0 || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
    const Descriptor left(files, files.open_file(folder.get(), name));
    FileStatus found;
    if (files.status(left.get(), found) != 0 || !found.is_file || found.owner != files.effective_user()) continue;
    // A process of another container or machine is not seen here, but its lock is.
    if (::flock(left.get(), LOCK_EX | LOCK_NB) == 0) files.remove_file(folder.get(), name);
  }
}

}  // namespace

void OutputFile::fail(const char* what) const {
  throw Error(ErrorKind::io, fmt::format("{}: {}: {}", named_.string(), what, std::strerror(errno)));
}

OutputFile::OutputFile(const std::filesystem::path& path) : named_(path), path_(path) {
  if (const std::optional<int> open = descriptor_named(path)) {
    descriptor_ = copy_for_writing(*open);
    if (descriptor_ < 0) fail("cannot be opened for writing");
    return;
  }
  std::error_code fault;
  const std::filesystem::file_status status = std::filesystem::status(path, fault);
  const auto fails = [&](const std::error_code& why) {
    errno = why.value();
    fail("cannot be opened for writing");
  };
  if (!std::filesystem::status_known(status)) fails(fault);
  const bool is_there = std::filesystem::exists(status);
  // A link to nothing is nobody's name for a new file: a rename would put one in the link's place.
  if (!is_there && std::filesystem::is_symlink(std::filesystem::symlink_status(path, fault)))
    fails(std::make_error_code(std::errc::no_such_file_or_directory));
  if (std::filesystem::is_regular_file(status)) {
    path_ = std::filesystem::canonical(path, fault);
    if (fault) fails(fault);
  }
  if (is_there && !std::filesystem::is_regular_file(status)) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    std::random_device random;
    remove_left_behind(path_);
    partial_ = fmt::format("{}{}{}-{:08x}", path_.string(), kInfix, ::getpid(), random());
    open_nameless();
    if (has_name_) descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX | LOCK_NB);  // a file system without locks does without
  }
  if (descriptor_ < 0) fail("cannot be opened for writing");
}

// A file that gets its name at the end. Not every file system has such files, nor every process /proc.
void OutputFile::open_nameless() {
  const std::filesystem::path parent = path_.has_parent_path() ? path_.parent_path() : ".";
  descriptor_ = ::open(parent.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
  if (descriptor_ < 0) return;
  has_name_ = ::access(path_of(descriptor_).c_str(), F_OK) != 0;
  if (!has_name_) return;
  ::close(descriptor_);
  descriptor_ = -1;
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!partial_.empty() && has_name_) ::unlink(partial_.c_str());
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(descriptor_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail("cannot be written");
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
}

void OutputFile::finish() {
  if (!has_name_) {
    if (::linkat(AT_FDCWD, path_of(descriptor_).c_str(), AT_FDCWD, partial_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      fail("cannot be written");
    has_name_ = true;
  }
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || (!partial_.empty() && std::rename(partial_.c_str(), path_.c_str()) != 0))
    fail("cannot be written");
  partial_.clear();
}

}  // namespace tessera
