// --shard: one machine's share of a list.
#pragma once

#include <string>

#include "cli/call.h"
#include "cli/planned_list.h"

namespace tessera::cli {

/// A kernel belongs to the shard that the SHA-256 of its name says: the same one whatever else is in the list.
class ShardFlags {
 public:
  void add_to(FlagSet& flags);
  /// Throws Error{usage}: no I/N, no such shard, or no variable of a scheduler where one is asked for.
  void parse();
  /// Leaves the kernels of this shard; says how many.
  void keep(const Call& call, KernelsOfList& kernels) const;

 private:
  void read_scheduler();

  std::string text_;
  std::int64_t count_of_flag_ = 0;
  std::int64_t index_ = 0, count_ = 1;
};

}  // namespace tessera::cli
