// A stand-in for libcuda.so.1 with one H200 whose launches do nothing: what callers of a launch hand to the driver can
// be looked at where there is no GPU. Memory is the host's; a module's parameters are those of the cubin; every launch
// and every encoded map is a line of the record.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace {

using Result = int;
constexpr Result kOk = 0, kInvalidValue = 1, kNotFound = 500;

std::mutex mutex;
std::string record;
bool is_recording = false, records_parameters = false;

template <class... Values>
void note(const char* format, Values... values) {
  if (!is_recording) return;
  char line[512];
  std::snprintf(line, sizeof line, format, values...);
  const std::lock_guard lock(mutex);
  record += line;
}

/// A kernel and its parameters in order: offset and bytes.
struct Function {
  std::string name;
  std::vector<std::pair<std::size_t, std::size_t>> parameters;
};
struct Module {
  std::map<std::string, Function> functions;
};

template <class T>
T at(const unsigned char* bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof value);
  return value;
}

/// Of a section .nv.info.NAME: attributes of a form, a number and 16 bits, and for form 4 so many bytes. 0x17 is a
/// parameter.
Function function_of(const std::string& name, const unsigned char* info, std::size_t bytes) {
  std::map<std::uint16_t, std::pair<std::size_t, std::size_t>> parameters;
  for (std::size_t i = 0; i + 4 <= bytes;) {
    const unsigned form = info[i], attribute = info[i + 1];
    if (form == 4 && attribute == 0x17)
      parameters[at<std::uint16_t>(info, i + 8)] = {at<std::uint16_t>(info, i + 10),
                                                    at<std::uint32_t>(info, i + 12) >> 18};
    i += 4 + (form == 4 ? at<std::uint16_t>(info, i + 2) : 0U);
  }
  Function function{name, {}};
  for (const auto& [ordinal, place] : parameters) function.parameters.push_back(place);
  return function;
}

Result module_load(Module** module, const void* image, unsigned, int*, void**) {
  const auto* const elf = static_cast<const unsigned char*>(image);
  if (std::memcmp(elf,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return kInvalidValue;
  const auto sections = at<std::uint64_t>(elf, 40);
  const auto size = at<std::uint16_t>(elf, 58), count = at<std::uint16_t>(elf, 60), names = at<std::uint16_t>(elf, 62);
  const auto section = [&](std::size_t i) { return static_cast<std::size_t>(sections) + i * size; };
  const auto text = static_cast<std::size_t>(at<std::uint64_t>(elf, section(names) + 24));
  auto loaded = std::make_unique<Module>();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name(reinterpret_cast<const char*>(elf) + text + at<std::uint32_t>(elf, section(i)));
    const std::string prefix = ".nv.info.";
    if (name.compare(0, prefix.size(), prefix) != 0) continue;
    const std::string kernel = name.substr(prefix.size());
    loaded->functions[kernel] = function_of(kernel, elf + at<std::uint64_t>(elf, section(i) + 24),
                                            static_cast<std::size_t>(at<std::uint64_t>(elf, section(i) + 32)));
  }
  *module = loaded.release();
  return kOk;
}

Result module_function(Function** function, Module* module, const char* name) {
  const auto found = module->functions.find(name);
  if (found == module->functions.end()) return kNotFound;
  *function = &found->second;
  return kOk;
}

Result function_parameter(Function* function, std::size_t index, std::size_t* offset, std::size_t* bytes) {
  if (index >= function->parameters.size()) return kInvalidValue;
  *offset = function->parameters[index].first;
  *bytes = function->parameters[index].second;
  return kOk;
}

Result device_attribute(int* value, int attribute, int) {
  static const std::map<int, int> attributes = {{16, 132}, {38, 50 << 20}, {75, 9}, {76, 0}, {88, 0}, {97, 232448}};
  const auto found = attributes.find(attribute);
  *value = found == attributes.end() ? 0 : found->second;
  return kOk;
}

/// The beginning of CUlaunchConfig.
struct Config {
  std::uint32_t grid[3], block[3], smem;
  std::uintptr_t stream;
};

/// A step's parameters: bytes in hexadecimal, but those of a map, which are the driver's.
void note_parameters(const Function& function, void* const* values) {
  constexpr std::size_t kMapBytes = 128;
  std::string text = "parameters";
  for (std::size_t i = 0; i < function.parameters.size(); ++i) {
    const std::size_t bytes = function.parameters[i].second;
    text += bytes == kMapBytes ? " map" : " ";
    for (std::size_t byte = 0; byte < bytes && bytes != kMapBytes; ++byte) {
      char digits[3];
      std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(values[i])[byte]);
      text += digits;
    }
  }
  const std::lock_guard lock(mutex);
  record += text + "\n";
}

Result launch(const Config* config, Function* function, void** values, void**) {
  if (is_recording && records_parameters) note_parameters(*function, values);
  note("launch %s grid %u,%u,%u stream %#zx\n", function->name.c_str(), config->grid[0], config->grid[1],
       config->grid[2], static_cast<std::size_t>(config->stream));
  return kOk;
}

Result encode(void*, int, std::uint32_t rank, void* address, const std::uint64_t* dims, const std::uint64_t* strides,
              const std::uint32_t*, const std::uint32_t*, int, int, int, int) {
  std::string text;
  for (std::uint32_t i = 0; i < rank; ++i) text += (i == 0 ? "" : ",") + std::to_string(dims[i]);
  text += " strides ";
  for (std::uint32_t i = 0; i + 1 < rank; ++i) text += (i == 0 ? "" : ",") + std::to_string(strides[i]);
  note("map %#zx dims %s\n", reinterpret_cast<std::size_t>(address), text.c_str());
  return kOk;
}

int context_of_all = 0;

template <class F>
void* address_of(F* function) {
  return reinterpret_cast<void*>(function);
}

/// Functions by name; what is asked for and does nothing has a line too.
const std::map<std::string, void*>& functions() {
  static const auto* const all = new std::map<std::string, void*>{
      {"cuInit", address_of(+[](unsigned) { return kOk; })},
      {"cuDriverGetVersion", address_of(+[](int* version) { return *version = 13000, kOk; })},
      {"cuGetErrorName", address_of(+[](Result, const char** text) { return *text = "FAKE", kOk; })},
      {"cuGetErrorString", address_of(+[](Result, const char** text) { return *text = "of the stand-in", kOk; })},
      {"cuDeviceGetCount", address_of(+[](int* count) { return *count = 1, kOk; })},
      {"cuDeviceGet", address_of(+[](int* device, int ordinal) { return *device = ordinal, kOk; })},
      {"cuDeviceGetName", address_of(+[](char* name, int bytes, int) {
         return std::snprintf(name, static_cast<std::size_t>(bytes), "Stand-in"), kOk;
       })},
      {"cuDeviceGetAttribute", address_of(device_attribute)},
      {"cuDeviceTotalMem", address_of(+[](std::size_t* bytes, int) { return *bytes = std::size_t{1} << 37, kOk; })},
      {"cuDevicePrimaryCtxRetain", address_of(+[](void** context, int) { return *context = &context_of_all, kOk; })},
      {"cuDevicePrimaryCtxRelease", address_of(+[](int) { return kOk; })},
      {"cuCtxGetCurrent", address_of(+[](void** context) { return *context = &context_of_all, kOk; })},
      {"cuCtxSetCurrent", address_of(+[](void*) { return kOk; })},
      {"cuCtxPushCurrent", address_of(+[](void*) { return kOk; })},
      {"cuCtxPopCurrent", address_of(+[](void** context) { return *context = &context_of_all, kOk; })},
      {"cuCtxGetId", address_of(+[](void*, unsigned long long* id) { return *id = 1, kOk; })},
      {"cuCtxGetDevice", address_of(+[](int* device) { return *device = 0, kOk; })},
      {"cuMemAlloc", address_of(+[](std::uintptr_t* pointer, std::size_t bytes) {
         *pointer = reinterpret_cast<std::uintptr_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
         return kOk;
       })},
      {"cuMemFree",
       address_of(+[](std::uintptr_t pointer) { return std::free(reinterpret_cast<void*>(pointer)), kOk; })},
      {"cuPointerGetAttribute", address_of(+[](void*, int, std::uintptr_t) { return kInvalidValue; })},
      {"cuMemcpyHtoDAsync", address_of(+[](std::uintptr_t to, const void* from, std::size_t bytes, void*) {
         return std::memcpy(reinterpret_cast<void*>(to), from, bytes), kOk;
       })},
      {"cuMemcpyDtoHAsync", address_of(+[](void* to, std::uintptr_t from, std::size_t bytes, void*) {
         return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), kOk;
       })},
      {"cuMemsetD8Async", address_of(+[](std::uintptr_t to, unsigned char value, std::size_t bytes, void*) {
         return std::memset(reinterpret_cast<void*>(to), value, bytes), kOk;
       })},
      {"cuStreamCreate", address_of(+[](void** stream, unsigned) { return *stream = &context_of_all, kOk; })},
      {"cuStreamDestroy", address_of(+[](void*) { return kOk; })},
      {"cuStreamSynchronize", address_of(+[](void*) { return kOk; })},
      {"cuStreamIsCapturing", address_of(+[](void*, int* status) { return *status = 0, kOk; })},
      {"cuEventCreate", address_of(+[](void** event, unsigned) { return *event = &context_of_all, kOk; })},
      {"cuEventDestroy", address_of(+[](void*) { return kOk; })},
      {"cuEventRecord", address_of(+[](void*, void*) { return kOk; })},
      {"cuEventSynchronize", address_of(+[](void*) { return kOk; })},
      {"cuEventElapsedTime", address_of(+[](float* milliseconds, void*, void*) { return *milliseconds = 1, kOk; })},
      {"cuModuleLoadDataEx", address_of(module_load)},
      {"cuModuleUnload", address_of(+[](Module* module) { return delete module, kOk; })},
      {"cuModuleGetFunction", address_of(module_function)},
      {"cuFuncLoad", address_of(+[](Function*) { return kOk; })},
      {"cuFuncSetAttribute", address_of(+[](Function*, int, int) { return kOk; })},
      {"cuFuncGetParamInfo", address_of(function_parameter)},
      {"cuLaunchKernelEx", address_of(launch)},
      {"cuTensorMapEncodeTiled", address_of(encode)},
  };
  return *all;
}

}  // namespace

extern "C" {

Result cuDriverGetVersion(int* version) { return *version = 13000, kOk; }

Result cuCtxGetDevice(int* device) { return *device = 0, kOk; }

Result cuGetProcAddress_v2(const char* name, void** function, int, std::uint64_t, int*) {
  const auto found = functions().find(name);
  if (found == functions().end()) return kNotFound;
  *function = found->second;
  return kOk;
}

/// What came since the last call; from the first call on lines are kept. Lives until the next one.
const char* fake_cuda_record() {
  static std::string taken;
  const std::lock_guard lock(mutex);
  is_recording = true;
  taken.swap(record);
  record.clear();
  return taken.c_str();
}

/// From now on a line of a launch's parameters stands before that of the launch.
void fake_cuda_record_parameters() { records_parameters = true; }
}
