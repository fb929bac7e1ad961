// copy2d from Problem to result on a GPU: the tensor maps that the launcher makes move every byte to its place, with
// every swizzle, type and rank, dense and strided. The plan-only launcher repeats it from files.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>

#include "base/file.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tests/gpu/gpu_support.h"
#include "tests/support/temporary_folder.h"

namespace tessera {

using namespace gpu;

namespace {

/// What a tensor looks like in memory, in bytes.
struct Layout {
  std::vector<std::int64_t> extents, strides;  // innermost first, elements
  std::int64_t element_bytes = 0;

  std::int64_t bytes() const {
    std::int64_t last = 0;
    for (std::size_t d = 0; d < extents.size(); ++d) last += (extents[d] - 1) * strides[d];
    return (last + 1) * element_bytes;
  }
};

/// Copies the elements of one layout into another, on the host.
void copy_elements(const Layout& from, const std::vector<std::uint8_t>& source, const Layout& to,
                   std::vector<std::uint8_t>& target) {
  std::int64_t count = 1;
  for (const std::int64_t extent : from.extents) count *= extent;
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i, a = 0, b = 0;
    for (std::size_t d = 0; d < from.extents.size(); ++d) {
      a += rest % from.extents[d] * from.strides[d];
      b += rest % from.extents[d] * to.strides[d];
      rest /= from.extents[d];
    }
    for (std::int64_t byte = 0; byte < from.element_bytes; ++byte)
      target[static_cast<std::size_t>(b * from.element_bytes + byte)] =
          source[static_cast<std::size_t>(a * from.element_bytes + byte)];
  }
}

/// Rows padded to 16 bytes plus `padding` of them: what a tensor map can express.
Layout layout_of(const std::vector<std::int64_t>& extents, std::int64_t element_bytes, std::int64_t padding) {
  Layout layout{extents, {1}, element_bytes};
  const std::int64_t unit = 16 / element_bytes;
  std::int64_t stride = (extents[0] + unit - 1) / unit * unit + padding * unit;
  for (std::size_t d = 1; d < extents.size(); ++d) {
    layout.strides.push_back(stride);
    stride = stride * extents[d] + padding * unit;
  }
  return layout;
}

/// Number of bytes of y (gaps included, which must keep their poison) that are wrong. Rows must be whole 16-byte units.
std::int64_t wrong_bytes(const Launcher& launcher, const Layout& x, const Layout& y) {
  std::vector<std::uint8_t> source(static_cast<std::size_t>(x.bytes()));
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::uint8_t>(i * 2654435761u >> 13);
  std::vector<std::uint8_t> expected(static_cast<std::size_t>(y.bytes()), 0xff);
  const Array<std::uint8_t> on_x(source), on_y(expected);
  copy_elements(x, source, y, expected);
  std::vector<std::int64_t> sizes(launcher.plan().sizes.size(), kUseDefault);
  for (std::size_t d = 0; d < x.extents.size(); ++d) {
    sizes[static_cast<std::size_t>(launcher.size_index(fmt::format("dim{}", d)))] = x.extents[d];
    if (d == 0) continue;
    sizes[static_cast<std::size_t>(launcher.size_index(fmt::format("x_stride{}", d)))] = x.strides[d];
    sizes[static_cast<std::size_t>(launcher.size_index(fmt::format("y_stride{}", d)))] = y.strides[d];
  }
  const std::vector<DevicePointer> buffers{on_x.pointer(), on_y.pointer()};
  launcher.launch({}, {sizes, {}, buffers});
  const std::vector<std::uint8_t> found = on_y.host();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < found.size(); ++i) wrong += found[i] != expected[i] ? 1 : 0;
  return wrong;
}

void check_problem(const Copy2d& problem, const std::vector<std::vector<std::int64_t>>& shapes) {
  const Plan plan = make_plan(problem);
  CAPTURE(plan.kernel);
  const Image image = compiler().compile(emit(plan));
  CHECK(image.report.notes.empty());
  const Launcher launcher(device(), plan.launch, image);
  for (std::vector<std::int64_t> extents : shapes) {
    extents.resize(static_cast<std::size_t>(problem.rank), 3);
    CAPTURE(extents[0]);
    const auto bytes = static_cast<std::int64_t>(dtype_bytes(problem.dtype));
    CHECK(wrong_bytes(launcher, layout_of(extents, bytes, 0), layout_of(extents, bytes, 0)) == 0);
    CHECK(wrong_bytes(launcher, layout_of(extents, bytes, 1), layout_of(extents, bytes, 2)) == 0);
  }
}

Copy2d problem_of(int rank, DType dtype, Swizzle swizzle) {
  Copy2d problem;
  problem.arch = Arch::parse(arch());
  problem.rank = rank;
  problem.dtype = dtype;
  problem.swizzle = swizzle;
  return problem;
}

}  // namespace

TEST_CASE("copy2d: every swizzle and rank") {
  if (device().info().compute_major != 9) return;
  const std::vector<std::vector<std::int64_t>> shapes{{4, 1}, {64, 64}, {100, 70}, {36, 129}, {260, 5}};
  for (const Swizzle swizzle : {Swizzle::none, Swizzle::b32, Swizzle::b64, Swizzle::b128})
    for (const int rank : {1, 2, 3, 4, 5}) check_problem(problem_of(rank, DType::f32, swizzle), shapes);
}

TEST_CASE("copy2d: every element type") {
  if (device().info().compute_major != 9) return;
  // Not tf32: its copies round.
  for (const DType dtype : {DType::f16, DType::bf16, DType::e4m3, DType::e5m2, DType::u8, DType::u16, DType::u32,
                            DType::s32, DType::u64, DType::s64, DType::f64})
    for (const Swizzle swizzle : {Swizzle::none, Swizzle::b128})
      check_problem(problem_of(2, dtype, swizzle), {{64, 64}, {80, 70}, {1008, 33}});
}

TEST_CASE("a store writes whole 16-byte units: what a row leaves of its last one becomes zero") {
  if (device().info().compute_major != 9) return;
  const Plan plan = make_plan(problem_of(2, DType::f32, Swizzle::b128));
  const Image image = compiler().compile(emit(plan));
  LaunchPlan without_domain = plan.launch;  // the plan refuses such rows: this is why
  without_domain.domain.clear();
  const Launcher launcher(device(), without_domain, image);
  constexpr std::int64_t kStride = 40, kRows = 4;
  for (const std::int64_t width : {31, 33, 34, 35}) {
    const std::size_t count = kStride * kRows + 64;
    std::vector<std::uint32_t> expected(count, 7), source(count);
    for (std::size_t i = 0; i < count; ++i) source[i] = 1000 + static_cast<std::uint32_t>(i);
    for (std::int64_t row = 0; row < kRows; ++row)
      for (std::int64_t i = 0; i < (width + 3) / 4 * 4; ++i) {
        const auto at = static_cast<std::size_t>(row * kStride + i);
        expected[at] = i < width ? source[at] : 0;
      }
    const Array<std::uint32_t> x(source), y(std::vector<std::uint32_t>(count, 7));
    const std::vector<std::int64_t> sizes{width, kRows, kStride, kStride};
    const std::vector<DevicePointer> buffers{x.pointer(), y.pointer()};
    launcher.launch({}, {sizes, {}, buffers});
    CHECK(y.host() == expected);
  }
}

TEST_CASE("copy2d from cubin and plan.json alone") {
  if (device().info().compute_major != 9) return;
  const testing::TemporaryFolder folder;
  const std::string name = folder.path.string();
  const Plan plan = make_plan(problem_of(3, DType::bf16, Swizzle::b64));
  write_file(folder / "kernel.cubin", compiler().compile(emit(plan)).cubin);
  write_file(folder / "plan.json", plan_json(plan));
  const auto run = [&](const std::string& arguments) {
    const std::string command = fmt::format("{} {} {} > {}/out 2>&1", TESSERA_PLAN_LAUNCHER, name, arguments, name);
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string sizes = "--size dim0=200 --size dim1=50 --size dim2=3 ";
  CHECK(run(sizes + "--equal y=x") == 0);
  CHECK(run(sizes + "--equal y=x --buffer y=zero --output x=" + name + "/x.npy") == 0);
  CHECK(run(sizes + "--equal y=x --size x_stride1=208 --buffer x=" + name + "/x.npy") == 0);
  CHECK(run("--equal y=x --size dim0=200 --size dim1=50") == 2);
  CHECK(read_text(folder / "out") == "plan_launcher: copy2d: size 'dim2' must be given: it has no default\n");
  CHECK(run(sizes + "--size x_stride1=204") == 2);
}

}  // namespace tessera
