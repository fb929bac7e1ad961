// tessera check: would this cache serve these problems? For the end of a build pipeline: no GPU, no compiler.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/call.h"
#include "cli/json_stream.h"
#include "cli/planned_list.h"
#include "generator/selectors.h"
#include "tessera/cache_admin.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::cli {

namespace {

class CheckCommand final : public Command {
 public:
  HelpPage help() const override {
    return {"tessera check SHAPES.json [flags]\n       tessera check OP [selectors] [flags]",
            "tessera check: would the cache serve these problems without compiling?",
            "Plans every problem, resolves and checks the tensor maps of every size that is given (of sizes given in\n"
            "part, what follows from them), and looks each kernel up in the cache tiers. Exits 1 and names what is\n"
            "missing when the cache does not cover the list.\n",
            {"tessera warm shapes.json --cache-dir cubins && tessera check shapes.json --cache-dir cubins",
             "tessera check shapes.json --system-cache-dirs /opt/model/cubins --json",
             "tessera check shapes.json --remote http://store/tessera --in-remote"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("SUBJECT", subject_);
    flags.group("Flags");
    flags.toggle("--strict", is_strict_, "fail (3) when any member of a cross product has no kernel");
    flags.toggle("--in-remote", is_in_remote_, "look into the remote cache (--remote) alone");
    size_flags_.add_to(flags);
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    if (subject_.empty())
      throw Error(ErrorKind::usage, "check: name a shape list or an operator, like `tessera check shapes.json`");
    size_flags_.parse();
    if (is_in_remote_ && call.options().remote.url.empty())
      throw Error(ErrorKind::usage, "check --in-remote: there is no remote cache: give --remote URL");
    const ProblemList list = read_problems(subject_, selectors_);
    size_flags_.check(list);
    SizeCheck sizes(size_flags_);
    const KernelsOfList kernels = distinct_kernels(call, list, sizes, {});
    const CacheWatch watch(call.jit().cache().options());
    const Found found = look_up(call, kernels);
    const std::vector<CacheFault> lost = watch.lost();
    call.clear_progress();
    report_rejected(call, list, kernels.rejected);
    if (const std::string note = sizes.partly_checked(); !note.empty()) call.note(note);
    if (call.is_json())
      print_json(call, list, kernels, found);
    else
      print_text(call, list, kernels, found);
    for (const CacheFault& fault : lost) call.complain(fault.to_string());
    const ExitCode rejection = rejection_code(list, kernels.rejected, is_strict_);
    if (rejection != kOk) complain_of_rejected(call, kernels.rejected.size(), kernels.rejected.front().reason);
    if (!found.missing.empty()) complain_of_missing(call, found, kernels.names.size());
    if (!lost.empty()) return kDevice;
    if (rejection != kOk) return rejection;
    return found.missing.empty() ? kOk : kWrong;
  }

 private:
  CheckedTiers where() const { return is_in_remote_ ? CheckedTiers::remote : CheckedTiers::folders; }

  struct Found {
    std::int64_t covered = 0;  ///< problems
    OrderedJson missing = OrderedJson::array();
  };

  Found look_up(Call& call, const KernelsOfList& kernels) const {
    Found found;
    call.progress(fmt::format("looking up {}", counted(static_cast<std::int64_t>(kernels.names.size()), "kernel")));
    const std::vector<Coverage> coverage = call.jit().check(kernels.problems, {}, call.jobs(), where());
    std::vector<std::size_t> missing;
    for (std::size_t i = 0; i < coverage.size(); ++i) {
      if (coverage[i].tier)
        found.covered += kernels.num_problems[i];
      else
        missing.push_back(i);
    }
    const std::vector<OtherTargets> others = covered_elsewhere(call, kernels, missing);
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const Problem& problem = kernels.problems[missing[i]];
      found.missing.push_back({{"op", operator_name(problem)},
                               {"arch", arch_of(problem).to_string()},
                               {"loads_on", loads_on(arch_of(problem))},
                               {"entry", kernels.names[missing[i]]},
                               {"instead", others[i].instead},
                               {"not_instead", others[i].not_instead},
                               {"warm", "tessera warm " + describe(problem) + size_flags_.text()}});
    }
    return found;
  }

  /// Targets of the same family for which the cache has a kernel.
  struct OtherTargets {
    OrderedJson instead = OrderedJson::array();      ///< whose code loads on the same devices
    OrderedJson not_instead = OrderedJson::array();  ///< whose code does not
  };

  /// Of each missing kernel; what does not load is looked for beside the first ones only.
  std::vector<OtherTargets> covered_elsewhere(Call& call, const KernelsOfList& kernels,
                                              const std::vector<std::size_t>& missing) const {
    constexpr std::size_t kMostLookedFor = 64;
    std::vector<OtherTargets> found(missing.size());
    std::vector<Problem> others;
    struct Asked {
      std::size_t missing;
      std::string_view target;
      bool loads;
    };
    std::vector<Asked> asked;
    for (std::size_t i = 0; i < missing.size(); ++i) {
      const Arch own = arch_of(kernels.problems[missing[i]]);
      const std::vector<std::string_view> loading = targets_instead_of(own);
      for (const TargetRow& row : target_rows()) {
        const Arch other = Arch::parse(row.target);
        const bool loads = std::find(loading.begin(), loading.end(), row.target) != loading.end();
        if (other == own || other.compute_major() != own.compute_major()) continue;
        if (!loads && i >= kMostLookedFor) continue;
        set_field(others.emplace_back(kernels.problems[missing[i]]), "arch", row.target);
        asked.push_back({i, row.target, loads});
      }
    }
    for (const Coverage& one : call.jit().check(others, {}, call.jobs(), where())) {
      const Asked& of = asked[one.index];
      if (one.tier) (of.loads ? found[of.missing].instead : found[of.missing].not_instead).push_back(of.target);
    }
    return found;
  }

  void print_json(const Call& call, const ProblemList& list, const KernelsOfList& kernels, const Found& found) const {
    JsonStream json(call);
    json.member("covered", found.covered);
    json.member("missing", found.missing);
    json.member("problems", list.count());
    json.member("kernels", kernels.names.size());
    json.member("rejected", kernels.rejected.size());
    print_rejections(json, list, kernels.rejected);
    if (list.tuning)
      json.member(
          "tuning",
          {{"file", selectors_.tuning_file()}, {"device", list.tuning->device}, {"problems", kernels.num_tuned}});
    json.end();
  }

  /// Without --json stdout names them.
  static void complain_of_missing(const Call& call, const Found& found, std::size_t of) {
    const auto missing = static_cast<std::int64_t>(found.missing.size());
    if (!call.is_json()) {
      const std::string kernels = counted(static_cast<std::int64_t>(of), "kernel");
      return call.complain(fmt::format("{} of {} {} missing", grouped(missing), kernels, missing == 1 ? "is" : "are"));
    }
    constexpr std::size_t kMaxShown = 20;
    for (std::size_t i = 0; i < std::min(kMaxShown, found.missing.size()); ++i)
      call.complain(fmt::format("missing: {}  ({})", found.missing[i]["entry"].get<std::string>(),
                                found.missing[i]["warm"].get<std::string>()));
    if (found.missing.size() > kMaxShown)
      call.complain(
          fmt::format("... and {} more", grouped(static_cast<std::int64_t>(found.missing.size() - kMaxShown))));
  }

  void print_text(const Call& call, const ProblemList& list, const KernelsOfList& kernels, const Found& found) const {
    for (const OrderedJson& one : found.missing) {
      call.print(fmt::format("missing  {}  ({})\n", one["entry"].get<std::string>(), one["warm"].get<std::string>()));
      for (const OrderedJson& instead : one["instead"])
        call.print(fmt::format("           there is the kernel for {}, which loads on {} too\n",
                               instead.get<std::string>(), one["loads_on"].get<std::string>()));
      for (const OrderedJson& other : one["not_instead"])
        call.print(fmt::format("           there is the kernel for {}, which loads on {} alone (wanted: {})\n",
                               other.get<std::string>(), loads_on(Arch::parse(other.get<std::string>())),
                               one["loads_on"].get<std::string>()));
    }
    call.print(fmt::format("{} of {} covered, {} of {} missing, {} rejected\n", grouped(found.covered),
                           counted(list.count(), "problem"), grouped(static_cast<std::int64_t>(found.missing.size())),
                           counted(static_cast<std::int64_t>(kernels.names.size()), "kernel"),
                           grouped(static_cast<std::int64_t>(kernels.rejected.size()))));
    if (list.tuning)
      call.print(fmt::format("{} answered for the choices of {} ({}), {} for the planner's\n",
                             grouped(kernels.num_tuned), selectors_.tuning_file(), how_made(*list.tuning),
                             grouped(list.count() - kernels.num_tuned)));
  }

  std::string subject_;
  bool is_strict_ = false, is_in_remote_ = false;
  SizeFlags size_flags_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_check_command() { return std::make_unique<CheckCommand>(); }

}  // namespace tessera::cli
