// A scan of lines, no preprocessor: an #include in quotes counts under whatever condition it stands. A name that is
// neither an override nor an embedded template is an error here, and so is a circle.
#include "generator/include_scan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "generator/embedded_templates.h"
#include "tessera/error.h"

namespace tessera {

namespace {

std::optional<std::string_view> text_of(std::string_view path, const std::vector<SourceFile>& sources) {
  for (const SourceFile& source : sources)
    if (source.path == path) return source.text;
  const auto all = embedded_templates();
  const auto found = std::lower_bound(all.begin(), all.end(), path,
                                      [](const EmbeddedTemplate& t, std::string_view name) { return t.path < name; });
  if (found == all.end() || found->path != path) return std::nullopt;
  return found->text;
}

std::string_view trimmed_left(std::string_view text) {
  const std::size_t start = text.find_first_not_of(" \t");
  return start == std::string_view::npos ? std::string_view{} : text.substr(start);
}

class Walk {
 public:
  explicit Walk(const std::vector<SourceFile>& sources) : sources_(sources) {}

  void visit(std::string_view from, std::string_view text) {
    open_.emplace_back(from);
    for (const std::string& name : included_names(text)) {
      const auto is_done = [&](const SourceFile& file) { return file.path == name; };
      if (std::any_of(headers.begin(), headers.end(), is_done)) continue;
      if (std::find(open_.begin(), open_.end(), name) != open_.end())
        throw Error(ErrorKind::compile,
                    fmt::format("{} includes itself: {} -> {}", name, fmt::join(open_, " -> "), name));
      const std::optional<std::string_view> found = text_of(name, sources_);
      if (!found)
        throw Error(ErrorKind::compile, fmt::format("{} includes \"{}\", which is not a template", from, name));
      visit(name, *found);
      headers.push_back({name, std::string(*found)});
    }
    open_.pop_back();
  }

  std::vector<SourceFile> headers;

 private:
  const std::vector<SourceFile>& sources_;
  std::vector<std::string> open_;
};

}  // namespace

std::vector<std::string> included_names(std::string_view text) {
  std::vector<std::string> names;
  // Hardly a line has a '#': those are looked for, not lines.
  for (std::size_t at = text.find('#'); at != std::string_view::npos; at = text.find('#', at + 1)) {
    std::size_t begin = at;
    while (begin > 0 && (text[begin - 1] == ' ' || text[begin - 1] == '\t')) --begin;
    if (begin > 0 && text[begin - 1] != '\n') continue;
    std::string_view line = text.substr(at + 1);
    line = trimmed_left(line.substr(0, line.find('\n')));
    if (line.substr(0, 7) != "include") continue;
    line = trimmed_left(line.substr(7));
    if (line.empty() || line[0] != '"') continue;
    const std::size_t close = line.find('"', 1);
    if (close != std::string_view::npos) names.emplace_back(line.substr(1, close - 1));
  }
  return names;
}

std::vector<SourceFile> transitive_headers(std::string_view program, std::string_view text,
                                           const std::vector<SourceFile>& sources) {
  Walk walk(sources);
  walk.visit(program, text);
  return std::move(walk.headers);
}

}  // namespace tessera
