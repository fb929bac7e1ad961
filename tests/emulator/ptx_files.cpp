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

}  // namespace
}  // namespace tessera::emulator::testing::ptx_files_test
