#include "runtime/replaced_imports.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

namespace tessera {

namespace {

#if defined(__x86_64__)
constexpr std::uint32_t kSlotTypes[] = {R_X86_64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_64};
#elif defined(__aarch64__)
constexpr std::uint32_t kSlotTypes[] = {R_AARCH64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_ABS64};
#else
constexpr std::uint32_t kSlotTypes[] = {0};  // R_*_NONE
#endif

struct Range {
  std::uintptr_t begin = 0, end = 0;
  bool has(std::uintptr_t address) const { return address >= begin && address < end; }
};

/// Where the library lies, and which part of it the loader made read-only after filling it.
struct Layout {
  std::uintptr_t base = 0;
  std::vector<Range> mapped, writable;
  Range read_only;
  bool is_found = false;
};

Layout layout_of(const link_map& library) {
  struct Search {
    const link_map& library;
    Layout layout;
  } search{library, {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& [wanted, layout] = *static_cast<Search*>(data);
        const auto dynamic = reinterpret_cast<std::uintptr_t>(wanted.l_ld);
        const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
        Layout one{.base = info->dlpi_addr, .mapped = {}, .writable = {}, .read_only = {}, .is_found = false};
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr, end = begin + header.p_memsz;
          if (header.p_type == PT_DYNAMIC && begin == dynamic) one.is_found = true;
          if (header.p_type == PT_LOAD) one.mapped.push_back({begin, end});
          if (header.p_type == PT_LOAD && (header.p_flags & PF_W) != 0) one.writable.push_back({begin, end});
          // The loader protects whole pages: the last one only where the part fills it.
          if (header.p_type == PT_GNU_RELRO) one.read_only = {begin / page * page, end / page * page};
        }
        if (!one.is_found) return 0;
        layout = std::move(one);
        return 1;
      },
      &search);
  return std::move(search.layout);
}

bool is_in(const std::vector<Range>& ranges, std::uintptr_t address) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) { return range.has(address); });
}

/// The tables that the dynamic section names.
struct Tables {
  const ElfW(Sym) * symbols = nullptr;
  const char* names = nullptr;
  std::span<const ElfW(Rela)> calls, data;
};

Tables tables_of(const link_map& library, const Layout& layout) {
  Tables tables;
  const ElfW(Rela)* calls = nullptr, *data = nullptr;
  std::size_t calls_bytes = 0, data_bytes = 0, relative = 0;
  for (const ElfW(Dyn)* entry = library.l_ld; entry->d_tag != DT_NULL; ++entry) {
    // Addresses, unless the loader left them as they are in the file.
    const std::uintptr_t value = entry->d_un.d_ptr;
    const std::uintptr_t address = is_in(layout.mapped, value) ? value : layout.base + value;
    if (entry->d_tag == DT_SYMTAB) tables.symbols = reinterpret_cast<const ElfW(Sym)*>(address);
    if (entry->d_tag == DT_STRTAB) tables.names = reinterpret_cast<const char*>(address);
    if (entry->d_tag == DT_JMPREL) calls = reinterpret_cast<const ElfW(Rela)*>(address);
    if (entry->d_tag == DT_PLTRELSZ) calls_bytes = value;
    if (entry->d_tag == DT_RELA) data = reinterpret_cast<const ElfW(Rela)*>(address);
    if (entry->d_tag == DT_RELASZ) data_bytes = value;
    if (entry->d_tag == DT_RELACOUNT) relative = value;  // so many come first, and name no symbol
  }
  if (calls != nullptr) tables.calls = {calls, calls_bytes / sizeof *calls};
  if (data != nullptr) tables.data = {data, data_bytes / sizeof *data};
  tables.data = tables.data.subspan(std::min(relative, tables.data.size()));
  return tables;
}

void* held_by(std::uintptr_t slot) { return __atomic_load_n(reinterpret_cast<void**>(slot), __ATOMIC_ACQUIRE); }

void store(std::uintptr_t slot, void* function) {
  __atomic_store_n(reinterpret_cast<void**>(slot), function, __ATOMIC_RELEASE);
}

/// Under the loader's lock: another copy of this code in the process may be at the same page.
bool store_in_read_only(std::uintptr_t slot, void* function) {
  struct Work {
    std::uintptr_t slot;
    void* function;
    bool is_done;
  } work{slot, function, false};
  dl_iterate_phdr(
      [](dl_phdr_info*, std::size_t, void* data) {
        Work& one = *static_cast<Work*>(data);
        const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void* const page = reinterpret_cast<void*>(one.slot / page_bytes * page_bytes);
        one.is_done = mprotect(page, page_bytes, PROT_READ | PROT_WRITE) == 0;
        if (!one.is_done) return 1;
        store(one.slot, one.function);
        mprotect(page, page_bytes, PROT_READ);
        return 1;
      },
      &work);
  return work.is_done;
}

bool fill(const Layout& layout, std::uintptr_t slot, void* function) {
  if (!is_in(layout.writable, slot)) return false;
  if (layout.read_only.has(slot)) return store_in_read_only(slot, function);
  store(slot, function);
  return true;
}

}  // namespace

std::vector<std::string_view> replace_imports(const link_map& library, std::span<const ReplacedImport> imports,
                                              std::vector<FilledSlot>* filled) {
  std::vector<std::string_view> replaced;
  const Layout layout = layout_of(library);
  if (!layout.is_found) return replaced;
  const Tables tables = tables_of(library, layout);
  if (tables.symbols == nullptr || tables.names == nullptr) return replaced;
  for (const std::span<const ElfW(Rela)> relocations : {tables.calls, tables.data}) {
    for (const ElfW(Rela) & relocation : relocations) {
      const auto type = static_cast<std::uint32_t>(ELF64_R_TYPE(relocation.r_info));
      const std::size_t symbol = ELF64_R_SYM(relocation.r_info);
      if (symbol == 0 || std::find(std::begin(kSlotTypes), std::end(kSlotTypes), type) == std::end(kSlotTypes))
        continue;
      const std::string_view name = tables.names + tables.symbols[symbol].st_name;
      for (const ReplacedImport& import : imports) {
        const std::uintptr_t slot = layout.base + relocation.r_offset;
        if (import.name != name || !is_in(layout.writable, slot)) continue;
        void* before = held_by(slot);
        if (!fill(layout, slot, import.function)) continue;
        if (filled != nullptr && before != import.function) {
          // What is there may be of another copy of this library, which may be unloaded first.
          if (void* const original = dlsym(RTLD_DEFAULT, import.name.data())) before = original;
          filled->push_back({slot, before, import.function});
        }
        if (std::find(replaced.begin(), replaced.end(), import.name) == replaced.end()) replaced.push_back(import.name);
      }
    }
  }
  return replaced;
}

void put_imports_back(const link_map& library, std::span<const FilledSlot> filled) {
  const Layout layout = layout_of(library);
  for (const FilledSlot& slot : filled)
    if (is_in(layout.writable, slot.at) && held_by(slot.at) == slot.function) fill(layout, slot.at, slot.before);
}

bool contains_address(const link_map& library, const void* address) {
  return is_in(layout_of(library).mapped, reinterpret_cast<std::uintptr_t>(address));
}

}  // namespace tessera
