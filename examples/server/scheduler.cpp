#include "scheduler.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace server {

Scheduler::Scheduler(const Limits& limits, int vocabulary, std::uint64_t seed)
    : limits_(limits), vocabulary_(vocabulary), random_(seed) {
  for (int page = limits.pages - 1; page >= 0; --page) free_pages_.push_back(page);
  for (int place = limits.places - 1; place >= 0; --place) free_places_.push_back(place);
}

int Scheduler::random(int from, int to) {
  return from + static_cast<int>(random_() % static_cast<std::uint64_t>(to - from + 1));
}

void Scheduler::arrive() {
  if (static_cast<double>(random_() >> 11) * 0x1p-53 >= limits_.arrivals) return;
  Sequence sequence;
  sequence.tokens.resize(static_cast<std::size_t>(random(1, limits_.most_prompt)));
  for (int& token : sequence.tokens) token = random(0, vocabulary_ - 1);
  sequence.wanted = sequence.tokens.size() + static_cast<std::size_t>(random(1, limits_.most_answer));
  waiting_.push_back(std::move(sequence));
}

/// Where there is a place, and pages for its first queries.
bool Scheduler::admit(int queries) {
  if (waiting_.empty() || free_places_.empty()) return false;
  const int first = std::min({queries, limits_.chunk, static_cast<int>(waiting_.front().tokens.size())});
  if (static_cast<int>(free_pages_.size()) * limits_.page_size < first) return false;
  running_.splice(running_.end(), waiting_, waiting_.begin());
  running_.back().place = free_places_.back();
  free_places_.pop_back();
  return true;
}

void Scheduler::release(Sequence& sequence) {
  free_pages_.insert(free_pages_.end(), sequence.pages.begin(), sequence.pages.end());
  freed_.insert(freed_.end(), sequence.pages.begin(), sequence.pages.end());
  sequence.pages.clear();
  sequence.computed = 0;
  free_places_.push_back(sequence.place);
}

void Scheduler::preempt_youngest(std::vector<Chunk>& plan) {
  Sequence& youngest = running_.back();
  std::erase_if(plan, [&](const Chunk& chunk) { return chunk.sequence == &youngest; });
  release(youngest);
  waiting_.splice(waiting_.begin(), running_, std::prev(running_.end()));
  ++counts_.preempted;
}

/// False where the sequence itself, being the youngest, had to wait.
bool Scheduler::take_pages(Sequence& sequence, int count, std::vector<Chunk>& plan) {
  const std::size_t page = static_cast<std::size_t>(limits_.page_size);
  const std::size_t needed = (sequence.computed + static_cast<std::size_t>(count) + page - 1) / page;
  while (sequence.pages.size() < needed) {
    if (free_pages_.empty()) {
      const bool is_own = &sequence == &running_.back();
      preempt_youngest(plan);
      if (is_own) return false;
      continue;
    }
    sequence.pages.push_back(free_pages_.back());
    free_pages_.pop_back();
  }
  return true;
}

std::vector<Chunk> Scheduler::next_step() {
  arrive();
  std::vector<Chunk> plan;
  const auto left = [&] {
    int queries = limits_.budget;
    for (const Chunk& chunk : plan) queries -= chunk.count;
    return queries;
  };
  // Single queries first, so that no answer waits for another's prompt; then prompts, the oldest first.
  for (const bool is_prompts : {false, true}) {
    for (auto sequence = running_.begin(); left() > 0; ++sequence) {
      if (sequence == running_.end() && is_prompts && admit(left())) sequence = std::prev(running_.end());
      if (sequence == running_.end()) break;
      const int open = static_cast<int>(sequence->tokens.size() - sequence->computed);
      if ((open > 1) != is_prompts) continue;
      const int count = std::min({open, limits_.chunk, left()});
      if (!take_pages(*sequence, count, plan)) break;  // it was the last one
      plan.push_back({&*sequence, count});
    }
  }
  std::sort(plan.begin(), plan.end(),
            [](const Chunk& a, const Chunk& b) { return a.sequence->place < b.sequence->place; });
  counts_.most_places = std::max(counts_.most_places, static_cast<int>(running_.size()));
  counts_.most_pages = std::max(counts_.most_pages, limits_.pages - static_cast<int>(free_pages_.size()));
  const auto is_single = [](const Chunk& chunk) { return chunk.count == 1; };
  if (std::any_of(plan.begin(), plan.end(), is_single) && !std::all_of(plan.begin(), plan.end(), is_single))
    ++counts_.mixed_steps;
  return plan;
}

std::vector<int> Scheduler::take_freed() { return std::exchange(freed_, {}); }

void Scheduler::finish(const Chunk& chunk, int next) {
  Sequence& sequence = *chunk.sequence;
  sequence.computed += static_cast<std::size_t>(chunk.count);
  (chunk.count == 1 ? counts_.decoded : counts_.prefilled) += chunk.count;
  if (sequence.computed < sequence.tokens.size()) return;
  sequence.tokens.push_back(next);
  if (sequence.tokens.size() < sequence.wanted) return;
  ++counts_.finished;
  release(sequence);
  running_.remove_if([&](const Sequence& other) { return &other == &sequence; });
}

}  // namespace server
