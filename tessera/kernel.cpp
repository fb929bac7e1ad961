// Kernel: code for one Problem, loaded into each context on first use. The list of loads only grows, so a launch walks
// it without a lock; a place in it whose device has ended serves a later one.

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "tessera/internal/loads.h"
#include "tessera/jit.h"

namespace tessera {

namespace {

/// The code in one context of one device.
struct Load {
  std::atomic<const Device*> device;  ///< stored last: null while nobody may look at the rest
  std::atomic<std::uintptr_t> context;
  std::unique_ptr<const Launcher> launcher;
  Load* next;
};

class Loads;

/// Those of all kernels.
struct AllLoads {
  std::mutex mutex;  ///< taken before that of one of them
  std::unordered_set<Loads*> of_kernels;
};
AllLoads& all_loads() {
  static auto* const all = new AllLoads();  // kernels may end after the statics
  return *all;
}

/// Of one kernel.
class Loads {
 public:
  Loads() {
    const std::lock_guard lock(all_loads().mutex);
    all_loads().of_kernels.insert(this);
  }
  ~Loads() {
    {
      const std::lock_guard lock(all_loads().mutex);
      all_loads().of_kernels.erase(this);
    }
    for (const Load* load = first_.load(); load != nullptr;) {
      const Load* next = load->next;
      delete load;
      load = next;
    }
  }
  Loads(const Loads&) = delete;
  Loads& operator=(const Loads&) = delete;

  const Launcher* find(const Device& device, std::uintptr_t context) const noexcept {
    for (const Load* load = first_.load(std::memory_order_acquire); load != nullptr; load = load->next) {
      if (load->device.load(std::memory_order_acquire) == &device &&
          load->context.load(std::memory_order_relaxed) == context)
        return load->launcher.get();
    }
    return nullptr;
  }

  /// The launcher, made by make() where there is none.
  template <class Make>
  const Launcher& find_or_add(const Device& device, std::uintptr_t context, const Make& make) {
    const std::lock_guard lock(mutex_);
    if (const Launcher* found = find(device, context)) return *found;
    Load* load = first_.load(std::memory_order_relaxed);
    while (load != nullptr && load->device.load(std::memory_order_relaxed) != nullptr) load = load->next;
    if (load != nullptr) {
      load->launcher = make();
      load->context.store(context, std::memory_order_relaxed);
      load->device.store(&device, std::memory_order_release);
    } else {
      load = new Load{&device, context, make(), first_.load(std::memory_order_relaxed)};
      first_.store(load, std::memory_order_release);
    }
    return *load->launcher;
  }

  void drop(const Device& device) noexcept {
    const std::lock_guard lock(mutex_);
    for (Load* load = first_.load(std::memory_order_relaxed); load != nullptr; load = load->next) {
      if (load->device.load(std::memory_order_relaxed) != &device) continue;
      load->device.store(nullptr, std::memory_order_relaxed);
      load->launcher.reset();
    }
  }

 private:
  std::atomic<Load*> first_{nullptr};
  std::mutex mutex_;
};

}  // namespace

void drop_loads(const Device& device) noexcept {
  AllLoads& all = all_loads();
  const std::lock_guard lock(all.mutex);
  for (Loads* loads : all.of_kernels) loads->drop(device);
}

struct Kernel::State {
  Plan plan;
  std::shared_ptr<const CacheEntry> entry;
  LauncherOptions options;
  Loads loads{};

  State(Plan p, std::shared_ptr<const CacheEntry> e, LauncherOptions o)
      : plan(std::move(p)), entry(std::move(e)), options(o) {}

  std::unique_ptr<const Launcher> load(Device& device) const {
    const bool lacks_ptx = device.info().is_emulated && !entry->has_ptx;  // the emulator runs PTX
    const Image with_ptx = lacks_ptx ? entry->whole_image() : Image{};
    return std::make_unique<const Launcher>(device, plan.launch, lacks_ptx ? with_ptx : entry->image, options);
  }
  const Launcher& prepare(Device& device, std::uintptr_t context) {
    return loads.find_or_add(device, context, [&] { return load(device); });
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
  if (const Launcher* launcher = state_->loads.find(device, context)) return *launcher;
  return state_->prepare(device, context);
}

void Kernel::launch(Device& device, Stream stream, const LaunchArguments& arguments) {
  const std::uintptr_t context = device.current_context();
  const Launcher* launcher = state_->loads.find(device, context);
  if (launcher != nullptr) return launcher->launch(stream, arguments);
  if (device.is_capturing(stream)) {
    throw Error(ErrorKind::usage,
                fmt::format("{}: not loaded in this context yet, and its stream is being captured into a graph: call "
                            "prepare() before the capture begins",
                            state_->plan.kernel));
  }
  state_->prepare(device, context).launch(stream, arguments);
}

}  // namespace tessera
