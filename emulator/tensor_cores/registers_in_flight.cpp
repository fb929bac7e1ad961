// Registers that a wgmma or a tcgen05.ld has not written yet, or whose result nobody has read: what other instructions
// do to them meanwhile.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/tensor_cores/wgmma.h"

namespace tessera::emulator {

void use_result(Launch& launch, WgmmaResult& first) {
  WgmmaResult& result = first.last();
  result.is_used = true;
  for (EmulatorFinding& finding : result.findings) launch.findings.add(std::move(finding));
  result.findings.clear();
}

void watch_unread(Warp& warp) {
  WarpAsync& async = warp.async;
  async.watches_unread = async.watches_unread && !async.unread.empty();
  if (async.watches_unread) {
    async.unread_places.assign(warp.launch->entry.register_file_bytes / 64 + 1, false);
    for (const WarpAsync::Unread& unread : async.unread)
      for (int j = 0; j < unread.in->op[0].count; ++j)
        async.unread_places[unread.in->op[0].elements[j].offset / 64] = true;
  }
  warp.update_watch();
}

namespace {

bool is_register(const Operand& op) { return op.kind == Operand::Kind::reg && !op.is_immediate; }

/// The operands D and A of a wgmma name this register.
bool names(const Instruction& wgmma, std::uint32_t offset) {
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < wgmma.op[i].count; ++j)
      if (wgmma.op[i].elements[j].offset == offset) return true;
  return false;
}

/// A move of one register in flight into another that no wgmma uses: left for the wait. False: it is no such move.
bool defer_copy(WarpAsync& async, const Instruction& in, Mask active) {
  if (in.form->mnemonic != "mov" || in.num_operands != 2 || !is_register(in.op[0]) || !is_register(in.op[1]))
    return false;
  bool is_in_flight = false;
  std::uint64_t group = 0;
  const auto wait_for = [&](std::uint64_t other) {
    is_in_flight = true;
    group = std::max(group, other);
  };
  for (const WarpAsync::InFlight& flight : async.in_flight) {
    if (names(*flight.in, in.op[0].offset)) return false;
    if (names(*flight.in, in.op[1].offset)) wait_for(flight.group);
  }
  for (const WarpAsync::Copy& copy : async.copies)
    if (copy.in->op[0].offset == in.op[1].offset) wait_for(copy.group);
  if (!is_in_flight) return false;
  async.copies.push_back({&in, active, group});
  async.in_flight_places[in.op[0].offset / 64] = true;
  return true;
}

/// A wgmma that adds to what was copied, or takes a copy, before the wait: which value the copy has is then open.
bool meets_copy(const WarpAsync& async, const Instruction& wgmma) {
  if (wgmma.form->mnemonic != "wgmma.mma_async") return false;
  return std::any_of(async.copies.begin(), async.copies.end(), [&](const WarpAsync::Copy& copy) {
    return names(wgmma, copy.in->op[0].offset) || names(wgmma, copy.in->op[1].offset);
  });
}

}  // namespace

bool Warp::check_registers(const Instruction& in, Mask active) {
  if (has_late_loads) perform_late_loads(in, active);
  if (!undecided.empty()) follow_values(*this, in, active);
  const auto refuse = [&] {
    fault(in, "wgmma-register-in-flight", "a register of a wgmma that was not waited for is read or written",
          "wgmma.wait_group is missing, or leaves one group too many in flight");
    return false;
  };
  if (in.form->mnemonic.substr(0, 5) == "wgmma") return meets_copy(async, in) ? refuse() : true;
  const auto touches = [&](const std::vector<bool>& places) {
    const auto is_one = [&](const Operand& op) {
      const bool is_register = op.kind == Operand::Kind::reg || op.kind == Operand::Kind::address;
      return is_register && !op.is_immediate && places[op.offset / 64];
    };
    for (int i = 0; i < in.num_operands; ++i) {
      if (is_one(in.op[i])) return true;
      for (int j = 0; j < in.op[i].count; ++j)
        if (is_one(in.op[i].elements[j])) return true;
    }
    return false;
  };
  if (!tensor.loads.empty() && in.form->mnemonic == "mov" && touches(tensor.load_places)) {
    // Compilers copy registers wherever they like, and the assembler knows a copy for what it is: it waits as well.
    for (int i = 0; i < in.num_operands; ++i) {
      if (in.op[i].kind == Operand::Kind::reg && !in.op[i].is_immediate)
        tensor.load_places[in.op[i].offset / 64] = true;
      for (int j = 0; j < in.op[i].count; ++j) tensor.load_places[in.op[i].elements[j].offset / 64] = true;
    }
  } else if (!tensor.loads.empty() && in.form->mnemonic != "tcgen05.ld" && touches(tensor.load_places)) {
    hazard(in, "missing-tcgen05-wait", -1, 0,
           fmt::format("a register of {} (PTX line {}) is used before tcgen05.wait::ld", tensor.loads.back().in->opcode,
                       tensor.loads.back().in->line),
           "the load may not have arrived: tcgen05.wait::ld must come first");
    tensor.loads.clear();  // once is enough
    watch_unread(*this);
  }
  if (async.watches_unread && touches(async.unread_places)) {
    std::erase_if(async.unread, [&](const WarpAsync::Unread& unread) {
      std::vector<bool> places(async.unread_places.size(), false);
      for (int j = 0; j < unread.in->op[0].count; ++j) places[unread.in->op[0].elements[j].offset / 64] = true;
      if (!touches(places)) return false;
      use_result(*launch, *unread.result);
      return true;
    });
    watch_unread(*this);
  }
  if (async.in_flight.empty() || !touches(async.in_flight_places)) return true;
  return defer_copy(async, in, active) || refuse();
}

}  // namespace tessera::emulator
