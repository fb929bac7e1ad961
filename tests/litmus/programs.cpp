// The list of litmus tests.
#include <fmt/format.h>

#include <string_view>

#include "tests/litmus/program.h"

namespace tessera::litmus {
namespace {

using Threads = std::vector<std::vector<Operation>>;

Operation load(int place) { return {Kind::load, place, 0}; }
Operation store(int place, int value = 1) { return {Kind::store, place, value}; }
Operation exchange(int place, int value) { return {Kind::exchange, place, value}; }

struct Shape {
  const char* name;
  Threads threads;
};

std::vector<Shape> shapes() {
  constexpr int x = 0, y = 1, z = 2;
  return {{"MP", {{store(x), store(y)}, {load(y), load(x)}}},
          {"SB", {{store(x), load(y)}, {store(y), load(x)}}},
          {"LB", {{load(x), store(y)}, {load(y), store(x)}}},
          {"S", {{store(x, 2), store(y)}, {load(y), store(x, 1)}}},
          {"R", {{store(x), store(y, 1)}, {store(y, 2), load(x)}}},
          {"2+2W", {{store(x, 1), store(y, 2)}, {store(y, 1), store(x, 2)}}},
          {"IRIW", {{store(x)}, {store(y)}, {load(x), load(y)}, {load(y), load(x)}}},
          {"WRC", {{store(x)}, {load(x), store(y)}, {load(y), load(x)}}},
          {"RWC", {{store(x)}, {load(x), load(y)}, {store(y), load(x)}}},
          {"WWC", {{store(x, 2)}, {load(x), store(y)}, {load(y), store(x, 1)}}},
          {"WRW+WR", {{store(x)}, {load(x), store(y, 1)}, {store(y, 2), load(x)}}},
          {"ISA2", {{store(x), store(y)}, {load(y), store(z)}, {load(z), load(x)}}},
          {"3.SB", {{store(x), load(y)}, {store(y), load(z)}, {store(z), load(x)}}},
          {"CoRR", {{store(x)}, {load(x), load(x)}}},
          {"CoWR", {{store(x, 1), load(x)}, {store(x, 2)}}},
          {"CoRW", {{load(x), store(x, 1)}, {store(x, 2)}}},
          {"CoWW", {{store(x, 1), store(x, 2)}, {load(x), load(x)}}},
          {"MP+exch", {{store(x), store(y)}, {exchange(y, 2)}, {load(y), load(x)}}},
          {"exch+exch", {{exchange(x, 1)}, {exchange(x, 2)}, {load(x), load(x)}}},
          {"SB+exch", {{exchange(x, 1), load(y)}, {exchange(y, 1), load(x)}}}};
}

/// How the accesses of every thread are ordered.
enum class Ordering { weak, relaxed, release_acquire, acq_rel_fences, sc_fences, half_fences };

/// Of a scope that leaves other threads out, accesses of one place are no race to the model either: what it allows then
/// (atomics that are none, loads that swap, loads behind a fence or an acquire that orders nothing) is not shown.
bool is_held_by_scope(const Shape& shape, Ordering ordering) {
  const std::string_view name = shape.name;
  if (name == "LB" || name == "WWC") return ordering != Ordering::relaxed;
  return name.starts_with("Co") || name.find("exch") != std::string_view::npos;
}
bool includes_all(Reach scope, Placement placement) {
  return static_cast<int>(scope) + static_cast<int>(placement) >= 2;
}

constexpr Ordering kOrderings[] = {Ordering::weak,           Ordering::relaxed,   Ordering::release_acquire,
                                   Ordering::acq_rel_fences, Ordering::sc_fences, Ordering::half_fences};
constexpr const char* kOrderingNames[] = {"weak", "relaxed", "rel-acq", "fence.acq_rel", "fence.sc", "one-fence"};
constexpr const char* kScopeNames[] = {"cta", "cluster", "gpu"};
constexpr const char* kPlacementNames[] = {"apart", "one-cluster", "one-cta"};

Program program_of(const Shape& shape, Ordering ordering, Reach scope, Placement placement, Space space) {
  Program program;
  program.name =
      fmt::format("{}+{}.{}+{}+{}", shape.name, kOrderingNames[static_cast<std::size_t>(ordering)],
                  kScopeNames[static_cast<std::size_t>(scope)], kPlacementNames[static_cast<std::size_t>(placement)],
                  space == Space::global ? "global" : "shared");
  program.placement = placement;
  program.space = space;
  for (std::size_t t = 0; t < shape.threads.size(); ++t) {
    std::vector<Operation> thread;
    for (Operation operation : shape.threads[t]) {
      const bool has_fence = ordering == Ordering::acq_rel_fences || ordering == Ordering::sc_fences ||
                             (ordering == Ordering::half_fences && t == 0);
      if (!thread.empty() && has_fence) {
        Operation fence;
        fence.kind = Kind::fence;
        fence.meaning = ordering == Ordering::sc_fences ? Meaning::sc : Meaning::acq_rel;
        fence.scope = scope;
        thread.push_back(fence);
      }
      operation.scope = scope;
      operation.meaning = Meaning::relaxed;
      if (ordering == Ordering::weak && operation.kind != Kind::exchange) operation.meaning = Meaning::weak;
      if (ordering == Ordering::release_acquire)
        operation.meaning = operation.kind == Kind::load    ? Meaning::acquire
                            : operation.kind == Kind::store ? Meaning::release
                                                            : Meaning::acq_rel;
      thread.push_back(operation);
    }
    program.threads.push_back(std::move(thread));
  }
  return program;
}

}  // namespace

std::vector<std::pair<Program, bool>> programs() {
  std::vector<std::pair<Program, bool>> all;
  for (const Shape& shape : shapes())
    for (const Ordering ordering : kOrderings)
      for (const Placement placement : {Placement::apart, Placement::one_cluster, Placement::one_cta})
        for (const Reach scope : {Reach::gpu, Reach::cluster, Reach::cta})
          for (const Space space : {Space::global, Space::shared}) {
            if (placement == Placement::apart && space == Space::shared) continue;
            if (ordering == Ordering::weak && scope != Reach::gpu) continue;
            all.emplace_back(
                program_of(shape, ordering, scope, placement, space),
                ordering != Ordering::weak && (includes_all(scope, placement) || !is_held_by_scope(shape, ordering)));
          }
  return all;
}

}  // namespace tessera::litmus
