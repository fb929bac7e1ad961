#include "guest/turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "base/quiet_thread.h"
#include "guest/coroutine.h"
#include "guest/host_thread.h"
#include "guest/stream_order.h"

namespace tessera::guest {
namespace {

using Clock = std::chrono::steady_clock;

// A tenth of a second alone; less where others wait.
constexpr std::uint64_t kTurn = 2'000'000, kSharedTurn = 50'000;
// A host that calls nothing for so long may wait for memory to change.
constexpr std::chrono::milliseconds kSilence{20};
// Words and limits are looked at so often where nothing else can go on.
constexpr std::chrono::microseconds kLook{200};

/// Under the session's mutex.
struct Turns {
  std::deque<std::shared_ptr<Item>> items;  ///< in the order in which they were asked for
  std::shared_ptr<Item> last_of_legacy;
  bool is_still = true;   ///< a walk over the items would move nothing, as far as it is known
  bool has_walk = false;  ///< some thread walks, and lets others in between launches' turns
  bool has_pump = false, is_pump_asleep = false;
  Clock::time_point last_call, next_walk;
};
Turns& turns() {
  static auto* const made = new Turns;
  return *made;
}

bool is_done(const std::shared_ptr<Item>& item) { return item->is_done; }
bool can_run(const Item& item) { return std::all_of(item.after.begin(), item.after.end(), is_done); }
void add_unless_done(Items& items, const std::shared_ptr<Item>& item) {
  if (item != nullptr && !item->is_done) items.push_back(item);
}

// It is of a launch that nobody sees the end of, or of a copy that the call has checked: the next call answers.
void fail(Item& item, const std::string& text) {
  Session& session = Session::instance();
  item.is_done = true;
  if (std::holds_alternative<Box>(item.work) || std::holds_alternative<Fill>(item.work)) {
    emulator::EmulatorFinding finding;
    finding.name = "global-out-of-bounds";
    finding.is_failure = true;
    finding.message = "of a copy or fill whose memory was there when it was asked for: " + text;
    return session.add_finding(finding);
  }
  session.add_problem(text, true);
  session.lose(cudaErrorLaunchFailure);
}

double seconds_now() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

// By --max-seconds: whether what began to wait may go on; else it has failed.
bool is_in_time(Item& item, const char* what) {
  Session& session = Session::instance();
  const double limit = session.options().max_seconds;
  if (limit <= 0 || seconds_now() - *item.began <= limit) return true;
  emulator::EmulatorFinding finding;
  finding.name = "time-budget";
  finding.is_failure = true;
  finding.entry = what;
  finding.message = fmt::format("has not ended after {} seconds", limit);
  finding.cause = "it waits for what never comes";
  session.add_finding(finding);
  item.is_done = true;
  return false;
}

std::uint64_t turn_length() {
  const auto under_way = std::count_if(turns().items.begin(), turns().items.end(),
                                       [](const auto& item) { return item->under_way != nullptr && !item->is_done; });
  return under_way > 1 ? kSharedTurn : kTurn;
}

void go_on_launch(Item& item, const LaunchWork& launch) {
  if (item.under_way == nullptr) item.under_way = Coroutine::start([work = launch] { return perform(work); });
  struct Guard {  // of a launch that rests or has ended
    Item& item;
    ~Guard() {
      if (item.is_done) Coroutine::keep(std::move(item.under_way));
      Session::instance().device().set_num_sms(Session::instance().num_sms());
    }
  } const guard{item};
  try {
    item.is_done = item.under_way->go_on(turn_length());
  } catch (...) {
    item.is_done = true;
    throw;
  }
  if (item.is_done && item.under_way->result() != cudaSuccess) fail(item, error_text(item.under_way->result()));
}

// False: the host thread has it.
bool go_on_host(const std::shared_ptr<Item>& item, const HostWork& host) {
  if (item->is_with_host) return item->began && !is_in_time(*item, "a host function");
  item->is_with_host = true;
  run_on_host_thread([item, host, status = Session::instance().error()] {
    Session& session = Session::instance();
    {
      const std::lock_guard lock(session.mutex);
      if (item->is_done) return;  // the context was lost before its turn
      item->began = seconds_now();
    }
    if (host.callback != nullptr)
      host.callback(static_cast<cudaStream_t>(host.stream), status, host.data);
    else
      host.function(host.data);
    const std::lock_guard lock(session.mutex);
    item->is_done = true;
    turns().is_still = false;
    session.mutex.tell_news();
  });
  return true;
}

void add(const std::shared_ptr<Item>& item) {
  turns().items.push_back(item);
  if (can_run(*item)) turns().is_still = false;
}

// The graph's nodes as items; the last one comes after all of them. What changes the graph later changes none.
std::shared_ptr<Item> add_graph(const std::shared_ptr<Graph>& graph, Items before, bool is_of_blocking) {
  const auto make = [&](Work work, Items after) {
    const auto item = std::make_shared<Item>(Item{std::move(work), std::move(after)});
    item->is_of_blocking = is_of_blocking;
    return item;
  };
  add_unless_done(before, graph->last);
  for (const auto& [address, value] : graph->defaults) {
    Fill fill;
    fill.to = pointer_of(address);
    fill.value = value;
    fill.element_bytes = 4;
    fill.width = 1;
    add(make(fill, std::exchange(before, {})));
    before = {turns().items.back()};
  }
  struct Made {
    std::shared_ptr<Item> item;
    bool has_next = false;
  };
  std::unordered_map<const Node*, Made> of;
  of.reserve(graph->nodes.size());
  for (const Node& node : graph->nodes) {
    Items after = node.after.empty() ? before : Items();
    for (const Node* const one : node.after) {
      after.push_back(of.at(one).item);
      of.at(one).has_next = true;
    }
    std::shared_ptr<Item>& item = of[&node].item;
    const auto* const child = std::get_if<ChildWork>(&node.work);
    if (child != nullptr && node.is_enabled) {
      item = add_graph(child->graph, std::move(after), is_of_blocking);
    } else {
      item = make(node.is_enabled ? node.work : Work(), std::move(after));
      if (const auto* const event = std::get_if<EventWork>(&item->work)) {
        if (event->is_record) {
          forget_event(*event->event);
          event->event->item = item;
        } else {
          add_unless_done(item->after, event->event->item);
        }
      }
      add(item);
    }
  }
  const auto last = make(std::monostate(), graph->nodes.empty() ? std::move(before) : Items());
  for (const auto& [node, made] : of)
    if (!made.has_next) last->after.push_back(made.item);
  last->holds = graph;
  graph->last = last;
  add(last);
  return last;
}

// What the word says, and then again where it is a loop. False: its body has not ended.
bool go_on_conditional(Item& item, const ConditionalWork& conditional) {
  if (!item.began) item.began = seconds_now();
  if (!is_in_time(item, "a loop of a graph (cudaGraphCondTypeWhile)")) return true;
  const std::shared_ptr<Graph> body = chosen_body(conditional);
  item.is_done = body == nullptr || !is_loop(conditional);
  if (body == nullptr) return true;
  const std::shared_ptr<Item> end = add_graph(body, {}, item.is_of_blocking);
  if (item.is_done) {  // nobody asks it again: a place behind the body
    item.is_done = false;
    item.work = std::monostate();
  }
  item.after = {end};
  return true;
}

// One turn of an item that can run. False: it has to wait for others.
bool go_on(const std::shared_ptr<Item>& item) {
  try {
    if (const auto* const launch = std::get_if<LaunchWork>(&item->work);
        launch != nullptr && (item->under_way != nullptr || may_wait(*launch))) {
      go_on_launch(*item, *launch);
      return true;
    }
    if (const auto* const host = std::get_if<HostWork>(&item->work)) return go_on_host(item, *host);
    if (const auto* const conditional = std::get_if<ConditionalWork>(&item->work))
      return go_on_conditional(*item, *conditional);
    item->is_done = true;
    const cudaError_t error = perform(item->work);
    if (error == cudaErrorNotReady) {
      if (!item->began) item->began = seconds_now();
      item->is_done = false;
      return !is_in_time(*item, "a stream that waits for a word of memory");
    }
    if (error != cudaSuccess) fail(*item, error_text(error));
  } catch (const std::exception& problem) {
    fail(*item, problem.what());
  }
  return true;
}

// A walk over all of them, from first to last. False: none has moved. One thread walks at a time: others that wait
// would stand between it and those that ask.
bool go_on_all() {
  Session& session = Session::instance();
  Turns& all = turns();
  if (all.has_walk) return false;
  all.has_walk = all.is_still = true;
  const Clock::time_point began = Clock::now();
  bool has_moved = false, has_ended = false;
  for (const std::shared_ptr<Item>& item : Items(all.items.begin(), all.items.end())) {
    const auto* const host = std::get_if<HostWork>(&item->work);
    const bool is_callback = host != nullptr && host->callback != nullptr;  // it is told of errors
    if (session.error() != cudaSuccess && !is_callback) item->is_done = true;
    if (!item->is_done && can_run(*item) && go_on(item)) {
      has_moved = true;
      if (std::holds_alternative<LaunchWork>(item->work)) session.mutex.yield();
    }
    if (!item->is_done) continue;
    item->after.clear();
    item->holds = nullptr;
    has_ended = true;
  }
  std::erase_if(all.items, is_done);
  if (has_moved) all.is_still = false;
  all.has_walk = false;
  const Clock::time_point end = Clock::now();
  all.next_walk = end + (end - began);  // of a host that asks for more and more half of the time
  if (has_ended) session.mutex.tell_news();
  return has_moved;
}

// Goes on with what there is while the host calls nothing.
void pump() {
  Monitor& mutex = Session::instance().mutex;
  Turns& all = turns();
  const std::lock_guard lock(mutex);
  for (;;) {
    all.is_pump_asleep = all.items.empty();
    if (all.is_pump_asleep)
      mutex.wait_for(std::chrono::hours(1));
    else if (Clock::now() - all.last_call < kSilence)
      mutex.wait_for(kSilence);
    else if (go_on_all())
      mutex.yield();
    else
      mutex.wait_for(kLook);
  }
}

void wake_pump() {
  Turns& all = turns();
  if (all.items.empty()) return;
  if (!std::exchange(all.has_pump, true)) quiet_thread<std::thread>(pump).detach();
  if (std::exchange(all.is_pump_asleep, false)) Session::instance().mutex.tell_news();
}

/// Nothing that it does waits for others.
bool is_short(const Work& work) {
  if (const auto* const launch = std::get_if<LaunchWork>(&work)) return !may_wait(*launch);
  if (const auto* const library = std::get_if<LibraryWork>(&work)) return !library->is_memory_operation;
  if (const auto* const event = std::get_if<EventWork>(&work)) return event->is_record;
  if (const auto* const child = std::get_if<ChildWork>(&work))
    return (child->graph->last == nullptr || child->graph->last->is_done) &&
           std::all_of(child->graph->nodes.begin(), child->graph->nodes.end(),
                       [](const Node& node) { return is_short(node.work); });
  return !std::holds_alternative<HostWork>(work) && !std::holds_alternative<ConditionalWork>(work);
}

// Work that has been done when the call returns, on a GPU too: what the host may look at then. In the device's own
// memory both copies and fills are asynchronous.
bool must_be_done(const Work& work, bool host_waits) {
  if (const auto* const box = std::get_if<Box>(&work)) {
    if (is_pageable(box->to) || (is_pageable(box->from) && !is_on_device(box->to))) return true;
    return host_waits && !(is_of_device_alone(box->to) && is_of_device_alone(box->from));
  }
  if (const auto* const fill = std::get_if<Fill>(&work)) return host_waits && !is_of_device_alone(fill->to);
  return std::holds_alternative<LibraryWork>(work) && !std::get<LibraryWork>(work).is_memory_operation;
}

// What is wrong with work that runs later is said now.
cudaError_t check_ahead(const Work& work) {
  if (const auto* const box = std::get_if<Box>(&work)) return check(*box);
  if (const auto* const fill = std::get_if<Fill>(&work)) return check(*fill);
  if (const auto* const child = std::get_if<ChildWork>(&work))
    for (const Node& node : child->graph->nodes)
      if (const cudaError_t error = node.is_enabled ? check_ahead(node.work) : cudaSuccess; error != cudaSuccess)
        return error;
  return cudaSuccess;
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

cudaError_t ask(StreamState& stream, Work work, bool host_waits) {
  Turns& all = turns();
  all.last_call = Clock::now();
  StreamOrder& order = StreamOrder::instance();
  if (std::holds_alternative<AllocateWork>(work)) return order.perform(stream, work, false);
  Items before = unfinished(stream);
  const bool is_now = before.empty() && is_short(work), is_waited_for = must_be_done(work, host_waits);
  if (is_now && !std::holds_alternative<ChildWork>(work)) return order.perform(stream, work, is_waited_for);
  if (const cudaError_t error = check_ahead(work); error != cudaSuccess) return error;
  if (is_now) return order.perform(stream, work, false);
  if (is_waited_for) {
    const cudaError_t error = finish(before);
    return error != cudaSuccess ? error : order.perform(stream, work, true);
  }
  const bool is_of_blocking = (stream.flags & cudaStreamNonBlocking) == 0;
  if (const auto* const child = std::get_if<ChildWork>(&work)) {
    order.forget();
    stream.last = add_graph(child->graph, std::move(before), is_of_blocking);
  } else {
    if (auto* const box = std::get_if<Box>(&work); box != nullptr && is_pageable(box->from)) keep_aside(*box);
    const auto item = std::make_shared<Item>(Item{std::move(work), std::move(before)});
    item->is_of_blocking = is_of_blocking;
    if (const auto* const event = std::get_if<EventWork>(&item->work)) event->event->item = item;
    order.begin(stream, item->work);
    const bool is_done = item->after.empty() && go_on(item) && item->is_done;
    order.end(is_done, false);
    if (is_done) return cudaSuccess;
    add(item);
    stream.last = item;
  }
  if (stream.is_legacy) all.last_of_legacy = stream.last;
  if (!all.is_still && Clock::now() >= all.next_walk) go_on_all();
  wake_pump();
  return cudaSuccess;
}

cudaError_t wait_in(StreamState& stream, const std::shared_ptr<Item>& item) {
  Items before = unfinished(stream);
  before.push_back(item);
  stream.last = std::make_shared<Item>(Item{std::monostate(), std::move(before)});
  stream.last->is_of_blocking = (stream.flags & cudaStreamNonBlocking) == 0;
  if (stream.is_legacy) turns().last_of_legacy = stream.last;
  add(stream.last);
  wake_pump();
  return cudaSuccess;
}

cudaError_t finish(const Items& items) {
  Session& session = Session::instance();
  while (session.error() == cudaSuccess && !std::all_of(items.begin(), items.end(), is_done)) {
    const bool has_moved = go_on_all();
    turns().last_call = Clock::now();
    if (has_moved)
      session.mutex.yield();
    else
      session.mutex.wait_for(kLook);
  }
  turns().last_call = Clock::now();
  return items.empty() ? cudaSuccess : session.error();
}

cudaError_t finish_all() {
  StreamOrder::instance().forget();
  return finish(all_unfinished());
}
cudaError_t wait_for_all() {
  StreamOrder::instance().forget();
  return wait_for(all_unfinished());
}
Items all_unfinished() {
  Items all;
  for (const std::shared_ptr<Item>& item : turns().items) add_unless_done(all, item);
  return all;
}

std::size_t complete(std::chrono::seconds limit) {
  if (is_host_thread()) return 0;  // a host function that ends the program would wait for itself
  const auto end = Clock::now() + limit;
  while (!turns().items.empty() && Clock::now() < end)
    if (!go_on_all()) Session::instance().mutex.wait_for(kLook);
  return static_cast<std::size_t>(std::count_if(turns().items.begin(), turns().items.end(), [](const auto& item) {
    return std::holds_alternative<LaunchWork>(item->work) || std::holds_alternative<HostWork>(item->work);
  }));
}

void forget_all() {
  for (const std::shared_ptr<Item>& item : std::exchange(turns().items, {})) {
    item->is_done = true;
    item->after.clear();
    item->holds = nullptr;
  }
}

cudaError_t wait_for(const Items& items) {
  const cudaError_t error = finish(items);
  Blocks::instance().note_shared();
  return error;
}

cudaError_t query(const Items& items) {
  if (items.empty()) return cudaSuccess;
  turns().last_call = Clock::now();
  go_on_all();
  if (const cudaError_t error = Session::instance().error(); error != cudaSuccess) return error;
  return std::all_of(items.begin(), items.end(), is_done) ? cudaSuccess : cudaErrorNotReady;
}

void forget_event(EventState& event) {
  if (event.item != nullptr && !event.item->is_done) event.item->work = std::monostate();
}

std::uint64_t rest() {
  Coroutine* const current = Coroutine::current();
  return current == nullptr ? kTurn : current->rest();
}

}  // namespace tessera::guest
