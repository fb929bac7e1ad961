// An image of several modules, as kernels that were compiled side by side are.
#include <doctest/doctest.h>

#include <string>

#include "emulator/syntax/resolver.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator::modules_test {
namespace {

/// A module with one kernel, of one instruction at the first line of `file` and one inlined from there.
std::string module(const std::string& kernel, const std::string& file) {
  return ".version 8.7\n.target sm_90a\n.address_size 64\n"
         ".extern .shared .align 16 .b8 memory[];\n"
         ".visible .entry " +
         kernel +
         "()\n{\n"
         "  .reg .b32 %r<3>;\n"
         "  .loc 1 1 1\n"
         "  mov.b32 %r1, 7;\n"
         "  .loc 2 5 1, function_name $L__info_string0, inlined_at 1 1 1\n"
         "  mov.b32 %r2, memory;\n"
         "  ret;\n"
         "}\n"
         ".file 1 \"" +
         file + "\"\n.file 2 \"inner of " + file + "\"\n";
}

std::unique_ptr<Program> load(const std::string& ptx) {
  return load_program(ptx, "test.ptx", [](const ModuleVariable&) { return std::uint64_t{0}; });
}

}  // namespace

TEST_CASE("modules one after the other: their kernels are found, each at its own lines") {
  const auto program = load(module("first", "a.cu") + "\n" + module("second", "b.cu") + "\n" + module("third", "c.cu"));
  REQUIRE(program->entries.size() == 3);
  const char* const files[] = {"a.cu", "b.cu", "c.cu"};
  for (std::size_t i = 0; i < 3; ++i) {
    const Entry& entry = program->entries[i];
    CAPTURE(entry.name);
    CHECK(entry.problems.empty());
    REQUIRE(entry.code.size() >= 2);
    CHECK(program->place_of(entry.code[0]) == std::string(files[i]) + ":1");
    CHECK(program->place_of(entry.code[1]) == "inner of " + std::string(files[i]) + ":5 from " + files[i] + ":1");
  }
}

TEST_CASE("modules one after the other: a kernel of both is defined twice") {
  CHECK_THROWS_AS(load(module("kernel", "a.cu") + "\n" + module("kernel", "b.cu")), Error);
}

TEST_CASE("an image with a merge has the kernels of both modules") {
  EmulatedDevice device(DeviceOptions{.arch = "sm_90a"});
  Image image;
  image.ptx = module("first", "a.cu");
  image.merge.ptx = module("second", "b.cu");
  const std::unique_ptr<LoadedImage> loaded = device.load(image);
  const EntryHandle first = loaded->entry("first"), second = loaded->entry("second");
  CHECK(first.handle != 0);
  CHECK(second.handle != 0);
  CHECK(first.handle != second.handle);
  CHECK(loaded->parameters(second).empty());
  CHECK_THROWS_AS(loaded->entry("third"), Error);
  // A merge whose PTX was not read.
  image.merge = {.ptx = {}, .cubin = {std::byte{1}}};
  CHECK_THROWS_AS(device.load(image), Error);
}

}  // namespace tessera::emulator::modules_test
