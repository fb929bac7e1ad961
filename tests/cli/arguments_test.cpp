// What people type: flags without a value, or with another flag in its place, twice, misspelt, or by the name that
// something has elsewhere.
#include <set>

#include "cli/call.h"
#include "tessera/error.h"
#include "tests/cli/command.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;

namespace {

struct KnownFlag {
  std::string command, name, value, help;
};

/// Every flag of every command; value: empty for a toggle.
std::vector<KnownFlag> all_flags() {
  std::vector<KnownFlag> all;
  for (const CommandEntry& entry : commands()) {
    FlagSet flags;
    CommonFlags common;
    const auto command = entry.make();
    command->add_flags(flags);
    common.add_to(flags);
    for (const FlagHelp& flag : flags.helps()) {
      const std::size_t space = std::min(flag.flag.find(' '), flag.flag.size());
      all.push_back({entry.name, flag.flag.substr(0, space),
                     space == flag.flag.size() ? "" : flag.flag.substr(space + 1), flag.help});
    }
  }
  return all;
}

std::string refusal(Terminal& terminal, const std::vector<std::string>& arguments) {
  const Outcome outcome = terminal.run(arguments);
  CHECK(outcome.code == 2);
  CHECK(outcome.out.empty());
  REQUIRE(outcome.err.starts_with("tessera: "));
  return outcome.err.substr(9, outcome.err.find('\n') - 9);
}

}  // namespace

TEST_CASE("every flag: its value is missing, empty, another flag, or there twice") {
  Terminal terminal;
  CHECK(all_flags().size() > 200);
  testing::Sample sample(12);
  for (const KnownFlag& flag : all_flags()) {
    if (!sample.takes()) continue;
    INFO(flag.command << " " << flag.name);
    if (flag.value.empty()) {
      CHECK(refusal(terminal, {flag.command, flag.name + "=yes"}) ==
            fmt::format("{0}=yes: {0} takes no value", flag.name));
      continue;
    }
    const std::string needs = fmt::format("{} needs a value, {}", flag.name, flag.value);
    CHECK(refusal(terminal, {flag.command, flag.name}) == fmt::format("{}: {}", needs, flag.help));
    CHECK(refusal(terminal, {flag.command, flag.name, "--"}) == fmt::format("{}: {}", needs, flag.help));
    CHECK(refusal(terminal, {flag.command, flag.name, ""}) == flag.name + " has an empty value");
    CHECK(refusal(terminal, {flag.command, flag.name, "--json"})
              .starts_with(needs + ", and --json is a flag itself: if it is meant as the value, write "));
    if (flag.name.starts_with("--"))
      CHECK(refusal(terminal, {flag.command, flag.name + "="}) == flag.name + " has an empty value");
    if (flag.name != "--nvrtc-option")
      CHECK(refusal(terminal, {flag.command, flag.name, "--jsno"}).starts_with(needs + ", and --jsno is spelled like"));
    const bool is_list = flag.help.ends_with("repeatable");
    const std::string first = is_list ? "lda=24" : "11", second = is_list ? "lda=3" : "12";
    if (flag.name == "--nvrtc-option") continue;
    const std::string twice = refusal(terminal, {flag.command, flag.name, first, flag.name, second});
    // A list's names are looked at by the command, once it has something to work on.
    if (!is_list) CHECK(twice == fmt::format("{} is given 2 times (11, 12): give it once", flag.name));
  }
}

TEST_CASE("a value that is spelled like a flag is taken behind an equals sign") {
  Terminal terminal;
  CHECK(refusal(terminal, {"plan", "fmha", "--cache-dir", "--json"}) ==
        "--cache-dir needs a value, DIR, and --json is a flag itself: if it is meant as the value, write "
        "--cache-dir=--json");
  CHECK(refusal(terminal, {"emit", "fmha", "-o", "--json"}) ==
        "-o needs a value, FILE, and --json is a flag itself: if it is meant as the value, write -o ./--json");
  CHECK(refusal(terminal, {"emit", "fmha", "-o=a.cu"}) == "-o=a.cu: write -o a.cu");
  const Outcome outcome = terminal.run({"plan", "fmha", "--cache-dir=--json"});
  CHECK(outcome.code == 0);
  CHECK_FALSE(outcome.out.starts_with("{"));
  // Options of the compiler begin with hyphens, and numbers may be negative.
  CHECK(terminal.run({"warm", "fmha", "--nvrtc-option", "--use_fast_math"}).code == 0);
  CHECK(terminal.run({"plan", "fmha", "--arch", "sm_100a", "--window", "sliding", "--window-size-left", "-1"}).code ==
        0);
}

TEST_CASE("a size is given once: not by --size twice, not by --size and a flag, a list, a shape or rows of groups") {
  Terminal terminal;
  const std::string list =
      terminal.write("list.json", R"({"kernels": [{"op": "gemm", "sizes": [{"m": 8, "n": 16, "k": 64}]}]})");
  for (const std::string command : {"plan", "warm", "check", "run"}) {
    CAPTURE(command);
    CHECK(refusal(terminal, {command, "gemm", "--size", "lda=24", "--size", "lda=3"}) ==
          "--size names lda twice (lda=24, lda=3): give it once");
    CHECK(refusal(terminal, {command, "fmha", "--batch", "1", "--size", "batch=2"}) ==
          "batch is given twice (--batch 1, --size batch=2): give it once");
    CHECK(refusal(terminal, {command, list, "--size", "n=8"}) ==
          "n is given twice (n = 16 at " + list + ":1:14, --size n=8): give it once");
  }
  CHECK(terminal.run({"plan", "fmha", "--batch", "unknown", "--size", "batch=2"}).code == 0);
  CHECK(refusal(terminal, {"run", "fmha", "--input", "q=a.npy", "--input", "q=b.npy"}) ==
        "--input names q twice (q=a.npy, q=b.npy): give it once");
  CHECK(refusal(terminal, {"run", "fmha", "--save", "o=a.npy", "--save", "o=b.npy"}) ==
        "--save names o twice (o=a.npy, o=b.npy): give it once");
  for (const std::string flag : {"--size", "--scalar", "--bind", "--expect", "--save"})
    CHECK(refusal(terminal, {"emulate", "a.ptx", flag, "x=1", flag, "x=2"}) ==
          flag + " names x twice (x=1, x=2): give it once");
  CHECK(refusal(terminal, {"run", "copy2d", "--device", "emulator", "--shape", "4,8", "--size", "dim0=8"}) ==
        "dim0 is given twice (--shape 4,8, --size dim0=8): give it once");
  CHECK(refusal(terminal, {"run", "gemm", "--device", "emulator", "--arch", "sm_100a", "--grouping", "contiguous",
                           "--group-rows", "80,176", "--size", "m=8"}) ==
        "--m 8: the groups of --group-rows need 256 rows");
}

TEST_CASE("what people call a flag, a command, an action or an operator elsewhere leads to ours") {
  Terminal terminal;
  const auto leads = [&](const std::vector<std::string>& arguments, const std::string& to) {
    const std::string message = refusal(terminal, arguments);
    INFO(message);
    CHECK(message.find(", did you mean " + to + "?") != std::string::npos);
  };
  leads({"plan", "fmha", "--causal"}, "--mask causal");
  leads({"plan", "gemm", "--layout", "k"}, "--a-layout or --b-layout");
  leads({"plan", "fmha", "--layout", "k"}, "--v-layout");
  leads({"plan", "fmha", "--heads", "8"}, "heads_q or heads_kv");
  leads({"plan", "gemm", "--lda", "8"}, "--size lda=N");
  leads({"plan", "fmha", "--head_dim", "64"}, "--head-dim");
  leads({"plan", "fmha", "--head-dimm=64"}, "--head-dim");
  leads({"run", "fmha", "--cpu"}, "--device emulator");
  leads({"run", "fmha", "--device", "cuda"}, "gpu");
  leads({"run", "fmha", "--device", "emulater"}, "emulator");
  leads({"emit", "fmha", "--out", "a.cu"}, "-o");
  leads({"compile", "fmha"}, "warm");
  leads({"build"}, "warm");
  leads({"list"}, "cache list");
  leads({"bench", "gemm"}, "run or tune");
  leads({"warn"}, "warm");
  leads({"cache", "clear"}, "prune --all");
  leads({"cache", "ls"}, "list");
  leads({"cache", "lsit"}, "list");
  leads({"cache", "list", "--op", "attention"}, "fmha");
  leads({"plan", "matmul"}, "gemm");
  leads({"plan", "fmha", "--mask", "casual"}, "causal");
  leads({"plan", "gemm", "--size", "ldaa=8"}, "lda");
  leads({"layout", "swizle"}, "swizzle");
  CHECK(refusal(terminal, {"gemm", "--m", "8"})
            .starts_with(
                "unknown command gemm: it is an operator, which stands behind a command, like `tessera run gemm`"));
  CHECK(refusal(terminal, {"plan", "fmha", "--zzz"}) ==
        "unknown flag --zzz for plan; `tessera plan --help` lists what there is");
  CHECK(refusal(terminal, {"plan", "fmha", ""}) ==
        "unexpected argument '' for plan; `tessera plan --help` lists what there is");
  const std::string list = terminal.write("list.json", R"({"targets": ["h100"], "shapes": [],
    "kernels": [{"op": "fmha", "causal": "yes", "heads": 8}, {"operator": "gemm"}]})");
  const std::string all = terminal.run({"plan", list}).err;
  for (const char* const line : {"unknown key targets in a shape list, did you mean arch?",
                                 "unknown key shapes in a shape list, did you mean kernels?",
                                 "unknown key causal in fmha, did you mean mask causal?",
                                 "unknown key heads in fmha, did you mean heads_q or heads_kv?",
                                 "unknown key operator in a kernel, did you mean op?"})
    CHECK(all.find(line) != std::string::npos);
}
