// docs/mutations.md by its sections, so that a run over some kernels leaves the others' as they are.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace tessera::mutations {

/// A page's head and its sections, each from its "## " to the next.
inline std::vector<std::string> sections_of(const std::string& page) {
  std::vector<std::string> sections;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find("\n## ", begin), page.size() - 1) + 1;
    sections.push_back(page.substr(begin, end - begin));
    begin = end;
  }
  return sections;
}

/// The page with sections of `made` in place of those of the same heading, new ones behind.
inline std::string with_sections(const std::string& page, const std::string& made) {
  const auto heading = [](const std::string& section) { return section.substr(0, section.find('\n')); };
  std::vector<std::string> sections = sections_of(page);
  for (const std::string& section : sections_of(made)) {
    const auto found = std::find_if(sections.begin(), sections.end(),
                                    [&](const std::string& old) { return heading(old) == heading(section); });
    if (found != sections.end())
      *found = section;
    else
      sections.push_back(section);
  }
  std::string all;
  for (const std::string& section : sections) all += section;
  return all;
}

}  // namespace tessera::mutations
