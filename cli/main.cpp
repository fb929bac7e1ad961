// The process: streams, signals, environment. Everything else is in app.cpp.
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "cli/host.h"
#include "runtime/cuda_device.h"

namespace {

int g_interrupt_pipe[2] = {-1, -1};

// The first interrupt asks for a clean end, the second one ends the process.
extern "C" void on_interrupt(int) {
  const char byte = 0;
  [[maybe_unused]] const auto written = write(g_interrupt_pipe[1], &byte, 1);
}

std::stop_token catch_interrupt() {
  static std::stop_source source;
  if (pipe(g_interrupt_pipe) != 0) return source.get_token();
  std::thread([] {
    char byte = 0;
    while (read(g_interrupt_pipe[0], &byte, 1) < 0) {
    }
    source.request_stop();
  }).detach();
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_RESTART);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return source.get_token();
}

std::unique_ptr<tessera::Device> open_gpu(std::string& reason) {
  reason = tessera::cuda_unavailable_reason();
  return reason.empty() ? tessera::make_cuda_device(0, true) : nullptr;
}

/// A dumb terminal, and what names none, shows control sequences as text.
bool takes_control_sequences() {
  const char* const term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && *term != '\0' && std::string_view(term) != "dumb";
}

/// What the terminal says now, else COLUMNS, else 80.
int terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* const columns = std::getenv("COLUMNS");
  const int given = columns == nullptr ? 0 : std::atoi(columns);
  return given > 0 ? given : 80;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is a write that fails
  tessera::cli::Host host;
  host.is_terminal = takes_control_sequences();
  host.terminal_columns = terminal_columns;
  host.open_gpu = open_gpu;
  host.catch_interrupt = catch_interrupt;
  try {
    host.options = tessera::JitOptions::from_environment();
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return tessera::cli::kUsage;
  }
  const int code = tessera::cli::run_tessera(std::vector<std::string>(argv + 1, argv + argc), host);
  // What a library's destructors do at exit must not change the code; buffers were flushed.
  std::fflush(stderr);
  return code;
}
