// PTX of a kernel's pieces as one module, as NVRTC 13.0 writes it. Labels and registers of a piece stand in a scope of
// their own; its labels, source files and strings of line information get names that the first piece does not have.
#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/kernel_pieces.h"
#include "runtime/pieces_refused.h"

namespace tessera {

namespace {

constexpr std::string_view kStrings = "\t.section\t.debug_str\n\t{\n", kEndOfStrings = "\n\t}\n", kFile = "\t.file\t";

/// A module in parts: what stands before the entry's body, the body between its braces, what stands behind it.
struct PtxModule {
  std::string_view head, body, tail;
};

PtxModule parts_of(std::string_view ptx, std::string_view entry) {
  const std::size_t start = ptx.find(fmt::format(".entry {}(", entry));
  const std::size_t open = start == std::string_view::npos ? start : ptx.find("\n{", start);
  const std::size_t close = open == std::string_view::npos ? open : ptx.find("\n}", open);
  if (close == std::string_view::npos) refuse_to_join("PTX without a body of {}", entry);
  constexpr std::size_t kBrace = 2;
  return {ptx.substr(0, open + kBrace), ptx.substr(open + kBrace, close - open - kBrace), ptx.substr(close)};
}

template <class Visit>
void for_each_line(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    visit(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
  }
}

/// Of a piece behind the first: its variables stay behind, so that its body may name none; shared memory is the first
/// one's.
void require_no_variables(const PtxModule& module, std::string_view first_head) {
  for_each_line(module.head, [&](std::string_view line) {
    if (line.starts_with(".func") || line.starts_with(".weak .func") || line.starts_with(".visible .func"))
      refuse_to_join("a piece has a function: {}", line);
    if (line.starts_with(".extern") && first_head.find(line) == std::string_view::npos)
      refuse_to_join("one piece alone declares {}", line);
    if (!line.starts_with(".global") && !line.starts_with(".visible .global") && !line.starts_with(".const")) return;
    std::string_view name = line.substr(0, line.find_first_of("[=;"));
    while (name.ends_with(' ')) name.remove_suffix(1);
    name.remove_prefix(name.rfind(' ') + 1);
    if (module.body.find(name) != std::string_view::npos) refuse_to_join("a piece reads the variable {}", name);
  });
}

/// Static shared memory of two pieces would lie at the same place.
void require_no_shared_memory(const PtxModule& module) {
  if (module.body.find("\n\t.shared ") != std::string_view::npos ||
      module.head.find("\n.shared ") != std::string_view::npos)
    refuse_to_join("a piece has shared memory of its own");
}

std::string with(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (std::size_t found = text.find(from); found != std::string_view::npos; found = text.find(from)) {
    result += text.substr(0, found);
    result += to;
    text.remove_prefix(found + from.size());
  }
  result += text;
  return result;
}

/// The number behind each `word` is larger by `more`.
std::string with_larger(std::string_view text, std::string_view word, int more) {
  std::string result;
  for (std::size_t found = text.find(word); found != std::string_view::npos; found = text.find(word)) {
    result += text.substr(0, found + word.size());
    text.remove_prefix(found + word.size());
    int number = 0;
    const char* const end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
    if (end == text.data()) refuse_to_join("PTX without a number behind {}", word);
    result += std::to_string(number + more);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  }
  result += text;
  return result;
}

/// What stands between the braces of the strings' section; empty where there is none.
std::string_view strings_of(std::string_view tail) {
  const std::size_t start = tail.find(kStrings);
  if (start == std::string_view::npos) return {};
  const std::size_t end = tail.find(kEndOfStrings, start + kStrings.size());
  if (end == std::string_view::npos) refuse_to_join("PTX whose strings do not end");
  return tail.substr(start + kStrings.size(), end - start - kStrings.size());
}

std::string joined_ptx(const std::vector<std::string>& pieces, std::string_view entry) {
  constexpr int kFilesOfPiece = 1000;
  const PtxModule first = parts_of(pieces.front(), entry);
  require_no_shared_memory(first);
  std::string body(first.body), others, files, strings;
  for (std::size_t i = 1; i < pieces.size(); ++i) {
    const std::size_t number = i + 1;
    const PtxModule module = parts_of(pieces[i], entry);
    require_no_shared_memory(module);
    require_no_variables(module, first.head);
    const std::string mark = fmt::format("nanosleep.u32 {};", mark_of_piece(number));
    const std::string label = fmt::format("$L__piece_{}", number);
    const std::size_t found = body.find(mark);
    if (found == std::string::npos || body.find(mark, found + 1) != std::string::npos)
      refuse_to_join("the first piece's PTX does not leave for piece {} at one place", number);
    body.replace(found, mark.size(), fmt::format("bra.uni {};", label));

    const std::string own_labels = fmt::format("$L__P{}", number);
    const int more_files = kFilesOfPiece * static_cast<int>(i);
    std::string code = with_larger(module.body, "\t.loc\t", more_files);
    code = with(with_larger(code, "inlined_at ", more_files), "$L__", own_labels);
    others += fmt::format("\n{}:\n\t{{{}\n\t}}\n", label, code);
    for_each_line(module.tail, [&](std::string_view line) {
      if (line.starts_with(kFile)) files += with_larger(line, kFile, more_files) + "\n";
    });
    strings += with(strings_of(module.tail), "$L__", own_labels);
  }
  std::string tail(first.tail);
  const std::size_t at = tail.find(kStrings);
  if (at != std::string::npos) {
    tail.insert(at + kStrings.size(), strings + (strings.empty() || strings.ends_with('\n') ? "" : "\n"));
  } else if (!strings.empty()) {
    refuse_to_join("one piece alone has strings of line information");
  }
  tail.insert(std::min(at, tail.size()), files);
  return fmt::format("{}{}{}{}", first.head, body, others, tail);
}

}  // namespace

Joined<std::string> join_ptx(const std::vector<std::string>& pieces, std::string_view entry) {
  return joined_or_refused<Joined<std::string>>([&] { return joined_ptx(pieces, entry); });
}

}  // namespace tessera
