// Targets that code is generated for: how they are spelled, which devices load them, which matrix instructions they
// have, and how much shared memory a CTA gets there. The one place that knows; CUDA programming guide, "Feature
// availability" and "Technical specifications per compute capability".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// A target that code is generated for: compute capability times ten and the suffix 'a' (this very capability), 'f'
/// (its family) or 0.
struct Arch {
  int number = 90;
  char suffix = 'a';

  /// "sm_90a". Throws Error{usage} for a text that is not of this form.
  static Arch parse(std::string_view text);
  std::string to_string() const;
  int compute_major() const noexcept { return number / 10; }
  int compute_minor() const noexcept { return number % 10; }
  friend bool operator==(const Arch&, const Arch&) = default;
};

/// The same; nothing for a text that is not of this form.
std::optional<Arch> parse_arch(std::string_view text) noexcept;

/// Whether devices of a compute capability load the target's code: with suffix a of its own only, else of its own and
/// the later ones of the same major version.
bool runs_on(Arch target, int compute_major, int compute_minor) noexcept;

/// The instructions that a kernel multiplies matrices with.
enum class MmaFamily : std::uint8_t {
  wgmma,     ///< Hopper: warpgroups, sums in registers
  tcgen05,   ///< Blackwell in data centres: one thread, sums in Tensor Memory
  mma_sync,  ///< every one since Ampere: warps, operands and sums in registers
};
bool has_family(Arch target, MmaFamily family) noexcept;

/// Most shared memory of a CTA on the devices that load the target's code.
std::int64_t smem_bytes_of(Arch target) noexcept;

/// A target that some operator has kernels for, and the compute capabilities whose devices load its cubin.
struct TargetRow {
  std::string_view target;
  std::string_view loads_on;
};

std::span<const TargetRow> target_rows() noexcept;

/// "10.0, 10.3"; empty for a target that is not in the table.
std::string_view loads_on(Arch target) noexcept;
/// Targets whose code devices of a compute capability ("10.3") load; none: no kernel runs there.
std::vector<std::string_view> targets_for(std::string_view capability);
/// Other targets whose code loads wherever the target's does: sm_100f and sm_103f for sm_103a.
std::vector<std::string_view> targets_instead_of(Arch target);

}  // namespace tessera
