// What runs in each step: continuous batching over a cache in pages. A request waits, gets a place in the batch, has
// its prompt computed in chunks and then a token a step, and gives its pages back. Where pages run out the youngest
// sequence gives its own back and waits to be computed again.
#pragma once

#include <cstdint>
#include <list>
#include <random>
#include <vector>

namespace server {

struct Limits {
  int places = 6;   ///< sequences of a launch
  int budget = 40;  ///< queries of a step
  int chunk = 24;   ///< queries of one prompt in a step
  int page_size = 16, pages = 22;
  int most_prompt = 90, most_answer = 30;
  double arrivals = 0.35;  ///< of a request, each step

  int most_tokens() const { return most_prompt + most_answer; }
  int most_pages() const { return (most_tokens() + page_size - 1) / page_size; }  ///< of a sequence
};

struct Sequence {
  int place = 0;             ///< in the batch, and its row of the table
  std::vector<int> tokens;   ///< of the prompt, then of the answer as far as it is
  std::size_t wanted = 0;    ///< tokens at the end
  std::size_t computed = 0;  ///< tokens whose keys are in the cache
  std::vector<int> pages;    ///< of the pool, in order
};

/// Tokens of a sequence from `computed` on that are computed in this step.
struct Chunk {
  Sequence* sequence = nullptr;
  int count = 0;
};

class Scheduler {
 public:
  Scheduler(const Limits& limits, int vocabulary, std::uint64_t seed);

  /// Lets requests arrive and picks what runs; its pages are there. In the order of places.
  std::vector<Chunk> next_step();
  /// Pages that were given back since the last call: what they hold is nobody's.
  std::vector<int> take_freed();
  /// Of a chunk that has run: its keys are in the cache. `next` follows the last token, where that was the last known.
  void finish(const Chunk& chunk, int next);

  struct Counts {
    int finished = 0, preempted = 0, most_places = 0, most_pages = 0;
    std::int64_t prefilled = 0, decoded = 0;
    int mixed_steps = 0;  ///< with chunks of prompts and single queries
  };
  const Counts& counts() const { return counts_; }

 private:
  void arrive();
  bool admit(int queries);
  bool take_pages(Sequence& sequence, int count, std::vector<Chunk>& plan);
  void preempt_youngest(std::vector<Chunk>& plan);
  void release(Sequence& sequence);
  int random(int from, int to);

  Limits limits_;
  int vocabulary_;
  std::mt19937_64 random_;
  std::list<Sequence> waiting_, running_;  ///< running ones in the order in which they were admitted
  std::vector<int> free_pages_, free_places_, freed_;
  Counts counts_;
};

}  // namespace server
