// Errors of this thread, versions, texts, structs.
#include <algorithm>
#include <new>

#include "c/handles.h"

namespace tessera::c {

namespace {

struct LastError {
  std::string message, notes;
  bool is_out_of_memory = false;  ///< then there may have been none for the texts either
};
thread_local LastError last_error;

tessera_status status_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::usage:
      return TESSERA_USAGE;
    case ErrorKind::unsupported:
      return TESSERA_UNSUPPORTED;
    case ErrorKind::compile:
      return TESSERA_COMPILE;
    case ErrorKind::device:
      return TESSERA_DEVICE;
    case ErrorKind::io:
      return TESSERA_IO;
  }
  return TESSERA_INTERNAL;
}

tessera_status record() {
  last_error.is_out_of_memory = false;
  try {
    throw;
  } catch (const Error& error) {
    std::string notes;
    for (const std::string& note : error.notes()) notes += (notes.empty() ? "" : "\n") + note;
    last_error.message = error.what();
    last_error.notes = std::move(notes);
    return status_of(error.kind());
  } catch (const std::bad_alloc&) {
    last_error.is_out_of_memory = true;
  } catch (const std::exception& error) {
    last_error.message = fmt::format("internal: {}", error.what());
    last_error.notes.clear();
  } catch (...) {
    last_error.message = "internal: an exception of an unknown type";
    last_error.notes.clear();
  }
  return TESSERA_INTERNAL;
}

}  // namespace

tessera_status record_exception() noexcept {
  try {
    return record();
  } catch (...) {
    last_error.is_out_of_memory = true;
    return TESSERA_INTERNAL;
  }
}

void refuse_null(const char* what) { throw Error(ErrorKind::usage, fmt::format("{} is null", what)); }

void check_struct(const void* given, std::size_t size, std::size_t known, const char* name) {
  constexpr std::size_t kMost = 4096;
  if (size < 2 * sizeof(std::size_t) || size > kMost)
    throw Error(ErrorKind::usage, fmt::format("struct_size = {}: set it to sizeof({})", size, name));
  const auto* const bytes = static_cast<const unsigned char*>(given);
  if (size > known && std::any_of(bytes + known, bytes + size, [](unsigned char byte) { return byte != 0; }))
    throw Error(ErrorKind::usage, fmt::format("{} has {} bytes, {} of them known to this library (tessera {}), and a "
                                              "member beyond these is set: leave it 0 or load a newer library",
                                              name, size, known, tessera_version()));
}

char* new_text(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

}  // namespace tessera::c

const char* tessera_version(void) { return TESSERA_VERSION; }

int32_t tessera_abi_version(void) { return TESSERA_ABI_VERSION; }

const char* tessera_status_name(tessera_status status) {
  switch (status) {
    case TESSERA_OK:
      return "ok";
    case TESSERA_USAGE:
      return "usage";
    case TESSERA_UNSUPPORTED:
      return "unsupported";
    case TESSERA_COMPILE:
      return "compile";
    case TESSERA_DEVICE:
      return "device";
    case TESSERA_IO:
      return "io";
    case TESSERA_INTERNAL:
      return "internal";
    default:
      return "unknown";
  }
}

const char* tessera_error_message(void) {
  const auto& last = tessera::c::last_error;
  return last.is_out_of_memory ? "internal: out of memory" : last.message.c_str();
}

const char* tessera_error_notes(void) {
  const auto& last = tessera::c::last_error;
  return last.is_out_of_memory ? "" : last.notes.c_str();
}

void tessera_text_free(char* text) { std::free(text); }
