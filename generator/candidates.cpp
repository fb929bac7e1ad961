#include "generator/candidates.h"

namespace tessera {

std::string extents_text(const int* extents, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += 'x';
    text += std::to_string(extents[i]);
  }
  return text;
}

std::string grouped(long long value) {
  const std::string digits = std::to_string(value < 0 ? -value : value);
  std::string text = value < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted(long long count, std::string_view noun) {
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : "s");
}

void require_arch(std::string_view op, Arch arch, bool is_for_tcgen05_too) {
  if (arch == Arch{.number = 90, .suffix = 'a'}) return;
  throw Error(ErrorKind::unsupported,
              fmt::format("{} has no kernel for arch {}: there is one for sm_90a{}", op, arch.to_string(),
                          is_for_tcgen05_too ? ", and for sm_100 and sm_103 with suffix a or f" : ""));
}

void refuse_block_scale_arch(std::string_view op, Arch arch) {
  throw Error(ErrorKind::unsupported,
              fmt::format("{} has no kernel for arch {}: there is one for sm_90a, and for sm_100, sm_103, sm_120 and "
                          "sm_121 with suffix a or f",
                          op, arch.to_string()));
}

}  // namespace tessera
