// The NVRTC library: where it is, which build it is, and the dozen functions that are called. Own declarations, so that
// building needs no CUDA toolkit. CUDA NVRTC documentation; 12.8 is the oldest that assembles the kernels.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/guest_library.h"
#include "runtime/nvrtc.h"
#include "tessera/image.h"

namespace tessera {

/// A place where NVRTC could be, and why it cannot be used there (empty: it can).
struct NvrtcCandidate {
  std::filesystem::path file;
  std::string problem;
};

/// In the order of preference: the option alone when it is given; else what the loader finds, then the wheels of the
/// Python environment that this library lies in, then the CUDA homes, newest first, then the wheels of Python's system
/// folders. Ends at the first usable one.
std::vector<NvrtcCandidate> search_nvrtc(const NvrtcOptions& options);

/// The folder of packages (site-packages, dist-packages) that a file lies in, at any depth; empty where it is in none.
std::filesystem::path packages_around(const std::filesystem::path& file);

using nvrtcProgram = struct NvrtcProgramTag*;
using nvrtcResult = int;  // 0 is success

struct NvrtcApi {
  nvrtcResult (*version)(int* major, int* minor) = nullptr;
  nvrtcResult (*num_supported_archs)(int* count) = nullptr;
  nvrtcResult (*supported_archs)(int* archs) = nullptr;
  nvrtcResult (*create_program)(nvrtcProgram* program, const char* text, const char* name, int num_headers,
                                const char* const* header_texts, const char* const* header_names) = nullptr;
  nvrtcResult (*destroy_program)(nvrtcProgram* program) = nullptr;
  nvrtcResult (*compile_program)(nvrtcProgram program, int num_options, const char* const* options) = nullptr;
  nvrtcResult (*ptx_size)(nvrtcProgram program, std::size_t* bytes) = nullptr;
  nvrtcResult (*ptx)(nvrtcProgram program, char* out) = nullptr;
  nvrtcResult (*cubin_size)(nvrtcProgram program, std::size_t* bytes) = nullptr;
  nvrtcResult (*cubin)(nvrtcProgram program, char* out) = nullptr;
  nvrtcResult (*log_size)(nvrtcProgram program, std::size_t* bytes) = nullptr;
  nvrtcResult (*log)(nvrtcProgram program, char* out) = nullptr;
  const char* (*error_string)(nvrtcResult result) = nullptr;
};

struct NvrtcLibrary {
  std::filesystem::path file;
  GuestLibrary guest;
  NvrtcApi api;
  CompilerIdentity identity;
};

/// Throws Error{compile} that lists the places searched and what was wrong with each.
NvrtcLibrary open_nvrtc(const NvrtcOptions& options);

/// The same compiler once more, with a state of its own: CUDA 13.0 and its wheels have libnvrtc.alt.so beside
/// libnvrtc.so. Nothing, and why, where there is no such file with the same end of its name, or it cannot be opened or
/// has another version.
std::optional<NvrtcLibrary> open_alternate(const NvrtcLibrary& nvrtc, std::string& problem);
/// Its build id, without opening it. Empty, and why, where the file or its builtins are missing, or it is no library.
std::string alternate_id(const NvrtcLibrary& nvrtc, std::string& problem);

/// The same file once more, from memory (80 ms): another state. Nothing where that can't be.
std::optional<NvrtcLibrary> open_copy(const NvrtcLibrary& nvrtc);

/// Whether it compiles an empty program with these options.
bool compiles_empty_program(const NvrtcLibrary& nvrtc, std::span<const std::string_view> options);

}  // namespace tessera
