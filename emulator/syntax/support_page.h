// docs/ptx-support.md, written from the instruction table.
#pragma once

#include <string>

namespace tessera::emulator {

/// The whole page. tested: mnemonics that have a file under tests/ptx.
std::string support_page(const std::string& ptx_tests_folder);

}  // namespace tessera::emulator
