// Hardware judges the emulator: every file of tests/ptx whose target an sm_90a runs, on the GPU and in the emulator,
// bit for bit. First the file's own rows against its expected bits, then random inputs in several styles (files marked
// `fixed` excepted: their inputs are addresses or counts).
//
//   ptx_truth [--lanes 4096] [--seed 1] [--filter TEXT] [--skip TEXT,...] [--from TEXT] [--part I/N] [--report FILE]
//   [--record FOLDER] [--emulator-only]
//
// An error on the GPU ends its context, so all files after it fail: --from goes on behind it. --part is for several
// processes, each with a context of its own.
// --record writes copies of the files with the GPU's outputs as expected bits: how rows are made whose results no
// document defines.
//
// Exit code 0: all agree (within the file's `near` where it has one); 1: some do not; 77: no such GPU here.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/file.h"
#include "tessera/cuda_device.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tessera/image.h"
#include "tests/ptx_gpu/random_inputs.h"

namespace tessera::emulator::testing {
namespace {

struct Settings {
  std::size_t lanes = 4096;
  std::uint64_t seed = 1;
  std::string filter;
  std::vector<std::string> skip;
  std::string from;
  std::string part = "0/1";
  std::string report;
  std::string record;
  bool emulator_only = false;
};

/// What one file came to.
struct Outcome {
  std::size_t rows = 0;
  std::size_t wrong_rows = 0;  // the GPU against the file
  std::size_t outputs = 0;
  std::size_t different = 0;  // the GPU against the emulator, beyond `near`
  double largest = 0;         // distance in units of 2^-23 where the file has `near`
  std::string first;          // a difference, to reproduce
  std::string problem;        // an exception's text
};

/// The kernel on a device: rows of inputs to rows of outputs, `block` threads a CTA.
class Runner {
 public:
  Runner(Device& device, std::unique_ptr<LoadedImage> image) : device_(device), image_(std::move(image)) {}

  std::vector<std::uint64_t> run(const PtxCase& test, const std::vector<std::uint64_t>& inputs, std::size_t lanes) {
    const std::size_t block = test.rows.size() / test.cluster;
    std::vector<std::uint64_t> outputs(lanes * test.outputs.size(), 0);
    const DevicePointer d_in = device_.allocate(std::max<std::size_t>(16, inputs.size() * 8));
    const DevicePointer d_out = device_.allocate(std::max<std::size_t>(16, outputs.size() * 8));
    if (!inputs.empty()) device_.copy_to_device(d_in, inputs.data(), inputs.size() * 8);
    device_.copy_to_device(d_out, outputs.data(), outputs.size() * 8);
    LaunchRequest request;
    request.entry = image_->entry("test");
    request.grid = {static_cast<std::uint32_t>(lanes / block), 1, 1};
    request.block = {static_cast<std::uint32_t>(block), 1, 1};
    request.cluster = {test.cluster, 1, 1};
    const void* parameters[] = {&d_in, &d_out};
    request.parameters = const_cast<void* const*>(reinterpret_cast<const void**>(parameters));
    device_.launch(request, {});
    for (const Finding& finding : device_.synchronize()) throw std::runtime_error(finding.message);
    device_.copy_to_host(outputs.data(), d_out, outputs.size() * 8);
    device_.free(d_in);
    device_.free(d_out);
    return outputs;
  }

 private:
  Device& device_;
  std::unique_ptr<LoadedImage> image_;
};

// How far two f32 results are apart, in units of 2^-23; any other difference is as far as can be.
double distance(std::uint64_t a, std::uint64_t b, const std::string& type) {
  if (type != "b32") return std::numeric_limits<double>::infinity();
  const double x = std::bit_cast<float>(static_cast<std::uint32_t>(a));
  const double y = std::bit_cast<float>(static_cast<std::uint32_t>(b));
  const double apart = std::fabs(x - y) * 0x1p23;
  return apart == apart ? apart : std::numeric_limits<double>::infinity();
}

void compare(const PtxCase& test, const std::vector<std::uint64_t>& inputs, const std::vector<std::uint64_t>& gpu,
             const std::vector<std::uint64_t>& emulated, std::string_view style, Outcome& outcome) {
  const std::size_t width = test.outputs.size();
  outcome.outputs += gpu.size();
  for (std::size_t i = 0; i < gpu.size(); ++i) {
    if (gpu[i] == emulated[i]) continue;
    const double apart = test.near == 0 ? std::numeric_limits<double>::infinity()
                                        : distance(gpu[i], emulated[i], test.outputs[i % width].type);
    outcome.largest = std::max(outcome.largest, apart);
    if (apart <= static_cast<double>(test.near)) continue;
    ++outcome.different;
    if (!outcome.first.empty()) continue;
    outcome.first = fmt::format("{} lane {} {}: GPU 0x{:x}, emulator 0x{:x}; inputs", style, i / width,
                                test.outputs[i % width].name, gpu[i], emulated[i]);
    const std::size_t lane = i / width;
    for (std::size_t j = 0; j < test.inputs.size(); ++j)
      outcome.first += fmt::format(" {}=0x{:x}", test.inputs[j].name, inputs[lane * test.inputs.size() + j]);
  }
}

// The file with these outputs in its rows.
void record_case(const PtxCase& test, const std::vector<std::uint64_t>& outputs, const std::string& path) {
  std::string text;
  std::istringstream lines(read_text(test.path));
  std::size_t row = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("case ", 0) != 0) {
      text += line + "\n";
      continue;
    }
    text += line.substr(0, line.find("->") + 2);
    for (std::size_t i = 0; i < test.outputs.size(); ++i)
      text += fmt::format(" 0x{:x}", outputs[row * test.outputs.size() + i]);
    text += "\n";
    ++row;
  }
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  write_file(path, text);
}

std::string name_of(const std::string& path) {
  return std::filesystem::relative(path, TESSERA_SOURCE_DIR "/tests/ptx").string();
}

Outcome judge(const PtxCase& test, Device* gpu, EmulatedDevice& emulator, const Settings& settings) {
  Outcome outcome;
  const std::string ptx = test.kernel();
  Runner emulated(emulator, emulator.load_ptx(ptx, test.path));
  std::unique_ptr<Runner> real;
  if (gpu != nullptr) {
    Image image;
    image.cubin.resize(ptx.size() + 1);  // the driver takes PTX that ends in a zero byte where it takes code
    std::memcpy(image.cubin.data(), ptx.c_str(), ptx.size() + 1);
    real = std::make_unique<Runner>(*gpu, gpu->load(image));
  }
  const auto on_gpu = [&](const std::vector<std::uint64_t>& inputs, std::size_t lanes,
                          const std::vector<std::uint64_t>& otherwise) {
    return real ? real->run(test, inputs, lanes) : otherwise;
  };
  std::vector<std::uint64_t> inputs;
  std::vector<std::uint64_t> expected;
  for (const auto& row : test.rows) {
    inputs.insert(inputs.end(), row.begin(), row.begin() + static_cast<std::ptrdiff_t>(test.inputs.size()));
    expected.insert(expected.end(), row.begin() + static_cast<std::ptrdiff_t>(test.inputs.size()), row.end());
  }
  outcome.rows = test.rows.size();
  const auto as_written = on_gpu(inputs, test.rows.size(), expected);
  if (real && !settings.record.empty()) record_case(test, as_written, settings.record + "/" + name_of(test.path));
  for (std::size_t row = 0; row < test.rows.size(); ++row) {
    const auto at = static_cast<std::ptrdiff_t>(row * test.outputs.size());
    const auto end = at + static_cast<std::ptrdiff_t>(test.outputs.size());
    outcome.wrong_rows += !std::equal(as_written.begin() + at, as_written.begin() + end, expected.begin() + at);
  }
  compare(test, inputs, as_written, emulated.run(test, inputs, test.rows.size()), "as written", outcome);
  if (test.is_fixed) return outcome;
  const std::size_t lanes = std::max<std::size_t>(1, settings.lanes / test.rows.size()) * test.rows.size();
  for (int style = 0; style < kInputStyles; ++style) {
    const auto random = random_inputs(test, lanes, style, settings.seed);
    const auto result = emulated.run(test, random, lanes);
    compare(test, random, on_gpu(random, lanes, result), result, fmt::format("style {}", style), outcome);
  }
  return outcome;
}

std::vector<std::string> case_files(const std::string& filter) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(TESSERA_SOURCE_DIR "/tests/ptx"))
    if (entry.path().extension() == ".case" && entry.path().string().find(filter) != std::string::npos)
      files.push_back(entry.path().string());
  std::sort(files.begin(), files.end());
  return files;
}

int run(const Settings& settings) {
  std::unique_ptr<Device> gpu;
  if (!settings.emulator_only) {
    const std::string reason = cuda_unavailable_reason();
    if (!reason.empty()) {
      fmt::print("skipped: {}\n", reason);
      return 77;
    }
    gpu = make_cuda_device();
    if (gpu->info().compute_major != 9) {
      fmt::print("skipped: {} is no sm_90a\n", gpu->info().name);
      return 77;
    }
  }
  EmulatedDevice emulator;
  std::string report = "file\trows\twrong rows\toutputs\tdifferent\tlargest\tfirst\n";
  std::size_t bad = 0;
  std::size_t total = 0;
  std::size_t files = 0;  // taken by all parts
  std::size_t compared = 0;
  std::size_t part = 0;
  std::size_t parts = 1;
  if (std::sscanf(settings.part.c_str(), "%zu/%zu", &part, &parts) != 2 || part >= parts)
    throw std::runtime_error(fmt::format("--part {}: must be I/N with I below N", settings.part));
  for (const std::string& path : case_files(settings.filter)) {
    const PtxCase test = read_case(path);
    if (test.target != "sm_90a" || name_of(path) < settings.from) continue;
    const auto is_in_path = [&path](const std::string& text) { return path.find(text) != std::string::npos; };
    if (std::any_of(settings.skip.begin(), settings.skip.end(), is_in_path)) continue;
    if (files++ % parts != part) continue;
    Outcome outcome;
    try {
      outcome = judge(test, gpu.get(), emulator, settings);
    } catch (const std::exception& error) {
      outcome.problem = error.what();
    }
    total += outcome.outputs;
    ++compared;
    const std::string name = name_of(path);
    report += fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", name, outcome.rows, outcome.wrong_rows, outcome.outputs,
                          outcome.different, outcome.largest, outcome.problem + outcome.first);
    if (outcome.wrong_rows == 0 && outcome.different == 0 && outcome.problem.empty()) continue;
    ++bad;
    fmt::print("{}: {} of {} rows wrong on the GPU, {} of {} outputs differ. {}{}\n", name, outcome.wrong_rows,
               outcome.rows, outcome.different, outcome.outputs, outcome.problem, outcome.first);
  }
  if (!settings.report.empty()) write_file(settings.report, report);
  fmt::print("{} files, {} outputs compared, {} files with differences\n", compared, total, bad);
  return bad == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera::emulator::testing

int main(int argc, char** argv) {
  tessera::emulator::testing::Settings settings;
  CLI::App app{"Compares the emulator with the GPU, one instruction at a time"};
  app.add_option("--lanes", settings.lanes, "Threads per input style")->check(CLI::Range(1, 1 << 22));
  app.add_option("--seed", settings.seed, "Of the random inputs");
  app.add_option("--filter", settings.filter, "Only files whose path has this text");
  app.add_option("--skip", settings.skip, "Not the files whose path has one of these texts")->delimiter(',');
  app.add_option("--from", settings.from, "Only files from this name on, in the order of names");
  app.add_option("--part", settings.part, "I/N: every N-th file, from the I-th on");
  app.add_option("--report", settings.report, "A line per file, tab-separated");
  app.add_option("--record", settings.record, "Writes the files with the GPU's outputs under this folder");
  app.add_flag("--emulator-only", settings.emulator_only, "Without a GPU: only whether the inputs run");
  CLI11_PARSE(app, argc, argv);
  try {
    return tessera::emulator::testing::run(settings);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
