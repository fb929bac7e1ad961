// What of a cache folder could not be looked into: what a command says about the folder is incomplete then.
#pragma once

#include <string>

namespace tessera {

struct CacheFault {
  std::string path{};
  std::string reason{};     ///< "Permission denied", "does not exist"
  bool is_missing = false;  ///< there is no such cache folder

  std::string to_string() const { return "cache folder " + path + ": " + reason; }
};

}  // namespace tessera
