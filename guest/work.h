// What a program asks a stream to do: launches, copies, fills, host functions. Most of it runs inside the call that
// asks for it, what may have to wait in turns (turns.h); while the stream is captured it becomes a node of a graph,
// which runs the same work each time it is launched.
#pragma once

#include <cstddef>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <variant>
#include <vector>

#include "guest/memory.h"
#include "guest/module.h"

namespace tessera::guest {

struct Graph;
struct EventState;
struct Item;
struct StreamState;

/// How many pieces of each stream, by its number, come before something (stream_order.h).
using StreamClock = std::map<std::uint64_t, std::uint64_t>;

struct LaunchWork {
  Kernel* kernel = nullptr;
  const void* host = nullptr;                            ///< what the program calls it
  dim3 grid{1, 1, 1}, block{1, 1, 1}, cluster{0, 0, 0};  ///< cluster 0: the kernel's own
  std::size_t smem = 0;
  bool is_cooperative = false, is_dependent = false;
  int priority = 0;  ///< kept for those who ask
  std::vector<std::byte> arguments;
  std::vector<void*> argument_pointers{};  ///< for those who ask a node
};
/// A host function, or a callback of cudaStreamAddCallback, which is told of its stream and of errors.
struct HostWork {
  void (*function)(void*) = nullptr;
  void* data = nullptr;
  cudaStreamCallback_t callback = nullptr;
  void* stream = nullptr;
};
struct EventWork {
  EventState* event = nullptr;
  bool is_record = true;
};
struct ChildWork {
  std::shared_ptr<Graph> graph;
};
struct AllocateWork {
  void* pointer = nullptr;
  std::size_t bytes = 0;
};
struct FreeWork {
  void* pointer = nullptr;
};
/// What a stand-in for a library computes on the host (stand_ins/), or words of memory that a stream writes and waits
/// for: cudaErrorNotReady where one is not there yet, and then it is run again.
struct LibraryWork {
  std::function<cudaError_t()> run;
  bool is_memory_operation = false;
};
/// Graphs that run as a word says: once or not, as long as it is not 0, or the one of this number.
struct ConditionalWork {
  std::uint64_t handle = 0;  ///< the word's address, on the device
  int kind = 0;              ///< cudaGraphConditionalNodeType
  std::vector<std::shared_ptr<Graph>> bodies{};
  std::vector<void*> handles{};  ///< of the bodies, for the program
};
using Work = std::variant<std::monostate, LaunchWork, Box, Fill, HostWork, EventWork, ChildWork, AllocateWork, FreeWork,
                          LibraryWork, ConditionalWork>;

struct Node {
  Graph* graph = nullptr;
  Work work;
  std::vector<Node*> after;  ///< what runs before it
  bool is_enabled = true;
};
struct Graph {
  std::list<Node> nodes;                      ///< behind what they depend on
  std::vector<std::shared_ptr<void>> held{};  ///< references to objects of the program
  /// Words of conditional nodes that each launch begins with: address, value.
  std::vector<std::pair<std::uint64_t, std::uint32_t>> defaults{};
  std::shared_ptr<Item> last{};  ///< of the launch of it that was asked for last (turns.h)
  StreamClock clock{};           ///< of that launch
  Node* add(Work work, std::vector<Node*> after);
  std::shared_ptr<Graph> clone() const;
};

/// While a stream is captured: the graph, and what the stream's next work waits for. Streams that join share the graph.
/// What a capture refuses: capture.h.
struct Capture {
  std::shared_ptr<Graph> graph;
  const StreamState* origin = nullptr;  ///< the stream that began
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread{};  ///< that began
  bool is_invalid = false;
};
struct StreamState {
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  std::shared_ptr<Capture> capture;
  std::vector<Node*> tail;
  bool is_legacy = false;
  std::map<int, cudaLaunchAttributeValue> attributes{};  ///< kept for those who ask
  std::shared_ptr<Item> last{};                          ///< what has not been done yet (turns.h); null: nothing
  StreamClock clock{};
};
struct EventState {
  bool is_recorded = false, has_timing = true;
  double seconds = 0;
  std::shared_ptr<Capture> capture;  ///< that recorded it last, also when it is over
  std::vector<Node*> tail;
  std::shared_ptr<Item> item{};  ///< that records it
  StreamClock clock{};           ///< of what it was recorded behind
};

/// In the place of a stream: the default one, and the call returns when the work is done (cudaMemcpy).
inline cudaStream_t and_wait() { return reinterpret_cast<cudaStream_t>(std::uintptr_t{3}); }
/// 1 is the legacy default stream, 2 the calling thread's own, and 0 one of them: the thread's own in programs that
/// were compiled with --default-stream per-thread. Null: there is no such stream.
StreamState* find_stream(const void* stream);
/// Of all, the legacy one aside.
void for_each_stream(const std::function<void(StreamState&)>& visit);
StreamState* make_stream(unsigned flags, int priority);
cudaError_t destroy_stream(const void* stream);

/// Runs the work or keeps it.
cudaError_t submit(const void* stream, Work work);
/// Runs work that waits for nobody: no host function, no graph that has one.
cudaError_t perform(const Work& work);
/// What the word says now; null: none of the bodies.
std::shared_ptr<Graph> chosen_body(const ConditionalWork& conditional);
bool is_loop(const ConditionalWork& conditional);
/// The launch may wait for another one, or for the host.
bool may_wait(const LaunchWork& launch);
/// Of a captured stream an event is a place in its graph; `is_external`: it becomes a node of its own.
cudaError_t record(EventState& event, const void* stream, bool is_external);
cudaError_t wait(const void* stream, EventState& event, bool is_external);

/// Lays the arguments out as the kernel takes them.
std::vector<std::byte> pack(const Kernel& kernel, void* const* arguments);
/// An attribute of a launch: those that change what runs; others are hints.
void set_attribute(LaunchWork& work, cudaLaunchAttributeID attribute, const cudaLaunchAttributeValue& value);
/// Whether hardware would take the launch; the error, otherwise.
cudaError_t check(const LaunchWork& launch);
/// CTAs of one multiprocessor that run at once, by the limits that PTX shows: threads, CTAs, shared memory.
int resident_ctas(const Kernel& kernel, std::size_t threads, std::size_t dynamic_smem);

}  // namespace tessera::guest
