// tessera emit: the planned kernel as one self-contained CUDA source.
#include "base/error.h"
#include "base/file.h"
#include "cli/call.h"

namespace tessera::cli {

namespace {

class EmitCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera emit OP [selectors] [-o FILE]",
        "tessera emit: write a kernel as one self-contained CUDA source",
        "The first line is the nvcc command that compiles the file to a cubin; nothing else is needed. The selectors\n"
        "must name one kernel.\n",
        {"tessera emit fmha --head-dim 64 -o fmha.cu && head -1 fmha.cu", "tessera emit copy2d --dtype bf16 | less"}};
  }
  void add_flags(FlagSet& flags, CLI::App& app) override {
    app.add_option("OP", subject_);
    flags.group("Flags");
    flags.text("-o", "FILE", file_, "write there instead of stdout");
    selectors_.add_to(flags);
  }

  ExitCode run(Call& call) override {
    if (subject_.empty()) throw Error(ErrorKind::usage, "emit: name an operator, like `tessera emit fmha`");
    const ProblemList list = read_problems(subject_, selectors_);
    if (list.count() != 1)
      throw Error(ErrorKind::usage,
                  fmt::format("emit writes one kernel: the selectors name {} problems", list.count()));
    const std::string source = call.jit().source(make_plan(list.expand().front()));
    if (file_.empty()) {
      call.print(source);
    } else {
      write_file(file_, source);
      call.note(fmt::format("{}: {} bytes", file_, grouped(static_cast<std::int64_t>(source.size()))));
    }
    return kOk;
  }

 private:
  std::string subject_, file_;
  SelectorFlags selectors_;
};

}  // namespace

std::unique_ptr<Command> make_emit_command() { return std::make_unique<EmitCommand>(); }

}  // namespace tessera::cli
