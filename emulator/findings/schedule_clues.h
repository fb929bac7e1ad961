// What a launch does by the schedule and not by the program alone: why outputs differ between schedules, where the race
// detector has nothing to say.
//
// activemask names the lanes that happen to run together. A program may use it for what any set of lanes does right
// (one atomic for several lanes); one that takes it for all that are in the branch is wrong when a warp is split.
// A vector access is as many scalar accesses in no order (PTX ISA, "Vector Data-types" of the memory consistency
// model): who polls a flag in one element may find another element of before.
#pragma once

#include <map>
#include <vector>

#include "emulator/machine.h"

namespace tessera::emulator {

class ScheduleClues {
 public:
  void note_activemask(const Warp& warp, const Instruction& in, Mask lanes);
  /// Of one vector store a load has met some elements and not the others.
  void note_torn(const Warp& warp, const Instruction& in, int lane);
  std::vector<ScheduleClue> all() const;

 private:
  struct Clue {
    InstructionPlace place;
    std::uint64_t signature = 0;
  };
  std::map<const Instruction*, Clue> activemasks_, torn_;
};

}  // namespace tessera::emulator
