// Instruction descriptors of tcgen05.mma: 32 bits from fields and back. No Blackwell device was asked about any of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/layout_command.h"
#include "spec/instruction_descriptor.h"

namespace tessera::cli {

namespace {

using layout::InstructionDescriptor;
using layout::InstructionRule;
using layout::Tcgen05Kind;
using layout::Tcgen05Type;

const std::vector<std::string_view> kKinds = {"f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"};
const std::vector<std::string_view> kTypes = {"f16",  "bf16", "tf32", "e4m3", "e5m2",
                                              "e2m3", "e3m2", "e2m1", "u8",   "s8"};
const std::vector<std::string_view> kResults = {"f16", "f32", "s32"};

std::vector<std::string_view> types_of(Tcgen05Kind kind) {
  std::vector<std::string_view> types;
  for (std::size_t i = 0; i < kTypes.size(); ++i)
    if (tcgen05_type_code(kind, static_cast<Tcgen05Type>(i)) >= 0) types.push_back(kTypes[i]);
  return types;
}

std::string rule_text(Tcgen05Kind kind, const Verdict<InstructionRule>& verdict, const InstructionDescriptor& d) {
  using Rule = InstructionRule;
  const std::string_view name = kKinds[static_cast<std::size_t>(kind)];
  const auto type = [&](const char* flag, Tcgen05Type found) {
    return fmt::format("{} = {}: kind {} takes {}", flag, kTypes[static_cast<std::size_t>(found)], name,
                       fmt::join(types_of(kind), ", "));
  };
  switch (verdict.rule) {
    case Rule::ok:
      return {};
    case Rule::type_a:
      return type("type_a", d.a);
    case Rule::type_b:
      return type("type_b", d.b);
    case Rule::result:
      return fmt::format("type_d = {}: kind {} accumulates in {}", kResults[static_cast<std::size_t>(d.d)], name,
                         kind == Tcgen05Kind::i8                                   ? "s32"
                         : kind == Tcgen05Kind::f16 || kind == Tcgen05Kind::f8f6f4 ? "f16 or f32"
                                                                                   : "f32");
    case Rule::m:
      return fmt::format("m = {}: must be one of {}", d.m,
                         is_block_scaled(kind) ? "128, 256" : "32 (.ws), 64, 128, 256");
    case Rule::n:
      return fmt::format("n = {}: must be a multiple of 8 from 8 to 256", d.n);
    case Rule::major:
      return "mxf4 and mxf4nvf4 take K-major operands only";
    case Rule::negate:
      return "negate_a, negate_b: not for kind i8";
    case Rule::saturate:
      return fmt::format("saturate: kind i8 has it, kind {} does not", name);
    case Rule::selector:
      return fmt::format("sparsity_selector = {}: must be {}", verdict.found,
                         verdict.bound == 0 ? "0 for block-scaled kinds" : "from 0 to 3");
    case Rule::max_shift:
      return fmt::format("max_shift = {}: must be {}", verdict.found,
                         verdict.bound == 0 ? "0 for block-scaled kinds" : "one of 0, 8, 16, 32");
    case Rule::scale_type:
      return fmt::format("scale_type = ue4m3: kind {} takes ue8m0, mxf4nvf4 both", name);
    case Rule::scale_id:
      return fmt::format("scale id {}: must be {}", verdict.found,
                         !is_block_scaled(kind) ? "0, the kind has no scales"
                         : is_four_bit(kind)    ? "0 or 2"
                                                : "from 0 to 3");
    case Rule::k96:
      return "k96: for dense mxf4 and mxf4nvf4 on sm_103a only";
  }
  return {};
}

InstructionDescriptor fields_of(Tcgen05Kind kind, const LayoutArguments& arguments) {
  InstructionDescriptor d;
  // Without types: the kind's first one, and its own accumulator.
  std::size_t type = 0;
  while (tcgen05_type_code(kind, static_cast<Tcgen05Type>(type)) < 0) ++type;
  d.a = static_cast<Tcgen05Type>(arguments.word("type-a", kTypes, type));
  d.b = static_cast<Tcgen05Type>(arguments.word("type-b", kTypes, static_cast<std::size_t>(d.a)));
  d.d = static_cast<layout::Tcgen05Result>(arguments.word("type-d", kResults, kind == Tcgen05Kind::i8 ? 2 : 1));
  d.m = static_cast<int>(arguments.number("m", 128, 0, 1024));
  d.n = static_cast<int>(arguments.number("n", 128, 0, 1024));
  d.is_a_mn_major = arguments.word("major-a", {"k", "mn"}, 0) == 1;
  d.is_b_mn_major = arguments.word("major-b", {"k", "mn"}, 0) == 1;
  d.negates_a = arguments.has("negate-a");
  d.negates_b = arguments.has("negate-b");
  d.saturates = arguments.has("saturate");
  d.is_sparse = arguments.has("sparse");
  d.sparsity_selector = static_cast<int>(arguments.number("sparsity-selector", 0, 0, 255));
  d.max_shift = static_cast<int>(arguments.number("max-shift", 0, 0, 255));
  d.scales_are_ue8m0 = arguments.word("scale-type", {"ue8m0", "ue4m3"}, 0) == 0;
  d.scale_id_a = static_cast<int>(arguments.number("scale-id-a", 0, 0, 255));
  d.scale_id_b = static_cast<int>(arguments.number("scale-id-b", 0, 0, 255));
  d.is_k96 = arguments.has("k96");
  return d;
}

void add_fields(LayoutPage& page, Tcgen05Kind kind, const InstructionDescriptor& d, unsigned bits) {
  const auto field = [&](const char* range, const char* name, const std::string& value) {
    page.facts.emplace_back(fmt::format("[{}] {}", range, name), value);
  };
  const auto yes = [](bool value) { return std::string(value ? "yes" : "no"); };
  const auto coded = [&](int low, int width, std::string_view text) {
    return fmt::format("{} (code {})", text, bits >> low & ((1u << width) - 1));
  };
  const bool scaled = is_block_scaled(kind);
  page.facts.emplace_back("bits", fmt::format("{:#010x}", bits));
  page.facts.emplace_back("K of an instruction",
                          fmt::format("{}", (d.is_k96 ? 96 : tcgen05_k(kind)) * (d.is_sparse ? 2 : 1)));
  if (!scaled) field("1:0", "sparsity selector", fmt::format("{}", d.sparsity_selector));
  field("2", "sparse", yes(d.is_sparse));
  if (kind == Tcgen05Kind::i8) field("3", "saturate", yes(d.saturates));
  if (scaled) {
    field("5:4", "scale id of B", fmt::format("{}", d.scale_id_b));
  } else {
    field("5:4", "D", coded(4, 2, kResults[static_cast<std::size_t>(d.d)]));
  }
  field("9:7", "A", coded(7, 3, kTypes[static_cast<std::size_t>(d.a)]));
  field(is_four_bit(kind) ? "11:10" : "12:10", "B",
        coded(10, is_four_bit(kind) ? 2 : 3, kTypes[static_cast<std::size_t>(d.b)]));
  field("13", "negate A", yes(d.negates_a));
  field("14", "negate B", yes(d.negates_b));
  field("15", "A is MN-major", yes(d.is_a_mn_major));
  field("16", "B is MN-major", yes(d.is_b_mn_major));
  field("22:17", "N", fmt::format("{} x 8 = {}", d.n / 8, d.n));
  if (scaled) {
    field("23", "scale type", d.scales_are_ue8m0 ? "ue8m0 (1)" : "ue4m3 (0)");
    field("28:27", "M", fmt::format("{} x 128 = {}", d.m / 128, d.m));
    field("30:29", "scale id of A", fmt::format("{}", d.scale_id_a));
    if (is_four_bit(kind)) field("31", "K = 96", yes(d.is_k96));
  } else {
    field("28:24", "M", fmt::format("{} x 16 = {}", d.m / 16, d.m));
    field("31:30", "max shift (.ws)", fmt::format("{}", d.max_shift));
  }
}

void add_notes(LayoutPage& page, Tcgen05Kind kind, const InstructionDescriptor& d) {
  if (d.m == 128 && d.n % 16 != 0)
    page.notes.push_back(
        "M = 128 with an N that no 16 divides: the manual's table lists it, libraries insist on multiples of 16");
  if (d.m == 256) page.notes.push_back("M = 256 needs cta_group::2; N is then a multiple of 16");
  if (d.m == 32) page.notes.push_back("M = 32 needs .ws, with N = 64, 128 or 256");
  if (kind == Tcgen05Kind::mxf4nvf4 && !d.scales_are_ue8m0)
    page.notes.push_back("ue4m3 scales go with blocks of 16: .block16, .scale_vec::4X");
  page.notes.push_back("from the manual and public libraries; no Blackwell device was asked");
}

}  // namespace

LayoutPage layout_instruction_descriptor(const LayoutArguments& arguments) {
  const auto kind = static_cast<Tcgen05Kind>(arguments.subject_word(kKinds));
  LayoutPage page;
  page.title = fmt::format("instruction descriptor of tcgen05.mma, kind::{}", arguments.subject);
  InstructionDescriptor d;
  unsigned bits = 0;
  if (arguments.argument.empty()) {
    d = fields_of(kind, arguments);
    const auto verdict = why_invalid(kind, d);
    if (!verdict.ok()) throw Error(ErrorKind::usage, rule_text(kind, verdict, d));
    bits = encode_instruction_descriptor(kind, d);
  } else {
    if (!arguments.values.empty())
      throw Error(ErrorKind::usage, fmt::format("--{}: the value {} says it; give fields or bits, not both",
                                                arguments.values.begin()->first, arguments.argument));
    bits = static_cast<unsigned>(parse_layout_bits(arguments.argument, 32));
    const layout::DecodedInstruction decoded = decode_instruction_descriptor(kind, bits);
    d = decoded.fields;
    if (decoded.reserved != 0)
      page.mistakes.push_back(fmt::format("bits {:#x} are set and must be 0", decoded.reserved));
    for (const auto& [name, code] : {std::pair("A", decoded.bad_type_a), std::pair("B", decoded.bad_type_b)})
      if (code >= 0)
        page.mistakes.push_back(fmt::format("{}'s type code {}: kind {} has {}", name, code, arguments.subject,
                                            fmt::join(types_of(kind), ", ")));
    if (decoded.bad_result >= 0)
      page.mistakes.push_back(fmt::format("D's type code {}: 0, 1 and 2 exist", decoded.bad_result));
    const auto verdict = why_invalid(kind, d);
    const bool is_told = decoded.bad_type_a >= 0 || decoded.bad_type_b >= 0;
    if (!verdict.ok() &&
        !(is_told && (verdict.rule == InstructionRule::type_a || verdict.rule == InstructionRule::type_b)))
      page.mistakes.push_back(rule_text(kind, verdict, d));
  }
  add_fields(page, kind, d, bits);
  add_notes(page, kind, d);
  return page;
}

}  // namespace tessera::cli
