// Libraries of NVIDIA's whose device code is machine code: what the emulator cannot run.
#pragma once

namespace tessera::guest {

/// Says once of the library that has the address, where it is one of them, that what it launches fails. For functions
/// that such a library's own runtime begins with; a program may have loaded it and never call it.
void tell_library(const void* address);

/// Whether the file of this path is one of them.
bool is_machine_code_only(const char* path);

/// The same of all that the process has loaded: for a process that ends badly.
void tell_loaded_libraries();

}  // namespace tessera::guest
