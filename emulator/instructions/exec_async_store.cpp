// PTX ISA, "st.async", "red.async", "st.bulk": stores of registers to shared memory that complete on an mbarrier, and
// the fill of a range with zeros. All of them go through the generic proxy.
#include <fmt/format.h>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/reduce.h"
#include "emulator/memory/async_memory.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

class AsyncStore final : public CopyOperation {
 public:
  using CopyOperation::CopyOperation;
  Cta* cta = nullptr;
  U32 shared = 0;
  U32 barrier = 0;
  std::vector<std::byte> data;
  BulkReduce reduce;

  AsyncWork work() const override { return {AsyncWork::Kind::remote_store, data.size(), 0, cta, place_.in}; }
  void complete(Launch& launch) override {
    aim(launch, *cta, barrier);
    is_generic_ = true;
    is_atomic_ = reduce.op != BulkReduce::Op::none;
    if (reduce.op != BulkReduce::Op::none) {
      if (!shadow_has(cta->shared_shadow.data() + shared, data.size(), kReadable))
        report(launch, "smem-uninitialised", false, cta->shared_address(shared),
               "red.async to shared memory that nobody has written", "");
      const std::byte* from = cta->shared.data() + shared;
      std::vector<std::byte> old(from, from + data.size());
      reduce.apply(old.data(), data.data(), data.size());
      data = std::move(old);
    }
    if (!write_shared(launch, *cta, shared, data.data(), data.size())) return;
    complete_bytes(launch, *cta, barrier, static_cast<std::int64_t>(data.size()), place_);
  }
};

// op: address, value (a register or a list), barrier. flags: BulkReduce::Op | element bytes << 8; number: its type |
// space << 8.
Step store(Warp& w, const Instruction& in, Mask active) {
  const Operand& value = in.op[1];
  const int count = value.kind == Operand::Kind::list ? value.count : 1;
  const std::size_t each = in.flags >> 8;
  const auto space = static_cast<Space>(in.number >> 8);
  if (const auto& size = w.launch->shape.cluster;
      size[0] * size[1] * size[2] == 1 && w.launch->entry.required_cluster[0] == 0)
    w.hazard(in, "async-store-no-cluster", first_lane(active), 0,
             fmt::format("{} in a launch with clusters of one CTA", in.opcode),
             "an H200 stops with \"illegal instruction\" unless the launch attribute or .reqnctapercluster states a "
             "cluster, of one CTA at least");
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<AsyncStore>(w, in, lane);
    const U64 to = lane_address(w, in.op[0], lane);
    const std::size_t bytes = each * static_cast<std::size_t>(count);
    if (to % bytes != 0) return report_misaligned(w, in, lane, to, bytes);
    Target target;
    Target barrier;
    if (!shared_target(w, in, space, lane, to, bytes, target)) return Step::fault;
    if (!shared_target(w, in, space, lane, lane_address(w, in.op[2], lane), 8, barrier)) return Step::fault;
    if (barrier.cta != target.cta)
      return w.fault_at(in, "async-store-barrier", lane, to,
                        fmt::format("the data go to CTA rank {}, the mbarrier "
                                    "is in rank {}: both must be in one CTA",
                                    target.cta->rank, barrier.cta->rank));
    operation->cta = target.cta;
    operation->shared = target.offset;
    operation->barrier = barrier.offset;
    operation->data.resize(bytes);
    for (int i = 0; i < count; ++i) {
      const U64 bits = read_lane<U64>(w, value.kind == Operand::Kind::list ? value.elements[i] : value, lane);
      std::memcpy(operation->data.data() + static_cast<std::size_t>(i) * each, &bits, each);
    }
    operation->reduce.op = static_cast<BulkReduce::Op>(in.flags & 0xFF);
    operation->reduce.type = static_cast<Type>(in.number & 0xFF);
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

// op: address, size.
Step fill(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const U64 to = lane_address(w, in.op[0], lane);
    const auto bytes = read_lane<U64>(w, in.op[1], lane);
    if (to % 8 != 0) return report_misaligned(w, in, lane, to, 8);
    if (bytes % 8 != 0)
      return w.fault_at(in, "bulk-size", lane, to, fmt::format("{} bytes: must be a multiple of 8", bytes));
    if (bytes == 0) continue;
    Target target;
    const auto space = static_cast<Space>(in.number);
    if (bytes >> 32 != 0 || !locate_any(space, w, lane, to, bytes, target) || target.cta == nullptr)
      return report_outside(w, in, space, lane, to, bytes, true);
    std::memset(target.data, 0, bytes);
    note_written(w, target, bytes);
  }
  return Step::next;
}

}  // namespace

Handler st_async(const Decoded& d) {
  const Operand& value = d.in->op[1];
  const int count = value.kind == Operand::Kind::list ? value.count : 1;
  if (count != (d.has("v4") ? 4 : d.has("v2") ? 2 : 1)) return nullptr;
  constexpr std::string_view kOps[] = {"add", "min", "max", "inc", "dec", "and", "or", "xor"};
  BulkReduce reduce;
  for (std::uint16_t i = 0; i < 8; ++i)
    if (d.has(kOps[i])) reduce.op = static_cast<BulkReduce::Op>(i + 1);
  if (reduce.op != BulkReduce::Op::none && !reduce.set_type(d.type())) return nullptr;
  d.in->flags =
      static_cast<std::uint16_t>(static_cast<unsigned>(reduce.op) | static_cast<unsigned>(bits_of(d.type()) / 8) << 8);
  d.in->number = static_cast<U32>(reduce.type) | static_cast<U32>(space_of(d)) << 8;
  return store;
}

Handler st_bulk(const Decoded& d) {
  d.in->number = static_cast<U32>(space_of(d));
  return d.in->op[2].value == 0 ? fill : nullptr;
}

}  // namespace tessera::emulator::bind
