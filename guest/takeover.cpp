// Takes over a statically linked CUDA runtime: nvcc's default. Each function of the runtime that the program, or a
// library of the process, has inside is overwritten with a jump to ours of the same name, so that a static and a shared
// runtime are the same here. loaded.cpp says when: before any code of the object runs.
//
// Why not serve the real one from a driver of ours: it asks cuGetExportTable for tables without documentation, whose
// contents change from release to release, before its first call succeeds. The names of its functions do not change,
// they are a documented interface, and they stand in the object's own table of symbols, unless it was stripped (-s):
// then there is nothing to find, and this is said. Machine code is written for x86-64 and AArch64.
#include "guest/takeover.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <span>
#include <string_view>
#include <unordered_map>

namespace tessera::guest {
namespace {

/// A file, as it is, in memory.
class MappedFile {
 public:
  explicit MappedFile(const char* path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts {};
    if (file >= 0 && fstat(file, &facts) == 0) {
      bytes_ = static_cast<std::size_t>(facts.st_size);
      data_ = mmap(nullptr, bytes_, PROT_READ, MAP_PRIVATE, file, 0);
    }
    if (file >= 0) close(file);
  }
  ~MappedFile() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Empty where the file ends before.
  template <class T>
  std::span<const T> at(std::uint64_t offset, std::uint64_t count) const {
    if (data_ == MAP_FAILED || offset > bytes_ || count > (bytes_ - offset) / sizeof(T)) return {};
    return {reinterpret_cast<const T*>(static_cast<const char*>(data_) + offset), count};
  }
  /// Empty for a file that is no ELF file of 64 bits.
  std::span<const Elf64_Shdr> sections() const {
    const auto headers = at<Elf64_Ehdr>(0, 1);
    if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0) return {};
    if (headers[0].e_ident[EI_CLASS] != ELFCLASS64) return {};
    return at<Elf64_Shdr>(headers[0].e_shoff, headers[0].e_shnum);
  }
  bool has_name(const Elf64_Shdr& section, std::string_view name) const {
    const auto headers = at<Elf64_Ehdr>(0, 1);
    if (headers[0].e_shstrndx >= sections().size()) return false;
    const auto text = at<char>(sections()[headers[0].e_shstrndx].sh_offset + section.sh_name, name.size() + 1);
    return !text.empty() && std::string_view(text.data(), name.size()) == name && text[name.size()] == '\0';
  }

 private:
  void* data_ = MAP_FAILED;
  std::size_t bytes_ = 0;
};

// Jumps to the address that stands behind them.
#if defined(__x86_64__)
constexpr std::uint8_t kJump[] = {0xFF, 0x25, 0, 0, 0, 0};  // jmp [rip + 0]
#else
constexpr std::uint8_t kJump[] = {0x50, 0, 0, 0x58, 0, 0x02, 0x1F, 0xD6};  // ldr x16, 8; br x16
#endif
static_assert(sizeof(kJump) + 8 <= kJumpBytes);

using Functions = std::unordered_map<std::string_view, std::uint64_t>;

// Of all that this library exports. By its own file: the linker's functions would leave their word to dlerror().
const Functions& functions_of_ours(const char* path, std::uint64_t base) {
  static const auto* const all = [&] {
    static const auto* const file = new MappedFile(path);
    auto* const found = new Functions;
    const auto sections = file->sections();
    for (const Elf64_Shdr& section : sections) {
      if (section.sh_type != SHT_DYNSYM || section.sh_link >= sections.size()) continue;
      const Elf64_Shdr& names = sections[section.sh_link];
      const auto text = file->at<char>(names.sh_offset, names.sh_size);
      for (const Elf64_Sym& symbol : file->at<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym)))
        if (symbol.st_shndx != SHN_UNDEF && symbol.st_name < text.size())
          (*found)[text.data() + symbol.st_name] = base + symbol.st_value;
    }
    return found;
  }();
  return *all;
}

bool has_text(std::span<const char> text, std::string_view part) {
  return memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

bool is_name_of_cuda(const char* name) {
  return std::strncmp(name, "cuda", 4) == 0 || std::strncmp(name, "__cuda", 6) == 0;
}

}  // namespace

void redirect(std::uint64_t function, const void* ours) {
  const auto page = static_cast<std::uint64_t>(getpagesize());
  const std::uint64_t first = function / page * page, bytes = (function + kJumpBytes - first + page - 1) / page * page;
  void* const pages = reinterpret_cast<void*>(first);  // NOLINT: an address
  if (mprotect(pages, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return;
  auto* const to = reinterpret_cast<std::uint8_t*>(function);  // NOLINT: an address
  std::memcpy(to, kJump, sizeof(kJump));
  std::memcpy(to + sizeof(kJump), &ours, sizeof(ours));
  mprotect(pages, bytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(reinterpret_cast<char*>(to), reinterpret_cast<char*>(to) + kJumpBytes);
}

ObjectFacts take_over(const char* path, std::uint64_t base, const char* our_path, std::uint64_t our_base) {
  ObjectFacts facts;
  const MappedFile file(path);
  const auto sections = file.sections();
  for (const Elf64_Shdr& section : sections) {
    facts.has_device_code = facts.has_device_code || file.has_name(section, ".nv_fatbin");
    const bool is_dynamic = section.sh_type == SHT_DYNSYM;
    if ((section.sh_type != SHT_SYMTAB && !is_dynamic) || section.sh_link >= sections.size()) continue;
    const Elf64_Shdr& names = sections[section.sh_link];
    const auto text = file.at<char>(names.sh_offset, names.sh_size);
    if (text.empty() || text.back() != '\0' || !has_text(text, "cuda")) continue;
    // The shared runtime's name, or a function of 12 alone.
    if (has_text(text, "libcudart.so.12") || has_text(text, "cudaGetDeviceProperties_v2")) facts.cuda = 12;
    if (has_text(text, "libcudart.so.13")) facts.cuda = 13;
    for (const Elf64_Sym& symbol : file.at<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym))) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_name >= text.size()) continue;
      const char* const name = text.data() + symbol.st_name;
      if (!is_name_of_cuda(name)) continue;
      if (symbol.st_shndx == SHN_UNDEF || symbol.st_value == 0) {
        facts.asks_by_linker = facts.asks_by_linker || is_dynamic;
        continue;
      }
      const Functions& ours = functions_of_ours(our_path, our_base);
      const auto function = ours.find(name);
      if (function == ours.end()) continue;
      redirect(base + symbol.st_value, reinterpret_cast<const void*>(function->second));  // NOLINT: an address
      ++facts.taken;
    }
  }
  if (facts.taken != 0 && facts.cuda == 0) facts.cuda = 13;
  return facts;
}

}  // namespace tessera::guest
