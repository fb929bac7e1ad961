#include "cli/size_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tessera/error.h"

namespace tessera::cli {

GivenSize parse_size(const std::string& text) {
  const std::size_t equals = text.find('=');
  GivenSize size{text.substr(0, equals), 0};
  const char* const end = text.data() + text.size();
  const char* const begin = equals == std::string::npos ? end : text.data() + equals + 1;
  const auto [stop, error] = std::from_chars(begin, end, size.value);
  if (size.name.empty() || begin == end || error != std::errc() || stop != end)
    throw Error(ErrorKind::usage, fmt::format("--size {}: must be NAME=N, like --size lda=136", text));
  return size;
}

void SizeFlags::add_to(FlagSet& flags) {
  flags.list("--size", "NAME=N", texts_, "any size of the launch, strides too, like lda=136; repeatable");
  flags.toggle("--pad-rows", pads_rows_, "rows of operands as far apart as the kernel asks for, not dense");
}

std::vector<GivenSize> parse_sizes(const std::vector<std::string>& texts) {
  std::vector<GivenSize> sizes;
  for (const std::string& text : texts) sizes.push_back(parse_size(text));
  refuse_name_twice("--size", texts);
  return sizes;
}

void refuse_sizes_twice(const ProblemList& list, const std::vector<GivenSize>& typed) {
  const auto refuse = [&](const Product& product, const Selector& selector, std::string_view value) {
    const auto same =
        std::find_if(typed.begin(), typed.end(), [&](const GivenSize& s) { return s.name == selector.key; });
    if (same == typed.end() || value == "unknown") return;
    const std::string first = product.place.empty() ? fmt::format("--{} {}", selector.flag, value)
                                                    : fmt::format("{} = {} at {}", selector.key, value, product.place);
    throw Error(ErrorKind::usage, fmt::format("{} is given twice ({}, --size {}={}): give it once", selector.key, first,
                                              same->name, same->value));
  };
  if (typed.empty()) return;
  list.for_each_product([&](const Product& product) {
    for (const FieldValues& field : product.fields)
      for (const std::string_view value : field.values) refuse(product, *field.selector, value);
    return product.sizes.for_each_while([&](const SizeSet& size) {
      for (const auto& [selector, value] : size.values) refuse(product, *selector, value);
      return true;
    });
  });
}

void SizeFlags::parse() { typed_ = parse_sizes(texts_); }

std::string SizeFlags::text() const {
  std::string text;
  for (const std::string& size : texts_) text += " --size " + size;
  return text + (pads_rows_ ? " --pad-rows" : "");
}

std::vector<GivenSize> SizeFlags::given(const Problem& problem, const LaunchSizes& launch) const {
  std::vector<GivenSize> all = with_sizes(expected_sizes(problem), typed_);
  if (pads_rows_ && !all.empty())
    for (const GivenSize& pitch : launch.padded_pitches(all)) all.push_back(pitch);
  return all;
}

}  // namespace tessera::cli
