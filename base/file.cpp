#include "base/file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace tessera {

namespace {

template <class Container>
Container read_all(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code))
    throw Error(ErrorKind::io, fmt::format("{}: is a folder", path.string()));
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw Error(ErrorKind::io,
                fmt::format("{}: cannot be opened for reading: {}", path.string(), std::strerror(errno)));
  Container bytes;
  char buffer[1 << 16];
  while (in.read(buffer, sizeof buffer) || in.gcount() > 0) {
    const auto* first = reinterpret_cast<const typename Container::value_type*>(buffer);
    bytes.insert(bytes.end(), first, first + in.gcount());
  }
  if (in.bad()) throw Error(ErrorKind::io, fmt::format("{}: cannot be read: {}", path.string(), std::strerror(errno)));
  return bytes;
}

}  // namespace

std::string read_text(const std::filesystem::path& path) { return read_all<std::string>(path); }

std::vector<std::byte> read_bytes(const std::filesystem::path& path) { return read_all<std::vector<std::byte>>(path); }

void write_file(const std::filesystem::path& path, std::string_view text) {
  write_file(path, std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out)
    throw Error(ErrorKind::io,
                fmt::format("{}: cannot be opened for writing: {}", path.string(), std::strerror(errno)));
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  if (!out) throw Error(ErrorKind::io, fmt::format("{}: cannot be written: {}", path.string(), std::strerror(errno)));
}

}  // namespace tessera
