// A jit and what is asked of it: kernels by words, plans, statistics.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "c/handles.h"
#include "generator/plan_json.h"
#include "generator/selectors.h"
#include "tessera/internal/softcap.h"

namespace tessera::c {

namespace {

std::vector<std::filesystem::path> folders_of(std::string_view text) {
  std::vector<std::filesystem::path> folders;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find(':', start), text.size());
    if (end > start) folders.emplace_back(text.substr(start, end - start));
    start = end + 1;
  }
  return folders;
}

CompilePolicy policy_of(std::int32_t policy, CompilePolicy otherwise) {
  switch (policy) {
    case TESSERA_POLICY_DEFAULT:
      return otherwise;
    case TESSERA_POLICY_ALLOW:
      return CompilePolicy::allow;
    case TESSERA_POLICY_WARN:
      return CompilePolicy::warn;
    case TESSERA_POLICY_FORBID:
      return CompilePolicy::forbid;
    default:
      throw Error(ErrorKind::usage, fmt::format("compile_policy = {}: must be one of TESSERA_POLICY_DEFAULT (0), "
                                                "ALLOW (1), WARN (2), FORBID (3)",
                                                policy));
  }
}

/// Hands an event on; nothing of it is kept.
std::function<void(const JitEvent&)> event_function(tessera_event_callback callback, void* user_data) {
  return [callback, user_data](const JitEvent& event) {
    const std::string tier(to_string(event.tier));
    const tessera_event handed{.struct_size = sizeof(tessera_event),
                               .kind = static_cast<std::int32_t>(event.kind),
                               .kernel = event.kernel.c_str(),
                               .tier = tier.c_str(),
                               .message = event.message.c_str(),
                               .milliseconds = event.milliseconds};
    callback(user_data, &handed);
  };
}
static_assert(static_cast<int>(JitEvent::Kind::hit) == TESSERA_EVENT_HIT &&
              static_cast<int>(JitEvent::Kind::compile_started) == TESSERA_EVENT_COMPILE_STARTED &&
              static_cast<int>(JitEvent::Kind::compile_finished) == TESSERA_EVENT_COMPILE_FINISHED &&
              static_cast<int>(JitEvent::Kind::compile_failed) == TESSERA_EVENT_COMPILE_FAILED &&
              static_cast<int>(JitEvent::Kind::warning) == TESSERA_EVENT_WARNING);

JitOptions options_of(const tessera_jit_options& given) {
  JitOptions options = given.ignore_environment != 0 ? JitOptions{} : JitOptions::from_environment();
  if (given.cache_dir != nullptr) options.cache_dir = given.cache_dir;
  if (given.system_cache_dirs != nullptr) options.system_cache_dirs = folders_of(given.system_cache_dirs);
  if (given.cache_max_bytes < -1)
    throw Error(ErrorKind::usage, fmt::format("cache_max_bytes = {}: must be a number of bytes, 0 for the default or "
                                              "-1 for no limit",
                                              given.cache_max_bytes));
  if (given.cache_max_bytes != 0) options.cache_max_bytes = std::max<std::int64_t>(given.cache_max_bytes, 0);
  if (given.nvrtc != nullptr) options.nvrtc_library = given.nvrtc;
  if (given.repro_dir != nullptr) options.repro_dir = given.repro_dir;
  if (given.templates != nullptr) options.templates_dir = given.templates;
  require_array(given.nvrtc_options, given.num_nvrtc_options, "nvrtc_options");
  for (std::size_t i = 0; i < given.num_nvrtc_options; ++i) {
    require(given.nvrtc_options[i], "one of nvrtc_options");
    options.nvrtc_options.emplace_back(given.nvrtc_options[i]);
  }
  constexpr std::int64_t kDay = 86'400'000;
  if (given.compile_time_limit_ms < 0)
    throw Error(ErrorKind::usage,
                fmt::format("compile_time_limit_ms = {}: must be 0 or more", given.compile_time_limit_ms));
  if (given.compile_time_limit_ms > 0)
    options.compile_time_limit = std::chrono::milliseconds(std::min(given.compile_time_limit_ms, kDay));
  options.policy = policy_of(given.compile_policy, options.policy);
  if (given.no_disk_cache != 0) options.use_disk_cache = false;
  if (given.trust_cache_dir != 0) options.trust_cache_dir = true;
  if (given.require_compiler != 0) options.require_compiler = true;
  if (given.check_pointers != 0) options.check_pointers = true;
  if (given.on_event != nullptr) options.on_event = event_function(given.on_event, given.user_data);
  return options;
}

}  // namespace

Problem problem_of(const char* op, const tessera_field* fields, std::size_t num_fields) {
  require(op, "op");
  require_array(fields, num_fields, "fields");
  Problem problem = default_problem(op);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < num_fields; ++i) {
    require(fields[i].name, "the name of a field");
    require(fields[i].value, "the value of a field");
    std::string name(fields[i].name);
    std::replace(name.begin(), name.end(), '-', '_');
    if (name == "chain" && is_row_chain(op))
      throw Error(ErrorKind::usage, fmt::format("{} is a chain of rows already: leave chain out", op));
    set_field(problem, name, fields[i].value);
    if (std::find(names.begin(), names.end(), name) != names.end())
      throw Error(ErrorKind::usage, fmt::format("{} is given twice", name));
    names.push_back(std::move(name));
  }
  return problem;
}

}  // namespace tessera::c

using namespace tessera;

tessera_status tessera_jit_open(const tessera_jit_options* options, tessera_jit** jit) {
  return c::guarded([&] {
    c::require(jit, "jit");
    const tessera_jit_options given =
        options == nullptr ? tessera_jit_options{} : c::sized(options, "tessera_jit_options");
    *jit = new tessera_jit{std::make_shared<c::Shared>(c::options_of(given))};
  });
}

void tessera_jit_close(tessera_jit* jit) { delete jit; }

tessera_status tessera_jit_kernel(tessera_jit* jit, const char* op, const tessera_field* fields, size_t num_fields,
                                  tessera_kernel** kernel) {
  return c::guarded([&] {
    c::require(jit, "jit");
    c::require(kernel, "kernel");
    std::shared_ptr<Kernel> found = jit->shared->jit.kernel(c::problem_of(op, fields, num_fields));
    const int softcap = softcap_index(found->plan().launch);
    *kernel = new tessera_kernel{.shared = jit->shared, .kernel = std::move(found), .softcap = softcap};
  });
}

tessera_status tessera_plan(const char* op, const tessera_field* fields, size_t num_fields, char** plan_json) {
  return c::guarded([&] {
    c::require(plan_json, "plan_json");
    *plan_json = c::new_text(json_text(to_json(make_plan(c::problem_of(op, fields, num_fields)), true)));
  });
}

tessera_status tessera_jit_stats(const tessera_jit* jit, tessera_stats* stats) {
  return c::guarded([&] {
    c::require(jit, "jit");
    c::require(stats, "stats");
    c::check_struct(stats, stats->struct_size, std::max(stats->struct_size, sizeof(tessera_stats)), "tessera_stats");
    const JitStats now = jit->shared->jit.stats();
    const tessera_stats full{.struct_size = stats->struct_size,
                             .kernel_hits = now.kernel_hits,
                             .memory_hits = now.cache.memory_hits,
                             .user_hits = now.cache.user_hits,
                             .system_hits = now.cache.system_hits,
                             .compiles = now.cache.compiles,
                             .failures = now.cache.failures,
                             .compile_ms = now.cache.compile_ms,
                             .quarantined = now.cache.quarantined,
                             .published = now.cache.published,
                             .publish_failures = now.cache.publish_failures,
                             .evicted = now.cache.evicted,
                             .lock_waits = now.cache.lock_waits,
                             .remote_hits = now.cache.remote_hits,
                             .remote_misses = now.cache.remote_misses,
                             .remote_stored = now.cache.remote_stored,
                             .remote_errors = now.cache.remote_errors,
                             .remote_failures = now.cache.remote_failures,
                             .remote_ms = now.cache.remote_ms};
    std::memcpy(stats, &full, std::min(stats->struct_size, sizeof full));
  });
}
