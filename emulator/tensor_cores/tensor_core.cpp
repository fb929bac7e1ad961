#include "emulator/tensor_cores/tensor_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tessera::emulator {

Cta* peer_of(const Cta& cta) {
  const std::uint32_t rank = cta.rank ^ 1;
  return rank < cta.cluster->ctas.size() ? cta.cluster->ctas[rank].get() : nullptr;
}

TensorMemory& tensor_memory_of(Cta& cta) {
  if (!cta.tensor_memory) cta.tensor_memory = std::make_unique<TensorMemory>();
  return *cta.tensor_memory;
}

bool enter_tensor_core(Warp& w, const Instruction& in, int cta_group) {
  TensorMemory& memory = tensor_memory_of(*w.cta);
  if (memory.cta_group == 0) memory.cta_group = cta_group;
  if (memory.cta_group != cta_group) {
    w.fault(in, "tcgen05-mixed-cta-group",
            fmt::format(".cta_group::{} after tcgen05 instructions with .cta_group::{}", cta_group, memory.cta_group),
            "all tcgen05 instructions of a kernel must name the same group; ptxas refuses others");
    return false;
  }
  if (cta_group == 1) return true;
  Cta* peer = peer_of(*w.cta);
  if (peer == nullptr) {
    w.fault(in, "tcgen05-no-peer",
            fmt::format(".cta_group::2 by CTA rank {} in a cluster of {}", w.cta->rank, w.cta->cluster->ctas.size()),
            "launched without a cluster of an even number of CTAs");
    return false;
  }
  tensor_memory_of(*peer);
  return true;
}

bool check_allocated(Warp& w, const Instruction& in, const Cta& cta, const TmemRegion& region, const char* what) {
  if (region.first >= 0 && cta.tensor_memory->is_allocated(region.first, region.end)) return true;
  w.fault_at(in, "tmem-out-of-bounds", -1, static_cast<std::uint64_t>(region.first),
             fmt::format("{} covers columns {} to {} of CTA rank {}'s Tensor Memory; allocated: {}", what, region.first,
                         region.end - 1, cta.rank, cta.tensor_memory->describe_blocks()),
             "a column offset or an accumulator wider than the allocation, or the shared-memory pointer instead of the "
             "address that tcgen05.alloc stored there");
  return false;
}

namespace {

// Whether fences order what a warp of `cta` did to Tensor Memory at `time` before what `reader` does now: the warp's
// own before_thread_sync after it, and the reader's after_thread_sync after that.
enum class Order { fine, no_fence_before, no_fence_after };
Order order_of(const Cta& cta, std::int32_t warp, std::uint64_t time, const Warp& reader) {
  if (warp < 0) return Order::fine;
  const Warp& other = cta.warps[static_cast<std::size_t>(warp)];
  if (&other == &reader) return Order::fine;
  // A later fence of the other warp must not count against a reader that has already fenced.
  const std::uint64_t before = other.tensor.first_fence_before(time);
  if (before == 0) return Order::no_fence_before;
  return reader.tensor.fence_after < before ? Order::no_fence_after : Order::fine;
}

}  // namespace

void check_fences(Warp& w, const Instruction& in, Cta& cta, const TmemRegion& region, bool writes) {
  for (int quarter = 0; quarter < kTmemQuarters; ++quarter) {
    if ((region.quarters >> quarter & 1) == 0) continue;
    for (int column = region.first; column < region.end; ++column) {
      const TmemStamp& stamp = cta.tensor_memory->stamp(quarter, column);
      Order order = order_of(cta, stamp.stored_by, stamp.stored_at, w);
      const bool is_load = order == Order::fine;
      if (is_load && writes) order = order_of(cta, stamp.loaded_by, stamp.loaded_at, w);
      if (order == Order::fine) continue;
      w.hazard(in, "missing-tcgen05-fence", -1, static_cast<std::uint64_t>(column),
               fmt::format("Tensor Memory column {} was {} by warp {}{}", column, is_load ? "loaded" : "stored",
                           is_load ? stamp.loaded_by : stamp.stored_by,
                           order == Order::no_fence_before
                               ? ", which executed no tcgen05.fence::before_thread_sync after it"
                               : "; this warp executed no tcgen05.fence::after_thread_sync since"),
               fmt::format("between tcgen05.{} and what another thread does to the same columns PTX asks for wait::{}, "
                           "fence::before_thread_sync, a barrier, fence::after_thread_sync",
                           is_load ? "ld" : "st", is_load ? "ld" : "st"));
      return;
    }
  }
}

void check_transfers(Warp& issuer, const Instruction& in, Cta& cta, const TmemRegion& region, bool writes) {
  if (issuer.launch->options.skips_values) return;  // where only time is asked hazards are not told
  for (const Warp& warp : cta.warps) {
    for (const WarpTensor::Transfer& store : warp.tensor.stores)
      if (store.region.overlaps(region))
        issuer.hazard(in, "missing-tcgen05-wait", -1, static_cast<std::uint64_t>(store.region.first),
                      fmt::format("warp {}'s {} to columns {} to {} (PTX line {}) was not waited for", warp.index,
                                  store.in->opcode, store.region.first, store.region.end - 1, store.in->line),
                      "tcgen05.wait::st must come before the barrier that lets this instruction start");
    if (!writes) continue;
    for (const WarpTensor::Transfer& load : warp.tensor.loads)
      if (load.region.overlaps(region))
        issuer.hazard(in, "missing-tcgen05-wait", -1, static_cast<std::uint64_t>(load.region.first),
                      fmt::format("warp {}'s {} of columns {} to {} (PTX line {}) was not waited for; they are written "
                                  "here",
                                  warp.index, load.in->opcode, load.region.first, load.region.end - 1, load.in->line),
                      "tcgen05.wait::ld must come before the barrier that lets this instruction start");
  }
  check_fences(issuer, in, cta, region, writes);
}

void report_unordered_copy(const Warp& w, const Instruction& in, int lane, const TmemRegion& region,
                           const Instruction& product) {
  EmulatorFinding finding = w.finding(in, "tcgen05-copy-unordered", lane);
  finding.message = fmt::format(
      "the copy writes columns {} to {}, which {} (PTX line {}) uses, and nobody has waited "
      "for that product",
      region.first, region.end - 1, product.opcode, product.line);
  finding.cause =
      "PTX orders a copy before later products of its thread, not behind earlier ones: wait for a commit of theirs, "
      "or copy to other columns";
  w.launch->findings.add(std::move(finding));
}

void check_tensor_memory_freed(const Cta& cta) {
  const TensorMemory* memory = cta.tensor_memory.get();
  if (memory == nullptr || memory->allocated_columns() == 0 || cta.launch->findings.has_failure()) return;
  const Warp& warp = cta.warps[static_cast<std::size_t>(std::max(memory->last_alloc_warp, 0))];
  EmulatorFinding finding = warp.finding(*memory->last_alloc, "tmem-not-freed", -1);
  finding.is_failure = true;
  finding.message = fmt::format("the CTA ended with {} of its Tensor Memory allocated", memory->describe_blocks());
  finding.cause = "tcgen05.dealloc with the address and the number of columns of tcgen05.alloc is missing";
  cta.launch->findings.add(std::move(finding));
}

TensorOperation::TensorOperation(Warp& warp, const Instruction& in, int lane, int cta_group)
    : CopyOperation(warp, in, lane), in_(in), warp_index_(warp.index), issuer_(warp.cta) {
  Cta* even = warp.cta;
  if (cta_group == 2) {
    Cta* peer = peer_of(*warp.cta);
    if (peer->rank < even->rank) std::swap(even, peer);
    ctas_ = {even, peer};
  } else {
    ctas_ = {even};
  }
  chain = even->tensor_memory.get();
  warp.tensor.progress_of(lane).issued++;
  progress_ = warp.tensor.progress[static_cast<std::size_t>(lane)];
  if (race_) {
    if (progress_->race_agent == 0)
      progress_->race_agent = warp.launch->race->make_agent(*warp.cta, warp.index, "tensor core");
    race_->read_agent = progress_->race_agent;
    race_->read_clock = static_cast<std::uint32_t>(progress_->issued);
  }
}

TensorOperation::~TensorOperation() = default;

void TensorOperation::complete(Launch& launch) {
  for (Cta* cta : ctas_) cta->tensor_memory->end_use(this);
  if (!launch.options.skips_values) execute(launch);
  ++progress_->completed;
}

void TensorOperation::use(Cta& cta, const TmemRegion& region, bool writes) {
  if (region.empty()) return;
  cta.tensor_memory->in_flight.push_back({this, &in_, region, writes});
  if (race_ && in_.form->mnemonic.substr(0, 11) == "tcgen05.mma")
    cta.launch->race->use_tensor_memory(cta, region, *race_);
}

void TensorOperation::stamp(Launch& launch, Cta& cta, const TmemRegion& region) const {
  const std::uint64_t now = ++launch.tmem_clock;
  for (int quarter = 0; quarter < kTmemQuarters; ++quarter) {
    if ((region.quarters >> quarter & 1) == 0) continue;
    for (int column = region.first; column < region.end; ++column) {
      TmemStamp& stamp = cta.tensor_memory->stamp(quarter, column);
      stamp = {
          0, now, -1, &cta == issuer_ ? warp_index_ : -1, race_ ? race_->read_agent : 0, race_ ? race_->read_clock : 0};
    }
  }
}

}  // namespace tessera::emulator
