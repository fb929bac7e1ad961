#include "guest/jit_log.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace tessera::guest {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

JitLog::JitLog(unsigned count, const CUjit_option* options, void** values) : began_(now()) {
  for (unsigned i = 0; i < count; ++i) {
    // Numbers stand in the place of the pointer.
    const auto number = static_cast<std::size_t>(static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(values[i])));
    switch (options[i]) {
      case CU_JIT_ERROR_LOG_BUFFER:
        error_.text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
        error_.room = number;
        error_.size = &values[i];
        break;
      case CU_JIT_INFO_LOG_BUFFER:
        info_.text = static_cast<char*>(values[i]);
        break;
      case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
        info_.room = number;
        info_.size = &values[i];
        break;
      case CU_JIT_WALL_TIME:
        time_ = &values[i];
        break;
      default:
        break;
    }
  }
  for (Buffer* const buffer : {&error_, &info_})
    if (buffer->text != nullptr && buffer->room != 0) *buffer->text = '\0';
}

void JitLog::Buffer::add(const std::string& line) {
  if (text == nullptr || room == 0) return;
  const std::size_t count = std::min(line.size(), room - 1 - used);
  std::memcpy(text + used, line.data(), count);
  used += count;
  text[used] = '\0';
}

void JitLog::error(const tessera::Error& error) {
  error_.add(std::string(error.what()) + "\n");
  for (const std::string& note : error.notes()) error_.add("  " + note + "\n");
}
void JitLog::info(const std::string& text) { info_.add(text + "\n"); }

void JitLog::finish() {
  const auto put = [](void** place, std::uint32_t value) {
    if (place != nullptr) *place = reinterpret_cast<void*>(std::uintptr_t{value});  // NOLINT: a number
  };
  for (const Buffer* const buffer : {&error_, &info_})
    put(buffer->size, static_cast<std::uint32_t>(buffer->used == 0 ? 0 : buffer->used + 1));
  put(time_, std::bit_cast<std::uint32_t>(static_cast<float>((now() - began_) * 1e3)));
}

cudaError_t with_log(JitLog& log, const char* function, const std::function<cudaError_t()>& work) {
  try {
    const cudaError_t error = work();
    log.finish();
    return error;
  } catch (const Error& error) {
    log.error(error);
    log.finish();
    if (!log.takes_errors()) throw;
    std::fprintf(stderr, "tessera: %s: %s\n", function, error.what());
    return error.kind() == ErrorKind::compile ? cudaErrorInvalidPtx : cudaErrorNoKernelImageForDevice;
  }
}

}  // namespace tessera::guest
