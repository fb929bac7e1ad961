// Launches that have not ended when their call returns, and what waits for them.
//
// Most launches run inside the call that asks for them. One whose CTAs may speak to others (volatile, relaxed and
// atomic accesses) may as well wait for a launch of another stream, or for the host: after kTurn warp instructions it
// rests, and the call returns. What is asked for behind it becomes an item with the items that it comes after; items
// without work before them go on in turns: while the host waits for one, asks for more, or calls nothing for a while.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "guest/work.h"

namespace tessera::guest {

class Coroutine;

struct Item {
  Work work;
  std::vector<std::shared_ptr<Item>> after{};
  std::shared_ptr<Coroutine> under_way{};  ///< a launch that has begun
  bool is_done = false;
  bool is_of_blocking = false;  ///< its stream, which may be gone, is one that the legacy stream waits for
};
using Items = std::vector<std::shared_ptr<Item>>;

/// Runs the work, or what of it comes before the host may go on.
cudaError_t ask(StreamState& stream, Work work);

/// What the stream is asked for next comes after the item: work of the stream itself, which others may wait for.
cudaError_t wait_in(StreamState& stream, const std::shared_ptr<Item>& item);

/// What the stream has not done yet; of the legacy stream also what it waits for.
Items unfinished(StreamState& stream);
/// Returns when these are done, or the context is in an error.
cudaError_t finish(const Items& items);
cudaError_t finish_all();
/// The same for a host that looks at memory then.
cudaError_t wait_for(const Items& items);
Items all_unfinished();
/// For the end of the program, which nobody's wait stands before: so long at most; the launches that are left then.
std::size_t complete(std::chrono::seconds limit);
/// Gives each that can run one turn; whether all of these are done then.
bool are_done(const Items& items);
/// The event is no more, and nothing may record it.
void forget_event(EventState& event);

/// Warp instructions until the launch that runs on this thread is asked again; it may rest inside.
std::uint64_t rest();

}  // namespace tessera::guest
