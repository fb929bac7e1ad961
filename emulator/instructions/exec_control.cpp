// PTX ISA, "Control Flow Instructions" and "Miscellaneous Instructions".
#include <fmt/format.h>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/lanes.h"

namespace tessera::emulator::bind {
namespace {

// The guard has split the group already: `active` lanes jump, the others go on. The part with the lower pc runs first.
// flags: 1 .uni.
Step branch(Warp& w, const Instruction& in, Mask active) {
  const auto target = static_cast<std::uint32_t>(in.op[0].value);
  if (active == w.mask) {
    const bool is_backward = target <= w.pc;
    w.pc = target;
    if (is_backward) w.update_merge_pc();
    return Step::jumped;
  }
  if ((in.flags & 1) != 0)
    w.hazard(in, "branch-not-uniform", -1, 0,
             fmt::format("lanes 0x{:08x} of 0x{:08x} jump: .uni says that all do or none", active, w.mask),
             "a guard that differs between the lanes of a warp");
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

// op: index, labels. Lanes go where their index says, each group of its own;
// the lowest pc runs first.
Step branch_indexed(Warp& w, const Instruction& in, Mask active) {
  const Operand& labels = in.op[1];
  std::vector<Group> groups;
  const auto add = [&groups](std::uint32_t pc, Mask lanes) {
    for (Group& group : groups)
      if (group.pc == pc) {
        group.mask |= lanes;
        return;
      }
    Group made;
    made.pc = pc;
    made.mask = lanes;
    groups.push_back(made);
  };
  if ((w.mask & ~active) != 0) add(w.pc + 1, w.mask & ~active);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto index = read_lane<std::uint32_t>(w, in.op[0], lane);
    if (index >= labels.count)
      return w.fault(in, "branch-index", fmt::format("index {} of a list of {} labels", index, labels.count), {}, lane);
    add(static_cast<std::uint32_t>(labels.elements[index].value), Mask{1} << lane);
  }
  w.split(std::move(groups));
  return Step::jumped;
}

Step leave(Warp& w, const Instruction&, Mask active) {
  if (w.exit_lanes(active)) return Step::exited;
  ++w.pc;
  return Step::jumped;
}

Step stop(Warp& w, const Instruction& in, Mask active) {
  const Launch& launch = *w.launch;
  if (launch.options.lacks_grid_workspace)
    return w.fault(
        in, "trap",
        fmt::format("the kernel executed {}, as the grid barrier of cooperative groups does in a launch that "
                    "is not cooperative: {} CTAs, of which {} run at once",
                    in.opcode, std::uint64_t{launch.shape.grid[0]} * launch.shape.grid[1] * launch.shape.grid[2],
                    launch.options.num_sms),
        "more multiprocessors are needed, or a smaller grid", first_lane(active));
  return w.fault(in, "trap", fmt::format("the kernel executed {}", in.opcode),
                 "an assertion of the kernel's own failed", first_lane(active));
}

Step yield(Warp&, const Instruction&, Mask) { return Step::yielded; }

}  // namespace

Handler bra(const Decoded& d) {
  d.in->flags = d.has("uni") ? 1 : 0;
  return branch;
}
Handler brx(const Decoded&) { return branch_indexed; }
Handler exit(const Decoded&) { return leave; }
Handler trap(const Decoded&) { return stop; }
Handler nanosleep(const Decoded&) { return yield; }

}  // namespace tessera::emulator::bind
