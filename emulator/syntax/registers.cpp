// Places for virtual registers in a warp's register file. A register whose uses all lie in one basic block gives its
// place back after the last of them; all others keep theirs to the end.
#include <algorithm>
#include <map>

#include "emulator/syntax/isa.h"
#include "emulator/syntax/resolver.h"

namespace tessera::emulator {
namespace {

constexpr std::uint32_t kNoBlock = 0xFFFFFFFF;

std::uint32_t place_bytes(Type type) {
  const int bytes = register_bytes(type);
  return bytes == 0 ? 4 : static_cast<std::uint32_t>(bytes * kLanes);
}

/// Calls f(operand) for every register operand of the instruction, those in lists included.
template <class F>
void for_registers(const Instruction& in, F f) {
  const auto visit = [&](const Operand& op) {
    if (op.kind == Operand::Kind::reg || op.kind == Operand::Kind::predicate || op.kind == Operand::Kind::address)
      f(const_cast<Operand&>(op));
  };
  for (int i = 0; i < in.num_operands; ++i) {
    visit(in.op[i]);
    for (int j = 0; j < in.op[i].count; ++j) visit(in.op[i].elements[j]);
  }
}

class Allocator {
 public:
  Allocator(Entry& entry, std::vector<VirtualRegister>& registers)
      : entry_(entry), registers_(registers), lives_(registers.size()), offsets_(registers.size(), kNoBlock) {}

  void run(bool shares_places) {
    find_blocks();
    for (std::uint32_t i = 0; i < entry_.code.size(); ++i) note_uses(i);
    find_unread_atomics();
    if (shares_places) place_shared();
    place_rest();
    patch();
  }

 private:
  struct Life {
    std::uint32_t block = kNoBlock;
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    bool is_local = true;
  };

  // A block starts at a branch's target and after every instruction that may branch or end.
  void find_blocks() {
    std::vector<bool> leader(entry_.code.size() + 1, false);
    for (std::uint32_t i = 0; i < entry_.code.size(); ++i) {
      const Instruction& in = entry_.code[i];
      const auto note = [&](const Operand& op) {
        if (op.kind != Operand::Kind::label) return;
        leader[static_cast<std::size_t>(op.value)] = true;
        leader[i + 1] = true;
      };
      for (int j = 0; j < in.num_operands; ++j) {
        note(in.op[j]);
        for (int k = 0; k < in.op[j].count; ++k) note(in.op[j].elements[k]);
      }
    }
    // What a call that is not expanded leaves behind may be another function's; so nothing local lives across it.
    for (const OutOfLine& function : entry_.functions) leader[function.pc] = true;
    if (!entry_.functions.empty())
      for (std::uint32_t i = 0; i < entry_.code.size(); ++i)
        if (entry_.code[i].form->mnemonic == "call" || entry_.code[i].form->mnemonic == "ret") leader[i + 1] = true;
    leader[entry_.start_pc] = true;
    block_of_.resize(entry_.code.size());
    std::uint32_t block = 0;
    for (std::uint32_t i = 0; i < entry_.code.size(); ++i) block_of_[i] = leader[i] ? ++block : block;
  }

  void note_uses(std::uint32_t i) {
    const Instruction& in = entry_.code[i];
    if (in.guard != kNoGuard) note(in.guard, i, false);
    // Sources count before destinations: an instruction reads before it writes.
    for_registers(in, [&](Operand& op) {
      if (!op.is_destination) note(op.offset, i, false);
    });
    for_registers(in, [&](Operand& op) {
      if (op.is_destination) note(op.offset, i, in.guard == kNoGuard);
    });
  }

  void note(std::uint32_t id, std::uint32_t i, bool is_full_definition) {
    Life& life = lives_[id];
    if (life.block == kNoBlock) {
      life = {block_of_[i], i, i, is_full_definition && !registers_[id].is_pinned};
    } else {
      life.is_local = life.is_local && life.block == block_of_[i];
      life.last = i;
    }
  }

  // Compilers write atom where red would do, with a result of its own.
  void find_unread_atomics() {
    for (std::uint32_t i = 0; i < entry_.code.size(); ++i) {
      const Instruction& in = entry_.code[i];
      if (in.form->mnemonic != "atom") continue;
      bool is_read = false;
      for_registers(in, [&](const Operand& result) {
        if (!result.is_destination) return;
        const Life& life = lives_[result.offset];
        is_read = is_read || life.first != i || life.last != i || registers_[result.offset].is_pinned;
        for_registers(in, [&](const Operand& source) {
          is_read = is_read || (!source.is_destination && source.offset == result.offset);
        });
        is_read = is_read || in.guard == result.offset;
      });
      if (!is_read) entry_.unread_atomics.push_back(i);
    }
  }

  // Walks the code; a place is free again after the last use within the block.
  void place_shared() {
    std::map<std::uint32_t, std::vector<std::uint32_t>> free_places;  // by size
    std::multimap<std::uint32_t, std::uint32_t> ends;                 // last use -> register
    std::vector<std::vector<std::uint32_t>> starting(entry_.code.size());
    for (std::uint32_t id = 0; id < lives_.size(); ++id)
      if (lives_[id].block != kNoBlock && lives_[id].is_local) starting[lives_[id].first].push_back(id);
    for (std::uint32_t i = 0; i < entry_.code.size(); ++i) {
      // Strictly before i: a destination must not share with a source of the same instruction, whose lanes may be read
      // after the first lane was written.
      while (!ends.empty() && ends.begin()->first < i) {
        const std::uint32_t id = ends.begin()->second;
        free_places[place_bytes(registers_[id].type)].push_back(offsets_[id]);
        ends.erase(ends.begin());
      }
      for (const std::uint32_t id : starting[i]) {
        std::vector<std::uint32_t>& places = free_places[place_bytes(registers_[id].type)];
        if (places.empty()) {
          offsets_[id] = grow(place_bytes(registers_[id].type));
        } else {
          offsets_[id] = places.back();
          places.pop_back();
        }
        ends.emplace(lives_[id].last, id);
      }
    }
  }

  void place_rest() {
    for (std::uint32_t id = 0; id < offsets_.size(); ++id)
      if (offsets_[id] == kNoBlock && (lives_[id].block != kNoBlock || registers_[id].is_pinned))
        offsets_[id] = grow(place_bytes(registers_[id].type));
  }

  std::uint32_t grow(std::uint32_t bytes) {
    if (bytes >= 64) size_ = (size_ + 63) / 64 * 64;
    const std::uint32_t offset = size_;
    size_ += bytes;
    return offset;
  }

  void patch() {
    for (Instruction& in : entry_.code) {
      if (in.guard != kNoGuard) in.guard = offsets_[in.guard];
      for_registers(in, [&](Operand& op) { op.offset = offsets_[op.offset]; });
    }
    for (OutOfLine& function : entry_.functions) {
      std::vector<RegisterPlace> kept;
      for (const RegisterPlace& reg : function.registers)
        if (lives_[reg.offset].block != kNoBlock && !lives_[reg.offset].is_local)
          kept.push_back({offsets_[reg.offset], reg.bytes});
      function.registers = std::move(kept);
      for (OutOfLine::Address& address : function.addresses) address.place.offset = offsets_[address.place.offset];
    }
    for (ConstantSlot& slot : entry_.constants) slot.offset = offsets_[slot.offset];
    for (SpecialSlot& slot : entry_.specials) slot.offset = offsets_[slot.offset];
    entry_.register_file_bytes = (size_ + 63) / 64 * 64;
  }

  Entry& entry_;
  std::vector<VirtualRegister>& registers_;
  std::vector<Life> lives_;
  std::vector<std::uint32_t> offsets_;
  std::vector<std::uint32_t> block_of_;
  std::uint32_t size_ = 0;
};

}  // namespace

void assign_registers(Entry& entry, std::vector<VirtualRegister>& registers, bool shares_places) {
  Allocator(entry, registers).run(shares_places);
}

}  // namespace tessera::emulator
