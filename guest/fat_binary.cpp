#include "guest/fat_binary.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::guest {
namespace {

constexpr std::uint32_t kMagic = 0xBA55ED50;
constexpr std::uint16_t kPtx = 1, kMachineCode = 2;
constexpr std::uint64_t kLz4 = 0x2000, kZstd = 0x8000;  // bits of an entry's flags

template <class T>
T read(const char* at) {
  T value{};
  std::memcpy(&value, at, sizeof(value));
  return value;
}

struct Entry {
  std::uint16_t kind = 0;
  std::uint64_t header_bytes = 0, bytes = 0, compressed_bytes = 0, flags = 0, text_bytes = 0;
  std::uint32_t arch = 0;
  const char* data = nullptr;
};

Entry read_entry(const char* at) {
  Entry entry;
  entry.kind = read<std::uint16_t>(at);
  entry.header_bytes = read<std::uint32_t>(at + 4);
  entry.bytes = read<std::uint64_t>(at + 8);
  entry.compressed_bytes = read<std::uint32_t>(at + 16);
  entry.arch = read<std::uint32_t>(at + 28);
  entry.flags = read<std::uint64_t>(at + 40);
  entry.text_bytes = read<std::uint64_t>(at + 56);
  entry.data = at + entry.header_bytes;
  return entry;
}

std::string bytes_of(const Entry& entry) {
  std::string text;
  if ((entry.flags & kZstd) != 0) {
    text.resize(entry.text_bytes);
    const std::size_t got = ZSTD_decompress(text.data(), text.size(), entry.data, entry.compressed_bytes);
    if (ZSTD_isError(got) != 0)
      throw Error(ErrorKind::unsupported, fmt::format("PTX for sm_{}: {}", entry.arch, ZSTD_getErrorName(got)));
    text.resize(got);
  } else if ((entry.flags & kLz4) != 0) {
    text = decompress_lz4({entry.data, entry.compressed_bytes}, entry.text_bytes);
  } else {
    text.assign(entry.data, entry.bytes);
  }
  return text;
}

std::string text_of(const Entry& entry) {
  std::string text = bytes_of(entry);
  text.resize(std::strlen(text.c_str()));  // it ends with zeros
  return text;
}

/// The entries, until one is damaged.
std::vector<Entry> entries_of(const void* data, bool& is_damaged) {
  const auto* const start = static_cast<const char*>(data);
  const char* at = start + read<std::uint16_t>(start + 6);
  const char* const end = at + read<std::uint64_t>(start + 8);
  std::vector<Entry> entries;
  while (at < end) {
    const Entry entry = read_entry(at);
    is_damaged = entry.header_bytes < 64 || entry.bytes > static_cast<std::uint64_t>(end - at);
    if (is_damaged) break;
    at = entry.data + entry.bytes;
    entries.push_back(entry);
  }
  return entries;
}

}  // namespace

bool is_fat_binary(const void* data) noexcept { return read<std::uint32_t>(static_cast<const char*>(data)) == kMagic; }

FatBinary read_fat_binary(const void* data) {
  if (!is_fat_binary(data)) throw Error(ErrorKind::unsupported, "device code that is no fat binary");
  FatBinary binary;
  bool is_damaged = false;
  for (const Entry& entry : entries_of(data, is_damaged)) {
    if (entry.kind == kMachineCode) binary.machine_code.push_back(fmt::format("sm_{}", entry.arch));
    if (entry.kind != kPtx) continue;
    try {
      binary.ptx.push_back(text_of(entry));
    } catch (const Error& error) {
      binary.problems.push_back(error.what());
    }
  }
  if (is_damaged) binary.problems.push_back("an entry of the fat binary is damaged");
  return binary;
}

std::map<std::string, std::uint32_t> registers_in_fat_binary(const void* data, std::string_view target) {
  std::map<std::string, std::uint32_t> registers;
  bool is_damaged = false;
  for (const Entry& entry : entries_of(data, is_damaged)) {
    const std::string name = fmt::format("sm_{}", entry.arch);
    // The number alone, without the suffix of the target.
    if (entry.kind != kMachineCode || !target.starts_with(name) || target.size() > name.size() + 1) continue;
    try {
      registers.merge(registers_in_machine_code(bytes_of(entry)));
    } catch (const Error&) {  // they are left unknown
    }
  }
  return registers;
}

// Section .nv.info: attributes of a byte each for form and name, then two bytes of length and what they say. A count of
// registers says for which symbol it is.
std::map<std::string, std::uint32_t> registers_in_machine_code(std::string_view elf) {
  constexpr std::uint64_t kHeaderBytes = 64, kSymbolBytes = 24;
  constexpr std::uint32_t kSymbols = 2;
  constexpr char kSized = 4, kRegisterCount = 0x2F;
  if (elf.size() < kHeaderBytes || !elf.starts_with("\177ELF\2")) return {};
  struct Section {
    std::uint32_t name = 0, type = 0, link = 0;
    std::string_view bytes{};
  };
  const auto part = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset <= elf.size() && bytes <= elf.size() - offset ? elf.substr(offset, bytes) : std::string_view();
  };
  const auto text_at = [](std::string_view strings, std::uint64_t offset) {
    return offset < strings.size() ? std::string(strings.substr(offset, strings.find('\0', offset) - offset)) : "";
  };
  const std::uint64_t table = read<std::uint64_t>(elf.data() + 40);
  const std::uint64_t section_bytes = read<std::uint16_t>(elf.data() + 58),
                      count = read<std::uint16_t>(elf.data() + 60);
  std::vector<Section> sections;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view header = part(table + i * section_bytes, kHeaderBytes);
    if (header.empty()) return {};
    Section section{read<std::uint32_t>(header.data()), read<std::uint32_t>(header.data() + 4),
                    read<std::uint32_t>(header.data() + 40)};
    section.bytes = part(read<std::uint64_t>(header.data() + 24), read<std::uint64_t>(header.data() + 32));
    sections.push_back(section);
  }
  const std::size_t names = read<std::uint16_t>(elf.data() + 62);
  const auto symbols =
      std::find_if(sections.begin(), sections.end(), [](const Section& s) { return s.type == kSymbols; });
  if (names >= sections.size() || symbols == sections.end() || symbols->link >= sections.size()) return {};
  std::map<std::string, std::uint32_t> registers;
  for (const Section& section : sections) {
    if (text_at(sections[names].bytes, section.name) != ".nv.info") continue;
    for (std::string_view info = section.bytes; info.size() >= 4;) {
      const std::size_t length = info[0] == kSized ? read<std::uint16_t>(info.data() + 2) : 0;
      if (length > info.size() - 4) break;
      if (info[0] == kSized && info[1] == kRegisterCount && length >= 8) {
        const std::uint64_t symbol = read<std::uint32_t>(info.data() + 4) * kSymbolBytes;
        if (symbol + 4 <= symbols->bytes.size())
          registers[text_at(sections[symbols->link].bytes, read<std::uint32_t>(symbols->bytes.data() + symbol))] =
              read<std::uint32_t>(info.data() + 8);
      }
      info.remove_prefix(4 + length);
    }
  }
  return registers;
}

std::string target_of(std::string_view ptx) {
  const std::size_t at = ptx.find("\n.target");
  if (at == std::string_view::npos) return "";
  const std::size_t first = ptx.find_first_not_of(" \t", at + 8);
  return std::string(ptx.substr(first, ptx.find_first_of(" ,\t\r\n", first) - first));
}

const std::string* choose_ptx(const FatBinary& binary, std::string_view arch) {
  const std::optional<Arch> device = parse_arch(arch);
  const std::string* best = nullptr;
  int best_number = -1;
  for (const std::string& ptx : binary.ptx) {
    const std::optional<Arch> target = parse_arch(target_of(ptx));
    if (!target || !device) continue;
    // Text without a suffix runs on all later devices, unlike machine code; with one as machine code does.
    const bool runs = target->suffix == 0 ? target->number <= device->number
                                          : runs_on(*target, device->compute_major(), device->compute_minor());
    const int number = 2 * target->number + (target->suffix != 0 ? 1 : 0);
    if (!runs || number <= best_number) continue;
    best = &ptx;
    best_number = number;
  }
  return best;
}

std::string decompress_lz4(std::string_view block, std::size_t bytes) {
  std::string text;
  text.reserve(bytes);
  std::size_t at = 0;
  const auto next = [&] {
    if (at >= block.size()) throw Error(ErrorKind::unsupported, "LZ4: the block ends early");
    return static_cast<std::uint8_t>(block[at++]);
  };
  const auto length = [&](std::size_t nibble) {
    std::size_t total = nibble;
    if (nibble == 15)
      for (std::uint8_t more = 255; more == 255;) total += more = next();
    return total;
  };
  while (at < block.size() && text.size() < bytes) {
    const std::uint8_t token = next();
    const std::size_t literals = length(token >> 4);
    if (literals > block.size() - at || literals > bytes - text.size())
      throw Error(ErrorKind::unsupported, "LZ4: literals beyond the end");
    text.append(block.substr(at, literals));
    at += literals;
    if (at >= block.size() || text.size() >= bytes) break;  // the last sequence has no match
    std::size_t distance = next();
    distance |= static_cast<std::size_t>(next()) << 8;
    const std::size_t match = length(token & 15) + 4;
    if (distance == 0 || distance > text.size() || match > bytes - text.size())
      throw Error(ErrorKind::unsupported, "LZ4: a match outside of the text");
    for (std::size_t i = 0; i < match; ++i) text.push_back(text[text.size() - distance]);
  }
  return text;
}

}  // namespace tessera::guest
