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

std::vector<std::string> refusal_notes(const std::vector<RefusedCandidate>& refused) {
  std::vector<std::string> notes;
  std::vector<std::string_view> told;
  for (const RefusedCandidate& candidate : refused) {
    if (std::find(told.begin(), told.end(), candidate.reason) != told.end()) continue;
    const auto same = std::count_if(refused.begin(), refused.end(),
                                    [&](const RefusedCandidate& other) { return other.reason == candidate.reason; });
    if (told.empty()) {
      if (same > 1) notes.push_back(fmt::format("{} for the same reason", counted(same - 1, "more candidate")));
    } else {
      const std::string others = same > 1 ? fmt::format(" and {} more", same - 1) : std::string();
      notes.push_back(fmt::format("{}{}: {}", candidate.label, others, candidate.reason));
    }
    told.push_back(candidate.reason);
  }
  return notes;
}

}  // namespace tessera
