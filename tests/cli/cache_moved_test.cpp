// A cache folder that goes away while a gate of a pipeline runs: exit code 5 and a reason, and no empty archive.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;
namespace fs = std::filesystem;

namespace {

/// Calls a function the first time that it is asked for its identity: when the first kernel is looked up.
struct TellingCompiler final : testing::CountingCompiler {
  const CompilerIdentity& identity() const override {
    if (!has_told.exchange(true)) told();
    return CountingCompiler::identity();
  }
  std::function<void()> told;
  mutable std::atomic<bool> has_told{false};
};

/// Waits until the thread has slept for a while.
void wait_for_sleep(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/stat";
  for (int asleep = 0, tries = 0; asleep < 20 && tries < 3000; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    const std::string stat = read_text(path);
    asleep = stat.substr(stat.rfind(')') + 2, 1) == "S" ? asleep + 1 : 0;
  }
}

/// Exports into a pipe; does something between the listing of the cache and the coming of a reader.
Outcome export_to_late_reader(Terminal& terminal, const std::function<void()>& meanwhile, std::string& bytes) {
  const std::string pipe = (terminal.folder.path / "pipe").string();
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  Outcome outcome;
  std::atomic<pid_t> id{0};
  std::thread exporting([&] {
    id = ::gettid();
    outcome = terminal.run({"cache", "export", pipe});
  });
  while (id == 0) std::this_thread::yield();
  wait_for_sleep(id);
  meanwhile();
  bytes = read_text(pipe);
  exporting.join();
  return outcome;
}

}  // namespace

TEST_CASE("cache export: a cache that is moved away while it is exported is an error") {
  for (const bool is_v1 : {false, true}) {
    Terminal terminal;
    REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64,128"}).code == 0);
    const fs::path cache = terminal.folder.path / "cache", moved = is_v1 ? cache / "v1" : cache;
    std::string bytes;
    const Outcome outcome = export_to_late_reader(
        terminal, [&] { fs::rename(moved, terminal.folder.path / "away"); }, bytes);
    CHECK(outcome.code == 5);
    CHECK_MESSAGE(
        outcome.err.find((cache / "v1").string() + ": was moved, removed or replaced meanwhile") != std::string::npos,
        outcome.err);
  }
}

TEST_CASE("cache export: where every entry is evicted meanwhile it exits with 3 and writes nothing") {
  Terminal terminal;
  REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64,128"}).code == 0);
  const fs::path v1 = terminal.folder.path / "cache/v1";
  const auto evict = [&] {
    for (const auto& each : fs::directory_iterator(v1))
      if (each.path().filename().string().size() == 2) fs::remove_all(each);
  };
  std::string bytes = "not read";
  const Outcome outcome = export_to_late_reader(terminal, evict, bytes);
  CHECK(outcome.code == 3);
  CHECK(outcome.err.find("no entry is in any tier; nothing was written") != std::string::npos);
  CHECK(bytes.empty());
}

TEST_CASE("warm: a cache that is moved away between two kernels is an error, whether it was there before or not") {
  struct MovingCompiler final : testing::CountingCompiler {
    Image compile(const SourceBundle& bundle) override {
      if (calls == 1) told();
      return CountingCompiler::compile(bundle);
    }
    std::function<void()> told;
  };
  for (const bool is_there : {false, true}) {
    CAPTURE(is_there);
    Terminal terminal;
    if (is_there) REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "192"}).code == 0);
    const auto compiler = std::make_shared<MovingCompiler>();
    const fs::path cache = terminal.folder.path / "cache";
    compiler->told = [&] { fs::rename(cache, terminal.folder.path / "away"); };
    terminal.host.prepare_jit = [&](Jit& jit) { jit.set_compiler(compiler); };
    const std::vector<std::string> arguments = {"warm", "fmha", "--head-dim", "64,128", "--jobs", "1", "--quiet"};
    const Outcome outcome = terminal.run(arguments);
    CHECK(compiler->calls == 2);
    CHECK(outcome.code == 5);
    CHECK_MESSAGE(
        outcome.err.find((cache / "v1").string() + ": was moved, removed or replaced meanwhile") != std::string::npos,
        outcome.err);
    compiler->told = [] {};
    CHECK(terminal.run(arguments).code == 0);
  }
}

TEST_CASE("check: a cache that is moved away or replaced while kernels are looked up is an error") {
  for (const bool is_replaced : {false, true}) {
    CAPTURE(is_replaced);
    Terminal terminal;
    REQUIRE(terminal.run({"warm", "fmha", "--head-dim", "64,128"}).code == 0);
    const auto compiler = std::make_shared<TellingCompiler>();
    const fs::path cache = terminal.folder.path / "cache", away = terminal.folder.path / "away";
    const fs::path spare = terminal.folder.path / "spare";  // copied while nobody writes to the cache
    fs::copy(cache, spare, fs::copy_options::recursive);
    compiler->told = [&] {
      fs::rename(cache, away);
      if (is_replaced) fs::rename(spare, cache);
    };
    terminal.host.prepare_jit = [&](Jit& jit) { jit.set_compiler(compiler); };
    const Outcome outcome = terminal.run({"check", "fmha", "--head-dim", "64,128", "--quiet"});
    CHECK(compiler->has_told);
    CHECK(outcome.code == 5);
    CHECK_MESSAGE(
        outcome.err.find((cache / "v1").string() + ": was moved, removed or replaced meanwhile") != std::string::npos,
        outcome.err);
    // Where it stays put the answer is as ever.
    fs::remove_all(cache);
    fs::rename(away, cache);
    CHECK(terminal.run({"check", "fmha", "--head-dim", "64,128", "--quiet"}).code == 0);
  }
}
