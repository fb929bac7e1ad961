// What the cache's tests share: a folder that goes away, sample bundles, and a cache with a counting compiler.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/file.h"
#include "runtime/cache_entry.h"
#include "runtime/cache_files.h"
#include "tessera/cache.h"
#include "tests/support/counting_compiler.h"
#include "tests/support/temporary_folder.h"

namespace tessera::testing {

inline SourceBundle sample_bundle(int number, const std::string& arch = "sm_90a") {
  SourceBundle bundle;
  bundle.program = "/tessera/fmha/entry.cu";
  bundle.text = "#include \"config.cuh\"\n// kernel " + std::to_string(number) + "\n";
  bundle.headers = {{"config.cuh", "constexpr int k = " + std::to_string(number) + ";\n"}, {"fmha/kernel.cuh", "//\n"}};
  bundle.arch = arch;
  bundle.options = {"--std=c++20", "-lineinfo"};
  bundle.entries = {"tessera_sample_" + std::to_string(number)};
  return bundle;
}

inline CacheRequest request_for(const SourceBundle& bundle, const Compiler* compiler, const std::string& op = "fmha") {
  CacheRequest request;
  request.plan_json = "{\"plan\": \"" + bundle.entries.front() + "\"}\n";
  request.keys = make_keys(bundle, request.plan_json, compiler != nullptr ? &compiler->identity() : nullptr);
  request.op = op;
  request.arch = bundle.arch;
  request.kernel = bundle.entries.front();
  return request;
}

/// A cache over a temporary folder; the warnings that it gave.
struct Bench {
  /// In memory: the tests make some ten thousand fsyncs.
  TemporaryFolder folder{TemporaryFolder::Place::memory};
  CacheOptions options;
  CountingCompiler compiler;
  std::vector<std::string> warnings;
  std::mutex warnings_mutex;

  Bench() {
    options.user_folder = folder / "cache";
    options.warn = [this](const std::string& text) {
      const std::lock_guard lock(warnings_mutex);
      warnings.push_back(text);
    };
  }
  std::unique_ptr<Cache> open() const { return std::make_unique<Cache>(options); }
  std::shared_ptr<const CacheEntry> build(Cache& cache, int number, const std::string& op = "fmha",
                                          const std::string& arch = "sm_90a") {
    const SourceBundle bundle = sample_bundle(number, arch);
    return cache.find_or_build(request_for(bundle, &compiler, op), [&] { return compiler.compile(bundle); });
  }
  /// A fresh cache object, as a new process would have.
  std::shared_ptr<const CacheEntry> build(int number) { return build(*open(), number); }
  std::shared_ptr<const CacheEntry> find(int number) {
    return open()->find(request_for(sample_bundle(number), &compiler));
  }
  std::filesystem::path entry_folder(int number) const {
    const EntryKeys keys = request_for(sample_bundle(number), &compiler).keys;
    return options.user_folder / "v1" / keys.source.substr(0, 2) / keys.source / keys.entry;
  }
  std::size_t staged() const { return count(options.user_folder / "v1" / "staging"); }
  std::size_t quarantined() const { return count(options.user_folder / "v1" / "quarantine"); }
  static std::size_t count(const std::filesystem::path& path) {
    std::error_code missing;
    std::size_t number = 0;
    for (std::filesystem::directory_iterator each(path, missing), end; each != end; ++each) ++number;
    return number;
  }
};

/// Equal to what the counting compiler gives for the sample: whatever way it came here.
inline bool is_right(const CacheEntry& entry, int number, const CountingCompiler& like) {
  CountingCompiler again(like.identity().major_version, like.identity().build_id);
  again.cubin_bytes = like.cubin_bytes;
  again.ptx_bytes = like.ptx_bytes;
  const SourceBundle bundle = sample_bundle(number, entry.arch);
  const Image expected = again.compile(bundle);
  return entry.image.cubin == expected.cubin && (!entry.has_ptx || entry.image.ptx == expected.ptx) &&
         entry.plan_json == request_for(bundle, &again).plan_json && entry.kernel == bundle.entries.front() &&
         entry.image.report.compiler == expected.report.compiler && entry.image.report.log == expected.report.log;
}

}  // namespace tessera::testing
