// What is known of the program that this library is in.
#pragma once

namespace tessera::guest {

/// It was built against the runtime of CUDA 12 (else 13).
bool is_program_of_cuda_12();

}  // namespace tessera::guest
