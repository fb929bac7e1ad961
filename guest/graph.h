// Graphs that a program holds: by capture or built node by node, instantiated, changed, launched. What they are made of
// is in work.h.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <memory>

#include "guest/work.h"

namespace tessera::guest {

/// A graph that is launched: a copy, and for each node of the graph that it was made of its own.
struct GraphExec {
  std::shared_ptr<Graph> graph;
  std::map<const Node*, Node*> of;
  unsigned long long flags = 0;
};

/// Handles are addresses; the program destroys them, child graphs go with their parent.
Graph* keep_graph(std::shared_ptr<Graph> graph);
std::shared_ptr<Graph> find_graph(cudaGraph_t handle);
bool drop_graph(cudaGraph_t handle);

inline Node* node_of(cudaGraphNode_t node) { return reinterpret_cast<Node*>(node); }
inline std::vector<Node*> nodes_of(const cudaGraphNode_t* nodes, std::size_t count) {
  std::vector<Node*> list;
  for (std::size_t i = 0; i < count; ++i) list.push_back(node_of(nodes[i]));
  return list;
}

/// Adds a node with the work that make(work) makes; its error, or cudaErrorInvalidValue for no graph and no place.
template <class Make>
cudaError_t add_node(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after, std::size_t count,
                     Make& make) {
  const std::shared_ptr<Graph> of = find_graph(graph);
  if (!of || node == nullptr) return cudaErrorInvalidValue;
  Work work;
  if (const cudaError_t error = make(work); error != cudaSuccess) return error;
  *node = reinterpret_cast<cudaGraphNode_t>(of->add(std::move(work), nodes_of(after, count)));
  return cudaSuccess;
}

/// Gives a node, or its like in an exec (null: none), other work of the same kind.
template <class Make>
cudaError_t change_node(cudaGraphExec_t exec, cudaGraphNode_t node, Make& make) {
  Node* to = node_of(node);
  if (exec != nullptr) {
    const auto& own = reinterpret_cast<GraphExec*>(exec)->of;
    const auto found = own.find(to);
    if (found == own.end()) return cudaErrorInvalidValue;
    to = found->second;
  }
  Work work;
  if (const cudaError_t error = make(work); error != cudaSuccess) return error;
  if (work.index() != to->work.index()) return cudaErrorInvalidValue;
  to->work = std::move(work);
  return cudaSuccess;
}

/// Nodes behind what they depend on. False: there is a cycle.
bool sort_nodes(Graph& graph);
cudaError_t instantiate(const Graph& graph, GraphExec*& made);
/// Takes the work of a graph of the same shape, node by node. False: the shapes differ.
bool update(GraphExec& exec, const Graph& graph);

}  // namespace tessera::guest
