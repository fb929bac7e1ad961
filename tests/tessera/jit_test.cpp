// Jit with a compiler that counts instead of compiling: sharing, policies, failures, coverage. Warm-up and kernels that
// are merged: jit_warm_test.cpp, jit_merge_test.cpp.

#include "tessera/jit.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <atomic>
#include <cfenv>
#include <thread>

#include "base/file.h"
#include "runtime/cache_folder.h"
#include "runtime/nvrtc.h"
#include "tessera/cache_admin.h"
#include "tessera/internal/jit_state.h"
#include "tests/generator/problems.h"
#include "tests/support/fake_device.h"
#include "tests/support/jit_fixture.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

using jit_test::CountingCompiler, jit_test::error_of, jit_test::Fixture;

TEST_CASE("jit: one Problem compiles once, in one process and the next") {
  const Fixture fixture;
  {
    const auto jit = fixture.jit();
    const auto first = jit->kernel(Problem(Fmha{}));
    CHECK(jit->kernel(Problem(Fmha{})) == first);
    CHECK(fixture.compiler->compiles == 1);
    CHECK(jit->stats().kernel_hits == 1);
  }
  const auto jit = fixture.jit();
  CHECK(jit->kernel(Problem(Fmha{}))->entry().tier == CacheTier::user);
  CHECK(fixture.compiler->compiles == 1);
  CHECK(jit->stats().cache.user_hits == 1);
}

TEST_CASE("jit: the caller's arithmetic changes no key and is afterwards as before") {
  const Fixture fixture;
  for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    CAPTURE(mode);
    const auto jit = fixture.jit();
    std::fesetround(mode);
    std::feclearexcept(FE_ALL_EXCEPT);
    // 1 / sqrt(96) is rounded.
    for (const int head_dim : {96, 128, 192}) jit->kernel(Problem(Fmha{.head_dim = head_dim}));
    const Problem gemm(Gemm{.m = 300, .n = 5000, .k = 7000});
    jit->kernel(gemm);
    jit->check({&gemm, 1});
    const int flags = std::fetestexcept(FE_ALL_EXCEPT), after = std::fegetround();
    std::fesetround(FE_TONEAREST);
    CHECK(flags == 0);
    CHECK(after == mode);
    CHECK(fixture.compiler->compiles == 4);
  }
}

TEST_CASE("jit: Problems that differ in facts get different kernels") {
  const Fixture fixture;
  const auto jit = fixture.jit();
  const auto a = jit->kernel(Problem(Fmha{.head_dim = 64}));
  const auto b = jit->kernel(Problem(Fmha{.head_dim = 128}));
  CHECK(a != b);
  CHECK(a->plan().kernel != b->plan().kernel);
  CHECK(fixture.compiler->compiles == 2);
}

TEST_CASE("jit: eight threads that want the same kernel compile it once") {
  const Fixture fixture;
  fixture.compiler->delay_ms = 30;
  const auto jit = fixture.jit();
  std::vector<std::shared_ptr<Kernel>> kernels(8);
  {
    std::vector<std::jthread> threads;
    for (auto& kernel : kernels) threads.emplace_back([&] { kernel = jit->kernel(Problem(Copy2d{})); });
  }
  for (const auto& kernel : kernels) CHECK(kernel == kernels.front());
  CHECK(fixture.compiler->compiles == 1);
}

TEST_CASE("jit: forbidding compilation names the command that warms") {
  const Fixture fixture;
  const auto jit = fixture.jit({.policy = CompilePolicy::forbid});
  const Error error = error_of([&] { jit->kernel(Fmha{.head_dim = 64, .mask = Mask::causal}); });
  CHECK(error.kind() == ErrorKind::unsupported);
  CHECK(std::string(error.what())
            .find("compiling at run time is forbidden; warm it with: tessera warm fmha --head-dim 64 --mask causal") !=
        std::string::npos);
  CHECK(fixture.compiler->compiles == 0);
  // Warmed by somebody else, the same request is served.
  fixture.jit()->kernel(Fmha{.head_dim = 64, .mask = Mask::causal});
  CHECK_NOTHROW(jit->kernel(Fmha{.head_dim = 64, .mask = Mask::causal}));
}

TEST_CASE("jit: a warning policy compiles and tells") {
  const Fixture fixture;
  std::vector<JitEvent> events;
  const auto jit =
      fixture.jit({.policy = CompilePolicy::warn, .on_event = [&](const JitEvent& e) { events.push_back(e); }});
  jit->kernel(Fmha{});
  REQUIRE(events.size() == 3);
  CHECK(events[0].kind == JitEvent::Kind::warning);
  CHECK(events[1].kind == JitEvent::Kind::compile_started);
  CHECK(events[2].kind == JitEvent::Kind::compile_finished);
}

TEST_CASE("jit: an event function may ask for the kernel whose compile is over") {
  const Fixture fixture;
  Jit* asked = nullptr;
  int found = 0, failed = 0;
  const auto on_event = [&](const JitEvent& event) {
    if (event.kind == JitEvent::Kind::compile_finished) found += asked->kernel(Problem(Fmha{})) != nullptr ? 1 : 0;
    if (event.kind != JitEvent::Kind::compile_failed || failed++ > 0) return;
    CHECK(error_of([&] { asked->kernel(Gemm{}); }).kind() == ErrorKind::compile);  // tried again, and told again
  };
  for (const int limit_ms : {0, 60000}) {
    const auto jit = fixture.jit(
        {.use_disk_cache = false, .compile_time_limit = std::chrono::milliseconds(limit_ms), .on_event = on_event});
    asked = jit.get();
    jit->kernel(Fmha{});
  }
  CHECK(found == 2);
  fixture.compiler->fail_on = "gemm";
  const auto jit = fixture.jit({.on_event = on_event});
  asked = jit.get();
  CHECK(error_of([&] { jit->kernel(Gemm{}); }).kind() == ErrorKind::compile);
  CHECK(failed == 2);
  // Of a warm-up, too.
  const auto warming = fixture.jit({.use_disk_cache = false, .on_event = on_event});
  asked = warming.get();
  const Problem problems[] = {Fmha{}};
  CHECK(warming->warm(problems).compiled == 1);
  CHECK(found == 3);
}

TEST_CASE("jit: in the midst of a compile its kernel cannot be waited for, others can") {
  const Fixture fixture;
  Jit* asked = nullptr;
  std::string refusal;
  for (const int limit_ms : {0, 60000}) {
    refusal.clear();
    const auto jit = fixture.jit({.use_disk_cache = false,
                                  .compile_time_limit = std::chrono::milliseconds(limit_ms),
                                  .on_event = [&](const JitEvent& event) {
                                    if (event.kind != JitEvent::Kind::compile_started || !refusal.empty()) return;
                                    const Error error = error_of([&] { asked->kernel(Fmha{}); });
                                    CHECK(error.kind() == ErrorKind::usage);
                                    refusal = error.what();
                                    asked->kernel(Fmha{.head_dim = 64});
                                  }});
    asked = jit.get();
    jit->kernel(Fmha{});
    CHECK(refusal.find("in the midst of its compile, which would wait for itself: ask when the compile has finished") !=
          std::string::npos);
  }
}

TEST_CASE("jit: two compiles whose event functions ask for each other's kernel") {
  const Fixture fixture;
  Jit* asked = nullptr;
  std::atomic<int> begun{0}, refused{0}, served{0};
  const auto jit = fixture.jit({.on_event = [&](const JitEvent& event) {
    if (event.kind != JitEvent::Kind::compile_started) return;
    ++begun;
    while (begun < 2) std::this_thread::yield();  // both compile
    const int head_dim = event.kernel.find("_d64_") != std::string::npos ? 128 : 64;
    try {
      asked->kernel(Fmha{.head_dim = head_dim});
      ++served;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::usage);
      ++refused;
    }
  }});
  asked = jit.get();
  {
    const std::jthread other([&] { jit->kernel(Fmha{.head_dim = 64}); });
    jit->kernel(Fmha{.head_dim = 128});
  }
  CHECK(refused == 1);
  CHECK(served == 1);
}

TEST_CASE("jit: a waiter gives up at the time limit, the compile does not") {
  const Fixture fixture;
  const auto jit = fixture.jit({.compile_time_limit = std::chrono::milliseconds(20)});
  struct Hold {
    explicit Hold(std::atomic<bool>& of) : is_held(of) { is_held = true; }
    ~Hold() { release(); }
    void release() {
      is_held = false;
      is_held.notify_all();
    }
    std::atomic<bool>& is_held;
  } hold(fixture.compiler->is_held);
  const Error error = error_of([&] { jit->kernel(Fmha{}); });
  CHECK(error.kind() == ErrorKind::compile);
  CHECK(std::string(error.what()).find("not compiled within 20 ms") != std::string::npos);
  CHECK(error_of([&] { jit->kernel(Fmha{}); }).kind() == ErrorKind::compile);  // waits for the same compile again
  hold.release();
  bool is_served = false;
  for (int tries = 0; tries < 3000 && !is_served; ++tries) {  // a minute: who is slow gives up again
    try {
      jit->kernel(Fmha{});
      is_served = true;
    } catch (const Error& again) {
      CHECK(again.kind() == ErrorKind::compile);
    }
  }
  CHECK(is_served);
  CHECK(fixture.compiler->compiles == 1);
}

TEST_CASE("jit: a failed compile reaches the caller, publishes nothing, and is tried again") {
  const Fixture fixture;
  fixture.compiler->fail_on = "fmha";
  const auto jit = fixture.jit();
  CHECK(error_of([&] { jit->kernel(Fmha{}); }).kind() == ErrorKind::compile);
  fixture.compiler->fail_on.clear();
  CHECK_NOTHROW(jit->kernel(Fmha{}));
  CHECK(fixture.compiler->compiles == 2);
}

TEST_CASE("jit: a kernel may be asked for by its plan, and is the one of its problem") {
  const Fixture fixture;
  const auto jit = fixture.jit();
  const Problem problem = Fmha{.head_dim = 64};
  const std::shared_ptr<Kernel> kernel = jit->kernel(make_plan(problem));
  CHECK(kernel->plan().problem == problem);
  CHECK(jit->kernel(problem) == kernel);
  CHECK(jit->kernel(make_plan(problem)) == kernel);
  CHECK(fixture.compiler->compiles == 1);
  // By disk, in another process as it were; what one keeps for reading is stored once.
  CHECK(fixture.jit()->kernel(make_plan(problem))->plan().kernel == kernel->plan().kernel);
  CHECK(fixture.compiler->compiles == 1);
}

TEST_CASE("jit: what is kept as source is what was compiled, overrides included") {
  const Fixture fixture;
  const testing::TemporaryFolder overrides, elsewhere;
  std::filesystem::create_directory(overrides.path / "copy2d");
  const Plan plan = make_plan(Copy2d{});
  const SourceBundle plain = Jit().bundle(plan);
  const auto kernel = std::find_if(plain.headers.begin(), plain.headers.end(),
                                   [](const SourceFile& file) { return file.path == "copy2d/kernel.cuh"; });
  REQUIRE(kernel != plain.headers.end());
  // A link to a file elsewhere stands for the template of the link's name.
  write_file(elsewhere.path / "mine.cuh", "// mine\n" + kernel->text);
  std::filesystem::create_symlink(elsewhere.path / "mine.cuh", overrides.path / "copy2d" / "kernel.cuh");
  const auto jit = fixture.jit({.templates_dir = overrides.path});
  CHECK(jit->source(plan).find("\n// mine\n") != std::string::npos);
  CHECK(Jit().source(plan).find("// mine") == std::string::npos);
  const auto stored = [&](const EntryKeys& keys) {
    return show_cache_entry(jit->cache().options(), keys.entry).source;
  };
  const std::vector<Problem> problems{Copy2d{}};
  const WarmReport report = jit->warm(problems);
  CHECK(stored(report.entries.at(0).keys) == jit->source(plan));
  const Problem other = Copy2d{.rank = 3};
  CHECK(stored(jit->kernel(other)->entry().keys) == jit->source(make_plan(other)));
}

TEST_CASE("jit: an override that cannot be read is an error that names it") {
  const testing::TemporaryFolder overrides;
  std::filesystem::create_symlink("loop.cuh", overrides.path / "loop.cuh");
  const Error error = error_of([&] { const Jit jit({.templates_dir = overrides.path}); });
  CHECK(error.kind() == ErrorKind::io);
  CHECK(std::string(error.what()) ==
        "templates folder: " + (overrides.path / "loop.cuh").string() + ": Too many levels of symbolic links");
}

TEST_CASE("jit: a dry run compiles nothing; check tells what a server would miss") {
  const Fixture fixture;
  const std::vector<Problem> problems{Fmha{.head_dim = 64}, Fmha{.head_dim = 128}, Fmha{.head_dim = 40}};
  const auto jit = fixture.jit();
  const WarmReport dry = jit->warm(problems, {.dry_run = true});
  CHECK(dry.kernels == 2);
  CHECK(dry.compiled == 0);
  CHECK(fixture.compiler->compiles == 0);
  jit->kernel(problems[0]);
  const std::vector<Coverage> coverage = fixture.jit()->check(problems);
  REQUIRE(coverage.size() == 3);
  CHECK(coverage[0].tier == CacheTier::user);
  CHECK_FALSE(coverage[1].tier.has_value());
  CHECK(coverage[2].rejected.find("head_dim 40") != std::string::npos);
}

TEST_CASE("jit: every size of a launch has a name among the arguments, but for what the launcher fills in") {
  const Fixture fixture;
  const auto jit = fixture.jit();
  std::vector<Problem> problems = every_fact();
  for (const char* const arch : {"sm_90a", "sm_100a"})
    for (const Layout v_layout : {Layout::mn_major, Layout::k_major})
      for (const Window window : {Window::none, Window::sliding})
        for (const UsedLengths seqused : {UsedLengths::none, UsedLengths::qk})
          for (const SplitKv split_kv : {SplitKv::off, SplitKv::on})
            for (const KvPools kv_pools : {KvPools::dense, KvPools::sparse_window})
              problems.push_back(Fmha{.arch = Arch::parse(arch),
                                      .window = window,
                                      .seqused = seqused,
                                      .kv_pools = kv_pools,
                                      .v_layout = v_layout,
                                      .split_kv = split_kv});
  for (const int page_size : kPageSizes) problems.push_back(Fmha{.kv_layout = KvLayout::paged, .page_size = page_size});
  problems.push_back(Fmha{.kv_layout = KvLayout::ragged});
  int kernels = 0;
  for (const Problem& problem : problems) try {
      // Their tables are made here: a size without a name ends the program.
      if (const auto* const fmha = problem.get_if<Fmha>()) jit->kernel(*fmha), ++kernels;
      if (const auto* const gemm = problem.get_if<Gemm>()) jit->kernel(*gemm), ++kernels;
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::unsupported);
    }
  CHECK(kernels > 200);
}

TEST_CASE("jit: kernels ask the device about every pointer where the options say so") {
  const Fixture fixture;
  for (const bool check_pointers : {false, true}) {
    JitOptions options;
    options.check_pointers = check_pointers;
    const auto kernel = fixture.jit(options)->kernel(Problem(ConvertScales{}));
    FakeDevice device;
    for (const LaunchStep& step : kernel->plan().launch.steps)
      for (const KernelParameter& parameter : step.parameters)
        device.entries[step.entry].push_back(parameter_bytes(parameter.kind));
    const Launcher& launcher = kernel->launcher(device);
    std::vector<std::int64_t> sizes(launcher.plan().sizes.size(), 4);
    sizes[static_cast<std::size_t>(launcher.size_index("l"))] = 1;
    const std::vector<DevicePointer> buffers{device.allocate(4096), 0x7fff00001000};
    const LaunchArguments arguments{sizes, {}, buffers};
    if (!check_pointers) {
      kernel->launch(device, {}, arguments);
      CHECK(device.launches.size() == 1);
      continue;
    }
    CHECK(std::string(error_of([&] { kernel->launch(device, {}, arguments); }).what()) ==
          "convert_scales: buffer 'to' at 0x7fff00001000: no memory of the device");
    CHECK(device.launches.empty());
  }
}

TEST_CASE("jit: a factor of values that are a part of keys is refused, not ignored") {
  const Fixture fixture;
  const Fmha latent{.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .kv_dtype = DType::e4m3};
  const auto refusal = [&](const Fmha& problem, const FmhaArguments& arguments) {
    const FmhaKernel kernel = fixture.jit()->kernel(problem);
    FakeDevice device;
    for (const LaunchStep& step : kernel.kernel().plan().launch.steps)
      for (const KernelParameter& parameter : step.parameters)
        device.entries[step.entry].push_back(parameter_bytes(parameter.kind));
    return std::string(error_of([&] { kernel.launch(device, {}, arguments); }).what());
  };
  const std::string only_k =
      "v_descale with v_is_k: values are columns of k, and k_descale is the factor of both: leave it null";
  CHECK(refusal(latent, {.v_descale = 4096}) == only_k);
  CHECK(refusal(latent, {.k_descale = 4096}) != only_k);  // but for its sizes
  CHECK(refusal(Fmha{.kv_dtype = DType::e4m3}, {.v_descale = 4096}) != only_k);
}

TEST_CASE("jit: compiler options enter the key") {
  const Fixture fixture;
  fixture.jit()->kernel(Fmha{});
  fixture.jit({.nvrtc_options = {"--use_fast_math"}})->kernel(Fmha{});
  CHECK(fixture.compiler->compiles == 2);

  // What is asked of the compiler is done to the whole kernel.
  const Fmha in_pieces{.head_dim = 256, .kv_layout = KvLayout::paged, .page_size = 16};
  fixture.jit()->kernel(in_pieces);
  CHECK(fixture.compiler->pieces == 2);
  fixture.jit({.nvrtc_options = {"-lineinfo"}})->kernel(in_pieces);
  CHECK(fixture.compiler->pieces == 0);
  CHECK(fixture.compiler->compiles == 4);
}

}  // namespace
}  // namespace tessera
