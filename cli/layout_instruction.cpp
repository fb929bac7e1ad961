// Instruction descriptors of tcgen05.mma: 32 bits from fields and back. No
// Blackwell device was asked about any of it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/layout_command.h"
#include "tessera/error.h"
#include "tessera/spec/instruction_descriptor.h"

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
      return fmt::format("scale_id_{} = {}: must be {}", d.scale_id_a == verdict.found ? "a" : "b", verdict.found,
                         !is_block_scaled(kind) ? "0, the kind has no scales"
                         : is_four_bit(kind)    ? "0 or 2"
                                                : "from 0 to 3");
    case Rule::k96:
      return "k96: for dense mxf4 and mxf4nvf4 on sm_103a only";
  }
  return {};
}

/// Which forms of tcgen05.mma have such a product: PTX's table of shapes.
struct Form {
  std::string_view name;
  int cta_group;
  bool is_ws;
};
constexpr Form kForms[] = {{"cta_group::1", 1, false}, {"cta_group::2", 2, false}, {".ws, cta_group::1", 1, true}};

bool has_shape(Tcgen05Kind kind, const Form& form, const InstructionDescriptor& d) {
  const bool is_integer = kind == Tcgen05Kind::i8, scaled = is_block_scaled(kind);
  if (form.is_ws)
    return !scaled && (d.m == 32 || d.m == 64 || d.m == 128) &&
           (d.n == 64 || d.n == 128 || (d.n == 256 && !d.is_sparse));
  if (form.cta_group == 2)
    return (d.m == 256 || (d.m == 128 && !(scaled && d.is_sparse))) && d.n % (is_integer ? 32 : 16) == 0 && d.n > 0;
  return (d.m == 128 || (d.m == 64 && !scaled)) && d.n % (is_integer && d.n > 32 ? 16 : 8) == 0 && d.n > 0;
}

std::string shapes_text(Tcgen05Kind kind, const Form& form, bool is_sparse) {
  const bool is_integer = kind == Tcgen05Kind::i8, scaled = is_block_scaled(kind);
  if (form.is_ws)
    return scaled ? "" : fmt::format("{}: M = 32, 64, 128 with N = 64, 128{}", form.name, is_sparse ? "" : ", 256");
  if (form.cta_group == 2)
    return fmt::format("{}: M = {}256 with N = multiples of {} to 256", form.name, scaled && is_sparse ? "" : "128, ",
                       is_integer ? 32 : 16);
  return fmt::format("{}: M = {}128 with N = {}", form.name, scaled ? "" : "64, ",
                     is_integer ? "8, 16, 24, 32, then multiples of 16 to 256" : "multiples of 8 to 256");
}

/// The forms that were asked about: all, unless --cta-group or --ws says which.
std::vector<Form> forms_of(const LayoutArguments& arguments) {
  const bool is_ws = arguments.has("ws");
  const std::int64_t group = arguments.number("cta-group", is_ws ? 1 : 0, 1, 2);
  if (is_ws && group == 2) throw Error(ErrorKind::usage, "--cta-group = 2: .ws is a form of cta_group::1");
  std::vector<Form> forms;
  for (const Form& form : kForms)
    if ((!is_ws || form.is_ws) && (group == 0 || (form.cta_group == group && (is_ws || !form.is_ws))))
      forms.push_back(form);
  return forms;
}

/// What no single field shows: fields that do not go together.
std::vector<std::string> faults_of(Tcgen05Kind kind, const InstructionDescriptor& d, const std::vector<Form>& forms) {
  std::vector<std::string> faults;
  if (std::none_of(forms.begin(), forms.end(), [&](const Form& form) { return has_shape(kind, form, d); })) {
    std::vector<std::string> legal;
    for (const Form& form : forms)
      if (const std::string text = shapes_text(kind, form, d.is_sparse); !text.empty()) legal.push_back(text);
    faults.push_back(legal.empty() ? fmt::format("kind {} has no .ws form", kKinds[static_cast<std::size_t>(kind)])
                                   : fmt::format("m = {} with n = {}: kind {}{} has {}", d.m, d.n,
                                                 kKinds[static_cast<std::size_t>(kind)], d.is_sparse ? ", sparse," : "",
                                                 fmt::join(legal, "; ")));
  }
  const auto is_narrow = [](Tcgen05Type type) {
    return type == Tcgen05Type::e2m1 || type == Tcgen05Type::e2m3 || type == Tcgen05Type::e3m2;
  };
  if ((d.is_a_mn_major && is_narrow(d.a)) || (d.is_b_mn_major && is_narrow(d.b)))
    faults.push_back("4- and 6-bit elements must be K-major");
  if (kind == Tcgen05Kind::f16 && d.d == layout::Tcgen05Result::f16 &&
      (d.a != Tcgen05Type::f16 || d.b != Tcgen05Type::f16))
    faults.push_back("type_d = f16: bf16 operands accumulate in f32");
  if (!d.is_sparse && d.sparsity_selector != 0)
    faults.push_back(fmt::format("sparsity_selector = {}: must be 0 for a dense product", d.sparsity_selector));
  if (d.max_shift != 0 && std::none_of(forms.begin(), forms.end(),
                                       [&](const Form& form) { return form.is_ws && has_shape(kind, form, d); }))
    faults.push_back(
        fmt::format("max_shift = {}: only .ws has one, and no .ws has m = {} with n = {}", d.max_shift, d.m, d.n));
  return faults;
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
  if (is_block_scaled(kind)) d.scales_are_ue8m0 = arguments.word("scale-type", {"ue8m0", "ue4m3"}, 0) == 0;
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

void add_notes(LayoutPage& page, Tcgen05Kind kind, const InstructionDescriptor& d, const std::vector<Form>& forms) {
  std::vector<std::string_view> names;
  for (const Form& form : forms)
    if (has_shape(kind, form, d)) names.push_back(form.name);
  if (!names.empty()) page.facts.emplace_back("forms with this shape", fmt::format("{}", fmt::join(names, "; ")));
  if (d.m == 128 && d.n % 16 != 0)
    page.notes.push_back(
        "M = 128 with an N that no 16 divides: the manual's "
        "table lists it, libraries insist on multiples of 16");
  if (kind == Tcgen05Kind::mxf4nvf4)
    page.notes.push_back(d.scales_are_ue8m0 ? "ue8m0 scales go with blocks of 32 (.block32, .scale_vec::2X) or "
                                              "of 16"
                                            : "ue4m3 scales go with blocks of 16: .block16, .scale_vec::4X");
  page.notes.push_back("from the manual and public libraries; no Blackwell device was asked");
}

}  // namespace

LayoutPage layout_instruction_descriptor(const LayoutArguments& arguments) {
  const auto kind = static_cast<Tcgen05Kind>(arguments.subject_word(kKinds));
  LayoutPage page;
  page.title = fmt::format("instruction descriptor of tcgen05.mma, kind::{}", arguments.subject);
  InstructionDescriptor d;
  unsigned bits = 0;
  const std::vector<Form> forms = forms_of(arguments);
  if (arguments.argument.empty()) {
    d = fields_of(kind, arguments);
    const auto verdict = why_invalid(kind, d);
    if (!verdict.ok()) throw Error(ErrorKind::usage, rule_text(kind, verdict, d));
    if (const auto faults = faults_of(kind, d, forms); !faults.empty()) throw Error(ErrorKind::usage, faults.front());
    bits = encode_instruction_descriptor(kind, d);
  } else {
    for (const auto& given : arguments.values)
      if (given.first != "cta-group" && given.first != "ws")
        throw Error(ErrorKind::usage, fmt::format("--{}: the value {} says it; give fields or bits, not both",
                                                  given.first, arguments.argument));
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
    if (page.mistakes.empty()) page.mistakes = faults_of(kind, d, forms);
  }
  add_fields(page, kind, d, bits);
  add_notes(page, kind, d, forms);
  return page;
}

}  // namespace tessera::cli
