// The memory consistency model of PTX as axioms, by trying every execution: which write each load reads, the order of
// each place's writes, and the order of fence.sc. PTX ISA, "Memory Consistency Model": the names of relations and
// axioms are the manual's. Nothing is shared with the emulator.
#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "tests/litmus/program.h"

namespace tessera::litmus {
namespace {

constexpr int kMost = 24;

/// A relation over events: which events stand behind each.
struct Relation {
  std::array<std::uint32_t, kMost> row{};
  bool has(int a, int b) const { return (row[static_cast<std::size_t>(a)] >> b & 1) != 0; }
  void add(int a, int b) { row[static_cast<std::size_t>(a)] |= 1U << b; }
  void close(int n) {
    for (int k = 0; k < n; ++k)
      for (int a = 0; a < n; ++a)
        if (has(a, k)) row[static_cast<std::size_t>(a)] |= row[static_cast<std::size_t>(k)];
  }
  bool is_acyclic(int n) {
    close(n);
    for (int a = 0; a < n; ++a)
      if (has(a, a)) return false;
    return true;
  }
};

struct Event {
  Operation operation;
  int thread = -1;  ///< -1: writes what a place holds at first
  int index = 0;    ///< in its thread
};

bool is_strong(const Event& e) { return e.thread < 0 || e.operation.meaning != Meaning::weak; }
bool acquires(const Operation& o) {
  return o.meaning == Meaning::acquire || o.meaning == Meaning::acq_rel || o.meaning == Meaning::sc;
}
bool releases(const Operation& o) {
  return o.meaning == Meaning::release || o.meaning == Meaning::acq_rel || o.meaning == Meaning::sc;
}

class Model {
 public:
  explicit Model(const Program& program) : program_(program) {
    for (int place = 0; place < program.places(); ++place) {
      Event first;
      first.operation = {Kind::store, place, 0, Meaning::relaxed, Reach::gpu};
      events_.push_back(first);
    }
    for (std::size_t t = 0; t < program.threads.size(); ++t)
      for (std::size_t i = 0; i < program.threads[t].size(); ++i)
        events_.push_back({program.threads[t][i], static_cast<int>(t), static_cast<int>(i)});
    n_ = static_cast<int>(events_.size());
    for (int e = 0; e < n_; ++e) {
      if (events_[idx(e)].operation.reads()) reads_.push_back(e);
      if (events_[idx(e)].operation.kind == Kind::fence && events_[idx(e)].operation.meaning == Meaning::sc)
        sc_fences_.push_back(e);
    }
    from_.assign(static_cast<std::size_t>(n_), -1);
  }

  Outcomes run() {
    choose_read(0);
    return std::move(found_);
  }

 private:
  static std::size_t idx(int i) { return static_cast<std::size_t>(i); }
  const Event& at(int e) const { return events_[idx(e)]; }

  bool program_order(int a, int b) const {
    return (at(a).thread < 0 && at(b).thread >= 0) ||
           (at(a).thread >= 0 && at(a).thread == at(b).thread && at(a).index < at(b).index);
  }
  bool includes(const Event& by, const Event& other) const {
    if (by.thread < 0 || other.thread < 0 || by.thread == other.thread) return true;
    if (program_.placement == Placement::one_cta) return true;
    if (program_.placement == Placement::one_cluster) return by.operation.scope != Reach::cta;
    return by.operation.scope == Reach::gpu;
  }
  bool morally_strong(int a, int b) const {
    const Event &x = at(a), &y = at(b);
    if (x.thread >= 0 && x.thread == y.thread) return true;
    return is_strong(x) && is_strong(y) && includes(x, y) && includes(y, x);
  }
  bool overlaps(int a, int b) const {
    return at(a).operation.kind != Kind::fence && at(b).operation.kind != Kind::fence &&
           at(a).operation.place == at(b).operation.place;
  }

  void choose_read(std::size_t i) {
    if (i == reads_.size()) return choose_coherence(0);
    for (int w = 0; w < n_; ++w) {
      if (!at(w).operation.writes() || !overlaps(w, reads_[i]) || w == reads_[i]) continue;
      from_[idx(reads_[i])] = w;
      choose_read(i + 1);
    }
  }

  void choose_coherence(int place) {
    if (place == program_.places()) return choose_sc();
    std::vector<int> writes;
    for (int w = 0; w < n_; ++w)
      if (at(w).operation.writes() && at(w).operation.place == place) writes.push_back(w);
    coherence_.resize(idx(program_.places()));
    do {  // the first value comes first
      coherence_[idx(place)] = writes;
      choose_coherence(place + 1);
    } while (std::next_permutation(writes.begin() + 1, writes.end()));
  }

  void choose_sc() {
    std::vector<int> order = sc_fences_;
    do check(order);
    while (std::next_permutation(order.begin(), order.end()));
  }

  int value_of_write(int w) const { return at(w).operation.value; }
  int position(int w) const {
    const auto& order = coherence_[idx(at(w).operation.place)];
    return static_cast<int>(std::find(order.begin(), order.end(), w) - order.begin());
  }

  // Of a release pattern its first operation, of an acquire pattern its last, by the access of both.
  std::vector<int> release_starts(int w) const {
    std::vector<int> starts;
    if (!is_strong(at(w)) || at(w).thread < 0) return starts;
    for (int e = 0; e < n_; ++e) {
      if (e == w ? !releases(at(e).operation) : !program_order(e, w) || at(e).thread < 0) continue;
      const bool is_fence = at(e).operation.kind == Kind::fence && releases(at(e).operation);
      const bool is_release = at(e).operation.writes() && releases(at(e).operation) && overlaps(e, w);
      if (is_fence || is_release || e == w) starts.push_back(e);
    }
    return starts;
  }
  std::vector<int> acquire_ends(int r) const {
    std::vector<int> ends;
    if (!is_strong(at(r))) return ends;
    for (int e = 0; e < n_; ++e) {
      if (e == r ? !acquires(at(e).operation) : !program_order(r, e)) continue;
      const bool is_fence = at(e).operation.kind == Kind::fence && acquires(at(e).operation);
      const bool is_acquire = at(e).operation.reads() && acquires(at(e).operation) && overlaps(e, r);
      if (is_fence || is_acquire || e == r) ends.push_back(e);
    }
    return ends;
  }

  void check(const std::vector<int>& sc_order) {
    // Observation order.
    Relation observed;
    for (const int r : reads_)
      if (morally_strong(from_[idx(r)], r)) observed.add(from_[idx(r)], r);
    bool grows = true;
    while (grows) {
      grows = false;
      for (int w = 0; w < n_; ++w)
        for (int z = 0; z < n_; ++z)
          if (at(z).operation.kind == Kind::exchange && observed.has(w, z))
            for (int r = 0; r < n_; ++r)
              if (observed.has(z, r) && !observed.has(w, r)) observed.add(w, r), grows = true;
    }
    // Synchronization, base causality and causality order.
    Relation base;
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b)
        if (program_order(a, b)) base.add(a, b);
    Relation sc;
    for (std::size_t i = 0; i < sc_order.size(); ++i)
      for (std::size_t j = i + 1; j < sc_order.size(); ++j)
        if (morally_strong(sc_order[i], sc_order[j]))
          sc.add(sc_order[i], sc_order[j]), base.add(sc_order[i], sc_order[j]);
    for (int w = 0; w < n_; ++w)
      for (const int r : reads_) {
        if (!at(w).operation.writes() || !observed.has(w, r)) continue;
        for (const int x : release_starts(w))
          for (const int y : acquire_ends(r))
            if (at(x).thread != at(y).thread && morally_strong(x, y)) base.add(x, y);
      }
    if (!base.is_acyclic(n_)) return;
    Relation causality = base;
    for (int x = 0; x < n_; ++x)
      for (int z = 0; z < n_; ++z)
        if (observed.has(x, z)) causality.row[idx(x)] |= base.row[idx(z)];
    // Fence-SC.
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b)
        if (sc.has(a, b) && causality.has(b, a)) return;
    // Coherence.
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b)
        if (a != b && overlaps(a, b) && at(a).operation.writes() && at(b).operation.writes() && causality.has(a, b) &&
            position(a) > position(b))
          return;
    // Atomicity.
    for (const int r : reads_)
      if (at(r).operation.kind == Kind::exchange) {
        if (position(from_[idx(r)]) >= position(r)) return;
        for (int w = 0; w < n_; ++w)
          if (w != r && at(w).operation.writes() && overlaps(w, r) && morally_strong(w, r) &&
              position(w) > position(from_[idx(r)]) && position(w) < position(r))
            return;
      }
    // Causality.
    for (const int r : reads_)
      for (int w = 0; w < n_; ++w) {
        if (w == r || !at(w).operation.writes() || !overlaps(w, r)) continue;
        if (causality.has(r, w) && from_[idx(r)] == w) return;
        if (causality.has(w, r) && position(from_[idx(r)]) < position(w)) return;
      }
    if (!is_sc_per_location()) return;
    keep();
  }

  // SC-per-Location: program order of a place's morally strong operations and communication order have no cycle. A
  // cycle is contradicted only by a set that is pairwise morally strong; of two threads' operations any cycle is such a
  // set.
  bool is_sc_per_location() const {
    Relation order;
    const auto add = [&](int a, int b) {
      if (a != b && morally_strong(a, b)) order.add(a, b);
    };
    for (int a = 0; a < n_; ++a)
      for (int b = 0; b < n_; ++b) {
        if (a == b || !overlaps(a, b)) continue;
        const bool is_strong_pair = is_strong(at(a)) && is_strong(at(b));
        if (!is_strong_pair) continue;
        if (program_order(a, b)) add(a, b);
        const bool wa = at(a).operation.writes(), wb = at(b).operation.writes();
        if (wa && wb && position(a) < position(b)) add(a, b);
        if (wa && at(b).operation.reads() && from_[idx(b)] == a) add(a, b);
        if (at(a).operation.reads() && wb && position(from_[idx(a)]) < position(b)) add(a, b);
      }
    return order.is_acyclic(n_);
  }

  void keep() {
    Outcome outcome;
    for (const int r : reads_) outcome.push_back(value_of_write(from_[idx(r)]));
    for (const auto& order : coherence_) outcome.push_back(value_of_write(order.back()));
    found_.insert(std::move(outcome));
  }

  const Program& program_;
  std::vector<Event> events_;
  std::vector<int> reads_, sc_fences_, from_;
  std::vector<std::vector<int>> coherence_;
  int n_ = 0;
  Outcomes found_;
};

}  // namespace

int Program::places() const {
  int most = 0;
  for (const auto& thread : threads)
    for (const Operation& operation : thread)
      if (operation.kind != Kind::fence) most = std::max(most, operation.place + 1);
  return most;
}

Outcomes allowed_outcomes(const Program& program) { return Model(program).run(); }

std::string text_of(const Outcome& outcome) {
  std::string text;
  for (const int value : outcome) text += (text.empty() ? "" : " ") + std::to_string(value);
  return text;
}

}  // namespace tessera::litmus
