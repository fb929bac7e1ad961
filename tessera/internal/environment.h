// The environment, for those who may ask it: read in options.cpp alone.
#pragma once

#include <string_view>

namespace tessera {

/// Empty where the variable is not set.
std::string_view environment_variable(const char* name);

}  // namespace tessera
