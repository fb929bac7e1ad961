// EmulatedDevice: the Device seam on a CPU. Loads PTX, executes it, reports findings.
//
// Work runs inside the call that asks for it, in order, so streams and events are trivial. Findings of all launches
// since the last synchronisation are its result; a failure stops the launch that had it.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device.h"
#include "tessera/emulator/findings.h"
#include "tessera/emulator/options.h"
#include "tessera/emulator/sample.h"
#include "tessera/emulator/texture.h"
#include "tessera/emulator/time.h"
#include "tessera/emulator/virtual_memory.h"
#include "tessera/pointer_probe.h"

namespace tessera::emulator {

class RaceDetector;

struct DeviceOptions {
  std::string arch = "sm_90a";
  int num_sms = 4;
  std::uint64_t seed = 1;
  Schedule schedule = Schedule::fair;
  std::uint64_t memory_bytes = std::uint64_t{64} << 30;  ///< address space, not memory
  std::uint64_t max_warp_instructions = std::uint64_t{1} << 40;
  double max_seconds = 0;  ///< per launch; 0: no limit
  /// Asked some ten times a second, on the threads that run a launch; true ends it with the failure "interrupted".
  std::function<bool()> is_interrupted = {};
  int threads = 1;             ///< of the host; more than 1: grids whose clusters do not speak run in parts (parts.h)
  bool detects_races = false;  ///< accesses that nothing orders are hazards; up to five times slower
  bool detects_unwritten_registers = false;          ///< values that no instruction of a thread has written are hazards
  std::function<void(std::string_view)> print = {};  ///< takes what kernels print; empty: standard output
  std::shared_ptr<const GpuTime> time = {};  ///< launches run on the clock of this GPU; null: nobody asks for time
  /// Schedule::weak: a vector access is as many scalar ones, as in the memory model; false: aligned ones of up to 16
  /// bytes are one, as on hardware.
  bool tears_vectors = true;
  /// Where it is set, a launch whose CTAs may speak to others (may_wait) asks it now and then, with the device free for
  /// other calls, and goes on when it returns. It gives the warp instructions until it is asked again.
  std::function<std::uint64_t()> rest = {};
  /// With the race detector: behind each launch, for what it did to global memory (RaceDetector::footprint).
  std::function<void(const RaceDetector&)> after_launch = {};
  bool skips_values = false;  ///< with `time`: only time is asked, and some clusters run
};

/// A variable of a module: where it lies, and how many bytes it has.
struct DeviceVariable {
  DevicePointer address = 0;
  std::size_t bytes = 0;
};

/// What a kernel's PTX says about its launches.
struct KernelFacts {
  std::uint32_t static_smem_bytes = 0;
  std::uint32_t local_bytes = 0;      ///< of one thread
  std::uint32_t max_threads = 0;      ///< .maxntid or .reqntid; 0: not stated
  std::uint32_t max_registers = 0;    ///< .maxnreg; 0: not stated
  std::uint32_t min_ctas_per_sm = 0;  ///< .minnctapersm; 0: not stated
  std::array<std::uint32_t, 3> required_cluster{0, 0, 0};
};

class EmulatedDevice final : public Device, public PointerProbe {
 public:
  explicit EmulatedDevice(const DeviceOptions& options = {});
  ~EmulatedDevice() override;

  const DeviceInfo& info() const override;
  DevicePointer allocate(std::size_t bytes) override;
  void free(DevicePointer pointer) noexcept override;
  void copy_to_device(DevicePointer to, const void* from, std::size_t bytes, Stream stream = {}) override;
  void copy_to_host(void* to, DevicePointer from, std::size_t bytes, Stream stream = {}) override;
  void set_bytes(DevicePointer to, std::uint8_t value, std::size_t bytes, Stream stream = {}) override;
  Stream create_stream() override;
  void destroy(Stream stream) noexcept override;
  Event create_event() override;
  void destroy(Event event) noexcept override;
  void record(Event event, Stream stream) override;
  double elapsed_ms(Event from, Event to) override;
  std::vector<Finding> synchronize(Stream stream = {}) override;
  /// The kernel has accesses by which it may wait for what another launch, or the host, does.
  bool may_wait(EntryHandle entry) const;
  bool is_capturing(Stream stream) override;
  std::uintptr_t current_context() override;
  std::string why_unusable(DevicePointer pointer) override;
  /// All of these bytes belong to live allocations: a copy or fill there is none of a bad address.
  bool is_allocated(DevicePointer pointer, std::size_t bytes) const;
  std::unique_ptr<LoadedImage> load(const Image& image) override;
  void encode(const ResolvedTensorMap& map, TensorMapObject& out) override;
  void launch(const LaunchRequest& request, Stream stream) override;

  /// load() of PTX alone; `file` names it in messages. Throws Error{compile} where no kernel can be launched; a kernel
  /// that cannot beside others that can is refused by LoadedImage::entry, in the same words.
  std::unique_ptr<LoadedImage> load_ptx(std::string_view ptx, std::string_view file);
  /// A variable of the module in .global or .const, by its name in the PTX. Throws Error{device} where it has none.
  DeviceVariable variable(const LoadedImage& image, std::string_view name) const;
  /// Of a kernel that LoadedImage::entry gave.
  static KernelFacts facts(EntryHandle entry);
  /// What machine code of the kernel says of its registers a thread, which PTX does not: for times alone.
  static void set_registers(EntryHandle entry, std::uint32_t registers);
  /// The host reads and writes these bytes, too, at the same address; they count as written. One device of a process
  /// can do so. Throws Error{device}.
  void share_with_host(DevicePointer pointer, std::size_t bytes);
  /// An address for memory that the host has already: both work on the same bytes, which free() leaves to the host.
  DevicePointer map_host(void* host, std::size_t bytes);
  VirtualMemory virtual_memory();
  /// A handle for tex and tld4, or for suld and sust. The memory is looked at by fetches alone. Throws Error{usage}
  /// where the description is none: no level, a size of 0, channels of other widths than 1, 2 and 4 bytes.
  std::uint64_t create_texture(const TextureDescription& description);
  std::uint64_t create_surface(const TextureDescription& description);
  /// False: there is no such object.
  bool destroy_texture(std::uint64_t handle) noexcept;
  /// CTAs that run at once, for the launches that follow.
  void set_num_sms(int num_sms);
  /// Fills with a byte and forgets that anybody wrote here: a kernel that reads it first is reported.
  void poison(DevicePointer to, std::uint8_t value, std::size_t bytes);
  /// How many bytes nobody has written, neither a copy nor a kernel.
  std::uint64_t uninitialised_bytes(DevicePointer from, std::size_t bytes) const;
  /// What kernels and copies wrote since the range was poisoned, in order. Quick where most of it is untouched.
  std::vector<ByteRange> written(DevicePointer from, std::size_t bytes) const;
  /// Byte i becomes pattern[i % pattern.size()]; the size divides 4,096 or is a multiple of it. Of large ranges, as of
  /// what set_bytes and poison fill, memory is taken for pages alone that are written later (lazy_fill.h).
  void fill_pattern(DevicePointer to, std::span<const std::byte> pattern, std::size_t bytes);
  /// Of the launches that follow only so many clusters run, one after the other: the first, the last and, by the
  /// launch's seed, some between them. For grids whose clusters need nothing of each other. 0: all of them.
  void sample_clusters(std::uint64_t count);
  ClusterSample last_sample() const;
  /// Findings since the last take, with all their fields.
  std::vector<EmulatorFinding> take_findings();
  /// Of the launches since the last take: what another schedule may do otherwise.
  std::vector<ScheduleClue> take_clues();
  /// Of the launches since the last take, one a kernel; none without DeviceOptions::time.
  std::vector<LaunchTime> take_times();
  /// Of all launches since the last synchronisation before them: of a kernel of several steps, of all steps.
  LaunchStatistics statistics() const;
  /// Watches the launches that follow, until null is set; the caller keeps it alive.
  void set_observer(Observer* observer);
  void set_schedule(Schedule schedule, std::uint64_t seed);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// The kernels of a module, all of which can be launched; Error{compile} with the problems of all that cannot.
std::vector<std::string> validate_ptx(std::string_view ptx, std::string_view file);

}  // namespace tessera::emulator
