// A Compiler for tests of everything that surrounds compilation: its image is a function of bundle and identity, it
// counts its calls, and it can take its time or fail.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "tessera/compiler.h"
#include "tessera/error.h"

namespace tessera::testing {

class CountingCompiler : public Compiler {
 public:
  explicit CountingCompiler(int major_version = 13, std::string build_id = "00c0ffee") {
    identity_ = {"counting", major_version, 0, std::move(build_id)};
  }

  const CompilerIdentity& identity() const override { return identity_; }
  const std::vector<std::string>& architectures() const override { return architectures_; }

  Image compile(const SourceBundle& bundle) override {
    ++calls;
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    if (failures_left > 0) {
      --failures_left;
      const std::string kernel = bundle.entries.empty() ? bundle.program : bundle.entries.front();
      throw Error(failure_kind, kernel + ": the counting compiler was told to fail", {"log of the failure"});
    }
    Image image;
    const std::string seed = sha256_hex(bundle.program + bundle.text + bundle.arch + identity_.to_string());
    while (image.cubin.size() < cubin_bytes) {
      const std::string block = sha256_hex(seed + std::to_string(image.cubin.size()));
      for (const char c : block) image.cubin.push_back(static_cast<std::byte>(c));
    }
    image.cubin.resize(cubin_bytes);
    image.ptx = "// PTX of " + bundle.program + "\n";
    while (image.ptx.size() < ptx_bytes) image.ptx += "add.f32 %f1, %f2, %f3;  // " + seed + "\n";
    image.report.compiler = identity_;
    image.report.log = "ptxas info    : Used 168 registers, 16 barriers\nptxas info    : Compile time = 12.5 ms\n";
    for (const std::string& entry : bundle.entries) image.report.entries.push_back({entry, 168, 0, 0, 0, 1024, 16});
    image.report.notes = {"a note of the assembler"};
    image.report.compile_ms = 12.5;
    if (bundle.merge != nullptr) add_merge(image, compile(*bundle.merge));
    return image;
  }

  std::atomic<int> calls{0};
  std::atomic<int> failures_left{0};  ///< the next so many calls throw
  ErrorKind failure_kind = ErrorKind::compile;
  std::chrono::milliseconds delay{0};  ///< what each call takes
  std::size_t cubin_bytes = 4000, ptx_bytes = 8000;

 private:
  CompilerIdentity identity_;
  std::vector<std::string> architectures_{"sm_90a", "sm_100a"};
};

}  // namespace tessera::testing
