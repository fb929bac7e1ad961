// The CUDA driver's linker: PTX texts, also of fat binaries, become one (link.h). Each is read when it is added, so
// that what is wrong is said there, and in the log that the program gave.
#include <cuda.h>

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "emulator/syntax/parser.h"
#include "guest/driver.h"
#include "guest/fat_binary.h"
#include "guest/jit_log.h"
#include "guest/link.h"

using namespace tessera::guest;

namespace {

struct Link {
  std::vector<std::string> parts;
  std::string image;
  JitLog log;
};
Link& link_of(CUlinkState state) { return *reinterpret_cast<Link*>(state); }

CUresult work_on(const char* function, CUlinkState state, const std::function<cudaError_t()>& work) {
  return drive(function, [&]() -> cudaError_t {
    return state == nullptr ? cudaErrorInvalidResourceHandle : with_log(link_of(state).log, function, work);
  });
}

std::string ptx_of(CUjitInputType type, const char* data, std::size_t bytes, const std::string& name) {
  const bool may_be_text = bytes < 4 || (std::memcmp(data, "\177ELF", 4) != 0 && !is_fat_binary(data));
  if (type == CU_JIT_INPUT_PTX || (type == CU_JIT_INPUT_CUBIN && may_be_text)) {
    std::string text(data, bytes);
    text.resize(std::strlen(text.c_str()));  // it may end with zeros
    return text;
  }
  if (type == CU_JIT_INPUT_FATBINARY || (bytes >= 4 && is_fat_binary(data))) {
    const FatBinary binary = read_fat_binary(data);
    if (const std::string* const chosen = choose_ptx(binary, Session::instance().arch())) return *chosen;
    throw tessera::Error(tessera::ErrorKind::unsupported, name + ": it has no PTX for this device");
  }
  const bool is_device_runtime = name.find("cudadevrt") != std::string::npos ||
                                 std::string_view(data, bytes).find("cuda_device_runtime") != std::string_view::npos;
  if (type == CU_JIT_INPUT_LIBRARY && is_device_runtime) return "";  // ours is in its place
  throw tessera::Error(tessera::ErrorKind::unsupported,
                       name +
                           ": linking takes PTX texts and fat binaries with PTX; machine code, objects and "
                           "libraries are not run");
}

}  // namespace

extern "C" {

CUresult cuLinkCreate_v2(unsigned count, CUjit_option* options, void** values, CUlinkState* state) {
  auto made = std::make_unique<Link>();
  made->log = JitLog(count, options, values);
  *state = reinterpret_cast<CUlinkState>(made.release());
  return CUDA_SUCCESS;
}
CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void* data, std::size_t bytes, const char* name,
                          unsigned, CUjit_option*, void**) {
  return work_on(__func__, state, [&]() -> cudaError_t {
    if (data == nullptr || bytes == 0) return cudaErrorInvalidValue;
    const std::string called = name == nullptr ? "input" : name;
    std::string text = ptx_of(type, static_cast<const char*>(data), bytes, called);
    if (text.empty()) return cudaSuccess;
    tessera::emulator::parse_ptx(text, called);
    link_of(state).parts.push_back(std::move(text));
    return cudaSuccess;
  });
}
CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char* path, unsigned count,
                          CUjit_option* options, void** values) {
  std::string text;
  try {
    text = tessera::read_text(path);
  } catch (const tessera::Error&) {
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  return cuLinkAddData_v2(state, type, text.data(), text.size(), path, count, options, values);
}
CUresult cuLinkComplete(CUlinkState state, void** image, std::size_t* bytes) {
  return work_on(__func__, state, [&]() -> cudaError_t {
    Link& link = link_of(state);
    if (link.parts.empty()) return cudaErrorInvalidSource;
    link.image = link.parts.size() == 1 ? link.parts.front()
                                        : link_ptx(std::vector<std::string_view>(link.parts.begin(), link.parts.end()));
    *image = link.image.data();
    if (bytes != nullptr) *bytes = link.image.size() + 1;
    return cudaSuccess;
  });
}
CUresult cuLinkDestroy(CUlinkState state) {
  delete reinterpret_cast<Link*>(state);
  return CUDA_SUCCESS;
}

}  // extern "C"
