// libFuzzer: parser and validator. Any text either is refused with Error{compile}, or becomes a program whose every
// instruction has a handler and operands inside the register file.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "emulator/syntax/resolver.h"
#include "tessera/error.h"
#include "tests/fuzz/target.h"

TESSERA_FUZZ_TARGET(ptx_load)(const std::uint8_t* data, std::size_t size) {
  using namespace tessera::emulator;
  std::unique_ptr<Program> program;
  std::uint64_t next = 0x1000;
  try {
    program =
        load_program({reinterpret_cast<const char*>(data), size}, "fuzz.ptx", [&](const ModuleVariable& variable) {
          const std::uint64_t address = next;
          next += (variable.bytes + 511) / 512 * 512;
          return address;
        });
  } catch (const tessera::Error& error) {
    if (error.kind() != tessera::ErrorKind::compile && error.kind() != tessera::ErrorKind::unsupported) std::abort();
    return 0;
  }
  for (const Entry& entry : program->entries) {
    for (const Instruction& in : entry.code) {
      if (in.run == nullptr) std::abort();
      for (int i = 0; i < in.num_operands; ++i) {
        const Operand& op = in.op[i];
        if (op.kind == Operand::Kind::reg && !op.is_sink &&
            op.offset + std::size_t{op.bytes} * kLanes > entry.register_file_bytes)
          std::abort();
        if (op.kind == Operand::Kind::label && static_cast<std::uint64_t>(op.value) > entry.code.size()) std::abort();
      }
    }
  }
  return 0;
}
