#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>

#include "tessera/error.h"

namespace tessera {

FileReader::FileReader(const std::filesystem::path& path) : path_(path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    throw Error(ErrorKind::io, fmt::format("{}: is a folder", path.string()));
  errno = 0;
  in_.open(path, std::ios::binary);
  if (!in_)
    throw Error(ErrorKind::io,
                fmt::format("{}: cannot be opened for reading: {}", path.string(), std::strerror(errno)));
}

std::size_t FileReader::read(std::span<std::byte> to) {
  in_.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size()));
  if (in_.bad())
    throw Error(ErrorKind::io, fmt::format("{}: cannot be read: {}", path_.string(), std::strerror(errno)));
  return static_cast<std::size_t>(in_.gcount());
}

namespace {

template <class Container>
Container read_all(const std::filesystem::path& path, std::size_t max_bytes) {
  FileReader in(path);
  Container bytes;
  std::byte buffer[1 << 16];
  while (const std::size_t count = in.read(buffer)) {
    if (count > max_bytes - bytes.size())
      throw Error(ErrorKind::usage,
                  fmt::format("{}: has more than {} bytes, and no more are read", path.string(), max_bytes));
    const auto* first = reinterpret_cast<const typename Container::value_type*>(buffer);
    bytes.insert(bytes.end(), first, first + count);
  }
  return bytes;
}

[[noreturn]] void fail_to_write(const std::filesystem::path& path, const char* what) {
  throw Error(ErrorKind::io, fmt::format("{}: cannot be {}: {}", path.string(), what, std::strerror(errno)));
}

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t put = write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
  return true;
}

void write_to_descriptor(int descriptor, const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const int copy = copy_for_writing(descriptor);
  if (copy < 0) fail_to_write(path, "opened for writing");
  std::fflush(nullptr);  // what the process printed so far comes first
  const bool is_written = write_all(copy, bytes);
  const int fault = errno;
  const bool is_closed = close(copy) == 0;
  if (!is_written) errno = fault;
  if (!is_written || !is_closed) fail_to_write(path, "written");
}

void write_in_place(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) fail_to_write(path, "opened for writing");
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) fail_to_write(path, "written");
}

// Writes a file beside `path` and renames it, so that what was there stays until all is written. False where that
// cannot be done: devices, pipes and links are written in place, and so is a file in a folder that takes no other.
bool replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status before = fs::symlink_status(path, code);
  const bool is_new = before.type() == fs::file_type::not_found;
  if (!is_new && (before.type() != fs::file_type::regular || access(path.c_str(), W_OK) != 0)) return false;
  // A new file: what somebody else put under the name, a link above all, is neither followed nor emptied.
  static std::atomic<unsigned> number{0};
  fs::path aside;
  int descriptor = -1;
  for (int attempt = 0; attempt < 100 && descriptor < 0; ++attempt) {
    aside = path;
    aside += fmt::format(".{}.{}.new", getpid(), number.fetch_add(1));
    descriptor = open(aside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno != EEXIST) return false;
  }
  if (descriptor < 0) return false;
  bool is_written = write_all(descriptor, bytes);
  if (is_written && !is_new) fchmod(descriptor, static_cast<mode_t>(before.permissions()));
  int fault = errno;
  if (close(descriptor) != 0 && is_written) {
    is_written = false;
    fault = errno;
  }
  if (!is_written) {
    fs::remove(aside, code);
    throw Error(ErrorKind::io, fmt::format("{}: cannot be written: {}", path.string(), std::strerror(fault)));
  }
  fs::rename(aside, path, code);
  if (!code) return true;
  fs::remove(aside, code);
  return false;
}

}  // namespace

std::string read_text(const std::filesystem::path& path, std::size_t max_bytes) {
  return read_all<std::string>(path, max_bytes);
}

std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  return read_all<std::vector<std::byte>>(path, std::numeric_limits<std::size_t>::max());
}

std::optional<int> descriptor_named(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  const std::string own = fmt::format("/proc/{}/fd/", getpid());
  fs::path place = path;
  for (int links = 0; links < 40; ++links) {
    const std::string name = place.lexically_normal().string();
    if (name == "/dev/stdin") return STDIN_FILENO;
    if (name == "/dev/stdout") return STDOUT_FILENO;
    if (name == "/dev/stderr") return STDERR_FILENO;
    for (const std::string_view folder : {"/dev/fd/", "/proc/self/fd/", "/proc/thread-self/fd/", own.c_str()}) {
      if (!name.starts_with(folder)) continue;
      const char* const first = name.data() + folder.size();
      const char* const end = name.data() + name.size();
      int number = -1;
      const auto [rest, fault] = std::from_chars(first, end, number);
      if (fault == std::errc() && rest == end && number >= 0) return number;
    }
    std::error_code code;
    if (!fs::is_symlink(fs::symlink_status(place, code))) return {};
    const fs::path target = fs::read_symlink(place, code);
    if (code) return {};
    place = target.is_absolute() ? target : place.parent_path() / target;
  }
  return {};
}

int copy_for_writing(int descriptor) noexcept {
  const int flags = fcntl(descriptor, F_GETFL);
  if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY) errno = EBADF;
  return flags < 0 || (flags & O_ACCMODE) == O_RDONLY ? -1 : fcntl(descriptor, F_DUPFD_CLOEXEC, 3);
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  if (const std::optional<int> descriptor = descriptor_named(path))
    write_to_descriptor(*descriptor, path, bytes);
  else if (!replace_file(path, bytes))
    write_in_place(path, bytes);
}

}  // namespace tessera
