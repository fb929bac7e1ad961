// PTX ISA, "tcgen05.commit": an mbarrier hears when the tensor operations that this thread has issued are complete.
// Those of other threads are not tracked.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/tensor_cores/tensor_core.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;

class Commit final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  U32 barrier = 0;  // offset
  std::vector<Cta*> destinations;
  std::shared_ptr<TensorProgress> progress;
  std::uint64_t wanted = 0;

  AsyncWork work() const override {
    AsyncWork work = CopyOperation::work();
    work.kind = AsyncWork::Kind::commit;
    return work;
  }
  bool is_ready() const override { return progress->completed >= wanted; }
  bool only_tells(const Cta& cta) const override {
    return std::find(destinations.begin(), destinations.end(), &cta) != destinations.end();
  }
  void complete(Launch& launch) override {
    for (Cta* cta : destinations) {
      Mbarrier* found = cta->find_mbarrier(barrier);
      if (race_ && found != nullptr && found->race) {
        found->race->complete(*race_);
        found->race->pending.raise(progress->race_agent, static_cast<U32>(wanted));
      }
      complete_arrival(launch, *cta, barrier, place_);
    }
  }
};

// number: cta_group; flags: space | 256 multicast. op: barrier, mask?.
Step commit(Warp& w, const Instruction& in, Mask active) {
  if (!enter_tensor_core(w, in, static_cast<int>(in.number))) return Step::fault;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<Commit>(w, in, lane);
    const std::uint64_t address = lane_address(w, in.op[0], lane);
    auto space = static_cast<Space>(in.flags & 255);
    // ptxas makes the same machine code of both forms: the low word, a shared address, names the barrier.
    if (space == Space::generic && address >> 32 == 0) {
      w.hazard(in, "shared-address-as-generic", lane, address,
               "a shared address where the instruction takes a generic one; its low word is taken",
               ".shared::cluster is missing, or cvta.shared (__cvta_shared_to_generic)");
      space = Space::shared_cluster;
    }
    Target target;
    if (!shared_target(w, in, space, lane, address, 8, target)) return Step::fault;
    if ((address & 7) != 0) return report_misaligned(w, in, lane, address, 8);
    operation->barrier = target.offset;
    const Cluster& cluster = *w.cta->cluster;
    if ((in.flags & 256) == 0) {
      operation->destinations.push_back(target.cta);
    } else {
      const auto mask = read_lane<std::uint16_t>(w, in.op[1], lane);
      for (U32 rank = 0; rank < 16; ++rank) {
        if (((mask >> rank) & 1) == 0) continue;
        if (rank >= cluster.ctas.size())
          return w.fault_at(in, "multicast-mask", lane, mask,
                            fmt::format("the mask names CTA rank {} of {}", rank, cluster.ctas.size()));
        operation->destinations.push_back(cluster.ctas[rank].get());
        check_init_fence(w, in, lane, *cluster.ctas[rank], target.offset);
      }
    }
    operation->wanted = w.tensor.progress_of(lane).issued;
    if (operation->wanted == 0)
      w.hazard(in, "tcgen05-commit-tracks-nothing", lane, address,
               "this thread has issued no tensor operation: the barrier is arrived at without waiting for any",
               "the mma and its commit are executed by different threads");
    operation->progress = w.tensor.progress[static_cast<std::size_t>(lane)];
    w.launch->async.push(std::move(operation), *w.launch);
  }
  w.tensor.fence_before(++w.launch->tmem_clock);  // implied, PTX ISA
  return Step::next;
}

}  // namespace

Handler tcgen05_commit(const Decoded& d) {
  d.in->number = d.has("cta_group::2") ? 2 : 1;
  d.in->flags =
      static_cast<std::uint16_t>(static_cast<unsigned>(space_of(d)) | (d.has("multicast::cluster") ? 256u : 0u));
  return commit;
}

}  // namespace tessera::emulator::bind
