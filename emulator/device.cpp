#include "tessera/emulator/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "emulator/findings/schedule_clues.h"
#include "emulator/findings/unwritten_registers.h"
#include "emulator/grid_workspace.h"
#include "emulator/loaded_image.h"
#include "emulator/machine.h"
#include "emulator/memory/lazy_fill.h"
#include "emulator/memory/tensor_map.h"
#include "emulator/memory/texture.h"
#include "emulator/memory/weak_memory.h"
#include "emulator/parts.h"
#include "emulator/questions.h"
#include "emulator/syntax/resolver.h"
#include "emulator/time/whole.h"
#include "tessera/emulator/sample.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::emulator {

const char* to_string(Schedule schedule) noexcept {
  switch (schedule) {
    case Schedule::fair:
      return "fair";
    case Schedule::eager:
      return "eager";
    case Schedule::lazy:
      return "lazy";
    case Schedule::adversarial:
      return "adversarial";
    case Schedule::split:
      return "split";
    case Schedule::weak:
      return "weak";
  }
  return "";
}
namespace {

DeviceInfo make_info(const DeviceOptions& options) {
  DeviceInfo info;
  info.name = fmt::format("tessera emulator ({})", options.arch);
  const Arch target = parse_arch(options.arch).value_or(Arch{});
  info.compute_major = target.compute_major();
  info.compute_minor = target.compute_minor();
  info.num_sms = options.num_sms;
  info.l2_bytes = std::int64_t{32} << 20;
  info.max_dynamic_smem_bytes = smem_bytes_of(target);
  info.memory_bytes = static_cast<std::int64_t>(options.memory_bytes);
  info.is_emulated = true;
  return info;
}

void check_launch(const LaunchRequest& request, const LoadedEntry& loaded) {
  const Entry& entry = *loaded.entry;
  const auto refuse = [&](const std::string& text) {
    throw Error(ErrorKind::device, fmt::format("emulator: launch of '{}': {}", entry.name, text));
  };
  std::uint64_t threads = 1;
  std::uint64_t cluster = 1;
  for (std::size_t i = 0; i < 3; ++i) {
    if (request.grid[i] == 0 || request.block[i] == 0 || request.cluster[i] == 0)
      refuse("grid, block and cluster need at least 1 in every dimension");
    if (request.grid[i] % request.cluster[i] != 0)
      refuse(fmt::format("grid[{}] = {} is not a multiple of cluster[{}] = {}", i, request.grid[i], i,
                         request.cluster[i]));
    if (entry.required_cluster[0] != 0 && request.cluster[i] != entry.required_cluster[i])
      refuse(fmt::format("the kernel requires clusters of {} x {} x {}", entry.required_cluster[0],
                         entry.required_cluster[1], entry.required_cluster[2]));
    if (i == 2 && request.block[i] > 64) refuse(fmt::format("block[2] = {}: at most 64", request.block[i]));
    threads *= request.block[i];
    cluster *= request.cluster[i];
  }
  if (threads > 1024) refuse(fmt::format("{} threads in a block: at most 1024", threads));
  if (entry.max_threads != 0 && threads > entry.max_threads)
    refuse(fmt::format("{} threads in a block: the kernel was compiled for at most {}", threads, entry.max_threads));
  if (cluster > 16) refuse(fmt::format("{} CTAs in a cluster: at most 16", cluster));
  if (loaded.max_dynamic_smem < 0)
    refuse(fmt::format("{} bytes of static shared memory: at most {}", entry.static_smem_bytes, kMaxStaticBytes));
  if (request.dynamic_smem_bytes > loaded.max_dynamic_smem)
    refuse(fmt::format("{} bytes of dynamic shared memory: {} are allowed", request.dynamic_smem_bytes,
                       loaded.max_dynamic_smem));
  if (request.parameters == nullptr && !entry.parameters.empty()) refuse("the kernel has parameters; none were given");
}

}  // namespace

struct EmulatedDevice::State {
  static std::uintptr_t next_context() {
    static std::atomic<std::uintptr_t> last{0};
    return ++last;
  }
  explicit State(const DeviceOptions& o)
      : options(o), info(make_info(o)), memory(std::make_shared<GlobalMemory>(o.memory_bytes)) {
    info.memory_bytes = static_cast<std::int64_t>(memory->capacity());
  }
  DeviceOptions options;
  DeviceInfo info;
  std::shared_ptr<GlobalMemory> memory;
  TextureTable textures;
  std::mutex mutex;
  std::vector<EmulatorFinding> findings;
  std::vector<ScheduleClue> clues;
  LaunchStatistics statistics;
  bool is_synchronised = false;  ///< since the last launch: the next one counts anew
  Observer* observer = nullptr;
  std::uint64_t sampled_clusters = 0;  ///< 0: all of them run
  ClusterSample sample;
  std::vector<LaunchTime> times;
  std::uintptr_t next_handle = 1;
  std::vector<PriorGrid> prior_grids;  ///< what a programmatic dependent of the last launch may run beside
  std::uintptr_t prior_stream = 0;
  const std::uintptr_t context = next_context();  ///< an address would come back with a later device
  std::map<std::uintptr_t, std::chrono::steady_clock::time_point> events;

  void check_range(const char* what, DevicePointer address, std::size_t bytes) const {
    if (!memory->is_allocated(address, bytes))
      throw Error(ErrorKind::device, fmt::format("emulator: {} of {} bytes at 0x{:x}: {}", what, bytes, address,
                                                 memory->describe(address)));
  }
  // Some clusters, one after the other, each in a launch of its own.
  void run_sample(const Program& program, const Entry& entry, const LaunchShape& shape, const LaunchOptions& launch,
                  const std::vector<std::byte>& parameters) {
    sample = {0, clusters_of(shape)};
    for (const std::uint64_t cluster : chosen_clusters(sample.of_grid, sampled_clusters, launch.seed)) {
      Launch run(program, entry, *memory, shape, launch, parameters);
      if (run.weak && !options.tears_vectors) run.weak->vectors = Vectors::whole;
      run.next_cluster = cluster;
      run.num_clusters = cluster + 1;
      run.run();
      count(run.statistics);
      ++sample.run;
      for (const EmulatorFinding& finding : run.findings.all()) findings.push_back(finding);
      add(*run.clues);
      if (run.findings.has_failure()) return;
    }
  }
  void add(const ScheduleClues& of_launch) {
    for (ScheduleClue& clue : of_launch.all()) clues.push_back(std::move(clue));
  }
  // Launches follow each other: their counts and times add up.
  void count(const LaunchStatistics& launch) {
    if (std::exchange(is_synchronised, false)) statistics = {};
    statistics.threads = std::max(statistics.threads, launch.threads);
    if (!launch.why_one_thread.empty()) statistics.why_one_thread = launch.why_one_thread;
    if (statistics.threads > 1) statistics.why_one_thread.clear();
    statistics.warp_instructions += launch.warp_instructions;
    statistics.async_operations += launch.async_operations;
    statistics.async_bytes.add(launch.async_bytes);
    statistics.seconds += launch.seconds;
  }
};

EmulatedDevice::EmulatedDevice(const DeviceOptions& options) : state_(std::make_unique<State>(options)) {}
EmulatedDevice::~EmulatedDevice() = default;

const DeviceInfo& EmulatedDevice::info() const { return state_->info; }
DevicePointer EmulatedDevice::allocate(std::size_t bytes) { return state_->memory->allocate(bytes); }
void EmulatedDevice::free(DevicePointer pointer) noexcept { state_->memory->free(pointer); }

void EmulatedDevice::copy_to_device(DevicePointer to, const void* from, std::size_t bytes, Stream) {
  const std::lock_guard lock(state_->mutex);
  state_->prior_grids.clear();
  if (bytes == 0) return;
  state_->check_range("copy to the device", to, bytes);
  std::memcpy(state_->memory->data(to), from, bytes);
  state_->memory->mark_initialised(to, bytes);
}

void EmulatedDevice::copy_to_host(void* to, DevicePointer from, std::size_t bytes, Stream) {
  const std::lock_guard lock(state_->mutex);
  state_->prior_grids.clear();
  if (bytes == 0) return;
  state_->check_range("copy to the host", from, bytes);
  std::memcpy(to, state_->memory->data(from), bytes);
}

void EmulatedDevice::set_bytes(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream) {
  const std::lock_guard lock(state_->mutex);
  state_->prior_grids.clear();
  if (bytes == 0) return;
  state_->check_range("fill", to, bytes);
  if (state_->memory->is_shared(to, bytes))
    std::memset(state_->memory->data(to), value, bytes);
  else
    lazy_fill(state_->memory->data(to), bytes, std::byte{value});
  state_->memory->mark_initialised(to, bytes);
}

void EmulatedDevice::fill_pattern(DevicePointer to, std::span<const std::byte> pattern, std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->prior_grids.clear();
  if (bytes == 0) return;
  state_->check_range("fill", to, bytes);
  lazy_fill(state_->memory->data(to), bytes, pattern);
  state_->memory->mark_initialised(to, bytes);
}

std::vector<ByteRange> EmulatedDevice::written(DevicePointer from, std::size_t bytes) const {
  const std::lock_guard lock(state_->mutex);
  if (bytes == 0) return {};
  state_->check_range("look", from, bytes);
  return written_ranges({state_->memory->shadow(from), bytes});
}

void EmulatedDevice::sample_clusters(std::uint64_t count) {
  const std::lock_guard lock(state_->mutex);
  state_->sampled_clusters = count;
}

ClusterSample EmulatedDevice::last_sample() const {
  const std::lock_guard lock(state_->mutex);
  return state_->sample;
}

void EmulatedDevice::poison(DevicePointer to, std::uint8_t value, std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->prior_grids.clear();
  if (bytes == 0) return;
  state_->check_range("fill", to, bytes);
  lazy_fill(state_->memory->data(to), bytes, std::byte{value});
  state_->memory->mark_unwritten(to, bytes);
}

std::uint64_t EmulatedDevice::uninitialised_bytes(DevicePointer from, std::size_t bytes) const {
  const std::lock_guard lock(state_->mutex);
  if (bytes == 0) return 0;
  state_->check_range("look", from, bytes);
  const std::uint8_t* const shadow = state_->memory->shadow(from);
  return static_cast<std::uint64_t>(
      std::count_if(shadow, shadow + bytes, [](std::uint8_t bits) { return (bits & kInitialised) == 0; }));
}

Stream EmulatedDevice::create_stream() {
  const std::lock_guard lock(state_->mutex);
  return Stream::from_handle(state_->next_handle++);
}
void EmulatedDevice::destroy(Stream) noexcept {}
Event EmulatedDevice::create_event() {
  const std::lock_guard lock(state_->mutex);
  return {state_->next_handle++};
}
void EmulatedDevice::destroy(Event event) noexcept {
  const std::lock_guard lock(state_->mutex);
  state_->events.erase(event.handle);
}
void EmulatedDevice::record(Event event, Stream) {
  const std::lock_guard lock(state_->mutex);
  state_->events[event.handle] = std::chrono::steady_clock::now();
}
double EmulatedDevice::elapsed_ms(Event from, Event to) {
  const std::lock_guard lock(state_->mutex);
  const auto a = state_->events.find(from.handle);
  const auto b = state_->events.find(to.handle);
  if (a == state_->events.end() || b == state_->events.end())
    throw Error(ErrorKind::device, "emulator: an event that was never recorded has no time");
  return std::chrono::duration<double, std::milli>(b->second - a->second).count();
}

std::vector<Finding> EmulatedDevice::synchronize(Stream) {
  std::vector<Finding> found;
  for (const EmulatorFinding& finding : take_findings()) found.push_back(finding.to_finding());
  return found;
}
std::vector<EmulatorFinding> EmulatedDevice::take_findings() {
  const std::lock_guard lock(state_->mutex);
  state_->is_synchronised = true;
  state_->prior_grids.clear();
  return std::exchange(state_->findings, {});
}
std::vector<ScheduleClue> EmulatedDevice::take_clues() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->clues, {});
}
std::vector<LaunchTime> EmulatedDevice::take_times() {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->times, {});
}
bool EmulatedDevice::is_capturing(Stream) { return false; }
std::uintptr_t EmulatedDevice::current_context() { return state_->context; }
std::string EmulatedDevice::why_unusable(DevicePointer pointer) {
  const std::lock_guard lock(state_->mutex);
  return state_->memory->is_allocated(pointer, 1) ? "" : state_->memory->describe(pointer);
}
bool EmulatedDevice::is_allocated(DevicePointer pointer, std::size_t bytes) const {
  const std::lock_guard lock(state_->mutex);
  return bytes == 0 || state_->memory->is_allocated(pointer, bytes);
}

std::unique_ptr<LoadedImage> EmulatedDevice::load(const Image& image) {
  if (image.ptx.empty() || (image.merge.ptx.empty() && !image.merge.cubin.empty()))
    throw Error(ErrorKind::device, "emulator: the image holds no PTX");
  std::unique_ptr<LoadedImage> loaded = load_ptx(image.ptx, "kernel.ptx");
  if (!image.merge.ptx.empty()) static_cast<EmulatedImage&>(*loaded).set_merge(load_ptx(image.merge.ptx, "merge.ptx"));
  return knowing(std::move(loaded), image.report);
}

std::unique_ptr<LoadedImage> EmulatedDevice::load_ptx(std::string_view ptx, std::string_view file) {
  GlobalMemory& memory = *state_->memory;
  std::unique_ptr<Program> program =
      load_program(ptx, file, [&](const ModuleVariable& variable) { return memory.allocate(variable.bytes); },
                   {!state_->options.detects_unwritten_registers, state_->options.detects_races});
  for (const ModuleVariable& variable : program->variables) {
    std::memcpy(memory.data(variable.address), variable.initial.data(), variable.bytes);
    memory.mark_initialised(variable.address, variable.bytes);
  }
  return std::make_unique<EmulatedImage>(std::move(program), state_->memory, state_->info.max_dynamic_smem_bytes);
}

void EmulatedDevice::encode(const ResolvedTensorMap& map, TensorMapObject& out) { encode_tensor_map(map, out); }

bool EmulatedDevice::may_wait(EntryHandle entry) const {
  const std::lock_guard lock(state_->mutex);
  return entry.handle != 0 && !reinterpret_cast<const LoadedEntry*>(entry.handle)->known_speech().empty();
}

void EmulatedDevice::launch(const LaunchRequest& request, Stream stream) {
  if (request.entry.handle == 0) throw Error(ErrorKind::device, "emulator: launch of no kernel");
  const auto& loaded = *reinterpret_cast<const LoadedEntry*>(request.entry.handle);
  check_launch(request, loaded);
  std::vector<std::byte> parameters(loaded.entry->parameter_bytes);
  void* const* from = request.parameters;
  for (const ParameterSlot& slot : loaded.entry->parameters)
    std::memcpy(parameters.data() + slot.offset, *from++, slot.bytes);
  std::unique_lock lock(state_->mutex);
  const DeviceOptions& given = state_->options;
  LaunchOptions options{.schedule = given.schedule,
                        .seed = given.seed,
                        .max_warp_instructions = given.max_warp_instructions,
                        .max_seconds = given.max_seconds,
                        .is_interrupted = given.is_interrupted,
                        .num_sms = given.num_sms,
                        .detects_races = given.detects_races,
                        .print = given.print,
                        .observer = state_->observer,
                        .textures = &state_->textures,
                        .registers = loaded.registers};
  std::optional<UnwrittenRegisters> unwritten;
  ObserverList observers;
  if (state_->options.detects_unwritten_registers) {
    observers.add(&unwritten.emplace(*loaded.entry));
    if (state_->observer != nullptr) observers.add(state_->observer);
    options.observer = &observers;
  }
  const LaunchShape shape{request.grid, request.block, request.cluster, request.dynamic_smem_bytes};
  const GridWorkspace workspace(*state_->memory, *loaded.entry, shape, options);
  if (state_->sampled_clusters != 0) {
    state_->prior_grids.clear();
    return state_->run_sample(*loaded.program, *loaded.entry, shape, options, parameters);
  }
  if (state_->options.time) {
    const TimedResult timed = run_on_clock(*state_->options.time, *loaded.program, *loaded.entry, *state_->memory,
                                           shape, options, parameters, state_->options.skips_values, state_->times);
    loaded.tell(state_->times);
    state_->count(timed.statistics);
    state_->findings.insert(state_->findings.end(), timed.findings.begin(), timed.findings.end());
    return;
  }
  std::string why_one;
  if (state_->options.threads > 1) {
    LaunchOptions for_all = options;
    for_all.observer = state_->observer;  // registers are followed in each part
    why_one = why_whole(loaded.known_speech(), shape, for_all);
    if (why_one.empty()) {
      PartsResult result = run_in_parts(*loaded.program, *loaded.entry, *state_->memory, shape, options, parameters,
                                        state_->options.threads);
      state_->count(result.statistics);
      for (EmulatorFinding& finding : result.findings) state_->findings.push_back(std::move(finding));
      for (ScheduleClue& clue : result.clues) state_->clues.push_back(std::move(clue));
      return;
    }
  }
  Launch* running = nullptr;
  Questions questions(given, lock, given.rest && !loaded.known_speech().empty());
  if (given.rest || given.is_interrupted)
    options.is_interrupted = [&questions, &running] { return questions.ask(*running); };
  Launch run(*loaded.program, *loaded.entry, *state_->memory, shape, options, std::move(parameters));
  running = &run;
  if (run.weak && !given.tears_vectors) run.weak->vectors = Vectors::whole;
  if (request.programmatic_stream_serialization && stream.handle == state_->prior_stream)
    run.prior_grids = std::move(state_->prior_grids);
  run.run();
  state_->prior_grids = prior_grids_after(run);
  if (run.race && given.after_launch) given.after_launch(*run.race);
  state_->prior_stream = stream.handle;
  run.statistics.why_one_thread = why_one;
  state_->count(run.statistics);
  for (const EmulatorFinding& finding : run.findings.all()) state_->findings.push_back(finding);
  state_->add(*run.clues);
}

DeviceVariable EmulatedDevice::variable(const LoadedImage& image, std::string_view name) const {
  return dynamic_cast<const EmulatedImage&>(image).variable(name);
}

void EmulatedDevice::set_registers(EntryHandle handle, std::uint32_t registers) {
  reinterpret_cast<LoadedEntry*>(handle.handle)->registers = registers;
}

KernelFacts EmulatedDevice::facts(EntryHandle handle) {
  const Entry& entry = *reinterpret_cast<const LoadedEntry*>(handle.handle)->entry;
  return {entry.static_smem_bytes, entry.local_bytes,     entry.max_threads,
          entry.max_registers,     entry.min_ctas_per_sm, entry.required_cluster};
}

void EmulatedDevice::share_with_host(DevicePointer pointer, std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->check_range("share", pointer, bytes);
  state_->memory->share_with_host(pointer, bytes);
  state_->memory->mark_initialised(pointer, bytes);
}

DevicePointer EmulatedDevice::map_host(void* host, std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  return state_->memory->map_host(host, bytes);
}

VirtualMemory EmulatedDevice::virtual_memory() { return VirtualMemory(state_->memory); }
std::uint64_t EmulatedDevice::create_texture(const TextureDescription& description) {
  const std::lock_guard lock(state_->mutex);
  return state_->textures.add(description, false);
}
std::uint64_t EmulatedDevice::create_surface(const TextureDescription& description) {
  const std::lock_guard lock(state_->mutex);
  return state_->textures.add(description, true);
}
bool EmulatedDevice::destroy_texture(std::uint64_t handle) noexcept {
  const std::lock_guard lock(state_->mutex);
  return state_->textures.destroy(handle);
}

void EmulatedDevice::set_num_sms(int num_sms) {
  const std::lock_guard lock(state_->mutex);
  state_->options.num_sms = num_sms;
}

LaunchStatistics EmulatedDevice::statistics() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statistics;
}

void EmulatedDevice::set_observer(Observer* observer) {
  const std::lock_guard lock(state_->mutex);
  state_->observer = observer;
}

void EmulatedDevice::set_schedule(Schedule schedule, std::uint64_t seed) {
  const std::lock_guard lock(state_->mutex);
  state_->options.schedule = schedule;
  state_->options.seed = seed;
}

std::vector<std::string> validate_ptx(std::string_view ptx, std::string_view file) {
  std::uint64_t next = kGlobalBase;
  const std::unique_ptr<Program> program = load_program(ptx, file, [&next](const ModuleVariable& variable) {
    return std::exchange(next, next + (variable.bytes + 511) / 512 * 512);
  });
  std::vector<Diagnostic> problems;
  std::vector<std::string> names;
  for (const Entry& entry : program->entries) {
    problems.insert(problems.end(), entry.problems.begin(), entry.problems.end());
    names.push_back(entry.name);
  }
  if (!problems.empty()) throw_diagnostics(ErrorKind::compile, problems);
  return names;
}

}  // namespace tessera::emulator
