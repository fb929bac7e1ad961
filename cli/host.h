// What the command talks to: streams, a GPU, the options that the environment gave. main() fills in the process's own;
// tests give files, a counting compiler, a recording device.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/device.h"
#include "tessera/jit.h"

namespace tessera::cli {

struct Host {
  std::FILE* out = stdout;
  std::FILE* err = stderr;
  bool is_terminal = false;  ///< err is a terminal that takes control sequences: progress is shown
  /// Columns of the terminal, asked before each line of progress; none: 80.
  std::function<int()> terminal_columns;
  std::string preload;      ///< LD_PRELOAD: a program that is started keeps what it has
  std::string python_path;  ///< PYTHONPATH: likewise
  JitOptions options;       ///< from the environment; flags override
  /// Called once on the Jit of a command; tests set a compiler here.
  std::function<void(Jit&)> prepare_jit;
  /// The GPU to run on; null with the reason why there is none.
  std::function<std::unique_ptr<Device>(std::string& reason)> open_gpu;
  /// Called by commands that stop cleanly on an interrupt; the token is then requested by one.
  std::function<std::stop_token()> catch_interrupt;
  /// What a command says where it cannot end soon after that, on another thread, before the process ends; nothing: no
  /// longer. Null: there is time.
  std::function<void(std::function<void()>)> set_last_words;
};

/// A command's last words while it lives. What they use must live longer.
class LastWords {
 public:
  LastWords(const Host& host, std::function<void()> words) : host_(host) {
    if (host_.set_last_words) host_.set_last_words(std::move(words));
  }
  ~LastWords() { withdraw(); }
  LastWords(const LastWords&) = delete;
  LastWords& operator=(const LastWords&) = delete;
  /// The command speaks for itself from here on.
  void withdraw() {
    if (!is_withdrawn_ && host_.set_last_words) host_.set_last_words({});
    is_withdrawn_ = true;
  }

 private:
  const Host& host_;
  bool is_withdrawn_ = false;
};

/// Codes of the process. Where several apply the largest of the table wins: 70, 5, 4, 3, 1.
enum ExitCode : int {
  kOk = 0,
  kWrong = 1,
  kUsage = 2,
  kUnsupported = 3,
  kCompile = 4,
  kDevice = 5,
  kBug = 70,
  kInterrupted = 130
};
ExitCode exit_code_of(ErrorKind kind) noexcept;
/// The graver of two codes in the order above.
inline ExitCode graver(ExitCode a, ExitCode b) noexcept { return a > b ? a : b; }

/// The whole command: arguments without the program's name. Never throws.
int run_tessera(const std::vector<std::string>& arguments, Host& host);

/// Thrown when the reader of stdout is gone; ends the program as a success.
struct BrokenPipe {};

}  // namespace tessera::cli
