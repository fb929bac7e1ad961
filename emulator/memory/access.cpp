// PTX addresses to host bytes, by state space; generic addresses are windows over the spaces. The reports for what
// lies outside, is misaligned or was never written are made here too, so that every handler words them alike.
#include "emulator/memory/access.h"

#include <fmt/format.h>

#include "emulator/findings/moved_value.h"

namespace tessera::emulator {

Space space_of(const Decoded& d) {
  if (d.has("global") || d.has("const")) return Space::global;
  if (d.has("shared") || d.has("shared::cta")) return Space::shared_cta;
  if (d.has("shared::cluster")) return Space::shared_cluster;
  if (d.has("local")) return Space::local;
  if (d.has("param") || d.has("param::entry") || d.has("param::func")) return Space::param;
  return Space::generic;
}

bool drop_shared_window(const Warp& w, std::uint64_t& address) {
  if (address - kSharedWindow >= kWindowBytes) return false;
  EmulatorFinding finding = w.finding(w.launch->entry.code[w.pc], "generic-address-as-shared", -1);
  finding.address = address;
  finding.has_address = true;
  finding.message = "a generic address where the instruction names .shared; its low word is taken";
  finding.cause = "a pointer that was not converted by cvta.to.shared (__cvta_generic_to_shared)";
  w.launch->findings.add(std::move(finding));
  address -= kSharedWindow;
  return true;
}

void note_overwritten(const Warp& w, Cta& cta, std::uint32_t offset, std::size_t bytes) {
  const Instruction& in = w.code[w.pc];
  cta.overwrite_mbarriers(offset, bytes, fmt::format("PTX line {} ({}) of warp {}", in.line, in.opcode, w.index));
}

bool locate_local(const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out) {
  const std::uint64_t size = w.launch->local_bytes;
  if (address >= size || bytes > size - address) return false;
  const std::uint64_t at =
      (static_cast<std::uint64_t>(w.index) * kLanes + static_cast<std::uint64_t>(lane)) * size + address;
  out = {w.cta->local.data() + at, w.cta->local_shadow.data() + at, nullptr, 0};
  return true;
}

bool locate_parameter(const Warp& w, std::uint64_t address, std::size_t bytes, Target& out) {
  const std::vector<std::byte>& parameters = w.launch->parameters;
  if (address >= parameters.size() || bytes > parameters.size() - address) return false;
  out = {w.launch->parameters.data() + address, nullptr, nullptr, 0};
  return true;
}

bool locate_generic(const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out) {
  if (address >= kGlobalBase) return locate_global(w, address, bytes, out);
  if (address - kSharedWindow < kWindowBytes) return locate_shared(w, address - kSharedWindow, bytes, false, out);
  if (address - kLocalWindow < kWindowBytes) return locate_local(w, lane, address - kLocalWindow, bytes, out);
  if (address - kParamWindow < kWindowBytes) return locate_parameter(w, address - kParamWindow, bytes, out);
  return false;
}

bool locate_any(Space space, const Warp& w, int lane, std::uint64_t address, std::size_t bytes, Target& out) {
  switch (space) {
    case Space::global:
      return locate<Space::global>(w, lane, address, bytes, out);
    case Space::shared_cta:
      return locate<Space::shared_cta>(w, lane, address, bytes, out);
    case Space::shared_cluster:
      return locate<Space::shared_cluster>(w, lane, address, bytes, out);
    case Space::local:
      return locate<Space::local>(w, lane, address, bytes, out);
    case Space::param:
      return locate<Space::param>(w, lane, address, bytes, out);
    case Space::generic:
      break;
  }
  return locate<Space::generic>(w, lane, address, bytes, out);
}

namespace {

// A generic address tells by its window what was meant.
Space refine(Space space, std::uint64_t& address) {
  if (space != Space::generic) return space;
  if (address >= kGlobalBase) return Space::global;
  if (address - kSharedWindow < kWindowBytes) {
    address -= kSharedWindow;
    return Space::shared_cluster;
  }
  if (address - kLocalWindow < kWindowBytes) {
    address -= kLocalWindow;
    return Space::local;
  }
  if (address - kParamWindow < kWindowBytes) {
    address -= kParamWindow;
    return Space::param;
  }
  return Space::generic;
}

}  // namespace

Step report_outside(Warp& w, const Instruction& in, Space space, int lane, std::uint64_t address, std::size_t bytes,
                    bool is_write) {
  std::uint64_t own = address;
  const char* what = is_write ? "write" : "read";
  switch (refine(space, own)) {
    case Space::global: {
      const std::string where = w.launch->memory.describe(address);
      const bool was_freed = where.ends_with("that was freed");
      return w.fault_at(in, "global-out-of-bounds", lane, address,
                        fmt::format("{} of {} bytes: {}", what, bytes, where),
                        was_freed ? "used behind its free: that came too early, or the pointer is an old one"
                                  : "a size, stride or coordinate passed to the kernel is larger than the buffer");
    }
    case Space::shared_cta:
    case Space::shared_cluster: {
      const std::uint64_t rank = own >> kRankShift;
      const std::uint64_t offset = (own & ((1u << kRankShift) - 1)) - kSharedBase;
      if (rank < w.cta->cluster->ctas.size() && w.cta->cluster->ctas[rank]->live_warps == 0)
        return w.fault_at(in, "cluster-peer-exited", lane, address,
                          fmt::format("{} of {} bytes: the CTA of rank {} has exited, and its shared memory may be "
                                      "another's",
                                      what, bytes, rank),
                          kExitedCause);
      return w.fault_at(
          in, "smem-out-of-bounds", lane, address,
          fmt::format("{} of {} bytes at offset {} of CTA rank {}; the CTA has {} bytes and rank {} of {}", what, bytes,
                      static_cast<std::int64_t>(offset), rank, w.cta->shared_bytes, w.cta->rank,
                      w.cta->cluster->ctas.size()),
          "dynamic shared memory at launch is smaller than the layout");
    }
    case Space::local:
      return w.fault_at(
          in, "local-out-of-bounds", lane, address,
          fmt::format("{} of {} bytes at {} of {} bytes of local memory", what, bytes, own, w.launch->local_bytes));
    case Space::param:
      return w.fault_at(
          in, "param-out-of-bounds", lane, address,
          fmt::format("{} of {} bytes at {} of {} bytes of parameters", what, bytes, own, w.launch->parameters.size()));
    case Space::generic:
      break;
  }
  return w.fault_at(in, "generic-out-of-bounds", lane, address,
                    fmt::format("{} of {} bytes: the address is in no state space", what, bytes),
                    "a null or host pointer, or a shared address used without cvta");
}

Step report_misaligned(Warp& w, const Instruction& in, int lane, std::uint64_t address, std::size_t bytes) {
  return w.fault_at(in, "misaligned-address", lane, address,
                    fmt::format("the address must be a multiple of {}", bytes));
}

void report_uninitialised(Warp& w, const Instruction& in, const Target& target, int lane, std::uint64_t address,
                          std::size_t bytes) {
  if (w.launch->options.skips_values) return;  // copies have brought no bytes
  const bool is_shared = target.cta != nullptr;
  const bool is_global = w.launch->memory.address_of(target.data) != 0;
  const char* const name = is_shared   ? "smem-uninitialised"
                           : is_global ? "global-uninitialised"
                                       : "local-uninitialised";
  EmulatorFinding finding = w.finding(in, name, lane);
  finding.address = address;
  finding.has_address = address != 0;
  finding.message = fmt::format("read of {} bytes that nobody has written", bytes);
  if (is_shared) finding.cause = "a copy that was not waited for, or a tile smaller than what is read";
  if (!is_shared && !is_global && in.form->mnemonic == "ld") {
    const ValueUse use = use_of_value(w.launch->entry, w.pc);
    if (use == ValueUse::moved) return;
    if (use == ValueUse::selected) return follow_value(w, in, lane, std::move(finding));
  }
  w.launch->findings.add(std::move(finding));
}

}  // namespace tessera::emulator
