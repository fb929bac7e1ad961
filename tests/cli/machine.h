// A terminal whose kernels are really compiled, for commands that run them in the emulator.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tests/cli/command.h"
#include "tests/support/planted_text.h"

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
    if (bundle.merge != nullptr) image.merge.cubin = image.cubin;
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

/// One place of a file below templates/ is written otherwise in a folder of templates.
inline void add_fault(const std::filesystem::path& templates, const std::string& file, std::string_view from,
                      std::string_view to) {
  std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / file);
  testing::plant(text, from, to);
  std::filesystem::create_directories((templates / file).parent_path());
  write_file(templates / file, text);
}

/// --templates and a new folder with a fault.
inline std::vector<std::string> templates_with_fault(const Machine& machine, const std::string& file,
                                                     std::string_view from, std::string_view to) {
  static int count = 0;
  const auto folder = machine.terminal.folder.path / ("templates" + std::to_string(++count));
  add_fault(folder, file, from, to);
  return {"--templates", folder.string()};
}

}  // namespace tessera::cli
