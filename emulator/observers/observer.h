// What may watch a launch: statistics, a trace, a timeline. A launch without an observer runs a loop that knows nothing
// of them.
#pragma once

#include <cstdint>
#include <vector>

#include "emulator/syntax/program.h"

namespace tessera::emulator {

class AsyncOperation;
class Launch;
struct Wait;

/// `time` counts the warp instructions executed before, of all warps together.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void started(const Launch&) {}
  /// Around each instruction that has active lanes. A blocked instruction comes again when its wait is over.
  virtual void before(Warp&, const Instruction&, Mask, std::uint64_t) {}
  virtual void after(Warp&, const Instruction&, Mask, Step, std::uint64_t) {}
  /// A warp has run from one time to another without pause.
  virtual void slice(const Warp&, std::uint64_t, std::uint64_t) {}
  virtual void pushed(const AsyncOperation&, std::uint64_t) {}
  virtual void completing(const AsyncOperation&, std::uint64_t) {}
  virtual void completed(const AsyncOperation&, std::uint64_t) {}
  virtual void finished(const Launch&) {}
};

/// Several observers as one.
class ObserverList final : public Observer {
 public:
  void add(Observer* observer) { list_.push_back(observer); }
  bool empty() const noexcept { return list_.empty(); }

  void started(const Launch& launch) override {
    for (Observer* o : list_) o->started(launch);
  }
  void before(Warp& warp, const Instruction& in, Mask active, std::uint64_t time) override {
    for (Observer* o : list_) o->before(warp, in, active, time);
  }
  void after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t time) override {
    for (Observer* o : list_) o->after(warp, in, active, step, time);
  }
  void slice(const Warp& warp, std::uint64_t begin, std::uint64_t end) override {
    for (Observer* o : list_) o->slice(warp, begin, end);
  }
  void pushed(const AsyncOperation& operation, std::uint64_t time) override {
    for (Observer* o : list_) o->pushed(operation, time);
  }
  void completing(const AsyncOperation& operation, std::uint64_t time) override {
    for (Observer* o : list_) o->completing(operation, time);
  }
  void completed(const AsyncOperation& operation, std::uint64_t time) override {
    for (Observer* o : list_) o->completed(operation, time);
  }
  void finished(const Launch& launch) override {
    for (Observer* o : list_) o->finished(launch);
  }

 private:
  std::vector<Observer*> list_;
};

}  // namespace tessera::emulator
