#include "emulator/tensor_cores/tensor_mma.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "emulator/math/mma_tile.h"

namespace tessera::emulator {

using U8 = std::uint8_t;
using U32 = std::uint32_t;
using U64 = std::uint64_t;
using math::Format;
using math::Tcgen05Kind;
using math::TmemAccumulator;

namespace {

// Operands decoded, kept between operations: decoding fills them anew.
struct Buffers {
  math::MmaOperand a;
  math::MmaOperand b;
  math::Fp4Operand a_fp4;
  math::Fp4Operand b_fp4;
  math::IntegerOperand a_int;
  math::IntegerOperand b_int;
  std::vector<U32> d;
};
Buffers& buffers() {
  static thread_local Buffers made;
  return made;
}

bool is_narrow(Format f) { return f == Format::e2m1 || f == Format::e2m3 || f == Format::e3m2; }

const math::MmaPath& path_of(const TensorMma& mma) {
  using namespace math::mma_paths;
  const bool is_half = mma.shape.result == math::Tcgen05Result::f16;
  if (mma.kind == Tcgen05Kind::f16) return is_half ? kBlackwellF16 : kBlackwellF32;
  if (mma.kind == Tcgen05Kind::tf32) return kBlackwellTf32;
  return is_half ? kBlackwellF8f6f4F16 : kBlackwellF8f6f4;
}

math::IntegerFormat integer_format(bool is_signed) {
  return is_signed ? math::IntegerFormat::s8 : math::IntegerFormat::u8;
}

}  // namespace

TmemAccumulator TensorMma::layout() const {
  if (cta_group == 2) return shape.m == 256 ? TmemAccumulator::a : TmemAccumulator::b;
  if (shape.m == 128) return TmemAccumulator::d;
  if (!is_ws) return TmemAccumulator::f;
  return shape.m == 64 ? TmemAccumulator::e : TmemAccumulator::g;
}

int TensorMma::d_columns() const {
  switch (layout()) {
    case TmemAccumulator::b:
    case TmemAccumulator::e:
      return shape.n / 2;
    case TmemAccumulator::g:
      return shape.n / 4;
    default:
      return shape.n;
  }
}

bool check_operand_chunk(const InstructionPlace& place, Launch& launch, Cta& cta, U32 address, U64 descriptor,
                         U64 issuer_fence, const RaceOperation* race) {
  const auto report = [&](const char* name, bool is_failure, std::string message, const char* cause) {
    EmulatorFinding finding = place.finding(name);
    finding.is_failure = is_failure;
    finding.address = address;
    finding.has_address = true;
    finding.message = std::move(message);
    finding.cause = cause;
    launch.findings.add(std::move(finding));
  };
  const U32 offset = address - kSharedBase;
  if (offset >= cta.shared_bytes || cta.shared_bytes - offset < 16) {
    report("smem-out-of-bounds", true,
           fmt::format("descriptor 0x{:016x} reaches offset {} of {} bytes", descriptor,
                       static_cast<std::int32_t>(offset), cta.shared_bytes),
           "LBO and SBO exchanged, or given in bytes or elements instead of 16-byte units");
    return false;
  }
  if (!shadow_has(cta.shared_shadow.data() + offset, 16, kReadable))
    report(
        "smem-uninitialised", false,
        fmt::format("descriptor 0x{:016x} reads 16 bytes of CTA rank {} that nobody has written", descriptor, cta.rank),
        "LBO and SBO exchanged, a swizzle unlike the tensor map's, or a tile that was not waited for");
  if (!is_fenced(cta, offset, issuer_fence))
    report("missing-proxy-fence", false,
           "the tensor core reads shared memory that ordinary stores wrote, without fence.proxy.async between them",
           "the writing threads must execute fence.proxy.async before the barrier that lets the instruction start");
  if (race != nullptr) launch.race->async_access(*race, place, &cta, offset, 16, false);
  const math::Swizzle swizzle = math::decode_descriptor(math::DescriptorKind::tcgen05, descriptor).descriptor.swizzle;
  const unsigned written = cta.tile_swizzle[offset / 16];
  if (written != 0 && written != 1 + static_cast<unsigned>(swizzle))
    report("descriptor-swizzle", false,
           fmt::format("descriptor 0x{:016x} reads with layout code {} what a tensor map with swizzle {} wrote",
                       descriptor, descriptor >> 61, written - 1),
           "layout codes (bits 61-63): 0 none, 1 and 2 128B, 4 64B, 6 32B; the tensor map says something else");
  return true;
}

namespace {

// What check_operand_chunk finds nothing about, in as few steps as that takes: an operand has hundreds of pieces.
class PlainChunks {
 public:
  PlainChunks(const Cta& cta, math::Swizzle swizzle, U64 issuer_fence)
      : cta_(cta), written_as_(1 + static_cast<unsigned>(swizzle)), fence_(issuer_fence) {}

  bool has(U32 address) const {
    const U32 offset = address - kSharedBase;
    if (offset >= cta_.shared_bytes || cta_.shared_bytes - offset < 16) return false;
    constexpr U64 kAll = kReadable * 0x0101010101010101u;
    U64 shadow[2];
    std::memcpy(shadow, cta_.shared_shadow.data() + offset, sizeof(shadow));
    if ((shadow[0] & shadow[1] & kAll) != kAll) return false;
    const unsigned written = cta_.tile_swizzle[offset / 16];
    if (written != 0 && written != written_as_) return false;
    return cta_.written_at[offset / 16] == 0 || is_fenced(cta_, offset, fence_);
  }

 private:
  const Cta& cta_;
  unsigned written_as_;
  U64 fence_;
};

}  // namespace

MmaOperation::MmaOperation(Warp& warp, const Instruction& in, int lane, const TensorMma& mma)
    : TensorOperation(warp, in, lane, mma.cta_group), mma_(mma) {
  for (Cta* cta : ctas()) {
    use(*cta, mma.d_region(), true);
    if (mma.a_in_tmem) use(*cta, mma.a_region(), false);
    if (mma.scale_vec == 0) continue;
    use(*cta, mma.a_scale_region(), false);
    use(*cta, mma.b_scale_region(), false);
  }
}

void MmaOperation::report_unwritten(Launch& launch, const Cta& cta, int lane, int column, const char* what) {
  report(launch, "tmem-uninitialised", false, static_cast<U64>(lane) << 16 | static_cast<U64>(column),
         fmt::format("{}: Tensor Memory lane {}, column {} of CTA rank {} was never written", what, lane, column,
                     cta.rank),
         "a column offset left out, another layout than the instruction's M, or enable-input-d for the first product");
}

// Calls read(bytes, elements, index, k, run) for every 16-byte piece of rows or columns [first, first + count).
template <class Read>
bool MmaOperation::read_matrix(Launch& launch, Cta& cta, U64 bits, math::Major major, int first, int count,
                               Read&& read) {
  const math::MatrixDescriptor d = math::decode_descriptor(math::DescriptorKind::tcgen05, bits).descriptor;
  bool ok = true;
  const PlainChunks plain(cta, d.swizzle, issuer_fence_);
  math::for_each_chunk(
      d, major, mma_.element_bits(), count, mma_.shape.k, [&](U32 address, int index, int k, int elements) {
        ok = ok && ((race_ == nullptr && plain.has(address)) ||
                    check_operand_chunk(place_, launch, cta, address, bits, issuer_fence_, race_.get()));
        if (ok) read(cta.shared.data() + (address - kSharedBase), elements, first + index, k);
      });
  return ok;
}

bool MmaOperation::read_a(Launch& launch, Cta& cta) {
  Buffers& to = buffers();
  const math::InstructionDescriptor& s = mma_.shape;
  const int rows = mma_.rows();
  const bool along_k = s.a_major == math::Major::k;
  if (mma_.is_fp4())
    to.a_fp4.resize(rows, s.k);
  else if (mma_.kind == Tcgen05Kind::i8)
    to.a_int.resize(rows, s.k);
  else
    to.a.resize(rows, s.k);
  if (mma_.a_in_tmem) {
    read_a_tmem(launch, cta, 0);
    return true;
  }
  const auto read = [&](const std::byte* bytes, int elements, int index, int k) {
    if (mma_.is_fp4()) {
      to.a_fp4.decode(bytes, elements, index, k, s.negate_a);
    } else if (mma_.kind == Tcgen05Kind::i8) {
      to.a_int.decode(integer_format(s.a_signed), bytes, elements, index, k,
                      along_k ? math::IntegerOperand::Run::along_k : math::IntegerOperand::Run::along_index);
    } else {
      const auto run = along_k ? math::MmaOperand::Run::along_k : math::MmaOperand::Run::along_index;
      if (is_narrow(s.a))
        to.a.decode(s.a, math::unpack_padded(s.a, bytes).data(), elements, index, k, run, s.negate_a);
      else
        to.a.decode(s.a, bytes, elements, index, k, run, s.negate_a);
    }
  };
  return read_matrix(launch, cta, mma_.a_descriptor, s.a_major, 0, rows, read);
}

// Where columns of D beyond the first half or quarter of N stand in other lanes, they multiply what A has in those:
// repetitions of the first ones, unless a kernel makes two products of one.
int MmaOperation::lane_of_a(int row, int part) const {
  return math::tmem_accumulator(mma_.layout(), row, part * mma_.d_columns(), mma_.shape.n).lane +
         tmem_lane(mma_.a_address);
}

bool MmaOperation::parts_differ(Cta& cta) const {
  TensorMemory& memory = *cta.tensor_memory;
  const int column = tmem_column(mma_.a_address);
  for (int part = 1; part < mma_.shape.n / mma_.d_columns(); ++part)
    for (int m = 0; m < mma_.rows(); ++m)
      if (std::memcmp(memory.row(lane_of_a(m, 0)) + column, memory.row(lane_of_a(m, part)) + column, 32) != 0)
        return true;
  return false;
}

void MmaOperation::read_a_tmem(Launch& launch, Cta& cta, int part) {
  Buffers& to = buffers();
  const math::InstructionDescriptor& s = mma_.shape;
  TensorMemory& memory = *cta.tensor_memory;
  const int column = tmem_column(mma_.a_address);
  for (int m = 0; m < mma_.rows(); ++m) {
    const int lane = lane_of_a(m, part);
    if (const int bad = memory.first_unwritten(lane, column, 8); bad >= 0)
      report_unwritten(launch, cta, lane, bad, "A");
    const auto* bytes = reinterpret_cast<const std::byte*>(memory.row(lane) + column);
    if (part > 0 && std::memcmp(bytes, memory.row(lane_of_a(m, 0)) + column, 32) != 0)
      report(
          launch, "tmem-replicas-differ", false, static_cast<U64>(lane) << 16 | static_cast<U64>(column),
          fmt::format("A: lanes {} and {} hold different rows, and multiply different columns of B", lane_of_a(m, 0),
                      lane),
          "where D has columns of one row in several lanes, A must be in all of these, unless two products are meant");
    if (mma_.is_fp4())
      to.a_fp4.decode(bytes, s.k, m, 0, s.negate_a);
    else if (mma_.kind == Tcgen05Kind::i8)
      to.a_int.decode(integer_format(s.a_signed), bytes, s.k, m, 0, math::IntegerOperand::Run::along_k);
    else
      to.a.decode(s.a, bytes, s.k, m, 0, math::MmaOperand::Run::along_k, s.negate_a);
  }
}

bool MmaOperation::read_b(Launch& launch) {
  Buffers& to = buffers();
  const math::InstructionDescriptor& s = mma_.shape;
  const bool along_k = s.b_major == math::Major::k;
  if (mma_.is_fp4())
    to.b_fp4.resize(s.n, s.k);
  else if (mma_.kind == Tcgen05Kind::i8)
    to.b_int.resize(s.n, s.k);
  else
    to.b.resize(s.n, s.k);
  const auto read = [&](const std::byte* bytes, int elements, int index, int k) {
    if (mma_.is_fp4()) {
      to.b_fp4.decode(bytes, elements, index, k, s.negate_b);
    } else if (mma_.kind == Tcgen05Kind::i8) {
      to.b_int.decode(integer_format(s.b_signed), bytes, elements, index, k,
                      along_k ? math::IntegerOperand::Run::along_k : math::IntegerOperand::Run::along_index);
    } else {
      const auto run = along_k ? math::MmaOperand::Run::along_k : math::MmaOperand::Run::along_index;
      if (is_narrow(s.b))
        to.b.decode(s.b, math::unpack_padded(s.b, bytes).data(), elements, index, k, run, s.negate_b);
      else
        to.b.decode(s.b, bytes, elements, index, k, run, s.negate_b);
    }
  };
  const int share = s.n / mma_.cta_group;
  int first = 0;
  for (Cta* cta : ctas()) {
    if (!read_matrix(launch, *cta, mma_.b_descriptor, s.b_major, first, share, read)) return false;
    first += share;
  }
  return true;
}

// Cell of row or column i: column i / 32, lane i % 32, the same in all four quarters.
void MmaOperation::read_scales(Launch& launch, Cta& cta, bool is_a) {
  Buffers& to = buffers();
  const math::InstructionDescriptor& s = mma_.shape;
  TensorMemory& memory = *cta.tensor_memory;
  const int base = tmem_column(is_a ? mma_.a_scale : mma_.b_scale);
  const int id = is_a ? s.scale_id_a : s.scale_id_b;
  const int count = is_a ? mma_.rows() : s.n;
  const int block = s.k / mma_.scale_vec;
  const char* what = is_a ? "scale factors of A" : "scale factors of B";
  for (int i = 0; i < count; ++i) {
    const int column = base + i / 32;
    const U32 word = memory.row(i % 32)[column];
    for (int quarter = 0; quarter < kTmemQuarters; ++quarter) {
      const int lane = i % 32 + 32 * quarter;
      if (memory.first_unwritten(lane, column, 1) >= 0) report_unwritten(launch, cta, lane, column, what);
      if (memory.row(lane)[column] != word)
        report(launch, "tmem-replicas-differ", false, static_cast<U64>(lane) << 16 | static_cast<U64>(column),
               fmt::format("{}: lanes {} and {} of column {} must hold the same word", what, i % 32, lane, column),
               "tcgen05.cp without .warpx4, or stores to one quarter only");
    }
    for (int v = 0; v < mma_.scale_vec; ++v) {
      const auto code = static_cast<U8>(word >> 8 * math::tmem_scale_byte(mma_.scale_vec, id, v * block));
      if (mma_.is_fp4())
        (is_a ? to.a_fp4 : to.b_fp4).scale(s.scale_format, code, i, v * block, block);
      else
        (is_a ? to.a : to.b).scale(code, i, v * block, block);
    }
  }
}

bool MmaOperation::read_operands(Launch& launch, Cta& cta) {
  if (!read_a(launch, cta)) return false;
  if (mma_.scale_vec == 0) return true;
  // B's scales are each CTA's own, so B is decoded for each.
  if (!read_b(launch)) return false;
  read_scales(launch, cta, true);
  read_scales(launch, cta, false);
  return true;
}

void MmaOperation::multiply(U32* d, int pitch) {
  const Buffers& from = buffers();
  if (mma_.is_fp4())
    math::fp4_tile(math::mma_paths::kTcgen05Fp4, from.a_fp4, from.b_fp4, d, pitch);
  else if (mma_.kind == Tcgen05Kind::i8)
    math::integer_tile(from.a_int, from.b_int, reinterpret_cast<std::int32_t*>(d), pitch, mma_.shape.saturate,
                       mma_.shape.k);
  else
    math::mma_tile(path_of(mma_), from.a, from.b, d, pitch);
}

// The same where the parts of D's columns multiply different rows of A: part by part, each with all of B.
void MmaOperation::multiply_parts(Launch& launch, Cta& cta, std::vector<U32>& d) {
  const int n = mma_.shape.n, run = mma_.d_columns();
  const std::vector<U32> before = d;
  for (int part = 0; part < n / run; ++part) {
    std::vector<U32> sums = before;
    read_a_tmem(launch, cta, part);
    multiply(sums.data(), n);
    for (int m = 0; m < mma_.rows(); ++m) {
      const auto first = static_cast<std::size_t>(m * n + part * run);
      std::copy_n(&sums[first], run, &d[first]);
    }
  }
}

// D in, product, D out, in one CTA.
void MmaOperation::update(Launch& launch, Cta& cta, std::size_t index) {
  TensorMemory& memory = *cta.tensor_memory;
  const int rows = mma_.rows();
  const int n = mma_.shape.n;
  const int column = tmem_column(mma_.d);
  const int base_lane = tmem_lane(mma_.d);
  const auto place = [&](int m, int col) {
    math::TmemPlace p = math::tmem_accumulator(mma_.layout(), m, col, n);
    return math::TmemPlace{p.lane + base_lane, p.column + column};
  };
  // Columns of a row that stand side by side: all of them, or a half or a quarter of N.
  const int run = mma_.d_columns();
  const bool is_direct = run == n && !mma_.has_disabled_lanes;
  std::vector<U32>& scratch = buffers().d;
  if (!is_direct || base_lane != 0 || rows != 128) scratch.assign(static_cast<std::size_t>(rows * n), 0);
  const bool in_place = is_direct && base_lane == 0 && rows == 128;
  U32* d = in_place ? memory.row(0) + column : scratch.data();
  const int pitch = in_place ? kTmemColumns : n;
  const float factor = std::ldexp(1.0f, -mma_.scale_input);
  for (int m = 0; m < rows; ++m) {
    for (int col = 0; col < n; col += run) {
      const math::TmemPlace p = place(m, col);
      U32* row = d + m * pitch + col;
      if (!mma_.accumulate) {
        std::fill_n(row, run, 0u);
        continue;
      }
      if (const int bad = memory.first_unwritten(p.lane, p.column, run); bad >= 0)
        report_unwritten(launch, cta, p.lane, bad, "D with enable-input-d");
      if (!in_place) std::copy_n(memory.row(p.lane) + p.column, run, row);
      if (mma_.scale_input == 0) continue;
      for (int i = 0; i < run; ++i) row[i] = math::bits_of(math::float_of(row[i]) * factor);
    }
  }
  if (mma_.a_in_tmem && run != n && parts_differ(cta))
    multiply_parts(launch, cta, scratch);
  else
    multiply(d, pitch);
  for (int m = 0; m < rows; ++m) {
    for (int col = 0; col < n; col += run) {
      const math::TmemPlace p = place(m, col);
      const U32 disabled = mma_.disabled_lanes[index * 4 + static_cast<std::size_t>(p.lane / 32)];
      if ((disabled >> p.lane % 32 & 1) != 0) continue;
      if (!in_place) std::copy_n(d + m * pitch + col, run, memory.row(p.lane) + p.column);
      memory.mark_written(p.lane, p.column, run);
    }
  }
  stamp(launch, cta, mma_.d_region());
}

void MmaOperation::execute(Launch& launch) {
  if (mma_.scale_vec == 0 && !read_b(launch)) return;
  for (std::size_t i = 0; i < ctas().size(); ++i) {
    if (!read_operands(launch, *ctas()[i])) return;
    update(launch, *ctas()[i], i);
  }
}

}  // namespace tessera::emulator
