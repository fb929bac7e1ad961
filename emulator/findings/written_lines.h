// Which instruction of this launch wrote each byte of global memory last; kept only where a kernel has ld.global.nc,
// tex or tld4.
//
// ld.global.nc reads through a path that stores of the same launch do not update (PTX ISA, "ld.global.nc": the memory
// must be read-only for the kernel's lifetime). The emulator has one memory, so the value is right here; on a GPU it
// may be the one from before.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>

namespace tessera::emulator {

struct Entry;

class WrittenLines {
 public:
  static constexpr std::uint16_t kNobody = 0;
  static constexpr std::uint16_t kCopy = 0xFFFF;     ///< an asynchronous operation
  static constexpr std::uint16_t kUnknown = 0xFFFE;  ///< an instruction too far down to have a number here

  static bool is_needed(const Entry& entry);
  static std::uint16_t writer(std::uint32_t pc) {
    return pc + 1 < kUnknown ? static_cast<std::uint16_t>(pc + 1) : kUnknown;
  }
  void note(std::uint64_t address, std::size_t bytes, std::uint16_t writer);
  /// Whether find() need be asked: kernels write next to none of what they read through this path.
  bool may_hold(std::uint64_t address, std::size_t bytes) const { return address < end_ && address + bytes > begin_; }
  /// The same of a longer range: whether a page of it has been written.
  bool may_hold_any(std::uint64_t address, std::size_t bytes);
  /// Who wrote the first written byte of these; kNobody: none is.
  std::uint16_t find(std::uint64_t address, std::size_t bytes);

 private:
  static constexpr std::uint64_t kPageBytes = 4096;
  using Page = std::array<std::uint16_t, kPageBytes>;
  Page* page(std::uint64_t number, bool makes);
  std::uint64_t begin_ = ~std::uint64_t{0};  // all that was written lies from here
  std::uint64_t end_ = 0;                    // to here
  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::uint64_t last_number_ = ~std::uint64_t{0};
  Page* last_ = nullptr;  // of the page that was looked at last
};

}  // namespace tessera::emulator
