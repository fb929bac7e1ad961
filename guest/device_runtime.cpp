#include "guest/device_runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "guest/device_facts.h"
#include "guest/link.h"

namespace tessera::guest {
namespace {

// A launch, or a copy or fill that stands between launches of one stream, as PTX below lays it out. Arguments follow.
struct Record {
  std::uint64_t function = 0;  ///< kCopy, kFill: none
  std::uint32_t grid[3] = {}, block[3] = {}, smem = 0, is_launched = 0, sequence = 0, unused = 0;
  std::uint64_t stream = 0, unused_more = 0;
};
static_assert(sizeof(Record) == 64);
constexpr std::uint64_t kCopy = 1, kFill = 2, kTailLaunch = 3;
constexpr std::size_t kArgumentBytes = 4096, kStride = sizeof(Record) + kArgumentBytes;
constexpr std::size_t kMostRecords = 65536;
constexpr int kPendingCountExceeded = 69;  // cudaErrorLaunchPendingCountExceeded

struct Function {
  const char *name, *parameters, *body;
  bool has_per_thread_form = false;
};

// A new record at %rd4, or return 0 with the error.
constexpr const char* kTakeRecord = R"(
  mov.u64 %rd1, tessera_launch_count;
  atom.global.add.u32 %r1, [%rd1], 1;
  setp.ge.u32 %p1, %r1, {records};
  @%p1 bra full;
  mul.wide.u32 %rd2, %r1, {stride};
  mov.u64 %rd3, tessera_launches;
  add.s64 %rd4, %rd3, %rd2;
)";
constexpr const char* kIsFull = R"(
full:
  mov.u32 %r2, {exceeded};
  st.global.u32 [tessera_last_error], %r2;
)";
// The record at %rd4 is complete but for its stream, %rd5.
constexpr const char* kLaunch = R"(
  st.global.u64 [%rd4+48], %rd5;
  mov.u64 %rd6, tessera_launch_order;
  atom.global.add.u32 %r3, [%rd6], 1;
  st.global.u32 [%rd4+40], %r3;
  mov.u32 %r4, 1;
  st.global.u32 [%rd4+36], %r4;
)";
constexpr const char* kShape = R"(
  ld.param.b64 %rd5, [f];
  st.global.u64 [%rd4], %rd5;
  ld.param.b32 %r5, [g+0];
  st.global.u32 [%rd4+8], %r5;
  ld.param.b32 %r5, [g+4];
  st.global.u32 [%rd4+12], %r5;
  ld.param.b32 %r5, [g+8];
  st.global.u32 [%rd4+16], %r5;
  ld.param.b32 %r5, [b+0];
  st.global.u32 [%rd4+20], %r5;
  ld.param.b32 %r5, [b+4];
  st.global.u32 [%rd4+24], %r5;
  ld.param.b32 %r5, [b+8];
  st.global.u32 [%rd4+28], %r5;
  ld.param.b32 %r5, [s];
  st.global.u32 [%rd4+32], %r5;
)";
constexpr const char* kDone = R"(
  mov.u32 %r9, 0;
  st.param.b32 [r], %r9;
  ret;
)";
constexpr const char* kShapeParameters = ".param .align 4 .b8 g[12], .param .align 4 .b8 b[12], .param .b32 s";

/// `name` without its prefix; both forms of it are there.
std::string function(const std::string& result, const std::string& name, const std::string& parameters,
                     const std::string& body) {
  const std::string returned = result.empty() ? "" : fmt::format("(.param {} r) ", result);
  std::string text;
  for (const char* const prefix : {"__cudaCDP2", "cuda"})
    text += fmt::format(
        ".visible .func {}{}{}({})\n{{\n  .reg .pred %p<2>;\n  .reg .b32 %r<10>;\n  .reg .b64 %rd<10>;\n{}}}\n",
        returned, prefix, name, parameters, body);
  return text;
}

std::string fixed(const char* text, std::size_t records) {
  return fmt::format(fmt::runtime(text), fmt::arg("records", records), fmt::arg("stride", kStride),
                     fmt::arg("exceeded", kPendingCountExceeded));
}

// Streams and events order nothing that is not in order already.
constexpr Function kInOrder[] = {
    {"StreamDestroy", ".param .b64 s", ""},
    {"StreamWaitEvent", ".param .b64 s, .param .b64 e, .param .b32 f", "", true},
    {"EventRecord", ".param .b64 e, .param .b64 s", "", true},
    {"EventRecordWithFlags", ".param .b64 e, .param .b64 s, .param .b32 f", "", true},
    {"EventDestroy", ".param .b64 e", ""},
    {"StreamCreateWithFlags", ".param .b64 o, .param .b32 f",
     "  ld.param.b64 %rd1, [o];\n  mov.u64 %rd2, 16;\n  st.u64 [%rd1], %rd2;\n"},
    {"EventCreateWithFlags", ".param .b64 o, .param .b32 f",
     "  ld.param.b64 %rd1, [o];\n  mov.u64 %rd2, 16;\n  st.u64 [%rd1], %rd2;\n"},
    {"GetDevice", ".param .b64 o", "  ld.param.b64 %rd1, [o];\n  mov.u32 %r1, 0;\n  st.u32 [%rd1], %r1;\n"},
    {"GetDeviceCount", ".param .b64 o", "  ld.param.b64 %rd1, [o];\n  mov.u32 %r1, 1;\n  st.u32 [%rd1], %r1;\n"},
};

std::string read_table(const char* variable, std::size_t count) {
  return fmt::format(
      "  ld.param.b64 %rd1, [o];\n  ld.param.b32 %r1, [a];\n  setp.ge.u32 %p1, %r1, {};\n  @%p1 bra none;\n"
      "  mul.wide.u32 %rd2, %r1, 4;\n  mov.u64 %rd3, {};\n  add.s64 %rd3, %rd3, %rd2;\n  ld.global.u32 %r2, [%rd3];\n"
      "  st.u32 [%rd1], %r2;\n  mov.u32 %r9, 0;\n  st.param.b32 [r], %r9;\n  ret;\nnone:\n  mov.u32 %r9, 1;\n"
      "  st.param.b32 [r], %r9;\n  ret;\n",
      count, variable);
}

// A table of places in one long text; 0 is that of numbers which are no error.
std::string error_texts(const std::string& name, const std::function<const char*(int)>& text_of) {
  constexpr int kErrors = 1000;
  std::string texts = "unrecognized error code", places;
  texts += '\0';
  for (int error = 0; error < kErrors; ++error) {
    const char* const text = text_of(error);
    places += fmt::format("{}{}", error == 0 ? "" : ", ", text == nullptr ? 0 : texts.size());
    if (text != nullptr) texts.append(text, std::strlen(text) + 1);
  }
  std::string bytes;
  for (const char c : texts) bytes += fmt::format("{}{}", bytes.empty() ? "" : ", ", static_cast<int>(c));
  return fmt::format(
             ".visible .global .align 4 .u32 tessera_{0}_places[{1}] = {{{2}}};\n.visible .global .b8 "
             "tessera_{0}_texts[{3}] = {{{4}}};\n",
             name, kErrors, places, texts.size(), bytes) +
         function(".b64", "Get" + name, ".param .b32 e",
                  fmt::format("  ld.param.b32 %r1, [e];\n  min.u32 %r1, %r1, {1};\n  mul.wide.u32 %rd1, %r1, 4;\n"
                              "  mov.u64 %rd2, tessera_{0}_places;\n  add.s64 %rd2, %rd2, %rd1;\n"
                              "  ld.global.u32 %r2, [%rd2];\n  cvt.u64.u32 %rd3, %r2;\n"
                              "  mov.u64 %rd4, tessera_{0}_texts;\n  add.s64 %rd4, %rd4, %rd3;\n"
                              "  cvta.global.u64 %rd4, %rd4;\n  st.param.b64 [r], %rd4;\n  ret;\n",
                              name, kErrors - 1));
}

}  // namespace

bool is_of_device_runtime(std::string_view name) { return name.starts_with("__cudaCDP2") || name.starts_with("cuda"); }

bool needs_device_runtime(std::string_view ptx) {
  constexpr std::string_view kExternal = ".extern .func";
  bool may_need = false;  // long texts are not read again for a declaration of vprintf
  for (std::size_t at = ptx.find(kExternal); at != ptx.npos && !may_need; at = ptx.find(kExternal, at + 1))
    may_need = ptx.substr(at, ptx.find(';', at) - at).find("cuda") != ptx.npos;
  if (!may_need) return false;
  const std::vector<std::string> names = unresolved(ptx);
  return std::any_of(names.begin(), names.end(), is_of_device_runtime) && ptx.find("tessera_launch_count") == ptx.npos;
}

std::string device_runtime(const std::vector<std::string>& kernels) {
  constexpr int kAttributes = 150;
  const std::size_t limit = device_limit(cudaLimitDevRuntimePendingLaunchCount);
  const std::size_t records = std::clamp<std::size_t>(limit == 0 ? 2048 : limit, 16, kMostRecords);
  std::string text = ".version 6.4\n.target sm_70\n.address_size 64\n";
  text += fmt::format(
      ".visible .global .align 8 .b8 tessera_launches[{}];\n.visible .global .align 4 .u32 tessera_launch_count;\n"
      ".visible .global .align 4 .u32 tessera_launch_order;\n.visible .global .align 4 .u32 tessera_last_error;\n",
      records * kStride);
  text +=
      fmt::format(".visible .global .align 8 .u64 tessera_kernels[{}] = {{", std::max<std::size_t>(1, kernels.size()));
  for (std::size_t i = 0; i < kernels.size(); ++i) text += (i == 0 ? "" : ", ") + kernels[i];
  text += kernels.empty() ? "0};\n" : "};\n";
  text += fmt::format(".visible .global .align 4 .u32 tessera_attributes[{}] = {{", kAttributes);
  for (int i = 0; i < kAttributes; ++i) text += fmt::format("{}{}", i == 0 ? "" : ", ", device_attribute(i));
  text += "};\n";

  const std::string take = fixed(kTakeRecord, records), full = fixed(kIsFull, records);
  const std::string no_memory = full + "  mov.u64 %rd9, 0;\n  st.param.b64 [r], %rd9;\n  ret;\n";
  const std::string give =
      "  add.s64 %rd7, %rd4, 64;\n  cvta.global.u64 %rd7, %rd7;\n  st.param.b64 [r], %rd7;\n  ret;\n";
  text += function(".b64", "GetParameterBufferV2", fmt::format(".param .b64 f, {}", kShapeParameters),
                   take + kShape + give + no_memory);
  text += function(".b64", "GetParameterBuffer", ".param .b64 a, .param .b64 n", take + give + no_memory);
  const std::string of_buffer =
      "  ld.param.b64 %rd4, [p];\n  cvta.to.global.u64 %rd4, %rd4;\n  sub.s64 %rd4, %rd4, 64;\n";
  const std::string on_stream = "  ld.param.b64 %rd5, [t];\n";
  for (const char* const form : {"", "_ptsz"}) {
    text += function(".b32", fmt::format("LaunchDeviceV2{}", form), ".param .b64 p, .param .b64 t",
                     of_buffer + on_stream + kLaunch + kDone);
    text += function(".b32", fmt::format("LaunchDevice{}", form),
                     fmt::format(".param .b64 f, .param .b64 p, {}, .param .b64 t", kShapeParameters),
                     of_buffer + kShape + on_stream + kLaunch + kDone);
    const std::string failed = full + "  st.param.b32 [r], %r2;\n  ret;\n";
    const auto argument = [](const char* name, int at) {
      return fmt::format("  ld.param.b64 %rd8, [{}];\n  st.global.u64 [%rd4+{}], %rd8;\n", name, 64 + at);
    };
    text += function(".b32", fmt::format("MemcpyAsync{}", form),
                     ".param .b64 to, .param .b64 from, .param .b64 n, .param .b32 k, .param .b64 t",
                     take + "  mov.u64 %rd5, 1;\n  st.global.u64 [%rd4], %rd5;\n" + argument("to", 0) +
                         argument("from", 8) + argument("n", 16) + on_stream + kLaunch + kDone + failed);
    text += function(".b32", fmt::format("MemsetAsync{}", form),
                     ".param .b64 to, .param .b32 v, .param .b64 n, .param .b64 t",
                     take + "  mov.u64 %rd5, 2;\n  st.global.u64 [%rd4], %rd5;\n" + argument("to", 0) +
                         "  ld.param.b32 %r5, [v];\n  cvt.u64.u32 %rd8, %r5;\n  st.global.u64 [%rd4+72], %rd8;\n" +
                         argument("n", 16) + on_stream + kLaunch + kDone + failed);
  }
  for (const Function& of : kInOrder)
    for (const char* const form : {"", "_ptsz"})
      if (*form == '\0' || of.has_per_thread_form)
        text += function(".b32", fmt::format("{}{}", of.name, form), of.parameters, of.body + std::string(kDone));
  text += function(".b32", "GetLastError", "",
                   "  mov.u64 %rd1, tessera_last_error;\n  mov.u32 %r1, 0;\n  atom.global.exch.b32 %r2, [%rd1], %r1;\n"
                   "  st.param.b32 [r], %r2;\n  ret;\n");
  text += function(".b32", "PeekAtLastError", "",
                   "  ld.global.u32 %r2, [tessera_last_error];\n  st.param.b32 [r], %r2;\n  ret;\n");
  text += function(".b32", "DeviceGetAttribute", ".param .b64 o, .param .b32 a, .param .b32 d",
                   read_table("tessera_attributes", kAttributes));
  text += function(
      ".b32", "RuntimeGetVersion", ".param .b64 o",
      fmt::format("  ld.param.b64 %rd1, [o];\n  mov.u32 %r1, {};\n  st.u32 [%rd1], %r1;\n{}", CUDART_VERSION, kDone));
  text += ".extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n";
  text += function(".b32", "Malloc", ".param .b64 o, .param .b64 n",
                   "  .param .b64 a;\n  .param .b64 got;\n  ld.param.b64 %rd1, [o];\n  ld.param.b64 %rd2, [n];\n"
                   "  st.param.b64 [a], %rd2;\n  call (got), malloc, (a);\n  ld.param.b64 %rd3, [got];\n"
                   "  st.u64 [%rd1], %rd3;\n  setp.ne.u64 %p1, %rd3, 0;\n  selp.b32 %r9, 0, 2, %p1;\n"
                   "  st.param.b32 [r], %r9;\n  ret;\n");
  text += function(".b32", "Free", ".param .b64 p",
                   "  .param .b64 a;\n  ld.param.b64 %rd1, [p];\n  st.param.b64 [a], %rd1;\n  call free, (a);\n" +
                       std::string(kDone));
  text += error_texts("ErrorString", [](int error) { return error_text(error); });
  text += error_texts("ErrorName", [](int error) { return error_name(error); });
  // A conditional node's handle is the address of its word.
  text += function("", "GraphSetConditional", ".param .b64 h, .param .b32 v",
                   "  ld.param.b64 %rd1, [h];\n  ld.param.b32 %r1, [v];\n  st.global.u32 [%rd1], %r1;\n  ret;\n");
  return text;
}

namespace {

struct Launch {
  Record record;
  std::vector<std::byte> arguments;
};

// What is written down, in its order; the list is empty then.
std::vector<Launch> take_launches(Module& module) {
  emulator::EmulatedDevice& device = Session::instance().device();
  const emulator::DeviceVariable count = module.variable("tessera_launch_count");
  const emulator::DeviceVariable list = module.variable("tessera_launches");
  std::uint32_t written = 0;
  device.copy_to_host(&written, count.address, sizeof(written));
  std::vector<Launch> all(std::min<std::size_t>(written, list.bytes / kStride));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].arguments.resize(kArgumentBytes);
    device.copy_to_host(&all[i].record, list.address + i * kStride, sizeof(Record));
    device.copy_to_host(all[i].arguments.data(), list.address + i * kStride + sizeof(Record), kArgumentBytes);
    device.set_bytes(list.address + i * kStride, 0, kStride);
  }
  std::erase_if(all, [](const Launch& one) { return one.record.is_launched == 0; });
  std::sort(all.begin(), all.end(),
            [](const Launch& a, const Launch& b) { return a.record.sequence < b.record.sequence; });
  if (written != 0) {
    device.set_bytes(count.address, 0, 4);
    device.set_bytes(module.variable("tessera_launch_order").address, 0, 4);
  }
  return all;
}

std::string kernel_at(Module& module, std::uint64_t address) {
  const std::vector<std::string> names = module.kernel_names();
  std::vector<std::uint64_t> addresses(names.size());
  Session::instance().device().copy_to_host(addresses.data(), module.variable("tessera_kernels").address,
                                            addresses.size() * sizeof(std::uint64_t));
  const auto found = std::find(addresses.begin(), addresses.end(), address);
  return found == addresses.end() ? "" : names[static_cast<std::size_t>(found - addresses.begin())];
}

void say(const std::string& text) { Session::instance().add_problem("dynamic parallelism: " + text); }

cudaError_t run_one(Module& module, const Launch& launch) {
  std::uint64_t words[3] = {};
  std::memcpy(words, launch.arguments.data(), sizeof(words));
  if (launch.record.function == kCopy) {
    Box box;
    box.to = pointer_of(words[0]);
    box.from = pointer_of(words[1]);
    box.width = words[2];
    return perform(box);
  }
  if (launch.record.function == kFill) {
    Fill fill;
    fill.to = pointer_of(words[0]);
    fill.value = static_cast<std::uint8_t>(words[1]);
    fill.width = words[2];
    return perform(fill);
  }
  const std::string name = kernel_at(module, launch.record.function);
  if (name.empty()) {
    say(fmt::format("{:#x} is no kernel of the program", launch.record.function));
    return cudaErrorInvalidDeviceFunction;
  }
  LaunchWork work;
  work.kernel = &module.kernel(name);
  work.grid = {launch.record.grid[0], launch.record.grid[1], launch.record.grid[2]};
  work.block = {launch.record.block[0], launch.record.block[1], launch.record.block[2]};
  work.smem = launch.record.smem;
  work.arguments = launch.arguments;
  work.arguments.resize(work.kernel->parameter_bytes());
  if (const cudaError_t error = check(work); error != cudaSuccess) {
    say(fmt::format("a launch of {} with {} x {} x {} blocks of {} x {} x {} threads and {} bytes of shared memory: {}",
                    name, work.grid.x, work.grid.y, work.grid.z, work.block.x, work.block.y, work.block.z, work.smem,
                    error_text(error)));
    return cudaSuccess;  // the kernel is told, and nobody else
  }
  return perform(work);  // which runs what this one launches, too
}

}  // namespace

// Those into the stream of tails begin when all others and what these launched have ended.
cudaError_t run_launches_of(Module& module) {
  if (!module.has_device_runtime()) return cudaSuccess;
  std::vector<Launch> all = take_launches(module);
  std::stable_partition(all.begin(), all.end(), [](const Launch& one) { return one.record.stream != kTailLaunch; });
  for (const Launch& one : all) {
    if (Session::instance().error() != cudaSuccess) return cudaSuccess;
    if (const cudaError_t error = run_one(module, one); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace tessera::guest
