// What a plan of a product by mma.sync says: its reason, its cost sheets, the word of its instruction.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tuple>

#include "generator/candidates.h"
#include "tessera/error.h"
#include "tests/generator/problems.h"
#include "tests/generator/refusal.h"

using namespace tessera;
namespace gemm_mma_plan_test {

namespace {

Plan plan(const Fields& fields) { return make_plan(problem_of("gemm", fields)); }

}  // namespace

TEST_CASE("mma products: plain fp8 says when scales of one make it faster") {
  const auto reason = [](std::string_view arch, const char* dtype, const char* m) {
    Fields fields{{"arch", std::string(arch)}, {"dtype", dtype}, {"m", m}, {"n", "8192"}, {"k", "8192"}};
    if (arch == "sm_90a") fields.emplace_back("mma_kind", "mma.f16");
    return plan(fields).reason;
  };
  const std::string word =
      "; on RTX 5090 sums of plain e4m3 have half the rate: as mxfp8_e4m3 with every scale 1 (byte 127), ";
  for (const char* const arch : {"sm_120a", "sm_120f"}) {
    const std::string text = reason(arch, "e4m3", "8192");
    const std::size_t at = text.find(word);
    REQUIRE(at != std::string::npos);
    CHECK(text.find("; on ", at + 1) == std::string::npos);  // of one card alone
  }
  CHECK(reason("sm_120a", "e5m2", "8192").find("as mxfp8_e5m2 with") != std::string::npos);
  // An RTX PRO 6000 and a DGX Spark have the full rate, s8 too; where memory is the bound, scales are more to read;
  // Hopper has no block scales.
  CHECK(reason("sm_121a", "e4m3", "8192").find("half the rate") == std::string::npos);
  CHECK(reason("sm_121f", "e5m2", "8192").find("half the rate") == std::string::npos);
  CHECK(reason("sm_120a", "e4m3", "1").find("half the rate") == std::string::npos);
  CHECK(reason("sm_120a", "s8", "8192").find("half the rate") == std::string::npos);
  CHECK(reason("sm_90a", "e4m3", "8192").find("half the rate") == std::string::npos);
}

/// What plan shows of the instruction is what the pin takes, and nothing else is taken.
TEST_CASE("mma products: mma_kind is the word that the plan shows, on sm_120 and sm_121 no other") {
  constexpr const char* kWords[] = {"mma.f16", "mma.f8", "mma.i8", "mma.mxf4nvf4", "mma.mxf4", "mma.mxf8f6f4"};
  const std::tuple<const char*, const char*, std::string> kTypes[] = {{"bf16", "bf16", "mma.f16"},
                                                                      {"f16", "f16", "mma.f16"},
                                                                      {"e4m3", "e5m2", "mma.f8"},
                                                                      {"s8", "u8", "mma.i8"},
                                                                      {"nvfp4", "nvfp4", "mma.mxf4nvf4"},
                                                                      {"mxfp4", "mxfp4", "mma.mxf4"},
                                                                      {"mxfp8_e4m3", "mxfp8_e5m2", "mma.mxf8f6f4"},
                                                                      {"mxfp4", "mxfp8_e4m3", "mma.mxf8f6f4"}};
  for (const char* const arch : {"sm_120a", "sm_121f"})
    for (const auto& [a, b, own] : kTypes) {
      const Fields types{{"arch", arch}, {"dtype", a}, {"b_dtype", b}};
      const Plan by_itself = plan(types);
      CAPTURE(by_itself.kernel);
      CHECK(by_itself.mma_kind == own);
      for (const char* const word : kWords) {
        Fields pinned = types;
        pinned.emplace_back("mma_kind", word);
        if (word == own) {
          CHECK(plan(pinned).kernel == by_itself.kernel);
        } else {
          CHECK(unsupported("gemm", pinned) ==
                fmt::format("gemm has no kernel for mma_kind {} with dtype {} on {}: take {}", word, a, arch, own));
        }
      }
    }
  // By pin on Hopper: the operands' word, or mma.f16 for these kernels whatever the type.
  for (const char* const word : {"mma.f16", "mma.f8"})
    CHECK(plan({{"dtype", "e4m3"}, {"mma_kind", word}}).mma_kind == "mma.f8");
  CHECK(unsupported("gemm", {{"mma_kind", "mma.f8"}}) ==
        "gemm has no kernel for mma_kind mma.f8 with dtype bf16 on sm_90a: take wgmma.f16");
}

TEST_CASE("mma products: reason and cost sheets speak of the same devices, and of no rate above the whole") {
  for (const char* const arch : {"sm_120a", "sm_120f", "sm_121a"})
    for (const char* const dtype : {"bf16", "e4m3", "nvfp4"})
      for (const char* const m : {"8", "8192"}) {
        const Plan of = plan({{"arch", arch}, {"dtype", dtype}, {"m", m}, {"n", "8192"}, {"k", "8192"}});
        CAPTURE(of.reason);
        REQUIRE(!of.costs.empty());
        std::size_t at = 0;
        for (const CostSheet& sheet : of.costs) {
          const std::size_t text = of.reason.find(fmt::format("{:.1f} us on {} (", sheet.us, sheet.device), at);
          REQUIRE(text != std::string::npos);
          at = text;
          CHECK(of.reason.find("bound by " + sheet.limit, at) != std::string::npos);
          const std::size_t share = of.reason.rfind(", ", of.reason.find(" % of the tensor cores' rate", at));
          CHECK(std::stoi(of.reason.substr(share + 2)) <= 100);
        }
      }
}

}  // namespace gemm_mma_plan_test
