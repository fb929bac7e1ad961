// PTX ISA, "tcgen05.alloc, tcgen05.dealloc, tcgen05.relinquish_alloc_permit", "tcgen05.wait", "tcgen05.fence".
//
// With .cta_group::2 a warp of each CTA of the pair takes part: the n-th such instruction of one CTA meets the n-th of
// the other. What alloc writes to shared memory is an ordinary store of its warp, whose lanes have all executed the
// alloc and may read it at once; others read it after a barrier. Public kernels that run on hardware have no
// tcgen05.fence there, nor between their last loads, once waited for, and dealloc, so none is asked for. alloc blocks
// until both are there; dealloc may block (PTX leaves it open), so it does
// under the lazy, adversarial and split schedules and does not under the others.
#include <fmt/format.h>

#include <bit>

#include "emulator/tensor_cores/tensor_core.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;

int group_of(const Instruction& in) { return static_cast<int>(in.number); }

// The pair's other warp has come to its instruction of the same number. False: the handler returns `out`.
bool pair_is_there(Warp& w, const Instruction& in, Step& out) {
  if (group_of(in) == 1) return true;
  TensorMemory& memory = *w.cta->tensor_memory;
  if (w.tensor.pair_operation == 0) {
    w.tensor.pair_operation = ++memory.pair_operations;
    ++w.launch->progress;
  }
  if (peer_of(*w.cta)->tensor_memory->pair_operations >= w.tensor.pair_operation) return true;
  out = w.block({Wait::Kind::tensor_pair, 0, w.tensor.pair_operation, 0});
  return false;
}

bool check_columns(Warp& w, const Instruction& in, U32 columns) {
  if (columns >= kTmemUnit && columns <= kTmemColumns && std::has_single_bit(columns)) return true;
  w.fault(in, "tmem-columns",
          fmt::format("{} columns: must be a power of two from {} to {}", columns, kTmemUnit, kTmemColumns));
  return false;
}

// op: address in shared memory, columns.
Step alloc(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  if (!enter_tensor_core(w, in, group_of(in))) return Step::fault;
  TensorMemory& memory = *w.cta->tensor_memory;
  const U32 columns = uniform<U32>(w, in.op[1], active);
  if (!check_columns(w, in, columns)) return Step::fault;
  if (memory.permit_given_up)
    return w.fault(in, "tmem-permit", "tcgen05.alloc after tcgen05.relinquish_alloc_permit of this CTA",
                   "the CTA gave up its right to allocate");
  const int lane = first_lane(active);
  const std::uint64_t address = lane_address(w, in.op[0], lane);
  Target target;
  if (!shared_target(w, in, static_cast<Space>(in.flags), lane, address, 4, target)) return Step::fault;
  if ((address & 3) != 0) return report_misaligned(w, in, lane, address, 4);
  if (!pair_is_there(w, in, out)) return out;
  if (!memory.has_room(static_cast<int>(columns))) return w.block({Wait::Kind::tensor_space, columns, 0, 0});
  w.tensor.pair_operation = 0;
  const auto first = static_cast<U32>(memory.allocate(static_cast<int>(columns)));
  memory.last_alloc = &in;
  memory.last_alloc_warp = w.index;
  std::memcpy(target.data, &first, sizeof(first));
  // No fence.proxy.async is asked for before a copy to this place: who uses the address has loaded it by then.
  const std::uint64_t stamp = target.cta->written_at[target.offset / 16];
  note_written(w, target, sizeof(first));
  target.cta->written_at[target.offset / 16] = stamp;
  if (w.race) {
    w.launch->race->access(w, in, Mask{1} << lane, target, sizeof(first), {true, false, false});
    w.launch->race->meet(w, active);
  }
  ++w.launch->progress;
  return Step::next;
}

// Why [address, columns) cannot be given back; false after a report.
bool check_block(Warp& w, const Instruction& in, U32 address, U32 columns) {
  const TensorMemory& memory = *w.cta->tensor_memory;
  const int first = tmem_column(address);
  const int size = tmem_lane(address) == 0 ? memory.block_at(first) : 0;
  if (size == 0 || static_cast<U32>(size) != columns) {
    w.fault_at(in, "tmem-free", -1, address,
               size == 0 ? fmt::format("no allocation starts at Tensor Memory address 0x{:x}; allocated: {}", address,
                                       memory.describe_blocks())
                         : fmt::format("{} columns at 0x{:x}: the allocation there has {}", columns, address, size),
               "the shared-memory pointer instead of the address stored there, an address with an offset, or another "
               "number of columns");
    return false;
  }
  const TmemUse* use = memory.find_use({first, first + size, 15}, false);
  if (use == nullptr) return true;
  w.fault_at(in, "tmem-free-in-flight", -1, address,
             fmt::format("{} (PTX line {}) still uses these columns", use->in->opcode, use->in->line),
             "tcgen05.commit and the wait on its mbarrier must come before tcgen05.dealloc");
  return false;
}

// Hazards of giving back what other warps may still be storing or loading. A load that nobody waited for is reported
// where its registers are read.
void check_transfers_are_over(Warp& w, const Instruction& in, const TmemRegion& region) {
  const auto address = static_cast<std::uint64_t>(region.first);
  for (const Warp& warp : w.cta->warps) {
    for (const WarpTensor::Transfer& store : warp.tensor.stores) {
      if (!store.region.overlaps(region)) continue;
      w.hazard(in, "missing-tcgen05-wait", -1, address,
               fmt::format("warp {}'s {} to columns {} to {} (PTX line {}) was not waited for; they are freed here",
                           warp.index, store.in->opcode, store.region.first, store.region.end - 1, store.in->line),
               "tcgen05.wait::st must come before the barrier that lets this instruction start");
      return;
    }
    const WarpTensor::Transfer& last = warp.tensor.last_transfer;
    if (!w.race || &warp == &w || last.in == nullptr || !last.region.overlaps(region)) continue;
    if (w.launch->race->is_transfer_over(w, warp, warp.tensor.transferred_at)) continue;
    // The cluster barrier lets nobody pass before that warp has arrived or has ended. No memory is handed over, so this
    // holds for a relaxed arrival too.
    if (w.cluster_waited > warp.tensor.arrivals_at_transfer) continue;
    w.hazard(in, "tmem-free-unordered", -1, address,
             fmt::format("nothing orders this after warp {}'s {} of columns {} to {} (PTX line {})", warp.index,
                         last.in->opcode, last.region.first, last.region.end - 1, last.in->line),
             "a barrier that every warp passes after its last tcgen05.ld or .st must come before tcgen05.dealloc");
    return;
  }
}

// op: address, columns.
Step dealloc(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  if (!enter_tensor_core(w, in, group_of(in))) return Step::fault;
  const U32 address = uniform<U32>(w, in.op[0], active);
  const U32 columns = uniform<U32>(w, in.op[1], active);
  if (!check_block(w, in, address, columns)) return Step::fault;
  const int first = tmem_column(address);
  if (w.tensor.pair_operation == 0)
    check_transfers_are_over(w, in, {first, first + static_cast<int>(columns), (1u << kTmemQuarters) - 1});
  const Schedule schedule = w.launch->options.schedule;
  const bool blocks = schedule == Schedule::lazy || is_random(schedule);
  if (!pair_is_there(w, in, out) && blocks) return out;
  w.tensor.pair_operation = 0;
  w.cta->tensor_memory->release(tmem_column(address));
  ++w.launch->progress;
  return Step::next;
}

Step relinquish(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  if (!enter_tensor_core(w, in, group_of(in))) return Step::fault;
  w.cta->tensor_memory->permit_given_up = true;
  return Step::next;
}

Step wait_loads(Warp& w, const Instruction&, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  w.tensor.loads.clear();
  w.update_watch();
  return Step::next;
}
Step wait_stores(Warp& w, const Instruction&, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  w.tensor.stores.clear();
  return Step::next;
}

// Any lane's fence counts for its warp: tcgen05.ld and .st are the warp's, the others one elected lane's.
Step fence_before(Warp& w, const Instruction&, Mask) {
  w.tensor.fence_before(++w.launch->tmem_clock);
  return Step::next;
}
Step fence_after(Warp& w, const Instruction&, Mask) {
  w.tensor.fence_after = ++w.launch->tmem_clock;
  return Step::next;
}

void set_group(const Decoded& d) { d.in->number = d.has("cta_group::2") ? 2 : 1; }

}  // namespace

Handler tcgen05_alloc(const Decoded& d) {
  set_group(d);
  d.in->flags = static_cast<std::uint16_t>(space_of(d));
  return alloc;
}
Handler tcgen05_dealloc(const Decoded& d) {
  set_group(d);
  return dealloc;
}
Handler tcgen05_relinquish(const Decoded& d) {
  set_group(d);
  return relinquish;
}
Handler tcgen05_wait(const Decoded& d) { return d.form->mnemonic == "tcgen05.wait::ld" ? wait_loads : wait_stores; }
Handler tcgen05_fence(const Decoded& d) {
  return d.form->mnemonic == "tcgen05.fence::before_thread_sync" ? fence_before : fence_after;
}

}  // namespace tessera::emulator::bind
