#include "runtime/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>

#include "base/error.h"

namespace tessera {

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
    partial_ = fmt::format("{}.partial-{}-{:08x}", path_.string(), ::getpid(), random());
    descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
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
