// PTX ISA, "tcgen05.cp": shared memory to Tensor Memory. The source is a K-major matrix behind a descriptor: rows of 16
// or 32 bytes. 4x256b puts its row i at lane 32 i (counted from the address's lane): one public library names the rows
// so, nothing contradicts it.
#include <fmt/format.h>

#include "emulator/math/tmem_layout.h"
#include "emulator/tensor_cores/tensor_mma.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::TmemCopy;

enum class Shape : std::uint8_t { r128x256b, r128x128b, r64x128b_02_13, r64x128b_01_23, r32x128b_x4, r4x256b };

struct Geometry {
  int rows;
  int words;  // of a row
  int copies;
};
Geometry geometry(Shape shape) {
  if (shape == Shape::r4x256b) return {4, 8, 1};
  const auto copy = static_cast<TmemCopy>(shape);
  return {math::tmem_copy_rows(copy), shape == Shape::r128x256b ? 8 : 4, math::tmem_copies(copy)};
}

class TensorCopy final : public TensorOperation {
 public:
  TensorCopy(Warp& w, const Instruction& in, int lane, int group, Shape shape, U32 address, U64 descriptor)
      : TensorOperation(w, in, lane, group), shape_(shape), address_(address), descriptor_(descriptor) {
    for (Cta* cta : ctas()) use(*cta, region(), true);
  }
  TmemRegion region() const { return {tmem_column(address_), tmem_column(address_) + geometry(shape_).words, 15}; }
  /// A product that has been issued before and is not complete, and uses what the copy writes; null: none.
  const Instruction* overtakes(const Cta& cta) const {
    for (const TmemUse& use : cta.tensor_memory->in_flight)
      if (use.operation != this && is_product(*use.in) && use.region.overlaps(region())) return use.in;
    return nullptr;
  }
  /// Now, before all that has been issued earlier and is not complete.
  void overtake(Launch& launch) {
    copy_all(launch);
    is_done_ = true;
  }

 protected:
  void execute(Launch& launch) override {
    if (!is_done_) copy_all(launch);
  }

 private:
  static bool is_product(const Instruction& in) { return in.form->mnemonic.substr(0, 11) == "tcgen05.mma"; }
  void copy_all(Launch& launch) {
    for (Cta* cta : ctas())
      if (!copy(launch, *cta)) return;
  }
  bool copy(Launch& launch, Cta& cta) {
    const math::MatrixDescriptor d = math::decode_descriptor(math::DescriptorKind::tcgen05, descriptor_).descriptor;
    const Geometry g = geometry(shape_);
    TensorMemory& memory = *cta.tensor_memory;
    const int column = tmem_column(address_);
    for (int row = 0; row < g.rows; ++row) {
      for (int word = 0; word < g.words; word += 4) {
        const U32 from = math::chunk_address(d, math::Major::k, static_cast<U32>(row), static_cast<U32>(word / 4), 0);
        if (!check_operand_chunk(place_, launch, cta, from, descriptor_, issuer_fence_, race_.get())) return false;
        for (int i = 0; i < g.copies; ++i) {
          const int lane = shape_ == Shape::r4x256b ? tmem_lane(address_) + 32 * row
                                                    : math::tmem_copy(static_cast<TmemCopy>(shape_), row, word, i).lane;
          std::memcpy(memory.row(lane) + column + word, cta.shared.data() + (from - kSharedBase), 16);
          memory.mark_written(lane, column + word, 4);
        }
      }
    }
    stamp(launch, cta, region());
    return true;
  }

  Shape shape_;
  U32 address_;
  U64 descriptor_;
  bool is_done_ = false;
};

// number: cta_group; flags: shape. op: address, descriptor.
Step issue(Warp& w, const Instruction& in, Mask active) {
  const int group = static_cast<int>(in.number);
  if (!enter_tensor_core(w, in, group)) return Step::fault;
  const auto shape = static_cast<Shape>(in.flags);
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto address = static_cast<U32>(lane_address(w, in.op[0], lane));
    const U64 descriptor = read_lane<U64>(w, in.op[1], lane);
    const int first = tmem_lane(address);
    if (shape == Shape::r4x256b ? first > 31 : first != 0)
      return w.fault_at(
          in, "tmem-lane-alignment", lane, address,
          fmt::format("lane {}: the copy must start at lane 0{}", first, shape == Shape::r4x256b ? " to 31" : ""));
    if (!check_descriptor(w, in, descriptor, "the source")) return Step::fault;
    auto operation = std::make_unique<TensorCopy>(w, in, lane, group, shape, address, descriptor);
    bool may_overtake = false;
    for (Cta* cta : {w.cta, group == 2 ? peer_of(*w.cta) : nullptr}) {
      if (cta == nullptr) continue;
      if (!check_allocated(w, in, *cta, operation->region(), "the copy")) return Step::fault;
      check_transfers(w, in, *cta, operation->region(), true);
      const Instruction* const product = operation->overtakes(*cta);
      may_overtake = may_overtake || product != nullptr;
      if (w.race)
        w.launch->race->copy_to_tensor_memory(w, in, lane, *cta, operation->region());
      else if (product != nullptr)
        report_unordered_copy(w, in, lane, operation->region(), *product);
    }
    // With the race detector, which calls it a hazard anyway: known-right programs lean on the order of issue.
    if (may_overtake && w.race && w.launch->options.schedule == Schedule::adversarial && w.launch->random.below(2) == 0)
      operation->overtake(*w.launch);
    w.launch->async.push(std::move(operation), *w.launch);
    if (w.launch->findings.has_failure()) return Step::fault;
  }
  return Step::next;
}

}  // namespace

Handler tcgen05_cp(const Decoded& d) {
  const bool pair = d.has("warpx2::02_13") || d.has("warpx2::01_23");
  const bool four = d.has("warpx4");
  Shape shape = Shape::r128x256b;
  if (d.has("128x128b")) shape = Shape::r128x128b;
  if (d.has("4x256b")) shape = Shape::r4x256b;
  if (d.has("64x128b")) shape = d.has("warpx2::02_13") ? Shape::r64x128b_02_13 : Shape::r64x128b_01_23;
  if (d.has("32x128b")) shape = Shape::r32x128b_x4;
  if (pair != d.has("64x128b") || four != d.has("32x128b")) return nullptr;
  d.in->number = d.has("cta_group::2") ? 2 : 1;
  d.in->flags = static_cast<std::uint16_t>(shape);
  return issue;
}

}  // namespace tessera::emulator::bind
