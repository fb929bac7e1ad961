// Fat binaries: plain, by LZ4 and by Zstandard, what a device takes of several, damage. What nvcc itself writes is read
// in tests/guest/run.
#include "guest/fat_binary.h"

#include <doctest/doctest.h>
#include <zstd.h>

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/emulator/gpu_limits.h"
#include "tessera/error.h"

namespace tessera::guest {
namespace {

std::string ptx_for(const std::string& target) {
  return "\n.version 9.0\n.target " + target + "\n.address_size 64\n.visible .entry k()\n{\n ret;\n}\n";
}

template <class T>
void put(std::string& bytes, std::size_t at, T value) {
  bytes.replace(at, sizeof(T), reinterpret_cast<const char*>(&value), sizeof(T));
}

std::string entry(std::uint16_t kind, std::uint32_t arch, const std::string& payload, std::uint64_t flags = 0,
                  std::uint64_t text_bytes = 0) {
  std::string header(64, '\0');
  const std::string padded = payload + std::string((8 - payload.size() % 8) % 8, '\0');
  put(header, 0, kind);
  put(header, 4, std::uint32_t{64});
  put(header, 8, std::uint64_t{padded.size()});
  put(header, 16, static_cast<std::uint32_t>(flags == 0 ? 0 : payload.size()));
  put(header, 28, arch);
  put(header, 40, flags);
  put(header, 56, text_bytes);
  return header + padded;
}

std::string fat(const std::string& entries) {
  std::string header(16, '\0');
  put(header, 0, std::uint32_t{0xBA55ED50});
  put(header, 4, std::uint16_t{1});
  put(header, 6, std::uint16_t{16});
  put(header, 8, std::uint64_t{entries.size()});
  return header + entries;
}

std::string zstd(const std::string& text) {
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 3));
  return packed;
}

/// The simplest block: literals alone.
std::string lz4_literals(const std::string& text) {
  std::string block(1, static_cast<char>(std::min<std::size_t>(text.size(), 15) << 4));
  if (text.size() >= 15) {
    std::size_t rest = text.size() - 15;
    for (; rest >= 255; rest -= 255) block += '\xFF';
    block += static_cast<char>(rest);
  }
  return block + text;
}

/// A cubin with a count of registers for each kernel: null section, names, symbols, .nv.info.
std::string cubin(const std::vector<std::pair<std::string, std::uint32_t>>& kernels) {
  std::string strings(1, '\0'), symbols(24, '\0'), info;
  for (const auto& [name, registers] : kernels) {
    std::string symbol(24, '\0'), attribute(12, '\0');
    put(symbol, 0, static_cast<std::uint32_t>(strings.size()));
    put(attribute, 0, std::uint16_t{0x2F04});
    put(attribute, 2, std::uint16_t{8});
    put(attribute, 4, static_cast<std::uint32_t>(symbols.size() / 24));
    put(attribute, 8, registers);
    strings += name + '\0';
    symbols += symbol;
    info += std::string("\x02\x01\0\0", 4) + attribute;  // another attribute, with no length
  }
  const auto name_of_info = static_cast<std::uint32_t>(strings.size());
  strings += std::string(".nv.info") + '\0';
  std::string elf(64, '\0'), headers(64, '\0');
  elf.replace(0, 5, "\177ELF\2");
  const auto add = [&](std::uint32_t name, std::uint32_t type, std::uint32_t link, const std::string& bytes) {
    std::string header(64, '\0');
    put(header, 0, name);
    put(header, 4, type);
    put(header, 24, std::uint64_t{elf.size()});
    put(header, 32, std::uint64_t{bytes.size()});
    put(header, 40, link);
    headers += header;
    elf += bytes;
  };
  add(0, 3, 0, strings);
  add(0, 2, 1, symbols);
  add(name_of_info, 0x70000000, 0, info);
  put(elf, 40, std::uint64_t{elf.size()});
  put(elf, 58, std::uint16_t{64});
  put(elf, 60, std::uint16_t{4});
  put(elf, 62, std::uint16_t{1});
  return elf + headers;
}

}  // namespace

TEST_CASE("registers of a thread, from machine code for the target") {
  using Registers = std::map<std::string, std::uint32_t>;
  const std::string one = cubin({{"small", 24}, {"large", 168}}), other = cubin({{"small", 40}});
  CHECK(registers_in_machine_code(one) == Registers{{"small", 24}, {"large", 168}});
  const std::string bytes =
      fat(entry(2, 80, other) + entry(1, 90, ptx_for("sm_90a")) + entry(2, 90, zstd(one), 0x8000, one.size()));
  CHECK(registers_in_fat_binary(bytes.data(), "sm_90a") == Registers{{"small", 24}, {"large", 168}});
  CHECK(registers_in_fat_binary(bytes.data(), "sm_80") == Registers{{"small", 40}});
  CHECK(registers_in_fat_binary(bytes.data(), "sm_9").empty());
  CHECK(registers_in_machine_code("\177ELF....").empty());
  for (std::size_t bytes_left = 0; bytes_left < one.size(); ++bytes_left)  // cut short: no more than nothing
    CHECK(registers_in_machine_code(one.substr(0, bytes_left)).size() <= 2);
}

TEST_CASE("PTX of every kind of entry, and the targets of machine code") {
  const std::string text = ptx_for("sm_90a");
  const std::string bytes = fat(entry(1, 80, ptx_for("sm_80")) + entry(1, 90, zstd(text), 0x8000, text.size()) +
                                entry(2, 75, "\177ELF....") + entry(1, 90, lz4_literals(text), 0x2000, text.size()));
  CHECK(is_fat_binary(bytes.data()));
  const FatBinary binary = read_fat_binary(bytes.data());
  CHECK(binary.ptx == std::vector<std::string>{ptx_for("sm_80"), text, text});
  CHECK(binary.machine_code == std::vector<std::string>{"sm_75"});
  CHECK(binary.problems.empty());
}

TEST_CASE("a device takes the highest target that runs there") {
  FatBinary binary;
  for (const char* target : {"sm_75", "sm_90", "sm_90a", "sm_100f", "sm_100a", "sm_120a"})
    binary.ptx.push_back(ptx_for(target));
  const auto chosen = [&](const char* arch) {
    const std::string* const ptx = choose_ptx(binary, arch);
    return ptx == nullptr ? "none" : target_of(*ptx);
  };
  CHECK(chosen("sm_80") == "sm_75");
  CHECK(chosen("sm_90a") == "sm_90a");
  CHECK(chosen("sm_103a") == "sm_100f");
  CHECK(chosen("sm_120a") == "sm_120a");
  CHECK(chosen("sm_121a") == "sm_90");
  binary.ptx = {ptx_for("sm_100a")};
  CHECK(chosen("sm_90a") == "none");
  CHECK(chosen("sm_103a") == "none");
}

TEST_CASE("matches of LZ4: near, overlapping, long") {
  // "abc" and a match of 20 from 3 back; then four literals.
  const std::string block(
      "\x3F"
      "abc"
      "\x03\x00\x01"
      "\x40"
      "wxyz",
      13);
  CHECK(decompress_lz4(block, 27) == "abcabcabcabcabcabcabcabwxyz");
  CHECK_THROWS_AS(decompress_lz4(std::string("\x3F"
                                             "abc"
                                             "\x04\x00\x01",
                                             7),
                                 27),
                  Error);  // before the text
  CHECK_THROWS_AS(decompress_lz4(std::string("\xF0", 1), 27), Error);
  CHECK_THROWS_AS(decompress_lz4(block, 10), Error);  // more than was announced
}

TEST_CASE("damage is an error or a text, never a read beyond the end") {
  std::mt19937 random(std::random_device{}());
  const std::string text = ptx_for("sm_90a"), packed = zstd(text);
  for (int i = 0; i < 2000; ++i) {
    std::string block = lz4_literals(text);
    block[random() % block.size()] = static_cast<char>(random());
    try {
      CHECK(decompress_lz4(block.substr(0, 1 + random() % block.size()), text.size()).size() <= text.size());
    } catch (const Error&) {
    }
  }
  const FatBinary cut =
      read_fat_binary(fat(entry(1, 90, packed.substr(0, packed.size() / 2), 0x8000, text.size())).data());
  CHECK(cut.ptx.empty());
  CHECK(cut.problems.size() == 1);
  CHECK_THROWS_AS(read_fat_binary("\177ELF and so on, no fat binary"), Error);
}

TEST_CASE("GPUs by their words and by targets") {
  using namespace emulator;
  CHECK(find_gpu("", "")->word == "H100");
  CHECK(find_gpu("rtx 5090", "")->arch == "sm_120a");
  CHECK(find_gpu("", "sm_103f")->word == "B300");
  CHECK(find_gpu("", "sm_121a")->word == "GB10");
  CHECK(find_gpu("V100", "") == nullptr);
  CHECK(find_gpu("", "sm_80") == nullptr);
  for (const Gpu& gpu : gpus()) {
    CHECK(gpu.smem_optin + 1024 == gpu.smem_per_sm);
    CHECK(find_gpu(gpu.word, "") == &gpu);
  }
}

}  // namespace tessera::guest
