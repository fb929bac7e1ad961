// What is known of the program that this library is in, and of the libraries that it has loaded.
#pragma once

namespace tessera::guest {

/// It was built against the runtime of CUDA 12 (else 13).
bool is_program_of_cuda_12();

/// The caller's runtime asks the driver for what is not served here: says so of the program or the library, by name,
/// unless it is a part of NVIDIA's that does without the answer.
void tell_untaken(const void* address);

}  // namespace tessera::guest
