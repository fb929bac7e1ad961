// Attention on tcgen05 through NVRTC: every default kernel for every target, without spill, stack, warning or note of
// the assembler, in less time than a user would notice.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>

#include "generator/attention/fmha_tcgen05_operator.h"
#include "generator/candidates.h"
#include "runtime/nvrtc.h"
#include "spec/fmha_tcgen05_tiles.h"
#include "tessera/error.h"
#include "tessera/plan.h"
#include "tests/support/sample.h"

using namespace tessera;

namespace {

/// What is wrong with a compiled kernel; empty when nothing is. `registers`: the most that one of its entries has.
std::string complaint(Compiler& compiler, const Fmha& problem, int& registers) {
  const SourceBundle bundle = emit(make_plan(problem));
  try {
    const Image image = compiler.compile(bundle);
    if (image.report.entries.size() != bundle.entries.size())
      return fmt::format("{} kernels", image.report.entries.size());
    for (const EntryReport& report : image.report.entries) {
      registers = std::max(registers, report.registers);
      if (std::find(bundle.entries.begin(), bundle.entries.end(), report.name) == bundle.entries.end())
        return "the kernel's name is " + report.name;
      if (report.spill_load_bytes + report.spill_store_bytes + report.stack_bytes != 0)
        return fmt::format("{} bytes of spill stores, {} of loads, {} of stack", report.spill_store_bytes,
                           report.spill_load_bytes, report.stack_bytes);
    }
    if (!image.report.notes.empty()) return image.report.notes.front();
    if (image.report.log.find("warning") != std::string::npos) return image.report.log;
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("nvrtc: attention on tcgen05 compiles for every target without spill, stack, warning or note") {
  if (!find_nvrtc()) {
    fmt::print(stderr, "skipped: no NVRTC on this machine\n");
    std::exit(77);
  }
  const std::unique_ptr<Compiler> compiler = make_nvrtc_compiler();
  std::map<std::string, Fmha> kernels;
  const auto add = [&](const char* arch, const fmha_tcgen05::Tile& tile, Mask mask, DType dtype, Output output,
                       Window window = Window::none, UsedLengths seqused = UsedLengths::none, int pack_gqa = 1,
                       SplitKv split_kv = SplitKv::off, KvPools kv_pools = KvPools::dense, Sink sink = Sink::none) {
    const Fmha problem{.arch = Arch::parse(arch),
                       .head_dim = tile.head_dim,
                       .head_dim_v = tile.head_dim_v,
                       .dtype = dtype,
                       .mask = mask,
                       .window = window,
                       .seqused = seqused,
                       .kv_pools = kv_pools,
                       .sink = sink,
                       .output = output,
                       .pack_gqa = pack_gqa,
                       .split_kv = split_kv};
    kernels.try_emplace(planned_kernel(problem), problem);
  };
  for (const fmha_tcgen05::Tile& tile : fmha_tcgen05::kTiles) {
    add("sm_100a", tile, Mask::none, DType::bf16, Output::normalized);
    add("sm_100a", tile, Mask::causal, DType::f16, Output::unnormalized);
    add("sm_103a", tile, Mask::causal, DType::bf16, Output::normalized);
    add("sm_100f", tile, Mask::causal, DType::bf16, Output::normalized);
    add("sm_100a", tile, Mask::causal, DType::bf16, Output::normalized, Window::sliding);
    add("sm_103a", tile, Mask::none, DType::bf16, Output::unnormalized, Window::sliding, UsedLengths::qk);
    add("sm_100f", tile, Mask::causal, DType::bf16, Output::normalized, Window::none, UsedLengths::none, 128,
        SplitKv::on);
    add("sm_103a", tile, Mask::none, DType::f16, Output::unnormalized, Window::none, UsedLengths::k, 5, SplitKv::on);
    add("sm_100a", tile, Mask::causal, DType::bf16, Output::normalized, Window::none, UsedLengths::none, 12);
    add("sm_100a", tile, Mask::causal, DType::bf16, Output::normalized, Window::sliding, UsedLengths::k, 7,
        SplitKv::off, KvPools::dense, Sink::per_head);
    for (const char* const arch : {"sm_100f", "sm_103a"})
      add(arch, tile, Mask::causal, DType::bf16, Output::normalized, Window::none, UsedLengths::none, 128, SplitKv::off,
          KvPools::sparse_window);
  }
  // 8-bit keys under 16-bit queries: the registers that are left to each role are fewest where keys are copied and
  // scores are altered.
  int turn = 0;
  for (const fmha_tcgen05::Tile& tile : fmha_tcgen05::kTilesOfWidened) {
    ++turn;
    Fmha problem{.arch = Arch::parse(turn % 2 == 0 ? "sm_100a" : "sm_103a"),
                 .head_dim = tile.head_dim,
                 .head_dim_v = tile.head_dim_v,
                 .dtype = turn % 3 == 0 ? DType::f16 : DType::bf16,
                 .kv_dtype = DType::e4m3,
                 .output = turn % 5 == 0 ? Output::unnormalized : Output::normalized,
                 .tile_m = tile.tile_m,
                 .tile_n = tile.tile_n};
    if (turn % 4 == 1) problem.softcap = Softcap::tanh, problem.alibi = Alibi::per_head;
    if (turn % 4 == 2) problem.mask = Mask::causal, problem.window = Window::sliding;
    if (turn % 4 == 3) problem.q_layout = QueryLayout::ragged;
    if (turn % 2 == 1) {
      problem.kv_layout = KvLayout::paged;
      problem.page_size = turn % 6 == 1 ? 1 : 16;
      problem.split_kv = turn % 4 == 1 ? SplitKv::on : SplitKv::off;
    }
    kernels.try_emplace(planned_kernel(problem), problem);
  }
  for (const fmha_tcgen05::Tile& tile : fmha_tcgen05::kTilesOf8Bit) {
    ++turn;
    Fmha problem{.arch = Arch::parse(turn % 2 == 0 ? "sm_100f" : "sm_103a"),
                 .head_dim = tile.head_dim,
                 .head_dim_v = tile.head_dim_v,
                 .dtype = DType::e4m3,
                 .output = turn % 5 == 0 ? Output::unnormalized : Output::normalized,
                 .tile_m = tile.tile_m,
                 .tile_n = tile.tile_n,
                 .cta_group = tile.cta_pair ? 2 : 1};
    if (turn % 4 == 1) problem.softcap = Softcap::tanh, problem.alibi = Alibi::per_head;
    if (turn % 4 == 2) problem.mask = Mask::causal, problem.window = Window::sliding;
    if (turn % 4 == 3) problem.q_layout = QueryLayout::ragged;
    if (turn % 2 == 1 && !tile.cta_pair) {
      problem.kv_layout = KvLayout::paged;
      problem.page_size = turn % 6 == 1 ? 1 : 16;
      problem.split_kv = turn % 4 == 1 ? SplitKv::on : SplitKv::off;
    }
    kernels.try_emplace(planned_kernel(problem), problem);
  }
  for (turn = 0; turn < 6; ++turn) {
    Fmha problem{.arch = Arch::parse(turn % 2 == 0 ? "sm_100a" : "sm_103a"),
                 .head_dim = fmha_tcgen05::kLatentHeadDim,
                 .head_dim_v = fmha_tcgen05::kLatentHeadDimV,
                 .dtype = turn % 3 == 0 ? DType::f16 : DType::bf16,
                 .mask = turn % 2 == 0 ? Mask::causal : Mask::none,
                 .v_is_k = VIsK::on,
                 .pack_gqa = turn % 2 == 0 ? 128 : 16};
    if (turn > 2) {
      problem.kv_layout = KvLayout::paged;
      problem.page_size = 64;
      problem.split_kv = turn % 2 == 0 ? SplitKv::off : SplitKv::on;
    }
    if (turn == 1) problem.softcap = Softcap::tanh, problem.alibi = Alibi::per_head;
    if (turn == 4) problem.q_layout = QueryLayout::ragged;
    kernels.try_emplace(planned_kernel(problem), problem);
  }
  CHECK(kernels.size() == 182);
  double slowest = 0;
  testing::Sample sample(30);
  for (const auto& [name, problem] : kernels) {
    if (!sample.takes()) continue;
    CAPTURE(name);
    int registers = 0;
    const auto start = std::chrono::steady_clock::now();
    CHECK(complaint(*compiler, problem, registers) == "");
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    CHECK(registers <= fmha_tcgen05::register_budget(chosen_config<FmhaTcgen05Operator>(problem)).entry);
  }
  MESSAGE("slowest compile: ", slowest, " s");
}
