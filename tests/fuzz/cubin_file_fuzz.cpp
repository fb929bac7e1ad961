// libFuzzer: any bytes as a cubin. Either they are refused, or what is read holds no more than the file has; what is
// written of it, where that is not refused, can be read, and is written the same again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include "runtime/cubin_file.h"
#include "tests/fuzz/target.h"

TESSERA_FUZZ_TARGET(cubin_file)(const std::uint8_t* data, std::size_t size) {
  const auto file = tessera::CubinFile::read(std::as_bytes(std::span(data, size)));
  if (!file) return 0;
  std::size_t bytes = 0;
  for (const tessera::CubinSection& section : file->sections()) bytes += section.data.size();
  if (bytes > size) std::abort();
  const std::optional<std::vector<std::byte>> written = file->write();
  if (!written) return 0;
  const auto again = tessera::CubinFile::read(*written);
  if (!again || again->sections().size() != file->sections().size()) std::abort();
  for (std::size_t i = 0; i < file->sections().size(); ++i)
    if (again->sections()[i].data != file->sections()[i].data) std::abort();
  if (again->write() != written) std::abort();
  return 0;
}
