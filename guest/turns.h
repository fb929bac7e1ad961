// What streams were asked for and have not done when the call returns, and the threads that wait for it.
//
// Who runs what: all work runs under the session's mutex, one piece at a time, on the thread that holds it. What cannot
// wait for anybody (most launches, copies, fills) runs inside the call that asks for it, where nothing stands before
// it. The rest becomes items, each with the items that it comes after:
//   - a launch whose CTAs may speak to others (volatile, relaxed and atomic accesses) may as well wait for a launch of
//     another stream, or for the host: after kTurn warp instructions it rests (coroutine.h) until its next turn;
//   - a host function runs on the host thread (host_thread.h), beside the mutex;
//   - words of memory that a stream waits for, and loops of graphs, are looked at again and again;
//   - the nodes of a graph are items of their own;
//   - and so is what is asked for behind an item.
// Items that can go on do so in turns: while a thread of the host waits for some of them, asks for more, or calls
// nothing for a while. A thread that waits gives the mutex up between two walks over the items, so that others can ask
// for what it waits for.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "guest/work.h"

namespace tessera::guest {

class Coroutine;

struct Item {
  Work work;
  std::vector<std::shared_ptr<Item>> after{};
  bool is_done = false;
  bool is_of_blocking = false;             ///< its stream, which may be gone, is one that the legacy stream waits for
  std::shared_ptr<Coroutine> under_way{};  ///< a launch that has begun
  bool is_with_host = false;               ///< a host function that the host thread has
  std::optional<double> began{};           ///< waiting for others: the second
  std::shared_ptr<const void> holds{};     ///< what it needs of the program's, until it is done
};
using Items = std::vector<std::shared_ptr<Item>>;

/// Runs the work, or what of it comes before the host may go on. `host_waits`: the call returns when it is done, where
/// the host could tell.
cudaError_t ask(StreamState& stream, Work work, bool host_waits = false);

/// What the stream is asked for next comes after the item: work of the stream itself, which others may wait for.
cudaError_t wait_in(StreamState& stream, const std::shared_ptr<Item>& item);

/// What the stream has not done yet; of the legacy stream also what it waits for.
Items unfinished(StreamState& stream);
/// Returns when these are done, or the context is in an error; other threads' calls run meanwhile.
cudaError_t finish(const Items& items);
cudaError_t finish_all();
/// The same for a host that looks at memory then.
cudaError_t wait_for(const Items& items);
cudaError_t wait_for_all();
Items all_unfinished();
/// For the end of the program, which nobody's wait stands before: so long at most; the launches and host functions that
/// are left then.
std::size_t complete(std::chrono::seconds limit);
/// Of a context that is given up.
void forget_all();
/// Gives each that can run one turn; cudaErrorNotReady, where these are not done then.
cudaError_t query(const Items& items);
/// The event is no more, and nothing may record it.
void forget_event(EventState& event);

/// Warp instructions until the launch that runs on this thread is asked again; it may rest inside.
std::uint64_t rest();

}  // namespace tessera::guest
