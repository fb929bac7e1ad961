// Whole files in and out. Every failure is Error{io} with the path and the system's reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A file, device or pipe, from its start on.
class FileReader {
 public:
  explicit FileReader(const std::filesystem::path& path);
  /// Fills the buffer as far as there is anything to read: less only at the end.
  std::size_t read(std::span<std::byte> to);

 private:
  std::filesystem::path path_;
  std::ifstream in_;
};

/// Text is kept in memory: more of it than this (an endless device, a list of the wrong kind) is Error{usage}.
inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 30;
std::string read_text(const std::filesystem::path& path, std::size_t max_bytes = kMaxTextBytes);
std::vector<std::byte> read_bytes(const std::filesystem::path& path);
/// The descriptor of this process that a name stands for ("/dev/stdout", "/dev/fd/3", "/proc/self/fd/3", or a link to
/// one of these); nothing: it stands for none. Such a name is written through its descriptor, which goes on from where
/// it stands: opening it anew would begin at a file's start, and needs /proc.
std::optional<int> descriptor_named(const std::filesystem::path& path);
/// A copy of a descriptor that may be written to, or -1 with errno.
int copy_for_writing(int descriptor) noexcept;

/// Creates or replaces: where the writing fails, what was there before is still there. A device, a pipe or what a link
/// leads to is written in place, an open descriptor from where it stands.
void write_file(const std::filesystem::path& path, std::string_view text);
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace tessera
