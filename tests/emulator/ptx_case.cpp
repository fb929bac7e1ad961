#include "tests/emulator/ptx_case.h"

#include <fmt/format.h>

#include <bit>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace tessera::emulator::testing {
namespace {

std::uint64_t parse_value(const std::string& text) {
  if (text.back() == 'f' && text.find("0x") == std::string::npos)
    return std::bit_cast<std::uint32_t>(std::stof(text.substr(0, text.size() - 1)));
  if (text.back() == 'd' && text.find("0x") == std::string::npos)
    return std::bit_cast<std::uint64_t>(std::stod(text.substr(0, text.size() - 1)));
  if (text[0] == '-') return static_cast<std::uint64_t>(std::stoll(text));
  return std::stoull(text, nullptr, text.find("0x") == 0 ? 16 : 10);
}

std::uint64_t mask_of(const std::string& type) {
  const int bits = type == "pred" ? 1 : std::stoi(type.substr(1));
  return bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bits) - 1;
}

int bits_of(const std::string& type) { return type == "pred" ? 1 : std::stoi(type.substr(1)); }

void parse_row(PtxCase& test, std::istringstream& line) {
  std::vector<std::uint64_t> row;
  for (std::string word; line >> word;)
    if (word != "->") row.push_back(parse_value(word));
  if (row.size() != test.inputs.size() + test.outputs.size())
    throw std::runtime_error(test.path + ": a case has too few or too many values");
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] &= mask_of(i < test.inputs.size() ? test.inputs[i].type : test.outputs[i - test.inputs.size()].type);
  test.rows.push_back(std::move(row));
}

}  // namespace

PtxCase read_case(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  PtxCase test;
  test.path = path;
  for (std::string text; std::getline(file, text);) {
    std::istringstream line(text);
    std::string keyword;
    line >> keyword;
    if (keyword.empty() || keyword[0] == '#') continue;
    std::string rest;
    if (keyword == "op" || keyword == "reg") {
      std::getline(line >> std::ws, rest);
      (keyword == "op" ? test.instructions : test.declarations).push_back(rest);
    } else if (keyword == "in" || keyword == "out") {
      PtxCase::Slot slot;
      line >> slot.name >> slot.type;
      (keyword == "in" ? test.inputs : test.outputs).push_back(slot);
    } else if (keyword == "fixed") {
      test.is_fixed = true;
    } else if (keyword == "near") {
      line >> test.near;
    } else if (keyword == "hazard") {
      line >> test.hazard;
    } else if (keyword == "target") {
      line >> test.target;
    } else if (keyword == "smem") {
      line >> test.smem_bytes;
    } else if (keyword == "cluster") {
      line >> test.cluster;
    } else if (keyword == "case") {
      parse_row(test, line);
    } else {
      throw std::runtime_error(path + ": unknown keyword '" + keyword + "'");
    }
  }
  if (test.cluster == 0 || test.rows.size() % test.cluster != 0)
    throw std::runtime_error(path + ": the cases do not spread evenly over the cluster");
  if (test.rows.empty() || test.instructions.empty()) throw std::runtime_error(path + ": no case or no instruction");
  return test;
}

std::string PtxCase::kernel() const {
  std::string ptx = fmt::format(
      ".version 9.0\n.target {}\n.address_size 64\n.visible .entry test(.param .u64 in, .param .u64 out)\n{{\n"
      ".reg .b64 %in, %out, %offset;\n.reg .b32 %i, %cta;\n.shared .align 1024 .b8 scratch[{}];\n.reg .b32 %word;\n",
      target, smem_bytes);
  for (const auto* slots : {&inputs, &outputs})
    for (const Slot& slot : *slots) ptx += fmt::format(".reg .{} {};\n", slot.type, slot.name);
  for (const std::string& declaration : declarations) ptx += ".reg " + declaration + "\n";
  ptx += "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %i, %tid.x;\n";
  ptx += fmt::format("mov.u32 %cta, %ctaid.x;\nmad.lo.u32 %i, %cta, {}, %i;\n", rows.size() / cluster);
  ptx += fmt::format("mul.wide.u32 %offset, %i, {};\nadd.s64 %in, %in, %offset;\n", 8 * inputs.size());
  ptx += fmt::format("mul.wide.u32 %offset, %i, {};\nadd.s64 %out, %out, %offset;\n", 8 * outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Slot& slot = inputs[i];
    if (bits_of(slot.type) == 1)
      ptx += fmt::format("ld.global.b32 %word, [%in+{}];\nsetp.ne.b32 {}, %word, 0;\n", 8 * i, slot.name);
    else
      ptx += fmt::format("ld.global.b{} {}, [%in+{}];\n", bits_of(slot.type), slot.name, 8 * i);
  }
  for (const std::string& instruction : instructions) ptx += instruction + "\n";
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Slot& slot = outputs[i];
    if (bits_of(slot.type) == 1)
      ptx += fmt::format("selp.b32 %word, 1, 0, {};\nst.global.b32 [%out+{}], %word;\n", slot.name, 8 * i);
    else
      ptx += fmt::format("st.global.b{} [%out+{}], {};\n", bits_of(slot.type), 8 * i, slot.name);
  }
  return ptx + "ret;\n}\n";
}

}  // namespace tessera::emulator::testing
