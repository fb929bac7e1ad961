#include "base/file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>

#include "base/error.h"

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

// Errors name `named`, which the caller knows.
void write_in_place(const std::filesystem::path& path, std::span<const std::byte> bytes,
                    const std::filesystem::path& named) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out)
    throw Error(ErrorKind::io,
                fmt::format("{}: cannot be opened for writing: {}", named.string(), std::strerror(errno)));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw Error(ErrorKind::io, fmt::format("{}: cannot be written: {}", named.string(), std::strerror(errno)));
}

// Writes a file beside `path` and renames it, so that what was there stays until all is written. False where that
// cannot be done: devices, pipes and links are written in place, and so is a file in a folder that takes no other.
bool replace_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  namespace fs = std::filesystem;
  std::error_code code;
  const fs::file_status before = fs::symlink_status(path, code);
  const bool is_new = before.type() == fs::file_type::not_found;
  if (!is_new && (before.type() != fs::file_type::regular || access(path.c_str(), W_OK) != 0)) return false;
  static std::atomic<unsigned> number{0};
  fs::path aside = path;
  aside += fmt::format(".{}.{}.new", getpid(), number.fetch_add(1));
  if (!std::ofstream(aside, std::ios::binary)) return false;
  try {
    write_in_place(aside, bytes, path);
  } catch (const Error&) {
    fs::remove(aside, code);
    throw;
  }
  if (!is_new) fs::permissions(aside, before.permissions(), code);
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

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  if (!replace_file(path, bytes)) write_in_place(path, bytes, path);
}

}  // namespace tessera
