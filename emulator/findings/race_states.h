// Cells of equal history are one state: a number for each 16 bytes of memory, and states that count their users.
//
// A tile that copies fill and products read has hundreds of pieces with the same few accesses, and each piece's cell is
// three cache lines. So a cell is a number of a state. Ordinary accesses, which differ from piece to piece by their
// lanes, take a state of their own and change it in place; an asynchronous operation does to equal cells the same, so
// what it made of a state is remembered, and the next piece is two numbers compared.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "emulator/findings/race_cell.h"

namespace tessera::emulator {

class RaceStates {
 public:
  using Id = std::uint32_t;  ///< 0: no access yet

  RaceStates() { make()->uses = 1; }
  RaceStates(const RaceStates&) = delete;
  RaceStates& operator=(const RaceStates&) = delete;

  const RaceCell& at(Id id) const { return blocks_[id / kBlock][id % kBlock]; }
  bool is_own(Id id) const { return id != 0 && at(id).uses == 1; }
  /// The state of this place alone, to be changed.
  RaceCell& own(Id& place) {
    RaceCell& now = cell(place);
    if (place != 0 && now.uses == 1) return now;
    const Id made = take();
    RaceCell& copy = cell(made);
    copy = at(place);
    copy.uses = 1;
    release(place);
    place = made;
    return copy;
  }
  void assign(Id& place, Id to) {
    retain(to);
    release(place);
    place = to;
  }
  void retain(Id id) {
    if (id != 0) ++cell(id).uses;
  }
  void release(Id id) {
    if (id == 0 || --cell(id).uses != 0) return;
    free_.push_back(id);
  }

 private:
  static constexpr Id kBlock = 1024;

  RaceCell& cell(Id id) { return blocks_[id / kBlock][id % kBlock]; }
  RaceCell* make() {
    if (count_ % kBlock == 0) blocks_.push_back(std::make_unique<RaceCell[]>(kBlock));
    return &cell(count_++);
  }
  Id take() {
    if (free_.empty()) {
      make();
      return count_ - 1;
    }
    const Id id = free_.back();
    free_.pop_back();
    return id;
  }

  std::vector<std::unique_ptr<RaceCell[]>> blocks_;
  std::vector<Id> free_;
  Id count_ = 0;
};

/// The cells of a piece of memory, 16 bytes each.
class RaceCells {
 public:
  RaceCells(std::shared_ptr<RaceStates> states, std::size_t count) : states_(std::move(states)), ids_(count, 0) {}
  RaceCells(const RaceCells&) = delete;
  RaceCells& operator=(const RaceCells&) = delete;
  ~RaceCells() {
    for (const RaceStates::Id id : ids_) states_->release(id);
  }
  const RaceCell& at(std::size_t i) const { return states_->at(ids_[i]); }
  RaceCell& own(std::size_t i) { return states_->own(ids_[i]); }
  RaceStates::Id& id(std::size_t i) { return ids_[i]; }
  std::size_t size() const { return ids_.size(); }

 private:
  std::shared_ptr<RaceStates> states_;
  std::vector<RaceStates::Id> ids_;
};

/// What one asynchronous operation makes of the states that it meets.
class RaceSteps {
 public:
  explicit RaceSteps(std::shared_ptr<RaceStates> states) : states_(std::move(states)) {}
  RaceSteps(RaceSteps&&) = default;
  RaceSteps& operator=(RaceSteps&&) = delete;
  ~RaceSteps() {
    if (states_) clear();
  }

  /// Whose steps: the operation, its record, and how it accesses.
  struct Key {
    std::uint64_t operation = 0;
    Agent agent = 0;
    std::uint32_t clock = 0;
    std::uint32_t lanes = 0;
    std::uint32_t how = 0;
    bool operator==(const Key&) const = default;
  };
  /// Forgets the steps of another one.
  void begin(const Key& key) {
    if (key == key_) return;
    clear();
    key_ = key;
  }
  /// The place takes the step that an equal one took.
  bool repeat(RaceStates::Id& place) {
    for (unsigned i = 0; i < count_; ++i) {
      if (steps_[i].from != place) continue;
      states_->assign(place, steps_[i].to);
      return true;
    }
    return false;
  }
  /// From a state that other places may have as well.
  void keep(RaceStates::Id from, RaceStates::Id to) {
    states_->retain(from);
    states_->retain(to);
    Step& step = steps_[next_];
    next_ = (next_ + 1) % kSteps;
    if (count_ < kSteps)
      ++count_;
    else
      drop(step);
    step = {from, to};
  }
  /// The state in which this operation's access is the only one: what all pieces end in whose past it covers.
  RaceStates::Id& alone() { return alone_; }

 private:
  static constexpr unsigned kSteps = 4;
  struct Step {
    RaceStates::Id from = 0, to = 0;
  };
  void drop(Step& step) {
    states_->release(step.from);
    states_->release(step.to);
  }
  void clear() {
    for (unsigned i = 0; i < count_; ++i) drop(steps_[i]);
    count_ = next_ = 0;
    states_->release(alone_);
    alone_ = 0;
  }

  std::shared_ptr<RaceStates> states_;
  Key key_;
  std::array<Step, kSteps> steps_{};
  unsigned count_ = 0, next_ = 0;
  RaceStates::Id alone_ = 0;
};

}  // namespace tessera::emulator
