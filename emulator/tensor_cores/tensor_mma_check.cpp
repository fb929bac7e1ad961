// What can be wrong with a tcgen05.mma before any data is looked at. PTX ISA, "Matrix Shape", "Instruction descriptor",
// "Shared memory descriptor", "Valid Combinations of Type-Size, Major-ness and Swizzling", "Block Scaling".
#include <fmt/format.h>

#include "emulator/tensor_cores/tensor_mma.h"

namespace tessera::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Format;
using math::InstructionIssue;
using math::Major;
using math::Tcgen05Kind;

constexpr std::string_view kKindNames[] = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"};
std::string_view name_of(Tcgen05Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }

class Checker {
 public:
  Checker(Warp& w, const Instruction& in, const TensorMma& mma) : w_(w), in_(in), mma_(mma), s_(mma.shape) {}

  bool run() { return types() && shape() && scales() && unsettled() && lanes() && descriptors() && regions(); }

 private:
  bool fail(const char* name, std::string message, const char* cause = "") {
    w_.fault(in_, name, std::move(message), cause);
    return false;
  }
  bool bad_descriptor(std::string message, const char* cause = "") {
    return fail("instruction-descriptor", std::move(message), cause);
  }

  bool types() {
    constexpr const char* kCause =
        "a descriptor made for another kind, or the upper half of a 64-bit value passed where the lower is meant";
    switch (s_.issue) {
      case InstructionIssue::none:
        break;
      case InstructionIssue::reserved_bits:
        return bad_descriptor(fmt::format("bits that must be zero for kind::{} are set", name_of(mma_.kind)), kCause);
      case InstructionIssue::operand_type:
        return bad_descriptor(fmt::format("a type code of A or B that kind::{} does not have", name_of(mma_.kind)),
                              kCause);
      case InstructionIssue::result_type:
        return bad_descriptor(fmt::format("a type code of D that kind::{} does not have", name_of(mma_.kind)), kCause);
      case InstructionIssue::major:
        return bad_descriptor(fmt::format("kind::{} takes K-major operands only", name_of(mma_.kind)));
      case InstructionIssue::scale_type:
        return bad_descriptor(
            fmt::format("kind::{} takes ue8m0 scale factors only: bit 23 must be 1", name_of(mma_.kind)));
    }
    if (s_.sparse) return bad_descriptor("the sparsity bit is set; the instruction is dense");
    if (s_.result == math::Tcgen05Result::f16 && mma_.kind == Tcgen05Kind::f16 &&
        (s_.a != Format::f16 || s_.b != Format::f16))
      return bad_descriptor("an f16 accumulator with bf16 operands: kind::f16 has it for f16 operands only");
    for (const bool is_a : {true, false}) {
      const Format format = is_a ? s_.a : s_.b;
      const bool is_narrow = format == Format::e2m1 || format == Format::e2m3 || format == Format::e3m2;
      if (is_narrow && mma_.kind != Tcgen05Kind::i8 && (is_a ? s_.a_major : s_.b_major) == Major::mn)
        return bad_descriptor(fmt::format("{} has 4- or 6-bit elements: they must be K-major", is_a ? "A" : "B"));
    }
    if (mma_.a_in_tmem && s_.a_major == Major::mn)
      return bad_descriptor("A comes from Tensor Memory and cannot be transposed");
    return true;
  }

  bool m_is_legal() const {
    if (mma_.is_ws) return s_.m == 32 || s_.m == 64 || s_.m == 128;
    if (mma_.cta_group == 2) return s_.m == 128 || s_.m == 256;
    return s_.m == 128 || (s_.m == 64 && mma_.scale_vec == 0);
  }
  bool n_is_legal() const {
    const int n = s_.n;
    if (mma_.is_ws) return n == 64 || n == 128 || n == 256;
    const bool is_i8 = mma_.kind == Tcgen05Kind::i8;
    const int step = mma_.cta_group == 2 ? (is_i8 ? 32 : 16) : is_i8 && n > 32 ? 16 : 8;
    return n >= step && n >= 8 && n <= 256 && n % step == 0;
  }
  bool shape() {
    if (!m_is_legal())
      return bad_descriptor(fmt::format("M = {}: kind::{}{} with .cta_group::{} takes {}", s_.m, name_of(mma_.kind),
                                        mma_.is_ws ? " .ws" : "", mma_.cta_group,
                                        mma_.is_ws            ? "32, 64, 128"
                                        : mma_.cta_group == 2 ? "128, 256"
                                        : mma_.scale_vec != 0 ? "128"
                                                              : "64, 128"));
    if (!n_is_legal())
      return bad_descriptor(fmt::format("N = {} with M = {}: not a size of kind::{}{} with .cta_group::{}", s_.n, s_.m,
                                        name_of(mma_.kind), mma_.is_ws ? " .ws" : "", mma_.cta_group),
                            "N counts all columns, those of the peer CTA included");
    if (mma_.cta_group == 1 && !mma_.is_ws && s_.m == 128 && s_.n % 16 != 0)
      w_.hazard(in_, "instruction-descriptor-n", -1, 0,
                fmt::format("N = {} with M = 128: PTX's table has multiples of 8, public libraries use multiples of 16",
                            s_.n));
    return true;
  }

  bool scales() {
    if (mma_.scale_vec == 0) return true;
    for (const int id : {s_.scale_id_a, s_.scale_id_b})
      if ((mma_.scale_vec == 2 && id % 2 != 0) || (mma_.scale_vec == 4 && id != 0))
        return bad_descriptor(fmt::format("scale-factor id {}: with {} factors per row it must be {}", id,
                                          mma_.scale_vec, mma_.scale_vec == 4 ? "0" : "0 or 2"));
    if (mma_.scale_vec == 2 && s_.scale_format != Format::ue8m0)
      return bad_descriptor("ue4m3 scale factors (bit 23 clear) need blocks of 16",
                            "UE8M0 where UE4M3 is meant, or the other way round");
    for (const U32 address : {mma_.a_scale, mma_.b_scale})
      if (tmem_lane(address) != 0)
        return fail("tmem-lane-alignment",
                    fmt::format("scale factors at lane {}: they must start at lane 0", tmem_lane(address)));
    return true;
  }

  // Forms that parse and that no source settles.
  bool unsettled() {
    const auto stop = [this](const char* what) {
      return fail("not-supported", fmt::format("semantics unknown: {}", what));
    };
    if (s_.k == 96) return stop("K = 96 (sm_103a) and its scale-factor layout");
    if (mma_.scale_vec != 0 && mma_.cta_group == 2 && s_.m == 128)
      return stop("where scale factors stand with M = 128 over two CTAs");
    if (s_.max_shift != 0) return stop("the B-reuse shift of tcgen05.mma.ws");
    const bool is_narrow_a = s_.a == Format::e2m1 || s_.a == Format::e2m3 || s_.a == Format::e3m2;
    if (mma_.a_in_tmem && is_narrow_a && !mma_.is_fp4() && mma_.kind != Tcgen05Kind::i8)
      return stop("the place of a 4- or 6-bit element of A in its 8-bit container in Tensor Memory");
    if (mma_.scale_input != 0 && s_.result == math::Tcgen05Result::f16)
      return stop("the rounding of an f16 accumulator under scale-input-d");
    return true;
  }

  bool lanes() {
    const int lane = tmem_lane(mma_.d);
    const bool is_half = mma_.layout() == math::TmemAccumulator::f;
    if (lane != 0 && !(is_half && lane == 16))
      return fail("tmem-lane-alignment",
                  fmt::format("D at lane {}: with M = {} it must be {}", lane, s_.m, is_half ? "0 or 16" : "0"));
    if (mma_.a_in_tmem && tmem_lane(mma_.a_address) != lane)
      return fail("tmem-lane-alignment",
                  fmt::format("A at lane {}, D at lane {}: they must be equal", tmem_lane(mma_.a_address), lane));
    return true;
  }

  bool descriptors() {
    if (!mma_.a_in_tmem && !descriptor(mma_.a_descriptor, s_.a_major, "A")) return false;
    return descriptor(mma_.b_descriptor, s_.b_major, "B");
  }
  bool descriptor(U64 bits, Major major, const char* what) {
    if (!check_descriptor(w_, in_, bits, what)) return false;
    if (major == Major::k) return true;
    const bool is_atom_32 =
        math::decode_descriptor(math::DescriptorKind::tcgen05, bits).descriptor.swizzle == math::Swizzle::b128_atom_32b;
    if (is_atom_32 != (mma_.element_bits() == 32))
      return fail("descriptor-layout", fmt::format("{}'s descriptor 0x{:016x}: MN-major operands of {} bits take {}",
                                                   what, bits, mma_.element_bits(),
                                                   is_atom_32 ? "every layout but 128B with 32-byte atoms (code 1)"
                                                              : "the layout 128B with 32-byte atoms (code 1) only"));
    return true;
  }

  bool regions() {
    for (Cta* cta : {w_.cta, mma_.cta_group == 2 ? peer_of(*w_.cta) : nullptr}) {
      if (cta == nullptr) continue;
      if (!region(*cta, mma_.d_region(), "D", true)) return false;
      if (mma_.a_in_tmem && !region(*cta, mma_.a_region(), "A", false)) return false;
      if (mma_.scale_vec == 0) continue;
      if (!region(*cta, mma_.a_scale_region(), "the scale factors of A", false)) return false;
      if (!region(*cta, mma_.b_scale_region(), "the scale factors of B", false)) return false;
    }
    return true;
  }
  bool region(Cta& cta, const TmemRegion& region, const char* what, bool writes) {
    if (!check_allocated(w_, in_, cta, region, what)) return false;
    check_transfers(w_, in_, cta, region, writes);
    return true;
  }

  Warp& w_;
  const Instruction& in_;
  const TensorMma& mma_;
  const math::InstructionDescriptor& s_;
};

}  // namespace

bool check_descriptor(Warp& w, const Instruction& in, U64 bits, const char* what) {
  const math::DecodedDescriptor decoded = math::decode_descriptor(math::DescriptorKind::tcgen05, bits);
  switch (decoded.issue) {
    case math::DescriptorIssue::none:
      break;
    case math::DescriptorIssue::reserved_bits:
      w.hazard(in, "descriptor-reserved-bits", -1, bits,
               fmt::format("{}'s descriptor 0x{:016x} has bits set that must be zero", what, bits),
               "fields in bytes instead of 16-byte units, or shifted");
      break;
    case math::DescriptorIssue::version:
      w.hazard(
          in, "descriptor-version", -1, bits,
          fmt::format("{}'s descriptor 0x{:016x}: bits 48 to 46 are {}, they must be 1", what, bits, bits >> 46 & 7),
          "a wgmma descriptor used for tcgen05");
      break;
    case math::DescriptorIssue::swizzle:
      w.fault(in, "descriptor-layout",
              fmt::format("{}'s descriptor 0x{:016x}: layout code {} does not exist; there are 0, 1, 2, 4, 6", what,
                          bits, bits >> 61),
              "a wgmma layout code, or a field shifted by a bit");
      return false;
  }
  if (decoded.descriptor.leading_is_address) {
    w.fault(in, "not-supported",
            fmt::format("semantics unknown: {}'s descriptor 0x{:016x} with an absolute leading address (bit 52)", what,
                        bits));
    return false;
  }
  return true;
}

bool check_mma(Warp& w, const Instruction& in, const TensorMma& mma) { return Checker(w, in, mma).run(); }

}  // namespace tessera::emulator
