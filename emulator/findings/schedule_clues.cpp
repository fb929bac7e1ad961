#include "emulator/findings/schedule_clues.h"

#include "emulator/random.h"

namespace tessera::emulator {

// A sum over executions: in which order warps came does not count.
void ScheduleClues::note_activemask(const Warp& warp, const Instruction& in, Mask lanes) {
  Clue& clue = activemasks_[&in];
  if (clue.place.in == nullptr) clue.place = warp.place(in, -1);
  clue.signature += Random(lanes).next();
}

void ScheduleClues::note_torn(const Warp& warp, const Instruction& in, int lane) {
  Clue& clue = torn_[&in];
  if (clue.place.in == nullptr) clue.place = warp.place(in, lane);
  ++clue.signature;
}

std::vector<ScheduleClue> ScheduleClues::all() const {
  std::vector<ScheduleClue> clues;
  for (const auto& [in, clue] : activemasks_) {
    EmulatorFinding finding = clue.place.finding("activemask-by-schedule");
    finding.message = "outputs differ, and activemask gave other lanes than under the first schedule, which may be why";
    finding.cause =
        "lanes of one branch need not run together. Where the mask is taken for all of them: name the lanes that the "
        "algorithm means, and let __syncwarp bring them together; one atomic for whichever lanes are there is right";
    clues.push_back({std::move(finding), clue.signature});
  }
  for (const auto& [in, clue] : torn_) {
    EmulatorFinding finding = clue.place.finding("vector-access-torn");
    finding.message = "outputs differ, and this load met one element of a vector store and another from before it";
    finding.cause =
        "a vector access is several scalar ones in no order: data and its flag belong into one scalar of 64 or 128 "
        "bits, or the flag is stored with release and loaded with acquire on its own";
    clues.push_back({std::move(finding), clue.signature});
  }
  return clues;
}

}  // namespace tessera::emulator
