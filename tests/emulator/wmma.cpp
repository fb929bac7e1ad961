// wmma: whole kernels of nvcuda::wmma, from nvcc's PTX, against float64; and what is reported of wrong ones.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <random>

#include "emulator/math/float_format.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/emulator/nvcc.h"

namespace tessera::emulator::testing::wmma_test {
namespace {

using math::Format;

std::string compiled(const std::string& extra = "") {
  return compile_with_nvcc("tests/emulator/wmma_gemm.cu", "sm_90a", extra);
}

template <class T>
DevicePointer upload(EmulatedDevice& device, const std::vector<T>& values) {
  const DevicePointer to = device.allocate(values.size() * sizeof(T));
  device.copy_to_device(to, values.data(), values.size() * sizeof(T));
  return to;
}
template <class T>
std::vector<T> download(EmulatedDevice& device, DevicePointer from, std::size_t count) {
  std::vector<T> values(count);
  device.copy_to_host(values.data(), from, count * sizeof(T));
  return values;
}

/// Random codes of a format, small integers or numbers around one.
template <Format kFormat>
std::vector<std::uint16_t> random_codes(std::size_t count, bool integers, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::uniform_int_distribution<int> integer(-8, 8);
  std::vector<std::uint16_t> codes(count);
  for (std::uint16_t& code : codes)
    code = static_cast<std::uint16_t>(
        math::encode<kFormat>(integers ? integer(engine) : normal(engine), math::Rounding::nearest_even));
  return codes;
}

struct Gemm {
  int m = 128, n = 64, k = 96;
  Schedule schedule = Schedule::fair;
  bool integers = true;
  bool detects_races = true;
  int threads = 1;
  std::uint64_t seed = 1;
};

/// Runs D = 2 A B - C; every element within the sums' bound. The findings' names.
template <Format kFormat>
std::string run_gemm(const std::string& ptx, const char* name, const Gemm& g) {
  DeviceOptions options;
  options.schedule = g.schedule;
  options.detects_races = g.detects_races;
  options.threads = g.threads;
  EmulatedDevice device(options);
  const auto image = device.load_ptx(ptx, "wmma_gemm.ptx");
  const auto size = [](int rows, int columns) { return static_cast<std::size_t>(rows * columns); };
  const auto a = random_codes<kFormat>(size(g.m, g.k), g.integers, g.seed);
  const auto b = random_codes<kFormat>(size(g.n, g.k), g.integers, g.seed + 1);
  std::vector<float> c(size(g.m, g.n));
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<float>(i % 37) - 18.0f;
  DevicePointer d_a = upload(device, a), d_b = upload(device, b), d_c = upload(device, c);
  DevicePointer d_d = device.allocate(c.size() * 4);
  device.set_bytes(d_d, 0xFF, c.size() * 4);
  int n = g.n, k = g.k;
  float alpha = 2.0f, beta = -1.0f;
  void* parameters[] = {&d_a, &d_b, &d_c, &d_d, &n, &k, &alpha, &beta};
  LaunchRequest request;
  request.entry = image->entry(name);
  request.grid = {static_cast<std::uint32_t>(g.n / 64), static_cast<std::uint32_t>(g.m / 64), 1};
  request.block = {128, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  std::string findings;
  for (const EmulatorFinding& finding : device.take_findings()) findings += finding.name + " ";
  const auto d = download<float>(device, d_d, c.size());
  int wrong = 0;
  for (int i = 0; i < g.m; ++i) {
    for (int j = 0; j < g.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int x = 0; x < g.k; ++x) {
        const double product = math::decode<kFormat>(a[static_cast<std::size_t>(i * g.k + x)]) *
                               math::decode<kFormat>(b[static_cast<std::size_t>(j * g.k + x)]);
        sum += product;
        magnitude += std::fabs(product);
      }
      const auto at = static_cast<std::size_t>(i * g.n + j);
      const double expected = 2 * sum - static_cast<double>(c[at]);
      // Integers are exact. Else each step cuts 17 terms at 2^-25 of the largest, and its result at 2^-23.
      const double bound = g.integers ? 0 : 2 * magnitude * (g.k / 16) * 0x1p-20;
      if (!(std::fabs(static_cast<double>(d[at]) - expected) <= bound)) ++wrong;
    }
  }
  CHECK(wrong == 0);
  return findings;
}

TEST_CASE("products with nvcuda::wmma: half and bf16, every schedule, races looked for") {
  const std::string ptx = compiled();
  if (ptx.empty()) {
    MESSAGE("skipped: no nvcc");
    return;
  }
  for (const Schedule schedule : {Schedule::fair, Schedule::eager, Schedule::lazy, Schedule::adversarial}) {
    CAPTURE(static_cast<int>(schedule));
    for (const bool integers : {true, false}) {
      Gemm gemm;
      gemm.schedule = schedule;
      gemm.integers = integers;
      gemm.seed = std::random_device{}();
      CAPTURE(gemm.seed);
      CHECK(run_gemm<Format::f16>(ptx, "gemm_half", gemm) == "");
      CHECK(run_gemm<Format::bf16>(ptx, "gemm_bf16", gemm) == "");
    }
  }
  Gemm halves;
  halves.detects_races = false;
  halves.threads = 2;
  CHECK(run_gemm<Format::f16>(ptx, "gemm_half", halves) == "");
}

TEST_CASE("a missing barrier before wmma.load is a race") {
  const std::string ptx = compiled("-DMISSING_BARRIER");
  if (ptx.empty()) return;
  EmulatedDevice device({.detects_races = true});
  const auto image = device.load_ptx(ptx, "wmma_gemm.ptx");
  const std::vector<std::uint16_t> ones(64 * 32, 0x3C00);
  const std::vector<float> zeros(64 * 64);
  DevicePointer a = upload(device, ones), b = upload(device, ones), c = upload(device, zeros),
                d = upload(device, zeros);
  int n = 64, k = 32;
  float alpha = 1, beta = 0;
  void* parameters[] = {&a, &b, &c, &d, &n, &k, &alpha, &beta};
  LaunchRequest request;
  request.entry = image->entry("gemm_half");
  request.block = {128, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  bool has_race = false;
  for (const EmulatorFinding& finding : device.take_findings()) has_race = has_race || finding.name == "smem-race";
  CHECK(has_race);
}

/// One warp of an entry with the pointers A, B and D; D's elements.
template <class T, class AB>
std::vector<T> run_product(const std::string& ptx, const char* name, const std::vector<AB>& a, const std::vector<AB>& b,
                           std::size_t count) {
  EmulatedDevice device;
  const auto image = device.load_ptx(ptx, "wmma_gemm.ptx");
  DevicePointer d_a = upload(device, a), d_b = upload(device, b);
  DevicePointer d_d = device.allocate(count * sizeof(T));
  void* parameters[] = {&d_a, &d_b, &d_d};
  LaunchRequest request;
  request.entry = image->entry(name);
  request.block = {32, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.message);
  return download<T>(device, d_d, count);
}

/// Small integers of any element type.
template <class T>
std::vector<T> integers(std::size_t count, int salt) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<T>((static_cast<int>(i) * 7 + salt * 5) % 13 - 6);
  return values;
}

/// D (M x N) from how A and B lie: leading dimensions, and whether lines are rows.
template <class T, class D>
void check_product(const std::vector<T>& a, int lda, bool a_rows, const std::vector<T>& b, int ldb, bool b_rows,
                   const std::vector<D>& d, int ldd, bool d_rows, int m, int n, int k) {
  const auto at = [](int row, int column, int ld, bool rows) {
    return static_cast<std::size_t>(rows ? row * ld + column : column * ld + row);
  };
  int wrong = 0;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int x = 0; x < k; ++x)
        sum += static_cast<double>(a[at(i, x, lda, a_rows)]) * static_cast<double>(b[at(x, j, ldb, b_rows)]);
      wrong += static_cast<double>(d[at(i, j, ldd, d_rows)]) != sum;
    }
  CHECK(wrong == 0);
}

TEST_CASE("one product of nvcuda::wmma in tf32, int8, f64 and half of m8n32k16") {
  const std::string ptx = compiled();
  if (ptx.empty()) return;
  {
    const auto a = integers<float>(16 * 8, 1), b = integers<float>(8 * 16, 2);
    check_product(a, 8, true, b, 16, true, run_product<float>(ptx, "product_tf32", a, b, 256), 16, false, 16, 16, 8);
  }
  {
    const auto a = integers<std::int8_t>(32 * 16, 3), b = integers<std::int8_t>(16 * 8, 4);
    check_product(a, 16, true, b, 16, false, run_product<std::int32_t>(ptx, "product_int8", a, b, 256), 8, true, 32, 8,
                  16);
  }
  {
    const auto a = integers<double>(8 * 4, 5), b = integers<double>(4 * 8, 6);
    check_product(a, 4, true, b, 8, true, run_product<double>(ptx, "product_f64", a, b, 64), 8, true, 8, 8, 4);
  }
  {
    const auto a = integers<double>(8 * 16, 7), b = integers<double>(16 * 32, 8);
    const auto codes = [](const std::vector<double>& values) {
      std::vector<std::uint16_t> made;
      for (const double v : values)
        made.push_back(static_cast<std::uint16_t>(math::encode<Format::f16>(v, math::Rounding::nearest_even)));
      return made;
    };
    std::vector<double> d;
    for (const std::uint16_t code : run_product<std::uint16_t>(ptx, "product_half_m8n32", codes(a), codes(b), 256))
      d.push_back(math::decode<Format::f16>(code));
    check_product(a, 8, false, b, 32, true, d, 32, true, 8, 32, 16);
  }
}

/// A warp with `smem` of 2,048 bytes, zeroed, and a buffer of 1,024 zero bytes; what it reports.
std::vector<EmulatorFinding> run(const std::string& body, bool is_zeroed = true) {
  std::string zero = "mov.b64 d1, 0;\nshl.b32 r1, r0, 6;\nadd.u32 r1, r1, s;\n";
  for (int at = 0; at < 64; at += 8) zero += fmt::format("st.shared.b64 [r1+{}], d1;\n", at);
  EmulatedDevice device;
  const auto image = device.load_ptx(
      fmt::format(".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
                  ".reg .pred p;\n.reg .b32 r<8>, s, a<8>, b<8>;\n.reg .f32 c<8>;\n.reg .b64 g, d<4>;\n"
                  ".shared .align 128 .b8 smem[2048];\n.local .align 16 .b8 own[1024];\nld.param.u64 g, [buffer];\n"
                  "mov.u32 r0, %tid.x;\nmov.u32 s, smem;\n{}\n{}\nret;\n}}\n",
                  is_zeroed ? zero : "", body),
      "test.ptx");
  DevicePointer buffer = device.allocate(1024);
  device.set_bytes(buffer, 0, 1024);
  void* parameters[] = {&buffer};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {32, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  return device.take_findings();
}

std::string only(const std::vector<EmulatorFinding>& findings) {
  return findings.size() == 1 ? findings[0].name : fmt::format("{} findings", findings.size());
}

const std::string kA = " {a0, a1, a2, a3, a4, a5, a6, a7}, ";
const std::string kLoad = "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16" + kA;

TEST_CASE("wmma: addresses") {
  CHECK(run(kLoad + "[s], 24;").empty());
  CHECK(run(kLoad + "[s+32];").empty());
  // .shared rows of 16-bit elements are read 16 bytes at a time: a narrower alignment traps.
  const auto odd = run(kLoad + "[s+8], 16;");
  REQUIRE(odd.size() == 2);
  CHECK(odd[0].name == "wmma-alignment");
  CHECK_FALSE(odd[0].is_failure);
  CHECK(odd[0].message == "the matrix must be aligned to 16 bytes");
  CHECK(odd[1].name == "misaligned-address");
  CHECK(odd[1].message == "the address must be a multiple of 16");
  // From global memory the same is read 4 bytes at a time: right on this target.
  CHECK(only(run("wmma.load.a.sync.aligned.row.m16n16k16.global.f16" + kA + "[g+8], 16;")) == "wmma-alignment");
  const auto stride = run("wmma.load.a.sync.aligned.row.m16n16k16.global.f16" + kA + "[g], 18;");
  REQUIRE(only(stride) == "wmma-alignment");
  CHECK(stride[0].message == "the stride is 288 bits: must be a multiple of 16 bytes");
  const auto outside = run("wmma.load.a.sync.aligned.row.m16n16k16.global.f16" + kA + "[g], 64;");
  REQUIRE(only(outside) == "global-out-of-bounds");
  CHECK(outside[0].message.find("read of 32 bytes: 0 bytes past the end of an allocation of 1024 bytes") == 0);
  CHECK(only(run("wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [s+1056], {c0, c1, c2, c3, c4, c5, c6, c7};")) ==
        "2 findings");
  CHECK(only(run(kLoad + "[s];", false)) == "smem-uninitialised");
  CHECK(only(run("cvt.u64.u32 d2, r0;\nadd.u64 d2, d2, g;\nwmma.load.a.sync.aligned.row.m16n16k16.global.f16" + kA +
                 "[d2];")) == "wmma-not-uniform");
  CHECK(only(run("add.u32 r2, r0, 16;\n" + kLoad + "[s], r2;")) == "wmma-not-uniform");
  CHECK(only(run("mov.u64 d2, own;\ncvta.local.u64 d2, d2;\nwmma.load.a.sync.aligned.row.m16n16k16.f16" + kA +
                 "[d2];")) == "not-supported");
}

TEST_CASE("wmma: lanes and registers") {
  CHECK(only(run("setp.lt.u32 p, r0, 4;\n@p " + kLoad + "[s];\nbar.sync 0;")) == "collective-divergence");
  // As compilers declare fragments, and with the shape before the layout.
  CHECK(
      run(".reg .f16x2 h<8>;\nwmma.load.a.sync.aligned.m16n16k16.row.shared.f16 {h0, h1, h2, h3, h4, h5, h6, h7}, [s];")
          .empty());
  const auto never =
      run("wmma.load.b.sync.aligned.col.m16n16k16.shared.f16 {b0, b1, b2, b3, b4, b5, b6, b7}, [s];\n" + kLoad +
          "[s];\nwmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {c0, c1, c2, c3, c4, c5, c6, c7}," + kA +
          "{b0, b1, b2, b3, b4, b5, b6, b7}, {c0, c1, c2, c3, c4, c5, c6, c7};");
  REQUIRE(only(never) == "register-uninitialised");
  CHECK(never[0].message.find("element 0 of operand 3") == 0);
}

std::string refusal(const std::string& body) {
  try {
    run(body);
  } catch (const Error& error) {
    std::string text = error.what();
    for (const std::string& note : error.notes()) text += "\n" + note;
    return text;
  }
  return "";
}

TEST_CASE("wmma: forms that PTX does not have") {
  CHECK(refusal("wmma.load.a.sync.aligned.col.m8n8k32.shared.s4 {a0}, [s];").find("no form of wmma.load.a") !=
        std::string::npos);
  CHECK(refusal("wmma.load.a.sync.aligned.row.m16n16k8.shared.f16" + kA + "[s];").find("no form of wmma.load.a") !=
        std::string::npos);
  CHECK(refusal("wmma.mma.sync.aligned.col.row.m8n8k32.s32.s4.s4.s32 {a0, a1}, {b0}, {b1}, {a0, a1};") != "");
  CHECK(
      refusal("wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.u8.s32 {a0, a1, a2, a3, a4, a5, a6, a7}, {b0, b1}, {b2, "
              "b3}, {a0, a1, a2, a3, a4, a5, a6, a7};") != "");
  CHECK(refusal("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {a0, a1, a2, a3}, [s];") != "");
}

}  // namespace
}  // namespace tessera::emulator::testing::wmma_test
