// Attention whose roles were compiled side by side: the joined PTX does what the kernel that is compiled whole does.
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "runtime/nvrtc.h"
#include "tests/emulated/fmha_run.h"

namespace tessera::fmha_pieces_test {
namespace {

using emulator::Schedule;

/// Compiles in pieces, or whole, and looks whether that is what came.
class Watched final : public Compiler {
 public:
  explicit Watched(bool is_whole) : is_whole_(is_whole), compiler_(make_nvrtc_compiler()) {}
  const CompilerIdentity& identity() const override { return compiler_->identity(); }
  const std::vector<std::string>& architectures() const override { return compiler_->architectures(); }
  Image compile(const SourceBundle& bundle) override {
    SourceBundle taken = bundle;
    REQUIRE(taken.pieces.size() > 1);
    if (is_whole_) taken.pieces.clear();
    Image image = compiler_->compile(taken);
    CHECK(image.report.log.find("tessera: compiled whole") == std::string::npos);
    CHECK((image.ptx.find("$L__piece_2:") != std::string::npos) == !is_whole_);
    CHECK(image.ptx.find("nanosleep.u32 989") == std::string::npos);  // a mark that nobody has replaced
    return image;
  }

 private:
  bool is_whole_;
  std::unique_ptr<Compiler> compiler_;
};

void check_both(const Fmha& problem, const reference::FmhaSizes& sizes, const testing::FmhaLaunchFacts& facts = {}) {
  if (!find_nvrtc() || make_nvrtc_compiler()->identity().major_version < 13) {
    MESSAGE("skipped: no NVRTC from 13.0 on");
    return;
  }
  const std::vector<Schedule> schedules{Schedule::fair, Schedule::adversarial};
  const std::vector<std::uint64_t> seeds{1};
  std::vector<testing::FmhaVerdict> verdicts;
  for (const bool is_whole : {false, true}) {
    Watched compiler(is_whole);
    verdicts.push_back(testing::run_fmha(problem, sizes, compiler, schedules, seeds, facts));
    CAPTURE(is_whole);
    CHECK(verdicts.back().failures == std::vector<std::string>{});
    CHECK(verdicts.back().runs == 2);
  }
  CHECK(verdicts[0].sequences == verdicts[1].sequences);
}

}  // namespace

TEST_CASE("attention in pieces: 8 bits, whose V other warps transpose") {
  check_both({.head_dim = 64, .dtype = DType::e4m3, .mask = Mask::causal}, {2, 2, 1, 150, 200, 64});
}

TEST_CASE("attention in pieces: e4m3 keys in pages, which other warps widen") {
  Fmha problem{.head_dim = 64, .mask = Mask::causal, .kv_layout = KvLayout::paged, .page_size = 16};
  problem.kv_dtype = DType::e4m3;
  problem.seqused = UsedLengths::k;
  check_both(problem, {2, 2, 1, 70, 130, 64}, {.seqused_k = {130, 33}});
}

TEST_CASE("attention in pieces: ragged queries, keys in pages, dealt") {
  Fmha problem{.head_dim = 64, .mask = Mask::causal, .kv_layout = KvLayout::paged, .page_size = 16};
  problem.seqused = UsedLengths::k;
  problem.q_layout = QueryLayout::ragged;
  problem.split_kv = SplitKv::dealt;
  check_both(problem, {3, 2, 1, 130, 200, 64}, {.seqused_k = {200, 33, 1}, .query_lengths = {90, 0, 1}});
}

TEST_CASE("attention in pieces: latent keys") {
  check_both({.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .pack_gqa = 16}, {2, 16, 1, 1, 140, 576, 512});
  // Two tiles of a cluster that share keys.
  check_both({.head_dim = 576, .head_dim_v = 512, .v_is_k = VIsK::on, .pack_gqa = 128}, {1, 128, 1, 1, 140, 576, 512});
}

TEST_CASE("attention in pieces: a latent cache, of which each CTA of two widens half") {
  for (const KvCache cache : {KvCache::mla_584, KvCache::mla_384}) {
    Fmha problem{.head_dim = 512, .head_dim_v = 512, .v_is_k = VIsK::on, .pack_gqa = 128};
    problem.kv_pools = KvPools::sparse_window;
    problem.kv_cache = cache;
    problem.split_kv = cache == KvCache::mla_584 ? SplitKv::off : SplitKv::dealt;
    check_both(problem, {1, 128, 1, 1, 300, 512, 512}, {.topk = 150, .seqlen_swa = 70, .num_sms = 4});
  }
}

}  // namespace tessera::fmha_pieces_test
