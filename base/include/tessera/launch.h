// A launch as data: all that a host needs to run a compiled kernel without the library that planned it. A plan holds
// one LaunchPlan; plan.json holds its JSON form (base/launch_json.h); the emulator's launch file is the same plus
// bindings.
//
// The names of sizes, scalars and buffers are the caller's: `seqlen_q`, `softmax_scale`, `q`. Reserved size names,
// which the launcher fills in when the caller does not: `num_sms` (the device's count). Strides are sizes too, in
// elements (`q_stride_seqlen`), and have defaults that describe a dense tensor. Everything that depends on a size is an
// Expression over all sizes; sizes are 64-bit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/expression.h"
#include "tessera/tensor_map.h"

namespace tessera {

inline constexpr int kPlanVersion = 2;  ///< the newest that is read

/// Most entries of each list of a plan. A launch works on stack arrays of these lengths; a plan beyond them is refused.
inline constexpr std::size_t kMaxSizes = 64;
inline constexpr std::size_t kMaxScalars = 16;
inline constexpr std::size_t kMaxBuffers = 32;
inline constexpr std::size_t kMaxBufferRank = 8;
inline constexpr std::size_t kMaxDomainRules = 256;
inline constexpr std::size_t kMaxTensorMaps = 16;
inline constexpr std::size_t kMaxSteps = 16;
inline constexpr std::size_t kMaxParameters = 64;

/// A whole number that the caller gives at launch.
struct SizeSpec {
  std::string name;
  std::int64_t min = 0;
  std::int64_t max = 0;
  std::optional<Expression> default_value;  ///< over sizes that stand earlier; absent: the caller must give it
  std::string help;
};

/// A floating-point number that the caller gives at launch (`softmax_scale`).
struct ScalarSpec {
  std::string name;
  std::optional<double> default_value;
  std::string help;
};

enum class BufferRole : std::uint8_t { input, output, in_out };

/// A tensor of the caller's.
struct BufferSpec {
  std::string name;
  BufferRole role = BufferRole::input;
  std::string dtype;                ///< "bf16", "f32", ...
  std::vector<Expression> shape;    ///< outermost first, elements
  std::vector<Expression> strides;  ///< one for each of shape, elements; the last is 1
  int alignment = 16;               ///< bytes that the pointer must be a multiple of
  bool is_optional = false;         ///< a null pointer is allowed
};

/// What must hold of the sizes: lhs relation rhs, else launch refuses with the message.
enum class Relation : std::uint8_t { at_least, at_most, equal, multiple_of };
struct DomainRule {
  Expression lhs;
  Relation relation = Relation::at_least;
  Expression rhs;
  std::string message;  ///< "heads_q must be a multiple of heads_kv"
};

enum class ParameterKind : std::uint8_t { tensor_map, pointer, i32, i64, f32 };

/// One parameter of a kernel, in its order. Bytes: tensor_map 128, pointer and i64 8, i32 and f32 4.
struct KernelParameter {
  std::string name;
  ParameterKind kind = ParameterKind::i32;
  Expression value;    ///< i32, i64
  std::string source;  ///< tensor_map: a recipe's name; pointer: a buffer's name or "workspace"; f32: a scalar's name
  Expression offset_bytes;  ///< pointer: added to it
};

/// One kernel launch.
struct LaunchStep {
  std::string entry;
  bool is_merge = false;  ///< its code is that of the bundle's merge: merge.cubin, in place of kernel.cubin
  std::array<Expression, 3> grid{Expression(1), Expression(1), Expression(1)};  ///< any 0: the step is skipped
  std::array<std::uint32_t, 3> block{1, 1, 1};
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  std::int64_t dynamic_smem_bytes = 0;
  bool programmatic_stream_serialization = false;
  std::vector<KernelParameter> parameters;
};

struct Workspace {
  Expression bytes;  ///< 0: none
  int alignment = 256;
  bool zeroed = false;  ///< must be zero before the first step of every launch
};

struct LaunchPlan {
  std::string op;    ///< "fmha"
  std::string arch;  ///< "sm_90a"
  std::vector<SizeSpec> sizes;
  std::vector<ScalarSpec> scalars;
  std::vector<BufferSpec> buffers;
  std::vector<DomainRule> domain;
  std::vector<TensorMapRecipe> tensor_maps;
  Workspace workspace;
  std::vector<LaunchStep> steps;
};

std::string_view to_string(BufferRole role) noexcept;
std::string_view to_string(Relation relation) noexcept;
std::string_view to_string(ParameterKind kind) noexcept;
/// Bytes that a parameter of this kind takes.
std::size_t parameter_bytes(ParameterKind kind) noexcept;

/// Throws Error{usage} for the first thing that makes a plan meaningless, named by its path ("launch.steps[0].grid[1]:
/// ..."): too long a list, a name that is declared twice or not at all, a default over a later size, ranks that do not
/// fit each other, a block of more than 1,024 threads, ...
void check_launch_plan(const LaunchPlan& plan);

}  // namespace tessera
