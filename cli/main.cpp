// The process: streams, signals, environment. Everything else is in app.cpp.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>
#include <system_error>
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
  try {
    std::thread([] {
      char byte = 0;
      while (read(g_interrupt_pipe[0], &byte, 1) < 0) {
      }
      source.request_stop();
    }).detach();
  } catch (const std::system_error&) {  // no thread to be had: an interrupt ends the process, as it does elsewhere
    return source.get_token();
  }
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

/// A stream that was closed before the start: the next file that is opened would get its number, and with it what is
/// written to the stream. In its place stands one that fails, so that results are not lost in silence.
void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) {
      const int filler = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free number
      static_cast<void>(filler);
    }
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
  fill_closed_streams();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a limit of file sizes is a write that fails
  tessera::cli::Host host;
  host.is_terminal = takes_control_sequences();
  host.terminal_columns = terminal_columns;
  host.open_gpu = open_gpu;
  host.catch_interrupt = catch_interrupt;
  int code = tessera::cli::kDevice;
  try {
    host.options = tessera::JitOptions::from_environment();
    code = tessera::cli::run_tessera(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), host);
  } catch (const tessera::Error& error) {
    std::fprintf(stderr, "tessera: %s\n", error.what());
    return tessera::cli::kUsage;
  } catch (const std::bad_alloc&) {
    std::fputs("tessera: out of memory\n", stderr);
  }
  // What a library's destructors do at exit must not change the code; buffers were flushed.
  std::fflush(stderr);
  return code;
}
