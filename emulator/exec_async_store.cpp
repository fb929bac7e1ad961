// PTX ISA, "Data Movement: st.async": a store into a CTA's shared memory that counts its bytes at an mbarrier there.
#include <cstring>

#include "emulator/async_memory.h"
#include "emulator/bind.h"

namespace tessera::emulator::bind {
namespace {

/// The value is taken when the instruction is issued; memory and barrier hear of it later. A store of the generic
/// proxy.
class AsyncStore final : public CopyOperation {
 public:
  AsyncStore(const Warp& warp, const Instruction& in, int lane) : CopyOperation(warp, in, lane) { is_generic_ = true; }
  Cta* cta = nullptr;
  std::uint32_t shared = 0;
  std::uint32_t barrier = 0;
  std::size_t bytes = 0;
  std::array<std::byte, 32> data{};

  void complete(Launch& launch) override {
    aim(launch, *cta, barrier);
    if (write_shared(launch, *cta, shared, data.data(), bytes))
      complete_bytes(launch, *cta, barrier, static_cast<std::int64_t>(bytes), place_);
  }
};

// T is one element. op: address, value, barrier.
template <class T>
Step store(Warp& w, const Instruction& in, Mask active) {
  const Operand& value = in.op[1];
  const bool is_list = value.kind == Operand::Kind::list;
  const int count = is_list ? value.count : 1;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    auto operation = std::make_unique<AsyncStore>(w, in, lane);
    operation->bytes = sizeof(T) * static_cast<std::size_t>(count);
    const std::uint64_t address = lane_address(w, in.op[0], lane);
    if ((address & (operation->bytes - 1)) != 0) return report_misaligned(w, in, lane, address, operation->bytes);
    Target target;
    Target barrier;
    if (!shared_target(w, in, Space::shared_cluster, lane, address, operation->bytes, target)) return Step::fault;
    const std::uint64_t barrier_address = lane_address(w, in.op[2], lane);
    if (!shared_target(w, in, Space::shared_cluster, lane, barrier_address, 8, barrier)) return Step::fault;
    if (target.cta != barrier.cta)
      return w.fault_at(in, "async-store-barrier", lane, barrier_address,
                        "the mbarrier is in another CTA's shared memory than the address");
    operation->cta = target.cta;
    operation->shared = target.offset;
    operation->barrier = barrier.offset;
    for (int i = 0; i < count; ++i) {
      const T element = read_lane<T>(w, is_list ? value.elements[i] : value, lane);
      std::memcpy(operation->data.data() + static_cast<std::size_t>(i) * sizeof(T), &element, sizeof(T));
    }
    w.launch->async.push(std::move(operation), *w.launch);
  }
  return Step::next;
}

}  // namespace

Handler st_async(const Decoded& d) {
  const Operand& value = d.in->op[1];
  const int count = value.kind == Operand::Kind::list ? value.count : 1;
  if (count != (d.has("v2") ? 2 : d.has("v4") ? 4 : 1)) return nullptr;
  const bool is_wide = d.type() == Type::b64 || d.type() == Type::u64 || d.type() == Type::s64 || d.type() == Type::f64;
  return is_wide ? store<std::uint64_t> : store<std::uint32_t>;
}

}  // namespace tessera::emulator::bind
