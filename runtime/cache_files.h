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
  bool is_file = false, is_folder = false;
  std::int64_t bytes = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t inode = 0, device = 0;
  std::uint32_t owner = 0, mode = 0;
};

class Files {
 public:
  static constexpr int kWorkingFolder = -100;  ///< AT_FDCWD: paths are taken as they are

  Files() = default;
  explicit Files(std::shared_ptr<const FileHooks> hooks) : hooks_(std::move(hooks)) {}

  /// Descriptors close on exec; symbolic links at the end of a path are not followed unless follow is set.
  int open_file(int folder, const std::string& path) const;
  int open_folder(const std::string& path) const;
  int create_file(int folder, const std::string& path, bool exclusive) const;
  int close(int descriptor) const;
  /// 0, -EFBIG when there is more than max_bytes, -EINVAL when it is no regular file.
  int read_file(int folder, const std::string& path, std::int64_t max_bytes, std::string& out) const;
  int read_file(int folder, const std::string& path, std::int64_t max_bytes, std::vector<std::byte>& out) const;
  int write_all(int descriptor, std::string_view bytes) const;
  int sync(int descriptor) const;
  int sync_folder(const std::string& path) const;
  int status(int folder, const std::string& path, FileStatus& out, bool follow = false) const;
  int status(int descriptor, FileStatus& out) const;
  int make_folder(const std::string& path, std::uint32_t mode) const;
  /// With all missing parents; an existing folder is fine.
  int make_folders(const std::string& path, std::uint32_t mode) const;
  int rename(const std::string& from, const std::string& to) const;
  int remove_file(const std::string& path) const;
  int remove_folder(const std::string& path) const;
  /// The folder and all in it; goes on after a failure and returns the first.
  int remove_tree(const std::string& path) const;
  /// Names without "." and "..", sorted.
  int list(const std::string& path, std::vector<std::string>& names) const;
  int set_modified(const std::string& path, std::int64_t nanoseconds) const;
  /// Exclusive lock on one byte, owned by the open file, not by the process; -EAGAIN when somebody holds it.
  int try_lock(int descriptor, std::int64_t byte) const;
  void unlock(int descriptor, std::int64_t byte) const;
  std::int64_t now_ns() const;
  std::uint32_t effective_user() const;

 private:
  int before(FileOperation operation, std::string_view path) const;
  template <class Container>
  int read_into(int folder, const std::string& path, std::int64_t max_bytes, Container& out) const;

  std::shared_ptr<const FileHooks> hooks_;
};

/// "No space left on device" for -ENOSPC.
std::string describe_errno(int negative_errno);

}  // namespace tessera
