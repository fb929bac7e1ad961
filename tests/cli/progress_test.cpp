// What a person at a terminal sees while a call works.
#include "cli/call.h"
#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;

TEST_CASE("progress is cut to the terminal, whatever its width, and there is none without a terminal") {
  const auto shown = [](bool is_terminal, std::function<int()> columns, const std::string& line) {
    Host host;
    host.err = std::tmpfile();
    REQUIRE(host.err != nullptr);
    host.is_terminal = is_terminal;
    host.terminal_columns = std::move(columns);
    const CommonFlags flags;
    Call(host, flags).progress(line);
    std::string text(static_cast<std::size_t>(std::ftell(host.err)), '\0');
    std::rewind(host.err);
    text.resize(std::fread(text.data(), 1, text.size(), host.err));
    std::fclose(host.err);
    return text;
  };
  const std::string line(300, 'x'), start = "\r\x1b[K";
  for (const int columns : {2, 20, 80, 200, 301}) {
    CAPTURE(columns);
    CHECK(shown(
              true, [&] { return columns; }, line) == start + line.substr(0, static_cast<std::size_t>(columns) - 1));
  }
  CHECK(shown(
            true, [] { return 1; }, line) == start);
  CHECK(shown(
            true, [] { return 0; }, line) == start);
  CHECK(shown(true, nullptr, line) == start + line.substr(0, 79));
  CHECK(shown(
            true, [] { return 20; }, "short") == start + "short");
  CHECK(shown(
            false, [] { return 20; }, line)
            .empty());
}
