// Registers that a thread reads though no instruction of it has written them, and where their values end up.
//
// Compilers read such registers where it does not matter: the side that selp does not take, accumulators that a product
// ignores, the upper half of a pair that is cut off again. So a read alone is no finding: each byte of each register of
// each lane has a mark, "holds what nobody wrote", which moves with the value through whatever only computes. It is
// reported where it is stored to global or shared memory, is an address, or decides a branch, a barrier, a copy, or
// whether a store is executed. A write under a guard that is false is no write. Loads end the chain: memory has marks
// of its own.
//
// An observer: a launch without it runs a loop that knows nothing of marks. Registers then have places of their own
// (assign_registers), so that one's mark is never another's.
#pragma once

#include <array>
#include <vector>

#include "emulator/machine.h"
#include "emulator/observers/observer.h"

namespace tessera::emulator {

/// Of a warp, by place (offset / 4: as many numbers as a register has bytes, times eight).
struct RegisterMarks {
  std::vector<Mask> any;    ///< lanes of which some byte is unwritten
  std::vector<Mask> bytes;  ///< byte k at place + k, where is_split
  std::vector<std::uint8_t> is_split;
  std::vector<std::int32_t> where;  ///< PTX line that read the unwritten register first; 0: not read yet

  // Of the instruction that runs.
  using Bytes = std::array<Mask, 16>;
  bool is_clean = true;         ///< no source is marked
  std::int32_t read_at = 0;     ///< `where` of what it computes
  std::vector<Bytes> computed;  ///< result by result

  Mask byte(std::uint32_t place, std::size_t k) const { return is_split[place] != 0 ? bytes[place + k] : any[place]; }
};

/// How an instruction's result depends on the bytes of its sources.
enum class Spread : std::uint8_t {
  nothing,   ///< it does not: a load, a barrier
  whole,     ///< on all of them
  moves,     ///< bytes in order: mov, also of pairs
  bytewise,  ///< byte on byte: xor, lop3
  carries,   ///< byte on all up to it: add, mul.lo
  halves,    ///< f16x2 and its like
  masks,     ///< and: a zero decides alone
  raises,    ///< or: ones do
  chooses,   ///< selp
  shifts_left,
  shifts_right,
  permutes,   ///< prmt
  extracts,   ///< bfe
  converts,   ///< cvt between integers
  shuffles,   ///< on another lane's
  joins,      ///< on all lanes': redux, vote
  multiplies  ///< wgmma: accumulators count where scale-d is true
};

struct RegisterUse {
  std::uint32_t place = 0;
  std::uint8_t bytes = 0;  ///< that count
  std::uint8_t operand = 0;
  std::uint8_t element = 0;  ///< of a list
  bool decides = false;      ///< its value matters here
};

/// What an instruction does with registers.
struct RegisterFlow {
  Spread spread = Spread::nothing;
  bool matters = false;  ///< it is executed or not: a guard that nobody wrote is reported
  bool is_address_only = false;
  std::uint8_t read_bytes = 0;  ///< cvt
  bool is_signed = false;
  std::vector<RegisterUse> sources, results;
};

/// Of every instruction of the entry.
std::vector<RegisterFlow> register_flows(const Entry& entry);

/// Keeps nothing of its own while it watches: all parts of a grid may have it at once.
class UnwrittenRegisters final : public Observer {
 public:
  explicit UnwrittenRegisters(const Entry& entry);
  void before(Warp& warp, const Instruction& in, Mask active, std::uint64_t time) override;
  void after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t time) override;

 private:
  std::vector<RegisterFlow> flows_;  ///< none: the entry is not followed
};

}  // namespace tessera::emulator
