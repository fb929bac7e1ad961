#include "guest/graph.h"

#include <algorithm>
#include <set>

namespace tessera::guest {
namespace {

std::map<const void*, std::shared_ptr<Graph>>& graphs() {
  static auto* const made = new std::map<const void*, std::shared_ptr<Graph>>;
  return *made;
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

}  // namespace tessera::guest
