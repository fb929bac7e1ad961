#include "tessera/emulator/gpu_limits.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace tessera::emulator {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30, kMiB = std::int64_t{1} << 20;
constexpr int kKiB = 1024;

constexpr Gpu kGpus[] = {
    {"H100", "NVIDIA H100 80GB HBM3", "sm_90a", 132, 80 * kGiB, 50 * kMiB, 228 * kKiB, 227 * kKiB, 2048, 32, 1980000,
     2619000, 5120, false},
    {"H200", "NVIDIA H200", "sm_90a", 132, 141 * kGiB, 50 * kMiB, 228 * kKiB, 227 * kKiB, 2048, 32, 1980000, 3201000,
     6144, false},
    {"B200", "NVIDIA B200", "sm_100a", 148, 180 * kGiB, 126 * kMiB, 228 * kKiB, 227 * kKiB, 2048, 32, 1965000, 3996000,
     7680, false},
    {"B300", "NVIDIA B300", "sm_103a", 148, 268 * kGiB, 126 * kMiB, 228 * kKiB, 227 * kKiB, 2048, 32, 2032000, 3996000,
     7680, false},
    {"RTX5090", "NVIDIA GeForce RTX 5090", "sm_120a", 170, 32 * kGiB, 96 * kMiB, 100 * kKiB, 99 * kKiB, 1536, 24,
     2407000, 14001000, 512, false},
    {"GB10", "NVIDIA GB10", "sm_121a", 48, 120 * kGiB, 24 * kMiB, 100 * kKiB, 99 * kKiB, 1536, 24, 2418000, 8533000,
     256, true},
};

/// Without spaces, in capitals: "RTX 5090" and "rtx5090" are one.
std::string plain(std::string_view word) {
  std::string text;
  for (const char c : word)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      text += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string_view number_of(std::string_view arch) {
  const std::size_t end = arch.find_last_of("0123456789");
  return end == std::string_view::npos ? arch : arch.substr(0, end + 1);
}

}  // namespace

std::span<const Gpu> gpus() noexcept { return kGpus; }

const Gpu* find_gpu(std::string_view word, std::string_view arch) noexcept {
  for (const Gpu& gpu : kGpus)
    if (!word.empty() ? plain(word) == plain(gpu.word) : number_of(arch) == number_of(gpu.arch)) return &gpu;
  return word.empty() && arch.empty() ? &kGpus[0] : nullptr;
}

std::string contradiction(std::string_view word, std::string_view arch) {
  const Gpu* const gpu = find_gpu(word, arch);
  std::string known;
  for (const Gpu& one : kGpus) known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", one.word, one.arch);
  if (gpu == nullptr && !word.empty()) return fmt::format("--gpu {}: there are {}", word, known);
  if (gpu == nullptr) return fmt::format("--arch {}: no GPU that is known runs it; there are {}", arch, known);
  if (!arch.empty() && number_of(arch) != number_of(gpu->arch))
    return fmt::format("--gpu {} runs code for {}, not for --arch {}: name one of them; there are {}", gpu->word,
                       gpu->arch, arch, known);
  return "";
}

}  // namespace tessera::emulator
