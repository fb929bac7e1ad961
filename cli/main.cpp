// The process: streams, signals, environment. Everything else is in app.cpp.
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "cli/host.h"
#include "cli/interrupt.h"
#include "tessera/cuda_device.h"
#include "tessera/error.h"

namespace {

std::unique_ptr<tessera::Device> open_gpu(std::string& reason) {
  reason = tessera::cuda_unavailable_reason();
  return reason.empty() ? tessera::make_cuda_device(0, true) : nullptr;
}

/// A stream that was closed before the start: the next file that is opened would get its number, and with it what is
/// written to the stream. In its place stands one that fails, so that results are not lost in silence: a folder cannot
/// be written by the name /dev/stdout either, as /dev/null could.
void fill_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0) {
      const bool is_input = stream == STDIN_FILENO;
      const int filler = open(is_input ? "/dev/null" : "/", is_input ? O_WRONLY : O_RDONLY);  // the lowest free number
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
  tessera::cli::Interrupt& interrupt = tessera::cli::Interrupt::of_process();
  tessera::cli::Host host;
  host.is_terminal = takes_control_sequences();
  host.terminal_columns = terminal_columns;
  if (const char* const preload = std::getenv("LD_PRELOAD")) host.preload = preload;
  if (const char* const path = std::getenv("PYTHONPATH")) host.python_path = path;
  host.open_gpu = open_gpu;
  host.catch_interrupt = [&] { return interrupt.token(); };
  host.set_last_words = [&](std::function<void()> words) { interrupt.set_last_words(std::move(words)); };
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
  // Compiles that were left may still run: no destructor of theirs is waited for.
  if (const int signal = interrupt.signal(); signal != 0) _exit(128 + signal);
  return code;
}
