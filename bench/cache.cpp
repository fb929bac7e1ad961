// The cache: hits in memory, loads from a warm page cache, publications, keys.
//   bench_cache --benchmark_min_time=0.5      (TMPDIR: the file system to measure)
#include "tessera/cache.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/hash.h"
#include "tests/support/counting_compiler.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCubinBytes = 100'000, kPtxBytes = 200'000;

SourceBundle bundle_of(std::int64_t number) {
  SourceBundle bundle;
  bundle.program = "/tessera/fmha/entry.cu";
  bundle.text = fmt::format("// kernel {}\n", number);
  // As large as the templates of one operator.
  for (int i = 0; i < 12; ++i) bundle.headers.push_back({fmt::format("fmha/{:02}.cuh", i), std::string(4000, 'x')});
  bundle.arch = "sm_90a";
  bundle.options = {"--std=c++20", "-lineinfo"};
  bundle.entries = {fmt::format("tessera_fmha_sm90a_d128_128x128_s2_sw128_causal_bf16_{}", number)};
  return bundle;
}

testing::CountingCompiler& compiler() {
  static testing::CountingCompiler made;
  made.cubin_bytes = kCubinBytes;
  made.ptx_bytes = kPtxBytes;
  return made;
}

CacheRequest request_of(const SourceBundle& bundle) {
  CacheRequest request;
  request.plan_json = std::string(6000, ' ');
  request.keys = make_keys(bundle, request.plan_json, &compiler().identity());
  request.op = "fmha";
  request.arch = bundle.arch;
  request.kernel = bundle.entries.front();
  return request;
}

struct Folder {
  fs::path path = fs::temp_directory_path() / fmt::format("tessera-bench-{}", std::rand());
  ~Folder() { fs::remove_all(path); }
};

CacheOptions options_of(const Folder& folder) {
  CacheOptions options;
  options.user_folder = folder.path;
  return options;
}

Image image_of(const SourceBundle& bundle) { return compiler().compile(bundle); }

void find_in_memory(benchmark::State& state) {
  static Cache cache({});
  static const SourceBundle bundle = bundle_of(0);
  static const CacheRequest request = request_of(bundle);
  static const auto held = cache.find_or_build(request, [] { return image_of(bundle); });
  for (auto _ : state) benchmark::DoNotOptimize(cache.find(request));
}
BENCHMARK(find_in_memory)->Threads(1)->Threads(2)->UseRealTime();

void load_from_disk(benchmark::State& state) {
  const Folder folder;
  const SourceBundle bundle = bundle_of(0);
  CacheRequest request = request_of(bundle);
  Cache(options_of(folder)).find_or_build(request, [&] { return image_of(bundle); });
  request.need_ptx = state.range(0) != 0;
  for (auto _ : state) {
    Cache cache(options_of(folder));
    benchmark::DoNotOptimize(cache.find(request));
  }
}
BENCHMARK(load_from_disk)->ArgName("ptx")->Arg(0)->Arg(1)->Unit(benchmark::kMicrosecond);

void contains_on_disk(benchmark::State& state) {
  const Folder folder;
  const SourceBundle bundle = bundle_of(0);
  const CacheRequest request = request_of(bundle);
  Cache(options_of(folder)).find_or_build(request, [&] { return image_of(bundle); });
  Cache cache(options_of(folder));
  for (auto _ : state) benchmark::DoNotOptimize(cache.contains(request));
}
BENCHMARK(contains_on_disk)->Unit(benchmark::kMicrosecond);

void miss_on_disk(benchmark::State& state) {
  const Folder folder;
  const SourceBundle bundle = bundle_of(0);
  Cache cache(options_of(folder));
  cache.find_or_build(request_of(bundle), [&] { return image_of(bundle); });
  const CacheRequest request = request_of(bundle_of(1));
  for (auto _ : state) benchmark::DoNotOptimize(cache.find(request));
}
BENCHMARK(miss_on_disk)->Unit(benchmark::kMicrosecond);

// Everything but the compile: look, lock, digests, write, fsync, rename.
void build_and_publish(benchmark::State& state) {
  const Folder folder;
  Cache cache(options_of(folder));
  const Image image = image_of(bundle_of(0));
  std::int64_t number = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const CacheRequest request = request_of(bundle_of(++number));
    state.ResumeTiming();
    benchmark::DoNotOptimize(cache.find_or_build(request, [&] { return image; }));
  }
}
BENCHMARK(build_and_publish)->Unit(benchmark::kMicrosecond);

void keys_of_a_bundle(benchmark::State& state) {
  const SourceBundle bundle = bundle_of(0);
  const std::string plan(6000, ' ');
  for (auto _ : state) benchmark::DoNotOptimize(make_keys(bundle, plan, &compiler().identity()));
}
BENCHMARK(keys_of_a_bundle)->Unit(benchmark::kMicrosecond);

void sha256(benchmark::State& state) {
  const std::string bytes(kCubinBytes, 'x');
  for (auto _ : state) benchmark::DoNotOptimize(sha256_hex(bytes));
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes.size()));
}
BENCHMARK(sha256)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera

BENCHMARK_MAIN();
