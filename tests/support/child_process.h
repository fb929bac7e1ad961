// A test's body in a process of its own: what it changes there, or ends, touches no other test.
#pragma once

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <exception>
#include <functional>
#include <string>

namespace tessera::testing {

/// What a child process says of itself: complaints, one a line; nothing when all is well. It leaves by _exit.
inline std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::string said;
    try {
      said = body();
    } catch (const std::exception& error) {
      said = error.what();
    }
    [[maybe_unused]] const auto written = write(ends[1], said.data(), said.size());
    _exit(0);
  }
  close(ends[1]);
  std::string said;
  std::array<char, 4096> bytes;
  for (ssize_t got = 0; (got = read(ends[0], bytes.data(), bytes.size())) > 0;)
    said.append(bytes.data(), static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status)) said += fmt::format("killed by signal {}\n", WTERMSIG(status));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0) said += fmt::format("ended with {}\n", WEXITSTATUS(status));
  return said;
}

}  // namespace tessera::testing
