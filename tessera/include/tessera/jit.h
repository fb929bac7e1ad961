// tessera as a library: ask for a kernel by its Problem, get code for it from the cache or the compiler, launch it on
// your stream.
//
//   tessera::Jit jit{tessera::JitOptions::from_environment()};
//   auto kernel = jit.kernel(tessera::Fmha{.head_dim = 128, .mask = tessera::Mask::causal});
//   kernel.launch(stream, {.q = q, .k = k, .v = v, .o = o, .batch = 4, .heads_q = 32, .heads_kv = 8, .seqlen_q = 4096,
//   .seqlen_k = 4096});
//
// Everything is thread-safe. launch() works in the context that is current on the calling thread, on the stream given;
// it neither allocates nor synchronises, so it may be captured into a graph once the kernel was prepared in that
// context. Failures are tessera::Error.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "tessera/cache.h"
#include "tessera/device.h"
#include "tessera/error.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"
#include "tessera/problem.h"

namespace tessera {

/// What happens when a kernel is in no cache tier.
enum class CompilePolicy : std::uint8_t {
  allow,  ///< compile it
  warn,   ///< compile it and emit an event
  forbid  ///< Error{unsupported} that names the command that would have warmed it
};

/// Something that a server may want to log. Delivered on the thread where it happened.
struct JitEvent {
  enum class Kind : std::uint8_t { hit, compile_started, compile_finished, compile_failed, warning };
  Kind kind = Kind::hit;
  std::string kernel{};  ///< entry name; empty for warnings of the cache
  CacheTier tier = CacheTier::memory;
  double milliseconds = 0;
  std::string message{};
};

struct JitOptions {
  std::filesystem::path cache_dir{};  ///< empty: $XDG_CACHE_HOME/tessera or ~/.cache/tessera
  bool use_disk_cache = true;
  std::vector<std::filesystem::path> system_cache_dirs{};  ///< read-only, searched after cache_dir
  std::int64_t cache_max_bytes = std::int64_t{8} << 30;
  bool trust_cache_dir = false;
  RemoteOptions remote{};         ///< asked where the folders miss, unless compiling is forbidden
  bool require_compiler = false;  ///< only entries of the compiler that is present
  CompilePolicy policy = CompilePolicy::allow;
  std::filesystem::path nvrtc_library{};     ///< empty: searched
  std::filesystem::path repro_dir{};         ///< where a failing compile is left; empty: the temporary folder
  std::filesystem::path templates_dir{};     ///< development: files here replace embedded templates; enters the key
  std::vector<std::string> nvrtc_options{};  ///< development: appended to the compiler's options; enters the key
  bool check_pointers = false;               ///< launches ask the driver about every buffer: see LauncherOptions
  std::chrono::milliseconds compile_time_limit{0};  ///< a waiter gives up with Error{compile} after this; 0: never
  std::function<void(const JitEvent&)> on_event{};

  /// The one place that reads the environment: TESSERA_CACHE_DIR, TESSERA_SYSTEM_CACHE_DIRS (colon-separated),
  /// TESSERA_CACHE_MAX_BYTES, TESSERA_TRUST_CACHE_DIR, TESSERA_REQUIRE_COMPILER, TESSERA_COMPILE_POLICY (allow, warn,
  /// forbid), TESSERA_NVRTC, TESSERA_REPRO_DIR, TESSERA_TEMPLATES, TESSERA_NVRTC_OPTIONS (space-separated),
  /// TESSERA_COMPILE_TIME_LIMIT_MS, TESSERA_CHECK_POINTERS; TESSERA_REMOTE and TESSERA_REMOTE_... (docs/remote.md);
  /// XDG_CACHE_HOME and HOME for the default folder. Throws Error{usage} for a value that does not parse.
  static JitOptions from_environment();
};

/// Host-side arguments of an attention launch. Pointers are device addresses; strides in elements, kUseDefault for a
/// dense tensor. q [batch, seqlen_q, heads_q, head_dim], k [batch, seqlen_k, heads_kv, head_dim], v [batch, seqlen_k,
/// heads_kv, head_dim_v], with v_layout k [batch, heads_kv, head_dim_v, seqlen_k] whose rows are v_stride_dim apart (a
/// multiple of 8), o [batch, seqlen_q, heads_q, head_dim_v]; lse, row_max, row_sum fp32 [batch, heads_q, seqlen_q].
/// softmax_scale NaN: 1 / sqrt(head_dim). softcap: positive; alibi_slopes fp32 [heads_q]; tree_mask uint32 [batch,
/// seqlen_q, tree_words], ragged [seqlen_q, tree_words]. Kernels with a window: its sizes, -1 for no bound; with used
/// lengths: int32 [batch]. Ragged queries: seqlen_q are those of all sequences, q and o [seqlen_q, heads_q, ..], lse
/// and its like [heads_q, seqlen_q], cu_seqlens_q int32 [batch + 1]. Two pools of keys: k and v [seqlen_k, head_dim] by
/// indices int32 [batch, seqlen_q, topk], of which topk_lens int32 [batch, seqlen_q] count (null: all); swa_k, swa_v
/// [batch, seqlen_swa, 1, head_dim] with swa_lens int32 [batch]; with v_is_k and swa_indices int32 [batch, seqlen_q,
/// seqlen_swa] (null: none) swa_k [batch, swa_rows, 1, head_dim] by these lists;
/// sink fp32 [heads_q], may be null. Keys in pages: k and v [pages, page_size, heads_kv,
/// ..] by block_table int32 [batch, max_pages], seqlen_k the most keys of a sequence. Ragged keys: k and v [tokens_k,
/// heads_kv, ..] by cu_seqlens_k int32 [batch + 1]. v_is_k: v is not read. kv_dtype e4m3: k_descale and v_descale fp32
/// [batch, heads_kv] by strides in elements, null: 1; with v_is_k k_descale is the factor of both and v_descale null.
/// kv_format: k and v codes, k_scale and v_scale [pages, heads_kv, page_size, scales of a key], strides in bytes.
/// dtype nvfp4: q, k, v, delta_s and row_shift as attention_quantize writes them (tessera/attention_quantize.h).
struct FmhaArguments {
  DevicePointer q = 0, k = 0, v = 0, o = 0;
  DevicePointer lse = 0, row_max = 0, row_sum = 0;
  DevicePointer seqused_q = 0, seqused_k = 0, cu_seqlens_q = 0;
  DevicePointer block_table = 0, cu_seqlens_k = 0;
  DevicePointer swa_k = 0, swa_v = 0, indices = 0, swa_lens = 0, sink = 0, alibi_slopes = 0, tree_mask = 0;
  DevicePointer topk_lens = 0, swa_indices = 0;  ///< two pools of keys, may be null; the second one with v_is_k only
  DevicePointer k_descale = 0, v_descale = 0;    ///< fp32 [batch, heads_kv], keys in e4m3 only; null: 1
  DevicePointer k_scale = 0, v_scale = 0;        ///< scales of codes, kv_format nvfp4 and mxfp8 only
  DevicePointer q_descale = 0;                   ///< likewise, dtype e4m3 only
  DevicePointer delta_s = 0, row_shift = 0;      ///< fp32, of attention_quantize, dtype nvfp4 only
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0, seqlen_q = 0, seqlen_k = 0;
  std::int64_t num_splits = kUseDefault;
  std::int64_t topk = 0, seqlen_swa = 0, swa_rows = kUseDefault;
  std::int64_t pages = 0, max_pages = 0, tokens_k = 0;
  std::int64_t window_size_left = kUseDefault, window_size_right = kUseDefault, attention_chunk = kUseDefault;
  std::int64_t tree_words = kUseDefault;
  double softmax_scale = std::numeric_limits<double>::quiet_NaN();
  double softcap = std::numeric_limits<double>::quiet_NaN();
  std::int64_t q_stride_batch = kUseDefault, q_stride_seqlen = kUseDefault, q_stride_head = kUseDefault;
  std::int64_t k_stride_batch = kUseDefault, k_stride_seqlen = kUseDefault, k_stride_head = kUseDefault;
  std::int64_t v_stride_batch = kUseDefault, v_stride_seqlen = kUseDefault, v_stride_head = kUseDefault;
  std::int64_t k_stride_page = kUseDefault, v_stride_page = kUseDefault;                   ///< kv_layout paged only
  std::int64_t v_stride_dim = kUseDefault;                                                 ///< v_layout k only
  std::int64_t k_descale_stride_batch = kUseDefault, k_descale_stride_head = kUseDefault;  ///< 0, 0: one for all
  std::int64_t v_descale_stride_batch = kUseDefault, v_descale_stride_head = kUseDefault;
  std::int64_t k_scale_stride_page = kUseDefault, k_scale_stride_head = kUseDefault;
  std::int64_t v_scale_stride_page = kUseDefault, v_scale_stride_head = kUseDefault;
  std::int64_t q_descale_stride_batch = kUseDefault, q_descale_stride_head = kUseDefault;
  std::int64_t o_stride_batch = kUseDefault, o_stride_seqlen = kUseDefault, o_stride_head = kUseDefault;
  std::int64_t swa_k_stride_batch = kUseDefault, swa_k_stride_seqlen = kUseDefault, swa_k_stride_head = kUseDefault;
  std::int64_t swa_k_stride_page = kUseDefault;  ///< of a kv_cache, in bytes, as k_stride_page
  std::int64_t swa_v_stride_batch = kUseDefault, swa_v_stride_seqlen = kUseDefault, swa_v_stride_head = kUseDefault;
  DevicePointer workspace = 0;
  std::int64_t workspace_bytes = 0;
};

/// Host-side arguments of a matrix product. a [l, m, k] or, with a_layout mn, [l, k, m]; b [l, n, k] or [l, k, n]; c
/// and d [l, m, n]; bias [n], of groups [l, n]; b2 as b, for a dual gate. Scales of block-scaled operands, and of such
/// a d, in tiles: sfa, sfb, sfb2, sfd. Pitches and strides in elements, kUseDefault for dense tensors. alpha and beta
/// NaN: 1. c, bias and the scales matter to kernels that have them only; a null scale is 1. A d of s32 is exact sums:
/// alpha is ignored.
struct GemmArguments {
  DevicePointer a = 0, b = 0, c = 0, d = 0, bias = 0;
  DevicePointer scale_a = 0, scale_b = 0;  ///< fp32, one element each
  DevicePointer b2 = 0, sfa = 0, sfb = 0, sfb2 = 0, sfd = 0;
  DevicePointer scale_b2 = 0, scale_d = 0;  ///< fp32, one element each
  DevicePointer groups = 0;                 ///< s32: first row of each group and the end, or rows of each
  DevicePointer indices = 0;                ///< s32, gather rows: the row of a that each row has
  DevicePointer zeros = 0;  ///< u8, scale_form plain: zero points of 4-bit weights, whose scales are sfb
  std::int64_t m = 0, n = 0, k = 0, l = 1;
  double alpha = std::numeric_limits<double>::quiet_NaN(), beta = std::numeric_limits<double>::quiet_NaN();
  std::int64_t lda = kUseDefault, ldb = kUseDefault, ldc = kUseDefault, ldd = kUseDefault;
  std::int64_t a_stride_l = kUseDefault, b_stride_l = kUseDefault, c_stride_l = kUseDefault, d_stride_l = kUseDefault;
  std::int64_t a_rows = kUseDefault;       ///< gather rows: rows of a; not given: m
  std::int64_t group_tiles = kUseDefault;  ///< of 128 rows, with contiguous groups and scales
  std::int64_t ldb2 = kUseDefault, b2_stride_l = kUseDefault;
  /// fp32 numbers between factors of blocks; not given: sfa [l, rows, ceil(k / 128)] is dense, likewise sfb and, with a
  /// d_scale_block, sfd [l, m, ceil(n / 128)].
  std::int64_t sfa_stride_m = kUseDefault, sfa_stride_k = kUseDefault, sfa_stride_l = kUseDefault;
  std::int64_t sfb_stride_n = kUseDefault, sfb_stride_k = kUseDefault, sfb_stride_l = kUseDefault;
  std::int64_t sfd_stride_m = kUseDefault, sfd_stride_n = kUseDefault, sfd_stride_l = kUseDefault;
  DevicePointer workspace = 0;
  std::int64_t workspace_bytes = 0;
};

/// Compiled code for one Problem, loaded into each context where it is used. Shared; lives as long as its last handle.
class Kernel {
 public:
  Kernel(Plan plan, std::shared_ptr<const CacheEntry> entry, LauncherOptions options = {});
  ~Kernel();
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

  const Plan& plan() const noexcept;
  const CacheEntry& entry() const noexcept;

  /// Loads the code in the current context of the device, so that later launches there may be captured. Idempotent.
  void prepare(Device& device);
  /// Values in the plan's order (see launcher()). Loads first where that has not happened; inside a capture that is
  /// Error{usage}.
  void launch(Device& device, Stream stream, const LaunchArguments& arguments);
  /// The launcher of the device's current context; prepares where needed.
  const Launcher& launcher(Device& device);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A kernel whose arguments have names. Copies are cheap and share the code.
class FmhaKernel {
 public:
  explicit FmhaKernel(std::shared_ptr<Kernel> kernel);
  /// On the GPU whose context is current on this thread; stream is a CUstream. See Kernel::launch.
  void launch(Stream stream, const FmhaArguments& arguments) const;
  void launch(Device& device, Stream stream, const FmhaArguments& arguments) const;
  /// Bytes of workspace that these arguments need (0 for most kernels): on the GPU whose context is current, or
  /// another.
  std::int64_t workspace_bytes(const FmhaArguments& arguments) const;
  std::int64_t workspace_bytes(Device& device, const FmhaArguments& arguments) const;
  void prepare() const;
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  struct Slots;
  std::shared_ptr<Kernel> kernel_{};
  std::shared_ptr<const Slots> slots_{};
};

/// As FmhaKernel, for a matrix product.
class GemmKernel {
 public:
  explicit GemmKernel(std::shared_ptr<Kernel> kernel);
  void launch(Stream stream, const GemmArguments& arguments) const;
  void launch(Device& device, Stream stream, const GemmArguments& arguments) const;
  std::int64_t workspace_bytes(const GemmArguments& arguments) const;
  std::int64_t workspace_bytes(Device& device, const GemmArguments& arguments) const;
  void prepare() const;
  Kernel& kernel() const noexcept { return *kernel_; }

 private:
  struct Slots;
  std::shared_ptr<Kernel> kernel_{};
  std::shared_ptr<const Slots> slots_{};
};

/// How far the counting of distinct kernels is, which comes before the first compile.
struct WarmCount {
  std::int64_t problems = 0, total = 0;  ///< looked at, and to be looked at
  std::int64_t kernels = 0;              ///< distinct ones so far
};

/// Progress of a warm-up, after each finished kernel.
struct WarmProgress {
  std::int64_t done = 0, total = 0;  ///< distinct kernels
  double seconds = 0, seconds_left = 0;
  std::string kernel{};
};

struct WarmedKernel {
  std::string op{}, arch{}, kernel{};
  EntryKeys keys{};
  bool was_hit = false;
  bool is_stored = false;  ///< a folder has it; false: in memory only, because no folder could take it
  CacheTier tier = CacheTier::compiled;
  std::string error{};                        ///< empty: compiled or hit
  ErrorKind error_kind = ErrorKind::compile;  ///< of the error: io where a folder failed, not the compiler
  std::vector<std::string> notes{};           ///< of the error, or the assembler's
  double compile_ms = 0;
  int registers = 0, spill_bytes = 0;
  std::int64_t smem_bytes = 0;
};

/// A Problem that no kernel exists for, with the planner's reason.
struct RejectedProblem {
  std::size_t index = 0;  ///< into the span that was given
  std::string reason{};
};

struct WarmReport {
  std::int64_t problems = 0, kernels = 0, compiled = 0, hit = 0, failed = 0;
  bool was_cancelled = false;
  double seconds = 0;
  std::vector<RejectedProblem> rejected{};
  std::vector<WarmedKernel> entries{};
};

struct WarmOptions {
  int jobs = 0;  ///< parallel compiles; 0: one per core, as far as free memory goes (half a GiB each)
  bool dry_run = false;
  bool compiles = true;  ///< false: what no folder and no remote cache has is an error
  std::function<void(const WarmProgress&)> on_progress{};
  std::function<void(const WarmedKernel&)> on_kernel{};  ///< each as it is finished, one at a time
  std::function<void(const WarmCount&)> on_count{};      ///< after every 1,024 Problems, and when all are counted
  std::stop_token stop{};                                ///< ends the counting too
};

/// Where Jit::check looks.
enum class CheckedTiers : std::uint8_t {
  folders,  ///< memory and the folders: what a launch gets without the network
  remote    ///< the remote tier alone
};

/// One Problem as the cache sees it.
struct Coverage {
  std::size_t index = 0;
  std::string kernel{};
  std::optional<CacheTier> tier{};  ///< nothing: a miss
  std::string rejected{};           ///< the planner's reason, when no kernel exists
};

struct JitStats {
  CacheStats cache;
  std::int64_t kernel_hits = 0;  ///< requests answered by a kernel that this Jit already holds
};

class Jit {
 public:
  /// Opens no device and no compiler before it needs one.
  explicit Jit(JitOptions options = {});
  ~Jit();
  Jit(const Jit&) = delete;
  Jit& operator=(const Jit&) = delete;

  FmhaKernel kernel(const Fmha& problem);
  GemmKernel kernel(const Gemm& problem);
  std::shared_ptr<Kernel> kernel(const Problem& problem);
  /// The same for a caller who has planned already.
  std::shared_ptr<Kernel> kernel(Plan plan);

  /// Plans all, counts the distinct kernels, compiles those that no tier has, in parallel. A failed kernel does not
  /// stop the others; an exception of on_progress does, and comes out here.
  WarmReport warm(std::span<const Problem> problems, const WarmOptions& options = {});
  /// Would kernel() be served without compiling? Needs neither a GPU nor a compiler. Works on so many threads (0: one a
  /// core); on_count is called on the caller's. Throws Error{io} where the remote tier is asked and does not answer.
  std::vector<Coverage> check(std::span<const Problem> problems,
                              const std::function<void(const WarmCount&)>& on_count = {}, int jobs = 0,
                              CheckedTiers where = CheckedTiers::folders);
  /// Sources, options and keys of a plan, as this Jit would compile it (overrides included).
  SourceBundle bundle(const Plan& plan) const;
  /// The same sources as one self-contained file (emit_single_file).
  std::string source(const Plan& plan) const;
  EntryKeys keys(const Plan& plan);

  Cache& cache();
  const JitOptions& options() const noexcept;
  /// The compiler, or null where there is none.
  Compiler* compiler();
  /// Replaces the compiler; for tests and for hosts with a compiler of their own. Before first use.
  void set_compiler(std::shared_ptr<Compiler> compiler);
  JitStats stats() const;

 private:
  friend class WarmRun;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera
