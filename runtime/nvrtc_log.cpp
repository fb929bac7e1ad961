#include "runtime/nvrtc_log.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace tessera {

namespace {

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view without_indentation(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : line.substr(first);
}

/// The number that stands right before `unit`: 400 in "400 bytes stack frame" for " bytes stack frame".
std::optional<int> number_before(std::string_view line, std::string_view unit) {
  const std::size_t at = line.find(unit);
  if (at == std::string_view::npos) return std::nullopt;
  std::size_t first = at;
  while (first > 0 && line[first - 1] >= '0' && line[first - 1] <= '9') --first;
  int value = 0;
  if (std::from_chars(line.data() + first, line.data() + at, value).ec != std::errc{}) return std::nullopt;
  return value;
}

std::string_view quoted_name(std::string_view line) {
  const std::size_t open = line.find('\'');
  const std::size_t close = open == std::string_view::npos ? open : line.find('\'', open + 1);
  return close == std::string_view::npos ? std::string_view{} : line.substr(open + 1, close - open - 1);
}

/// The text behind "ptxas info    : ", "ptxas warning : ", "ptxas error   : "; nothing for another line.
std::optional<std::string_view> ptxas_text(std::string_view line, std::string_view severity) {
  if (line.rfind("ptxas", 0) != 0) return std::nullopt;
  std::string_view rest = line.substr(5);
  // "ptxas application ptx input, line 23; error   : ..." puts a place before the severity.
  if (const std::size_t semicolon = rest.find("; "); rest.rfind(" application ptx input", 0) == 0)
    rest = semicolon == std::string_view::npos ? std::string_view{} : rest.substr(semicolon + 1);
  rest = without_indentation(rest);
  if (rest.rfind(severity, 0) != 0) return std::nullopt;
  rest = without_indentation(rest.substr(severity.size()));
  if (rest.empty() || rest.front() != ':') return std::nullopt;
  return without_indentation(rest.substr(1));
}

struct FrontEndLine {
  std::string_view file;
  int line = 0;
  std::string_view text;  // "error: identifier ..."
};

/// "fmha/kernel.cuh(5): error: ...".
std::optional<FrontEndLine> front_end_line(std::string_view line) {
  const std::size_t close = line.find("): ");
  const std::size_t open = close == std::string_view::npos ? close : line.rfind('(', close);
  if (open == std::string_view::npos || open == 0) return std::nullopt;
  FrontEndLine result{line.substr(0, open), 0, line.substr(close + 3)};
  const auto [end, code] = std::from_chars(line.data() + open + 1, line.data() + close, result.line);
  if (code != std::errc{} || end != line.data() + close) return std::nullopt;
  return result;
}

std::string_view source_line(const SourceBundle& bundle, std::string_view file, int line) {
  std::string_view text;
  if (file == bundle.program) text = bundle.text;
  for (const SourceFile& header : bundle.headers)
    if (header.path == file) text = header.text;
  const std::vector<std::string_view> lines = lines_of(text);
  const auto index = static_cast<std::size_t>(line) - 1;
  return line >= 1 && index < lines.size() ? lines[index] : std::string_view{};
}

/// A header's place in the log is its name under kHeaderRoot; other names are left as they are.
std::string_view included_name(const SourceBundle& bundle, std::string_view file) {
  if (file.rfind(kHeaderRoot, 0) != 0) return file;
  const std::string_view name = file.substr(kHeaderRoot.size());
  const bool is_header = std::any_of(bundle.headers.begin(), bundle.headers.end(),
                                     [&](const SourceFile& header) { return header.path == name; });
  return is_header ? name : file;
}

/// The message as the front end prints it: the place, the message, perhaps wrapped; the source line and the caret, both
/// indented by two.
Diagnostic front_end_diagnostic(const FrontEndLine& head, const std::vector<std::string_view>& lines, std::size_t next,
                                const SourceBundle& bundle) {
  const std::string_view file = included_name(bundle, head.file);
  Diagnostic diagnostic{std::string(file), head.line, 0, std::string(head.text), {}};
  const std::string_view source = source_line(bundle, file, head.line);
  for (std::size_t i = next; i < lines.size() && !lines[i].empty() && lines[i].front() == ' '; ++i) {
    const std::size_t caret = lines[i].find_first_not_of(' ');
    if (caret == std::string_view::npos || lines[i][caret] != '^' || i == next) continue;
    // The front end may print the line without its own indentation; the column counts in the source.
    const auto indentation = [](std::string_view line) { return line.size() - without_indentation(line).size(); };
    const std::size_t dropped =
        source.empty() ? 0 : indentation(source) + 2 - std::min(indentation(source) + 2, indentation(lines[i - 1]));
    diagnostic.column = static_cast<int>(caret - 1 + dropped);
    diagnostic.source_line = source.empty()
                                 ? std::string(lines[i - 1].substr(std::min<std::size_t>(2, lines[i - 1].size())))
                                 : std::string(source);
    break;
  }
  // A tab is one column: the caret must stand below what it means.
  std::replace(diagnostic.source_line.begin(), diagnostic.source_line.end(), '\t', ' ');
  return diagnostic;
}

}  // namespace

std::vector<EntryReport> parse_entry_reports(std::string_view log) {
  std::vector<EntryReport> entries;
  for (const std::string_view line : lines_of(log)) {
    if (line.rfind("ptxas", 0) != 0 && line.rfind("    ", 0) != 0) continue;
    if (line.find("Compiling entry function") != std::string_view::npos) {
      entries.push_back({});
      entries.back().name = std::string(quoted_name(line));
    }
    if (entries.empty()) continue;
    EntryReport& entry = entries.back();
    if (const auto value = number_before(line, " bytes stack frame")) entry.stack_bytes = *value;
    if (const auto value = number_before(line, " bytes spill stores")) entry.spill_store_bytes = *value;
    if (const auto value = number_before(line, " bytes spill loads")) entry.spill_load_bytes = *value;
    if (const auto value = number_before(line, " registers")) entry.registers = *value;
    if (const auto value = number_before(line, " barriers")) entry.barriers = *value;
    if (const auto value = number_before(line, " bytes smem")) entry.static_smem_bytes = *value;
  }
  return entries;
}

std::vector<std::string> parse_notes(std::string_view log) {
  std::vector<std::string> notes;
  const auto add = [&](std::string_view note) {
    if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.emplace_back(note);
  };
  for (const std::string_view line : lines_of(log)) {
    if (const auto warning = ptxas_text(line, "warning")) add(*warning);
    if (const auto info = ptxas_text(line, "info"))
      if (info->rfind("(C", 0) == 0 || info->find("Performance Loss") != std::string_view::npos) add(*info);
    if (const auto head = front_end_line(line); head && head->text.rfind("warning", 0) == 0) add(line);
    if (line.rfind("nvrtc: warning", 0) == 0) add(line);
  }
  return notes;
}

std::vector<Diagnostic> parse_errors(std::string_view log, const SourceBundle& bundle) {
  std::vector<Diagnostic> errors;
  const std::vector<std::string_view> lines = lines_of(log);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (const auto head = front_end_line(lines[i])) {
      const bool is_error = head->text.rfind("error", 0) == 0 || head->text.rfind("catastrophic error", 0) == 0;
      if (is_error) errors.push_back(front_end_diagnostic(*head, lines, i + 1, bundle));
      continue;
    }
    const bool is_ptxas_error = ptxas_text(lines[i], "error") || ptxas_text(lines[i], "fatal");
    const bool is_other = lines[i].rfind("nvrtc: error", 0) == 0 || lines[i].rfind("Command-line error", 0) == 0;
    if (is_ptxas_error || is_other) errors.push_back({{}, 0, 0, std::string(lines[i]), {}});
  }
  return errors;
}

}  // namespace tessera
