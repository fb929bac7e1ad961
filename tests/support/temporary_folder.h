// A folder of its own for a test, removed with all that is in it when the object goes.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

namespace tessera::testing {

class TemporaryFolder {
 public:
  /// memory: where the system has such a folder, for tests that sync some ten thousand times.
  enum class Place { disk, memory };
  explicit TemporaryFolder(Place place = Place::disk) : path(make(place)) {}
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const std::string& name) const { return path / name; }

  const std::filesystem::path path;

 private:
  static std::filesystem::path make(Place place) {
    const bool is_memory = place == Place::memory && ::access("/dev/shm", R_OK | W_OK | X_OK) == 0;
    const std::filesystem::path parent = is_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "tessera-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder can be made below " + parent.string());
    return name;
  }
};

}  // namespace tessera::testing
