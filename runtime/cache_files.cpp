// Each call: the hook first, then the system call, the result as a number. Reading and writing go on after an
// interrupt. Messages are made by whoever knows what the call was for.
//
// A path is walked name by name with O_NOFOLLOW from an open folder to the next: what a name leads to at that moment is
// what the call works on, whatever is put in its place later. Folders on the way are opened with O_PATH, which needs no
// permission to list them.
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

namespace {
int result_of(int value) { return value < 0 ? -errno : value; }

constexpr std::int64_t kNanoseconds = 1'000'000'000;

FileStatus convert(const struct stat& from) {
  FileStatus to;
  to.is_file = S_ISREG(from.st_mode);
  to.is_folder = S_ISDIR(from.st_mode);
  to.is_link = S_ISLNK(from.st_mode);
  to.bytes = from.st_size;
  to.modified_ns = from.st_mtim.tv_sec * kNanoseconds + from.st_mtim.tv_nsec;
  to.inode = from.st_ino;
  to.device = from.st_dev;
  to.links = from.st_nlink;
  to.owner = from.st_uid;
  to.mode = from.st_mode & 07777U;
  return to;
}
}  // namespace

std::string describe_errno(int negative_errno) {
  if (negative_errno == -ELOOP) return "a symbolic link, which is not followed";
  return std::generic_category().message(-negative_errno);
}

int Files::before(FileOperation operation, std::string_view path) const {
  return hooks_ && hooks_->before ? -hooks_->before(operation, path) : 0;
}

/// Where the last name of a path lies: the folder that holds it, which is open while this lives.
class Files::Place {
 public:
  Place(const Files& files, int in, std::string_view path) : files_(files), folder_(in) {
    std::size_t slash = 0;
    while (folder_ >= 0 && (slash = path.find('/')) != std::string_view::npos) {
      const int next = files.open_in(folder_, path.substr(0, slash), O_PATH | O_DIRECTORY);
      leave();
      folder_ = next;
      is_own_ = true;
      path.remove_prefix(slash + 1);
    }
    name = path;
  }
  ~Place() { leave(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;
  int folder() const { return folder_; }  // or -errno
  const char* c_str() const { return name.c_str(); }

  std::string name;

 private:
  void leave() const {
    if (is_own_ && folder_ >= 0) files_.close(folder_);
  }
  const Files& files_;
  int folder_;
  bool is_own_ = false;
};

int Files::open_in(int in, std::string_view path, int flags, std::uint32_t mode) const {
  const Place place(*this, in, path);
  if (place.folder() < 0) return place.folder();
  if (const int fault = before(FileOperation::open, path)) return fault;
  const int opened =
      result_of(::openat(place.folder(), place.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, mode));
  if (opened != -ENOTDIR) return opened;
  // With O_DIRECTORY a link is "not a directory" like a file.
  struct stat found {};
  const bool is_link =
      ::fstatat(place.folder(), place.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(found.st_mode);
  return is_link ? -ELOOP : opened;
}

int Files::open_root(const std::string& path) const {
  if (const int fault = before(FileOperation::open, path)) return fault;
  return result_of(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

int Files::open_folder(int in, const std::string& path) const { return open_in(in, path, O_PATH | O_DIRECTORY); }

int Files::open_file(int in, const std::string& path) const { return open_in(in, path, O_RDONLY); }

int Files::create_file(int in, const std::string& path, bool exclusive) const {
  FileStatus found;
  const bool is_shared = !exclusive && status(in, found) == 0 && (found.mode & 0020U) != 0;
  const int opened = open_in(in, path, O_RDWR | O_CREAT | (exclusive ? O_EXCL : 0), is_shared ? 0664 : 0644);
  if (opened < 0 || exclusive) return opened;
  int fault = status(opened, found);
  if (fault == 0 && !found.is_file) fault = -EINVAL;
  if (fault == 0) return opened;
  close(opened);
  return fault;
}

int Files::close(int descriptor) const {
  const int fault = before(FileOperation::close, {});
  const int closed = result_of(::close(descriptor));
  return fault != 0 ? fault : closed;
}

template <class Container>
int Files::read_into(int in, const std::string& path, std::int64_t max_bytes, Container& out,
                     FileStatus* status_to) const {
  const int descriptor = open_file(in, path);
  FileStatus found;
  // A socket cannot be opened, nor a device without a driver.
  const bool is_no_file = descriptor == -ENXIO || descriptor == -ENODEV;
  if (is_no_file && status(in, path, found) == 0 && !found.is_file) return -EINVAL;
  if (descriptor < 0) return descriptor;
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
  if (status_to != nullptr) *status_to = found;
  return verdict;
}

int Files::read_file(int in, const std::string& path, std::int64_t max_bytes, std::string& out,
                     FileStatus* status) const {
  return read_into(in, path, max_bytes, out, status);
}

int Files::read_file(int in, const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& out,
                     FileStatus* status) const {
  return read_into(in, path, max_bytes, out, status);
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

int Files::sync_folder(int in, const std::string& path) const {
  const Descriptor folder(*this, open_in(in, path, O_RDONLY | O_DIRECTORY));
  return folder ? sync(folder.get()) : folder.get();
}

int Files::status_of_root(const std::string& path, FileStatus& out) const {
  if (const int fault = before(FileOperation::status, path)) return fault;
  struct stat found {};
  const int verdict = result_of(::stat(path.c_str(), &found));
  if (verdict == 0) out = convert(found);
  return verdict;
}

int Files::status(int in, const std::string& path, FileStatus& out) const {
  const Place place(*this, in, path);
  if (place.folder() < 0) return place.folder();
  if (const int fault = before(FileOperation::status, path)) return fault;
  struct stat found {};
  const int verdict = result_of(::fstatat(place.folder(), place.c_str(), &found, AT_SYMLINK_NOFOLLOW));
  if (verdict == 0) out = convert(found);
  return verdict;
}

int Files::status(int descriptor, FileStatus& out) const {
  if (descriptor < 0) return descriptor;
  if (const int fault = before(FileOperation::status, {})) return fault;
  struct stat found {};
  const int verdict = result_of(::fstat(descriptor, &found));
  if (verdict == 0) out = convert(found);
  return verdict;
}

int Files::may_change_folder(int in, const std::string& path) const {
  const Place place(*this, in, path);
  if (place.folder() < 0) return place.folder();
  if (const int fault = before(FileOperation::status, path)) return fault;
  return result_of(::faccessat(place.folder(), place.c_str(), W_OK | X_OK, AT_EACCESS | AT_SYMLINK_NOFOLLOW));
}

int Files::make_folder(int in, const std::string& path, std::uint32_t mode) const {
  const Place place(*this, in, path);
  if (place.folder() < 0) return place.folder();
  if (const int fault = before(FileOperation::make_folder, path)) return fault;
  return result_of(::mkdirat(place.folder(), place.c_str(), mode));
}

int Files::make_folders(int in, const std::string& path, std::uint32_t mode) const {
  int verdict = make_folder(in, path, mode);
  const std::size_t slash = path.find_last_of('/');
  if (verdict == -ENOENT && slash != std::string::npos) {
    verdict = make_folders(in, path.substr(0, slash), mode);
    if (verdict < 0) return verdict;
    verdict = make_folder(in, path, mode);
  }
  if (verdict != -EEXIST) return verdict;
  const Descriptor made(*this, open_folder(in, path));
  return made ? 0 : made.get();
}

int Files::make_root(const std::string& path, std::uint32_t mode) const {
  const auto make = [&] {
    const int fault = before(FileOperation::make_folder, path);
    return fault != 0 ? fault : result_of(::mkdir(path.c_str(), mode));
  };
  int verdict = make();
  if (verdict == -ENOENT) {
    const std::size_t slash = path.find_last_of('/');
    if (slash == std::string::npos || slash == 0) return verdict;
    verdict = make_root(path.substr(0, slash), mode);
    if (verdict < 0) return verdict;
    verdict = make();
  }
  if (verdict != -EEXIST) return verdict;
  FileStatus found;
  verdict = status_of_root(path, found);
  return verdict < 0 ? verdict : found.is_folder ? 0 : -ENOTDIR;
}

int Files::rename(int in, const std::string& from, const std::string& to) const {
  const Place source(*this, in, from), target(*this, in, to);
  if (source.folder() < 0) return source.folder();
  if (target.folder() < 0) return target.folder();
  if (const int fault = before(FileOperation::rename, from)) return fault;
  return result_of(::renameat(source.folder(), source.c_str(), target.folder(), target.c_str()));
}

int Files::remove_file(int in, const std::string& path) const {
  const Place place(*this, in, path);
  if (place.folder() < 0) return place.folder();
  if (const int fault = before(FileOperation::remove_file, path)) return fault;
  return result_of(::unlinkat(place.folder(), place.c_str(), 0));
}

int Files::remove_folder(int in, const std::string& path) const {
  const Place place(*this, in, path);
  if (place.folder() < 0) return place.folder();
  if (const int fault = before(FileOperation::remove_folder, path)) return fault;
  return result_of(::unlinkat(place.folder(), place.c_str(), AT_REMOVEDIR));
}

int Files::list(int in, const std::string& path, std::vector<std::string>& names) const {
  names.clear();
  const int opened = open_in(in, path, O_RDONLY | O_DIRECTORY);
  if (opened < 0) return opened;
  const int fault = before(FileOperation::list, path);
  DIR* const folder = fault == 0 ? ::fdopendir(opened) : nullptr;
  if (folder == nullptr) {
    const int refused = fault != 0 ? fault : -errno;
    close(opened);
    return refused;
  }
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

int Files::set_modified(int in, const std::string& path, std::int64_t nanoseconds) const {
  const Descriptor opened(*this, open_file(in, path));
  FileStatus found;
  if (const int fault = status(opened.get(), found)) return fault;
  if (!found.is_folder && (!found.is_file || found.links != 1)) return -EINVAL;
  if (const int fault = before(FileOperation::set_modified, path)) return fault;
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = static_cast<time_t>(nanoseconds / kNanoseconds);
  times[1].tv_nsec = static_cast<long>(nanoseconds % kNanoseconds);
  if (::futimens(opened.get(), times) == 0) return 0;
  if (errno != EPERM) return -errno;
  // Who may write but is not the owner (a folder shared by a group) can set the present time only.
  return result_of(::futimens(opened.get(), nullptr));
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
