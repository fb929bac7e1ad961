// The seam to a compiler: NVRTC in the runtime, a counting fake in tests of everything that surrounds compilation.
#pragma once

#include <string>
#include <vector>

#include "tessera/image.h"
#include "tessera/source_bundle.h"

namespace tessera {

class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual const CompilerIdentity& identity() const = 0;
  /// The real architectures that it generates code for, "sm_90", "sm_90a", "sm_100f", ...
  virtual const std::vector<std::string>& architectures() const = 0;
  /// Compiles to PTX and cubin in one go, the bundle's merge too. Safe to call from several threads. Throws
  /// Error{unsupported} for an unknown arch, Error{compile} whose notes carry log and options.
  virtual Image compile(const SourceBundle& bundle) = 0;
};

}  // namespace tessera
