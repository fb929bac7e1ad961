// The table is what the documents say, and its rows can be read.
#include "emulator/syntax/support_page.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>

#include "emulator/syntax/isa.h"

namespace tessera::emulator::support_page_test {
namespace {

TEST_CASE("docs/ptx-support.md is the table's") {
  std::ifstream file(TESSERA_SOURCE_DIR "/docs/ptx-support.md");
  std::ostringstream text;
  text << file.rdbuf();
  const bool is_current = text.str() == support_page(TESSERA_SOURCE_DIR "/tests/ptx");
  CHECK_MESSAGE(is_current, "run: emulator_support_page tests/ptx > docs/ptx-support.md");
}

// The first alternative of every type slot and every group that must be there.
std::string shortest_opcode(const Form& form) {
  std::string opcode(form.mnemonic);
  if (form.modifiers == "*") return opcode;
  std::istringstream groups{std::string(form.modifiers)};
  for (std::string group; groups >> group;) {
    if (group[0] == '[') continue;
    std::string word = group.substr(0, group.find('|'));
    if (const std::size_t hash = word.find('#'); hash != std::string::npos) word.replace(hash, 1, "64");
    opcode += "." + word;
  }
  std::istringstream slots{std::string(form.types)};
  for (std::string slot; slots >> slot;) opcode += "." + slot.substr(0, slot.find('|'));
  return opcode;
}

TEST_CASE("every row answers to its shortest opcode") {
  for (const Form& form : isa()) {
    const std::string opcode = shortest_opcode(form);
    CAPTURE(opcode);
    Decoded decoded;
    std::string problem;
    CHECK_MESSAGE(find_form(opcode, decoded, problem), problem);
    // Rows may overlap where the operands decide (add of integers and add.cc): the mnemonic is the same in any case.
    if (decoded.form != nullptr) CHECK(decoded.form->mnemonic == form.mnemonic);
    CHECK((form.bind != nullptr) == form.refusal.empty());
    CHECK(!form.section.empty());
  }
}

TEST_CASE("words that the table does not know") {
  Decoded decoded;
  std::string problem;
  CHECK(!find_form("frobnicate.b32", decoded, problem));
  CHECK(problem == "'frobnicate.b32' is not an instruction that the emulator knows");
  CHECK(!find_form("add.turbo.s32", decoded, problem));
  CHECK(problem == "'add.turbo.s32': the emulator knows no modifier '.turbo' of add");
  CHECK(!find_form("add.b32", decoded, problem));
  CHECK(problem == "'add.b32': the emulator has no form of add with this combination of modifiers and .b32");
  CHECK(!find_form("fma.f32", decoded, problem));
  CHECK(!find_form("add.rn.rz.f32", decoded, problem));
}

}  // namespace
}  // namespace tessera::emulator::support_page_test
