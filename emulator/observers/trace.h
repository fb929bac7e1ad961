// One line for each executed instruction, made for grep:
//
//   cta=0,0,0 warp=3 pc=17 line=45 mask=ffffffff ld.shared.f32 0x3fc00000*, [0x404]*  # %f0, [%r8]
//
// Values are the first active lane's after the instruction, a star says that other lanes hold other ones, predicates
// are masks; behind # stand the operands as the source spells them. An instruction that has to wait ends with "waits"
// and comes again.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/observers/observer.h"

namespace tessera::emulator {

class TraceObserver final : public Observer {
 public:
  /// The file stays open and the caller's.
  explicit TraceObserver(std::FILE* file) : file_(file) {}
  void started(const Launch& launch) override;
  void after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t time) override;

 private:
  void append_operand(std::string& line, const Warp& warp, const Operand& op, int lane, Mask active) const;
  std::string_view source_operands(const Instruction& in) const;

  std::FILE* file_;
  std::vector<std::string_view> lines_;  ///< of the PTX
};

}  // namespace tessera::emulator
