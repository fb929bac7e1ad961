// The instruction table, joined from its families in the order of the support page.
#include "emulator/syntax/isa_table.h"

#include <vector>

namespace tessera::emulator {

std::span<const Form> isa() noexcept {
  static const std::vector<Form> forms = [] {
    std::vector<Form> all;
    for (const std::span<const Form> family : {arithmetic_forms(), memory_forms(), texture_forms(), control_forms(),
                                               async_forms(), matrix_forms(), wmma_forms(), tensor_forms()})
      all.insert(all.end(), family.begin(), family.end());
    return all;
  }();
  return forms;
}

}  // namespace tessera::emulator
