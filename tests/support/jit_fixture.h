// Jit with a compiler that counts instead of compiling.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/nvrtc.h"
#include "tessera/cache_admin.h"
#include "tessera/jit.h"
#include "tests/generator/problems.h"
#include "tests/support/temporary_folder.h"

namespace tessera::jit_test {

/// Counts compiles; its image is the bundle's entry name.
class CountingCompiler final : public Compiler {
 public:
  std::atomic<int> compiles{0};
  std::atomic<std::size_t> pieces = 0;  ///< of the last bundle
  std::atomic<int> delay_ms{0};
  std::atomic<bool> is_held{false};  ///< compiles wait until it is false and notified
  std::string fail_on;               ///< compiles of a bundle whose program text holds this fail

  const CompilerIdentity& identity() const override { return identity_; }
  const std::vector<std::string>& architectures() const override { return architectures_; }
  Image compile(const SourceBundle& bundle) override {
    ++compiles;
    pieces = bundle.pieces.size();
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms.load()));
    is_held.wait(true);
    if (!fail_on.empty() && bundle.entries.front().find(fail_on) != std::string::npos) {
      throw Error(ErrorKind::compile, "planted failure");
    }
    {
      const std::lock_guard lock(mutex_);
      compiled.push_back(bundle.entries.front());
    }
    if (!log.empty()) std::ofstream(log, std::ios::app) << bundle.entries.front() + "\n";
    Image image;
    image.ptx = "// " + bundle.entries.front();
    image.cubin.assign(64, std::byte{7});
    image.report.compiler = identity_;
    image.report.entries.push_back({.name = bundle.entries.front(), .registers = 168});
    image.report.compile_ms = 1;
    if (bundle.merge != nullptr) add_merge(image, compile(*bundle.merge));
    return image;
  }
  std::vector<std::string> compiled;  ///< entries, in the order in which their compiles end
  std::filesystem::path log;          ///< a file that several processes write them to, a line each

 private:
  std::mutex mutex_;
  CompilerIdentity identity_{.name = "counting", .major_version = 1, .minor_version = 0, .build_id = "00"};
  std::vector<std::string> architectures_{"sm_90a"};
};

struct Fixture {
  testing::TemporaryFolder folder;
  std::shared_ptr<CountingCompiler> compiler = std::make_shared<CountingCompiler>();
  std::unique_ptr<Jit> jit(JitOptions options = {}) const {
    options.cache_dir = folder.path / "cache";
    auto made = std::make_unique<Jit>(std::move(options));
    made->set_compiler(compiler);
    return made;
  }
};

template <class Function>
Error error_of(Function&& function) {
  try {
    function();
  } catch (const Error& error) {
    return error;
  }
  FAIL("no error");
  return Error(ErrorKind::io, "");
}

/// Dealt keys, whose parts a second kernel merges.
inline Problem dealt(std::string_view page_size, std::string_view head_dim = "128") {
  return problem_of("fmha", {{"head_dim", std::string(head_dim)},
                             {"mask", "causal"},
                             {"q_layout", "ragged"},
                             {"kv_layout", "paged"},
                             {"page_size", std::string(page_size)},
                             {"split_kv", "dealt"}});
}
inline std::string merge_of(const Problem& problem) { return make_plan(problem).launch.steps.at(1).entry; }
inline bool is_merge(const CacheListing& entry) { return entry.kernel.ends_with("_merge"); }

}  // namespace tessera::jit_test
