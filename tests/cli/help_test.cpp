// What is written about the command stays true: help pages, the table of environment variables, the commands of the
// README and the tour.
#include <algorithm>
#include <set>
#include <sstream>

#include "cli/call.h"
#include "runtime/nvrtc.h"
#include "tests/cli/command.h"

using namespace tessera;
using namespace tessera::cli;

TEST_CASE("help: every page is as its golden file says") {
  Terminal terminal;
  const Outcome overview = terminal.run({"--help"});
  CHECK(overview.code == 0);
  check_golden("help/tessera.txt", overview.out);
  for (const CommandEntry& entry : commands()) {
    const Outcome page = terminal.run({entry.name, "--help"});
    CHECK(page.code == 0);
    CHECK(page.err.empty());
    check_golden("help/" + entry.name + ".txt", page.out);
    CHECK(terminal.run({entry.name, "--nonsense", "-h"}).out == page.out);
    for (const std::string_view line : {"Usage:", "Examples:", "Exit codes:", "--cache-dir DIR"})
      CHECK(page.out.find(line) != std::string::npos);
  }
}

TEST_CASE("help: every flag is explained and no line is wider than a page") {
  for (const CommandEntry& entry : commands()) {
    FlagSet flags;
    CommonFlags common;
    const auto command = entry.make();
    command->add_flags(flags);
    common.add_to(flags);
    for (const FlagHelp& flag : flags.helps()) {
      CAPTURE(flag.flag);
      CHECK(flag.help.size() >= 10);
      CHECK(flag.help.back() != '.');
    }
    const std::vector<std::string_view> names = flags.names();
    if (std::set<std::string>{"plan", "emit", "warm", "check", "run"}.contains(entry.name))
      for (const std::string_view op : operator_names())
        for (const Selector& selector : selectors(op))
          CHECK(std::find(names.begin(), names.end(), "--" + std::string(selector.flag)) != names.end());
    const std::string page = render_help(command->help(), flags.helps());
    for (std::size_t start = 0; start < page.size();) {
      const std::size_t end = page.find('\n', start);
      CHECK(end - start <= 120);
      start = end + 1;
    }
  }
}

TEST_CASE("the README's and the tour's commands run") {
  // What runs kernels needs a compiler that makes some; the rest does without.
  Terminal terminal, with_nvrtc;
  with_nvrtc.host.prepare_jit = nullptr;
  const bool has_nvrtc = find_nvrtc().has_value();
  const std::filesystem::path root = TESSERA_SOURCE_DIR;
  int commands = 0;
  for (const char* page : {"README.md", "docs/tour.md"}) {
    std::istringstream text(read_text(root / page));
    bool is_in_fence = false;
    for (std::string line; std::getline(text, line);) {
      if (line.starts_with("```")) is_in_fence = !is_in_fence;
      if (line.starts_with("$ ")) line.erase(0, 2);
      if (!is_in_fence || !line.starts_with("tessera ") || line.find("compiled;") != std::string::npos ||
          line.find("KEY") != std::string::npos)
        continue;
      std::vector<std::string> words;
      std::istringstream stream(line.substr(8));
      for (std::string word; stream >> word && word != "#" && word != "|";)
        words.push_back(word.ends_with(".json") || word.ends_with(".ptx") ? (root / word).string() : word);
      CAPTURE(line);
      ++commands;
      if (words.front() == "run" && !has_nvrtc) continue;
      CHECK((words.front() == "run" ? with_nvrtc : terminal).run(words).code == 0);
    }
  }
  CHECK(commands >= 8);
}

TEST_CASE("the README quotes what the command says: a finding, and a miss where compiling is forbidden") {
  const auto in_one_line = [](std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
  };
  const std::filesystem::path root = TESSERA_SOURCE_DIR;
  const std::string readme = read_text(root / "README.md"), page = in_one_line(readme);
  Terminal terminal;

  const std::filesystem::path example = root / "examples/emulate/reverse";
  const std::string findings =
      terminal.run({"emulate", example.string() + ".ptx", "--launch", example.string() + ".json", "--races"}).out;
  const std::size_t quoted = page.find("hazard: smem-race");
  REQUIRE(quoted != std::string::npos);
  const std::string finding = page.substr(quoted, page.find(" ```", quoted) - quoted);
  INFO(finding);
  CHECK(findings.find(finding) != std::string::npos);

  const std::string code = read_text(example.string() + ".cu");
  CHECK(readme.find("```cuda\n" + code + "```") != std::string::npos);

  const Outcome miss =
      terminal.run({"run", "fmha", "--head-dim", "64", "--device", "emulator", "--compile-policy", "forbid"});
  CHECK(miss.code == 3);
  const std::string prefix = "tessera: ";
  const std::size_t said = miss.err.find(prefix + "tessera_fmha");
  REQUIRE(said != std::string::npos);
  const std::size_t from = said + prefix.size();
  CHECK(readme.find("\n" + miss.err.substr(from, miss.err.find('\n', from) - from) + "\n") != std::string::npos);
}

TEST_CASE("docs/debugging.md quotes what the command prints") {
  const std::filesystem::path root = TESSERA_SOURCE_DIR;
  std::istringstream page(read_text(root / "docs/debugging.md"));
  Terminal terminal;
  std::string line, printed;
  int commands = 0, quoted = 0;
  while (std::getline(page, line)) {
    if (line.starts_with("```")) printed.clear();
    if (line.starts_with("$ tessera ")) {
      std::vector<std::string> words;
      std::istringstream in(line.substr(10));
      for (std::string word; in >> word;)
        words.push_back(word.starts_with("examples/") ? (root / word).string() : word);
      printed = terminal.run(words).out;
      const std::string folder = root.string() + "/";
      for (std::size_t at = 0; (at = printed.find(folder)) != std::string::npos;) printed.erase(at, folder.size());
      ++commands;
    } else if (!printed.empty() && line != "...") {
      // Pieces between "..." stand there one after the other.
      CAPTURE(line);
      CAPTURE(printed);
      std::size_t from = 0;
      for (std::size_t begin = 0; begin <= line.size();) {
        const std::size_t end = std::min(line.find(" ... ", begin), line.size());
        from = printed.find(line.substr(begin, end - begin), from);
        REQUIRE(from != std::string::npos);
        begin = end + 5;
        ++quoted;
      }
    }
  }
  CHECK(commands == 7);
  CHECK(quoted >= 10);
}

TEST_CASE("durations and numbers as people read them") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(1234567) == "1,234,567");
  CHECK(grouped(-1000) == "-1,000");
  CHECK(duration(0.04) == "0.0 s");
  CHECK(duration(75) == "1 min 15 s");
  CHECK(duration(7300) == "2 h 1 min");
  CHECK(describe(default_problem("fmha")) == "fmha");
}

TEST_CASE("environment variables are the names of flags, and docs/cli.md has them all") {
  const std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "docs/cli.md");
  FlagSet flags;
  CommonFlags common;
  common.add_to(flags);
  const auto names = flags.names();
  for (const EnvironmentVariable& variable : environment_variables()) {
    CAPTURE(variable.name);
    CHECK(std::find(names.begin(), names.end(), variable.flag) != names.end());
    CHECK(text.find("| `" + std::string(variable.name) + "` | `" + std::string(variable.flag)) != std::string::npos);
    std::string spelled = "--";
    for (const char c : variable.name.substr(8)) spelled += c == '_' ? '-' : static_cast<char>(c | 0x20);
    CHECK((spelled == variable.flag || spelled == std::string(variable.flag) + "s"));
  }
  // Every variable that the library reads is in the table.
  const std::string source = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "tessera/options.cpp");
  for (std::size_t at = source.find("\"TESSERA_"); at != std::string::npos; at = source.find("\"TESSERA_", at + 1)) {
    const std::string name = source.substr(at + 1, source.find('"', at + 1) - at - 1);
    CAPTURE(name);
    CHECK(std::any_of(environment_variables().begin(), environment_variables().end(),
                      [&](const EnvironmentVariable& variable) { return variable.name == name; }));
  }
}
