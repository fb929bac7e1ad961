// A file that appears under its name when it is complete, and not at all otherwise.
#pragma once

#include <filesystem>
#include <string_view>

namespace tessera {

/// Written beside its place as NAME.partial-PID-RANDOM, a new file that no link can stand for, and renamed at the end.
/// A link at `path` is followed, so what it leads to is replaced. Of processes that died in between such files are
/// left: the next one for the same path removes them, but only where the process is gone, nobody holds the file's lock
/// and the file belongs to this user. What is not a file (a pipe, a device) is written in place, since a rename would
/// replace it; the name of an open descriptor ("/dev/stdout") through that, also where it is a file's. A link to
/// nothing is refused. Errors are Error{io} with the path.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  void write(std::string_view bytes);
  void finish();

 private:
  [[noreturn]] void fail(const char* what) const;
  void open_nameless();

  std::filesystem::path named_, path_;
  std::filesystem::path partial_;  // empty: written in place, or done
  int descriptor_ = -1;
  bool has_name_ = true;  // without one nothing is left, however the process ends
};

}  // namespace tessera
