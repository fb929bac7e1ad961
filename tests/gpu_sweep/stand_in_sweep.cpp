// NVFP4 attention, and products of NVFP4, MXFP4 and MXFP8, of sm_120a on a Hopper GPU, with stand-ins for the
// instructions that it lacks (tests/support/stand_ins.h): drawn facts, tiles and shapes, compared with float64, and bit
// for bit with the emulator's run of the kernel as it is for sm_120a. Barriers, loads, repacks and epilogues are the
// kernels' own.
//
//   stand_in_sweep [--cases N] [--seed S] [--seconds T] [--only attention] [--emulate]
//
// Exit code 0: all pass; 1: a mismatch, printed with its seed; 77: no GPU here, or none of compute capability 9.0.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "generator/selectors.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tests/emulated/gemm_tcgen05_run.h"
#include "tests/gpu_sweep/exit_code.h"
#include "tests/support/fmha_nvfp4_cases.h"
#include "tests/support/stand_ins.h"

namespace tessera {
namespace {

constexpr const char* kArch = "sm_90a";

struct Settings {
  int cases = 20;
  std::uint64_t seed = 1;
  double seconds = 1e9;
  std::string only, folder = TESSERA_SOURCE_DIR "/tests/stand_ins";
  bool is_emulated = false;
};

using Fields = std::vector<std::pair<std::string, std::string>>;

class Sweep {
 public:
  Sweep(Device& device, Compiler& compiler, const Settings& settings)
      : settings_(settings), device_(device), compiler_(compiler), stand_in_(compiler, kArch, settings.folder) {}

  int run() {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < settings_.cases && failures_ <= 20; ++i) {
      if (std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() > settings_.seconds) break;
      const std::uint64_t seed = settings_.seed + static_cast<std::uint64_t>(i);
      random_.seed(seed);
      const bool is_attention = settings_.only.empty() ? seed % 2 == 0 : settings_.only == "attention";
      for (const std::string& problem : is_attention ? attention(seed) : product(seed)) {
        fmt::print("seed {}: {}: {}\n", seed, kernel_, problem);
        ++failures_;
      }
      fmt::print("seed {}: {} after {:.1f} s\n", seed, kernel_,
                 std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      std::fflush(stdout);
    }
    fmt::print("{} attention kernels, {} products, {} bytes as on sm_120a, {} failures, seeds from {}\n", attentions_,
               products_, bytes_, failures_, settings_.seed);
    return failures_;
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  void compare_bits(const char* name, const std::vector<std::byte>& found, const std::vector<std::byte>& wanted,
                    std::vector<std::string>& problems) {
    bytes_ += static_cast<std::int64_t>(found.size());
    if (found == wanted) return;
    std::size_t at = 0;
    while (at < found.size() && found[at] == wanted[at]) ++at;
    problems.push_back(fmt::format("{}: byte {} of {} is not that of sm_120a in the emulator", name, at, found.size()));
  }

  std::vector<std::string> attention(std::uint64_t seed) {
    Fmha p{.arch = Arch::parse("sm_120a"), .head_dim = pick(0, 1) == 0 ? 64 : 128};
    p.format = BlockFormat::nvfp4;
    if (pick(0, 3) > 0) {
      p.tile_m = pick(0, 1) == 0 ? 128 : 64;
      p.tile_n = pick(0, 1) == 0 ? 128 : 64;
      p.stages = *p.tile_n == 128 ? 2 : 3;
    }
    switch (pick(0, 4)) {
      case 1:
        p.window = Window::chunked;
        [[fallthrough]];
      case 2:
        p.mask = Mask::causal;
        break;
      case 3:
        p.window = Window::sliding;
        break;
      case 4:
        p.tree_mask = TreeMask::bits;
        break;
      default:
        break;
    }
    if (pick(0, 2) == 0) p.softcap = Softcap::tanh;
    if (pick(0, 2) == 0) p.alibi = Alibi::per_head;
    if (pick(0, 2) == 0) p.sink = Sink::per_head;
    if (p.sink == Sink::none && pick(0, 2) == 0) p.output = Output::unnormalized;
    p.split_kv = pick(0, 2) == 0 ? SplitKv::on : SplitKv::off;
    if (p.split_kv == SplitKv::on && pick(0, 1) == 0) p.split_size = 128;
    const Plan plan = make_plan(p);
    kernel_ = plan.kernel;

    const std::int64_t groups = pick(1, 2);
    reference::FmhaSizes s{.batch = pick(1, 2), .heads_q = groups * pick(1, 2), .seqlen_q = pick(1, 200)};
    s.heads_kv = s.heads_q / groups;
    s.seqlen_k = pick(0, 9) == 0 ? 0 : pick(1, 400);
    s.head_dim = p.head_dim;
    Nvfp4Facts facts{.softmax_scale = pick(0, 3) == 0 ? -0.1 : 0, .num_splits = p.split_size > 0 ? 0 : pick(0, 3)};
    if (p.split_kv == SplitKv::off) facts.num_splits = 0;
    if (p.window == Window::sliding) {
      facts.window_size_left = pick(-1, 150);
      facts.window_size_right = pick(-1, 60);
    }
    const reference::FmhaTensors made = reference::make_inputs(
        s, DType::bf16, pick(0, 1) == 0 ? reference::Fill::normal : reference::Fill::standard, seed);
    const reference::Tensors inputs =
        nvfp4_operands(reference::quantize_attention({made.q.view(), made.k.view(), made.v.view()}));

    reference::Tensors found, wanted;
    LaunchPlan launch = plan.launch;
    launch.arch = kArch;
    const Launcher launcher(device_, launch, stand_in_.compile(emit(plan)));
    std::vector<std::string> problems = judge(device_, launcher, plan, s, inputs, facts, &found);
    emulator::EmulatedDevice emulated({.arch = "sm_120a"});
    const Launcher of_emulator(emulated, plan.launch, compiler_.compile(emit(plan)));
    for (std::string& text : judge(emulated, of_emulator, plan, s, inputs, facts, &wanted))
      problems.push_back("emulated: " + text);
    for (const auto& [name, tensor] : found) compare_bits(name.c_str(), tensor.bytes, wanted.at(name).bytes, problems);
    ++attentions_;
    return problems;
  }

  ProductCase drawn_product(std::uint64_t seed) {
    // Tensor maps of e2m1 padded to bytes (u4x16) are not Hopper's: mxfp8 by mxfp4 stays with the emulator.
    constexpr const char* kTypes[][2] = {{"nvfp4", "nvfp4"},
                                         {"mxfp4", "mxfp4"},
                                         {"mxfp8_e4m3", "mxfp8_e4m3"},
                                         {"mxfp8_e5m2", "mxfp8_e5m2"},
                                         {"mxfp8_e4m3", "mxfp8_e5m2"}};
    constexpr const char* kResults[] = {"bf16", "f32", "f16", "nvfp4", "mxfp4", "mxfp8_e4m3"};
    const auto& types = kTypes[pick(0, 4)];
    ProductCase test{.name = fmt::format("seed {}", seed), .fields = {{"arch", "sm_120a"}}, .sizes = {}};
    test.fields.emplace_back("dtype", types[0]);
    test.fields.emplace_back("b_dtype", types[1]);
    const std::int64_t result = pick(0, 8);
    const std::string d = result > 5 ? "bf16" : kResults[result];
    test.fields.emplace_back("d_dtype", d);
    const std::int64_t form = pick(0, 9);
    if (form == 0) test.fields.emplace_back("gate", "dual");
    if (form == 1) test.fields.emplace_back("gate", "interleaved");
    if (form == 2) test.fields.emplace_back("grouping", "masked");
    if (form == 3) test.fields.emplace_back("grouping", "contiguous");
    if (form == 4) {
      test.fields.emplace_back("swap_ab", "on");
      test.fields.emplace_back("tile_m", "8");
      test.fields.emplace_back("tile_n", "64");
      test.fields.emplace_back("split_k", std::to_string(pick(1, 3)));
    }
    if (pick(0, 2) == 0) test.fields.emplace_back("scale_form", "plain");
    if (pick(0, 2) == 0) test.fields.emplace_back("c", "matrix");
    if (pick(0, 2) == 0) test.fields.emplace_back("bias", "column");
    if (pick(0, 3) == 0) test.fields.emplace_back("activation", "silu");
    // Bytes whose rows' dimension is contiguous; rows of 16 bytes then.
    const bool is_of_bytes = types[0][2] == 'f' && types[0][4] == '8';
    const bool is_a_mn = is_of_bytes && pick(0, 1) == 0, is_b_mn = is_of_bytes && pick(0, 1) == 0;
    if (is_a_mn) test.fields.emplace_back("a_layout", "mn");
    if (is_b_mn) test.fields.emplace_back("b_layout", "mn");
    const std::int64_t k = 32 * pick(1, 12), unit = form == 1 ? 128 : d[0] == 'm' || d[0] == 'n' ? 32 : 1;
    test.sizes = {{"m", form == 4 ? pick(1, 20) : pick(1, 200)},
                  {"n", std::max<std::int64_t>(unit, pick(1, 200) / unit * unit)},
                  {"k", k}};
    if (is_a_mn) test.sizes["lda"] = (test.sizes["m"] + 15) / 16 * 16;
    if (is_b_mn) test.sizes["ldb"] = (test.sizes["n"] + 15) / 16 * 16;
    if (is_b_mn && form == 0) test.sizes["ldb2"] = test.sizes["ldb"];
    if (form < 2 || form > 3) test.sizes["l"] = pick(1, 2);
    if (form == 2 || form == 3) {
      test.sizes["l"] = pick(1, 3);
      if (pick(0, 1) == 0) {
        test.fields.emplace_back("gather", "rows");
        test.sizes["a_rows"] = pick(1, 150);
      }
    }
    test.fill = pick(0, 1) == 0 ? reference::Fill::integer : reference::Fill::standard;
    return test;
  }

  /// What a kernel for sm_120a serves; other draws are made again.
  ProductCase served_product(std::uint64_t seed) {
    for (int tries = 0;; ++tries) {
      const ProductCase test = drawn_product(seed);
      try {
        Problem problem = Gemm{};
        for (const auto& [key, text] : test.fields) set_field(problem, key, text);
        make_plan(problem);
        return test;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::unsupported || tries > 100) throw;
      }
    }
  }

  std::vector<std::string> product(std::uint64_t seed) {
    const ProductCase test = served_product(seed);
    std::vector<std::string> problems;
    std::vector<Finding> findings;
    ProductRun found(test, stand_in_, device_, kArch);
    kernel_ = found.plan().kernel;
    const std::vector<std::byte> bytes = found.run(findings);
    const reference::Comparison result = found.compare();
    problems.insert(problems.end(), result.problems.begin(), result.problems.end());
    if (!found.are_gaps_intact()) problems.emplace_back("something is written between the rows of d");
    if (found.run(findings) != bytes) problems.emplace_back("another run gives other bytes");
    emulator::EmulatedDevice emulated({.arch = "sm_120a"});
    ProductRun wanted(test, compiler_, emulated);
    compare_bits("d", bytes, wanted.run(findings), problems);
    for (const Finding& finding : findings) problems.push_back(finding.message);
    ++products_;
    return problems;
  }

  const Settings& settings_;
  Device& device_;
  Compiler& compiler_;
  StandInCompiler stand_in_;
  std::mt19937_64 random_;
  std::string kernel_;
  int failures_ = 0, attentions_ = 0, products_ = 0;
  std::int64_t bytes_ = 0;
};

int sweep(const Settings& settings) {
  const std::unique_ptr<Compiler> compiler = make_nvrtc_compiler();
  if (settings.is_emulated) {
    emulator::EmulatedDevice device({.arch = kArch});
    return Sweep(device, *compiler, settings).run();
  }
  return gpu_sweep::on_gpu([&](Device& device) {
    if (device.info().compute_major == 9) return Sweep(device, *compiler, settings).run();
    fmt::print("skipped: a GPU of compute capability 9.0 is needed\n");
    return gpu_sweep::kSkipped;
  });
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  doctest::Context context;
  context.setAsDefaultForAssertsOutOfTestCases();
  Settings settings;
  CLI::App app{"Kernels for sm_120a on Hopper, with stand-ins for what it lacks"};
  app.add_option("--cases", settings.cases, "drawn kernels");
  app.add_option("--seed", settings.seed, "of the first case; the next ones follow");
  app.add_option("--seconds", settings.seconds, "no case is begun after that");
  app.add_option("--only", settings.only, "attention or products")->check(CLI::IsMember({"attention", "products"}));
  app.add_option("--stand-ins", settings.folder, "folder of the stand-ins");
  app.add_flag("--emulate", settings.is_emulated, "in the emulator");
  CLI11_PARSE(app, argc, argv);
  return gpu_sweep::exit_code("stand_in_sweep", [&] { return sweep(settings); });
}
