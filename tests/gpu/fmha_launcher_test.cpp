// Attention from cubin and plan.json alone: a program that links neither planner nor templates launches it, the
// reference judges what it wrote.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/npy.h"
#include "reference/fmha.h"
#include "tessera/plan.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

using namespace tessera::gpu;
namespace fs = std::filesystem;

reference::Tensor read_tensor(const fs::path& file, DType dtype) {
  NpyArray array = read_npy(file);
  reference::Tensor tensor;
  tensor.dtype = dtype;
  tensor.shape = array.shape;
  tensor.bytes = std::move(array.data);
  return tensor;
}

/// The launcher's exit code; what it printed is in `said`.
int run_launcher(const testing::TemporaryFolder& folder, const std::string& arguments, std::string& said) {
  const std::string name = folder.path.string();
  const int status =
      std::system(fmt::format("{} {} {} > {}/out 2>&1", TESSERA_PLAN_LAUNCHER, name, arguments, name).c_str());
  said = read_text(folder.path / "out");
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void check_problem(const Fmha& problem, const reference::FmhaSizes& sizes, std::uint64_t seed) {
  const Plan plan = make_plan(problem);
  CAPTURE(plan.kernel);
  const testing::TemporaryFolder folder;
  const Image image = compiler().compile(emit(plan));
  write_file(folder.path / "kernel.cubin", image.cubin);
  if (!image.merge.cubin.empty()) write_file(folder.path / "merge.cubin", image.merge.cubin);
  write_file(folder.path / "plan.json", plan_json(plan));
  const reference::FmhaTensors made = reference::make_inputs(sizes, problem.dtype, reference::Fill::normal, seed);
  const auto save = [&](const char* name, const reference::Tensor& tensor) {
    const std::string file = (folder.path / name).string() + ".npy";
    write_npy(file, {std::string(npy_descr_of(reference::dtype_name(tensor.dtype))), tensor.shape, tensor.bytes});
    return fmt::format(" --buffer {}={}", name, file);
  };
  const double scale = 1 / std::sqrt(static_cast<double>(sizes.head_dim));
  std::string arguments = fmt::format(
      "--size batch={} --size heads_q={} --size heads_kv={} --size seqlen_q={} --size seqlen_k={} --scalar "
      "softmax_scale={:.9g}{}{}{}",
      sizes.batch, sizes.heads_q, sizes.heads_kv, sizes.seqlen_q, sizes.seqlen_k, scale, save("q", made.q),
      save("k", made.k), save("v", made.v));
  const bool is_normalized = problem.output == Output::normalized;
  std::vector<std::string> outputs{"o", "lse"};
  if (!is_normalized) outputs.insert(outputs.end(), {"row_max", "row_sum"});
  for (const std::string& name : outputs)
    arguments += fmt::format(" --output {}={}/{}.out", name, folder.path.string(), name);
  std::string said;
  CHECK(run_launcher(folder, arguments, said) == 0);
  CAPTURE(said);

  std::map<std::string, reference::Tensor> found;
  for (const std::string& name : outputs)
    found.emplace(
        name, read_tensor(folder.path / (name + ".out"), name == "o" && is_normalized ? problem.dtype : DType::f32));
  reference::FmhaCheck check;
  check.facts.mask = problem.mask;
  check.facts.output = is_normalized ? Output::normalized : Output::unnormalized;
  check.softmax_scale = scale;
  check.tile_m = plan.number("tile_m");
  check.tile_n = plan.number("tile_n");
  reference::FmhaOutputs views{found.at("o").view(), found.at("lse").view(), {}, {}};
  if (!is_normalized) {
    views.row_max = found.at("row_max").view();
    views.row_sum = found.at("row_sum").view();
  }
  const reference::Comparison result =
      reference::check_fmha({made.q.view(), made.k.view(), made.v.view()}, views, check);
  for (const std::string& problem_found : result.problems) FAIL_CHECK(problem_found);
  CHECK(result.rows_checked > 0);
}

}  // namespace

TEST_CASE("fmha from cubin and plan.json alone") {
  if (device().info().compute_major != 9) return;
  const auto seed =
      static_cast<std::uint64_t>(std::filesystem::file_time_type::clock::now().time_since_epoch().count());
  CAPTURE(seed);
  check_problem({.head_dim = 128, .mask = Mask::causal}, {2, 6, 2, 333, 517, 128}, seed);
  check_problem({.head_dim = 64, .dtype = DType::f16}, {1, 4, 4, 1000, 77, 64}, seed + 1);
  check_problem({.head_dim = 256, .output = Output::unnormalized}, {2, 2, 1, 65, 300, 256}, seed + 2);
}

}  // namespace tessera
