#include "guest/turns.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>

#include "base/quiet_thread.h"

namespace tessera::guest {

// A thread that runs while the one that asks it to is waiting, and never beside it.
class Coroutine {
 public:
  /// Its thread may rest for ever: a process ends without it. Threads whose work has ended are taken again: to start
  /// one costs more than a small launch.
  static std::shared_ptr<Coroutine> start(std::function<cudaError_t()> work) {
    std::shared_ptr<Coroutine> made;
    if (idle().empty()) {
      made.reset(new Coroutine);
      quiet_thread<std::thread>([made] { made->run(); }).detach();
    } else {
      made = std::move(idle().back());
      idle().pop_back();
    }
    const std::lock_guard lock(made->mutex_);
    made->work_ = std::move(work);
    made->has_ended_ = false;
    return made;
  }
  /// For the next work. Precondition: it has ended.
  static void keep(std::shared_ptr<Coroutine> ended) { idle().push_back(std::move(ended)); }
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;

  /// Until it rests or ends; whether it has ended. Throws what the work threw.
  bool go_on(std::uint64_t turn) {
    std::unique_lock lock(mutex_);
    turn_ = turn;
    runs_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !runs_; });
    if (has_ended_ && problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
    return has_ended_;
  }
  cudaError_t result() const { return result_; }

  static Coroutine* current() { return current_; }
  std::uint64_t rest() {
    std::unique_lock lock(mutex_);
    runs_ = false;
    changed_.notify_all();
    changed_.wait(lock, [&] { return runs_; });
    return turn_;
  }

 private:
  Coroutine() = default;
  static std::vector<std::shared_ptr<Coroutine>>& idle() {
    static auto* const all = new std::vector<std::shared_ptr<Coroutine>>;
    return *all;
  }
  void run() {
    current_ = this;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return runs_; });
      lock.unlock();
      result_ = cudaSuccess;
      try {
        result_ = work_();
      } catch (...) {
        problem_ = std::current_exception();
      }
      work_ = nullptr;
      lock.lock();
      has_ended_ = true;
      runs_ = false;
      changed_.notify_all();
    }
  }

  static thread_local Coroutine* current_;
  std::function<cudaError_t()> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;
  bool runs_ = false, has_ended_ = false;
  cudaError_t result_ = cudaSuccess;
  std::exception_ptr problem_;
};
thread_local Coroutine* Coroutine::current_ = nullptr;

namespace {

// A tenth of a second alone; less where others wait.
constexpr std::uint64_t kTurn = 2'000'000, kSharedTurn = 50'000;
// A host that calls nothing for so long may wait for memory to change.
constexpr std::chrono::milliseconds kSilence{20};

/// Under the session's mutex, all but the condition.
struct Turns {
  std::list<std::shared_ptr<Item>> items;  ///< in the order in which they were asked for
  std::shared_ptr<Item> last_of_legacy;
  bool is_going_on = false;
  bool has_pump = false;
  std::chrono::steady_clock::time_point last_call;
  std::condition_variable_any has_items;
};
Turns& turns() {
  static auto* const made = new Turns;
  return *made;
}

bool can_run(const Item& item) {
  return std::all_of(item.after.begin(), item.after.end(), [](const auto& before) { return before->is_done; });
}

std::uint64_t turn_length() {
  const auto under_way = std::count_if(turns().items.begin(), turns().items.end(),
                                       [](const auto& item) { return item->under_way != nullptr && !item->is_done; });
  return under_way > 1 ? kSharedTurn : kTurn;
}

// One turn of it.
cudaError_t go_on(Item& item) {
  const auto* const launch = std::get_if<LaunchWork>(&item.work);
  if (launch == nullptr || !may_wait(*launch)) {
    item.is_done = true;
    return perform(item.work);
  }
  if (item.under_way == nullptr) item.under_way = Coroutine::start([work = *launch] { return perform(work); });
  const auto restore = [] { Session::instance().device().set_num_sms(Session::instance().num_sms()); };
  cudaError_t error = cudaSuccess;
  try {
    item.is_done = item.under_way->go_on(turn_length());
    if (item.is_done) error = item.under_way->result();
  } catch (...) {
    item.is_done = true;
    Coroutine::keep(std::move(item.under_way));
    restore();
    throw;
  }
  if (item.is_done) Coroutine::keep(std::move(item.under_way));
  restore();
  return error;
}

// A walk over all of them, from first to last.
cudaError_t go_on_all() {
  Turns& all = turns();
  if (all.is_going_on) return cudaSuccess;  // a host function of an item asks
  all.is_going_on = true;
  struct Guard {
    ~Guard() { turns().is_going_on = false; }
  } const guard;
  cudaError_t first = cudaSuccess;
  for (auto it = all.items.begin(); it != all.items.end();) {
    const std::shared_ptr<Item> item = *it;
    if (Session::instance().error() != cudaSuccess) item->is_done = true;  // the context is lost
    if (!item->is_done && can_run(*item)) {
      const cudaError_t error = go_on(*item);
      if (first == cudaSuccess) first = error;
    }
    it = item->is_done ? all.items.erase(it) : std::next(it);
  }
  return first;
}

// Goes on with what rests while the host calls nothing.
void pump() {
  Session& session = Session::instance();
  std::unique_lock lock(session.mutex);
  for (;;) {
    Turns& all = turns();
    all.has_items.wait(lock, [&] { return !all.items.empty(); });
    const bool is_silent = std::chrono::steady_clock::now() - all.last_call > kSilence;
    try {
      if (is_silent) go_on_all();
    } catch (const std::exception& problem) {
      session.add_problem(problem.what(), true);
    }
    lock.unlock();
    std::this_thread::sleep_for(is_silent ? std::chrono::milliseconds(1) : kSilence);
    lock.lock();
  }
}

void add(const std::shared_ptr<Item>& item, StreamState& stream) {
  Turns& all = turns();
  all.items.push_back(item);
  item->is_of_blocking = (stream.flags & cudaStreamNonBlocking) == 0;
  stream.last = item;
  if (stream.is_legacy) all.last_of_legacy = item;
  if (!std::exchange(all.has_pump, true)) quiet_thread<std::thread>(pump).detach();
  all.has_items.notify_all();
}

bool is_pageable(const void* pointer) { return !is_on_device(pointer) && Blocks::instance().find(pointer) == nullptr; }

// Work that has been done when the call returns, on a GPU too, or that reads what the caller may change then. In the
// device's own memory both copies and fills are asynchronous.
bool must_be_done(const StreamState& stream, const Work& work) {
  if (const auto* const box = std::get_if<Box>(&work)) {
    const bool is_inside = is_on_device(box->to) && is_on_device(box->from);
    return !is_inside && (stream.is_legacy || is_pageable(box->to) || is_pageable(box->from));
  }
  if (const auto* const fill = std::get_if<Fill>(&work)) return stream.is_legacy && !is_on_device(fill->to);
  return std::holds_alternative<ChildWork>(work) || std::holds_alternative<LibraryWork>(work);
}

void add_unless_done(Items& items, const std::shared_ptr<Item>& item) {
  if (item != nullptr && !item->is_done) items.push_back(item);
}

}  // namespace

Items unfinished(StreamState& stream) {
  Items before;
  if (turns().items.empty()) {
    stream.last = nullptr;
    return before;
  }
  add_unless_done(before, stream.last);
  if (stream.is_legacy) {
    for (const std::shared_ptr<Item>& item : turns().items)
      if (item->is_of_blocking) add_unless_done(before, item);
  } else if ((stream.flags & cudaStreamNonBlocking) == 0) {
    add_unless_done(before, turns().last_of_legacy);
  }
  return before;
}

cudaError_t ask(StreamState& stream, Work work) {
  turns().last_call = std::chrono::steady_clock::now();
  if (std::holds_alternative<AllocateWork>(work)) return cudaSuccess;  // it was, when it got its address
  Items before = unfinished(stream);
  const auto* const launch = std::get_if<LaunchWork>(&work);
  if (before.empty() && (launch == nullptr || !may_wait(*launch))) return perform(work);
  if (must_be_done(stream, work)) {
    const cudaError_t error = finish(before);
    return error != cudaSuccess ? error : perform(work);
  }
  const auto item = std::make_shared<Item>(Item{std::move(work), std::move(before)});
  if (const auto* const event = std::get_if<EventWork>(&item->work)) event->event->item = item;
  if (item->after.empty()) {
    const cudaError_t error = go_on(*item);
    if (item->is_done) return error;
  }
  add(item, stream);
  return go_on_all();
}

cudaError_t wait_in(StreamState& stream, const std::shared_ptr<Item>& item) {
  Items before = unfinished(stream);
  before.push_back(item);
  add(std::make_shared<Item>(Item{std::monostate(), std::move(before)}), stream);
  return cudaSuccess;
}

cudaError_t finish(const Items& items) {
  turns().last_call = std::chrono::steady_clock::now();
  cudaError_t first = cudaSuccess;
  while (!turns().is_going_on && std::any_of(items.begin(), items.end(), [](const auto& i) { return !i->is_done; })) {
    const cudaError_t error = go_on_all();
    if (first == cudaSuccess) first = error;
  }
  turns().last_call = std::chrono::steady_clock::now();
  return first != cudaSuccess ? first : items.empty() ? cudaSuccess : Session::instance().error();
}

cudaError_t finish_all() { return finish(all_unfinished()); }
Items all_unfinished() { return {turns().items.begin(), turns().items.end()}; }

std::size_t complete(std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!turns().is_going_on && !turns().items.empty() && std::chrono::steady_clock::now() < end) {
    try {
      go_on_all();
    } catch (const std::exception& problem) {
      Session::instance().add_problem(problem.what(), true);
    }
  }
  const auto is_launch = [](const auto& item) { return std::holds_alternative<LaunchWork>(item->work); };
  return static_cast<std::size_t>(std::count_if(turns().items.begin(), turns().items.end(), is_launch));
}

cudaError_t wait_for(const Items& items) {
  const cudaError_t error = finish(items);
  Blocks::instance().note_shared();
  return error;
}

bool are_done(const Items& items) {
  if (items.empty()) return true;
  turns().last_call = std::chrono::steady_clock::now();
  go_on_all();
  return std::all_of(items.begin(), items.end(), [](const auto& item) { return item->is_done; });
}

void forget_event(EventState& event) {
  if (event.item != nullptr && !event.item->is_done) event.item->work = std::monostate();
}

std::uint64_t rest() {
  Coroutine* const current = Coroutine::current();
  return current == nullptr ? kTurn : current->rest();
}

}  // namespace tessera::guest
