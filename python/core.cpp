// The C interface for Python: handles as objects, codes as exceptions, one object that holds a launch's values. What is
// friendly stands in tessera/*.py; nothing here knows an operator.
//
// Calls that may take long (a compile, the emulator, a wait) let other Python threads run; a launch on a GPU does not,
// since that costs more than it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <tessera.h>

#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "exchange.h"
#include "interpreter.h"
#include "launch_values.h"
#include "prepared.h"
#include "xla.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

/// Status -> exception class, set by tessera/errors.py.
nb::dict& error_types() {
  static auto* const types = new nb::dict();  // outlives the interpreter's modules
  return *types;
}

/// Raises the class of the status with message and notes.
[[noreturn]] void raise(tessera_status status) {
  const nb::str message(tessera_error_message());
  nb::list notes;
  if (const std::string text = tessera_error_notes(); !text.empty())
    notes = nb::cast<nb::list>(nb::str(text.c_str()).attr("splitlines")());
  const nb::object type = error_types()[nb::int_(status)];
  const nb::object error = type(message, notes);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

void check(tessera_status status) {
  if (status != TESSERA_OK) [[unlikely]]
    raise(status);
}

/// Calls without the interpreter's lock.
template <class F>
void check_unlocked(const F& f) {
  tessera_status status = TESSERA_OK;
  {
    const interpreter::Unlocked unlocked;
    status = f();
  }
  check(status);
}

std::string taken(char* text) {
  std::string copy(text);
  tessera_text_free(text);
  return copy;
}

std::vector<tessera_field> c_fields(const Fields& fields) {
  std::vector<tessera_field> all;
  for (const auto& [name, value] : fields) all.push_back({name.c_str(), value.c_str()});
  return all;
}

const char* c_text(const std::optional<std::string>& text) { return text ? text->c_str() : nullptr; }

/// Functions for events, by a number: a jit may outlive the object that opened it, where a kernel of it is still used.
/// With the interpreter's lock alone.
std::unordered_map<std::uintptr_t, nb::object>& event_functions() {
  static auto* const all = new std::unordered_map<std::uintptr_t, nb::object>();  // outlives the interpreter's modules
  return *all;
}

void on_event(void* user_data, const tessera_event* event) {
  static constexpr const char* kKinds[] = {"hit", "compile_started", "compile_finished", "compile_failed", "warning"};
  const interpreter::Locked locked;
  if (!locked) return;
  const auto at = event_functions().find(reinterpret_cast<std::uintptr_t>(user_data));
  if (at == event_functions().end()) return;
  const nb::object function = at->second;
  try {
    function(event->kind >= 0 && event->kind < 5 ? kKinds[event->kind] : "other", event->kernel, event->tier,
             event->message, event->milliseconds);
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("tessera: on_event");
  }
}

class Device;
class Kernel;

class Jit {
 public:
  Jit(const std::optional<std::string>& cache_dir, const std::optional<std::string>& system_cache_dirs,
      std::int64_t cache_max_bytes, const std::optional<std::string>& nvrtc,
      const std::optional<std::string>& repro_dir, std::int64_t compile_time_limit_ms, std::int32_t compile_policy,
      bool no_disk_cache, bool trust_cache_dir, bool require_compiler, bool check_pointers, bool ignore_environment,
      nb::object event_function) {
    tessera_jit_options options{};
    options.struct_size = sizeof options;
    options.cache_dir = c_text(cache_dir);
    options.system_cache_dirs = c_text(system_cache_dirs);
    options.cache_max_bytes = cache_max_bytes;
    options.nvrtc = c_text(nvrtc);
    options.repro_dir = c_text(repro_dir);
    options.compile_time_limit_ms = compile_time_limit_ms;
    options.compile_policy = compile_policy;
    options.no_disk_cache = no_disk_cache;
    options.trust_cache_dir = trust_cache_dir;
    options.require_compiler = require_compiler;
    options.check_pointers = check_pointers;
    options.ignore_environment = ignore_environment;
    if (!event_function.is_none()) {
      static std::uintptr_t last = 0;
      event_ = ++last;
      event_functions().emplace(event_, std::move(event_function));
      options.on_event = on_event;
      options.user_data = reinterpret_cast<void*>(event_);  // NOLINT
    }
    const tessera_status status = tessera_jit_open(&options, &jit_);
    if (status != TESSERA_OK) event_functions().erase(event_);
    check(status);
  }
  ~Jit() {
    {
      const interpreter::Unlocked unlocked;  // compiles that are waited for may call on_event
      tessera_jit_close(jit_);
    }
    event_functions().erase(event_);
  }
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  tessera_jit* get() const { return jit_; }

  std::string warm(const std::string& shapes, std::int32_t jobs, bool dry_run, nb::object on_progress) {
    struct Progress {
      nb::object function;
      bool is_stopped = false;
      std::optional<nb::python_error> error{};
    } progress{std::move(on_progress)};
    tessera_warm_options options{};
    options.struct_size = sizeof options;
    options.jobs = jobs;
    options.dry_run = dry_run;
    options.user_data = &progress;
    options.on_progress = [](void* user_data, const tessera_progress* at) -> std::int32_t {
      Progress& state = *static_cast<Progress*>(user_data);
      const interpreter::Locked locked;
      if (!locked) return 1;
      try {
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        if (state.function.is_none()) return 0;
        const nb::object stops = state.function(at->done, at->total, at->seconds, at->seconds_left, at->kernel);
        const int is_true = PyObject_IsTrue(stops.ptr());
        if (is_true < 0) throw nb::python_error();
        return is_true;
      } catch (nb::python_error& error) {
        if (!state.error) state.error.emplace(std::move(error));
        return 1;
      }
    };
    char* report = nullptr;
    check_unlocked([&] { return tessera_jit_warm(jit_, shapes.c_str(), &options, &report); });
    std::string text = taken(report);
    if (progress.error) throw nb::python_error(std::move(*progress.error));
    return text;
  }

  std::string check_list(const std::string& shapes) {
    char* report = nullptr;
    check_unlocked([&] { return tessera_jit_check(jit_, shapes.c_str(), &report); });
    return taken(report);
  }

  nb::dict stats() const {
    tessera_stats stats{};
    stats.struct_size = sizeof stats;
    check(tessera_jit_stats(jit_, &stats));
    nb::dict all;
    all["kernel_hits"] = stats.kernel_hits;
    all["memory_hits"] = stats.memory_hits;
    all["user_hits"] = stats.user_hits;
    all["system_hits"] = stats.system_hits;
    all["compiles"] = stats.compiles;
    all["failures"] = stats.failures;
    all["compile_ms"] = stats.compile_ms;
    all["quarantined"] = stats.quarantined;
    all["published"] = stats.published;
    all["publish_failures"] = stats.publish_failures;
    all["evicted"] = stats.evicted;
    all["lock_waits"] = stats.lock_waits;
    all["remote_hits"] = stats.remote_hits;
    all["remote_misses"] = stats.remote_misses;
    all["remote_stored"] = stats.remote_stored;
    all["remote_errors"] = stats.remote_errors;
    all["remote_failures"] = stats.remote_failures;
    all["remote_ms"] = stats.remote_ms;
    return all;
  }

 private:
  tessera_jit* jit_ = nullptr;
  std::uintptr_t event_ = 0;  ///< 0: no function
};

class Kernel {
 public:
  Kernel(const Jit& jit, const std::string& op, const Fields& fields) {
    const std::vector<tessera_field> all = c_fields(fields);
    tessera_kernel* made = nullptr;
    check_unlocked([&] { return tessera_jit_kernel(jit.get(), op.c_str(), all.data(), all.size(), &made); });
    kernel_.reset(made, tessera_kernel_close);
  }

  tessera_kernel* get() const { return kernel_.get(); }
  const std::shared_ptr<tessera_kernel>& shared() const { return kernel_; }
  void prepare(const Device* device) const;

 private:
  std::shared_ptr<tessera_kernel> kernel_;
};

class Device {
 public:
  Device(const Jit& jit, std::int32_t kind, std::int32_t ordinal, const std::string& arch, std::uint64_t seed,
         const std::string& schedule, double max_seconds, std::int32_t num_sms, bool detects_races) {
    tessera_device_options options{};
    options.struct_size = sizeof options;
    options.kind = kind;
    options.ordinal = ordinal;
    options.arch = arch.c_str();
    options.seed = seed;
    options.schedule = schedule.c_str();
    options.max_seconds = max_seconds;
    options.num_sms = num_sms;
    options.detects_races = detects_races;
    options.is_interrupted = [](void*) -> std::int32_t {
      const interpreter::Locked locked;
      // Without the lock the interpreter is about to end, which waits for this launch only so long.
      return !locked || PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0 ? 1 : 0;
    };
    check(tessera_device_open(jit.get(), &options, &device_));
  }
  ~Device() { tessera_device_close(device_); }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  tessera_device* get() const { return device_; }
  std::string info() const {
    char* text = nullptr;
    check(tessera_device_info(device_, &text));
    return taken(text);
  }
  std::uint64_t allocate(std::size_t bytes) {
    std::uint64_t address = 0;
    check(tessera_device_allocate(device_, bytes, &address));
    return address;
  }
  void free(std::uint64_t address) { check(tessera_device_free(device_, address)); }
  void upload(std::uint64_t to, std::uintptr_t from, std::size_t bytes) {
    check_unlocked([&] {
      return tessera_device_upload(device_, to, reinterpret_cast<const void*>(from), bytes, nullptr);  // NOLINT
    });
  }
  void download(std::uintptr_t to, std::uint64_t from, std::size_t bytes) {
    check_unlocked([&] {
      return tessera_device_download(device_, reinterpret_cast<void*>(to), from, bytes, nullptr);  // NOLINT
    });
  }
  void poison(std::uint64_t to, std::uint8_t value, std::size_t bytes) {
    check(tessera_device_poison(device_, to, value, bytes));
  }
  /// Throws what a signal's handler raised while a launch ran, without the launch's findings.
  void throw_interruption() const {
    if (PyErr_Occurred() == nullptr) return;
    nb::python_error raised;
    char* findings = nullptr;
    tessera_device_synchronize(device_, nullptr, &findings);
    tessera_text_free(findings);
    throw raised;
  }
  /// Findings as JSON, and the failure among them, if any.
  std::pair<std::string, std::optional<std::string>> synchronize() {
    char* findings = nullptr;
    tessera_status status = TESSERA_OK;
    {
      const interpreter::Unlocked unlocked;
      status = tessera_device_synchronize(device_, nullptr, &findings);
    }
    if (findings == nullptr) check(status);
    std::string text = findings == nullptr ? "[]" : taken(findings);
    return {std::move(text), status == TESSERA_OK ? std::nullopt : std::optional<std::string>(tessera_error_message())};
  }

 private:
  tessera_device* device_ = nullptr;
};

void Kernel::prepare(const Device* device) const {
  check_unlocked([&] { return tessera_kernel_prepare(kernel_.get(), device == nullptr ? nullptr : device->get()); });
}

/// The values of a kernel's launches, by index.
class Arguments {
 public:
  explicit Arguments(const Kernel& kernel) : values_(kernel.shared()) {}

  const LaunchValues& values() const { return values_; }
  Arguments copy() const { return *this; }
  void set_size(std::size_t index, std::int64_t value) { values_.sizes.at(index) = value; }
  void set_scalar(std::size_t index, double value) { values_.scalars.at(index) = value; }
  void set_buffer(std::size_t index, std::uint64_t address) { values_.buffers.at(index) = address; }
  void set_workspace(std::uint64_t address, std::int64_t bytes) {
    values_.workspace = address;
    values_.workspace_bytes = bytes;
  }
  std::int64_t workspace_bytes(const Device* device) const {
    std::int64_t bytes = 0;
    const tessera_arguments arguments = values_.get();
    check_unlocked([&] {
      return tessera_kernel_workspace_bytes(values_.kernel.get(), device == nullptr ? nullptr : device->get(),
                                            &arguments, &bytes);
    });
    return bytes;
  }
  void launch(const Device* device, std::uintptr_t stream) const {
    const tessera_arguments arguments = values_.get();
    auto* const cu_stream = reinterpret_cast<void*>(stream);  // NOLINT
    if (device == nullptr) return check(tessera_kernel_launch(values_.kernel.get(), nullptr, cu_stream, &arguments));
    tessera_status status = TESSERA_OK;
    {
      const interpreter::Unlocked unlocked;
      status = tessera_kernel_launch(values_.kernel.get(), device->get(), cu_stream, &arguments);
    }
    device->throw_interruption();
    check(status);
  }

 private:
  LaunchValues values_;
};

/// slots: (index of the buffer, DLPack's type code and bits, shape, strides in elements) of each.
void make_prepared(Prepared* at, const Arguments& arguments, int ordinal, const nb::list& slots, bool with_workspace) {
  std::vector<Prepared::Slot> all;
  for (const nb::handle slot : slots)
    all.push_back({nb::cast<std::size_t>(slot[0]), nb::cast<std::uint8_t>(slot[1]), nb::cast<std::uint8_t>(slot[2]),
                   nb::cast<std::vector<std::int64_t>>(slot[3]), nb::cast<std::vector<std::int64_t>>(slot[4])});
  new (at) Prepared(arguments.values(), ordinal, std::move(all), with_workspace);
}

/// False where nothing was launched, because the tensors are not those that were bound or their device is not current.
bool launch_prepared(Prepared& prepared, const nb::tuple& tensors, std::optional<std::uintptr_t> stream) {
  tessera_status status = TESSERA_OK;
  if (prepared.launch(tensors, stream, status) == Prepared::Outcome::not_served) return false;
  check(status);
  return true;
}

/// text: the call; operands, results: indices of buffers, in XLA's order.
void remember_for_xla(const std::string& text, const Arguments& arguments, std::vector<std::size_t> operands,
                      std::vector<std::size_t> results, bool with_workspace) {
  xla::SharedCall call = std::make_shared<const xla::Call>(
      xla::Call{arguments.values(), std::move(operands), std::move(results), with_workspace});
  xla::SharedCall before = xla::remember(text, std::move(call));
  const interpreter::Unlocked unlocked;  // its kernel may be the last of a jit, whose end waits for compiles
  before.reset();
}

std::optional<nb::bytes> signature(const nb::tuple& positional, const nb::dict& named) {
  const std::optional<std::string> key =
      exchange::signature(nb::borrow<nb::args>(positional), nb::borrow<nb::kwargs>(named));
  if (!key) return std::nullopt;
  return nb::bytes(key->data(), key->size());
}

/// (address, shape, strides in elements, DLPack's type code and bits, device type, device ordinal) of anything that has
/// __dlpack__, and what keeps it alive.
nb::tuple describe(const nb::ndarray<nb::ro>& array) {
  nb::list shape, strides;
  for (std::size_t i = 0; i < array.ndim(); ++i) {
    shape.append(array.shape(i));
    strides.append(array.stride(i));
  }
  const nb::dlpack::dtype type = array.dtype();
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), nb::tuple(shape), nb::tuple(strides),
                        static_cast<int>(type.code), static_cast<int>(type.bits), array.device_type(),
                        array.device_id(), nb::cast(array));
}

/// Whether its library says that it must not be written to.
bool is_read_only(const nb::object& tensor) {
  nb::ndarray<> writable;
  return !nb::try_cast(tensor, writable);
}

std::string plan(const std::string& op, const Fields& fields) {
  const std::vector<tessera_field> all = c_fields(fields);
  char* text = nullptr;
  check(tessera_plan(op.c_str(), all.data(), all.size(), &text));
  return taken(text);
}

}  // namespace

NB_MODULE(_core, m) {
  nb::set_leak_warnings(false);  // a jit that the package keeps lives as long as the process
  m.def("version", [] { return tessera_version(); });
  m.def("abi_version", [] { return tessera_abi_version(); });
  m.def("set_error_types", [](const nb::dict& types) { error_types().update(types); });
  m.def("plan", plan, "op"_a, "fields"_a);
  m.def("describe", describe, "array"_a);
  m.def("is_read_only", is_read_only, "tensor"_a);
  m.def("xla_remember", remember_for_xla, "text"_a, "arguments"_a, "operands"_a, "results"_a, "with_workspace"_a);
  m.def("xla_set_functions", xla::set_functions, "restore"_a, "emulate"_a);
  m.def("xla_handler", xla::handler, "what"_a);
  m.def("_end_callbacks", interpreter::end_callbacks);
  nb::module_::import_("atexit").attr("register")(m.attr("_end_callbacks"));
  m.def("signature", signature, "positional"_a, "named"_a);
  nb::class_<Jit>(m, "Jit")
      .def(nb::init<const std::optional<std::string>&, const std::optional<std::string>&, std::int64_t,
                    const std::optional<std::string>&, const std::optional<std::string>&, std::int64_t, std::int32_t,
                    bool, bool, bool, bool, bool, nb::object>(),
           "cache_dir"_a.none(), "system_cache_dirs"_a.none(), "cache_max_bytes"_a, "nvrtc"_a.none(),
           "repro_dir"_a.none(), "compile_time_limit_ms"_a, "compile_policy"_a, "no_disk_cache"_a, "trust_cache_dir"_a,
           "require_compiler"_a, "check_pointers"_a, "ignore_environment"_a, "on_event"_a.none())
      .def("warm", &Jit::warm, "shapes"_a, "jobs"_a, "dry_run"_a, "on_progress"_a.none())
      .def("check", &Jit::check_list, "shapes"_a)
      .def("stats", &Jit::stats);
  nb::class_<Kernel>(m, "Kernel")
      .def(nb::init<const Jit&, const std::string&, const Fields&>(), nb::keep_alive<1, 2>(), "jit"_a, "op"_a,
           "fields"_a)
      .def_prop_ro("name", [](const Kernel& kernel) { return tessera_kernel_name(kernel.get()); })
      .def_prop_ro("plan",
                   [](const Kernel& kernel) {
                     const char* const text = tessera_kernel_plan(kernel.get());
                     if (text == nullptr) raise(TESSERA_INTERNAL);
                     return text;
                   })
      .def("prepare", &Kernel::prepare, "device"_a.none());
  nb::class_<Device>(m, "Device")
      .def(nb::init<const Jit&, std::int32_t, std::int32_t, const std::string&, std::uint64_t, const std::string&,
                    double, std::int32_t, bool>(),
           nb::keep_alive<1, 2>(), "jit"_a, "kind"_a, "ordinal"_a, "arch"_a, "seed"_a, "schedule"_a, "max_seconds"_a,
           "num_sms"_a, "detects_races"_a)
      .def_prop_ro("info", &Device::info)
      .def("allocate", &Device::allocate, "bytes"_a)
      .def("free", &Device::free, "address"_a)
      .def("upload", &Device::upload, "to"_a, "from_"_a, "bytes"_a)
      .def("download", &Device::download, "to"_a, "from_"_a, "bytes"_a)
      .def("poison", &Device::poison, "to"_a, "value"_a, "bytes"_a)
      .def("synchronize", &Device::synchronize);
  nb::class_<Arguments>(m, "Arguments")
      .def(nb::init<const Kernel&>(), nb::keep_alive<1, 2>(), "kernel"_a)
      .def("copy", &Arguments::copy, nb::keep_alive<0, 1>())
      .def("set_size", &Arguments::set_size, "index"_a, "value"_a)
      .def("set_scalar", &Arguments::set_scalar, "index"_a, "value"_a)
      .def("set_buffer", &Arguments::set_buffer, "index"_a, "address"_a)
      .def("set_workspace", &Arguments::set_workspace, "address"_a, "bytes"_a)
      .def("workspace_bytes", &Arguments::workspace_bytes, "device"_a.none())
      .def("launch", &Arguments::launch, "device"_a.none(), "stream"_a);
  nb::class_<Prepared>(m, "Prepared")
      .def("__init__", make_prepared, nb::keep_alive<1, 2>(), "arguments"_a, "ordinal"_a, "slots"_a, "with_workspace"_a)
      .def("launch", launch_prepared, "tensors"_a, "stream"_a.none());
}
