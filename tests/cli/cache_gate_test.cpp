// The cache's gates as a pipeline sees them: exit code 5 and a reason for what was not looked into or not stored, with
// --quiet and --json too; archives through stdin.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

bool says(const Outcome& outcome, const std::string& text) {
  if (outcome.err.find(text) != std::string::npos) return true;
  MESSAGE(outcome.err);
  return false;
}

}  // namespace

TEST_CASE("cache: a folder that is not there fails the gates, and list and stat say so") {
  Terminal terminal;
  const std::string cache = (terminal.folder.path / "cache").string(), archive = (terminal.folder.path / "a").string();
  const std::string reason = "cache folder " + cache + ": does not exist";
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"cache", "verify"}, {"cache", "prune", "--all"}, {"cache", "export", archive}}) {
    for (const bool is_quiet : {false, true}) {
      std::vector<std::string> with = arguments;
      if (is_quiet) with.push_back("--quiet");
      const Outcome outcome = terminal.run(with);
      CHECK(outcome.code == 5);
      CHECK(says(outcome, reason));
    }
  }
  CHECK_FALSE(fs::exists(archive));
  const Outcome json = terminal.run({"cache", "verify", "--json"});
  CHECK(json.code == 5);
  CHECK(Json::parse(json.out)["unreadable"][0] == Json({{"path", cache}, {"reason", "does not exist"}}));
  const Outcome list = terminal.run({"cache", "list"});
  CHECK(list.code == 0);
  CHECK(says(list, reason));
  CHECK(terminal.run({"cache", "stat"}).code == 0);
  CHECK(terminal.run({"cache", "stat"}).out.find("not there yet") != std::string::npos);

  // An empty cache is one.
  REQUIRE(terminal.run({"warm", "fmha"}).code == 0);
  CHECK(terminal.run({"cache", "prune", "--all"}).code == 0);
  CHECK(terminal.run({"cache", "verify"}).code == 0);
  CHECK(terminal.run({"cache", "export", archive}).code == 3);
}

TEST_CASE("cache: a part that cannot be read is named and fails each action, with --quiet too") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64,128"}).code == 0);
  const Json list = Json::parse(terminal.run({"cache", "list", "--json"}).out);
  CHECK(list["unreadable"].empty());
  const fs::path source = fs::path(list["entries"][0]["folder"].get<std::string>()).parent_path();
  fs::remove_all(source);
  write_file(source, "a file");
  const std::string reason = "cache folder " + source.string() + ": cannot be read (Not a directory)",
                    archive = (terminal.folder.path / "a").string();
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"cache", "verify"},
                                                    {"cache", "verify", "--json"},
                                                    {"cache", "list"},
                                                    {"cache", "stat"},
                                                    {"cache", "stat", "--json"},
                                                    {"cache", "prune", "--older-than", "9"},
                                                    {"cache", "prune", "--all", "--dry-run", "--json"},
                                                    {"cache", "export", archive}}) {
    CAPTURE(arguments[1]);
    for (const bool is_quiet : {false, true}) {
      std::vector<std::string> with = arguments;
      if (is_quiet) with.push_back("--quiet");
      const Outcome outcome = terminal.run(with);
      CHECK(outcome.code == 5);
      CHECK(says(outcome, reason));
      if (with[with.size() - 1 - (is_quiet ? 1 : 0)] == "--json")
        CHECK(Json::parse(outcome.out)["unreadable"].size() == 1);
    }
  }
  CHECK_FALSE(fs::exists(archive));
  CHECK(terminal.run({"cache", "verify"}).out == "1 entry checked, 0 damaged; not everything could be read\n");
}

TEST_CASE("cache: verify says how many it moved aside, prune what it left alone") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha"}).code == 0);
  const Json list = Json::parse(terminal.run({"cache", "list", "--json"}).out);
  fs::resize_file(fs::path(list["entries"][0]["folder"].get<std::string>()) / "kernel.cubin", 1);
  for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--quiet"}}) {
    std::vector<std::string> words{"cache", "verify"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Outcome damaged = terminal.run(words);
    CHECK(damaged.code == 1);
    CHECK(damaged.err == "1 of 1 entry: damaged\n");
  }
  const Outcome healed = terminal.run({"cache", "verify", "--heal"});
  CHECK(healed.code == 1);
  CHECK(healed.out.ends_with("1 entry checked, 1 damaged, 1 moved aside\n"));
  const std::string notes = terminal.write("cache/v1/notes.txt", "mine");
  const Outcome pruned = terminal.run({"cache", "prune", "--all", "--json"});
  CHECK(pruned.code == 0);
  CHECK(Json::parse(pruned.out)["foreign"] == Json::array({notes}));
  CHECK(says(pruned, "left alone because tessera did not make it: " + notes));
  CHECK(read_text(notes) == "mine");
}

TEST_CASE("cache: with --op and --arch what is damaged and may match is named, and no empty archive is written") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha", "--arch", "sm_90a"}).code == 0);
  const Json list = Json::parse(terminal.run({"cache", "list", "--json"}).out);
  const fs::path entry = list["entries"][0]["folder"].get<std::string>();
  const std::string archive = (terminal.folder.path / "a").string();
  fs::resize_file(entry / "kernel.cubin", 1);
  for (const std::vector<std::string>& chosen :
       {std::vector<std::string>{"--op", "fmha"}, {"--arch", "sm_90a"}, {"--op", "fmha", "--json"}}) {
    std::vector<std::string> arguments = {"cache", "export", archive, "--quiet"};
    arguments.insert(arguments.end(), chosen.begin(), chosen.end());
    const Outcome outcome = terminal.run(arguments);
    CHECK(outcome.code == 1);
    CHECK(says(outcome, "left out, damaged: " + entry.string() + ": kernel.cubin has 1 bytes"));
    CHECK(says(outcome, archive + " is not written: no entry for it is whole"));
    if (chosen.back() == "--json") CHECK(Json::parse(outcome.out)["damaged"][0]["op"] == "fmha");
    CHECK_FALSE(fs::exists(archive));
  }
  CHECK(terminal.run({"cache", "export", archive, "--op", "copy2d"}).code ==
        3);  // its record is whole: it is no copy2d

  fs::resize_file(entry / "compile.json", 1);
  CHECK(terminal.run({"cache", "export", archive, "--op", "copy2d"}).code == 1);
  const Outcome pruned = terminal.run({"cache", "prune", "--all", "--op", "copy2d", "--quiet"});
  CHECK(pruned.code == 0);
  CHECK(says(pruned, "left alone, too damaged to tell what it is: " + entry.string()));
  CHECK(pruned.out.find("; 1 entry, ") != std::string::npos);
  const Outcome json = terminal.run({"cache", "prune", "--all", "--op", "copy2d", "--json"});
  CHECK(Json::parse(json.out)["damaged"].size() == 1);
}

TEST_CASE("cache: an archive for a stdout that is closed is a fault, under each of its names") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha"}).code == 0);
  const std::string err = (terminal.folder.path / "err").string();
  for (const std::string archive : {"-", "/dev/stdout", "/dev/fd/1"}) {
    CAPTURE(archive);
    const std::string line = std::string("'") + TESSERA_COMMAND + "' cache export " + archive + " --cache-dir '" +
                             (terminal.folder.path / "cache").string() + "' 2> '" + err + "' >&-";
    const int status = std::system(line.c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 5);
    const std::string reason = archive == "/dev/fd/1" ? "/dev/fd/1: cannot be opened for writing: Bad file descriptor"
                                                      : "stdout cannot be written: Bad file descriptor";
    CHECK_MESSAGE(read_text(err).find(reason) != std::string::npos, read_text(err));
  }
}

TEST_CASE("cache: an archive for a stdout that is a file stands where the file stood") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha"}).code == 0);
  const auto path = [&](const char* name) { return (terminal.folder.path / name).string(); };
  REQUIRE(terminal.run({"cache", "export", path("archive")}).code == 0);
  const std::string archive = read_text(path("archive"));
  for (const std::string name : {"-", "/dev/stdout", "/dev/fd/1"}) {
    CAPTURE(name);
    const std::string exported =
        std::string("'") + TESSERA_COMMAND + "' cache export " + name + " --quiet --cache-dir '" + path("cache") + "'";
    const std::string line =
        "(echo before && " + exported + " && " + exported + " && echo behind) > '" + path("out") + "'";
    CHECK(std::system(line.c_str()) == 0);
    CHECK(read_text(path("out")) == "before\n" + archive + archive + "behind\n");
  }
}

TEST_CASE("cache: an archive takes the place of no link that leads to nothing") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha"}).code == 0);
  const fs::path link = terminal.folder.path / "link";
  fs::create_symlink("/proc/nothing/1", link);  // as /dev/stdout is one where there is no /proc
  const Outcome outcome = terminal.run({"cache", "export", link.string()});
  CHECK(outcome.code == 5);
  CHECK(says(outcome, link.string() + ": cannot be opened for writing: No such file or directory"));
  CHECK(fs::is_symlink(link));
  // Nor of one that cannot be looked at.
  const fs::path loop = terminal.folder.path / "loop";
  fs::create_symlink(loop, loop);
  CHECK(terminal.run({"cache", "export", loop.string()}).code == 5);
  CHECK(fs::is_symlink(loop));
}

TEST_CASE("warm at 3, 4 and 5: a reason with --quiet, and a report with --json") {
  Terminal terminal;
  const std::string file = terminal.write("file", "in the way");
  Outcome outcome = terminal.run({"warm", "fmha", "--cache-dir", file, "--quiet", "--json"});
  CHECK(outcome.code == 5);
  CHECK(says(outcome, "cache folder " + file + ": is a file"));
  CHECK(says(outcome, "1 kernel is in no cache folder"));
  Json report = Json::parse(outcome.out);
  CHECK(report["compiled"] == 1);
  CHECK(report["entries"][0]["stored"] == false);
  CHECK_FALSE(report["entries"][0].contains("error"));

  for (const ErrorKind kind : {ErrorKind::compile, ErrorKind::io}) {
    terminal.compiler->failures_left = 1;
    terminal.compiler->failure_kind = kind;
    outcome = terminal.run({"warm", "fmha", "--head-dim", "64,128", "--jobs", "1", "--quiet", "--json"});
    CHECK(outcome.code == (kind == ErrorKind::compile ? 4 : 5));
    CHECK(says(outcome, "the counting compiler was told to fail"));
    report = Json::parse(outcome.out);
    CHECK(report["failed"] == 1);
    CHECK(report["entries"].size() == 2);
    int errors = 0;
    for (const Json& entry : report["entries"]) errors += entry.contains("error") ? 1 : 0;
    CHECK(errors == 1);
    CHECK(terminal.run({"cache", "prune", "--all"}).code == 0);
  }
  outcome = terminal.run({"warm", "fmha", "--head-dim", "64,40", "--strict", "--quiet", "--json"});
  CHECK(outcome.code == 3);
  CHECK(says(outcome, "1 problem is rejected, the first: fmha has no kernel for head_dim 40"));
  CHECK(Json::parse(outcome.out)["rejections"].size() == 1);
  // What holds back nothing says nothing.
  CHECK(terminal.run({"warm", "fmha", "--quiet"}).err.empty());
}

TEST_CASE("cache: an archive comes in through stdin, under both of its names") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64,128"}).code == 0);
  const std::string archive = (terminal.folder.path / "a").string();
  REQUIRE(terminal.run({"cache", "export", archive}).code == 0);
  const std::string bytes = read_text(archive);
  for (const std::string name : {"-", "/dev/stdin"}) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const int before = ::dup(STDIN_FILENO);
    REQUIRE(::dup2(ends[0], STDIN_FILENO) == STDIN_FILENO);
    ::close(ends[0]);
    std::thread writer([&] {
      if (::write(ends[1], bytes.data(), bytes.size()) < 0) MESSAGE("the pipe broke");
      ::close(ends[1]);
    });
    const std::string elsewhere = (terminal.folder.path / ("from" + name.substr(0, 1))).string() + "x";
    fs::remove_all(elsewhere);
    const Outcome outcome = terminal.run({"cache", "import", name, "--cache-dir", elsewhere});
    if (before >= 0) ::dup2(before, STDIN_FILENO);
    if (before >= 0) ::close(before);
    writer.join();
    CHECK(outcome.code == 0);
    CHECK(outcome.out.starts_with("2 entries imported, 0 there already"));
  }
  CHECK(terminal.run({"cache", "export", "-", "--json"}).code == 2);
}
