#include "tests/emulated/compiler.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "runtime/nvrtc.h"
#include "tessera/error.h"

namespace tessera::testing {

namespace {

/// All that the compiler reads: faults are planted in headers, under the kernel's own name.
std::string text_of(const SourceBundle& bundle) {
  std::string text = bundle.text;
  for (const auto& header : bundle.headers) text += "\n" + header.path + "\n" + header.text;
  return bundle.merge == nullptr ? text : text + text_of(*bundle.merge);
}

/// Keeps what it compiled, by its text, for the whole process: tests, seeds and schedules differ in their launch only.
class KeptCompiler final : public Compiler {
 public:
  explicit KeptCompiler(std::unique_ptr<Compiler> compiler) : compiler_(std::move(compiler)) {}
  const CompilerIdentity& identity() const override { return compiler_->identity(); }
  const std::vector<std::string>& architectures() const override { return compiler_->architectures(); }
  Image compile(const SourceBundle& bundle) override {
    static std::map<std::pair<std::string, std::size_t>, Image> images;
    const std::pair key{bundle.entries.front(), std::hash<std::string>{}(text_of(bundle))};
    const auto found = images.find(key);
    if (found != images.end()) return found->second;
    return images.emplace(key, compiler_->compile(bundle)).first->second;
  }

 private:
  std::unique_ptr<Compiler> compiler_;
};

}  // namespace

std::unique_ptr<Compiler> find_compiler(bool makes_cubin) {
  try {
    return std::make_unique<KeptCompiler>(
        make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = makes_cubin}));
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return nullptr;
  }
}

}  // namespace tessera::testing
