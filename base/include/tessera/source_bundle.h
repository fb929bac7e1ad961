// What the generator hands to a compiler: every source by virtual name, and the options. Nothing else may influence the
// result, so the bundle's bytes are the larger part of the cache key. Paths are virtual and absolute-free
// ("fmha/kernel.cuh", "entry.cu"); the compiler receives them from memory and looks at no file system.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tessera {

struct SourceFile {
  std::string path;  ///< as an #include spells it
  std::string text;
};

/// One of the compiles that a kernel may be put together from.
struct SourcePiece {
  SourceFile header;  ///< takes the place of the one of its path
  /// What it computes stays in registers: where a compiler can be told so, nothing is computed again to save some.
  bool keeps_values = false;
};

struct SourceBundle {
  std::string program;  ///< virtual name of the translation unit, "/tessera/fmha/entry.cu": it shows up in line tables
  std::string text;     ///< the translation unit
  std::vector<SourceFile> headers;   ///< sorted by path, each once
  std::string arch;                  ///< "sm_90a"
  std::vector<std::string> options;  ///< passed as they are, besides the architecture
  std::vector<std::string> entries;  ///< names of the extern "C" kernels that it defines
  /// Of the kernel that merges what this one makes, whole in itself: others that make the same have the same. Null:
  /// there is none.
  std::shared_ptr<const SourceBundle> merge{};
  /// A kernel that may be compiled as pieces side by side. Empty: it is compiled whole, as it always may be.
  std::vector<SourcePiece> pieces{};
  /// Somebody changed templates: they may need more of the compiler, and lines of the sources whatever they cost.
  bool is_changed = false;
};

}  // namespace tessera
