// What the command refuses, or says, where it would be easy to go on silently: flags given twice, names that match
// nothing, sizes known in part, files without an end, failures that are not the compiler's.
#include <nlohmann/json.hpp>

#include "cli/call.h"
#include "tessera/error.h"
#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

TEST_CASE("a flag that takes one value is refused when it is given twice, a repeatable one is not") {
  Terminal terminal;
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 2);
    return outcome.err;
  };
  CHECK(refusal({"plan", "fmha", "--head-dim", "64", "--head-dim", "128"}) ==
        "tessera: --head-dim is given 2 times (64, 128): give it once\n");
  CHECK(refusal({"warm", "fmha", "--jobs", "2", "--jobs=3"}) ==
        "tessera: --jobs is given 2 times (2, 3): give it once\n");
  CHECK(refusal({"cache", "list", "--op", "fmha", "--op", "copy2d"}) ==
        "tessera: --op is given 2 times (fmha, copy2d): give it once\n");
  CHECK(terminal.run({"warm", "fmha", "--nvrtc-option", "-G", "--nvrtc-option", "-lineinfo"}).code == 0);
  CHECK(terminal.run({"plan", "fmha", "--json", "--json"}).code == 0);
}

TEST_CASE("cache: a flag that the action does not read is refused, and parts of an entry are JSON when asked for") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha"}).code == 0);
  const auto refusal = [&](const std::vector<std::string>& arguments) {
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 2);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  CHECK(refusal({"cache", "import", "a.tar.zst", "--op", "copy2d"}) ==
        "tessera: --op: is for cache list, prune, export, push, not for import\n");
  CHECK(refusal({"cache", "export", "a.tar.zst", "--max-bytes", "1"}) ==
        "tessera: --max-bytes: is for cache prune, not for export\n");
  CHECK(refusal({"cache", "list", "--heal"}) == "tessera: --heal: is for cache verify, not for list\n");
  const std::string key = Json::parse(terminal.run({"cache", "list", "--json"}).out)["entries"][0]["key"];
  CHECK(refusal({"cache", "show", key, "--ptx", "--log"}) ==
        "tessera: cache show: prints one of --ptx, --sass, --source, --log, --plan\n");
  const Json part = Json::parse(terminal.run({"cache", "show", key, "--ptx", "--json"}).out);
  CHECK(part["ptx"] == terminal.run({"cache", "show", key, "--ptx"}).out);
}

TEST_CASE("doctor says where a cache folder cannot be made") {
  Terminal terminal;
  const std::string file = terminal.write("file", "no folder");
  const Outcome outcome = terminal.run({"doctor", "--cache-dir", file + "/cache"});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("not there, and cannot be made: " + file + " is no folder") != std::string::npos);
}

TEST_CASE("cache: a misspelt operator or target is refused, an export of nothing too") {
  Terminal terminal;
  const std::string archive = (terminal.folder.path / "a.tar.zst").string();
  const auto fails = [&](const std::vector<std::string>& arguments, int code, const std::string& message) {
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == code);
    CHECK(outcome.err == message);
    CHECK_FALSE(std::filesystem::exists(archive));
  };
  std::filesystem::create_directories(terminal.folder.path / "cache/v1");
  fails({"cache", "export", archive}, 3, "tessera: cache export: no entry is in any tier; nothing was written\n");
  CHECK(terminal.run({"warm", "fmha"}).code == 0);
  CHECK(terminal.run({"cache", "export", archive, "--arch", "foo"}).code == 2);
  fails(
      {"cache", "export", archive, "--op", "conv"}, 2, "tessera: --op = conv: must be one of " + [] {
        std::string names;
        for (const std::string_view name : operator_names()) names += (names.empty() ? "" : ", ") + std::string(name);
        return names;
      }() + "\n");
  fails({"cache", "export", archive, "--arch", "sm_120a"}, 3,
        "tessera: cache export: no entry for sm_120a is in any tier; nothing was written\n");
  fails({"cache", "export", archive, "--op", "copy2d", "--arch", "sm_90a"}, 3,
        "tessera: cache export: no entry of copy2d for sm_90a is in any tier; nothing was written\n");
  CHECK(terminal.run({"cache", "prune", "--all", "--op", "fmah"}).code == 2);
  CHECK(terminal.run({"cache", "list", "--arch", "hopper"}).code == 2);
  CHECK(terminal.run({"cache", "list", "--arch", "sm_120a"}).out == "0 entries, 0 bytes\n");
  CHECK(terminal.run({"cache", "list"}).out.ends_with("1 entry, " + [&] {
    const Json list = Json::parse(terminal.run({"cache", "list", "--json"}).out);
    return grouped(list["entries"][0]["bytes"].get<std::int64_t>());
  }() + " bytes\n"));
}

TEST_CASE("cache export says what it wrote on stderr: stdout may be the archive") {
  Terminal terminal;
  CHECK(terminal.run({"warm", "fmha"}).code == 0);
  const std::string archive = (terminal.folder.path / "a.tar.zst").string();
  const Outcome outcome = terminal.run({"cache", "export", archive});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.find(": 1 entry, ") != std::string::npos);
  CHECK(terminal.run({"cache", "export", "/dev/stdout", "--json"}).code == 2);
}

TEST_CASE("sizes given in part: what follows from them is checked, the rest is named") {
  Terminal terminal;
  const std::string some = terminal.write("some.json", R"({"kernels": [{"op": "fmha", "sizes": [
      {"heads_q": 8, "heads_kv": 2}, {"heads_q": 6, "heads_kv": 4}, {"heads_q": 0}, {"seqlen_q": 7}]}]})");
  const Outcome warm = terminal.run({"warm", some, "--dry-run", "--json"});
  CHECK(warm.code == 3);
  const Json rejections = Json::parse(warm.out)["rejections"];
  REQUIRE(rejections.size() == 2);
  CHECK(rejections[0]["reason"].get<std::string>().find("heads_q must be a multiple of heads_kv") != std::string::npos);
  CHECK(rejections[1]["reason"].get<std::string>().find("heads_q = 0: must be from 1 to") != std::string::npos);
  const std::string note =
      "4 problems give their sizes in part: what depends on batch, heads_kv, heads_q, seqlen_k, seqlen_q was not "
      "checked\n";
  CHECK(warm.err.find(note) != std::string::npos);
  CHECK(terminal.run({"check", some}).err.find(note) != std::string::npos);
  const Outcome plan = terminal.run({"plan", "fmha", "--heads-q", "8", "--heads-kv", "2"});
  CHECK(plan.code == 0);
  CHECK(plan.out.find("nothing is refused, but what depends on batch, seqlen_q, seqlen_k was not checked") !=
        std::string::npos);
  CHECK(terminal.run({"plan", "fmha", "--heads-q", "6", "--heads-kv", "4"}).code == 3);
  CHECK(Json::parse(terminal.run({"plan", "fmha", "--batch", "2", "--json"}).out)["sizes_unknown"].size() == 4);
  // All given, or none: nothing to say.
  for (const char* list : {R"({"kernels": [{"op": "fmha"}]})",
                           R"({"kernels": [{"op": "fmha", "sizes": [{"batch": 1, "heads_q": 2, "heads_kv": 1,
                               "seqlen_q": 5, "seqlen_k": 5}]}]})"})
    CHECK(terminal.run({"warm", terminal.write("all.json", list), "--dry-run"}).err.find("in part") ==
          std::string::npos);
}

TEST_CASE("a domain rule whose bound is a number says it once") {
  Terminal terminal;
  const Outcome outcome = terminal.run({"plan", "fmha", "--batch", "65536", "--heads-q", "65536", "--heads-kv", "1",
                                        "--seqlen-q", "1", "--seqlen-k", "1"});
  CHECK(outcome.code == 3);
  CHECK(outcome.out.find("must be at most 2147418112: ") != std::string::npos);
  CHECK(outcome.out.find(" = 4294967296\n") != std::string::npos);
  CHECK(outcome.out.find("2147418112 = 2147418112") == std::string::npos);
}

TEST_CASE("files without an end are refused, not read for ever") {
  if (!std::filesystem::exists("/dev/zero")) return;
  Terminal terminal;
  CHECK_THROWS_WITH_AS(read_text("/dev/zero", 1 << 20), "/dev/zero: has more than 1048576 bytes, and no more are read",
                       Error);
  const Outcome array = terminal.run({"run", "fmha", "--input", "q=/dev/zero"});
  CHECK(array.code == 2);
  CHECK(array.err == "tessera: /dev/zero: is not a .npy file\n");
}

TEST_CASE("warm: a failure that is not the compiler's has the code of what failed, and names the kernel once") {
  Terminal terminal;
  terminal.compiler->failures_left = 1;
  terminal.compiler->failure_kind = ErrorKind::io;
  CHECK(terminal.run({"warm", "fmha", "--head-dim", "64,128"}).code == 5);
  terminal.compiler->failures_left = 1;
  terminal.compiler->failure_kind = ErrorKind::compile;
  const Outcome outcome = terminal.run({"warm", "fmha", "--mask", "causal"});
  CHECK(outcome.code == 4);
  const std::size_t name = outcome.err.find("tessera_fmha_sm90a");
  REQUIRE(name != std::string::npos);
  CHECK(outcome.err.find("tessera_fmha_sm90a", name + 1) == std::string::npos);
  CHECK(outcome.out.find("1 problem, 1 distinct kernel: 0 compiled") != std::string::npos);
}
