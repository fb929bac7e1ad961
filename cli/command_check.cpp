// tessera check: would this cache serve these problems? For the end of a build pipeline: no GPU, no compiler.
#include <algorithm>
#include <set>
#include <span>

#include "base/error.h"
#include "cli/call.h"
#include "cli/list_progress.h"
#include "cli/rejections.h"
#include "cli/size_check.h"
#include "generator/selectors.h"
#include "generator/targets.h"

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
             "tessera check shapes.json --system-cache-dirs /opt/model/cubins --json"}};
  }
  void add_flags(FlagSet& flags, CLI::App& app) override {
    app.add_option("SUBJECT", subject_);
    flags.group("Flags");
    flags.toggle("--strict", is_strict_, "fail (3) when any member of a cross product has no kernel");
    size_flags_.add_to(flags);
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    if (subject_.empty())
      throw Error(ErrorKind::usage, "check: name a shape list or an operator, like `tessera check shapes.json`");
    size_flags_.parse();
    const ProblemList list = read_problems(subject_, selectors_);
    size_flags_.check(list);
    const std::vector<Problem> problems = list.expand();
    const auto total = static_cast<std::int64_t>(problems.size());
    ListProgress counting(call, "counting kernels", total), checking(call, "checking sizes", total);
    const std::vector<Coverage> coverage =
        call.jit().check(problems, [&](const WarmCount& count) { counting.at(count.problems); });
    SizeCheck sizes(size_flags_);
    std::set<std::string> kernels, missing;
    OrderedJson missing_json = OrderedJson::array();
    std::int64_t covered = 0;
    std::vector<Rejected> rejected;
    for (const Coverage& one : coverage) {
      checking.at(static_cast<std::int64_t>(one.index));
      const Problem& problem = problems[one.index];
      const std::string reason = one.rejected.empty() ? sizes.refusal(problem) : one.rejected;
      if (!reason.empty()) {
        rejected.push_back({one.index, reason});
        continue;
      }
      kernels.insert(one.kernel);
      covered += one.tier.has_value() ? 1 : 0;
      if (one.tier || !missing.insert(one.kernel).second) continue;
      missing_json.push_back({{"op", operator_name(problem)},
                              {"arch", arch_of(problem).to_string()},
                              {"loads_on", loads_on(arch_of(problem))},
                              {"entry", one.kernel},
                              {"instead", covered_instead(call, problem)},
                              {"warm", "tessera warm " + describe(problem) + size_flags_.text()}});
    }
    call.clear_progress();
    sizes.require_known_names();
    report_rejected(call, list, rejected);
    if (const std::string note = sizes.partly_checked(); !note.empty()) call.note(note);
    if (call.is_json()) {
      OrderedJson json{{"covered", covered},          {"missing", missing_json},
                       {"problems", problems.size()}, {"kernels", kernels.size()},
                       {"rejected", rejected.size()}, {"rejections", rejections_json(list, rejected)}};
      if (list.tuning)
        json["tuning"] = {
            {"file", selectors_.tuning_file()}, {"device", list.tuning->device}, {"problems", list.num_tuned()}};
      call.print_json(json);
    } else {
      for (const OrderedJson& one : missing_json) {
        call.print(fmt::format("missing  {}  ({})\n", one["entry"].get<std::string>(), one["warm"].get<std::string>()));
        for (const OrderedJson& instead : one["instead"])
          call.print(fmt::format("           there is the kernel for {}, which loads on {} too\n",
                                 instead.get<std::string>(), one["loads_on"].get<std::string>()));
      }
      call.print(fmt::format("{} of {} covered, {} of {} missing, {} rejected\n", grouped(covered),
                             counted(total, "problem"), grouped(static_cast<std::int64_t>(missing.size())),
                             counted(static_cast<std::int64_t>(kernels.size()), "kernel"),
                             grouped(static_cast<std::int64_t>(rejected.size()))));
      if (list.tuning)
        call.print(fmt::format("{} answered for the choices of {} (measured on {}), {} for the planner's\n",
                               grouped(list.num_tuned()), selectors_.tuning_file(), list.tuning->device,
                               grouped(total - list.num_tuned())));
    }
    if (const ExitCode code = rejection_code(list, rejected, is_strict_); code != kOk) return code;
    return missing.empty() ? kOk : kWrong;
  }

 private:
  /// Other targets whose code loads on the same devices and for which the cache has this problem's kernel.
  static OrderedJson covered_instead(Call& call, const Problem& problem) {
    OrderedJson list = OrderedJson::array();
    for (const std::string_view target : targets_instead_of(arch_of(problem))) {
      Problem other = problem;
      set_field(other, "arch", target);
      if (call.jit().check(std::span(&other, 1)).front().tier) list.push_back(std::string(target));
    }
    return list;
  }

  std::string subject_;
  bool is_strict_ = false;
  SizeFlags size_flags_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_check_command() { return std::make_unique<CheckCommand>(); }

}  // namespace tessera::cli
