// The system calls that the cache makes, each with a hook in front, so that tests can fail, delay or kill at any of
// them. Results are as the kernel gives them: >= 0, or -errno. Nothing here throws besides std::bad_alloc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

enum class FileOperation : std::uint8_t {
  open,
  close,
  read,
  write,
  sync,
  status,
  make_folder,
  rename,
  remove_file,
  remove_folder,
  list,
  set_modified,
  lock,
  unlock
};

struct FileHooks {
  /// Called before each operation, with its path where it has one; an errno makes it fail so, 0 lets it happen. The
  /// descriptor is really closed and a lock really given back even when the hook fails those operations.
  std::function<int(FileOperation, std::string_view path)> before;
  std::function<std::int64_t()> now_ns;         ///< replaces the wall clock
  std::optional<std::uint32_t> effective_user;  ///< replaces geteuid()
};

struct FileStatus {
  bool is_file = false, is_folder = false, is_link = false;
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0, device = 0, links = 0;
  std::uint32_t owner = 0, mode = 0;
};

/// A path lies below an open folder and consists of names ("3f/9a12.../kernel.ptx"). No call follows a symbolic link,
/// neither at its end nor on the way: each name is opened from the folder before it, so whoever swaps a folder for a
/// link meanwhile gets -ELOOP back. Only open_root, status_of_root and make_root take any path as it is. A negative
/// `in` is the result of an opening that failed, and is what the call returns.
class Files {
 public:
  Files() = default;
  explicit Files(std::shared_ptr<const FileHooks> hooks) : hooks_(std::move(hooks)) {}

  /// A folder as a place to start from: it can be walked and asked for its status, not listed. Links are followed.
  int open_root(const std::string& path) const;
  int status_of_root(const std::string& path, FileStatus& out) const;
  /// With all missing parents; an existing folder is fine.
  int make_root(const std::string& path, std::uint32_t mode) const;

  /// Like open_root, below a folder. -ELOOP for a link, -ENOTDIR for what else is no folder.
  int open_folder(int in, const std::string& path) const;
  /// Never blocks, whatever lies there.
  int open_file(int in, const std::string& path) const;
  /// An existing one is opened unless it must be new; -EINVAL when that is no regular file. One that need not be new is
  /// for all who can write in the folder: made writable by the group where the folder is (less the umask).
  int create_file(int in, const std::string& path, bool exclusive) const;
  int close(int descriptor) const;
  /// 0, -EFBIG when there is more than max_bytes, -EINVAL when it is no regular file.
  /// status: of what was read, may be null.
  int read_file(int in, const std::string& path, std::int64_t max_bytes, std::string& out,
                FileStatus* status = nullptr) const;
  int read_file(int in, const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& out,
                FileStatus* status = nullptr) const;
  int write_all(int descriptor, std::string_view bytes) const;
  int sync(int descriptor) const;
  int sync_folder(int in, const std::string& path) const;
  int status(int in, const std::string& path, FileStatus& out) const;
  int status(int descriptor, FileStatus& out) const;
  /// 0 where this process may add names to the folder and take names out of it.
  int may_change_folder(int in, const std::string& path) const;
  int make_folder(int in, const std::string& path, std::uint32_t mode) const;
  /// With all missing parents; an existing folder is fine.
  int make_folders(int in, const std::string& path, std::uint32_t mode) const;
  int rename(int in, const std::string& from, const std::string& to) const;
  int remove_file(int in, const std::string& path) const;
  int remove_folder(int in, const std::string& path) const;
  /// Names without "." and "..", sorted.
  int list(int in, const std::string& path, std::vector<std::string>& names) const;
  /// Of a folder, or of a regular file that has no second name: anything else (-EINVAL) may be somebody else's.
  int set_modified(int in, const std::string& path, std::int64_t nanoseconds) const;
  /// Exclusive lock on one byte, owned by the open file, not by the process; -EAGAIN when somebody holds it.
  int try_lock(int descriptor, std::int64_t byte) const;
  void unlock(int descriptor, std::int64_t byte) const;
  std::int64_t now_ns() const;
  std::uint32_t effective_user() const;

 private:
  class Place;
  int before(FileOperation operation, std::string_view path) const;
  int open_in(int in, std::string_view path, int flags, std::uint32_t mode = 0) const;
  template <class Container>
  int read_into(int in, const std::string& path, std::int64_t max_bytes, Container& out, FileStatus* status) const;

  std::shared_ptr<const FileHooks> hooks_;
};

/// What an opening returned: a descriptor that closes itself unless it is another's, or -errno.
class Descriptor {
 public:
  Descriptor(const Files& files, int opened, bool is_own = true) : files_(files), value_(opened), is_own_(is_own) {}
  ~Descriptor() {
    if (is_own_ && value_ >= 0) files_.close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  explicit operator bool() const noexcept { return value_ >= 0; }
  int get() const noexcept { return value_; }

 private:
  const Files& files_;
  int value_;
  bool is_own_;
};

/// "No space left on device" for -ENOSPC; -ELOOP is a link that was not followed.
std::string describe_errno(int negative_errno);

}  // namespace tessera
