// Products by mma.sync of drawn types, layouts, gates, groups, epilogues, tiles and shapes, in the emulator with its
// race detector, against float64: whole numbers exactly. A run takes a few draws, always the same ones; with
// TESSERA_ALL_CASES=1 as many as kAllDraws.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>

#include "generator/selectors.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/emulated/gemm_tcgen05_run.h"
#include "tests/support/random_draw.h"
#include "tests/support/sample.h"

namespace tessera::gemm_mma_drawn_test {
namespace {

constexpr std::uint64_t kDraws = 8, kAllDraws = 180;

class Draw : tessera::testing::RandomDraw {
 public:
  explicit Draw(std::uint64_t seed) : RandomDraw(seed), seed_(seed) {}

  /// What some kernel by mma.sync serves; other draws are made again.
  ProductCase served() {
    for (int tries = 0;; ++tries) {
      const ProductCase test = drawn();
      try {
        Problem problem = Gemm{};
        for (const auto& [key, text] : test.fields) set_field(problem, key, text);
        make_plan(problem);
        return test;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::unsupported || tries > 1000) throw;
      }
    }
  }

 private:
  static std::int64_t bits_of(const std::string& type) {
    return type == "bf16" || type == "f16" ? 16 : type == "nvfp4" || type == "mxfp4" ? 4 : type[4] == '6' ? 6 : 8;
  }
  /// A pitch of rows of so many elements: whole 16 bytes, or 32 where TMA pads values to bytes, and sometimes more.
  std::int64_t pitch(std::int64_t elements, std::int64_t bits, bool is_padded = false) {
    const std::int64_t unit = (bits == 6 ? 64 : 128 / bits) * (is_padded ? 2 : 1);
    return (elements + unit - 1) / unit * unit + unit * pick(0, 2);
  }

  ProductCase drawn() {
    constexpr const char* kTypes[][2] = {{"bf16", "bf16"},
                                         {"f16", "f16"},
                                         {"e4m3", "e4m3"},
                                         {"e4m3", "e5m2"},
                                         {"e5m2", "e4m3"},
                                         {"s8", "s8"},
                                         {"u8", "u8"},
                                         {"u8", "s8"},
                                         {"s8", "u8"},
                                         {"nvfp4", "nvfp4"},
                                         {"mxfp4", "mxfp4"},
                                         {"mxfp8_e4m3", "mxfp8_e5m2"},
                                         {"mxfp8_e4m3", "mxfp4"},
                                         {"mxfp4", "mxfp8_e4m3"},
                                         {"mxfp6_e3m2", "mxfp8_e5m2"},
                                         {"mxfp4", "mxfp6_e2m3"}};
    constexpr std::size_t kPlainTypes = 9;
    const auto at = static_cast<std::size_t>(pick(0, std::size(kTypes) - 1));
    const std::string a = kTypes[at][0], b = kTypes[at][1];
    const bool is_hopper = at < kPlainTypes && one_in(3), is_16_bit = bits_of(a) == 16;
    ProductCase test{.name = fmt::format("draw {}", seed_), .fields = {}, .sizes = {}};
    const auto set = [&](const char* key, const std::string& word) { test.fields.emplace_back(key, word); };
    set("arch", is_hopper ? "sm_90a" : of({"sm_120a", "sm_121a", "sm_120f"}));
    if (is_hopper) set("mma_kind", "mma.f16");
    set("dtype", a);
    set("b_dtype", b);
    std::string d = of({"bf16", "f16", "f32"});
    if (a[0] == 's' || a[0] == 'u') d = one_in(2) ? "s32" : d;
    if (!is_hopper && one_in(5)) d = of({"nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2"});
    const bool is_quantized = d[0] == 'n' || d[0] == 'm';
    set("d_dtype", d);
    const auto is_mn = [&](const std::string& type) {
      return (is_16_bit || (!is_hopper && bits_of(type) == 8)) && one_in(3);
    };
    const bool is_a_mn = is_mn(a), is_b_mn = is_mn(b);
    if (is_a_mn) set("a_layout", "mn");
    if (is_b_mn) set("b_layout", "mn");
    const std::int64_t form = pick(0, 9);
    const bool is_dual = form < 2, is_interleaved = form == 2 || form == 3, is_plain = form > 3;
    std::int64_t unit = is_quantized ? 32 : 1;
    if (is_dual) set("gate", "dual");
    if (is_interleaved) {
      const std::int64_t interleave = std::int64_t{1} << pick(0, 5);
      set("gate", "interleaved");
      set("interleave", std::to_string(interleave));
      unit = 2 * std::max(interleave, unit);
    }
    if (is_plain && d != "s32") {
      if (one_in(3)) set("c", "matrix");
      if (one_in(3)) set("bias", "column");
      if (one_in(4)) set("activation", of({"silu", "gelu", "relu"}));
    }
    const std::int64_t groups = pick(0, 5);
    const bool is_grouped = groups > 2;
    const bool is_gathered = is_grouped && one_in(2);
    if (is_grouped) set("grouping", groups > 3 ? "contiguous" : "masked");
    if (is_gathered) set("gather", "rows");
    if (at >= kPlainTypes && one_in(3)) set("scale_form", "plain");
    if (!is_grouped && is_plain && !is_quantized && one_in(4)) set("swap_ab", "on");
    if (!is_grouped && one_in(4)) set("split_k", std::to_string(pick(2, 4)));
    if (!one_in(3)) {
      set("tile_m", std::to_string(8 << pick(0, 5)));
      set("tile_n", std::to_string(16 << pick(0, 4)));
    }
    if (one_in(3)) set("stages", "2");
    const std::int64_t block = a == "nvfp4" ? 16 : bits_of(a) == 4 || a[0] == 'm' ? 32 : 1;
    const std::int64_t k = std::max<std::int64_t>(block, pick(0, 10) == 0 ? block : pick(1, 320) / block * block);
    const std::int64_t m = one_in(3) ? pick(1, 16) : pick(1, 200);
    const std::int64_t n = std::max(unit, pick(1, 200) / unit * unit);
    test.sizes = {{"m", m}, {"n", n}, {"k", k}, {"l", is_grouped ? pick(1, 5) : pick(1, 2)}};
    if (is_gathered) test.sizes["a_rows"] = pick(1, 150);
    // Rows of mxfp6, and of mxfp4 beside it or mxfp8, have room for whole boxes of 128 values, where boxes are what
    // copies them.
    const auto row_pitch = [&](const std::string& type, const std::string& other, std::int64_t elements) {
      const bool is_padded = bits_of(type) == 6 || (bits_of(type) == 4 && bits_of(other) != 4);
      if (is_padded && !(is_gathered && &type == &a)) return pitch((elements + 127) / 128 * 128, bits_of(type), true);
      return pitch(elements, bits_of(type));
    };
    test.sizes["lda"] = row_pitch(a, b, is_a_mn ? m : k);
    test.sizes["ldb"] = row_pitch(b, a, is_b_mn ? n : k);
    if (is_dual) test.sizes["ldb2"] = test.sizes["ldb"];
    if (!is_quantized && one_in(2)) test.sizes["ldd"] = (is_interleaved ? n / 2 : n) + pick(0, 5);
    test.fill = one_in(2) ? reference::Fill::integer : reference::Fill::standard;
    return test;
  }

  std::uint64_t seed_;
};

}  // namespace

TEST_CASE("products by mma.sync: drawn types, gates, groups, epilogues and tiles") {
  const std::unique_ptr<Compiler> compiler = find_product_compiler();
  if (!compiler) return;
  using emulator::Schedule;
  constexpr Schedule kSchedules[] = {Schedule::fair, Schedule::adversarial, Schedule::lazy};
  const std::uint64_t draws = testing::takes_all_cases() ? kAllDraws : kDraws;
  for (std::uint64_t seed = 1; seed <= draws; ++seed) {
    const ProductCase test = Draw(seed).served();
    std::string fields;
    for (const auto& [key, text] : test.fields) fields += fmt::format(" {} {}", key, text);
    for (const auto& [name, size] : test.sizes) fields += fmt::format(" {} {}", name, size);
    CAPTURE(fields);
    check_product(test, *compiler, {kSchedules[seed % 3]});
  }
}

}  // namespace tessera::gemm_mma_drawn_test
