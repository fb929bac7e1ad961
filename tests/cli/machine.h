// A terminal whose kernels are really compiled, for commands that run them in the emulator.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tests/cli/command.h"

namespace tessera::cli {

/// NVRTC, and a hand that changes what it returns.
class EditingCompiler final : public Compiler {
 public:
  EditingCompiler(std::unique_ptr<Compiler> compiler, std::string from, std::string to)
      : compiler_(std::move(compiler)), from_(std::move(from)), to_(std::move(to)) {}
  const CompilerIdentity& identity() const override { return compiler_->identity(); }
  const std::vector<std::string>& architectures() const override { return compiler_->architectures(); }
  Image compile(const SourceBundle& bundle) override {
    Image image = compiler_->compile(bundle);
    image.cubin = {std::byte{1}};  // the cache wants one, the emulator runs the PTX
    const std::size_t at = from_.empty() ? std::string::npos : image.ptx.find(from_);
    if (at != std::string::npos) {
      image.ptx.replace(at, from_.size(), to_);
      ++edits;
    }
    return image;
  }
  int edits = 0;

 private:
  std::unique_ptr<Compiler> compiler_;
  std::string from_, to_;
};

/// A terminal whose kernels are really compiled, and without hazards unless the PTX is edited; null with a message
/// where there is no NVRTC.
struct Machine {
  Terminal terminal;
  std::shared_ptr<EditingCompiler> compiler;

  explicit Machine(std::string from = {}, std::string to = {}) {
    std::unique_ptr<Compiler> nvrtc;
    try {
      nvrtc = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
    } catch (const Error&) {
      MESSAGE("skipped: no NVRTC");
      return;
    }
    terminal.refuses_hazards = from.empty();
    compiler = std::make_shared<EditingCompiler>(std::move(nvrtc), std::move(from), std::move(to));
    terminal.host.prepare_jit = [this](Jit& jit) { jit.set_compiler(compiler); };
  }
};

}  // namespace tessera::cli
