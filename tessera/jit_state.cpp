// The order of looking: kernels held by Problem, then the cache's tiers, then, by policy, the compiler; kernels of
// one source key are shared. The lock over the kernels is held while maps change, never across a compile.
#include "tessera/internal/jit_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/begun.h"
#include "base/file.h"
#include "base/quiet_thread.h"
#include "generator/selectors.h"
#include "runtime/nvrtc.h"
#include "runtime/underway.h"
#include "tessera/internal/compiling.h"

namespace tessera {

namespace {

/// Every file under the folder, by the path that an #include would spell: a link counts as the file under its own name.
std::vector<SourceFile> read_overrides(const std::filesystem::path& folder) {
  std::vector<SourceFile> files;
  if (folder.empty()) return files;
  std::error_code code;
  std::filesystem::recursive_directory_iterator it(folder, code);
  const auto check = [&](const std::filesystem::path& path) {
    if (code) throw Error(ErrorKind::io, fmt::format("templates folder: {}: {}", path.string(), code.message()));
  };
  check(folder);
  for (; it != std::filesystem::recursive_directory_iterator(); it.increment(code), check(folder)) {
    const bool is_file = it->is_regular_file(code);
    check(it->path());
    if (is_file) files.push_back({it->path().lexically_relative(folder).generic_string(), read_text(it->path())});
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

CacheOptions cache_options(const JitOptions& options, std::function<void(const std::string&)> warn) {
  CacheOptions result;
  if (options.use_disk_cache) result.user_folder = options.cache_dir;
  result.system_folders = options.system_cache_dirs;
  result.max_bytes = options.cache_max_bytes;
  result.trust_folder = options.trust_cache_dir;
  result.remote = options.remote;
  result.warn = std::move(warn);
  return result;
}

}  // namespace

Jit::State::State(JitOptions given)
    : options(std::move(given)),
      template_overrides(read_overrides(options.templates_dir)),
      cache(cache_options(options, [this](const std::string& text) {
        emit_event({.kind = JitEvent::Kind::warning, .kernel = {}, .message = text});
      })) {}

Jit::State::~State() = default;

void Jit::State::emit_event(const JitEvent& event) const {
  if (options.on_event) options.on_event(event);
}

Compiler* Jit::State::compiler_or_null() {
  std::call_once(compiler_once_, [this] {
    if (compiler_ != nullptr) return;
    try {
      compiler_ = make_nvrtc_compiler({.library = options.nvrtc_library, .repro_folder = options.repro_dir});
    } catch (const Error& error) {
      no_compiler_reason_ = error.what();
      for (const std::string& note : error.notes()) no_compiler_reason_ += "\n" + note;
    }
  });
  return compiler_.get();
}

void Jit::State::set_compiler(std::shared_ptr<Compiler> given) {
  compiler_ = std::move(given);
  compiler_or_null();
}

SourceBundle Jit::State::bundle(const Plan& plan) const {
  SourceBundle bundle = emit(plan, template_overrides);
  const std::vector<std::string>& more = options.nvrtc_options;
  if (more.empty()) return bundle;
  bundle.options.insert(bundle.options.end(), more.begin(), more.end());
  bundle.pieces.clear();  // whoever asks for something of the compiler gets it of the whole kernel
  if (bundle.merge == nullptr) return bundle;
  SourceBundle merge = *bundle.merge;
  merge.options.insert(merge.options.end(), more.begin(), more.end());
  bundle.merge = std::make_shared<const SourceBundle>(std::move(merge));
  return bundle;
}

CacheRequest Jit::State::request(const Plan& plan, const SourceBundle& bundle) {
  CacheRequest request;
  request.op = plan.op;
  request.arch = plan.arch.to_string();
  request.kernel = plan.kernel;
  request.plan_json = plan_json(plan);
  request.require_compiler = options.require_compiler;
  request.need_ptx = false;  // a GPU runs the cubin; who needs the PTX reads it from the entry
  const Compiler* compiler = compiler_or_null();
  request.keys = make_keys(bundle, request.plan_json, compiler == nullptr ? nullptr : &compiler->identity());
  return request;
}

std::shared_ptr<Kernel> Jit::State::held(const Problem& problem) {
  const std::shared_lock lock(kernels_mutex_);
  const auto it = kernels_.find(problem);
  if (it == kernels_.end()) return nullptr;
  kernel_hits.fetch_add(1, std::memory_order_relaxed);
  return it->second;
}

std::shared_ptr<Kernel> Jit::State::hold(Plan plan, std::shared_ptr<const CacheEntry> entry) {
  const Problem problem = plan.problem;
  const std::unique_lock lock(kernels_mutex_);
  if (const auto it = kernels_.find(problem); it != kernels_.end()) return it->second;
  std::weak_ptr<Kernel>& shared = kernels_by_key_[entry->keys.source];
  std::shared_ptr<Kernel> kernel = shared.lock();
  if (kernel == nullptr) {
    kernel = std::make_shared<Kernel>(std::move(plan), std::move(entry),
                                      LauncherOptions{.check_pointers = options.check_pointers});
    shared = kernel;
  }
  kernels_.emplace(problem, kernel);
  return kernel;
}

Image Jit::State::compile(const CacheRequest& request, const SourceBundle& bundle, const std::string& warning,
                          std::optional<JitEvent>& end) {
  const Compiling compiling(request.keys.source);
  if (!warning.empty()) {
    emit_event(
        {.kind = JitEvent::Kind::warning, .kernel = request.kernel, .tier = CacheTier::compiled, .message = warning});
  }
  Compiler* compiler = compiler_or_null();
  if (compiler == nullptr) {
    throw Error(ErrorKind::io,
                fmt::format("{}: not in the cache, and there is no compiler: {}", request.kernel, no_compiler_reason_));
  }
  emit_event(
      {.kind = JitEvent::Kind::compile_started, .kernel = request.kernel, .tier = CacheTier::compiled, .message = {}});
  try {
    Image image = bundle.merge == nullptr ? compiler->compile(bundle) : compile_with_merge(request, bundle, *compiler);
    end = JitEvent{.kind = JitEvent::Kind::compile_finished,
                   .kernel = request.kernel,
                   .tier = CacheTier::compiled,
                   .milliseconds = image.report.compile_ms,
                   .message = {}};
    return image;
  } catch (const Error& error) {
    end = JitEvent{.kind = JitEvent::Kind::compile_failed,
                   .kernel = request.kernel,
                   .tier = CacheTier::compiled,
                   .message = error.what()};
    throw;
  }
}

Image Jit::State::compile_with_merge(const CacheRequest& request, const SourceBundle& bundle, Compiler& compiler) {
  const SourceBundle& merge = *bundle.merge;
  CacheRequest of_merge;
  of_merge.op = request.op;
  of_merge.arch = request.arch;
  of_merge.kernel = merge.entries.front();
  of_merge.plan_json = merge_plan_json(request.op, request.arch, of_merge.kernel);
  of_merge.keys = make_keys(merge, of_merge.plan_json, &compiler.identity());
  of_merge.require_compiler = true;  // both are by one
  of_merge.stop = request.stop;
  // The kernel takes longer, and NVRTC reads the sources of one program at a time: its pieces go first.
  auto found = begun([&] {
    std::this_thread::sleep_for(2 * kCompileTurn);
    return cache.find_or_build(of_merge, [&] { return compiler.compile(merge); })->image;
  });
  SourceBundle alone = bundle;
  alone.merge = nullptr;
  Image image = compiler.compile(alone);  // where it throws, the future waits for the merge
  const auto compiled = std::chrono::steady_clock::now();
  // Who is told to stop while another compiles the merge has all but the merge: it is short, and compiled here.
  const auto of_merge_found = [&] {
    try {
      return found.get();
    } catch (const WaitInterrupted&) {
      return compiler.compile(merge);
    }
  };
  add_merge(image, of_merge_found());
  image.report.compile_ms +=
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - compiled).count();
  return image;
}

std::shared_ptr<const CacheEntry> Jit::State::find_or_build(const CacheRequest& request, const SourceBundle& bundle,
                                                            const std::string& warning, bool* did_build) {
  std::optional<JitEvent> end;
  std::shared_ptr<const CacheEntry> entry;
  try {
    const Awaiting awaiting(request.keys.source, request.kernel);
    entry = cache.find_or_build(request, [&] {
      if (did_build != nullptr) *did_build = true;
      return compile(request, bundle, warning, end);
    });
  } catch (...) {
    if (end) emit_event(*end);
    throw;
  }
  if (end) emit_event(*end);
  return entry;
}

std::shared_ptr<const CacheEntry> Jit::State::find_or_compile(const Plan& plan, const SourceBundle& bundle) {
  CacheRequest request = this->request(plan, bundle);
  if (auto entry = cache.find(request)) {
    emit_event({.kind = JitEvent::Kind::hit, .kernel = request.kernel, .tier = entry->tier, .message = {}});
    return entry;
  }
  if (options.policy == CompilePolicy::forbid) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: not in the cache, and compiling at run time is forbidden; warm it with: {}",
                            request.kernel, warm_command(plan.problem)));
  }
  std::string warning;  // given where it is compiled: a remote cache may have it
  if (options.policy == CompilePolicy::warn)
    warning = fmt::format("{}: not in the cache, compiling at run time; warm it with: {}", request.kernel,
                          warm_command(plan.problem));
  request.source = source(plan);  // one file of all: made where code is, kept beside it
  const Awaiting awaiting(request.keys.source, request.kernel);
  if (options.compile_time_limit.count() > 0) return find_or_compile_within_limit(request, bundle, warning);
  return said(request, find_or_build(request, bundle, warning));
}

std::shared_ptr<const CacheEntry> Jit::State::said(const CacheRequest& request,
                                                   std::shared_ptr<const CacheEntry> entry) const {
  if (entry->tier == CacheTier::remote)
    emit_event({.kind = JitEvent::Kind::hit, .kernel = request.kernel, .tier = entry->tier, .message = {}});
  return entry;
}

std::shared_ptr<const CacheEntry> Jit::State::find_or_compile_within_limit(const CacheRequest& request,
                                                                           const SourceBundle& bundle,
                                                                           const std::string& warning) {
  using Result = std::shared_ptr<const CacheEntry>;
  std::shared_future<Result> result;
  {
    const std::lock_guard lock(background_mutex_);
    Background& slot = background_[request.keys.source];
    if (!slot.result.valid()) {
      std::packaged_task<Result()> task([this, request, bundle, warning]() -> Result {
        const Underway underway;  // storing it, too: nobody waits for this thread but the end of the process
        return find_or_build(request, bundle, warning);
      });
      slot.result = task.get_future().share();
      try {
        slot.thread = quiet_thread([moved = std::move(task)]() mutable { moved(); });
      } catch (const std::system_error& error) {
        background_.erase(request.keys.source);
        throw Error(ErrorKind::device, fmt::format("{}: no thread can be started to compile it within a time limit: {}",
                                                   request.kernel, error.what()));
      }
    }
    result = slot.result;
  }
  if (result.wait_for(options.compile_time_limit) == std::future_status::ready) {
    const std::lock_guard lock(background_mutex_);
    background_.erase(request.keys.source);  // a failure is tried again by the next request
    return said(request, result.get());
  }
  throw Error(ErrorKind::compile,
              fmt::format("{}: not compiled within {} ms; it goes on in the background and will be in the cache",
                          request.kernel, options.compile_time_limit.count()));
}

std::string warm_command(const Problem& problem) {
  const std::string_view op = operator_name(problem);
  const Problem standard = default_problem(op);
  std::string command = fmt::format("tessera warm {}", op);
  for (const Selector& selector : selectors(op)) {
    const std::string value = field_text(problem, selector.key);
    if (value != field_text(standard, selector.key)) command += fmt::format(" --{} {}", selector.flag, value);
  }
  return command;
}

}  // namespace tessera
