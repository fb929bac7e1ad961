// A file that is read twice, also where it is a pipe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace tessera {

/// Opened once: both readings see the same file whatever is put in its place. What cannot be read again from its start
/// (a pipe, a terminal) is kept meanwhile in an unnamed file of the temporary folder (TMPDIR). /dev/stdin is the open
/// stream itself, from where it stands. Errors are Error{io} with the path.
class InputFile {
 public:
  /// max_bytes: no more are kept of a pipe.
  InputFile(const std::filesystem::path& path, std::int64_t max_bytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  /// Fills the buffer as far as there is anything to read: less only at the end.
  std::size_t read(std::span<std::byte> to);
  /// Back to the start; what was not read of a pipe is lost.
  void rewind();
  const std::filesystem::path& path() const noexcept { return path_; }
  bool has_failed() const noexcept { return has_failed_; }  ///< read or rewind threw

 private:
  [[noreturn]] void fail(const std::filesystem::path& path, const char* what, const char* remedy = "");
  void keep(std::span<const std::byte> bytes);

  std::filesystem::path path_;
  std::int64_t max_bytes_, kept_bytes_ = 0;
  std::int64_t start_ = 0;
  int descriptor_ = -1;
  int kept_ = -1;  // where a pipe's bytes go; -1: the file itself can be read again
  bool has_failed_ = false;
};

}  // namespace tessera
