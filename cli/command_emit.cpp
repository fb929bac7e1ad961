// tessera emit: the planned kernel as one self-contained CUDA source.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/shell.h"
#include "cli/call.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

class EmitCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera emit OP [selectors] [-o FILE] | SHAPES.json [-o FILE]",
        "tessera emit: write a kernel as one self-contained CUDA source",
        "The first line is the nvcc command that compiles the file to a cubin; nothing else is needed. The selectors\n"
        "must name one kernel.\n",
        {"tessera emit fmha --head-dim 64 -o fmha.cu && head -1 fmha.cu", "tessera emit copy2d --dtype bf16 | less"}};
  }
  void add_flags(FlagSet& flags) override {
    flags.positional("OP", subject_);
    flags.group("Flags");
    flags.text("-o", "FILE", file_, "write there instead of stdout");
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    call.stops_without_reader();
    if (subject_.empty()) throw Error(ErrorKind::usage, "emit: name an operator, like `tessera emit fmha`");
    const ProblemList list = read_problems(subject_, selectors_);
    if (list.count() != 1)
      throw Error(ErrorKind::usage,
                  fmt::format("emit writes one kernel: the selectors name {} problems", list.count()));
    const Plan plan = make_plan(list.front());
    std::string source = call.jit().source(plan);
    if (!file_.empty()) {
      name_file(source, plan.kernel);
      write_file(file_, source);
      call.note(fmt::format("{}: {} bytes", file_, grouped(static_cast<std::int64_t>(source.size()))));
    }
    if (call.is_json()) {
      OrderedJson json{{"kernel", plan.kernel}, {"arch", plan.arch.to_string()}, {"bytes", source.size()}};
      json[file_.empty() ? "source" : "file"] = file_.empty() ? source : file_;
      call.print_json(json);
    } else if (file_.empty()) {
      call.print(source);
    }
    return kOk;
  }

 private:
  /// The first line compiles the file by the kernel's name; here, by its own.
  void name_file(std::string& source, const std::string& kernel) const {
    if (file_.find_first_of("\n\r") != std::string::npos) return;  // not in a line of comment
    const std::filesystem::path path(file_);
    const auto replace = [&](const std::string& name, const std::string& by) {
      const std::size_t at = source.substr(0, source.find('\n')).find(name);
      if (at != std::string::npos) source.replace(at, name.size(), by);
    };
    replace(" " + kernel + ".cubin",
            " " + shell_word(std::filesystem::path(path).replace_extension(".cubin").string()));
    replace(" " + kernel + ".cu", (path.extension() == ".cu" ? " " : " -x cu ") + shell_word(path.string()));
  }

  std::string subject_, file_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_emit_command() { return std::make_unique<EmitCommand>(); }

}  // namespace tessera::cli
