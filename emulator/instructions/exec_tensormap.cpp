// PTX ISA, "tensormap.replace", "tensormap.cp_fenceproxy": tensor maps that a kernel changes or makes itself.
#include <fmt/format.h>

#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/memory/access.h"
#include "emulator/memory/tensor_map.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
constexpr std::size_t kMapBytes = 128;

// The 128 bytes of a map at a lane's address. False after a report.
bool find_map(Warp& w, const Instruction& in, Space space, int lane, U64 address, bool is_write, Target& out) {
  if (address % kMapBytes != 0) {
    report_misaligned(w, in, lane, address, kMapBytes);
    return false;
  }
  if (!locate_any(space, w, lane, address, kMapBytes, out) || out.shadow == nullptr ||
      !shadow_has(out.shadow, kMapBytes, kAllocated)) {
    report_outside(w, in, space, lane, address, kMapBytes, is_write);
    return false;
  }
  return true;
}

// op: address, ordinal?, value. flags: MapField; number: space.
Step replace(Warp& w, const Instruction& in, Mask active) {
  const auto space = static_cast<Space>(in.number);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 address = lane_address(w, in.op[0], lane);
    Target target;
    if (!find_map(w, in, space, lane, address, true, target)) return Step::fault;
    if (!shadow_has(target.shadow, kMapBytes, kReadable)) report_uninitialised(w, in, target, lane, address, kMapBytes);
    const U32 ordinal = in.num_operands > 2 ? static_cast<U32>(in.op[1].value) : 0;
    const auto value = read_lane<U64>(w, in.op[in.num_operands - 1], lane);
    const char* problem = replace_field(std::span<std::byte, kMapBytes>(target.data, kMapBytes),
                                        static_cast<MapField>(in.flags), ordinal, value);
    if (problem != nullptr)
      return w.fault_at(in, "tensor-map-invalid", lane, address, fmt::format("{} (new value {})", problem, value));
    note_written(w, target, kMapBytes);
    if (target.cta == nullptr) w.launch->map_fences.changed(w, address, MapFences::Reach::none);
  }
  return Step::next;
}

// op: destination in global memory, source in the CTA's shared memory, size. number: MapFences::Reach.
Step copy_with_fence(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const int lane = first_lane(active);
  Target to;
  Target from;
  const U64 source = lane_address(w, in.op[1], lane);
  if (!find_map(w, in, Space::global, lane, lane_address(w, in.op[0], lane), true, to)) return Step::fault;
  if (!find_map(w, in, Space::shared_cta, lane, source, false, from)) return Step::fault;
  if (!shadow_has(from.shadow, kMapBytes, kReadable)) report_uninitialised(w, in, from, lane, source, kMapBytes);
  std::memcpy(to.data, from.data, kMapBytes);
  note_written(w, to, kMapBytes);
  w.launch->map_fences.changed(w, lane_address(w, in.op[0], lane), static_cast<MapFences::Reach>(in.number));
  return Step::next;
}

Step release_maps(Warp& w, const Instruction& in, Mask active) {
  w.launch->map_fences.release(w, static_cast<MapFences::Reach>(in.number));
  if (w.race) w.launch->race->fence(w, active);
  return Step::next;
}

// op: address of the map, its size.
Step acquire_map(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 address = lane_address(w, in.op[0], lane);
    Target target;
    if (address % kMapBytes != 0) return report_misaligned(w, in, lane, address, kMapBytes);
    // An H200 fences null and unmapped addresses without a fault, so kernels that have no such map get by with it.
    if (!locate_any(Space::generic, w, lane, address, kMapBytes, target)) {
      w.hazard(in, "tensormap-fence-nowhere", lane, address, "the fence names no memory: nothing is acquired",
               "a null pointer in place of the map that the copies use");
      continue;
    }
    w.launch->map_fences.acquire(w, address);
  }
  if (w.race) w.launch->race->fence(w, active);
  return Step::next;
}

MapFences::Reach reach_of(const Decoded& d) { return d.has("cta") ? MapFences::Reach::cta : MapFences::Reach::all; }

// Numbers in the text lie in the ranges that ptxas takes.
bool is_in_range(const Decoded& d, U32 field, U64 value, bool is_ordinal) {
  const bool is_hopper = target_number(d.target) < 100;
  const auto most = [&]() -> U64 {
    if (is_ordinal) return 4;
    switch (static_cast<MapField>(field)) {
      case MapField::elemtype:
        return is_hopper ? 12 : 15;
      case MapField::interleave_layout:
        return 2;
      case MapField::swizzle_mode:
        return d.target.substr(0, 6) == "sm_103" ? 4 : 3;
      case MapField::swizzle_atomicity:
        return 3;
      case MapField::fill_mode:
        return 1;
      default:
        return ~U64{0};
    }
  }();
  if (value <= most) return true;
  if (d.why != nullptr)
    *d.why = fmt::format("{} = {}: must lie in 0..{}", is_ordinal ? "ordinal" : "new value",
                         static_cast<std::int64_t>(value), most);
  return false;
}

}  // namespace

Handler tensormap_replace(const Decoded& d) {
  constexpr std::string_view kFields[] = {
      "global_address", "rank",     "box_dim",           "global_dim",   "global_stride",
      "element_stride", "elemtype", "interleave_layout", "swizzle_mode", "swizzle_atomicity",
      "fill_mode"};
  for (std::uint16_t i = 0; i < 11; ++i)
    if (d.has(kFields[i])) d.in->flags = i;
  d.in->number = static_cast<U32>(space_of(d));
  const bool has_ordinal = d.in->num_operands > 2;
  const auto value = static_cast<U64>(d.in->op[1].value);
  if (d.in->op[1].is_immediate && !is_in_range(d, d.in->flags, value, has_ordinal)) return nullptr;
  return replace;
}
Handler tensormap_copy(const Decoded& d) {
  d.in->number = static_cast<U32>(reach_of(d));
  return d.in->op[2].value == kMapBytes ? copy_with_fence : nullptr;
}
Handler tensormap_fence(const Decoded& d) {
  d.in->number = static_cast<U32>(reach_of(d));
  if (!d.has("acquire")) return release_maps;
  return d.in->op[1].value == kMapBytes ? acquire_map : nullptr;
}

}  // namespace tessera::emulator::bind
