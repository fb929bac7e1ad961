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
};

/// Handles are addresses; the program destroys them, child graphs go with their parent.
Graph* keep_graph(std::shared_ptr<Graph> graph);
std::shared_ptr<Graph> find_graph(cudaGraph_t handle);
bool drop_graph(cudaGraph_t handle);

/// Nodes behind what they depend on. False: there is a cycle.
bool sort_nodes(Graph& graph);
cudaError_t instantiate(const Graph& graph, GraphExec*& made);
/// Takes the work of a graph of the same shape, node by node. False: the shapes differ.
bool update(GraphExec& exec, const Graph& graph);

cudaError_t begin_capture(const void* stream, std::shared_ptr<Graph> graph, std::vector<Node*> after);
cudaError_t end_capture(const void* stream, std::shared_ptr<Graph>& graph);

}  // namespace tessera::guest
