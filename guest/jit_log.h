// What just-in-time compiling says, in the buffers that a program gave for it: CU_JIT_ERROR_LOG_BUFFER and its like.
#pragma once

#include <cuda.h>

#include <cstddef>
#include <functional>
#include <string>

#include "guest/session.h"
#include "tessera/error.h"

namespace tessera::guest {

class JitLog {
 public:
  JitLog() = default;
  JitLog(unsigned count, const CUjit_option* options, void** values);

  void error(const tessera::Error& error);
  /// The program looks at errors.
  bool takes_errors() const { return error_.text != nullptr && error_.room != 0; }
  void info(const std::string& text);
  /// Sizes and the time, when all is said.
  void finish();

 private:
  struct Buffer {
    char* text = nullptr;
    std::size_t room = 0, used = 0;  ///< bytes, with the zero at the end
    void** size = nullptr;           ///< what the program's size is told in
    void add(const std::string& line);
  };
  Buffer error_, info_;
  void** time_ = nullptr;
  double began_ = 0;
};

/// For code that a program compiles or links at run time: what is wrong with it goes into the log. A program that gave
/// one sees to its errors; for others they are refusals, which the session counts.
cudaError_t with_log(JitLog& log, const char* function, const std::function<cudaError_t()>& work);

}  // namespace tessera::guest
