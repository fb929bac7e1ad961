#include "emulator/math/instruction_descriptor.h"

#include <doctest/doctest.h>

namespace tessera::emulator::math {
namespace {

TEST_CASE("a descriptor seen in public PTX") {
  const InstructionDescriptor d = decode_instruction(Tcgen05Kind::f16, 138477584);
  CHECK(d.issue == InstructionIssue::none);
  CHECK(d.a == Format::f16);
  CHECK(d.b == Format::f16);
  CHECK(d.result == Tcgen05Result::f32);
  CHECK(d.a_major == Major::k);
  CHECK(d.b_major == Major::mn);
  CHECK(d.m == 128);
  CHECK(d.n == 256);
  CHECK(d.k == 16);
  CHECK_FALSE(d.sparse);
}

TEST_CASE("scaled kinds keep M, scale type and ids elsewhere") {
  const std::uint32_t bits = 1u << 7 | 1u << 10 | 32u << 17 | 0u << 23 | 1u << 27 | 2u << 29 | 2u << 4;
  const InstructionDescriptor d = decode_instruction(Tcgen05Kind::mxf4nvf4, bits);
  CHECK(d.issue == InstructionIssue::none);
  CHECK(d.a == Format::e2m1);
  CHECK(d.scale_format == Format::ue4m3);
  CHECK(d.scale_id_a == 2);
  CHECK(d.scale_id_b == 2);
  CHECK(d.m == 128);
  CHECK(d.n == 256);
  CHECK(d.k == 64);
  CHECK(decode_instruction(Tcgen05Kind::mxf4nvf4, bits | 1u << 31).k == 96);
  CHECK(decode_instruction(Tcgen05Kind::mxf4, bits).issue == InstructionIssue::scale_type);
  CHECK(decode_instruction(Tcgen05Kind::mxf4nvf4, bits | 1u << 15).issue == InstructionIssue::major);
  const std::uint32_t mx = 5u << 7 | 4u << 10 | 8u << 17 | 1u << 23 | 2u << 27 | 3u << 29;
  const InstructionDescriptor m = decode_instruction(Tcgen05Kind::mxf8f6f4, mx);
  CHECK(m.issue == InstructionIssue::none);
  CHECK(m.a == Format::e2m1);
  CHECK(m.b == Format::e3m2);
  CHECK(m.m == 256);
  CHECK(m.scale_id_a == 3);
}

TEST_CASE("what must not be set") {
  const std::uint32_t good = 1u << 4 | 16u << 17 | 4u << 24;
  CHECK(decode_instruction(Tcgen05Kind::f8f6f4, good).issue == InstructionIssue::none);
  CHECK(decode_instruction(Tcgen05Kind::f8f6f4, good | 2u << 7).issue == InstructionIssue::operand_type);
  CHECK(decode_instruction(Tcgen05Kind::f16, good | 1u << 23).issue == InstructionIssue::reserved_bits);
  CHECK(decode_instruction(Tcgen05Kind::f16, good | 1u << 3).issue == InstructionIssue::reserved_bits);
  CHECK(decode_instruction(Tcgen05Kind::tf32, good | 2u << 7 | 2u << 10).issue == InstructionIssue::none);
  CHECK(decode_instruction(Tcgen05Kind::tf32, 2u << 7 | 2u << 10).issue == InstructionIssue::result_type);
  const InstructionDescriptor i8 = decode_instruction(Tcgen05Kind::i8, 2u << 4 | 1u << 3 | 1u << 7 | 4u << 24);
  CHECK(i8.issue == InstructionIssue::none);
  CHECK(i8.result == Tcgen05Result::s32);
  CHECK(i8.a_signed);
  CHECK_FALSE(i8.b_signed);
  CHECK(i8.saturate);
  CHECK(decode_instruction(Tcgen05Kind::i8, 1u << 4).issue == InstructionIssue::result_type);
}

}  // namespace
}  // namespace tessera::emulator::math
