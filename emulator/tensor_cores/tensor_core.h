// What the tcgen05 instructions share: entering the family, and checks of Tensor Memory addresses.
#pragma once

#include "emulator/instructions/bind.h"
#include "emulator/memory/async_memory.h"
#include "emulator/tensor_cores/tmem.h"

namespace tessera::emulator {

/// The other CTA of the pair: ranks 2i and 2i + 1. nullptr when the cluster has none.
Cta* peer_of(const Cta& cta);

/// The CTA's Tensor Memory; made on first use.
TensorMemory& tensor_memory_of(Cta& cta);

/// Every tcgen05 instruction with a .cta_group comes through here: one kernel uses one group, and group 2 needs a peer.
/// False after a report.
bool enter_tensor_core(Warp& w, const Instruction& in, int cta_group);

/// The region must lie in allocated columns. False after a report; `what` names the operand.
bool check_allocated(Warp& w, const Instruction& in, const Cta& cta, const TmemRegion& region, const char* what);

/// A hazard when the region was stored, or with `writes` loaded, by a warp that fences do not order before this one.
void check_fences(Warp& w, const Instruction& in, Cta& cta, const TmemRegion& region, bool writes);

/// Hazards of an operation that reads or writes a region while transfers of tcgen05.ld and .st are not waited for, or
/// were not ordered by fences. `issuer` issues it.
void check_transfers(Warp& issuer, const Instruction& in, Cta& cta, const TmemRegion& region, bool writes);

/// A copy into a region that this product uses, and nothing orders it behind the product.
void report_unordered_copy(const Warp& w, const Instruction& in, int lane, const TmemRegion& region,
                           const Instruction& product);

/// After a CTA's end: reports blocks that were not freed.
void check_tensor_memory_freed(const Cta& cta);

/// An operation of the tensor core: completes in order with the others of its CTA (or pair), tells its thread's
/// progress, and holds regions of Tensor Memory while it is in flight.
class TensorOperation : public CopyOperation {
 public:
  TensorOperation(Warp& warp, const Instruction& in, int lane, int cta_group);
  ~TensorOperation() override;
  void complete(Launch& launch) final;
  AsyncWork work() const override { return {AsyncWork::Kind::tensor, 0, 0, issuer_, &in_}; }

 protected:
  virtual void execute(Launch& launch) = 0;
  /// Announces what the operation will touch, in one CTA.
  void use(Cta& cta, const TmemRegion& region, bool writes);
  /// The CTAs it works on, the even one first.
  const std::vector<Cta*>& ctas() const { return ctas_; }
  const Instruction& instruction() const { return in_; }
  int warp_index() const { return warp_index_; }

  /// Marks the region as written by the tensor core.
  void stamp(Launch& launch, Cta& cta, const TmemRegion& region) const;

 private:
  const Instruction& in_;
  int warp_index_ = 0;
  Cta* issuer_ = nullptr;
  std::vector<Cta*> ctas_;
  std::shared_ptr<TensorProgress> progress_;
};

}  // namespace tessera::emulator
