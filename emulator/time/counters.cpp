#include "emulator/time/counters.h"

#include <bit>

#include "emulator/memory/access.h"

namespace tessera::emulator {

bool TileCounters::is_form(const Instruction& in) {
  const bool adds = in.opcode.starts_with("atom.") && in.opcode.find(".shared") == std::string_view::npos &&
                    (in.opcode.ends_with("add.u32") || in.opcode.ends_with("add.s32"));
  return adds && in.num_operands >= 3 && in.op[0].kind == Operand::Kind::reg && !in.op[0].is_sink;
}

Step TileCounters::take(Warp& warp, const Instruction& in, Mask active) {
  if (std::popcount(active) != 1) return in.run(warp, in, active);
  const int lane = std::countr_zero(active);
  const std::uint64_t address = lane_address(warp, in.op[1], lane);
  const Cta& cta = *warp.cta;
  const auto& grid = cta.launch->shape.grid;
  const std::uint64_t cluster =
      (cta.id[0] + std::uint64_t{grid[0]} * (cta.id[1] + std::uint64_t{grid[1]} * cta.id[2])) /
      cta.cluster->ctas.size();
  std::uint32_t& result = warp.reg<std::uint32_t>(in.op[0].offset)[lane];
  const std::uint32_t by = in.op[2].is_immediate ? static_cast<std::uint32_t>(in.op[2].value)
                                                 : warp.reg<std::uint32_t>(in.op[2].offset)[lane];
  const std::uint64_t turn = taken_[{cluster, address}]++;
  if (!begins_.contains(address)) {
    const Step step = in.run(warp, in, active);
    begins_.emplace(address, result);
    if (!known_.contains(&in)) return step;
  }
  // Who takes twice from the same place counts tiles.
  if (turn > 0 && known_.insert(&in).second) is_new_ = true;
  ++cta.launch->progress;
  const std::uint64_t taken = known_.contains(&in) ? cluster % resident_ + turn * resident_ : turn;
  result = begins_.at(address) + static_cast<std::uint32_t>(taken) * by;
  return Step::next;
}

}  // namespace tessera::emulator
