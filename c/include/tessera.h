// tessera in C: the interface for every language but C++. It stands alone: C99, no other header of ours, none of
// CUDA's.
//
//   tessera_jit* jit = NULL;
//   tessera_jit_open(NULL, &jit);                                       // options of the environment (TESSERA_...)
//   const tessera_field fields[] = {{"head_dim", "128"}, {"mask", "causal"}};
//   tessera_kernel* kernel = NULL;
//   tessera_jit_kernel(jit, "fmha", fields, 2, &kernel);                // from the cache, else compiled now
//   ... values by index, see tessera_arguments ...
//   tessera_kernel_launch(kernel, NULL, stream, &arguments);            // on the GPU whose context is current
//
// Names. An operator, its fields and their values are spelled as on the command line and in shape lists: "fmha",
// "head_dim" (or "head-dim"), "128". docs/operators.md has all of them, `tessera plan fmha` shows the rest.
//
// Errors. A function that can fail returns a tessera_status; TESSERA_OK is 0. What went wrong is told by
// tessera_error_message() and tessera_error_notes() on the same thread. Null where something is needed, a count that
// does not fit, an unknown name: TESSERA_USAGE, never a crash. A pointer that is neither null nor valid is beyond help.
// On failure nothing is written through the out parameters, unless a function says otherwise. No C++ exception leaves
// a function; a callback must not throw one either, nor longjmp.
//
// Ownership. Who opens a handle closes it: jit, device, kernel. Handles may be closed in any order: a kernel keeps what
// it needs of its jit. An emulated device ends when it is closed; code on a GPU lives as long as its kernel. A `char**`
// out parameter receives a text that the caller frees by tessera_text_free(); a `const char*` that is returned belongs
// to the library and lives as long as its function says. Texts are UTF-8 and end with a zero byte; texts that are given
// are copied.
//
// Threads. Every function may be called from any thread at any time, except that a handle must not be closed while
// another thread is inside a call with it.
//
// Growth. Structs begin with struct_size, which the caller sets to the sizeof of the struct that it was compiled with;
// every other member that is 0 (or null) means its default. Later versions add members at the end: a library takes
// shorter structs of older callers, and longer ones of newer callers whose members that it does not know are 0.
// tessera_abi_version() changes, and the SONAME with it, when a caller would have to be compiled again.
#ifndef TESSERA_H
#define TESSERA_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------------------ versions and errors

/// Of this header. tessera_abi_version() is that of the library that was loaded.
#define TESSERA_ABI_VERSION 1

/// "0.1.0". Lives forever.
const char* tessera_version(void);
int32_t tessera_abi_version(void);

/// Why a call failed. 2 to 5 are also what the command exits with (which has 5 for I/O too).
typedef int32_t tessera_status;
enum {
  TESSERA_OK = 0,
  TESSERA_USAGE = 2,        ///< the call itself: null, an unknown name, a size outside the domain, a misaligned pointer
  TESSERA_UNSUPPORTED = 3,  ///< well-formed, but no kernel exists for it, or a miss where compiling is forbidden
  TESSERA_COMPILE = 4,      ///< the compiler refused generated code; the notes hold log, options, repro folder
  TESSERA_DEVICE = 5,       ///< the driver or the device failed
  TESSERA_IO = 6,           ///< files and folders; no NVRTC where one is needed
  TESSERA_INTERNAL = 70     ///< out of memory, or a bug of ours
};

/// "usage", "unsupported", "compile", "device", "io", "internal"; "ok"; "unknown" for any other number.
const char* tessera_status_name(tessera_status status);

/// Of the last call that failed on this thread; "" where none has. One sentence: subject, value, bound, remedy. Lives
/// until the next call that fails on this thread. A call that succeeds changes nothing.
const char* tessera_error_message(void);
/// Its further lines (a compiler's log, other candidates), one after the other with line ends between them; may be "".
const char* tessera_error_notes(void);

/// Frees a text that a `char**` out parameter received. Null is allowed.
void tessera_text_free(char* text);

// ------------------------------------------------------------------------------------------------------ just in time

/// Where kernels come from: cache folders and a compiler. Kernels that were asked for stay loaded while it is open.
typedef struct tessera_jit tessera_jit;
/// Code for one kernel, to be launched on any device and context.
typedef struct tessera_kernel tessera_kernel;
/// What executes kernels, when it is not the GPU whose context is current: an emulated GPU, or a GPU of its own.
typedef struct tessera_device tessera_device;

/// What happens when a kernel is in no cache.
enum {
  TESSERA_POLICY_DEFAULT = 0,  ///< the environment's (TESSERA_COMPILE_POLICY), else allow
  TESSERA_POLICY_ALLOW = 1,    ///< compile it, about half a second
  TESSERA_POLICY_WARN = 2,     ///< compile it, and an event TESSERA_EVENT_WARNING
  TESSERA_POLICY_FORBID = 3    ///< TESSERA_UNSUPPORTED, with the `tessera warm` command that compiles it
};

enum {
  TESSERA_EVENT_HIT = 0,
  TESSERA_EVENT_COMPILE_STARTED = 1,
  TESSERA_EVENT_COMPILE_FINISHED = 2,
  TESSERA_EVENT_COMPILE_FAILED = 3,
  TESSERA_EVENT_WARNING = 4
};

/// Something to log. It and its texts live until the callback returns.
typedef struct tessera_event {
  size_t struct_size;
  int32_t kind;         ///< TESSERA_EVENT_...
  const char* kernel;   ///< name of the kernel's entry; "" for warnings of the cache
  const char* tier;     ///< where it was found: "memory", "user", "system", "compiled"
  const char* message;  ///< may be ""
  double milliseconds;  ///< that a compile took
} tessera_event;

/// Called on the thread where it happened, from several threads at once. It may call the library, but for closing: a
/// kernel whose compile has finished or failed, too. At COMPILE_STARTED the kernel that is being compiled, and one that
/// waits for it on another thread, cannot be waited for: asking for them is TESSERA_USAGE.
typedef void (*tessera_event_callback)(void* user_data, const tessera_event* event);

/// Each member is the option of the same name of the C++ JitOptions, a flag of the command and an environment variable
/// (docs/cli.md): 0 or null takes the environment's value, else the default.
typedef struct tessera_jit_options {
  size_t struct_size;
  const char* cache_dir;             ///< default: $XDG_CACHE_HOME/tessera or ~/.cache/tessera
  const char* system_cache_dirs;     ///< read-only folders, searched after it; colons between them
  int64_t cache_max_bytes;           ///< least recently used entries go above this; default 8 GiB; -1: no limit
  const char* nvrtc;                 ///< the libnvrtc.so to use; default: searched
  const char* repro_dir;             ///< where a failing compile is left to be replayed
  const char* templates;             ///< development: files here replace embedded templates
  const char* const* nvrtc_options;  ///< development: appended to the compiler's options
  size_t num_nvrtc_options;
  int64_t compile_time_limit_ms;    ///< a call gives up waiting for a compile after this; default: never
  int32_t compile_policy;           ///< TESSERA_POLICY_...
  int32_t no_disk_cache;            ///< 1: kernels are kept in memory only
  int32_t trust_cache_dir;          ///< 1: accept a cache folder that others can write
  int32_t require_compiler;         ///< 1: only entries that the compiler found here made
  int32_t check_pointers;           ///< 1: ask the driver about every buffer before a launch; microseconds each
  int32_t ignore_environment;       ///< 1: read no environment variable; without cache_dir there is then no disk cache
  tessera_event_callback on_event;  ///< default: none
  void* user_data;                  ///< of on_event
} tessera_jit_options;

/// options: null for all defaults. Opens no device and no compiler before one is needed. Errors: USAGE (an option or an
/// environment variable that does not parse), IO (a templates folder that cannot be read).
tessera_status tessera_jit_open(const tessera_jit_options* options, tessera_jit** jit);
/// Null is allowed. Waits for compiles under way, unless a kernel or a device of it is still open.
void tessera_jit_close(tessera_jit* jit);

/// A field of what is asked for, and its value, as flags and shape lists spell them: {"head_dim", "128"}.
typedef struct tessera_field {
  const char* name;
  const char* value;
} tessera_field;

/// The kernel of an operator ("fmha", "gemm", "quantize", ...) for these fields; others have the operator's defaults
/// ("arch" is sm_90a). From memory, the caches in order, else compiled by the policy. fields may be null where
/// num_fields is 0. Errors: USAGE (an unknown operator, field or word, with what was meant; a field given twice),
/// UNSUPPORTED, COMPILE, IO.
tessera_status tessera_jit_kernel(tessera_jit* jit, const char* op, const tessera_field* fields, size_t num_fields,
                                  tessera_kernel** kernel);

/// The choice of a kernel without compiling it, as `tessera plan OP --json` prints it: fields, reasons, every other
/// candidate with the reason against it, shared memory, launch. Needs no jit. Errors: USAGE, UNSUPPORTED.
tessera_status tessera_plan(const char* op, const tessera_field* fields, size_t num_fields, char** plan_json);

/// Progress of a warm-up: so many of the distinct kernels are finished.
typedef struct tessera_progress {
  size_t struct_size;
  int64_t done, total;
  double seconds, seconds_left;
  const char* kernel;  ///< the one finished last; lives until the callback returns
} tessera_progress;

/// Called after each finished kernel, one call at a time. Not 0: stop; what is compiled stays in the cache.
typedef int32_t (*tessera_progress_callback)(void* user_data, const tessera_progress* progress);

typedef struct tessera_warm_options {
  size_t struct_size;
  int32_t jobs;     ///< compiles at a time; default: one a core, as far as free memory goes
  int32_t dry_run;  ///< 1: plan and look up only
  tessera_progress_callback on_progress;
  void* user_data;
} tessera_warm_options;

/// Compiles what a shape list needs and no cache has. shapes_json: the text of a list as `tessera warm` takes it
/// (docs/cli.md), {"kernels": [{"op": "fmha", "head_dim": [64, 128]}]}. options: may be null. The report has the keys
/// of `tessera warm --json`; a kernel that failed has "error" in "entries", and the call is TESSERA_OK all the same.
/// Errors: USAGE (the list; the first mistake is the message, each further one a note, with line, column and caret), IO
/// (no compiler).
tessera_status tessera_jit_warm(tessera_jit* jit, const char* shapes_json, const tessera_warm_options* options,
                                char** report_json);
/// Would the caches serve the list without compiling? Needs no GPU and no compiler. {"covered", "problems", "kernels",
/// "rejected": counts, "missing": [{op, arch, entry, warm}], "rejections": [{problem, place, reason}]}. Rejected is
/// what has no kernel, and what expects sizes that its launch would refuse. Errors: USAGE.
tessera_status tessera_jit_check(tessera_jit* jit, const char* shapes_json, char** report_json);

/// Since the jit was opened.
typedef struct tessera_stats {
  size_t struct_size;
  int64_t kernel_hits;                          ///< requests for a kernel that the jit held already
  int64_t memory_hits, user_hits, system_hits;  ///< of the cache's tiers
  int64_t compiles, failures;                   ///< of the compiler
  double compile_ms;                            ///< of all compiles
  int64_t quarantined, published, publish_failures, evicted, lock_waits;  ///< entries of the cache's folder
  int64_t remote_hits, remote_misses, remote_stored;                      ///< of the remote cache
  int64_t remote_errors, remote_failures;  ///< look-ups that it did not answer, entries that it did not take
  double remote_ms;                        ///< in which callers waited for it
} tessera_stats;

/// The caller sets stats->struct_size; at most as many bytes are written.
tessera_status tessera_jit_stats(const tessera_jit* jit, tessera_stats* stats);

// ----------------------------------------------------------------------------------------------------------- kernels

/// Null is allowed. The code stays loaded while the jit is open.
void tessera_kernel_close(tessera_kernel* kernel);

/// The entry's name, as profilers show it. Lives as long as the handle; null for null.
const char* tessera_kernel_name(const tessera_kernel* kernel);
/// The text of plan.json (docs/plan.md): sizes with their ranges and defaults, buffers with their types, shapes and
/// strides as expressions over the sizes, the launch. Lives as long as the handle; null for null.
const char* tessera_kernel_plan(const tessera_kernel* kernel);

/// What a launch takes, in three lists whose order the plan gives.
enum {
  TESSERA_SIZE = 0,    ///< whole numbers: "batch", "seqlen_q", strides in elements
  TESSERA_SCALAR = 1,  ///< floating-point numbers: "softmax_scale"
  TESSERA_BUFFER = 2   ///< device addresses: "q", "k", "o"
};

/// Length of a list; 0 for null or another kind.
size_t tessera_kernel_count(const tessera_kernel* kernel, int32_t kind);
/// A name in it. Lives as long as the handle; null where there is none.
const char* tessera_kernel_argument_name(const tessera_kernel* kernel, int32_t kind, size_t index);
/// The index of a name: look it up once, not for each launch. Error: USAGE, with the names that exist.
tessera_status tessera_kernel_index(const tessera_kernel* kernel, int32_t kind, const char* name, size_t* index);

/// A size that is left to its default (strides: those of a dense tensor). A scalar that is NaN is its default.
#define TESSERA_USE_DEFAULT INT64_MIN

/// The arguments of one launch: an array for each list, of exactly its length, in its order. They are read before the
/// launch returns, and may be used again.
typedef struct tessera_arguments {
  size_t struct_size;
  const int64_t* sizes;
  size_t num_sizes;
  const double* scalars;
  size_t num_scalars;
  const uint64_t* buffers;  ///< device addresses; 0 where a buffer is optional or has no elements
  size_t num_buffers;
  uint64_t workspace;  ///< device address of at least tessera_kernel_workspace_bytes(); it need not be cleared
  int64_t workspace_bytes;
} tessera_arguments;

/// Loads the code, so that later launches in this context allocate nothing and may be captured into a CUDA graph.
/// Idempotent. device: null for the GPU whose context is current on this thread. Errors: DEVICE, USAGE.
tessera_status tessera_kernel_prepare(tessera_kernel* kernel, tessera_device* device);

/// Bytes of workspace that these sizes need; 0 for most kernels. Buffers and workspace are not looked at. Loads the
/// code where that has not happened.
tessera_status tessera_kernel_workspace_bytes(tessera_kernel* kernel, tessera_device* device,
                                              const tessera_arguments* arguments, int64_t* bytes);

/// Starts the kernel on a stream (a CUstream or cudaStream_t; null: the default stream) and does not wait for it. Loads
/// the code first where that has not happened; while the stream is being captured that is refused. Apart from that it
/// allocates nothing and synchronises nothing. Everything is checked before anything starts. Errors: USAGE (sizes
/// outside the domain, a null or misaligned buffer, too small a workspace, a tensor map that breaks a rule), DEVICE.
tessera_status tessera_kernel_launch(tessera_kernel* kernel, tessera_device* device, void* stream,
                                     const tessera_arguments* arguments);

// ----------------------------------------------------------------------------------------------------------- devices

enum {
  TESSERA_DEVICE_EMULATOR = 0,  ///< runs the kernels' PTX on the CPU and reports what is wrong with them
  TESSERA_DEVICE_GPU = 1        ///< a GPU by its number, in its primary context
};

typedef int32_t (*tessera_interrupt_callback)(void* user_data);

typedef struct tessera_device_options {
  size_t struct_size;
  int32_t kind;     ///< TESSERA_DEVICE_...
  int32_t ordinal;  ///< of a GPU
  // Of the emulator:
  const char* arch;       ///< target that it is: "sm_100a"; default "sm_90a"
  uint64_t seed;          ///< of the schedule; default 1
  const char* schedule;   ///< "fair" (default), "eager", "lazy", "adversarial", "split", "weak": docs/emulator.md
  double max_seconds;     ///< of a launch, which ends with a failure then; default: no limit
  int32_t num_sms;        ///< default 4
  int32_t detects_races;  ///< 1: accesses that nothing orders are reported; two to six times slower
  /// Asked some ten times a second by the thread that launches, while the launch runs; another value than 0 ends the
  /// launch with the failure "interrupted", which tessera_device_synchronize() reports. It may not use the device,
  /// which is in the midst of the launch. Default null: nobody is asked.
  tessera_interrupt_callback is_interrupted;
  void* user_data;  ///< of is_interrupted
} tessera_device_options;

/// A device that kernels of this jit may be launched on. options: null for the emulator. Errors: USAGE, DEVICE.
tessera_status tessera_device_open(tessera_jit* jit, const tessera_device_options* options, tessera_device** device);
/// Null is allowed. Frees the memory that was allocated on it; an emulated device ends, with all of its address space.
void tessera_device_close(tessera_device* device);

/// {"name", "compute_major", "compute_minor", "num_sms", "memory_bytes", "driver_version", "ordinal", "is_emulated"}
tessera_status tessera_device_info(const tessera_device* device, char** info_json);

/// Memory of the device, aligned to 256 bytes; contents are undefined. Errors: DEVICE (no memory left).
tessera_status tessera_device_allocate(tessera_device* device, size_t bytes, uint64_t* address);
/// An address of tessera_device_allocate() of this device that was not freed, or 0; any other is USAGE.
tessera_status tessera_device_free(tessera_device* device, uint64_t address);
/// Copies that wait for the stream before them and for themselves. Addresses within allocations of the device.
tessera_status tessera_device_upload(tessera_device* device, uint64_t to, const void* from, size_t bytes, void* stream);
tessera_status tessera_device_download(tessera_device* device, void* to, uint64_t from, size_t bytes, void* stream);
/// Fills with a byte. In the emulator the bytes then count as never written: a kernel that reads them is reported.
tessera_status tessera_device_poison(tessera_device* device, uint64_t to, uint8_t value, size_t bytes);
/// Waits for the stream. findings_json, where it is not null, receives what the emulator has found since the last time:
/// [{"name", "is_failure", "message"}], on a GPU []. A failure (a hang, a bad address) among them is TESSERA_DEVICE,
/// with its message; the findings are received then too. Hazards alone are TESSERA_OK.
tessera_status tessera_device_synchronize(tessera_device* device, void* stream, char** findings_json);

#ifdef __cplusplus
}
#endif

#endif
