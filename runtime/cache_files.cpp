// Each call: the hook first, then the system call, the result as a number. Reading and writing go on after an
// interrupt. Messages are made by whoever knows what the call was for.
#include "runtime/cache_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>

namespace tessera {

static_assert(Files::kWorkingFolder == AT_FDCWD);

namespace {
int result_of(int value) { return value < 0 ? -errno : value; }

constexpr std::int64_t kNanoseconds = 1'000'000'000;

FileStatus convert(const struct stat& from) {
  FileStatus to;
  to.is_file = S_ISREG(from.st_mode);
  to.is_folder = S_ISDIR(from.st_mode);
  to.bytes = from.st_size;
  to.modified_ns = from.st_mtim.tv_sec * kNanoseconds + from.st_mtim.tv_nsec;
  to.inode = from.st_ino;
  to.device = from.st_dev;
  to.owner = from.st_uid;
  to.mode = from.st_mode & 07777U;
  return to;
}
}  // namespace

std::string describe_errno(int negative_errno) { return std::generic_category().message(-negative_errno); }

int Files::before(FileOperation operation, std::string_view path) const {
  return hooks_ && hooks_->before ? -hooks_->before(operation, path) : 0;
}

int Files::open_file(int folder, const std::string& path) const {
  if (const int fault = before(FileOperation::open, path)) return fault;
  return result_of(::openat(folder, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

int Files::open_folder(const std::string& path) const {
  if (const int fault = before(FileOperation::open, path)) return fault;
  return result_of(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
}

int Files::create_file(int folder, const std::string& path, bool exclusive) const {
  if (const int fault = before(FileOperation::open, path)) return fault;
  return result_of(::openat(folder, path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (exclusive ? O_EXCL : 0),
                            exclusive ? 0644 : 0664));
}

int Files::close(int descriptor) const {
  const int fault = before(FileOperation::close, {});
  const int closed = result_of(::close(descriptor));
  return fault != 0 ? fault : closed;
}

template <class Container>
int Files::read_into(int folder, const std::string& path, std::int64_t max_bytes, Container& out) const {
  const int descriptor = open_file(folder, path);
  if (descriptor < 0) return descriptor;
  FileStatus found;
  int verdict = status(descriptor, found);
  if (verdict == 0 && !found.is_file) verdict = -EINVAL;
  if (verdict == 0 && found.bytes > max_bytes) verdict = -EFBIG;
  if (verdict == 0) {
    out.resize(static_cast<std::size_t>(found.bytes));
    std::size_t done = 0;
    while (done < out.size()) {
      verdict = before(FileOperation::read, path);
      if (verdict != 0) break;
      const ssize_t got = ::read(descriptor, out.data() + done, out.size() - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) verdict = -errno;
      if (got <= 0) break;
      done += static_cast<std::size_t>(got);
    }
    out.resize(done);
  }
  close(descriptor);
  return verdict;
}

int Files::read_file(int folder, const std::string& path, std::int64_t max_bytes, std::string& out) const {
  return read_into(folder, path, max_bytes, out);
}

int Files::read_file(int folder, const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& out) const {
  return read_into(folder, path, max_bytes, out);
}

int Files::write_all(int descriptor, std::string_view bytes) const {
  while (!bytes.empty()) {
    if (const int fault = before(FileOperation::write, {})) return fault;
    const ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return -errno;
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return 0;
}

int Files::sync(int descriptor) const {
  if (const int fault = before(FileOperation::sync, {})) return fault;
  return result_of(::fsync(descriptor));
}

int Files::sync_folder(const std::string& path) const {
  const int descriptor = open_folder(path);
  if (descriptor < 0) return descriptor;
  const int synced = sync(descriptor);
  close(descriptor);
  return synced;
}

int Files::status(int folder, const std::string& path, FileStatus& out, bool follow) const {
  if (const int fault = before(FileOperation::status, path)) return fault;
  struct stat found {};
  const int verdict = result_of(::fstatat(folder, path.c_str(), &found, follow ? 0 : AT_SYMLINK_NOFOLLOW));
  if (verdict == 0) out = convert(found);
  return verdict;
}

int Files::status(int descriptor, FileStatus& out) const {
  if (const int fault = before(FileOperation::status, {})) return fault;
  struct stat found {};
  const int verdict = result_of(::fstat(descriptor, &found));
  if (verdict == 0) out = convert(found);
  return verdict;
}

int Files::make_folder(const std::string& path, std::uint32_t mode) const {
  if (const int fault = before(FileOperation::make_folder, path)) return fault;
  return result_of(::mkdir(path.c_str(), mode));
}

int Files::make_folders(const std::string& path, std::uint32_t mode) const {
  int verdict = make_folder(path, mode);
  if (verdict == -ENOENT) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos || slash == 0) return verdict;
    verdict = make_folders(path.substr(0, slash), mode);
    if (verdict < 0) return verdict;
    verdict = make_folder(path, mode);
  }
  if (verdict != -EEXIST) return verdict;
  FileStatus found;
  verdict = status(kWorkingFolder, path, found, true);
  return verdict < 0 ? verdict : found.is_folder ? 0 : -ENOTDIR;
}

int Files::rename(const std::string& from, const std::string& to) const {
  if (const int fault = before(FileOperation::rename, from)) return fault;
  return result_of(::rename(from.c_str(), to.c_str()));
}

int Files::remove_file(const std::string& path) const {
  if (const int fault = before(FileOperation::remove_file, path)) return fault;
  return result_of(::unlink(path.c_str()));
}

int Files::remove_folder(const std::string& path) const {
  if (const int fault = before(FileOperation::remove_folder, path)) return fault;
  return result_of(::rmdir(path.c_str()));
}

int Files::remove_tree(const std::string& path) const {
  std::vector<std::string> names;
  int first = list(path, names);
  for (const std::string& name : names) {
    const std::string inner = path + "/" + name;
    int verdict = remove_file(inner);
    if (verdict == -EISDIR || verdict == -EPERM) verdict = remove_tree(inner);
    if (verdict < 0 && verdict != -ENOENT && first == 0) first = verdict;
  }
  const int removed = remove_folder(path);
  return first != 0 ? first : removed;
}

int Files::list(const std::string& path, std::vector<std::string>& names) const {
  names.clear();
  if (const int fault = before(FileOperation::list, path)) return fault;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return -errno;
  errno = 0;
  while (const dirent* found = ::readdir(folder)) {
    const std::string_view name = found->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  const int verdict = -errno;
  ::closedir(folder);
  std::sort(names.begin(), names.end());
  return verdict;
}

int Files::set_modified(const std::string& path, std::int64_t nanoseconds) const {
  if (const int fault = before(FileOperation::set_modified, path)) return fault;
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(nanoseconds / kNanoseconds);
  times[1].tv_nsec = static_cast<long>(nanoseconds % kNanoseconds);
  if (::utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return 0;
  if (errno != EPERM) return -errno;
  // Who may write but is not the owner (a folder shared by a group) can set the present time only.
  return result_of(::utimensat(AT_FDCWD, path.c_str(), nullptr, 0));
}

int Files::try_lock(int descriptor, std::int64_t byte) const {
  if (const int fault = before(FileOperation::lock, {})) return fault;
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  const int verdict = result_of(::fcntl(descriptor, F_OFD_SETLK, &range));
  return verdict == -EACCES ? -EAGAIN : verdict;
}

void Files::unlock(int descriptor, std::int64_t byte) const {
  before(FileOperation::unlock, {});
  struct flock range {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  range.l_start = byte;
  range.l_len = 1;
  ::fcntl(descriptor, F_OFD_SETLK, &range);
}

std::int64_t Files::now_ns() const {
  if (hooks_ && hooks_->now_ns) return hooks_->now_ns();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint32_t Files::effective_user() const {
  return hooks_ && hooks_->effective_user ? *hooks_->effective_user : ::geteuid();
}

}  // namespace tessera
