// PTX ISA, "Control Flow Instructions" and "Miscellaneous Instructions".
#include "emulator/bind.h"
#include "emulator/lanes.h"

namespace tessera::emulator::bind {
namespace {

// The guard has split the group already: `active` lanes jump, the others go on. The part with the lower pc runs first.
Step branch(Warp& w, const Instruction& in, Mask active) {
  const auto target = static_cast<std::uint32_t>(in.op[0].value);
  if (active == w.mask) {
    const bool is_backward = target <= w.pc;
    w.pc = target;
    if (is_backward) w.update_merge_pc();
    return Step::jumped;
  }
  Group other;
  other.mask = w.mask & ~active;
  other.pc = w.pc + 1;
  w.mask = active;
  w.pc = target;
  if (other.pc < target) {
    std::swap(other.pc, w.pc);
    std::swap(other.mask, w.mask);
  }
  w.parked.push_back(other);
  w.update_merge_pc();
  return Step::jumped;
}

Step leave(Warp& w, const Instruction&, Mask active) {
  if (w.exit_lanes(active)) return Step::exited;
  ++w.pc;
  return Step::jumped;
}

Step stop(Warp& w, const Instruction& in, Mask active) {
  return w.fault(in, "trap", "the kernel executed trap", "an assertion of the kernel's own failed", first_lane(active));
}

Step yield(Warp&, const Instruction&, Mask) { return Step::yielded; }

}  // namespace

Handler bra(const Decoded&) { return branch; }
Handler exit(const Decoded&) { return leave; }
Handler trap(const Decoded&) { return stop; }
Handler nanosleep(const Decoded&) { return yield; }

}  // namespace tessera::emulator::bind
