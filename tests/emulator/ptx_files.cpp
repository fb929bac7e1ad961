// Runs every file under tests/ptx in the emulator and compares bits.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <set>

#include "emulator/instructions/wide.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/emulator/ptx_case.h"

namespace tessera::emulator::testing::ptx_files_test {
namespace {

std::vector<std::string> case_files() {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_SOURCE_DIR "/tests/ptx"))
    if (entry.path().extension() == ".case") files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

/// Equal, or as near as the file allows.
bool agree(const PtxCase& test, std::uint64_t got, std::uint64_t expected) {
  if (got == expected || test.near == 0) return got == expected;
  const double x = std::bit_cast<float>(static_cast<std::uint32_t>(got));
  const double y = std::bit_cast<float>(static_cast<std::uint32_t>(expected));
  return std::fabs(x - y) * 0x1p23 <= static_cast<double>(test.near);
}

void run_case(const PtxCase& test) {
  DeviceOptions options;
  options.arch = test.target;
  EmulatedDevice device(options);
  const std::size_t rows = test.rows.size();
  const std::size_t num_in = test.inputs.size();
  const std::size_t num_out = test.outputs.size();
  std::vector<std::uint64_t> in;
  for (const auto& row : test.rows) in.insert(in.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(num_in));
  std::vector<std::uint64_t> out(rows * num_out, 0);
  const DevicePointer d_in = device.allocate(std::max<std::size_t>(8, in.size() * 8));
  const DevicePointer d_out = device.allocate(out.size() * 8);
  if (!in.empty()) device.copy_to_device(d_in, in.data(), in.size() * 8);
  device.copy_to_device(d_out, out.data(), out.size() * 8);
  const auto image = device.load_ptx(test.kernel(), test.path);
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {static_cast<std::uint32_t>(rows) / test.cluster, 1, 1};
  request.grid = request.cluster = {test.cluster, 1, 1};
  const void* parameters[] = {&d_in, &d_out};
  request.parameters = const_cast<void* const*>(reinterpret_cast<const void**>(parameters));
  device.launch(request, {});
  bool is_expected = test.hazard.empty();
  for (const Finding& finding : device.synchronize()) {
    if (!test.hazard.empty() && finding.message.rfind("hazard: " + test.hazard + " ", 0) == 0)
      is_expected = true;
    else
      FAIL_CHECK(finding.message);
  }
  CHECK(is_expected);
  device.copy_to_host(out.data(), d_out, out.size() * 8);
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t i = 0; i < num_out; ++i) {
      INFO(fmt::format("{} case {} output {}: 0x{:x}, expected 0x{:x}", test.path, row + 1, test.outputs[i].name,
                       out[row * num_out + i], test.rows[row][num_in + i]));
      CHECK(agree(test, out[row * num_out + i], test.rows[row][num_in + i]));
    }
}

TEST_CASE("one-instruction files") {
  const std::vector<std::string> files = case_files();
  REQUIRE(files.size() > 20);
  for (const std::string& file : files) {
    CAPTURE(file);
    try {
      run_case(read_case(file));
    } catch (const Error& error) {
      std::string text = error.what();
      for (const std::string& note : error.notes()) text += "\n" + note;
      FAIL_CHECK(text);
    }
  }
}

// A host has one form of them: the others are run as well, as far as it can.
TEST_CASE("the busiest instructions, by each width of vectors") {
  const std::set<std::string> busy{"add", "and", "cvt",  "fma",  "ld",  "mad", "max", "min", "mov",
                                   "mul", "or",  "selp", "setp", "shl", "shr", "st",  "sub", "xor"};
  const wide::Vectors best = wide::here;
  for (const wide::Vectors vectors : {wide::Vectors::none, wide::Vectors::avx2, wide::Vectors::avx512}) {
    if (vectors > best) continue;
    wide::here = vectors;
    CAPTURE(static_cast<int>(vectors));
    for (const std::string& file : case_files())
      if (busy.count(std::filesystem::path(file).parent_path().filename().string()) != 0) run_case(read_case(file));
  }
  wide::here = best;
}

// Registers a, b and c of 32 lanes by this instruction, in the lanes of the mask: what a is then.
std::vector<std::uint64_t> in_place(const std::string& instruction, const std::vector<std::uint64_t>& values,
                                    std::uint32_t mask) {
  const std::string text = R"(.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 p, .param .u32 mask)
{
  .reg .b64 %at, %p, %a, %b, %c;
  .reg .b32 %x, %y, %z, %lane, %mask;
  .reg .pred %on;
  ld.param.u64 %p, [p];
  ld.param.u32 %mask, [mask];
  mov.u32 %lane, %tid.x;
  mul.wide.u32 %at, %lane, 24;
  add.u64 %p, %p, %at;
  ld.global.b64 %a, [%p];
  ld.global.b64 %b, [%p+8];
  ld.global.b64 %c, [%p+16];
  cvt.u32.u64 %x, %a;
  cvt.u32.u64 %y, %b;
  cvt.u32.u64 %z, %c;
  shr.u32 %mask, %mask, %lane;
  and.b32 %mask, %mask, 1;
  setp.ne.u32 %on, %mask, 0;
  @%on )" + instruction + R"(;
  st.global.b64 [%p], %a;
  st.global.b32 [%p+8], %x;
  ret;
})";
  EmulatedDevice device(DeviceOptions{});
  const DevicePointer memory = device.allocate(values.size() * 8);
  device.copy_to_device(memory, values.data(), values.size() * 8);
  const auto image = device.load_ptx(text, "in_place.ptx");
  LaunchRequest request;
  request.entry = image->entry("k");
  request.block = {32, 1, 1};
  const void* parameters[] = {&memory, &mask};
  request.parameters = const_cast<void* const*>(reinterpret_cast<const void**>(parameters));
  device.launch(request, {});
  for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.message);
  std::vector<std::uint64_t> out(values.size());
  device.copy_to_host(out.data(), memory, out.size() * 8);
  const bool is_wide = instruction.find("%a") != std::string::npos;
  std::vector<std::uint64_t> result;
  for (std::size_t lane = 0; lane < 32; ++lane)
    result.push_back(is_wide ? out[3 * lane] : out[3 * lane + 1] & 0xFFFFFFFF);
  return result;
}

// All lanes are computed at once where that costs less: the others must keep what they had, and a result in the place
// of a source must not be a source again where a NaN makes the lanes go one by one.
TEST_CASE("a result in a source's place, of some lanes and with NaNs") {
  const wide::Vectors best = wide::here;
  std::uint64_t number = 1;
  for (const std::string instruction :
       {"fma.rn.f64 %a, %a, %b, %c", "fma.rn.f64 %a, %b, %c, %a", "add.f64 %a, %a, %b", "sub.f64 %a, %b, %a",
        "mul.f64 %a, %a, %b", "div.rn.f64 %a, %b, %a", "fma.rn.f16x2 %x, %x, %y, %z", "add.f16x2 %x, %x, %y",
        "fma.rn.bf16x2 %x, %y, %z, %x", "rsqrt.approx.f32 %x, %x", "ex2.approx.ftz.f32 %x, %x",
        "lg2.approx.f32 %x, %x"})
    for (const bool has_nan : {false, true}) {
      std::vector<std::uint64_t> values;
      for (int i = 0; i < 96; ++i) {
        number = number * 6364136223846793005 + 1442695040888963407;
        values.push_back((number & 0x800FFFFF83FF83FF) | 0x3FF000003C003C00);
      }
      if (has_nan) values[3 * 11] = 0x7FF000017FA07E01;  // of f64, f32, f16 and bf16
      wide::here = wide::Vectors::none;
      const std::vector<std::uint64_t> all = in_place(instruction, values, ~0u);
      wide::here = best;
      for (const std::uint32_t mask : {~0u, 0x0F0F1A34u, 0x80000001u, 0x00000800u}) {
        const std::vector<std::uint64_t> some = in_place(instruction, values, mask);
        for (std::size_t lane = 0; lane < 32; ++lane) {
          const std::uint64_t before =
              instruction.find("%a") != std::string::npos ? values[3 * lane] : values[3 * lane] & 0xFFFFFFFF;
          CAPTURE(instruction);
          CAPTURE(has_nan);
          CAPTURE(mask);
          CAPTURE(lane);
          CHECK(some[lane] == ((mask >> lane & 1) != 0 ? all[lane] : before));
        }
      }
    }
}

}  // namespace
}  // namespace tessera::emulator::testing::ptx_files_test
