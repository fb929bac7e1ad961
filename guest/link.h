// Device code of several objects (-rdc=true) as one PTX text, since PTX is what the emulator runs and nvlink joins
// machine code alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::guest {

/// One definition of each name that modules share; what is a module's own gets another name where two have it. Throws
/// Error{compile} where a name is defined twice.
std::string link_ptx(const std::vector<std::string_view>& modules);

/// Names that the text asks of others and that the emulator does not have either.
std::vector<std::string> unresolved(std::string_view ptx);

}  // namespace tessera::guest
