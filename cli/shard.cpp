#include "cli/shard.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/hash.h"
#include "tessera/error.h"
#include "tessera/internal/environment.h"

namespace tessera::cli {

namespace {

std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  return code == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

std::optional<std::int64_t> variable(const char* name) {
  const std::string_view text = environment_variable(name);
  if (text.empty()) return std::nullopt;
  const auto value = whole(text);
  if (!value) throw Error(ErrorKind::usage, fmt::format("--shard auto: {} = {}: is no whole number", name, text));
  return value;
}

/// What a scheduler tells the members of an array. `first`: the index of the first one; `step`: between two.
struct Scheduler {
  const char *index, *count, *first, *step;
  std::int64_t first_index;
};
/// What was set for tessera alone comes first: a pipeline's job may run inside another scheduler's.
constexpr Scheduler kSchedulers[] = {
    {"TESSERA_SHARD_INDEX", "TESSERA_SHARD_COUNT", nullptr, nullptr, 0},
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP", 0},
    {"CI_NODE_INDEX", "CI_NODE_TOTAL", nullptr, nullptr, 1},  // GitLab, parallel: N
    {"JOB_COMPLETION_INDEX", nullptr, nullptr, nullptr, 0},   // Kubernetes, an indexed Job
};

unsigned long long number_of(const std::string& name) {
  return std::strtoull(sha256_hex(name).substr(0, 15).c_str(), nullptr, 16);
}

}  // namespace

void ShardFlags::add_to(FlagSet& flags) {
  flags.text("--shard", "I/N", text_,
             "only the kernels of part I (from 0) of N; `auto`: from the variables of a Slurm array, GitLab's "
             "`parallel`, or an indexed Job");
  flags.number("--shards", "N", count_of_flag_, 1, "with --shard auto: how many, where no variable says it");
}

void ShardFlags::read_scheduler() {
  for (const Scheduler& scheduler : kSchedulers) {
    const auto index = variable(scheduler.index);
    if (!index) continue;
    const auto of = [](const char* name) { return name == nullptr ? std::nullopt : variable(name); };
    const auto count = of(scheduler.count);
    if (!count && count_of_flag_ == 0)
      throw Error(
          ErrorKind::usage,
          fmt::format("--shard auto: {} is there, but not how many there are: give --shards N", scheduler.index));
    if (count && count_of_flag_ > 0 && *count != count_of_flag_)
      throw Error(ErrorKind::usage,
                  fmt::format("--shards {}: {} = {}, and the parts that nobody takes would be missing", count_of_flag_,
                              scheduler.count, *count));
    count_ = count_of_flag_ > 0 ? count_of_flag_ : *count;
    index_ = *index - of(scheduler.first).value_or(scheduler.first_index);
    if (const std::int64_t step = of(scheduler.step).value_or(1); step > 1 && index_ % step == 0) index_ /= step;
    if (index_ < 0 || index_ >= count_)
      throw Error(ErrorKind::usage,
                  fmt::format("--shard auto: {} = {}: is none of {} shards", scheduler.index, *index, count_));
    return;
  }
  throw Error(ErrorKind::usage,
              "--shard auto: none of TESSERA_SHARD_INDEX, SLURM_ARRAY_TASK_ID, CI_NODE_INDEX and JOB_COMPLETION_INDEX "
              "is there: give --shard I/N");
}

void ShardFlags::parse() {
  if (count_of_flag_ > 0 && text_ != "auto")
    throw Error(ErrorKind::usage,
                fmt::format("--shards {}: says how many there are for --shard auto; give --shard I/N", count_of_flag_));
  if (text_.empty()) return;
  if (text_ == "auto") return read_scheduler();
  const std::size_t slash = text_.find('/');
  index_ = whole(std::string_view(text_).substr(0, std::min(slash, text_.size()))).value_or(-1);
  count_ = slash == std::string::npos ? 0 : whole(std::string_view(text_).substr(slash + 1)).value_or(0);
  if (index_ < 0 || index_ >= count_)
    throw Error(ErrorKind::usage, fmt::format("--shard {}: must be I/N with I from 0 to N - 1, or auto", text_));
}

void ShardFlags::keep(const Call& call, KernelsOfList& kernels) const {
  if (count_ == 1) return;
  const std::size_t all = kernels.names.size();
  std::size_t kept = 0;
  for (std::size_t i = 0; i < all; ++i) {
    if (static_cast<std::int64_t>(number_of(kernels.names[i]) % static_cast<unsigned long long>(count_)) != index_)
      continue;
    if (kept != i) {
      kernels.problems[kept] = std::move(kernels.problems[i]);
      kernels.index_of[kept] = kernels.index_of[i];
      kernels.names[kept] = std::move(kernels.names[i]);
      kernels.num_problems[kept] = kernels.num_problems[i];
    }
    ++kept;
  }
  kernels.problems.erase(kernels.problems.begin() + static_cast<std::ptrdiff_t>(kept), kernels.problems.end());
  kernels.index_of.resize(kept);
  kernels.names.resize(kept);
  kernels.num_problems.resize(kept);
  call.note(
      fmt::format("shard {}/{}: {} of {}", index_, count_, kept, counted(static_cast<std::int64_t>(all), "kernel")));
}

}  // namespace tessera::cli
