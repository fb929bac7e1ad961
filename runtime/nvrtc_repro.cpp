#include "runtime/nvrtc_repro.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "base/file.h"
#include "base/shell.h"
#include "tessera/error.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

/// A virtual path that stays below the folder it is put in.
bool is_contained(const fs::path& path) {
  if (path.empty() || path.is_absolute()) return false;
  for (const fs::path& part : path)
    if (part == "..") return false;
  return true;
}

void write_source(const fs::path& folder, const fs::path& path, const std::string& text) {
  if (!is_contained(path)) return;
  fs::create_directories((folder / path).parent_path());
  write_file(folder / path, text);
}

fs::path make_folder(const fs::path& parent, const std::string& kernel) {
  const fs::path where = parent.empty() ? fs::temp_directory_path() : parent;
  fs::create_directories(where);
  std::string name = (where / fmt::format("tessera-repro-{}-XXXXXX", kernel)).string();
  if (mkdtemp(name.data()) == nullptr)
    throw Error(ErrorKind::io, fmt::format("{}: cannot be created: {}", name, std::strerror(errno)));
  return name;
}

}  // namespace

std::vector<std::string> nvcc_options(const std::vector<std::string>& nvrtc_options) {
  std::vector<std::string> options;
  for (const std::string& option : nvrtc_options) {
    const std::string name = option.substr(0, option.find('='));
    const bool is_known = name != "--no-source-include" && name != "--no-cache" && name != "--minimal" &&
                          name != "-no-source-include" && name != "-default-device" &&
                          name != "--device-as-default-execution-space";
    if (is_known) options.push_back(option);
  }
  return options;
}

fs::path write_repro(const fs::path& parent, const SourceBundle& bundle, const std::vector<std::string>& options,
                     const std::string& log) {
  try {
    const fs::path folder = make_folder(parent, bundle.entries.empty() ? "kernel" : bundle.entries.front());
    const fs::path program = fs::path(bundle.program).filename();
    for (const SourceFile& header : bundle.headers) write_source(folder / "src", header.path, header.text);
    write_source(folder / "src", program, bundle.text);
    write_file(folder / "log.txt", log);
    std::string command = "\"${NVCC:-nvcc}\" -cubin -I. -o ../kernel.cubin";
    for (const std::string& option : nvcc_options(options)) command += " " + shell_quoted(option);
    command += " " + shell_quoted(program.string());
    write_file(folder / "run.sh", fmt::format("#!/bin/sh\ncd \"$(dirname \"$0\")/src\" && exec {}\n", command));
    fs::permissions(folder / "run.sh", fs::perms::owner_exec, fs::perm_options::add);
    return folder;
  } catch (const fs::filesystem_error& error) {
    throw Error(ErrorKind::io, error.what());
  }
}

}  // namespace tessera
