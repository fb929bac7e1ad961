// Vector clocks: how far into every agent's history something has seen.
//
// An agent is whatever accesses memory in an order of its own: a warp; a lane, where it tells what it did without the
// others of its warp; the copies that complete on one mbarrier (their clock is its phase); the bulk copies or the
// wgmmas of one issuer (their clock is the commit group). Agents are
// numbered cluster by cluster, so a clock is a short dense array for its own cluster and, where clusters talk through
// global memory, a list for the others.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::emulator {

/// Cluster number << kAgentBits | index in the cluster; 0: nobody.
using Agent = std::uint32_t;
inline constexpr int kAgentBits = 14;
inline constexpr std::uint32_t kMaxAgents = 1u << kAgentBits;

class VectorClock {
 public:
  VectorClock() = default;
  explicit VectorClock(std::uint32_t cluster) : cluster_(cluster) {}

  [[gnu::always_inline]] std::uint32_t at(Agent agent) const {
    if (agent >> kAgentBits != cluster_) return of_foreign(agent);
    const std::uint32_t index = agent & (kMaxAgents - 1);
    return index < own_.size() ? own_[index] : 0;
  }
  /// at(agent) becomes at least `clock`.
  void raise(Agent agent, std::uint32_t clock) {
    if (agent >> kAgentBits == cluster_) {
      const std::uint32_t index = agent & (kMaxAgents - 1);
      if (index >= own_.size()) own_.resize(index + 1, 0);
      own_[index] = std::max(own_[index], clock);
      return;
    }
    const auto it = find(agent);
    if (it != foreign_.end() && it->first == agent)
      foreign_[static_cast<std::size_t>(it - foreign_.begin())].second = std::max(it->second, clock);
    else
      foreign_.insert(it, {agent, clock});
  }
  /// Has seen all that `other` has.
  void join(const VectorClock& other) {
    if (cluster_ == other.cluster_) {
      if (own_.size() < other.own_.size()) own_.resize(other.own_.size(), 0);
      for (std::size_t i = 0; i < other.own_.size(); ++i) own_[i] = std::max(own_[i], other.own_[i]);
    } else if (!other.own_.empty()) {
      std::vector<Entry> entries;
      entries.reserve(other.own_.size());
      for (std::size_t i = 0; i < other.own_.size(); ++i)
        if (other.own_[i] != 0) entries.emplace_back(other.agent(i), other.own_[i]);
      raise_foreign(entries.data(), entries.data() + entries.size());
    }
    const auto [first, last] = other.entries_of(cluster_);
    const Entry* const begin = other.foreign_.data();
    for (const Entry* entry = first; entry != last; ++entry) raise(entry->first, entry->second);
    raise_foreign(begin, first);
    raise_foreign(last, begin + other.foreign_.size());
  }

  /// Whether join(other) would change nothing.
  bool covers(const VectorClock& other) const {
    if (cluster_ == other.cluster_) {
      for (std::size_t i = 0; i < other.own_.size(); ++i)
        if (other.own_[i] > (i < own_.size() ? own_[i] : 0)) return false;
    } else {
      auto [at, end] = entries_of(other.cluster_);
      for (std::size_t i = 0; i < other.own_.size(); ++i) {
        if (other.own_[i] == 0) continue;
        while (at != end && at->first < other.agent(i)) ++at;
        if (at == end || at->first != other.agent(i) || at->second < other.own_[i]) return false;
      }
    }
    const Entry *at = foreign_.data(), *const end = at + foreign_.size();
    for (const auto& [agent, clock] : other.foreign_) {
      if (agent >> kAgentBits == cluster_) {
        if (this->at(agent) < clock) return false;
        continue;
      }
      while (at != end && at->first < agent) ++at;
      if (at == end || at->first != agent || at->second < clock) return false;
    }
    return true;
  }

  /// Has seen what both have.
  void meet(const VectorClock& other) {
    for (std::size_t i = 0; i < own_.size(); ++i)
      own_[i] = std::min(own_[i], other.at(cluster_ << kAgentBits | static_cast<Agent>(i)));
    for (auto& [agent, clock] : foreign_) clock = std::min(clock, other.at(agent));
  }

 private:
  using Entry = std::pair<Agent, std::uint32_t>;

  Agent agent(std::size_t index) const { return cluster_ << kAgentBits | static_cast<Agent>(index); }

  /// The list's entries of one cluster.
  std::pair<const Entry*, const Entry*> entries_of(std::uint32_t cluster) const {
    const Entry *const begin = foreign_.data(), *const end = begin + foreign_.size();
    const auto is_before = [](const Entry& entry, std::uint32_t wanted) { return entry.first >> kAgentBits < wanted; };
    const Entry* const first = std::lower_bound(begin, end, cluster, is_before);
    return {first, std::lower_bound(first, end, cluster + 1, is_before)};
  }

  /// At least these, sorted and of other clusters. Lists of many CTAs' warps and lanes are long: both are walked once.
  void raise_foreign(const Entry* first, const Entry* last) {
    std::size_t missing = 0;
    auto at = foreign_.begin();
    for (const Entry* entry = first; entry != last; ++entry) {
      while (at != foreign_.end() && at->first < entry->first) ++at;
      if (at == foreign_.end() || at->first != entry->first)
        ++missing;
      else
        at->second = std::max(at->second, entry->second);
    }
    if (missing == 0) return;
    std::vector<Entry> both;
    both.reserve(foreign_.size() + missing);
    at = foreign_.begin();
    for (const Entry* entry = first; entry != last; ++entry) {
      while (at != foreign_.end() && at->first < entry->first) both.push_back(*at++);
      if (at == foreign_.end() || at->first != entry->first) both.push_back(*entry);
    }
    both.insert(both.end(), at, foreign_.end());
    foreign_ = std::move(both);
  }

  std::vector<Entry>::const_iterator find(Agent agent) const {
    return std::lower_bound(foreign_.begin(), foreign_.end(), agent,
                            [](const auto& entry, Agent wanted) { return entry.first < wanted; });
  }

  std::uint32_t of_foreign(Agent agent) const {
    const auto it = find(agent);
    return it != foreign_.end() && it->first == agent ? it->second : 0;
  }

  std::uint32_t cluster_ = 0;  // clusters count from 1: a clock of no cluster keeps a list only
  std::vector<std::uint32_t> own_;
  std::vector<Entry> foreign_;  // sorted
};

}  // namespace tessera::emulator
