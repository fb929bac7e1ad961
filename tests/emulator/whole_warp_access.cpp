// Loads and stores of all 32 lanes go another way than those of some: the same values, the same findings.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tessera/emulator/device.h"
#include "tests/support/test_entry.h"

namespace tessera::emulator::whole_warp_access_test {
namespace {

struct Outcome {
  std::vector<std::uint32_t> out;
  std::vector<EmulatorFinding> findings;
};

// The body knows `out`, `lane`, and `place`, the address of word `lane`; %p is true in all lanes but those of
// `left_out`.
Outcome run(const std::string& body, const std::vector<std::uint32_t>& in, std::uint32_t left_out) {
  const std::string ptx = fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n.reg .pred p;\n"
      ".reg .b32 lane, bit, r<9>;\n.reg .b64 out, place, far, d<9>;\nld.param.u64 out, [buffer];\nmov.u32 lane, "
      "%tid.x;\n"
      "mul.wide.u32 place, lane, 4;\nadd.s64 place, place, out;\nshl.b32 bit, 1, lane;\nand.b32 bit, bit, {};\n"
      "setp.eq.u32 p, bit, 0;\n{}\nret;\n}}\n",
      left_out, body);
  EmulatedDevice device;
  Outcome outcome{in, {}};
  outcome.findings = tessera::testing::run_test_entry(device, ptx, outcome.out, 32, 1);
  return outcome;
}

std::vector<std::uint32_t> random_words(std::size_t count) {
  static std::mt19937 random(20261128);
  std::vector<std::uint32_t> words(count);
  for (std::uint32_t& word : words) word = static_cast<std::uint32_t>(random());
  return words;
}

}  // namespace

TEST_CASE("vectors, strides and shared places: whole warps and warps without a lane") {
  // Word w of lane i: at (stride * i + shift) * 4 * count bytes; the results lie behind the sources, in order.
  for (const int count : {1, 2, 4})
    for (const int stride : {0, 1, 3}) {
      const std::string v = count == 1 ? "" : fmt::format(".v{}", count);
      const std::string list = count == 1 ? "r1" : count == 2 ? "{r1, r2}" : "{r1, r2, r3, r4}";
      const std::string body = fmt::format(
          "mad.lo.u32 bit, lane, {0}, {1};\nmul.wide.u32 far, bit, 1;\nadd.s64 far, far, out;\n"
          "@p ld.global{2}.u32 {3}, [far];\nmad.lo.u32 bit, lane, {4}, 2048;\nmul.wide.u32 far, bit, 1;\n"
          "add.s64 far, far, out;\n@p st.global{2}.u32 [far], {3};\n"
          "mad.lo.u32 bit, lane, {0}, 4096;\nmul.wide.u32 far, bit, 1;\nadd.s64 far, far, out;\n"
          "@p st.global{2}.u32 [far], {3};",
          stride * 4 * count, 16, v, list, 4 * count);
      const std::vector<std::uint32_t> in = random_words(1600);
      for (const std::uint32_t left_out : {0u, 0x80000000u, 0x00010010u}) {
        CAPTURE(count);
        CAPTURE(stride);
        CAPTURE(left_out);
        const Outcome outcome = run(body, in, left_out);
        CHECK(outcome.findings.empty());
        std::vector<std::uint32_t> expected = in;
        for (std::size_t lane = 0; lane < 32; ++lane)
          for (std::size_t i = 0; (left_out >> lane & 1) == 0 && i < static_cast<std::size_t>(count); ++i) {
            const std::size_t at = lane * static_cast<std::size_t>(stride * count) + i;
            expected[512 + lane * static_cast<std::size_t>(count) + i] = in[4 + at];
            expected[1024 + at] = in[4 + at];
          }
        CHECK(outcome.out == expected);
      }
    }
}

TEST_CASE("a load through the read-only path of what a strided store wrote") {
  const std::string store = "mul.wide.u32 far, lane, 16;\nadd.s64 far, far, out;\nst.global.u32 [far], lane;\n";
  const std::vector<std::uint32_t> in = random_words(160);
  const Outcome written = run(store + "ld.global.nc.u32 r1, [out+496];\nst.global.u32 [out+4], r1;", in, 0);
  REQUIRE(written.findings.size() == 1);
  CHECK(written.findings[0].name == "nc-load-of-written");
  CHECK(written.out[1] == 31);
  const Outcome between = run(store + "ld.global.nc.u32 r1, [out+24];\nst.global.u32 [out+4], r1;", in, 0);
  CHECK(between.findings.empty());
  CHECK(between.out[1] == in[6]);
}

TEST_CASE("sums of doubles keep the NaN that hardware gives") {
  // b's payload, quiet; a's where b is a number (H200).
  const std::string body =
      "mul.wide.u32 far, lane, 8;\nadd.s64 far, far, out;\nld.global.b64 d1, [far];\nld.global.b64 d2, [far+256];\n"
      "add.rn.f64 d3, d1, d2;\nst.global.b64 [far+512], d3;\nmul.rn.f64 d4, d1, d2;\nst.global.b64 [far+768], d4;\n"
      "fma.rn.f64 d5, d1, d2, d1;\nst.global.b64 [far+1024], d5;";
  std::vector<std::uint32_t> in(400, 0);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    in[2 * lane + 1] = 0x3FF00000 + static_cast<std::uint32_t>(lane << 16);
    in[64 + 2 * lane + 1] = 0x40080000;
  }
  const Outcome numbers = run(body, in, 0);
  std::vector<std::uint32_t> with_nan = in;
  with_nan[2 * 5] = 77, with_nan[2 * 5 + 1] = 0x7FF80000;            // a alone
  with_nan[64 + 2 * 9] = 99, with_nan[64 + 2 * 9 + 1] = 0xFFF00000;  // b alone, signalling
  const Outcome nans = run(body, with_nan, 0);
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (const std::size_t at : {128u, 192u, 256u}) {
      CAPTURE(lane);
      CAPTURE(at);
      const std::uint32_t low = nans.out[at + 2 * lane], high = nans.out[at + 2 * lane + 1];
      CHECK(low == (lane == 5 ? 77 : lane == 9 ? 99 : numbers.out[at + 2 * lane]));
      CHECK(high == (lane == 5 ? 0x7FF80000 : lane == 9 ? 0xFFF80000 : numbers.out[at + 2 * lane + 1]));
    }
}

TEST_CASE("atomic operations: whole warps and warps without some lanes, alone and on one place") {
  // Lane i acts on word 64 + i / share, and stores what was there.
  struct Operation {
    const char* name;
    std::uint32_t (*apply)(std::uint32_t, std::uint32_t);
  };
  const Operation operations[] = {
      {"atom.global.add.u32", [](std::uint32_t old, std::uint32_t b) { return old + b; }},
      {"atom.add.u32", [](std::uint32_t old, std::uint32_t b) { return old + b; }},
      {"atom.global.exch.b32", [](std::uint32_t, std::uint32_t b) { return b; }},
      {"atom.global.max.u32", [](std::uint32_t old, std::uint32_t b) { return std::max(old, b); }},
      {"atom.global.min.s32",
       [](std::uint32_t old, std::uint32_t b) {
         return static_cast<std::uint32_t>(std::min(static_cast<std::int32_t>(old), static_cast<std::int32_t>(b)));
       }},
      {"atom.global.xor.b32", [](std::uint32_t old, std::uint32_t b) { return old ^ b; }}};
  for (const Operation& operation : operations)
    for (const std::uint32_t share : {1u, 4u, 32u})
      for (const std::uint32_t left_out : {0u, 0x80000001u, 0xFFFFFFF7u}) {
        CAPTURE(operation.name);
        CAPTURE(share);
        CAPTURE(left_out);
        const std::vector<std::uint32_t> in = random_words(160);
        const std::string body = fmt::format(
            "ld.global.u32 r1, [place];\ndiv.u32 r2, lane, {};\nmul.wide.u32 far, r2, 4;\nadd.s64 far, far, out;\n"
            "@p {} r3, [far+256], r1;\n@p st.global.u32 [place+384], r3;",
            share, operation.name);
        const Outcome outcome = run(body, in, left_out);
        CHECK(outcome.findings.empty());
        std::vector<std::uint32_t> expected = in;
        for (std::size_t lane = 0; lane < 32; ++lane) {
          if ((left_out >> lane & 1) != 0) continue;
          std::uint32_t& there = expected[64 + lane / share];
          expected[96 + lane] = there;
          there = operation.apply(there, in[lane]);
        }
        CHECK(outcome.out == expected);
      }
}

TEST_CASE("pages that are known to be written: not after they are freed, nor poisoned, nor beyond the end") {
  // Lane i loads words i, 32 + i, ... of `rounds` rows: often enough that whole pages are known.
  const auto ptx = [](int rounds) {
    return fmt::format(
        ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n.reg .pred p;\n"
        ".reg .b32 lane, i, v;\n.reg .b64 at;\nld.param.u64 at, [buffer];\nmov.u32 lane, %tid.x;\n"
        "mad.wide.u32 at, lane, 4, at;\nmov.u32 i, 0;\nAGAIN: ld.global.u32 v, [at];\nst.global.u32 [at], v;\n"
        "add.s64 at, at, 128;\nadd.u32 i, i, 1;\nsetp.lt.u32 p, i, {};\n@p bra AGAIN;\nret;\n}}\n",
        rounds);
  };
  EmulatedDevice device;
  constexpr std::size_t kBytes = 16384;
  const std::vector<std::byte> zeros(kBytes);
  const auto names = [&](DevicePointer buffer, int rounds) {
    const auto image = device.load_ptx(ptx(rounds), "test.ptx");
    std::vector<void*> arguments{&buffer};
    LaunchRequest request;
    request.entry = image->entry("test");
    request.block = {32, 1, 1};
    request.parameters = arguments.data();
    device.launch(request, {});
    std::vector<std::string> found;
    for (const EmulatorFinding& finding : device.take_findings()) found.push_back(finding.name);
    return found;
  };
  using Names = std::vector<std::string>;
  const DevicePointer buffer = device.allocate(kBytes);
  CHECK(names(buffer, 128) == Names{"global-uninitialised"});
  CHECK(names(buffer, 128).empty());
  device.copy_to_device(buffer, zeros.data(), kBytes);
  CHECK(names(buffer, 128).empty());
  CHECK(names(buffer, 129) == Names{"global-out-of-bounds"});
  device.poison(buffer + 8192, 0xFF, 128);
  CHECK(names(buffer, 128) == Names{"global-uninitialised"});
  CHECK(device.uninitialised_bytes(buffer, kBytes) == 0);
  device.free(buffer);
  CHECK(names(buffer, 128) == Names{"global-out-of-bounds"});
}

}  // namespace tessera::emulator::whole_warp_access_test
