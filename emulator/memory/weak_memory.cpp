#include "emulator/memory/weak_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace tessera::emulator {
namespace {

// Older ones are forgotten: nobody reads them any more.
constexpr std::size_t kMostWrites = 8;
// Of more the oldest are forgotten, and loads of them give what memory holds.
constexpr std::size_t kMostLocations = std::size_t{1} << 16;

// Registers keep what they hold, and memory and other threads learn nothing: a late load may stay behind these.
bool may_overtake_load(const Instruction& in) {
  constexpr std::string_view kOrders[] = {"atom",
                                          "red",
                                          "fence",
                                          "membar",
                                          "bar",
                                          "barrier",
                                          "mbarrier",
                                          "cp",
                                          "wgmma",
                                          "tcgen05",
                                          "ldmatrix",
                                          "stmatrix",
                                          "exit",
                                          "ret",
                                          "call",
                                          "multimem",
                                          "wmma",
                                          "tensormap",
                                          "discard",
                                          "nanosleep",
                                          "trap",
                                          "shfl",
                                          "vote",
                                          "match",
                                          "redux",
                                          "elect",
                                          "brx",
                                          "prefetch",
                                          "griddepcontrol",
                                          "brkpt",
                                          "activemask",
                                          "isspacep",
                                          "clusterlaunchcontrol"};
  const std::string_view word = in.opcode.substr(0, in.opcode.find('.'));
  if (std::find(std::begin(kOrders), std::end(kOrders), word) != std::end(kOrders)) return false;
  for (const std::string_view order : {".acquire", ".release", ".async", ".bulk"})
    if (in.opcode.find(order) != std::string_view::npos) return false;
  return true;
}

bool overlap(const Operand& a, const Operand& b) {
  const bool is_register = a.kind == Operand::Kind::reg || a.kind == Operand::Kind::address;
  return is_register && a.offset < b.offset + kLanes * b.bytes && b.offset < a.offset + kLanes * a.bytes;
}

bool touches(const Instruction& in, const Operand& to) {
  for (int i = 0; i < in.num_operands; ++i) {
    if (overlap(in.op[i], to)) return true;
    for (int j = 0; j < in.op[i].count; ++j)
      if (overlap(in.op[i].elements[j], to)) return true;
  }
  return false;
}

std::size_t at(Scope scope) { return static_cast<std::size_t>(scope); }

}  // namespace

Scope scope_between(const Cta& a, const Cta& b) {
  if (&a == &b) return Scope::cta;
  return a.cluster == b.cluster ? Scope::cluster : Scope::gpu;
}

void WeakMemory::View::join(const View& other) {
  floor = std::max(floor, other.floor);
  for (const auto& [place, order] : other.seen) {
    std::uint64_t& own = seen[place];
    own = std::max(own, order);
  }
}

WeakMemory::Thread& WeakMemory::thread_of(const Warp& warp, int lane) {
  std::vector<Thread>& lanes = threads_[&warp];
  if (lanes.empty()) lanes.resize(kLanes);
  return lanes[static_cast<std::size_t>(lane)];
}

void WeakMemory::forget(Place place) {
  const auto found = locations_.find(place);
  if (found != locations_.end()) locations_.erase(found);
}

WeakMemory::Location* WeakMemory::find(const Target& target, std::size_t bytes, bool makes) {
  const Place place = target.data;
  const auto line = reinterpret_cast<std::uintptr_t>(place) / 16;
  const auto size = bytes_in_.find(line);
  if (size != bytes_in_.end() && size->second != bytes) {
    // Accesses of different sizes: of this line only memory is known from now on.
    for (std::size_t i = 0; i < 16; ++i) forget(reinterpret_cast<Place>(line * 16) + i);
    size->second = static_cast<std::uint8_t>(bytes);
  }
  auto found = locations_.find(place);
  if (found == locations_.end()) {
    if (!makes) return nullptr;
    if (by_age_.size() >= kMostLocations) {
      forget(by_age_.front());
      by_age_.pop_front();
    }
    bytes_in_[line] = static_cast<std::uint8_t>(bytes);
    found = locations_.emplace(place, Location{bytes, {}}).first;
    by_age_.push_back(place);
  }
  std::deque<Write>& writes = found->second.writes;
  if (writes.empty() || std::memcmp(writes.back().value.data(), place, bytes) != 0) {
    // What memory holds came otherwise: before the launch, or by an asynchronous operation.
    Write write;
    write.order = next_order();
    write.made = writes.empty() ? 0 : clock_++;
    std::memcpy(write.value.data(), place, bytes);
    writes.assign(1, write);
  }
  return &found->second;
}

std::size_t WeakMemory::oldest_readable(const Thread& thread, const Location& location, Place place) const {
  const auto seen = thread.view.seen.find(place);
  const std::uint64_t order = seen == thread.view.seen.end() ? 0 : seen->second;
  for (std::size_t i = location.writes.size() - 1; i > 0; --i)
    if (location.writes[i].made <= thread.view.floor || location.writes[i].order <= order) return i;
  return 0;
}

void WeakMemory::read(Thread& thread, const Warp& warp, Place place, const Write& write, Order order) {
  std::uint64_t& seen = thread.view.seen[place];
  seen = std::max(seen, write.order);
  if (write.by == nullptr || !order.is_strong || !write.is_strong) return;
  const Scope between = scope_between(*write.by, *warp.cta);
  if (order.scope < between || write.scope < between) return;
  const std::shared_ptr<const View>& released = write.released[at(between)];
  if (released == nullptr) return;
  if (order.acquires)
    thread.view.join(*released);
  else
    thread.heard[at(between)].join(*released);
}

WeakMemory::Write WeakMemory::written(const Thread& thread, const Warp& warp, Order order) const {
  Write write;
  write.is_strong = order.is_strong;
  write.scope = order.scope;
  write.by = warp.cta;
  if (!order.is_strong) return write;
  write.released = thread.fenced;
  if (order.releases) write.released.fill(std::make_shared<View>(thread.view));
  for (std::size_t wider = at(order.scope) + 1; wider < kScopes; ++wider) write.released[wider] = nullptr;
  return write;
}

VectorStore WeakMemory::load(const Warp& warp, int lane, const Target& target, std::size_t bytes, Order order,
                             std::byte* value, const VectorStore& beside) {
  perform_at(warp, lane, target.data, bytes);
  std::memcpy(value, target.data, bytes);
  Location* const location = find(target, bytes, false);
  if (location == nullptr) return {};
  Thread& thread = thread_of(warp, lane);
  const std::size_t first = oldest_readable(thread, *location, target.data), last = location->writes.size() - 1;
  std::size_t chosen = last;
  if (first < last && random_.below(2) == 0) chosen = first + random_.below(last - first + 1);
  // Half of the vector stores that can be met in part are.
  while (chosen > first && beside.has(target.data) && location->writes[chosen].vector.number == beside.number &&
         random_.below(2) == 0)
    --chosen;
  std::memcpy(value, location->writes[chosen].value.data(), bytes);
  read(thread, warp, target.data, location->writes[chosen], order);
  return location->writes[chosen].vector;
}

void WeakMemory::load_whole(const Warp& warp, int lane, const Target& target, std::size_t bytes, int count, Order order,
                            std::byte* values) {
  const auto total = bytes * static_cast<std::size_t>(count);
  perform_at(warp, lane, target.data, total);
  std::memcpy(values, target.data, total);
  Thread& thread = thread_of(warp, lane);
  // Not before what the thread has seen of any element; the moment is that of a write that one of them may still give.
  std::vector<std::pair<Location*, std::size_t>> found;  // and its first readable write
  std::vector<std::uint64_t> moments;
  std::uint64_t earliest = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    Target element = target;
    element.data += i * bytes;
    Location* const location = find(element, bytes, false);
    const std::size_t first = location == nullptr ? 0 : oldest_readable(thread, *location, element.data);
    found.emplace_back(location, first);
    if (location == nullptr) continue;
    earliest = std::max(earliest, location->writes[first].made);
    for (std::size_t at = first; at < location->writes.size(); ++at) moments.push_back(location->writes[at].made);
  }
  std::erase_if(moments, [&](std::uint64_t made) { return made < earliest; });
  std::uint64_t moment = clock_;
  if (!moments.empty() && random_.below(2) == 0) moment = moments[random_.below(moments.size())];
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto [location, first] = found[i];
    if (location == nullptr) continue;
    std::size_t chosen = location->writes.size() - 1;
    while (chosen > first && location->writes[chosen].made > moment) --chosen;
    std::memcpy(values + i * bytes, location->writes[chosen].value.data(), bytes);
    read(thread, warp, target.data + i * bytes, location->writes[chosen], order);
  }
}

void WeakMemory::store_whole(const Warp& warp, int lane, const Target& target, std::size_t bytes, int count,
                             Order order, const std::byte* values) {
  perform_at(warp, lane, target.data, bytes * static_cast<std::size_t>(count));
  const std::uint64_t made = clock_++;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    Target element = target;
    element.data += i * bytes;
    Location* const location = find(element, bytes, true);
    Thread& thread = thread_of(warp, lane);
    Write write = written(thread, warp, order);
    write.made = made;
    write.order = next_order();
    std::memcpy(write.value.data(), values + i * bytes, bytes);
    thread.view.seen[element.data] = write.order;
    location->writes.push_back(std::move(write));
    if (location->writes.size() > kMostWrites) location->writes.pop_front();
    std::memcpy(element.data, values + i * bytes, bytes);
  }
}

void WeakMemory::load_later(Warp& warp, int lane, const Target& target, std::size_t bytes, Order order,
                            const Operand& to, Writer write) {
  perform_at(warp, lane, target.data, bytes);
  late_[&warp].push_back({lane, target, bytes, order, &to, write});
  warp.has_late_loads = warp.watches_registers = true;
}

void WeakMemory::perform(const Warp& warp, const LateLoad& late) {
  Value value{};
  load(warp, late.lane, late.target, late.bytes, late.order, value.data());
  late.write(warp, *late.to, late.lane, value.data());
}

void WeakMemory::perform_at(const Warp& warp, int lane, Place place, std::size_t bytes) {
  const auto found = late_.find(&warp);
  if (found == late_.end()) return;
  std::vector<LateLoad>& loads = found->second;
  for (std::size_t i = 0; i < loads.size();) {
    const LateLoad late = loads[i];
    const bool is_here = late.lane == lane && late.target.data < place + bytes && place < late.target.data + late.bytes;
    if (is_here) {
      loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(i));
      perform(warp, late);
    } else {
      ++i;
    }
  }
}

void WeakMemory::before(Warp& warp, const Instruction& in, Mask active) {
  const bool orders = !may_overtake_load(in);
  std::vector<LateLoad> due;
  std::vector<LateLoad>& loads = late_[&warp];
  std::erase_if(loads, [&](const LateLoad& late) {
    const bool is_due = (active >> late.lane & 1) != 0 && (orders || touches(in, *late.to));
    if (is_due) due.push_back(late);
    return is_due;
  });
  for (const LateLoad& late : due) perform(warp, late);
  if (!loads.empty()) return;
  late_.erase(&warp);
  warp.has_late_loads = false;
  warp.update_watch();
}

void Warp::perform_late_loads(const Instruction& in, Mask active) { launch->weak->before(*this, in, active); }

void WeakMemory::store(const Warp& warp, int lane, const Target& target, std::size_t bytes, Order order,
                       const std::byte* value, const VectorStore& vector) {
  perform_at(warp, lane, target.data, bytes);
  Location* const location = find(target, bytes, true);
  Thread& thread = thread_of(warp, lane);
  std::deque<Write>& writes = location->writes;
  Write write = written(thread, warp, order);
  write.vector = vector;
  write.made = clock_++;
  std::memcpy(write.value.data(), value, bytes);
  // Behind all that the thread knows of; not between what an atomic read and what it wrote.
  std::size_t behind = writes.size();
  const std::size_t oldest = oldest_readable(thread, *location, target.data);
  if (behind - oldest > 1 && random_.below(3) == 0) {
    const std::size_t chosen = oldest + 1 + random_.below(behind - oldest);
    if (chosen < behind && !writes[chosen].is_atomic && writes[chosen].order - writes[chosen - 1].order > 1)
      behind = chosen;
  }
  write.order = behind == writes.size()
                    ? next_order()
                    : writes[behind - 1].order + (writes[behind].order - writes[behind - 1].order) / 2;
  std::uint64_t& seen = thread.view.seen[target.data];
  seen = std::max(seen, write.order);
  const bool is_newest = behind == writes.size();
  writes.insert(writes.begin() + static_cast<std::ptrdiff_t>(behind), std::move(write));
  if (writes.size() > kMostWrites) writes.pop_front();
  if (is_newest) std::memcpy(target.data, value, bytes);
}

void WeakMemory::atomic(const Warp& warp, int lane, const Target& target, std::size_t bytes, Order order,
                        const std::byte* before) {
  // The location as it was, then the atomic's write at once behind it.
  Value after{};
  std::memcpy(after.data(), target.data, bytes);
  std::memcpy(target.data, before, bytes);
  Location* const location = find(target, bytes, true);
  std::memcpy(target.data, after.data(), bytes);
  Thread& thread = thread_of(warp, lane);
  const Write old = location->writes.back();
  read(thread, warp, target.data, old, order);
  Write write = written(thread, warp, order);
  write.made = clock_++;
  write.order = next_order();
  write.is_atomic = true;
  write.value = after;
  // It carries on what it found released.
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    if (old.released[scope] == nullptr) continue;
    View both = *old.released[scope];
    if (write.released[scope] != nullptr) both.join(*write.released[scope]);
    write.released[scope] = std::make_shared<View>(std::move(both));
  }
  thread.view.seen[target.data] = write.order;
  location->writes.push_back(std::move(write));
  if (location->writes.size() > kMostWrites) location->writes.pop_front();
}

void WeakMemory::fence(const Warp& warp, Mask lanes, bool is_sc, Scope scope) {
  const void* const domains[kScopes] = {warp.cta, warp.cta->cluster, nullptr};
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
    Thread& thread = thread_of(warp, std::countr_zero(rest));
    for (std::size_t narrow = 0; narrow <= at(scope); ++narrow) {
      thread.view.join(thread.heard[narrow]);
      thread.heard[narrow] = {};
    }
    if (is_sc) {
      for (std::size_t narrow = 0; narrow <= at(scope); ++narrow) thread.view.join(sc_views_[domains[narrow]]);
      for (std::size_t narrow = 0; narrow <= at(scope); ++narrow) sc_views_[domains[narrow]].join(thread.view);
    }
    const auto view = std::make_shared<const View>(thread.view);
    for (std::size_t narrow = 0; narrow <= at(scope); ++narrow) thread.fenced[narrow] = view;
  }
}

void WeakMemory::start(const Cta& cta) {
  for (const Warp& warp : cta.warps) threads_.erase(&warp), late_.erase(&warp);
  for (std::size_t offset = 0; offset < cta.shared.size(); offset += 16) {
    const auto line = reinterpret_cast<std::uintptr_t>(cta.shared.data() + offset) / 16;
    if (bytes_in_.erase(line) == 0) continue;
    for (std::size_t i = 0; i < 16; ++i) forget(reinterpret_cast<Place>(line * 16) + i);
  }
}

void WeakMemory::synchronise(const Warp& warp, Mask lanes, bool is_relaxed) {
  for (Mask rest = lanes; rest != 0; rest &= rest - 1) {
    Thread& thread = thread_of(warp, std::countr_zero(rest));
    View& view = thread.view;
    if (is_relaxed) {
      thread.heard[at(Scope::cta)].floor = clock_ - 1;
      continue;
    }
    view.floor = clock_ - 1;
    view.seen.clear();
  }
}

}  // namespace tessera::emulator
