// Jit with a compiler that counts instead of compiling: sharing, policies, warm-up, coverage. One file, though long:
// all cases are of one class and share its fixture.

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
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

/// Counts compiles; its image is the bundle's entry name.
class CountingCompiler final : public Compiler {
 public:
  std::atomic<int> compiles{0};
  std::atomic<int> delay_ms{0};
  std::atomic<bool> is_held{false};  ///< compiles wait until it is false and notified
  std::string fail_on;               ///< compiles of a bundle whose program text holds this fail

  const CompilerIdentity& identity() const override { return identity_; }
  const std::vector<std::string>& architectures() const override { return architectures_; }
  Image compile(const SourceBundle& bundle) override {
    ++compiles;
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms.load()));
    is_held.wait(true);
    if (!fail_on.empty() && bundle.entries.front().find(fail_on) != std::string::npos) {
      throw Error(ErrorKind::compile, "planted failure");
    }
    {
      const std::lock_guard lock(mutex_);
      compiled.push_back(bundle.entries.front());
    }
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

TEST_CASE("jit: warm counts distinct kernels, survives a failure, resumes after it") {
  const Fixture fixture;
  std::vector<Problem> problems;
  for (const int head_dim : {64, 128, 256, 40}) {
    for (int copies = 0; copies < 3; ++copies) problems.emplace_back(Fmha{.head_dim = head_dim, .seqlen_q = 0});
  }
  fixture.compiler->fail_on = "d256";
  const WarmReport first = fixture.jit()->warm(problems);
  CHECK(first.problems == 12);
  CHECK(first.kernels == 3);
  CHECK(first.compiled == 2);
  CHECK(first.failed == 1);
  REQUIRE(first.rejected.size() == 3);
  CHECK(first.rejected.front().index == 9);
  CHECK(first.rejected.front().reason.find("head_dim 40") != std::string::npos);
  fixture.compiler->fail_on.clear();
  const WarmReport second = fixture.jit()->warm(problems);
  CHECK(second.hit == 2);
  CHECK(second.compiled == 1);
  CHECK(second.failed == 0);
}

TEST_CASE("jit: warm stops when asked and keeps what is done") {
  const Fixture fixture;
  fixture.compiler->delay_ms = 5;
  std::vector<Problem> problems;
  for (const int head_dim : {64, 128, 256}) {
    for (const DType dtype : {DType::bf16, DType::f16})
      problems.emplace_back(Fmha{.head_dim = head_dim, .dtype = dtype});
  }
  std::stop_source stop;
  WarmOptions options{.jobs = 1,
                      .on_progress =
                          [&](const WarmProgress& p) {
                            if (p.done == 2) stop.request_stop();
                          },
                      .stop = stop.get_token()};
  const WarmReport report = fixture.jit()->warm(problems, options);
  CHECK(report.was_cancelled);
  CHECK(report.compiled == 2);
  CHECK(report.entries.size() == 2);
  CHECK(fixture.jit()->warm(problems).hit == 2);
}

TEST_CASE("jit: warm that waits for another process stops when asked") {
  const Fixture fixture;
  const auto jit = fixture.jit();
  const std::vector<Problem> problems{Problem(Fmha{.head_dim = 64}), Problem(Fmha{.head_dim = 128})};
  CHECK(jit->warm(std::span(problems).first(1)).compiled == 1);  // makes the folders
  const WarmReport asked = jit->warm(std::span(problems).last(1), {.dry_run = true});
  CacheShared shared(jit->cache().options());
  const CacheFolder folder(shared, jit->cache().options().user_folder, true);
  const ProcessLock holder = folder.lock("build " + asked.entries.at(0).keys.entry);
  REQUIRE(holder.outcome() == LockOutcome::held);
  std::stop_source stop;
  const std::jthread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{60});
    stop.request_stop();
  });
  const WarmReport report = jit->warm(problems, {.jobs = 1, .stop = stop.get_token()});
  CHECK(report.was_cancelled);
  CHECK(report.hit == 1);
  CHECK(report.failed == 0);
  CHECK(report.entries.size() == 1);
  CHECK(fixture.compiler->compiles == 1);
}

TEST_CASE("jit: warm counts the distinct kernels before it compiles, and can be stopped while it counts") {
  const Fixture fixture;
  std::vector<Problem> problems;
  for (Hint batch = 1; batch <= 3000; ++batch) problems.emplace_back(Fmha{.head_dim = 64, .batch = batch});
  problems.emplace_back(Fmha{.head_dim = 128});
  std::vector<WarmCount> counts;
  WarmOptions options{.on_count = [&](const WarmCount& count) {
    CHECK(fixture.compiler->compiles == 0);
    counts.push_back(count);
  }};
  const WarmReport whole = fixture.jit()->warm(problems, options);
  REQUIRE(counts.size() == 3);
  CHECK(counts[0].problems == 1024);
  CHECK(counts[1].problems == 2048);
  CHECK(counts[1].total == 3001);
  CHECK(counts[2].problems == 3001);
  CHECK(counts[2].kernels == whole.kernels);
  CHECK(fixture.compiler->compiles == whole.kernels);
  CHECK_FALSE(whole.was_cancelled);

  std::stop_source stop;
  options.stop = stop.get_token();
  options.on_count = [&](const WarmCount& count) {
    CHECK(count.problems == 1024);
    stop.request_stop();
  };
  const WarmReport stopped = fixture.jit()->warm(problems, options);
  CHECK(stopped.was_cancelled);
  CHECK(stopped.kernels < whole.kernels);
  CHECK(stopped.entries.empty());
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

Problem dealt(std::string_view page_size, std::string_view head_dim = "128") {
  return problem_of("fmha", {{"head_dim", std::string(head_dim)},
                             {"mask", "causal"},
                             {"q_layout", "ragged"},
                             {"kv_layout", "paged"},
                             {"page_size", std::string(page_size)},
                             {"split_kv", "dealt"}});
}
std::string merge_of(const Problem& problem) { return make_plan(problem).launch.steps.at(1).entry; }
bool is_merge(const CacheListing& entry) { return entry.kernel.ends_with("_merge"); }

TEST_CASE("jit: kernels of one output share the kernel that merges, each has it in its entry") {
  const Fixture fixture;
  const Problem a = dealt("16"), b = dealt("64"), wide = dealt("16", "256");
  REQUIRE(merge_of(a) == merge_of(b));
  REQUIRE(merge_of(a) != merge_of(wide));
  const auto jit = fixture.jit();
  const auto first = jit->kernel(a);
  CHECK(fixture.compiler->compiles == 2);
  const CacheEntry& entry = first->entry();
  CHECK(entry.image.ptx == "// " + first->plan().kernel);
  CHECK(entry.image.merge.ptx == "// " + merge_of(a));
  CHECK(entry.image.merge.cubin.size() == 64);
  REQUIRE(entry.image.report.entries.size() == 2);
  CHECK(entry.image.report.entries[1].name == merge_of(a));
  CHECK(entry.image.report.compile_ms >= 1);
  CHECK(entry.image.report.compile_ms < 1000);
  const auto second = jit->kernel(b);
  CHECK(fixture.compiler->compiles == 3);
  CHECK(second->entry().image.merge.ptx == entry.image.merge.ptx);
  jit->kernel(wide);
  CHECK(fixture.compiler->compiles == 5);
  CHECK(jit->stats().cache.compiles == 5);
  // Another process finds both parts in the kernel's own entry.
  const auto other = fixture.jit();
  const CacheEntry& found = other->kernel(a)->entry();
  CHECK(found.tier == CacheTier::user);
  CHECK(found.image.merge.cubin == entry.image.merge.cubin);
  CHECK(found.whole_image().merge.ptx == entry.image.merge.ptx);
  CHECK(fixture.compiler->compiles == 5);
  // Options reach the merge.
  fixture.jit({.nvrtc_options = {"--use_fast_math"}})->kernel(a);
  CHECK(fixture.compiler->compiles == 7);
}

TEST_CASE("jit: a cache that has the merge and not the kernel, the kernel and not the merge, a damaged merge") {
  const Fixture fixture;
  const Problem a = dealt("16"), b = dealt("64");
  fixture.jit()->kernel(a);
  const auto entries = [&] { return list_cache(fixture.jit()->cache().options()); };
  REQUIRE(entries().size() == 2);
  const auto remove_those = [&](bool merges) {
    for (const CacheListing& entry : entries())
      if (is_merge(entry) == merges) std::filesystem::remove_all(entry.folder);
  };
  // The merge alone: the kernel is compiled.
  remove_those(false);
  fixture.compiler->compiled.clear();
  CHECK(fixture.jit()->check({&a, 1}).front().tier == std::nullopt);
  fixture.jit()->kernel(a);
  CHECK(fixture.compiler->compiled == std::vector<std::string>{planned_kernel(a)});
  // The kernel alone: nothing is.
  remove_those(true);
  fixture.compiler->compiled.clear();
  CHECK(fixture.jit()->check({&a, 1}).front().tier == CacheTier::user);
  CHECK(fixture.jit({.policy = CompilePolicy::forbid})->kernel(a)->entry().image.merge.cubin.size() == 64);
  CHECK(fixture.compiler->compiled.empty());
  // Neither for another one.
  fixture.jit()->kernel(b);
  CHECK(fixture.compiler->compiled.size() == 2);
  // A damaged merge is compiled again; who has its own does not look at it.
  for (const CacheListing& entry : entries())
    if (is_merge(entry)) write_file(entry.folder / "kernel.cubin", "damaged");
  fixture.compiler->compiled.clear();
  fixture.jit()->kernel(a);
  CHECK(fixture.compiler->compiled.empty());
  const Problem c = dealt("32");
  REQUIRE(merge_of(c) == merge_of(a));
  const auto jit = fixture.jit();
  CHECK(jit->kernel(c)->entry().image.merge.cubin.size() == 64);
  CHECK(fixture.compiler->compiled.size() == 2);
  CHECK(jit->stats().cache.quarantined == 1);
}

TEST_CASE("jit: two threads that want two kernels of one merge compile it once") {
  const Fixture fixture;
  fixture.compiler->delay_ms = 50;
  const auto jit = fixture.jit();
  {
    std::vector<std::jthread> threads;
    for (const char* const page : {"8", "16", "32", "64"})
      threads.emplace_back([&, page] { jit->kernel(dealt(page)); });
  }
  CHECK(fixture.compiler->compiles == 5);
  // Of a list likewise, which counts kernels alone.
  const Fixture other;
  const std::vector<Problem> problems{dealt("8"), dealt("16"), dealt("32"), dealt("64")};
  const WarmReport report = other.jit()->warm(problems, {.jobs = 4});
  CHECK(report.compiled == 4);
  CHECK(report.entries.front().registers == 168);
  CHECK(other.compiler->compiles == 5);
}

TEST_CASE("jit: without a folder kernels share a merge in memory") {
  const auto compiler = std::make_shared<CountingCompiler>();
  Jit jit({.use_disk_cache = false});
  jit.set_compiler(compiler);
  jit.kernel(dealt("16"));
  CHECK(jit.kernel(dealt("64"))->entry().image.merge.cubin.size() == 64);
  CHECK(compiler->compiles == 3);
}

TEST_CASE("jit: a merge that does not compile is the kernel's failure, and is tried again") {
  const Fixture fixture;
  const Problem a = dealt("16");
  const auto jit = fixture.jit();
  fixture.compiler->fail_on = "_merge";
  CHECK(error_of([&] { jit->kernel(a); }).kind() == ErrorKind::compile);
  CHECK(list_cache(jit->cache().options()).empty());
  fixture.compiler->fail_on.clear();
  CHECK_NOTHROW(jit->kernel(a));
  CHECK(fixture.compiler->compiles == 4);
  // The kernel's failure leaves the merge, which is whole.
  const Fixture other;
  other.compiler->fail_on = planned_kernel(a);
  CHECK(error_of([&] { other.jit()->kernel(a); }).kind() == ErrorKind::compile);
  REQUIRE(list_cache(other.jit()->cache().options()).size() == 1);
  other.compiler->fail_on.clear();
  other.compiler->compiled.clear();
  other.jit()->kernel(a);
  CHECK(other.compiler->compiled == std::vector<std::string>{planned_kernel(a)});
}

TEST_CASE("jit: compiler options enter the key") {
  const Fixture fixture;
  fixture.jit()->kernel(Fmha{});
  fixture.jit({.nvrtc_options = {"--use_fast_math"}})->kernel(Fmha{});
  CHECK(fixture.compiler->compiles == 2);
}

}  // namespace
}  // namespace tessera
