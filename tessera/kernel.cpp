// Kernel: code for one Problem, loaded into each context on first use. The list of loads only grows, so a launch walks
// it without a lock.

#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "tessera/jit.h"

namespace tessera {

namespace {

/// The code in one context of one device.
struct Load {
  const Device* device;
  std::uintptr_t context;
  Launcher launcher;
  const Load* next;
};

}  // namespace

struct Kernel::State {
  Plan plan;
  std::shared_ptr<const CacheEntry> entry;
  LauncherOptions options;
  std::atomic<const Load*> loads{nullptr};
  std::mutex load_mutex;

  State(Plan p, std::shared_ptr<const CacheEntry> e, LauncherOptions o)
      : plan(std::move(p)), entry(std::move(e)), options(o) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    for (const Load* load = loads.load(); load != nullptr;) {
      const Load* next = load->next;
      delete load;
      load = next;
    }
  }

  const Load* find(const Device& device, std::uintptr_t context) const noexcept {
    for (const Load* load = loads.load(std::memory_order_acquire); load != nullptr; load = load->next) {
      if (load->device == &device && load->context == context) return load;
    }
    return nullptr;
  }

  const Launcher& prepare(Device& device, std::uintptr_t context) {
    const std::lock_guard lock(load_mutex);
    if (const Load* load = find(device, context)) return load->launcher;
    Image with_ptx;
    const bool lacks_ptx = device.info().is_emulated && !entry->has_ptx;  // the emulator runs PTX
    if (lacks_ptx) {
      with_ptx = entry->image;
      with_ptx.ptx = entry->read_ptx();
    }
    const Load* load =
        new Load{&device, context, Launcher(device, plan.launch, lacks_ptx ? with_ptx : entry->image, options),
                 loads.load(std::memory_order_relaxed)};
    loads.store(load, std::memory_order_release);
    return load->launcher;
  }
};

Kernel::Kernel(Plan plan, std::shared_ptr<const CacheEntry> entry, LauncherOptions options)
    : state_(std::make_unique<State>(std::move(plan), std::move(entry), options)) {}
Kernel::~Kernel() = default;

const Plan& Kernel::plan() const noexcept { return state_->plan; }
const CacheEntry& Kernel::entry() const noexcept { return *state_->entry; }

void Kernel::prepare(Device& device) { launcher(device); }

const Launcher& Kernel::launcher(Device& device) {
  const std::uintptr_t context = device.current_context();
  if (const Load* load = state_->find(device, context)) return load->launcher;
  return state_->prepare(device, context);
}

void Kernel::launch(Device& device, Stream stream, const LaunchArguments& arguments) {
  const std::uintptr_t context = device.current_context();
  const Load* load = state_->find(device, context);
  if (load != nullptr) return load->launcher.launch(stream, arguments);
  if (device.is_capturing(stream)) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: not loaded in this context yet, and its stream is being captured into a graph: call "
                            "prepare() before the capture begins",
                            state_->plan.kernel));
  }
  state_->prepare(device, context).launch(stream, arguments);
}

}  // namespace tessera
