// Slips planted in the templates of row operators: each must be seen by the reference, and named by its cause.
#include <doctest/doctest.h>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"
#include "tests/support/rows_cases.h"
#include "tests/support/sample.h"

namespace tessera::rows_faults_test {
namespace {

struct RowsFault {
  const char* file;  ///< below templates/
  const char *from, *to;
  int columns;
  const char* chain;
  const char* cause;
};

constexpr RowsFault kFaults[] = {
    {"rows/steps.cuh", "(position < 0) != kIsInverse", "(position < 0) == kIsInverse", 128, "rope(inverse)+f32",
     "rope turns forward, its inverse is right"},
    {"rows/steps.cuh", "__cosf(angle) * Turns::kMagnitude;\n    sine[i] = __sinf(angle) * Turns::kMagnitude;",
     "__cosf(angle);\n    sine[i] = __sinf(angle);", 128, "rope(yarn=16,magnitude=yarn)+f32",
     "rope's magnitude is left out"},
    {"rows/steps.cuh", "__cosf(angle) * Turns::kMagnitude;\n    sine[i] = __sinf(angle) * Turns::kMagnitude;",
     "__cosf(angle) / Turns::kMagnitude;\n    sine[i] = __sinf(angle) / Turns::kMagnitude;", 128,
     "rope(inverse,yarn=16,magnitude=yarn)+f32", "the inverse rope multiplies by the magnitude, and does not divide"},
    {"rows/steps.cuh", "__cosf(angle) * Turns::kMagnitude;\n    sine[i] = __sinf(angle) * Turns::kMagnitude;",
     "__cosf(angle) * 1.2772589f;\n    sine[i] = __sinf(angle) * 1.2772589f;", 128, "rope(yarn=16)+f32",
     "cosines and sines have yarn's factor, 0.1 ln(N) + 1"},
    {"rows/steps.cuh", "if constexpr (!S.is_halves) {", "if constexpr (S.is_halves) {", 128, "rope(halves)+same",
     "rope turns pairs (2i, 2i + 1), not (i, i + d / 2)"},
    {"rows/steps.cuh", "if constexpr (!S.is_halves) {", "if constexpr (S.is_halves) {", 128, "rope+same",
     "rope turns pairs (i, i + d / 2), not (2i, 2i + 1)"},
    {"rows/row.cuh", "unsigned token = static_cast<unsigned>(row);",
     "unsigned token = static_cast<unsigned>(row + 1 < p.rows ? row + 1 : 0);", 128, "rope+f32",
     "rope has the position of the next row"},
    {"rows/row.cuh", "place.position = p.positions[token];", "place.position = p.positions[token > 0 ? token - 1 : 0];",
     128, "rope+f32", "rope has the position of the last row"},
    {"rows/row.cuh", "place.source = index < p.x_rows ? index : -1;",
     "place.source = index >= 0 && index + 1 < p.x_rows ? index + 1 : -1;", 64, "gather+f32",
     "gather takes the row behind the one that is named"},
    {"rows/sinks.cuh", "packed_scale_at(step.out_stride, row, block), ",
     "packed_scale_at(step.out_stride, row, block ^ 1), ", 1024, "rmsnorm(0..127)+factor(128..511)+e4m3(packed)",
     "y_scales: scales of neighbouring blocks are exchanged"},
    {"rows/norms.cuh", "(S.adds_one ? 1.0f : 0.0f)", "0.0f", 256, "rmsnorm(plus_one)+f32",
     "1 is not added to the norm's weight"},
    {"rows/steps.cuh", "x.v[j][i] += element<C.dtype>(raw[j], i);", "x.v[j][i] += 0.0f;", 256, "residual+rmsnorm+f32",
     "residual is not added"},
    {"rows/kernel.cuh", "return gemm::activate<S.activation>(gate) * up;",
     "return gemm::activate<S.activation>(up) * gate;", 256, "gate(silu)+f32", "gate and up are exchanged"},
    {"rows/kernel.cuh", "if constexpr (S.is_gpt_oss) return", "if constexpr (false) return", 256,
     "gate(gpt_oss,interleaved)+f32", "the gate is silu's, not gpt_oss'"},
    {"rows/steps.cuh", "(is_there ? position : 0LL)", "(is_there && position + 1 < p.parts ? position + 1 : 0LL)", 128,
     "rope(table)+f32", "rope_table: the next position's row is taken"},
    {"rows/steps.cuh", "from + kWidth / 2 + i", "from + i", 64, "rope(table)+f32",
     "rope_table: cosines are taken for sines"},
    {"rows/sinks.cuh", "return place.slot < p.placed_rows ? place.slot : -1;",
     "return place.slot < p.placed_rows && place.slot >= 0 ? (place.slot + 1) % p.placed_rows : -1;", 64,
     "f32(scatter,add)", "y: rows go to the slot behind theirs"},
    {"rows/kernel.cuh", "if constexpr (S.limit > 0) {", "if constexpr (S.limit > 1000) {", 256,
     "gate(silu,limit=1)+f32", "the gate's limit is left out"},
    {"rows/kernel.cuh", "kMixComb + (which - 1) * kStreams + to", "kMixComb + to * kStreams + which - 1", 64,
     "mhc_post+f32", "comb is taken by columns, not by rows"},
    {"rows/sinks.cuh", "first_scale + columns_to<C>(j) / kBlock, code",
     "first_scale - vector / kLanes + (at / kBlock + 1) % kBlocks, code", 512, "nvfp4",
     "y_scales: a scale lies with the next block"},
    {"rows/sinks.cuh", "scales[row * (kWidth / S.block) + block] = scale;",
     "scales[row * (kWidth / S.block) + (block + kWidth / S.block - 1) % (kWidth / S.block)] = scale;", 512, "e4m3",
     "y_scales: a scale lies with the last block"},
    {"rows/sinks.cuh", "return place.slot < p.placed_rows ? place.slot : -1;",
     "return place.slot < p.placed_rows && place.slot >= 0 ? (place.slot + 1) % p.placed_rows : -1;", 64,
     "same(scatter)", "y: rows go to the slot behind theirs"},
    {"rows/row.cuh", "place.slot = p.slots[has_paged_sink(C.chain) ? place.token : row];",
     "place.slot = p.slots[row] < 0 ? -1 : p.slots[row] + 1;", 128, "indexer_132",
     "cache: rows go to the slot behind theirs"},
    {"rows/kernel.cuh", "load8<C.dtype>(step.in, start2 + first - S.first + columns_to<C>(j));",
     "load8<C.dtype>(p.x, start + first - S.first + columns_to<C>(j));", 256, "join(128)+f32",
     "x is taken in place of x2"},
    {"rows/sinks.cuh", "at.token * step.out_stride_token + place.head * step.out_stride",
     "place.head * (step.out_stride * p.page_size) + at.token * step.out_stride", 64, "same(paged)",
     "y: tokens and heads of a page are exchanged"},
    {"rows/row.cuh", "p.slots[has_paged_sink(C.chain) ? place.token : row]",
     "p.slots[place.token] < 0 ? -1 : p.slots[place.token] + 1", 256, "append_kv(128,e4m3)",
     "y: rows go to the slot behind theirs"},
    {"rows/sources.cuh", "if constexpr (S.has_weight)", "if constexpr (false)", 64, "combine(4)+f32",
     "combine's weights are left out"},
    {"rows/sources.cuh", "+ element<DType::f32>(tokens[t].ape, i)", "", 64, "compress(8)+f32", "ape is left out"},
    {"rows/sources.cuh", "S.overlaps && number >= S.block ? C.columns : 0",
     "S.overlaps && number < S.block ? C.columns : 0", 64, "compress(4,overlap)+f32",
     "the entry before has the second halves of rows"},
    {"rows/sources.cuh", "C.columns / kBlock, 0, row, column / kBlock)",
     "C.columns / kBlock, 0, row, (column / kBlock + 1) % (C.columns / kBlock))", 128, "dequant(mxfp8)+f32",
     "x_scales: the scale of the next block is taken"},
    {"rows/sources.cuh", "static_cast<unsigned>(ptx::ld_global_s32_written(at)), pairs)",
     "static_cast<unsigned>(ptx::ld_global_s32_written(at)) << 4 & 0xf0f0f0f0u | "
     "static_cast<unsigned>(ptx::ld_global_s32_written(at)) >> 4 & 0x0f0f0f0fu, pairs)",
     128, "dequant(nvfp4)+f32", "x: the two values of a byte are exchanged"},
    {"rows/sinks.cuh", "ptx::st_global_u32(values, words[0]);",
     "ptx::st_global_u32(values, (words[0] & 0x0f0f0f0fu) << 4 | (words[0] >> 4 & 0x0f0f0f0fu));", 64, "mxfp4",
     "y: the two values of a byte are exchanged"},
    {"rows/sinks.cuh", "ptx::st_global_u8(scale_at, scale);",
     "ptx::st_global_u8(start + cache_scale_at(S.cache, p.page_size, paged.token, (at / L.block + 1) % "
     "cache_blocks(S.cache)), scale);",
     512, "mla_584", "cache: a scale lies with the next block"},
    {"rows/sinks.cuh", "row, static_cast<unsigned>(at) / kBlock)",
     "row, (static_cast<unsigned>(at) / kBlock + 1) % kBlocks)", 512, "nvfp4(tile)",
     "y_scales: a scale lies with the next block"},
    {"rows/sinks.cuh", "scales[block * step.out_stride + row] = scale;",
     "scales[block * step.out_stride + (row + 1) % p.rows] = scale;", 512, "e4m3(columns)",
     "y_scales: a scale lies with the next row"},
    {"rows/sinks.cuh", "ptx::st_global_u32(values + at / 2, words[0]);",
     "ptx::st_global_u32(values + at / 2, (words[0] & 0x0f0f0f0fu) << 4 | (words[0] >> 4 & 0x0f0f0f0fu));", 512,
     "mla_288", "cache: the two values of a byte are exchanged"},
    {"rows/sinks.cuh", "ptx::st_global_v2(values + at, words[0], words[1]);\n    }\n    if",
     "ptx::st_global_v2(values + at, ptx::prmt(words[0], 0, 0x2301), ptx::prmt(words[1], 0, 0x2301));\n    }\n    if",
     576, "mla_656", "cache: neighbouring columns of the e4m3 values are exchanged"},
    {"rows/steps.cuh", "i < kIterations; ++i", "i < kIterations - 1; ++i", 24, "mhc_mix+f32",
     "Sinkhorn ends an iteration early"},
    {"rows/row.cuh", "ptx::cvt_pack<kDType>(v[2 * i], v[2 * i + 1])", "ptx::cvt_pack<kDType>(v[2 * i + 1], v[2 * i])",
     64, "factor+same", "y: neighbouring columns are exchanged"},
};

}  // namespace

TEST_CASE("rows: planted slips are seen, and named") {
  std::unique_ptr<Compiler> compiler;
  try {
    compiler = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  std::uint64_t seed = 20;
  testing::Sample sample(2);
  for (const RowsFault& fault : kFaults) {
    ++seed;
    CAPTURE(std::string(fault.cause));
    CAPTURE(std::string(fault.chain));
    std::string text = read_text(std::filesystem::path(TESSERA_SOURCE_DIR) / "templates" / fault.file);
    const std::size_t at = text.find(fault.from);
    REQUIRE(at != std::string::npos);
    if (!sample.takes()) continue;
    text.replace(at, std::string_view(fault.from).size(), fault.to);
    // Threads enough that both halves of a row lie in different lanes, whatever the chain.
    const Rows problem{.columns = fault.columns, .chain = parse_row_chain(fault.chain), .threads_of_row = 16};
    const Plan plan = make_plan(problem);
    emulator::EmulatedDevice device({.arch = "sm_90a"});
    const Launcher launcher(device, plan.launch, compiler->compile(emit(plan, {{fault.file, text}})));
    const reference::RowsRun run = rows_run(problem, 37, has_paged_sink(problem.chain) ? 3 : 1);
    const std::vector<std::string> problems =
        judge(device, launcher, run, rows_inputs(run, reference::Fill::normal, seed));
    std::string all;
    for (const std::string& one : problems) all += one + "\n";
    CAPTURE(all);
    CHECK(all.find(std::string("likely cause: ") + fault.cause + " (explains") != std::string::npos);
  }
}

}  // namespace tessera::rows_faults_test
