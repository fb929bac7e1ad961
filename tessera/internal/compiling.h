// Compiles that are under way on threads, so that an event function which asks for a kernel in the midst of one does
// not wait for ever: for itself, or for a thread that waits for it.
#pragma once

#include <string>

namespace tessera {

/// The calling thread compiles the kernel of this key, as long as it lives. Scopes nest.
class Compiling {
 public:
  explicit Compiling(const std::string& key);
  ~Compiling();
  Compiling(const Compiling&) = delete;
  Compiling& operator=(const Compiling&) = delete;

 private:
  std::string key_;
};

/// The calling thread may wait for the kernel of this key, as long as it lives. Costs nothing where the thread compiles
/// nothing. Throws Error{usage} with the kernel's name where that would be without end.
class Awaiting {
 public:
  Awaiting(const std::string& key, const std::string& kernel);
  ~Awaiting();
  Awaiting(const Awaiting&) = delete;
  Awaiting& operator=(const Awaiting&) = delete;

 private:
  bool is_noted_ = false;
};

}  // namespace tessera
