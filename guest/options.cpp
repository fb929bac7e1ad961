#include "guest/options.h"

#include <cstdio>
#include <cstdlib>

namespace tessera::guest {
namespace {

std::string word(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::uint64_t number(const char* name, std::uint64_t otherwise) {
  const std::string text = word(name);
  if (text.empty()) return otherwise;
  char* end = nullptr;
  const unsigned long long value = std::strtoull(text.c_str(), &end, 10);
  if (*end == '\0') return value;
  std::fprintf(stderr, "tessera: %s = %s: must be a whole number\n", name, text.c_str());
  std::exit(2);
}

emulator::Schedule schedule_of(const char* name) {
  const std::string text = word(name);
  for (const emulator::Schedule value : emulator::kAllSchedules)
    if (text.empty() || text == emulator::to_string(value)) return value;
  std::fprintf(stderr, "tessera: %s = %s: is no schedule\n", name, text.c_str());
  std::exit(2);
}

}  // namespace

Options Options::from_environment() {
  Options options;
  options.gpu = word("TESSERA_EMULATE_GPU");
  options.arch = word("TESSERA_EMULATE_ARCH");
  options.schedule = schedule_of("TESSERA_EMULATE_SCHEDULE");
  options.seed = number("TESSERA_EMULATE_SEED", options.seed);
  options.num_sms = static_cast<int>(number("TESSERA_EMULATE_SMS", 0));
  options.threads = static_cast<int>(number("TESSERA_EMULATE_CPU_THREADS", 0));
  options.max_warp_instructions = number("TESSERA_EMULATE_MAX_INSTRUCTIONS", options.max_warp_instructions);
  options.max_seconds = static_cast<double>(number("TESSERA_EMULATE_MAX_SECONDS", 600));
  options.is_strict = number("TESSERA_EMULATE_STRICT", 0) != 0;
  options.detects_races = options.is_strict || number("TESSERA_EMULATE_RACES", 0) != 0;
  options.tears_vectors = number("TESSERA_EMULATE_TEAR_VECTORS", 0) != 0;
  options.time = word("TESSERA_EMULATE_TIME");
  options.skips_values = number("TESSERA_EMULATE_NO_VALUES", 0) != 0;
  options.shows_launches = number("TESSERA_EMULATE_LAUNCHES", 0) != 0;
  options.hashes_copies = number("TESSERA_EMULATE_COMPARE", 0) != 0;
  options.report = word("TESSERA_EMULATE_REPORT");
  return options;
}

}  // namespace tessera::guest
