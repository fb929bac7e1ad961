// Problem -> Plan -> SourceBundle. Pure functions: no device, no environment, no clock; the same Problem gives the same
// bytes everywhere.
//
// A Plan has the Problem, the fields that were chosen for it, why they won, why every other candidate did not, what the
// kernel needs (shared memory by region, roles with their registers), the launch as data, and the generated sources.
// plan.json is its JSON form (generator/plan_json.h) and the contract with every host. The Config that the templates
// are specialised with stays inside generator/: what a caller wants to know is a fact of the Problem, a field, or part
// of the launch.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/launch.h"
#include "tessera/problem.h"
#include "tessera/source_bundle.h"

namespace tessera {

/// One field of the kernel's Config, in the spelling of flags ("tile_m" "128", "swizzle" "128B"), and as JSON has it: a
/// word, a number, or extents.
struct ConfigField {
  std::string name;
  std::string value;
  std::variant<std::string, int, bool, std::vector<int>> typed;
};

/// What a piece of memory holds for a while, and which role may touch it. The phases of a piece follow one another in
/// the order of the list, and from the last on to the first where the kernel loops.
struct MemoryPhase {
  std::string content;  ///< "K tile on its way", "S", "P"
  std::string owner;    ///< name of a role of the plan: who writes, reads, or issues what does
  std::string until;    ///< what hands it on: "barrier k_full", "end"
};

struct SmemRegion {
  std::string name;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  int slots = 1;                      ///< equal parts, one after the other: the stages of a ring
  std::vector<MemoryPhase> phases{};  ///< of each slot; empty: the same for all roles from beginning to end (barriers)
};

/// Lanes and 32-bit columns of a CTA's Tensor Memory, counted from the first column that the kernel allocates. Regions
/// never overlap: where P takes the place of a part of S, that part is a region of its own with two phases.
struct TmemRegion {
  std::string name;
  int first_column = 0;
  int columns = 0;
  int first_lane = 0;
  int lanes = 128;
  int slots = 1;  ///< equal parts by columns
  std::vector<MemoryPhase> phases{};
};

/// Warps with one job.
struct RolePlan {
  std::string name;
  int first_warp = 0;
  int warps = 0;
  int registers = 0;  ///< per thread, after setmaxnreg; 0: as compiled
};

/// One tensor of the kernel as it is stored, copied and multiplied.
struct OperandPlan {
  std::string name;
  std::string dtype;
  std::string tensor_map_type;  ///< empty: not copied through a tensor map
  std::string swizzle;
  std::string use;           ///< "A of S = Q K^T", ...
  std::string scale_type{};  ///< "ue4m3"; empty: the values have no scales, and the fields below mean nothing
  int scale_block = 0;       ///< elements along k that share a scale
  std::string scale_form{};  ///< "plain", "tile"
};

/// A candidate that was not chosen.
struct Rejection {
  std::string candidate;  ///< "tile 128x128, 3 stages, 128B"
  std::string reason;  ///< "229,504 bytes of shared memory, 227,328 allowed: drop a stage", or "legal; scored 0.93 of
                       ///< the choice"
  bool is_legal = false;
};

/// How long a launch of the expected sizes keeps each unit of a device busy, by published rates: a model, never
/// measured. Sizes that no hint tells are those of the families' models (4,096 rows, columns, queries or keys).
struct CostSheet {
  struct Unit {
    std::string name;  ///< "tensor cores", "exponentials", "shared memory", "instructions", "the L2", "memory"
    double us = 0;
  };
  std::string device;
  double us = 0;  ///< of the launch, with what overlaps and what waits
  std::vector<Unit> units;
  std::string limit;  ///< what takes longest
};

/// What is generated for one kernel, beside the templates that it includes.
struct PlanSources {
  std::string entry;                ///< the translation unit
  std::vector<SourceFile> headers;  ///< those that no template provides, config.cuh among them
  /// Of the kernel that merges, likewise; empty where there is none.
  std::string merge{};
  std::vector<SourceFile> merge_headers{};
  int pieces = 1;                    ///< that the kernel's templates can be compiled as, side by side
  std::vector<bool> keeps_values{};  ///< of each piece; empty: none does
};

struct Plan {
  std::string op;
  Arch arch;
  std::string kernel;               ///< name of the entry, as profilers show it
  Problem problem;                  ///< that was planned
  std::string_view family;          ///< of the kernel's templates: "wgmma", "tcgen05", ...
  std::vector<ConfigField> fields;  ///< facts and choices, as the kernel has them
  std::string mma_kind;             ///< "wgmma.f16"; empty where nothing is multiplied
  std::vector<OperandPlan> operands;
  std::vector<SmemRegion> smem;
  std::int64_t smem_bytes = 0;
  std::vector<TmemRegion> tmem;
  int tmem_columns = 0;     ///< allocated: a power of two from 32 to 512; 0: no Tensor Memory
  int entry_registers = 0;  ///< per thread, as the launch bounds deal them; 0: as compiled
  int max_registers = 0;    ///< per thread, that launch bounds leave to the compiler; 0: not said
  std::vector<RolePlan> roles;
  std::string reason;            ///< why these choices
  std::vector<CostSheet> costs;  ///< one for each device that the target's code runs on, where a family has a model
  std::vector<Rejection> rejected;
  LaunchPlan launch;
  std::function<PlanSources(const Plan& plan)> sources;  ///< made when they are asked for, of this plan

  bool has_field(std::string_view name) const noexcept;
  /// A field as flags spell it: "128B". The kernel must have it.
  const std::string& field(std::string_view name) const;
  /// The same of a number.
  int number(std::string_view name) const;
};

/// Throws Error{unsupported} (no legal candidate, or an illegal pin: message with the rule, value and bound, notes with
/// every other reason), Error{usage} for a Problem outside its types' ranges.
Plan make_plan(const Problem& problem);

/// make_plan(problem) without reason and rejected, at a fraction of the cost: what a kernel is compiled and launched
/// from. Throws like make_plan.
Plan make_bare_plan(const Problem& problem);

/// make_plan(problem).kernel alone, at a fraction of the cost: Problems with the same kernel have the same sources and
/// launch. Throws like make_plan.
std::string planned_kernel(const Problem& problem);

/// The sources of the planned kernel: those of the plan, and exactly the embedded templates that they include.
/// template_overrides: virtual path -> text, in place of embedded files (development).
SourceBundle emit(const Plan& plan, const std::vector<SourceFile>& template_overrides = {});

/// The same as one self-contained source; its first line is a comment with the nvcc command that compiles it to a
/// cubin.
std::string emit_single_file(const Plan& plan, const std::vector<SourceFile>& template_overrides = {});

/// The text of plan.json, the contract with every host: what was chosen, what the kernel needs, its launch. It depends
/// on the kernel alone, not on hints and lists of candidates.
std::string plan_json(const Plan& plan);

/// What stands in its place beside a kernel that merges what others made: it has no launch of its own.
std::string merge_plan_json(const std::string& op, const std::string& arch, const std::string& kernel);

}  // namespace tessera
