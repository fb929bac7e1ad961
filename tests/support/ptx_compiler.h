// NVRTC to PTX alone, for a Jit whose kernels run in the emulator, which reads nothing else: the assembler is half of a
// compile. The cubin is a byte, since the cache wants one.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tessera/jit.h"

namespace tessera::testing {

class PtxCompiler final : public Compiler {
 public:
  PtxCompiler() : nvrtc_(make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false})) {}
  const CompilerIdentity& identity() const override { return nvrtc_->identity(); }
  const std::vector<std::string>& architectures() const override { return nvrtc_->architectures(); }
  Image compile(const SourceBundle& bundle) override {
    Image image = nvrtc_->compile(bundle);
    image.cubin = {std::byte{1}};
    if (bundle.merge != nullptr) image.merge.cubin = {std::byte{1}};
    return image;
  }

 private:
  std::unique_ptr<Compiler> nvrtc_;
};

/// Whether there is an NVRTC.
inline bool compiles_to_ptx(Jit& jit) {
  try {
    jit.set_compiler(std::make_shared<PtxCompiler>());
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace tessera::testing
