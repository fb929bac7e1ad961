// The consumer's own.
#pragma once

inline const char* own_error() { return "own error"; }
