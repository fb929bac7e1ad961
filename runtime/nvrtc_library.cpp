#include "runtime/nvrtc_library.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "base/file.h"
#include "base/hash.h"
#include "runtime/elf_build_id.h"
#include "runtime/own_stack.h"
#include "runtime/underway.h"
#include "tessera/error.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

constexpr int kNewestMajor = 20, kOldestMajor = kOldestNvrtcMajor;  // sonames that are tried
constexpr int kOldestMinor = kOldestNvrtcMinor;

/// Subfolders of `parent` whose name starts so, newest version (by the number behind the start) first.
std::vector<fs::path> folders_with_prefix(const fs::path& parent, std::string_view prefix) {
  std::vector<std::pair<double, fs::path>> found;
  std::error_code code;
  for (fs::directory_iterator it(parent, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (name.rfind(prefix, 0) != 0) continue;
    double version = 1e9;  // an unversioned name ("cuda") is the one that the administrator chose
    if (name.size() > prefix.size()) version = std::strtod(name.c_str() + prefix.size(), nullptr);
    found.emplace_back(version, it->path());
  }
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::vector<fs::path> folders;
  for (auto& [version, path] : found) folders.push_back(std::move(path));
  return folders;
}

void add_wheels(std::vector<fs::path>& folders, const fs::path& packages) {
  for (const fs::path& home : folders_with_prefix(packages / "nvidia", "cu1")) folders.push_back(home / "lib");
  folders.push_back(packages / "nvidia" / "cuda_nvrtc" / "lib");
}

/// The file that this code was loaded from: a program, libtessera.so or the module of the Python package.
fs::path own_file() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&open_nvrtc), &self) == 0 || self.dli_fname == nullptr) return {};
  std::error_code code;
  return fs::absolute(self.dli_fname, code);
}

std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  if (const fs::path packages = packages_around(own_file()); !packages.empty()) add_wheels(folders, packages);
  const auto add_home = [&](const fs::path& home) {
    for (const char* below : {"lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"})
      folders.push_back(home / below);
  };
  for (const fs::path& home : folders_with_prefix("/usr/local", "cuda")) add_home(home);
  for (const fs::path& home : folders_with_prefix("/opt", "cuda")) add_home(home);
  for (const char* root : {"/usr/local/lib", "/usr/lib"}) {
    for (const fs::path& python : folders_with_prefix(root, "python3")) {
      for (const char* packages : {"dist-packages", "site-packages"}) add_wheels(folders, python / packages);
    }
  }
  return folders;
}

std::string soname(int major) { return fmt::format("libnvrtc.so.{}", major); }

/// Empty when NVRTC can run from this file: it needs its builtins library beside it.
std::string problem_of(const fs::path& file) {
  std::error_code code;
  if (!fs::is_regular_file(file, code)) return "no such file";
  // Its state has the options of what this process has compiled with them.
  if (file.filename().string().rfind("libnvrtc.alt.so", 0) == 0)
    return "is the second NVRTC, of pieces of kernels: name the libnvrtc.so beside it";
  const fs::path folder = file.parent_path();
  std::string problem = "libnvrtc-builtins.so is not beside it";
  constexpr std::string_view kStem = "libnvrtc-builtins.so";
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    if (name.rfind(kStem, 0) != 0) continue;
    // "libnvrtc-builtins.so.12.4": the version is told before anything is opened, so that the search can go on.
    int major = 0, minor = 0;
    const bool is_old = std::sscanf(name.c_str() + kStem.size(), ".%d.%d", &major, &minor) == 2 &&
                        (major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor));
    if (!is_old) return {};
    problem =
        fmt::format("is NVRTC {}.{}: {}.{} or later is needed (PTX 8.6)", major, minor, kOldestMajor, kOldestMinor);
  }
  return problem;
}

fs::path resolved(const fs::path& file) {
  std::error_code code;
  fs::path real = fs::canonical(file, code);
  return code ? file : real;
}

/// True when the search is over.
bool add_candidate(std::vector<NvrtcCandidate>& candidates, const fs::path& file) {
  const fs::path real = resolved(file);
  candidates.push_back({real, problem_of(real)});
  return candidates.back().problem.empty();
}

bool bind_all(const DynamicLibrary& library, NvrtcApi& api, std::string& missing) {
  const auto bind = [&](auto& function, const char* name) {
    if (library.bind(function, name)) return;
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
  };
  bind(api.version, "nvrtcVersion");
  bind(api.num_supported_archs, "nvrtcGetNumSupportedArchs");
  bind(api.supported_archs, "nvrtcGetSupportedArchs");
  bind(api.create_program, "nvrtcCreateProgram");
  bind(api.destroy_program, "nvrtcDestroyProgram");
  bind(api.compile_program, "nvrtcCompileProgram");
  bind(api.ptx_size, "nvrtcGetPTXSize");
  bind(api.ptx, "nvrtcGetPTX");
  bind(api.cubin_size, "nvrtcGetCUBINSize");
  bind(api.cubin, "nvrtcGetCUBIN");
  bind(api.log_size, "nvrtcGetProgramLogSize");
  bind(api.log, "nvrtcGetProgramLog");
  bind(api.error_string, "nvrtcGetErrorString");
  return missing.empty();
}

/// "libnvrtc.so.13" and "libnvrtc.alt.so.13". Empty for a file of another name.
fs::path alternate_file(const NvrtcLibrary& nvrtc) {
  const std::string name = nvrtc.file.filename().string();
  constexpr std::string_view kStem = "libnvrtc.so";
  if (name.rfind(kStem, 0) != 0) return {};
  return nvrtc.file.parent_path() / ("libnvrtc.alt.so" + name.substr(kStem.size()));
}

constexpr const char* kAlternateBuiltins = "libnvrtc-builtins.alt.so";

std::string builtins_name(const NvrtcLibrary& nvrtc, const char* stem) {
  return fmt::format("{}.{}.{}", stem, nvrtc.identity.major_version, nvrtc.identity.minor_version);
}

/// NVRTC opens its builtins by name when it first compiles. Wheels of 13.0 carry no search path of their own, so that
/// the name is found only on machines that have CUDA installed too; what is in the process already is found always.
/// True when the builtins of this very version lie beside the library and could be opened.
bool open_builtins(const NvrtcLibrary& nvrtc, std::string& problem, const char* stem = "libnvrtc-builtins.so") {
  const fs::path file = nvrtc.file.parent_path() / builtins_name(nvrtc, stem);
  return static_cast<bool>(open_guest_library(file.string(), &problem).library);
}

/// A path of an open file by which the loader knows nothing yet: it keeps names, and numbers of files come again.
std::string unused_name(int file) {
  for (std::string folder = "/proc/self/fd/";; folder += "./") {
    std::string name = fmt::format("{}{}", folder, file);
    void* const known = dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (known == nullptr) return name;
    dlclose(known);
  }
}

/// Files in memory count, too: behind the limit (ulimit -f) SIGXFSZ ends the process.
bool may_write_as_much(int file) {
  struct stat status {};
  rlimit limit{};
  return fstat(file, &status) == 0 && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
         static_cast<rlim_t>(status.st_size) <= limit.rlim_cur;
}

/// Of a file that is cut off the loader maps what is not there: SIGBUS. The table of sections is at the end.
bool is_whole_library(const fs::path& file) {
  std::error_code code;
  const std::uintmax_t bytes = fs::file_size(file, code);
  Elf64_Ehdr header{};
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
  return !code && std::memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 && header.e_shoff <= bytes &&
         std::uintmax_t{header.e_shnum} * header.e_shentsize <= bytes - header.e_shoff;
}

/// A library without the note is told apart by its content.
std::string identity_of(const fs::path& file) {
  std::string id = elf_build_id(file);
  return id.empty() ? "sha256:" + sha256_hex(read_bytes(file)) : id;
}

}  // namespace

fs::path packages_around(const fs::path& file) {
  for (fs::path folder = file.parent_path(); folder.has_relative_path(); folder = folder.parent_path())
    if (folder.filename() == "site-packages" || folder.filename() == "dist-packages") return folder;
  return {};
}

std::vector<NvrtcCandidate> search_nvrtc(const NvrtcOptions& options) {
  std::vector<NvrtcCandidate> candidates;
  if (!options.library.empty()) {
    add_candidate(candidates, options.library);
    return candidates;
  }
  for (int major = kNewestMajor; major >= kOldestMajor; --major)
    if (const auto guest = open_guest_library(soname(major)); guest.library)
      if (add_candidate(candidates, guest.library.file())) return candidates;
  for (const fs::path& folder : library_folders()) {
    std::error_code code;
    if (!fs::is_directory(folder, code)) continue;
    for (int major = kNewestMajor; major >= kOldestMajor; --major)
      if (fs::exists(folder / soname(major), code) && add_candidate(candidates, folder / soname(major)))
        return candidates;
  }
  return candidates;
}

NvrtcLibrary open_nvrtc(const NvrtcOptions& options) {
  const std::vector<NvrtcCandidate> candidates = search_nvrtc(options);
  std::vector<std::string> notes;
  for (const NvrtcCandidate& candidate : candidates) {
    std::string problem = candidate.problem;
    NvrtcLibrary nvrtc;
    nvrtc.file = candidate.file;
    if (problem.empty()) {
      nvrtc.guest = open_guest_library(candidate.file.string(), &problem);
      const DynamicLibrary& library = nvrtc.guest.library;
      std::string missing;
      if (library && bind_all(library, nvrtc.api, missing)) {
        nvrtc.identity.name = "nvrtc";
        nvrtc.api.version(&nvrtc.identity.major_version, &nvrtc.identity.minor_version);
        nvrtc.identity.build_id = identity_of(candidate.file);
        if (open_builtins(nvrtc, problem)) return nvrtc;
      } else if (library) {
        problem = fmt::format("lacks {}", missing);
      }
    }
    notes.push_back(fmt::format("{}: {}", candidate.file.string(), problem));
  }
  if (notes.empty()) {
    notes.push_back("searched by the loader: libnvrtc.so.12 and later");
    for (const fs::path& folder : library_folders()) notes.push_back(fmt::format("searched: {}", folder.string()));
  }
  throw Error(ErrorKind::io,
              fmt::format("no usable NVRTC was found; install CUDA {}.{} or later, or name its libnvrtc.so",
                          kOldestMajor, kOldestMinor),
              std::move(notes));
}

std::string alternate_id(const NvrtcLibrary& nvrtc, std::string& problem) {
  const fs::path file = alternate_file(nvrtc);
  std::error_code code;
  if (!fs::is_regular_file(file, code)) {
    problem = "no libnvrtc.alt.so is beside it";
    return {};
  }
  if (!is_whole_library(file)) {
    problem = fmt::format("{} is no library that can be read", file.filename().string());
    return {};
  }
  const std::string builtins = builtins_name(nvrtc, kAlternateBuiltins);
  if (!fs::is_regular_file(file.parent_path() / builtins, code)) {
    problem = fmt::format("no {} is beside it", builtins);
    return {};
  }
  return identity_of(file);
}

std::optional<NvrtcLibrary> open_alternate(const NvrtcLibrary& nvrtc, std::string& problem) {
  NvrtcLibrary other;
  other.file = alternate_file(nvrtc);
  other.identity = nvrtc.identity;
  other.identity.build_id = alternate_id(nvrtc, problem);
  if (other.identity.build_id.empty()) return std::nullopt;
  other.guest = open_guest_library(other.file.string(), &problem);
  std::string missing;
  if (!other.guest.library) return std::nullopt;
  if (!bind_all(other.guest.library, other.api, missing)) {
    problem = fmt::format("{} lacks {}", other.file.filename().string(), missing);
    return std::nullopt;
  }
  int major = 0, minor = 0;
  other.api.version(&major, &minor);
  if (major != nvrtc.identity.major_version || minor != nvrtc.identity.minor_version) {
    problem = fmt::format("{} is NVRTC {}.{}", other.file.filename().string(), major, minor);
    return std::nullopt;
  }
  if (!open_builtins(other, problem, kAlternateBuiltins)) return std::nullopt;
  return other;
}

std::optional<NvrtcLibrary> open_copy(const NvrtcLibrary& nvrtc) {
  const int from = open(nvrtc.file.c_str(), O_RDONLY | O_CLOEXEC);
  const int to = memfd_create("libnvrtc", MFD_CLOEXEC);
  bool is_copied = from >= 0 && to >= 0 && may_write_as_much(from);
  for (ssize_t bytes = 1; is_copied && bytes > 0;) {
    bytes = sendfile(to, from, nullptr, std::size_t{1} << 30);
    is_copied = bytes >= 0;
  }
  if (from >= 0) close(from);
  NvrtcLibrary copy;
  copy.file = nvrtc.file;
  copy.identity = nvrtc.identity;
  std::string unused;
  if (is_copied) copy.guest = open_guest_library(unused_name(to), &unused);
  if (to >= 0) close(to);
  if (!copy.guest.library || !bind_all(copy.guest.library, copy.api, unused)) return std::nullopt;
  return copy;
}

bool compiles_empty_program(const NvrtcLibrary& nvrtc, std::span<const std::string_view> options) {
  const std::vector<std::string> texts(options.begin(), options.end());
  int count = 0;
  if (nvrtc.api.num_supported_archs(&count) != 0 || count <= 0) return false;
  std::vector<int> archs(static_cast<std::size_t>(count));
  if (nvrtc.api.supported_archs(archs.data()) != 0) return false;
  const std::string arch = fmt::format("--gpu-architecture=compute_{}", archs.back());
  std::vector<const char*> pointers{arch.c_str()};
  for (const std::string& text : texts) pointers.push_back(text.c_str());
  nvrtcProgram program = nullptr;
  if (nvrtc.api.create_program(&program, "", "/tessera/nothing.cu", 0, nullptr, nullptr) != 0) return false;
  nvrtcResult result = 0;
  const Underway underway;
  with_own_stack([&] {
    const GuestScope scope(nvrtc.guest);
    result = nvrtc.api.compile_program(program, static_cast<int>(pointers.size()), pointers.data());
  });
  nvrtc.api.destroy_program(&program);
  return result == 0;
}

std::optional<std::filesystem::path> find_nvrtc(const NvrtcOptions& options) {
  const std::vector<NvrtcCandidate> candidates = search_nvrtc(options);
  if (candidates.empty() || !candidates.back().problem.empty()) return std::nullopt;
  return candidates.back().file;
}

}  // namespace tessera
