#include "guest/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "guest/capture.h"
#include "guest/device_runtime.h"
#include "guest/registered.h"
#include "guest/stream_order.h"
#include "guest/turns.h"
#include "tessera/error.h"

/// Set by the functions of the per-thread default stream (missing.cpp).
extern "C" {
extern unsigned char tessera_per_thread;
__attribute__((visibility("hidden"))) unsigned char tessera_per_thread = 0;
}

namespace tessera::guest {
namespace {

constexpr int kWhile = 1, kSwitch = 2;  // cudaGraphConditionalNodeType, which headers before CUDA 12.8 do not have

std::set<StreamState*>& streams() {
  static auto* const made = new std::set<StreamState*>;
  return *made;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

dim3 cluster_of(const LaunchWork& launch) {
  if (launch.cluster.x != 0) return launch.cluster;
  const auto& required = launch.kernel->facts.required_cluster;
  return required[0] == 0 ? dim3(1, 1, 1) : dim3(required[0], required[1], required[2]);
}

cudaError_t run_launch(const LaunchWork& launch) {
  Session& session = Session::instance();
  const Kernel& kernel = *launch.kernel;
  LoadedImage& image = kernel.module->image();
  emulator::EmulatedDevice& device = session.device();
  Registry::instance().place_managed();
  Blocks::instance().before_launch();
  image.set_max_dynamic_smem(kernel.entry, static_cast<std::int64_t>(launch.smem));
  const dim3 cluster = cluster_of(launch);
  LaunchRequest request;
  request.entry = kernel.entry;
  request.grid = {launch.grid.x, launch.grid.y, launch.grid.z};
  request.block = {launch.block.x, launch.block.y, launch.block.z};
  request.cluster = {cluster.x, cluster.y, cluster.z};
  request.dynamic_smem_bytes = static_cast<std::uint32_t>(launch.smem);
  request.programmatic_stream_serialization = launch.is_dependent;
  std::vector<std::byte> arguments = launch.arguments;
  use_device_addresses(arguments);
  std::vector<void*> pointers;
  for (const ParameterLayout& parameter : kernel.parameters) pointers.push_back(arguments.data() + parameter.offset);
  void* none = nullptr;
  request.parameters = pointers.empty() ? &none : pointers.data();
  // All CTAs of a cooperative launch are there at once: check() has seen that a real device has room for them.
  const std::uint64_t ctas = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  const bool needs_more = launch.is_cooperative && ctas > static_cast<std::uint64_t>(session.num_sms());
  if (needs_more) device.set_num_sms(static_cast<int>(ctas));
  device.launch(request, Stream());
  if (needs_more) device.set_num_sms(session.num_sms());
  const std::string shape =
      fmt::format("grid {} {} {} block {} {} {} cluster {} {} {} smem {}", launch.grid.x, launch.grid.y, launch.grid.z,
                  launch.block.x, launch.block.y, launch.block.z, cluster.x, cluster.y, cluster.z, launch.smem);
  session.finish_launch(kernel.name, shape);
  return run_launches_of(*kernel.module);  // what the kernel did wrong is said by the next call
}

// Of short pieces alone; in the order of the nodes, which stand behind what they depend on.
cudaError_t run(const Graph& graph) {
  for (const auto& [address, value] : graph.defaults) Session::instance().device().copy_to_device(address, &value, 4);
  for (const Node& node : graph.nodes) {
    const cudaError_t error = node.is_enabled ? perform(node.work) : cudaSuccess;
    if (error != cudaSuccess) return error;
    if (Session::instance().error() != cudaSuccess) break;
  }
  return cudaSuccess;
}

}  // namespace

StreamState* find_stream(const void* stream) {
  static auto* const legacy = new StreamState{0, 0, 1, nullptr, {}, true, {}};
  const std::uint64_t number = address_of(stream);
  const bool is_default = number == 0 || number == address_of(and_wait());
  if (number == 2 || (is_default && tessera_per_thread != 0)) {
    static thread_local StreamState* const own = make_stream(0, 0);
    return own;
  }
  if (number == 1 || is_default) return legacy;
  auto* const state = static_cast<StreamState*>(const_cast<void*>(stream));
  return streams().contains(state) ? state : nullptr;
}

void for_each_stream(const std::function<void(StreamState&)>& visit) {
  for (StreamState* const stream : streams()) visit(*stream);
}

StreamState* make_stream(unsigned flags, int priority) {
  static unsigned long long next = 3;
  auto* const made = new StreamState{flags, std::clamp(priority, -5, 0), next++, nullptr, {}, false, {}};
  streams().insert(made);
  return made;
}

cudaError_t destroy_stream(const void* stream) {
  StreamState* const state = address_of(stream) <= 2 ? nullptr : find_stream(stream);
  if (state == nullptr) return cudaErrorInvalidResourceHandle;
  leave_capture(*state);
  StreamOrder::instance().host_waited_for(*state);  // lenient: the legacy stream still waits for what it was asked for
  streams().erase(state);
  delete state;
  return cudaSuccess;
}

Node* Graph::add(Work work, std::vector<Node*> after) {
  return &nodes.emplace_back(Node{this, std::move(work), std::move(after)});
}

std::shared_ptr<Graph> Graph::clone() const {
  auto made = std::make_shared<Graph>();
  made->held = held;
  made->defaults = defaults;
  std::map<const Node*, Node*> of;
  for (const Node& node : nodes) of[&node] = made->add(node.work, {});
  auto at = made->nodes.begin();
  for (const Node& node : nodes) {
    for (const Node* before : node.after) at->after.push_back(of.at(before));
    at->is_enabled = node.is_enabled;
    ++at;
  }
  return made;
}

cudaError_t submit(const void* stream, Work work) {
  StreamState* state = nullptr;
  if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
  if (!state->capture) {
    if (const auto* const free = std::get_if<FreeWork>(&work))
      if (const cudaError_t error = Blocks::instance().begin_free(free->pointer, false); error != cudaSuccess)
        return error;
    return ask(*state, std::move(work), stream == and_wait());
  }
  state->tail = {state->capture->graph->add(std::move(work), state->tail)};
  return cudaSuccess;
}

cudaError_t perform(const Work& work) {
  struct Visitor {
    cudaError_t operator()(std::monostate) const { return cudaSuccess; }
    cudaError_t operator()(const LaunchWork& launch) const { return run_launch(launch); }
    cudaError_t operator()(const Box& box) const {
      StreamOrder::instance().note(box);
      return copy(box);
    }
    cudaError_t operator()(const Fill& work) const {
      StreamOrder::instance().note(work);
      return fill(work);
    }
    cudaError_t operator()(const EventWork& event) const {
      EventState& state = *event.event;
      if (!event.is_record) return cudaSuccess;  // its item came after what it waits for
      // A record before this one that has not come is none: the event is of this.
      if (state.item != nullptr && !state.item->is_done) forget_event(state);
      state.item = nullptr;
      state.is_recorded = true;
      StreamOrder::instance().note_record(state);
      // With predicted times an event tells these: a program's own timing is of the GPU that is not here.
      Session& session = Session::instance();
      state.seconds = session.is_predicting() ? session.predicted_seconds() : now();
      return cudaSuccess;
    }
    cudaError_t operator()(const AllocateWork&) const { return cudaSuccess; }  // it was, when the node was made
    cudaError_t operator()(const FreeWork& work) const { return Blocks::instance().free(work.pointer); }
    cudaError_t operator()(const LibraryWork& library) const { return library.run(); }
    cudaError_t operator()(const HostWork&) const { return cudaErrorUnknown; }  // these two wait for others
    cudaError_t operator()(const ChildWork& child) const { return run(*child.graph); }
    cudaError_t operator()(const ConditionalWork&) const { return cudaErrorUnknown; }
  };
  return std::visit(Visitor{}, work);
}

std::shared_ptr<Graph> chosen_body(const ConditionalWork& conditional) {
  std::uint32_t word = 0;
  Session::instance().device().copy_to_host(&word, conditional.handle, sizeof(word));
  // Of an if the second body, where there is one, is the else.
  const std::size_t chosen = conditional.kind == kSwitch ? word : word != 0 ? 0 : 1;
  return chosen < conditional.bodies.size() ? conditional.bodies[chosen] : nullptr;
}
bool is_loop(const ConditionalWork& conditional) { return conditional.kind == kWhile; }

cudaError_t record(EventState& event, const void* stream, bool is_external) {
  StreamState* state = nullptr;
  if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
  if (is_external && state->capture) return submit(stream, EventWork{&event, true});
  forget_event(event);
  event.capture = state->capture;
  event.tail = state->tail;
  event.item = nullptr;
  return state->capture ? cudaSuccess : ask(*state, EventWork{&event, true});
}

cudaError_t wait(const void* stream, EventState& event, bool is_external) {
  StreamState* state = nullptr;
  if (const cudaError_t error = usable(stream, state); error != cudaSuccess) return error;
  if (is_external && state->capture) return submit(stream, EventWork{&event, false});
  const bool is_captured = event.capture && event.capture->graph;
  if (!is_captured) {
    if (!state->capture) {
      StreamOrder::instance().wait(*state, event);
      return event.item == nullptr || event.item->is_done ? cudaSuccess : wait_in(*state, event.item);
    }
    if (!event.is_recorded && event.item == nullptr) return cudaSuccess;  // of no work there is nothing to wait for
    state->capture->is_invalid = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
  if (state->is_legacy || (state->capture && state->capture != event.capture)) {
    event.capture->is_invalid = true;
    if (state->capture) state->capture->is_invalid = true;
    return state->is_legacy ? cudaErrorStreamCaptureImplicit : cudaErrorStreamCaptureMerge;
  }
  state->capture = event.capture;
  for (Node* const node : event.tail)
    if (std::find(state->tail.begin(), state->tail.end(), node) == state->tail.end()) state->tail.push_back(node);
  return cudaSuccess;
}

bool may_wait(const LaunchWork& launch) {
  Session& session = Session::instance();
  // What a kernel launches is kept for its module until its grid has ended (device_runtime.h): no other runs meanwhile.
  return !session.is_predicting() && !launch.kernel->module->has_device_runtime() &&
         session.device().may_wait(launch.kernel->entry);
}

std::vector<std::byte> pack(const Kernel& kernel, void* const* arguments) {
  std::vector<std::byte> packed(kernel.parameter_bytes());
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(packed.data() + kernel.parameters[i].offset, arguments[i], kernel.parameters[i].bytes);
  return packed;
}

void set_attribute(LaunchWork& work, cudaLaunchAttributeID attribute, const cudaLaunchAttributeValue& value) {
  if (attribute == cudaLaunchAttributeClusterDimension)
    work.cluster = dim3(value.clusterDim.x, value.clusterDim.y, value.clusterDim.z);
  else if (attribute == cudaLaunchAttributeCooperative)
    work.is_cooperative = value.cooperative != 0;
  else if (attribute == cudaLaunchAttributeProgrammaticStreamSerialization)
    work.is_dependent = value.programmaticStreamSerializationAllowed != 0;
  else if (attribute == cudaLaunchAttributePriority)
    work.priority = value.priority;
}

int resident_ctas(const Kernel& kernel, std::size_t threads, std::size_t dynamic_smem) {
  const Gpu& gpu = Session::instance().gpu();
  if (threads == 0 || threads > 1024 || (kernel.facts.max_threads != 0 && threads > kernel.facts.max_threads)) return 0;
  constexpr std::size_t kReserved = 1024;  // the driver's own, of each CTA
  const std::size_t warps = (threads + 31) / 32, smem = kernel.facts.static_smem_bytes + dynamic_smem;
  if (smem > static_cast<std::size_t>(gpu.smem_optin)) return 0;
  const std::size_t by_threads = static_cast<std::size_t>(gpu.threads_per_sm) / 32 / warps;
  const std::size_t by_smem = static_cast<std::size_t>(gpu.smem_per_sm) / ((smem + kReserved + 127) / 128 * 128);
  return static_cast<int>(std::min({by_threads, by_smem, static_cast<std::size_t>(gpu.blocks_per_sm)}));
}

cudaError_t check(const LaunchWork& launch) {
  const Kernel& kernel = *launch.kernel;
  const Gpu& gpu = Session::instance().gpu();
  const std::uint64_t threads = std::uint64_t{launch.block.x} * launch.block.y * launch.block.z;
  const std::uint64_t ctas = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  if (threads == 0 || ctas == 0 || threads > 1024 || launch.block.z > 64) return cudaErrorInvalidConfiguration;
  if (launch.grid.x > 0x7FFFFFFF || launch.grid.y > 65535 || launch.grid.z > 65535)
    return cudaErrorInvalidConfiguration;
  if (kernel.facts.max_threads != 0 && threads > kernel.facts.max_threads) return cudaErrorInvalidValue;
  const std::size_t smem = kernel.facts.static_smem_bytes + launch.smem;
  const std::size_t allowed = std::max<std::size_t>(49152, kernel.facts.static_smem_bytes + kernel.max_dynamic_smem);
  if (smem > allowed || smem > static_cast<std::size_t>(gpu.smem_optin)) return cudaErrorInvalidValue;
  const dim3 cluster = cluster_of(launch);
  const std::uint64_t in_cluster = std::uint64_t{cluster.x} * cluster.y * cluster.z;
  const bool divides = in_cluster != 0 && launch.grid.x % cluster.x == 0 && launch.grid.y % cluster.y == 0 &&
                       launch.grid.z % cluster.z == 0;
  if (!divides || in_cluster > (kernel.has_large_clusters ? 16u : 8u)) return cudaErrorInvalidClusterSize;
  const std::uint64_t room = static_cast<std::uint64_t>(resident_ctas(kernel, threads, launch.smem)) *
                             static_cast<std::uint64_t>(Session::instance().num_sms());
  if (launch.is_cooperative && ctas > room) return cudaErrorCooperativeLaunchTooLarge;
  return cudaSuccess;
}

}  // namespace tessera::guest
