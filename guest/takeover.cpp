// Takes over a statically linked CUDA runtime: nvcc's default. Before main, each function of the runtime that the
// program has inside is overwritten with a jump to ours of the same name, so that a static and a shared runtime are the
// same here.
//
// Why not serve the real one from a driver of ours: it asks cuGetExportTable for tables without documentation, whose
// contents change from release to release, before its first call succeeds. The names of its functions do not change,
// they are a documented interface, and they stand in the program's own table of symbols, unless it was stripped (-s):
// then there is nothing to find, and the program is told so. Machine code is written for x86-64 and AArch64.
#include "guest/takeover.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "guest/session.h"

namespace tessera::guest {
namespace {

bool is_of_cuda_12 = false;

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
constexpr std::size_t kPatchBytes = sizeof(kJump) + 8;

void redirect(std::uint64_t function, const void* ours) {
  const auto page = static_cast<std::uint64_t>(getpagesize());
  const std::uint64_t first = function / page * page, bytes = (function + kPatchBytes - first + page - 1) / page * page;
  void* const pages = reinterpret_cast<void*>(first);  // NOLINT: an address
  if (mprotect(pages, bytes, PROT_READ | PROT_WRITE | PROT_EXEC) != 0) return;
  auto* const to = reinterpret_cast<std::uint8_t*>(function);  // NOLINT: an address
  std::memcpy(to, kJump, sizeof(kJump));
  std::memcpy(to + sizeof(kJump), &ours, sizeof(ours));
  mprotect(pages, bytes, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(reinterpret_cast<char*>(to), reinterpret_cast<char*>(to) + kPatchBytes);
}

std::uint64_t load_address() {
  std::uint64_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        *static_cast<std::uint64_t*>(found) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

struct Findings {
  bool has_device_code = false, asks_by_linker = false;
  int taken = 0;
};

Findings take_over(const MappedFile& file, void* ours) {
  Findings findings;
  const auto headers = file.at<Elf64_Ehdr>(0, 1);
  if (headers.empty() || std::memcmp(headers[0].e_ident, ELFMAG, SELFMAG) != 0) return findings;
  const auto sections = file.at<Elf64_Shdr>(headers[0].e_shoff, headers[0].e_shnum);
  if (headers[0].e_shstrndx >= sections.size()) return findings;
  const Elf64_Shdr& names = sections[headers[0].e_shstrndx];
  const std::uint64_t base = headers[0].e_type == ET_DYN ? load_address() : 0;
  for (const Elf64_Shdr& section : sections) {
    const auto name = file.at<char>(names.sh_offset + section.sh_name, sizeof(".nv_fatbin"));
    if (!name.empty() && std::memcmp(name.data(), ".nv_fatbin", sizeof(".nv_fatbin")) == 0)
      findings.has_device_code = true;
    if (section.sh_type == SHT_STRTAB && !is_of_cuda_12) {  // the shared runtime's name, or a function of 12 alone
      const auto text = file.at<char>(section.sh_offset, section.sh_size);
      const std::string_view all(text.data(), text.size());
      is_of_cuda_12 = all.find("libcudart.so.12") != all.npos || all.find("cudaGetDeviceProperties_v2") != all.npos;
    }
    const bool is_dynamic = section.sh_type == SHT_DYNSYM;
    if ((section.sh_type != SHT_SYMTAB && !is_dynamic) || section.sh_link >= sections.size()) continue;
    const std::uint64_t texts = sections[section.sh_link].sh_offset;
    for (const Elf64_Sym& symbol : file.at<Elf64_Sym>(section.sh_offset, section.sh_size / sizeof(Elf64_Sym))) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
      const auto begin = file.at<char>(texts + symbol.st_name, 7);
      if (begin.empty() || (std::memcmp(begin.data(), "cuda", 4) != 0 && std::memcmp(begin.data(), "__cuda", 6) != 0))
        continue;
      if (is_dynamic) findings.asks_by_linker = true;
      if (is_dynamic || symbol.st_value == 0) continue;
      const void* const function = dlsym(ours, begin.data());
      if (function == nullptr) continue;
      redirect(base + symbol.st_value, function);
      ++findings.taken;
    }
  }
  return findings;
}

__attribute__((constructor)) void begin() {
  Dl_info self{};
  if (dladdr(reinterpret_cast<const void*>(&missing), &self) == 0) return;
  void* const ours = dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  if (ours == nullptr) return;
  const Findings findings = take_over(MappedFile("/proc/self/exe"), ours);
  if (!findings.has_device_code || findings.taken != 0 || findings.asks_by_linker) return;
  Session::instance().add_problem(
      "the program has a CUDA runtime inside and no table of symbols to find it by: link it without -s, do not strip "
      "it, "
      "or link with -cudart shared",
      true);
  _exit(3);  // its runtime would find no driver
}

}  // namespace

bool is_program_of_cuda_12() { return is_of_cuda_12; }

}  // namespace tessera::guest
