// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions": wgmma.
//
// The four warps of a warpgroup issue an instruction one by one, as far apart as the schedule likes; when the fourth
// has, the whole operation is queued, and the accumulators change when it completes. Operations of a warpgroup complete
// in order. Sums are the tensor core's own (emulator/math/mma_path.h).
#include <fmt/format.h>

#include "emulator/async_memory.h"
#include "emulator/bind.h"
#include "emulator/math/fragments.h"
#include "emulator/math/matrix_descriptor.h"
#include "emulator/math/mma_tile.h"
#include "emulator/wgmma.h"

namespace tessera::emulator {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Format;

/// What the opcode says, in Instruction::number and flags.
struct Shape {
  Format a = Format::f16;
  Format b = Format::f16;
  int n = 8;
  int k = 16;
  int bits = 16;  // of an element in memory and registers
  bool f16_result = false;
  bool a_in_registers = false;
  math::Major a_major = math::Major::k;
  math::Major b_major = math::Major::k;
  bool negate_a = false;
  bool negate_b = false;
};

// number: n | a << 12 | b << 16; flags: 1 f16 result, 2 A in registers, 4 A MN-major, 8 B MN-major, 16 -A, 32 -B.
Shape shape_of(const Instruction& in) {
  Shape s;
  s.n = static_cast<int>(in.number & 0xFFF);
  s.a = static_cast<Format>((in.number >> 12) & 15);
  s.b = static_cast<Format>((in.number >> 16) & 15);
  s.bits = s.a == Format::tf32 ? 32 : s.a == Format::f16 || s.a == Format::bf16 ? 16 : 8;
  s.k = 256 / s.bits;
  s.f16_result = (in.flags & 1) != 0;
  s.a_in_registers = (in.flags & 2) != 0;
  s.a_major = (in.flags & 4) != 0 ? math::Major::mn : math::Major::k;
  s.b_major = (in.flags & 8) != 0 ? math::Major::mn : math::Major::k;
  s.negate_a = (in.flags & 16) != 0;
  s.negate_b = (in.flags & 32) != 0;
  return s;
}

const math::MmaPath& path_of(const Shape& s) {
  using namespace math::mma_paths;
  if (s.bits == 32) return kHopperTf32;
  if (s.bits == 16) return s.f16_result ? kHopperF16 : kHopperF32;
  return s.f16_result ? kHopperFp8F16 : kHopperFp8;
}

/// The operation while it completes: operands decoded, product formed, accumulators written.
class Product {
 public:
  Product(WgmmaOperation& operation, Launch& launch)
      : operation_(operation), launch_(launch), shape_(shape_of(*operation.in)), warp_(*operation.warps[0]) {}

  void run() {
    // Kept between operations: decoding fills them anew.
    static thread_local math::MmaOperand a;
    static thread_local math::MmaOperand b;
    static thread_local std::vector<U32> d;
    a.resize(64, shape_.k);
    b.resize(shape_.n, shape_.k);
    if (shape_.a_in_registers)
      read_registers(a);
    else if (!read_memory(operation_.a_descriptor, shape_.a, shape_.a_major, 64, shape_.negate_a, a))
      return;
    if (!read_memory(operation_.b_descriptor, shape_.b, shape_.b_major, shape_.n, shape_.negate_b, b)) return;
    const int pitch = (shape_.n + 15) / 16 * 16;
    d.assign(static_cast<std::size_t>(64 * pitch), 0);
    if (operation_.accumulate) move_accumulators(d.data(), pitch, true);
    math::mma_tile(path_of(shape_), a, b, d.data(), pitch);
    move_accumulators(d.data(), pitch, false);
  }

 private:
  void report(const char* name, bool is_failure, U64 address, std::string message, std::string cause) const {
    EmulatorFinding finding = warp_.finding(*operation_.in, name, -1);
    finding.is_failure = is_failure;
    finding.address = address;
    finding.has_address = true;
    finding.message = std::move(message);
    finding.cause = std::move(cause);
    launch_.findings.add(std::move(finding));
  }

  bool read_memory(U64 bits, Format format, math::Major major, int count, bool negate, math::MmaOperand& out) {
    const math::DecodedDescriptor decoded = math::decode_descriptor(math::DescriptorKind::wgmma, bits);
    if (decoded.issue == math::DescriptorIssue::reserved_bits)
      report("descriptor-reserved-bits", false, bits,
             fmt::format("descriptor 0x{:016x} has bits set that must be zero", bits),
             "fields in bytes instead of 16-byte units, or shifted");
    Cta& cta = *warp_.cta;
    bool ok = true;
    const auto run = major == math::Major::k ? math::MmaOperand::Run::along_k : math::MmaOperand::Run::along_index;
    math::for_each_chunk(
        decoded.descriptor, major, shape_.bits, count, shape_.k, [&](U32 address, int index, int k, int elements) {
          if (!ok) return;
          ok = check_chunk(cta, address, bits);
          if (ok) out.decode(format, cta.shared.data() + (address - kSharedBase), elements, index, k, run, negate);
        });
    return ok;
  }

  bool check_chunk(Cta& cta, U32 address, U64 bits) {
    const U32 offset = address - kSharedBase;
    if (offset >= cta.shared_bytes || cta.shared_bytes - offset < 16) {
      report("smem-out-of-bounds", true, address,
             fmt::format("descriptor 0x{:016x} reaches offset {} of {} bytes", bits, static_cast<std::int32_t>(offset),
                         cta.shared_bytes),
             "LBO and SBO exchanged, or given in bytes or elements instead of 16-byte units");
      return false;
    }
    if (!shadow_has(cta.shared_shadow.data() + offset, 16, kReadable))
      report("smem-uninitialised", false, address,
             fmt::format("descriptor 0x{:016x} reads 16 bytes that nobody has written", bits),
             "LBO and SBO exchanged, a swizzle unlike the tensor map's, or a tile that was not waited for");
    if (!is_fenced(cta, offset, warp_.fence_time))
      report("missing-proxy-fence", false, address,
             "wgmma reads shared memory that ordinary stores wrote, without fence.proxy.async between them",
             "the writing threads must execute fence.proxy.async before the barrier that lets wgmma start");
    return true;
  }

  // A from registers: 16 rows a warp.
  void read_registers(math::MmaOperand& out) {
    const Operand& list = operation_.in->op[1];
    const int per = 32 / shape_.bits;
    for (int thread = 0; thread < 128; ++thread) {
      const Warp& warp = *operation_.warps[static_cast<std::size_t>(thread / 32)];
      for (int r = 0; r < list.count; ++r) {
        const U32 word = warp.reg<U32>(list.elements[r].offset)[thread % 32];
        for (int e = 0; e < per; ++e) {
          const math::Place place = math::wgmma_a(shape_.bits, thread, r, e);
          const U32 code = shape_.bits == 32 ? word : (word >> (shape_.bits * e)) & ((1u << shape_.bits) - 1);
          out.set(shape_.a, code, place.row, place.column, shape_.negate_a);
        }
      }
    }
  }

  void move_accumulators(U32* d, int pitch, bool to_matrix) {
    const Operand& list = operation_.in->op[0];
    const int per = shape_.f16_result ? 2 : 1;
    for (int w = 0; w < 4; ++w) {
      const Warp& warp = *operation_.warps[static_cast<std::size_t>(w)];
      for (int r = 0; r < list.count; ++r) {
        U32* reg = warp.reg<U32>(list.elements[r].offset);
        for (int lane = 0; lane < kLanes; ++lane) {
          const math::Place place = math::wgmma_d(32 * w + lane, r * per);
          U32* at = d + place.row * pitch + place.column;
          if (!shape_.f16_result) {
            if (to_matrix)
              *at = reg[lane];
            else
              reg[lane] = *at;
          } else if (to_matrix) {
            at[0] = reg[lane] & 0xFFFF;
            at[1] = reg[lane] >> 16;
          } else {
            reg[lane] = (at[0] & 0xFFFF) | at[1] << 16;
          }
        }
      }
    }
  }

  WgmmaOperation& operation_;
  Launch& launch_;
  Shape shape_;
  Warp& warp_;
};

}  // namespace

bool Warp::check_registers(const Instruction& in) {
  if (in.form->mnemonic.substr(0, 5) == "wgmma") return true;
  const auto is_in_flight = [&](const Operand& op) {
    const bool is_register = op.kind == Operand::Kind::reg || op.kind == Operand::Kind::address;
    return is_register && !op.is_immediate && async.in_flight_places[op.offset / 64];
  };
  bool touched = false;
  for (int i = 0; i < in.num_operands && !touched; ++i) {
    touched = is_in_flight(in.op[i]);
    for (int j = 0; j < in.op[i].count && !touched; ++j) touched = is_in_flight(in.op[i].elements[j]);
  }
  if (!touched) return true;
  fault(in, "wgmma-register-in-flight", "a register of a wgmma that was not waited for is read or written",
        "wgmma.wait_group is missing, or leaves one group too many in flight");
  return false;
}

void WgmmaOperation::complete(Launch& launch) {
  Product(*this, launch).run();
  for (std::size_t i = 0; i < 4; ++i) {
    --groups[i]->pending;
  }
}

namespace bind {
namespace {

bool check_warpgroup(Warp& w, const Instruction& in) {
  const std::size_t first = static_cast<std::size_t>(w.index) / 4 * 4;
  if (first + 4 <= w.cta->warps.size()) return true;
  w.fault(in, "wgmma-warpgroup", "the warp belongs to no complete warpgroup of four warps",
          "a block size that is not a multiple of 128");
  return false;
}

// Marks the places of the registers of what is in flight.
void mark(Warp& w) {
  std::vector<bool>& places = w.async.in_flight_places;
  places.assign(w.launch->entry.register_file_bytes / 64 + 1, false);
  for (const WarpAsync::InFlight& flight : w.async.in_flight)
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < flight.in->op[i].count; ++j) places[flight.in->op[i].elements[j].offset / 64] = true;
  w.watches_registers = !w.async.in_flight.empty();
}
void watch(Warp& w, const Instruction& in) {
  w.async.in_flight.push_back({&in, w.async.wgmma_groups});
  if (!w.watches_registers) return mark(w);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < in.op[i].count; ++j) w.async.in_flight_places[in.op[i].elements[j].offset / 64] = true;
}
// All but the newest `allowed` groups are waited for.
void release(Warp& w, U64 allowed) {
  w.wgmma_fenced = false;
  const U64 groups = w.async.wgmma_groups;
  const U64 first_left = groups > allowed ? groups - allowed : 0;
  std::erase_if(w.async.in_flight, [&](const WarpAsync::InFlight& f) { return f.group < first_left; });
  mark(w);
}

// op: accumulators, A (descriptor or registers), B descriptor, scale-d, then immediates.
Step issue(Warp& w, const Instruction& in, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  if (!check_warpgroup(w, in)) return Step::fault;
  const auto member = static_cast<std::size_t>(w.index) % 4;
  WarpgroupAsync& group = w.cta->warpgroups[static_cast<std::size_t>(w.index) / 4];
  const bool a_in_registers = (in.flags & 2) != 0;
  const U64 a = a_in_registers ? 0 : uniform<U64>(w, in.op[1], active);
  const U64 b = uniform<U64>(w, in.op[2], active);
  const Mask scale = w.read_predicate(in.op[3]) & active;
  if (scale != 0 && scale != active)
    return w.fault(in, "wgmma-not-uniform", "scale-d differs between the lanes of a warp");

  const std::size_t slot = static_cast<std::size_t>(w.async.wgmma_issued - group.first);
  if (slot == group.forming.size()) {
    group.forming.push_back(std::make_unique<WgmmaOperation>());
    WgmmaOperation& made = *group.forming.back();
    made.in = &in;
    made.a_descriptor = a;
    made.b_descriptor = b;
    made.accumulate = scale != 0;
    made.chain = &group;
  }
  WgmmaOperation& operation = *group.forming[slot];
  if (operation.in != &in || operation.a_descriptor != a || operation.b_descriptor != b ||
      operation.accumulate != (scale != 0))
    return w.fault(
        in, "wgmma-not-uniform",
        fmt::format("this warp issues A 0x{:x} B 0x{:x} scale-d {}; another warp of its warpgroup issued PTX line {} "
                    "with A 0x{:x} B 0x{:x} scale-d {}",
                    a, b, scale != 0, operation.in->line, operation.a_descriptor, operation.b_descriptor,
                    operation.accumulate),
        "a descriptor computed from the thread or warp index");
  if (!w.wgmma_fenced)
    w.hazard(in, "missing-wgmma-fence", -1, 0, "no wgmma.fence since the last wait",
             "registers written before the wgmma may not have arrived when it reads them");
  watch(w, in);
  ++w.async.wgmma_issued;
  operation.warps[member] = &w;
  ++w.async.wgmma.current().pending;
  operation.groups[member] = w.async.wgmma.open;
  if (++operation.joined == 4) {
    std::unique_ptr<WgmmaOperation> ready = std::move(group.forming.front());
    group.forming.pop_front();
    ++group.first;
    w.launch->async.push(std::move(ready), *w.launch);
  }
  return Step::next;
}

Step fence_handler(Warp& w, const Instruction&, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  w.wgmma_fenced = true;
  return Step::next;
}

Step commit(Warp& w, const Instruction&, Mask active) {
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  w.async.wgmma.commit();
  ++w.async.wgmma_groups;
  return Step::next;
}

Step wait(Warp& w, const Instruction& in, Mask active) {
  w.take_wake();
  Step out{};
  if (!w.converged(kAllLanes, active, out)) return out;
  const auto allowed = static_cast<U64>(in.op[0].value);
  if (w.async.wgmma.at_most(allowed, false)) {
    release(w, allowed);
    return Step::next;
  }
  return w.block({Wait::Kind::wgmma_groups, 0, allowed, 0});
}

bool find_format(Type type, Format& format) {
  switch (type) {
    case Type::f16:
      format = Format::f16;
      return true;
    case Type::bf16:
      format = Format::bf16;
      return true;
    case Type::tf32:
      format = Format::tf32;
      return true;
    case Type::e4m3:
      format = Format::e4m3;
      return true;
    case Type::e5m2:
      format = Format::e5m2;
      return true;
    default:
      return false;
  }
}

// Immediates: scale-a, scale-b (1 or -1), then for 16-bit types tnsp-a (A in memory) and tnsp-b.
bool read_immediates(const Decoded& d, bool is_16_bit, bool a_in_registers, unsigned& flags) {
  const Operand* op = d.in->op + 4;
  const auto sign = [](const Operand& o, bool& minus) {
    minus = o.value == -1;
    return o.is_immediate && (o.value == 1 || o.value == -1);
  };
  bool minus_a = false;
  bool minus_b = false;
  if (!sign(op[0], minus_a) || !sign(op[1], minus_b)) return false;
  flags |= (minus_a ? 16u : 0u) | (minus_b ? 32u : 0u);
  const int wanted = !is_16_bit ? 0 : a_in_registers ? 1 : 2;
  for (int i = 0; i < 2; ++i) {
    const Operand& o = op[2 + i];
    if ((o.kind != Operand::Kind::none) != (i < wanted)) return false;
    if (i < wanted && (!o.is_immediate || o.value < 0 || o.value > 1)) return false;
  }
  if (wanted == 2) flags |= (op[2].value != 0 ? 4u : 0u) | (op[3].value != 0 ? 8u : 0u);
  if (wanted == 1) flags |= op[2].value != 0 ? 8u : 0u;
  return true;
}

}  // namespace

Handler wgmma(const Decoded& d) {
  Format a{};
  Format b{};
  if (!find_format(d.type(1), a) || !find_format(d.type(2), b)) return nullptr;
  const U32 n = d.numbers[0];
  const bool is_f16 = d.type(0) == Type::f16;
  const bool a_in_registers = d.in->op[1].kind == Operand::Kind::list;
  if (n < 8 || n > 256 || n % 8 != 0) return nullptr;
  if (d.in->op[0].count != n / (is_f16 ? 4 : 2)) return nullptr;
  if (a_in_registers && d.in->op[1].count != 4) return nullptr;
  unsigned flags = (is_f16 ? 1u : 0u) | (a_in_registers ? 2u : 0u);
  if (!read_immediates(d, a == Format::f16 || a == Format::bf16, a_in_registers, flags)) return nullptr;
  d.in->flags = static_cast<std::uint16_t>(flags);
  d.in->number = n | static_cast<U32>(a) << 12 | static_cast<U32>(b) << 16;
  return issue;
}
Handler wgmma_fence(const Decoded&) { return fence_handler; }
Handler wgmma_commit(const Decoded&) { return commit; }
Handler wgmma_wait(const Decoded&) { return wait; }

}  // namespace bind
}  // namespace tessera::emulator
