#include "guest/graph.h"

#include <algorithm>
#include <set>

namespace tessera::guest {
namespace {

std::map<const void*, std::shared_ptr<Graph>>& graphs() {
  static auto* const made = new std::map<const void*, std::shared_ptr<Graph>>;
  return *made;
}

/// Everything that runs before these nodes, themselves among it.
std::set<const Node*> ancestors(const std::vector<Node*>& nodes) {
  std::set<const Node*> all;
  std::vector<const Node*> rest(nodes.begin(), nodes.end());
  while (!rest.empty()) {
    const Node* const node = rest.back();
    rest.pop_back();
    if (!all.insert(node).second) continue;
    rest.insert(rest.end(), node->after.begin(), node->after.end());
  }
  return all;
}

}  // namespace

Graph* keep_graph(std::shared_ptr<Graph> graph) {
  Graph* const handle = graph.get();
  graphs()[handle] = std::move(graph);
  return handle;
}
std::shared_ptr<Graph> find_graph(cudaGraph_t handle) {
  const auto it = graphs().find(handle);
  return it == graphs().end() ? nullptr : it->second;
}
bool drop_graph(cudaGraph_t handle) { return graphs().erase(handle) != 0; }

bool sort_nodes(Graph& graph) {
  std::set<const Node*> done;
  std::list<Node> sorted;
  while (!graph.nodes.empty()) {
    const auto ready = std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return std::all_of(node.after.begin(), node.after.end(), [&](const Node* n) { return done.contains(n); });
    });
    if (ready == graph.nodes.end()) break;
    done.insert(&*ready);
    sorted.splice(sorted.end(), graph.nodes, ready);
  }
  const bool is_sorted = graph.nodes.empty();
  graph.nodes.splice(graph.nodes.begin(), sorted);
  return is_sorted;
}

cudaError_t instantiate(const Graph& graph, GraphExec*& made) {
  auto exec = std::make_unique<GraphExec>();
  exec->graph = graph.clone();
  auto own = exec->graph->nodes.begin();
  for (const Node& node : graph.nodes) exec->of[&node] = &*own++;
  if (!sort_nodes(*exec->graph)) return cudaErrorInvalidValue;
  made = exec.release();
  return cudaSuccess;
}

bool update(GraphExec& exec, const Graph& graph) {
  const std::shared_ptr<Graph> other = graph.clone();
  if (!sort_nodes(*other) || other->nodes.size() != exec.graph->nodes.size()) return false;
  auto from = other->nodes.begin();
  for (const Node& node : exec.graph->nodes) {
    if (node.work.index() != from->work.index() || node.after.size() != from->after.size()) return false;
    ++from;
  }
  from = other->nodes.begin();
  for (Node& node : exec.graph->nodes) node.work = (from++)->work;
  return true;
}

cudaError_t begin_capture(const void* stream, std::shared_ptr<Graph> graph, std::vector<Node*> after) {
  StreamState* const state = find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (address_of(stream) <= 1) return cudaErrorStreamCaptureUnsupported;
  if (state->capture) return cudaErrorIllegalState;
  state->capture = std::make_shared<Capture>(Capture{std::move(graph), stream, false});
  state->tail = std::move(after);
  return cudaSuccess;
}

cudaError_t end_capture(const void* stream, std::shared_ptr<Graph>& graph) {
  StreamState* const state = find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  if (!state->capture) return cudaErrorIllegalState;
  if (state->capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  const std::shared_ptr<Capture> capture = state->capture;
  const std::set<const Node*> joined = ancestors(state->tail);
  bool is_joined = true;
  for_each_stream([&](StreamState& other) {
    if (other.capture != capture) return;
    for (const Node* const node : other.tail) is_joined = is_joined && joined.contains(node);
    other.capture = nullptr;
    other.tail.clear();
  });
  graph = capture->is_invalid || !is_joined ? nullptr : capture->graph;
  capture->graph = nullptr;  // events that still know it belong to no capture
  return graph ? cudaSuccess : is_joined ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
}

}  // namespace tessera::guest
