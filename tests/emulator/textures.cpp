// tex, tld4, suld, sust and the queries, by objects that the test makes; what is wrong with a handle, a geometry, a
// coordinate or the memory behind is named. All address modes and types: tests/guest/textures.cu.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::textures_test {
namespace {

constexpr std::uint32_t kWidth = 5, kHeight = 3;

struct Result {
  std::vector<std::uint32_t> words;
  std::vector<EmulatorFinding> findings;
};

/// An image of f32, 5 x 3, texel (x, y) = 16 x + y, as a texture (d1) and a surface (d2); d0: where results go.
class Images {
 public:
  explicit Images(bool detects_races = false, std::uint32_t written_rows = kHeight) : device_(options(detects_races)) {
    std::vector<float> values;
    for (std::uint32_t y = 0; y < kHeight; ++y)
      for (std::uint32_t x = 0; x < kWidth; ++x) values.push_back(static_cast<float>(16 * x + y));
    memory = device_.allocate(values.size() * 4);
    device_.copy_to_device(memory, values.data(), std::size_t{written_rows} * kWidth * 4);
    description.levels = {{memory, kWidth, kHeight, 1, kWidth * 4, kWidth * kHeight * 4}};
    description.filters_linearly = true;
    texture = device_.create_texture(description);
    surface = device_.create_surface(description);
  }
  Result run(const std::string& body, std::uint32_t ctas = 1) {
    const auto image =
        device_.load_ptx(fmt::format(".version 9.0\n.target sm_90a\n.address_size 64\n"
                                     ".visible .entry test(.param .u64 out, .param .u64 texture, .param .u64 surface)\n"
                                     "{{\n.reg .pred p<3>;\n.reg .b16 h<8>;\n.reg .b32 r<16>;\n.reg .b64 d<8>;\n"
                                     "ld.param.u64 d0, [out];\nld.param.u64 d1, [texture];\n"
                                     "ld.param.u64 d2, [surface];\nmov.b32 r1, 3;\nmov.b32 r2, 5;\n{}\nret;\n}}\n",
                                     body),
                         "test.ptx");
    Result result;
    result.words.assign(8, 0xDEADBEEF);
    DevicePointer out = device_.allocate(32);
    device_.copy_to_device(out, result.words.data(), 32);
    void* arguments[] = {&out, &texture, &surface};
    LaunchRequest request;
    request.entry = image->entry("test");
    request.grid = {ctas, 1, 1};
    request.parameters = arguments;
    device_.launch(request, {});
    result.findings = device_.take_findings();
    device_.copy_to_host(result.words.data(), out, 32);
    device_.free(out);
    return result;
  }
  /// Name and message of the only finding.
  std::string finding(const std::string& body, std::uint32_t ctas = 1) {
    const Result result = run(body, ctas);
    REQUIRE(result.findings.size() == 1);
    const EmulatorFinding& found = result.findings[0];
    return (found.is_failure ? "failure " : "hazard ") + found.name + ": " + found.message;
  }
  EmulatedDevice& device() { return device_; }

  DevicePointer memory = 0;
  TextureDescription description;
  std::uint64_t texture = 0, surface = 0;

 private:
  static DeviceOptions options(bool detects_races) {
    DeviceOptions made;
    made.detects_races = detects_races;
    return made;
  }
  EmulatedDevice device_;
};

std::uint32_t bits(float value) { return std::bit_cast<std::uint32_t>(value); }

constexpr const char* kStore = "st.global.v4.b32 [d0], {r1, r2, r3, r4};\n";
// x = 2.25, y = 1.5: three quarters of the way from texel 1 to texel 2, in row 1.
constexpr const char* kFetch = "tex.2d.v4.f32.f32 {r1, r2, r3, r4}, [d1, {0f40100000, 0f3FC00000}];\n";

TEST_CASE("tex: a linear filter, channels that are not there, a resident predicate, sinks") {
  Images images;
  const Result one = images.run(std::string(kFetch) + kStore);
  CHECK(one.findings.empty());
  CHECK(one.words[0] == bits(16 * 1.75f + 1));
  CHECK(one.words[1] == 0);
  CHECK(one.words[2] == 0);
  CHECK(one.words[3] == bits(1));
  const Result two = images.run(
      "tex.2d.v4.f32.f32 {r1, _, _, _}|p1, [d1, {0f40100000, 0f3FC00000}];\n@p1 st.global.b32 [d0], r1;\n"
      "mov.b32 r5, 0f40100000;\ntex.2d.v4.f32.s32 {r2, _, _, _}, [d1, {4, 2}];\nst.global.b32 [d0+4], r2;");
  CHECK(two.words[0] == bits(16 * 1.75f + 1));
  CHECK(two.words[1] == bits(16 * 4 + 2));
  const Result four =
      images.run(std::string("tld4.r.2d.v4.f32.f32 {r1, r2, r3, r4}, [d1, {0f40100000, 0f3FC00000}];\n") + kStore);
  CHECK(four.words[0] == bits(16 * 1 + 2));
  CHECK(four.words[1] == bits(16 * 2 + 2));
  CHECK(four.words[2] == bits(16 * 2 + 1));
  CHECK(four.words[3] == bits(16 * 1 + 1));
}

TEST_CASE("suld and sust: bytes, clamped or zero out of range") {
  Images images;
  const Result read = images.run(
      "suld.b.2d.b32.trap {r1}, [d2, {12, 1}];\nsuld.b.2d.v2.b32.clamp {r2, r3}, [d2, {800, -7}];\n"
      "mov.b32 r4, 7;\nsuld.b.2d.b32.zero {r4}, [d2, {20, 0}];\n"
      "suld.b.2d.b8.trap {h1}, [d2, {15, 1}];\ncvt.u32.u16 r5, h1;\nst.global.b32 [d0+16], r5;\n" +
      std::string(kStore));
  CHECK(read.findings.empty());
  CHECK(read.words[0] == bits(16 * 3 + 1));
  CHECK(read.words[1] == bits(16 * 2));  // the last place that has 8 bytes and is a multiple of them
  CHECK(read.words[2] == bits(16 * 3));
  CHECK(read.words[3] == 0);
  CHECK(read.words[4] == 0x42);  // the highest byte of 49.0f
  const Result written = images.run(
      "sust.b.2d.b32.trap [d2, {8, 2}], {0x3F800000};\nsust.b.2d.b32.zero [d2, {8, 3}], {5};\n"
      "sust.b.2d.v2.b32.clamp [d2, {-8, 0}], {1, 2};\n");
  CHECK(written.findings.empty());
  std::vector<std::uint32_t> after(kWidth * kHeight);
  images.device().copy_to_host(after.data(), images.memory, after.size() * 4);
  CHECK(after[2 * kWidth + 2] == bits(1));
  CHECK(after[0] == 1);
  CHECK(after[1] == 2);
  CHECK(after[2] == bits(32));
}

TEST_CASE("queries of textures and surfaces") {
  Images images;
  const Result result = images.run(
      "txq.width.b32 r1, [d1];\ntxq.height.b32 r2, [d1];\nsuq.width.b32 r3, [d2];\ntxq.num_mipmap_levels.b32 r4, "
      "[d1];\n"
      "istypep.texref p1, d1;\nistypep.texref p2, d2;\nselp.b32 r5, 1, 0, p1;\nselp.b32 r6, 1, 0, p2;\n"
      "istypep.surfref p1, d2;\nistypep.surfref p2, d0;\nselp.b32 r7, 1, 0, p1;\nselp.b32 r8, 1, 0, p2;\n"
      "st.global.v4.b32 [d0+16], {r5, r6, r7, r8};\n" +
      std::string(kStore));
  CHECK(result.findings.empty());
  CHECK(result.words == std::vector<std::uint32_t>{kWidth, kHeight, kWidth, 1, 1, 0, 1, 0});
}

TEST_CASE("what is wrong with an object is named") {
  Images images;
  CHECK(images.finding("mov.b64 d1, 77;\n" + std::string(kFetch)) ==
        "failure texture-handle: 0x4d is no texture object");
  CHECK(images.finding("mov.b64 d1, d2;\n" + std::string(kFetch))
            .find("is a surface object; 'tex.2d.v4.f32.f32' takes a texture object") != std::string::npos);
  CHECK(images.finding("suld.b.2d.b32.trap {r1}, [d1, {0, 0}];")
            .find("is a texture object; 'suld.b.2d.b32.trap' takes") != std::string::npos);
  CHECK(images.finding("tex.3d.v4.f32.f32 {r1, r2, r3, r4}, [d1, {0f00000000, 0f00000000, 0f00000000, 0f00000000}];") ==
        "failure texture-geometry: 'tex.3d.v4.f32.f32' of a texture object of geometry 2d");
  CHECK(images.finding("suld.b.1d.b32.clamp {r1}, [d2, {0}];") ==
        "failure texture-geometry: 'suld.b.1d.b32.clamp' of a surface object of geometry 2d");
  CHECK(images.device().destroy_texture(images.texture));
  CHECK_FALSE(images.device().destroy_texture(images.texture));
  CHECK(images.finding(kFetch).find("was destroyed before") != std::string::npos);
  images.description.levels.clear();
  CHECK_THROWS_AS(images.device().create_texture(images.description), Error);
}

TEST_CASE("a surface's .trap says where, and how large the surface is") {
  Images images;
  CHECK(images.finding("suld.b.2d.b32.trap {r1}, [d2, {20, 1}];") ==
        "failure surface-out-of-bounds: 4 bytes at x = 20 bytes, y = 1, z = 0 of a surface of 20 bytes x 3 x 1");
  CHECK(images.finding("sust.b.2d.v2.b32.trap [d2, {16, -1}], {r1, r2};").find("8 bytes at x = 16 bytes, y = -1") !=
        std::string::npos);
  CHECK(images.finding("sust.b.2d.b32.clamp [d2, {3, 0}], {r1};") ==
        "failure misaligned-address: x = 3 bytes: must be a multiple of 4");
}

TEST_CASE("memory behind an object: freed, never written, written by the same launch") {
  {
    Images images;
    images.device().free(images.memory);
    CHECK(images.finding(kFetch).find(
              "failure global-out-of-bounds: read of 4 bytes through an object of geometry 2d") == 0);
    CHECK(images.finding("sust.b.2d.b32.trap [d2, {0, 0}], {r1};")
              .find("failure global-out-of-bounds: write of 4 bytes") == 0);
  }
  Images partly(false, 1);
  CHECK(partly.finding(kFetch) == "hazard global-uninitialised: read of 4 bytes that nobody has written");
  Images images;
  CHECK(images.finding("sust.b.2d.b32.trap [d2, {4, 1}], {r1};\n" + std::string(kFetch)) ==
        "hazard nc-load-of-written: this launch wrote the texel; a fetch may give what was there before");
  CHECK(images.run("sust.b.2d.b32.trap [d2, {0, 0}], {r1};\n" + std::string(kFetch)).findings.empty());
}

TEST_CASE("races through surfaces and textures") {
  Images images(true);
  const std::string race = images.finding("mov.u32 r1, %ctaid.x;\nsust.b.2d.b32.trap [d2, {0, 0}], {r1};", 2);
  CHECK(race.find("hazard global-race") == 0);
  CHECK(images.run(kFetch, 2).findings.empty());
}

}  // namespace
}  // namespace tessera::emulator::textures_test
