// Something of the machine is missing: the compiler, memory, threads. One sentence, code 5, never an abort.
#include <new>
#include <stdexcept>
#include <system_error>

#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;

TEST_CASE("no NVRTC is code 5 wherever a kernel must be compiled, and doctor says what was looked for") {
  Terminal terminal;
  terminal.host.prepare_jit = nullptr;
  const std::string nowhere = (terminal.folder.path / "libnvrtc.so.13").string();
  for (const std::string command : {"warm", "run"}) {
    CAPTURE(command);
    const Outcome outcome = terminal.run({command, "fmha", "--nvrtc", nowhere});
    CHECK(outcome.code == 5);
    CHECK(outcome.err.find("there is no compiler: no usable NVRTC was found") != std::string::npos);
  }
  const Outcome doctor = terminal.run({"doctor", "--nvrtc", nowhere});
  CHECK(doctor.code == 0);
  CHECK(doctor.out.find("none: no usable NVRTC was found") != std::string::npos);
  // What needs none works without.
  for (const std::string command : {"plan", "emit"})
    CHECK(terminal.run({command, "fmha", "--nvrtc", nowhere}).code == 0);
  CHECK(terminal.run({"check", "fmha", "--nvrtc", nowhere}).code == 1);
}

TEST_CASE("no memory, no thread: one sentence and code 5") {
  Terminal terminal;
  const auto said = [&](const std::function<void(Jit&)>& fail) {
    terminal.host.prepare_jit = fail;
    const Outcome outcome = terminal.run({"warm", "fmha"});
    CHECK(outcome.code == 5);
    CHECK(outcome.out.empty());
    return outcome.err;
  };
  CHECK(said([](Jit&) { throw std::bad_alloc(); }) ==
        "tessera: out of memory: this machine, or a limit of the process (ulimit -v), gives no more\n");
  CHECK(said([](Jit&) { throw std::length_error("vector"); }) ==
        "tessera: out of memory: a size is larger than any memory\n");
  CHECK(said([](Jit&) {
          throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again), "thread");
        }) == "tessera: thread: Resource temporarily unavailable\n");
}
