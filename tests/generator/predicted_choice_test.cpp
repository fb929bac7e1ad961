// Choices for Blackwell where sizes are expected ones. They follow predictions (docs/time.md), which the comments tell
// in microseconds: of the choice, and of what was chosen before the planner knew the reason that stands above.
#include <doctest/doctest.h>

#include <string>

#include "tessera/plan.h"
#include "tests/generator/problems.h"

using namespace tessera;
namespace predicted_choice_test {

std::string chosen(const char* op, const Fields& fields) { return make_plan(problem_of(op, fields)).kernel; }

std::string attention(const char* arch, Fields fields, const char* batch, const char* heads_q, const char* heads_kv,
                      const char* queries, const char* keys) {
  const Fields sizes{{"arch", arch},         {"batch", batch},      {"heads_q", heads_q},
                     {"heads_kv", heads_kv}, {"seqlen_q", queries}, {"seqlen_k", keys}};
  fields.insert(fields.end(), sizes.begin(), sizes.end());
  return chosen("fmha", fields);
}

TEST_CASE("attention by mma.sync: what ends last counts, not the mean tile of a causal mask") {
  const auto causal = [](const char* arch, const char* head_dim, const char* batch, const char* heads,
                         const char* length) {
    return attention(arch, {{"head_dim", head_dim}, {"mask", "causal"}}, batch, heads, heads, length, length);
  };
  // RTX 5090. Two CTAs on a multiprocessor, the longest tile and another, 25.1; one, 20.1.
  CHECK(causal("sm_120a", "128", "4", "8", "512") == "tessera_fmha_sm120a_d128_64x64_s2_sw128_causal_bf16_mma");
  // 128 CTAs of 128 rows, of which the longest see all keys, 46.6; 64 rows 28.4.
  CHECK(causal("sm_120a", "192", "2", "16", "512") == "tessera_fmha_sm120a_d192_64x32_s2_sw128_causal_bf16_mma");
  // 96 keys a step are 576 for the longest, 12.7; 128 keys 512, 11.6.
  CHECK(causal("sm_120a", "64", "1", "8", "512") == "tessera_fmha_sm120a_d64_64x128_s2_sw128_causal_bf16_mma");
}

TEST_CASE("attention by mma.sync: a merge goes through a row's parts, so many parts cost more than they save") {
  // RTX 5090. Steps of 16 keys make 128 parts, 16.5; of 64 keys 32, 7.9; of 128 keys 16, 7.1.
  CHECK(attention("sm_120a", {{"head_dim", "64"}, {"mask", "causal"}}, "1", "16", "2", "1", "4096") ==
        "tessera_fmha_sm120a_d64_16x128_s2_sw128_causal_bf16_pack8_split_mma");
}

TEST_CASE("attention of NVFP4: two CTAs of 64 rows where they fit, and few tiles on more multiprocessors") {
  const auto nvfp4 = [](const char* mask, const char* batch, const char* heads, const char* length) {
    return attention("sm_120a", {{"head_dim", "128"}, {"dtype", "nvfp4"}, {"mask", mask}}, batch, heads, heads, length,
                     length);
  };
  // 277.6 and 307.9.
  CHECK(nvfp4("none", "2", "16", "4096") == "tessera_fmha_nvfp4_sm120a_d128_64x64_s3_full_to_bf16");
}

TEST_CASE("attention on tcgen05: long and short tiles of a causal mask add up, as they are dealt") {
  const auto causal = [](const Fields& fields, const char* batch, const char* heads, const char* length) {
    return attention("sm_100a", fields, batch, heads, heads, length, length);
  };
  // B200. 256 tiles of 128 rows on 148 multiprocessors, long beside short ones, 22.9; 64 of 512 rows in pairs 38.1.
  CHECK(causal({{"head_dim", "128"}, {"mask", "causal"}}, "1", "16", "2048") ==
        "tessera_fmha_sm100a_d128_128x128_s3_sw128_causal_bf16");
  // 19.4; 256 rows 23.1.
  CHECK(causal({{"head_dim", "64"}, {"mask", "causal"}}, "1", "16", "2048") ==
        "tessera_fmha_sm100a_d64_128x128_s3_sw128_causal_bf16");
  // e4m3. 27.6; 256 rows with 64 keys a block, 50.8.
  CHECK(causal({{"head_dim", "192"}, {"dtype", "e4m3"}, {"mask", "causal"}}, "1", "16", "2048") ==
        "tessera_fmha_sm100a_d192_128x128_s3_sw64_causal_e4m3");
}

TEST_CASE("attention on tcgen05: what 8-bit scores and keys that are widened take, and three slots beside memory") {
  const Fields pages{{"head_dim", "128"}, {"mask", "causal"}, {"kv_layout", "paged"}, {"page_size", "64"}};
  const auto paged = [&](Fields fields, const char* batch, const char* heads_q, const char* heads_kv,
                         const char* keys) {
    fields.insert(fields.end(), pages.begin(), pages.end());
    return attention("sm_100a", fields, batch, heads_q, heads_kv, "1", keys);
  };
  // B200. Two Q tiles of e4m3 with 64 keys a block 252.7, with 128 273.1.
  CHECK(attention("sm_100a", {{"head_dim", "128"}, {"dtype", "e4m3"}, {"mask", "causal"}}, "2", "32", "32", "4096",
                  "4096") == "tessera_fmha_sm100a_d128_256x64_s4_sw128_causal_e4m3");
  // Blocks of 64 keys make 16 parts of four key heads, 8.9; of 128 eight, 11.3.
  CHECK(paged({{"kv_format", "mxfp8"}}, "1", "16", "4", "2048") ==
        "tessera_fmha_sm100a_d128_128x64_s2_sw128_causal_bf16_usedk_paged64_kvmxfp8_pack4_split");
  CHECK(paged({{"kv_format", "nvfp4"}}, "32", "16", "4", "4096") ==
        "tessera_fmha_sm100a_d128_128x128_s2_sw128_causal_bf16_usedk_paged64_kvnvfp4_pack4_split");
  // Three slots 14.1, two 15.1.
  CHECK(paged({}, "8", "32", "4", "4096") ==
        "tessera_fmha_sm100a_d128_128x128_s3_sw128_causal_bf16_usedk_paged64_pack8_split");
}

TEST_CASE("tcgen05 products: what a gate's activation takes, after the last product where there is one accumulator") {
  const auto dual = [](const char* dtype, const char* m, const char* n, const char* k) {
    return chosen("gemm", {{"arch", "sm_100a"}, {"dtype", dtype}, {"gate", "dual"}, {"m", m}, {"n", n}, {"k", k}});
  };
  // B200. 12.4; 128x192 with one accumulator 15.2.
  CHECK(dual("nvfp4", "128", "24576", "1536") == "tessera_gemm_sm100a_nvfp4_dual_to_bf16_128x64_s5_a2");
  // With a longer k it pays: 24.4; 128x64 in pairs 35.1.
  CHECK(dual("nvfp4", "1024", "3072", "7168") == "tessera_gemm_sm100a_nvfp4_dual_to_bf16_128x192_s4_a1_c2x1");
}

}  // namespace predicted_choice_test
