// Work of different streams that touches the same memory with nothing to order it. With the race detector alone.
//
// On a GPU two streams run side by side; here most work runs in the order in which it was asked for, so a missing event
// shows in no result. Each piece of work gets a place: how much of each stream comes before it, by the rules of the
// programming guide: its own stream; the legacy stream and streams that it waits for; events; what the host has waited
// for. What it does to global memory is kept (launches: the race detector's footprint; copies, fills, allocations and
// frees: ranges) until the host has waited for it, and is compared with what comes later and not behind it.
//
// Lenient on purpose: what threads of the host wait for counts for all of them; a graph is one piece of work, and its
// launches follow each other; work that waits in turns (turns.h), and host functions, count as waited for, with all
// before them; kernels that tell each other by atomics are ordered; of two launches only memory that the host has
// allocated is compared, no __device__ variables; and accesses of the host are not seen.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "guest/work.h"

namespace tessera::emulator {
class RaceDetector;
struct GridFootprint;
}  // namespace tessera::emulator

namespace tessera::guest {

class StreamOrder {
 public:
  static StreamOrder& instance();

  /// Runs the work (guest::perform) as the stream's next piece. `is_waited_for`: the host goes on when it is done.
  cudaError_t perform(StreamState& stream, const Work& work, bool is_waited_for);
  /// The same in two steps, for work that may not be done yet.
  void begin(StreamState& stream, const Work& work);
  void end(bool is_done, bool is_waited_for);

  // Of the work that runs now.
  void note_launch(const emulator::RaceDetector& race);
  void note(const Box& box);
  void note(const Fill& fill);
  void note_record(EventState& event) const;

  void wait(StreamState& stream, const EventState& event);
  void host_waited_for(StreamState& stream);
  void host_waited_for(const EventState& event);
  /// The host has waited for all, or it is not known what for.
  void forget();
  /// Memory that was not there before: what others did at its addresses is no matter.
  void made(std::uint64_t address, std::size_t bytes);

 private:
  struct Range {
    std::uint64_t begin = 0, end = 0;
    bool is_written = false;
  };
  struct Piece {
    std::uint64_t stream = 0, place = 0, number = 0;
    std::string what;
    std::vector<Range> ranges{};
    std::vector<std::shared_ptr<const emulator::GridFootprint>> footprints{};
    std::size_t pages() const;
  };
  struct Birth {
    std::uint64_t end = 0, number = 0;
  };
  struct Conflict;

  bool is_on() const { return Session::instance().options().detects_races; }
  StreamClock before(StreamState& stream) const;
  void add_range(const void* first, std::size_t bytes, bool is_written);
  void add_rows(const void* first, std::size_t pitch, std::size_t slice, std::size_t width, std::size_t height,
                std::size_t depth, bool is_written);
  bool is_older_than_memory(const Piece& piece, std::uint64_t address) const;
  void compare(const Piece& earlier, const Piece& later) const;
  void report(const Piece& earlier, const Piece& later, const Conflict& conflict) const;
  void drop_waited_for();

  StreamClock host_;
  std::deque<Piece> pieces_;  ///< that the host has not waited for
  std::size_t pages_ = 0;     ///< of their footprints
  Piece current_;
  StreamClock now_;  ///< what comes before the work that runs, and itself
  bool has_current_ = false;
  std::uint64_t next_ = 1;
  std::map<std::uint64_t, Birth> births_;
};

}  // namespace tessera::guest
