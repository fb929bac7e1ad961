// The consumer's own.
#pragma once

inline const char* own_plan() { return "own plan"; }
