#include "tests/bugs/bug_file.h"

#include <fmt/format.h>

#include <sstream>
#include <stdexcept>

#include "base/file.h"

namespace tessera::bugs {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

template <class T>
std::vector<T> numbers(const std::string& text, char separator) {
  std::vector<T> values;
  for (const std::string& part : split(text, separator)) values.push_back(static_cast<T>(std::stoull(part)));
  return values;
}

// Takes a mark off the line's end; false when the line belongs to the other twin.
bool keep_line(std::string& line, bool is_faulty) {
  for (const bool is_bug : {true, false}) {
    const std::string mark = is_bug ? "@bug" : "@fix";
    const std::size_t at = line.rfind(mark);
    if (at == std::string::npos || at + mark.size() != line.size()) continue;
    if (is_bug != is_faulty) return false;
    line.resize(at);
    while (!line.empty() && (line.back() == ' ' || line.back() == '/' || line.back() == '#')) line.pop_back();
  }
  return true;
}

class Reader {
 public:
  Reader(const std::string& path, bool is_faulty) : is_faulty_(is_faulty) { out_.path = path; }

  void directive(const std::string& line) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty() || words[0][0] == '#') return;
    const std::string& key = words[0];
    if (key == "target") {
      out_.target = words.at(1);
    } else if (key == "grid" || key == "block" || key == "cluster" || key == "smem") {
      sizes(words);
    } else if (key == "buffer") {
      buffer(words);
    } else if (key == "map") {
      map(words);
    } else if (key == "param") {
      out_.parameters.push_back({words.at(1), words.at(2)});
    } else if (key == "expect") {
      out_.expect_output = words.at(1);
      out_.expect_words.assign(words.begin() + 3, words.end());
    } else if (key == "tolerance") {
      out_.tolerance = std::stod(words.at(1));
    } else if (key == "axes") {
      for (std::size_t i = 1; i < words.size(); ++i) {
        const std::vector<std::string> parts = split(words[i], ':');
        out_.axes.push_back(
            {parts.at(0), parts.size() > 1 ? numbers<std::int64_t>(parts[1], ',') : std::vector<std::int64_t>{}});
      }
    } else if (key == "schedules") {
      out_.schedules.assign(words.begin() + 1, words.end());
    } else if (key == "also") {
      out_.also.assign(words.begin() + 1, words.end());
    } else if (key == "races") {
      out_.detects_races = words.at(1) != "off";
    } else if (key == "plan") {
      out_.plan_op = words.at(1);
      for (std::size_t i = 2; i < words.size(); ++i) {
        const std::size_t equal = words[i].find('=');
        out_.plan_fields.emplace_back(words[i].substr(0, equal), words[i].substr(equal + 1));
      }
    } else {
      throw std::runtime_error("unknown directive '" + key + "'");
    }
  }

  void code(const std::string& language, std::string line, int number) {
    if (out_.language.empty()) {
      out_.language = language;
      out_.code = std::string(static_cast<std::size_t>(number - 1), '\n');
    }
    if (!keep_line(line, is_faulty_)) line.clear();
    out_.code += line + "\n";
  }

  void add(std::string line) {
    if (keep_line(line, is_faulty_)) directive(line);
  }
  BugCase take() { return std::move(out_); }

 private:
  // Several may stand in one line: "block 128   grid 2 1".
  void sizes(const std::vector<std::string>& words) {
    std::array<std::uint32_t, 3>* to = nullptr;
    std::size_t index = 0;
    for (const std::string& word : words) {
      if (word == "smem") {
        to = nullptr;
      } else if (word == "grid" || word == "block" || word == "cluster") {
        to = word == "grid" ? &out_.grid : word == "block" ? &out_.block : &out_.cluster;
        index = 0;
      } else if (to == nullptr) {
        out_.smem_bytes = static_cast<std::uint32_t>(std::stoul(word));
      } else {
        to->at(index++) = static_cast<std::uint32_t>(std::stoul(word));
      }
    }
  }

  void buffer(const std::vector<std::string>& words) {
    BugBuffer buffer{words.at(1), words.at(2), numbers<std::int64_t>(words.at(3), 'x'), ""};
    for (std::size_t i = 4; i < words.size(); ++i) buffer.fill += (i > 4 ? " " : "") + words[i];
    out_.buffers.push_back(std::move(buffer));
  }

  void map(const std::vector<std::string>& words) {
    BugMap map;
    map.name = words.at(1);
    map.buffer = words.at(2);
    TensorMapArguments& a = map.arguments;
    if (!from_string(words.at(3), a.type)) throw std::runtime_error("type '" + words[3] + "'");
    for (std::size_t i = 4; i < words.size(); ++i) {
      const std::size_t equal = words[i].find('=');
      const std::string name = words[i].substr(0, equal);
      const std::string value = words[i].substr(equal + 1);
      bool ok = true;
      if (name == "dims")
        a.dims = numbers<std::uint64_t>(value, ',');
      else if (name == "strides")
        a.strides_bytes = numbers<std::uint64_t>(value, ',');
      else if (name == "box")
        a.box = numbers<std::uint32_t>(value, ',');
      else if (name == "element_strides")
        a.element_strides = numbers<std::uint32_t>(value, ',');
      else if (name == "swizzle")
        ok = from_string(value, a.swizzle);
      else if (name == "fill")
        ok = from_string(value, a.fill);
      else
        ok = false;
      if (!ok) throw std::runtime_error("'" + words[i] + "'");
    }
    out_.maps.push_back(std::move(map));
  }

  BugCase out_;
  bool is_faulty_;
};

}  // namespace

BugFile read_bug(const std::string& path) {
  BugFile file;
  file.path = path;
  Reader faulty(path, true);
  Reader mended(path, false);
  std::istringstream text(read_text(path));
  std::string section = "directives";
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    ++number;
    try {
      if (line.rfind("== ", 0) == 0) {
        section = line.substr(3);
      } else if (section == "finding") {
        file.finding += line + "\n";
      } else if (section == "directives") {
        faulty.add(line);
        mended.add(line);
      } else {
        faulty.code(section, line, number);
        mended.code(section, line, number);
      }
    } catch (const std::exception& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path, number, error.what()));
    }
  }
  file.faulty = faulty.take();
  file.mended = mended.take();
  return file;
}

void rewrite_finding(const BugFile& file, const std::string& finding) {
  std::string text = read_text(file.path);
  const std::size_t at = text.find("\n== finding\n");
  if (at != std::string::npos) text.resize(at + 1);
  write_file(file.path, text + "== finding\n" + finding);
}

}  // namespace tessera::bugs
