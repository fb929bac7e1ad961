// libFuzzer: any text as a launch file of one small kernel either is refused with Error, or runs on tiny budgets.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_reader.h"
#include "cli/emulate_run.h"
#include "tessera/error.h"
#include "tests/fuzz/target.h"

namespace {

// copies eight words from one buffer to another, block by block
constexpr const char* kPtx = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry copy(.param .u64 to, .param .u64 from, .param .u32 count)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  .reg .pred %p;
  mov.u32 %r0, %tid.x;
  ld.param.u32 %r1, [count];
  setp.ge.u32 %p, %r0, %r1;
  @%p ret;
  ld.param.u64 %rd0, [to];
  ld.param.u64 %rd1, [from];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd3, %rd0, %rd2;
  add.u64 %rd4, %rd1, %rd2;
  ld.global.u32 %r2, [%rd4];
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

}  // namespace

TESSERA_FUZZ_TARGET(launch_file)(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  using namespace tessera::cli;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const LaunchFileDefaults defaults{"sm_90a", {"copy"}, "/nonexistent"};
    LaunchFile file = read_launch_file(parse_json(text, "fuzz.json"), defaults);
    for (const auto& [name, path] : file.saved)
      if (!path.string().starts_with("/nonexistent")) return 0;  // writes nothing anywhere
    if (!file.saved.empty()) return 0;
    EmulateOptions options;
    options.max_buffer_bytes = 1 << 16;
    emulator::DeviceOptions device_options;
    device_options.memory_bytes = std::uint64_t{1} << 24;
    device_options.max_warp_instructions = 20000;
    device_options.max_seconds = 5;
    EmulateRun run(std::move(file), kPtx, "copy.ptx", options);
    emulator::EmulatedDevice device(device_options);
    run.run(device, {emulator::Schedule::fair});
  } catch (const Error&) {
  }
  return 0;
}
