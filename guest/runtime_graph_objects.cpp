// Around the CUDA runtime's graphs: objects of the program that graphs hold, dependencies that are taken away, a graph
// as a picture, the memory of all graphs.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "guest/capture.h"
#include "guest/graph.h"
#include "guest/loaded.h"

namespace tessera::guest {
namespace {

/// Its destructor runs when the last reference is gone, wherever that was.
struct UserObject {
  void* data = nullptr;
  void (*destroy)(void*) = nullptr;
  unsigned references = 0;
};
std::set<UserObject*>& objects() {
  static auto* const made = new std::set<UserObject*>;
  return *made;
}
UserObject* object_of(cudaUserObject_t handle) {
  auto* const object = reinterpret_cast<UserObject*>(handle);
  return objects().contains(object) ? object : nullptr;
}
void release(UserObject* object, unsigned count) {
  object->references -= std::min(count, object->references);
  if (object->references != 0) return;
  objects().erase(object);
  object->destroy(object->data);
  delete object;
}

const char* kind_of(const Work& work) {
  constexpr const char* kNames[] = {"empty", "kernel",    "memcpy",   "memset",  "host",       "event",
                                    "graph", "mem alloc", "mem free", "library", "conditional"};
  static_assert(std::size(kNames) == std::variant_size_v<Work>);
  return kNames[work.index()];
}
std::string label_of(const Node& node, std::size_t number) {
  const auto* const launch = std::get_if<LaunchWork>(&node.work);
  if (launch == nullptr) return fmt::format("{}\\n{}", number, kind_of(node.work));
  return fmt::format("{}\\n{}\\n<<<{}x{}x{}, {}x{}x{}, {}>>>", number, launch->kernel->name, launch->grid.x,
                     launch->grid.y, launch->grid.z, launch->block.x, launch->block.y, launch->block.z, launch->smem);
}

}  // namespace
}  // namespace tessera::guest

using namespace tessera::guest;

extern "C" {

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* data, cudaHostFn_t destroy, unsigned references,
                                 unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    if (object == nullptr || destroy == nullptr || references == 0 || flags != cudaUserObjectNoDestructorSync)
      return cudaErrorInvalidValue;
    auto* const made = new UserObject{data, destroy, references};
    objects().insert(made);
    *object = reinterpret_cast<cudaUserObject_t>(made);
    return cudaSuccess;
  });
}
cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
  return called(__func__, [&]() -> cudaError_t {
    UserObject* const of = object_of(object);
    if (of == nullptr || count == 0) return cudaErrorInvalidValue;
    of->references += count;
    return cudaSuccess;
  });
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return called(__func__, [&]() -> cudaError_t {
    UserObject* const of = object_of(object);
    if (of == nullptr || count == 0 || count > of->references) return cudaErrorInvalidValue;
    release(of, count);
    return cudaSuccess;
  });
}
// A graph's references are shared by its clones and by what is made of it.
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> to = find_graph(graph);
    UserObject* const of = object_of(object);
    if (!to || of == nullptr || count == 0) return cudaErrorInvalidValue;
    const bool is_move = (flags & cudaGraphUserObjectMove) != 0;
    if (is_move && count > of->references) return cudaErrorInvalidValue;
    if (!is_move) of->references += count;
    for (unsigned i = 0; i < count; ++i)
      to->held.emplace_back(of, [](void* held) { release(static_cast<UserObject*>(held), 1); });
    return cudaSuccess;
  });
}
cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> from = find_graph(graph);
    if (!from || object_of(object) == nullptr) return cudaErrorInvalidValue;
    const auto is_it = [&](const std::shared_ptr<void>& held) { return held.get() == static_cast<void*>(object); };
    if (std::count_if(from->held.begin(), from->held.end(), is_it) < static_cast<std::ptrdiff_t>(count))
      return cudaErrorInvalidValue;
    for (unsigned i = 0; i < count; ++i) from->held.erase(std::find_if(from->held.begin(), from->held.end(), is_it));
    return cudaSuccess;
  });
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                        const cudaGraphEdgeData* edges, std::size_t count) {
  return cudaGraphRemoveDependencies_v2(graph, from, to, nullptr, is_program_of_cuda_12() ? address_of(edges) : count);
}
cudaError_t cudaGraphRemoveDependencies_v2(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                           const cudaGraphEdgeData*, std::size_t count) {
  return called(__func__, [&]() -> cudaError_t {
    if (!find_graph(graph)) return cudaErrorInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<Node*>& after = node_of(to[i])->after;
      const auto it = std::find(after.begin(), after.end(), node_of(from[i]));
      if (it == after.end()) return cudaErrorInvalidValue;
      after.erase(it);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  return called(__func__, [&]() -> cudaError_t {
    const std::shared_ptr<Graph> of = find_graph(graph);
    if (!of || path == nullptr) return cudaErrorInvalidValue;
    std::ofstream file(path);
    file << "digraph dot {\n";
    std::map<const Node*, std::size_t> numbers;
    for (const Node& node : of->nodes) {
      const std::size_t number = numbers.emplace(&node, numbers.size()).first->second;
      file << fmt::format("  node_{} [shape=box, label=\"{}\"];\n", number, label_of(node, number));
    }
    for (const Node& node : of->nodes)
      for (const Node* const before : node.after)
        file << fmt::format("  node_{} -> node_{};\n", numbers.at(before), numbers.at(&node));
    file << "}\n";
    file.close();
    return file ? cudaSuccess : cudaErrorOperatingSystem;
  });
}

// The memory of graphs stays while the program runs (work.h), so there is none to give back, and it is not counted.
cudaError_t cudaDeviceGraphMemTrim(int device) { return device == 0 ? cudaSuccess : told(cudaErrorInvalidDevice); }

}  // extern "C"
