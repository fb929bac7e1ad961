// Schedule::weak: what a load may give besides the newest value, and where in the order of a location's writes a store
// may come. PTX ISA, "Memory Consistency Model".
//
// Of a location that was stored to in this launch the last writes are kept in coherence order, and memory holds the
// newest. A thread has a view: for each location the oldest write that it may still read, in coherence order. Reading
// and writing raise it; a barrier raises it to all that memory holds (more than the model says, so that nothing is
// wrong that the model allows to rely on). A write carries what its thread releases with it: the view of a
// st.release, or that of the last fence before a relaxed store. An acquire pattern takes that into the reader's view if
// the scopes of both include the other thread. fence.sc passes a view on to every later fence.sc of the scopes.
//
// So stores seem to come late and out of order (store buffering, message passing), threads need not agree on the order
// of two writes (IRIW), and a store may come before one that memory has already seen (2+2W).
//
// A load may come late too (load buffering): it is performed when an instruction of its warp first touches the register
// that it writes, or before what orders memory, is an atomic or touches its location. Stores behind it that do not
// depend on it may be seen before, so it may give a value that was written because of them. Nothing comes out of thin
// air: what depends on a load touches its register. Of what the model allows, that two weak loads of one location swap
// does not happen.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/memory/access.h"
#include "emulator/random.h"

namespace tessera::emulator {

/// Scopes from narrow to wide. PTX ISA, "Scope": gpu stands for sys too, since one device is emulated.
enum class Scope : std::uint8_t { cta, cluster, gpu };
inline constexpr std::size_t kScopes = 3;

/// Memory order of one access.
struct Order {
  bool is_strong = false;  ///< relaxed, volatile, acquire, release, or an atomic
  bool acquires = false;
  bool releases = false;
  Scope scope = Scope::cta;
};

/// How vectors of scalars are taken. PTX ISA ("Vector Data-types" of the memory consistency model): one by one, in any
/// order. Hardware gives and takes aligned ones of up to 16 bytes at once, and programs count on it, NVIDIA's CUB too.
enum class Vectors : std::uint8_t { torn, whole };

/// The bytes of one thread's vector store; number 0: none, a scalar one.
struct VectorStore {
  std::uint64_t number = 0;
  const std::byte* first = nullptr;
  std::size_t bytes = 0;
  bool has(const std::byte* place) const { return number != 0 && first <= place && place < first + bytes; }
};

class WeakMemory {
 public:
  explicit WeakMemory(Random& random) : random_(random) {}

  Vectors vectors = Vectors::torn;
  static constexpr std::size_t kMostWholeBytes = 16;  ///< of Vectors::whole

  /// What a load of `bytes` bytes (1 to 16, naturally aligned) at target.data gives, into `value`. beside: the vector
  /// store that another element of the same access met.
  /// Gives of which vector store it was a part.
  VectorStore load(const Warp& warp, int lane, const Target& target, std::size_t bytes, Order order, std::byte* value,
                   const VectorStore& beside = {});
  /// Of `count` elements side by side what memory held at one moment, each as a location of its own.
  void load_whole(const Warp& warp, int lane, const Target& target, std::size_t bytes, int count, Order order,
                  std::byte* values);
  /// Stores them at one moment: no other store comes between.
  void store_whole(const Warp& warp, int lane, const Target& target, std::size_t bytes, int count, Order order,
                   const std::byte* values);
  /// Stores `value`: into memory, unless the store comes before writes that memory has already seen.
  void store(const Warp& warp, int lane, const Target& target, std::size_t bytes, Order order, const std::byte* value,
             const VectorStore& vector = {});
  VectorStore new_vector(const Target& target, std::size_t bytes) { return {++num_vectors_, target.data, bytes}; }
  /// The elements of a vector access come in any order; here in one of two.
  bool is_backwards() { return random_.below(2) == 0; }
  /// After an atomic, which reads and writes the newest: `before` is what it read.
  void atomic(const Warp& warp, int lane, const Target& target, std::size_t bytes, Order order,
              const std::byte* before);
  /// Whether a load of this order is left for later.
  bool is_late(Order order) { return !order.acquires && random_.below(4) == 0; }
  using Writer = void (*)(const Warp& warp, const Operand& to, int lane, const std::byte* value);
  /// Leaves a load into `to` for later; `write` puts its value there.
  void load_later(Warp& warp, int lane, const Target& target, std::size_t bytes, Order order, const Operand& to,
                  Writer write);
  /// Performs what these lanes have left for later and the instruction touches; all of it where it orders memory.
  void before(Warp& warp, const Instruction& in, Mask active);
  /// Shared memory and threads of this CTA are new.
  void start(const Cta& cta);
  /// fence and membar of these lanes.
  void fence(const Warp& warp, Mask lanes, bool is_sc, Scope scope);
  /// A barrier that orders memory lets these lanes go on: they see all that was written so far; of a relaxed wait once
  /// a fence comes.
  void synchronise(const Warp& warp, Mask lanes, bool is_relaxed = false);

 private:
  using Place = const std::byte*;
  using Value = std::array<std::byte, 16>;

  struct View {
    std::uint64_t floor = 0;              ///< writes made until then are known
    std::map<Place, std::uint64_t> seen;  ///< of these locations, this write (Write::order)
    void join(const View& other);
  };
  /// By the scope at which it is released; null: nothing.
  using Released = std::array<std::shared_ptr<const View>, kScopes>;

  struct Write {
    std::uint64_t order = 0;  ///< in coherence order, over all locations
    std::uint64_t made = 0;   ///< clock_ then; 0: before this launch
    Value value{};
    bool is_strong = false, is_atomic = false;
    Scope scope = Scope::gpu;
    const Cta* by = nullptr;
    VectorStore vector{};
    Released released{};
  };
  struct Location {
    std::size_t bytes = 0;
    std::deque<Write> writes;  ///< oldest first
  };
  struct Thread {
    View view;
    std::array<std::shared_ptr<const View>, kScopes> fenced{};  ///< its view at the last fence of this scope or wider
    std::array<View, kScopes> heard{};  ///< what relaxed loads found released by threads of this scope, for a fence
  };

  struct LateLoad {
    int lane = 0;
    Target target;
    std::size_t bytes = 0;
    Order order;
    const Operand* to = nullptr;
    Writer write = nullptr;
  };

  void perform(const Warp& warp, const LateLoad& load);
  /// This lane touches the place.
  void perform_at(const Warp& warp, int lane, Place place, std::size_t bytes);
  Thread& thread_of(const Warp& warp, int lane);
  /// The location, made with what memory holds as its only write; null where its bytes overlap others' of another size.
  Location* find(const Target& target, std::size_t bytes, bool makes);
  void forget(Place place);
  std::size_t oldest_readable(const Thread& thread, const Location& location, Place place) const;
  void read(Thread& thread, const Warp& warp, Place place, const Write& write, Order order);
  Write written(const Thread& thread, const Warp& warp, Order order) const;
  std::uint64_t next_order() { return ++num_writes_ << 20; }

  Random& random_;
  std::uint64_t clock_ = 1, num_writes_ = 0, num_vectors_ = 0;
  std::unordered_map<Place, Location> locations_;
  std::deque<Place> by_age_;                                      ///< places of locations_, made first to last
  std::unordered_map<std::uint64_t, std::uint8_t> bytes_in_;      ///< by 16 bytes of memory: size of its locations
  std::unordered_map<const Warp*, std::vector<Thread>> threads_;  ///< a warp's lanes
  std::unordered_map<const Warp*, std::vector<LateLoad>> late_;   ///< in program order
  std::map<const void*, View> sc_views_;                          ///< by CTA, cluster; null: the device
};

/// The narrower scope that holds both threads' CTAs.
Scope scope_between(const Cta& a, const Cta& b);

}  // namespace tessera::emulator
