// What a compiler returns: code for the driver and for the emulator, and what the assembler said about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera {

/// Which compiler made an image. Two compilers with equal identity give equal bytes for equal bundles.
struct CompilerIdentity {
  std::string name;  ///< "nvrtc"
  int major_version = 0;
  int minor_version = 0;
  std::string build_id;  ///< of the library file; behind it runtime/compiler_suffix.h

  /// "nvrtc 13.0 (build id ab12...)"
  std::string to_string() const;
  friend bool operator==(const CompilerIdentity&, const CompilerIdentity&) = default;
};

/// Resources of one kernel, from the assembler's report.
struct EntryReport {
  std::string name;
  int registers = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  int stack_bytes = 0;
  int static_smem_bytes = 0;
  int barriers = 0;
};

struct CompileReport {
  CompilerIdentity compiler;
  std::string log;  ///< as the compiler printed it, and where pieces were not joined why
  std::vector<EntryReport> entries;
  std::vector<std::string>
      notes;  ///< the assembler's performance notes ("setmaxnreg ignored ...") and warnings, one a line
  double compile_ms = 0;
};

struct Code {
  std::string ptx{};
  std::vector<std::byte> cubin{};
};

struct Image {
  std::string ptx;
  std::vector<std::byte> cubin;
  CompileReport report;  ///< of all its kernels
  Code merge{};          ///< of the bundle's merge; empty where there is none
};

/// Puts code and report of a merge, compiled by itself, into the image of a kernel. compile_ms stays the kernel's.
void add_merge(Image& image, Image merge);

}  // namespace tessera
