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
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "runtime/cache_files.h"

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
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  const bool is_in_place = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (std::filesystem::is_regular_file(status)) path_ = std::filesystem::canonical(path);
  if (is_in_place) {
    descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
  } else {
    std::random_device random;
    remove_left_behind(path_);
    partial_ = fmt::format("{}{}{}-{:08x}", path_.string(), kInfix, ::getpid(), random());
    descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor_ >= 0) ::flock(descriptor_, LOCK_EX | LOCK_NB);  // a file system without locks does without
  }
  if (descriptor_ < 0) fail("cannot be opened for writing");
}

OutputFile::~OutputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!partial_.empty()) ::unlink(partial_.c_str());
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
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 || (!partial_.empty() && std::rename(partial_.c_str(), path_.c_str()) != 0))
    fail("cannot be written");
  partial_.clear();
}

}  // namespace tessera
