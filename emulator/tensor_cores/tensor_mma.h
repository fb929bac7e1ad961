// tcgen05.mma: what one instruction asks for, and the operation that does it.
//
// PTX ISA, "tcgen05.mma", "Data Path Layout Organization", "Block Scaling". Document only: no Blackwell was at hand.
// D = A * B (+ D): A from shared or Tensor Memory, B from shared memory, D in Tensor Memory. With a pair of CTAs each
// holds half of A's and D's rows and, in its own shared memory, half of B's columns; all addresses and descriptors are
// used in both CTAs alike.
#pragma once

#include "emulator/math/instruction_descriptor.h"
#include "emulator/math/mma_fp4.h"
#include "emulator/math/mma_integer.h"
#include "emulator/math/mma_operand.h"
#include "emulator/math/tmem_layout.h"
#include "emulator/tensor_cores/tensor_core.h"

namespace tessera::emulator {

struct TensorMma {
  math::Tcgen05Kind kind = math::Tcgen05Kind::f16;
  math::InstructionDescriptor shape;
  int cta_group = 1;
  int scale_vec = 0;  ///< 1, 2 or 4 scale factors per row; 0: not block-scaled
  bool is_ws = false;
  bool a_in_tmem = false;
  bool accumulate = false;
  int scale_input = 0;  ///< D enters times 2^-scale_input
  std::uint32_t d = 0;
  std::uint32_t a_address = 0;
  std::uint64_t a_descriptor = 0;
  std::uint64_t b_descriptor = 0;
  std::uint32_t a_scale = 0;
  std::uint32_t b_scale = 0;
  bool has_disabled_lanes = false;
  std::array<std::uint32_t, 8> disabled_lanes{};

  bool is_fp4() const { return kind == math::Tcgen05Kind::mxf4 || kind == math::Tcgen05Kind::mxf4nvf4; }
  /// Of an element in shared memory, padding included.
  int element_bits() const {
    return kind == math::Tcgen05Kind::tf32 ? 32 : kind == math::Tcgen05Kind::f16 ? 16 : is_fp4() ? 4 : 8;
  }
  int rows() const { return shape.m / cta_group; }  ///< of one CTA
  math::TmemAccumulator layout() const;
  int d_columns() const;
  TmemRegion d_region() const { return {tmem_column(d), tmem_column(d) + d_columns(), 15}; }
  TmemRegion a_region() const { return {tmem_column(a_address), tmem_column(a_address) + 8, 15}; }
  TmemRegion a_scale_region() const { return {tmem_column(a_scale), tmem_column(a_scale) + rows() / 32, 15}; }
  TmemRegion b_scale_region() const { return {tmem_column(b_scale), tmem_column(b_scale) + (shape.n + 31) / 32, 15}; }
};

/// Everything about the instruction that can be said without data: types, shape, majorness, descriptors, addresses.
/// False after a report.
bool check_mma(Warp& w, const Instruction& in, const TensorMma& mma);

class MmaOperation final : public TensorOperation {
 public:
  MmaOperation(Warp& warp, const Instruction& in, int lane, const TensorMma& mma);
  AsyncWork work() const override {
    AsyncWork work = TensorOperation::work();
    work.m = mma_.shape.m;
    work.n = mma_.shape.n;
    work.cta_group = mma_.cta_group;
    work.a_in_tmem = mma_.a_in_tmem;
    return work;
  }

 protected:
  void execute(Launch& launch) override;

 private:
  bool read_operands(Launch& launch, Cta& cta);
  template <class Read>
  bool read_matrix(Launch& launch, Cta& cta, std::uint64_t bits, math::Major major, int first, int count, Read&& read);
  bool read_a(Launch& launch, Cta& cta);
  bool read_b(Launch& launch);
  int lane_of_a(int row, int part) const;
  bool parts_differ(Cta& cta) const;
  void read_a_tmem(Launch& launch, Cta& cta, int part);
  void read_scales(Launch& launch, Cta& cta, bool is_a);
  void multiply(std::uint32_t* d, int pitch);
  void multiply_parts(Launch& launch, Cta& cta, std::vector<std::uint32_t>& d);
  void update(Launch& launch, Cta& cta, std::size_t index);
  void report_unwritten(Launch& launch, const Cta& cta, int lane, int column, const char* what);

  TensorMma mma_;
};

/// One 16-byte piece of an operand in shared memory; false after a report.
bool check_operand_chunk(const InstructionPlace& place, Launch& launch, Cta& cta, std::uint32_t address,
                         std::uint64_t descriptor, std::uint64_t issuer_fence, const RaceOperation* race);

/// Reports what is wrong with a shared-memory descriptor's own bits. False when it cannot be used.
bool check_descriptor(Warp& w, const Instruction& in, std::uint64_t bits, const char* what);

}  // namespace tessera::emulator
