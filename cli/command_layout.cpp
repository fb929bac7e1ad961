// tessera layout: the maps that kernels and emulator rely on, printed and
// drawn. Each action is a file layout_*.cpp; here are the flags and where a
// page goes.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/call.h"
#include "cli/layout_command.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

struct Action {
  std::string_view name;
  LayoutPage (*make)(const LayoutArguments&);
  bool takes_argument = false;  ///< one more word behind the subject
};
constexpr Action kActions[] = {{"swizzle", layout_swizzle},
                               {"smem-descriptor", layout_smem_descriptor, true},
                               {"instruction-descriptor", layout_instruction_descriptor, true},
                               {"tensor-map", layout_tensor_map},
                               {"fragment", layout_fragment},
                               {"scale-factors", layout_scale_factors},
                               {"repack", layout_repack, true},
                               {"smem", layout_smem},
                               {"tmem", layout_tmem}};

struct Flag {
  std::string_view name, value, help;  ///< an empty value: a toggle
  std::vector<std::string_view> actions;
};

const std::vector<Flag>& flag_table() {
  static const std::vector<Flag> table = {
      {"row-bytes", "N", "bytes of a tile's row (default: the swizzle's span)", {"swizzle"}},
      {"rows", "N", "rows that are shown, or of the tensor", {"swizzle", "smem-descriptor", "scale-factors"}},
      {"base", "ADDR", "shared address of the tile (default: 0)", {"swizzle"}},
      {"access",
       "WORD",
       "one access, marked and counted: ldmatrix, column, row, fragment, or "
       "ROWSxNEIGHBOURSxBYTES like 8x4x4",
       {"swizzle"}},
      {"at", "N,N", "its row and chunk; or the box's coordinates, innermost first", {"swizzle", "tensor-map"}},
      {"start", "ADDR", "start address, bytes", {"smem-descriptor"}},
      {"leading-bytes", "N", "leading dimension byte offset (LBO)", {"smem-descriptor"}},
      {"stride-bytes", "N", "stride dimension byte offset (SBO)", {"smem-descriptor"}},
      {"base-offset", "N", "0 to 7", {"smem-descriptor"}},
      {"leading-is-address", "", "tcgen05, sm_103a: LBO is an absolute address", {"smem-descriptor"}},
      {"major", "WORD", "which dimension is contiguous: k or mn", {"smem-descriptor", "fragment"}},
      {"bits", "N", "bits of an element: 4, 8, 16, 32", {"smem-descriptor"}},
      {"swizzle", "WORD", "none, 32B, 64B, 128B, 128B_atom_32B", {"smem-descriptor", "tensor-map"}},
      {"m", "N", "rows of D", {"instruction-descriptor"}},
      {"n", "N", "columns of D", {"instruction-descriptor"}},
      {"type-a", "TYPE", "A's element type", {"instruction-descriptor"}},
      {"type-b", "TYPE", "B's element type", {"instruction-descriptor"}},
      {"type-d", "TYPE", "the accumulator's: f16, f32, s32", {"instruction-descriptor", "fragment", "repack"}},
      {"major-a", "WORD", "k or mn", {"instruction-descriptor"}},
      {"major-b", "WORD", "k or mn", {"instruction-descriptor"}},
      {"negate-a", "", "A's sign is flipped", {"instruction-descriptor"}},
      {"negate-b", "", "B's sign is flipped", {"instruction-descriptor"}},
      {"saturate", "", "i8: clamp to s32", {"instruction-descriptor"}},
      {"sparse", "", "A is 2:4 sparse", {"instruction-descriptor"}},
      {"sparsity-selector", "N", "0 to 3", {"instruction-descriptor"}},
      {"max-shift", "N", ".ws: 0, 8, 16, 32", {"instruction-descriptor"}},
      {"scale-type", "WORD", "ue8m0 or ue4m3", {"instruction-descriptor"}},
      {"scale-id-a", "N", "byte of the 32-bit cell where A's scales begin", {"instruction-descriptor"}},
      {"scale-id-b", "N", "the same of B", {"instruction-descriptor"}},
      {"k96", "", "K = 96 (sm_103a)", {"instruction-descriptor"}},
      {"cta-group", "N", "judge the shape for cta_group::1 or ::2 alone", {"instruction-descriptor"}},
      {"ws", "", "judge the shape for .ws alone", {"instruction-descriptor"}},
      {"dtype", "TYPE", "element type of the map", {"tensor-map"}},
      {"dims", "N,N", "extents, innermost first, elements", {"tensor-map"}},
      {"strides-bytes", "N,N", "rank - 1 strides (default: dense)", {"tensor-map"}},
      {"box", "N,N", "the tile of one copy, elements", {"tensor-map"}},
      {"element-strides", "N,N", "default: 1", {"tensor-map"}},
      {"address", "ADDR", "of the tensor in global memory (default: 0)", {"tensor-map"}},
      {"interleave", "WORD", "none, 16B, 32B: the rules alone, not drawn", {"tensor-map"}},
      {"im2col", "WORD", "im2col: full; w and w128 are not drawn", {"tensor-map"}},
      {"pixels", "N", "im2col: pixels of one copy", {"tensor-map"}},
      {"channels", "N", "im2col: channels of a pixel", {"tensor-map"}},
      {"lower-corner", "N,N", "im2col: of the bounding box, W first (default: 0)", {"tensor-map"}},
      {"upper-corner", "N,N", "im2col: from the tensor's end (default: 0)", {"tensor-map"}},
      {"offsets", "N,N", "im2col: added to every pixel, W first (default: 0)", {"tensor-map"}},
      {"smem", "ADDR", "shared address of the box (default: 0)", {"tensor-map"}},
      {"operand", "WORD", "A, B, D (C is D), SFA, SFB, or E: sparse metadata", {"fragment"}},
      {"lane", "N", "mark what this lane holds", {"fragment"}},
      {"register", "N", "with --lane: what this register of it holds", {"fragment"}},
      {"element", "R,C", "mark this element: row and column, or row and k", {"fragment", "scale-factors"}},
      {"scale-vec", "WORD", "1X, 2X or 4X", {"fragment"}},
      {"thread-id", "N", "SFA: 0 or 1; SFB: 0 to 3", {"fragment"}},
      {"byte-id", "N", "byte where the scales begin", {"fragment"}},
      {"selector", "N", "sparsity selector", {"fragment"}},
      {"k", "N", "elements along K", {"scale-factors"}},
      {"owner", "ROLE", "mark what this role owns in some phase", {"smem", "tmem"}}};
  return table;
}

class LayoutCommand final : public Command {
 public:
  HelpPage help() const override {
    return {
        "tessera layout swizzle MODE | tensor-map | fragment INSTRUCTION | "
        "repack D-to-A INSTRUCTION\n"
        "       tessera layout smem-descriptor wgmma|tcgen05 [0xBITS]\n"
        "       tessera layout instruction-descriptor KIND [0xBITS]\n"
        "       tessera layout scale-factors FORMAT\n"
        "       tessera layout smem|tmem PLAN.json",
        "tessera layout: print and draw swizzles, descriptors, fragments, "
        "scale factors and copies",
        "  fragment INSTRUCTION   thread, register and bits of each element, both ways. mma.SHAPE.TYPE and mma.sp,\n"
        "                         wgmma.SHAPE.TYPE and wgmma.sp, ldmatrix, stmatrix, tcgen05.ld, tcgen05.st, or PTX's\n"
        "                         spelling in full; SFA, SFB: block scales; E: sparse metadata\n"
        "  repack D-to-A INSTRUCTION   an accumulator as the next product's A: conversions, order of K, shuffles\n"
        "  swizzle MODE           none, 32B, 64B, 128B, 128B_atom_32B: addresses, banks, passes of an access\n"
        "  smem-descriptor wgmma|tcgen05   what a matrix descriptor addresses\n"
        "  instruction-descriptor KIND   f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4\n"
        "  scale-factors FORMAT   nvfp4, mxfp4, mxfp8: global tiles, Tensor Memory, registers\n"
        "  smem, tmem PLAN.json   who owns which bytes, which columns, by phase; - reads stdin\n"
        "  tensor-map             one copy, tiled or im2col: what lies where, what lies outside\n"
        "\n"
        "Every map is computed by the functions that kernels include (templates/spec), compared in tests with the\n"
        "emulator's own decoding. What concerns Blackwell follows the manual and was never run on such a device.\n"
        "Descriptors are encoded from flags, or decoded from a hexadecimal value; what is wrong with one is said, and\n"
        "the exit code is then 1. docs/layouts.md has a worked example.\n",
        {"tessera layout fragment mma.m16n8k64.mxf4nvf4 --operand A --lane 13",
         "tessera layout repack D-to-A mma.m16n8k64.mxf4nvf4", "tessera layout swizzle 128B --access 8x4x4 --at 0,3",
         "tessera layout smem-descriptor wgmma 0x4000004000010640 --major k",
         "tessera layout instruction-descriptor mxf4nvf4 --m 256 --n 128 --scale-type ue4m3 --cta-group 2",
         "tessera layout scale-factors nvfp4 --rows 300 --k 1024 --element "
         "200,100 --json",
         "tessera layout fragment wgmma.m64n64k16.bf16 --operand D --html "
         "d.html"}};
  }

  void add_flags(FlagSet& flags) override {
    flags.positional("ACTION", arguments_.action);
    flags.positional("SUBJECT", arguments_.subject);
    flags.positional("ARGUMENT", arguments_.argument);
    flags.group("Output");
    flags.text("--svg", "FILE", svg_, "draw the page into a file too");
    flags.text("--html", "FILE", html_, "one self-contained page: point at a cell to see what is linked to it");
    flags.group("Flags");
    for (const Flag& flag : flag_table()) {
      const std::string name = "--" + std::string(flag.name);
      const std::string help = fmt::format("{}: {}", fmt::join(flag.actions, ", "), flag.help);
      if (flag.value.empty()) {
        flags.toggle(name, toggles_[std::string(flag.name)], help);
      } else {
        flags.text(name, std::string(flag.value), texts_[std::string(flag.name)], help);
      }
    }
  }

  ExitCode run(Call& call) override {
    call.stops_without_reader();
    std::vector<std::string_view> names;
    for (const Action& action : kActions) names.push_back(action.name);
    const std::string& name = arguments_.action;
    const auto action =
        std::find_if(std::begin(kActions), std::end(kActions), [&](const Action& a) { return a.name == name; });
    if (action == std::end(kActions))
      throw Error(ErrorKind::usage, name.empty() ? fmt::format("layout: say what to show: {}", fmt::join(names, ", "))
                                                 : fmt::format("layout has no action {}{}; there are {}", name,
                                                               suggestion(name, names), fmt::join(names, ", ")));
    if (!action->takes_argument && !arguments_.argument.empty())
      throw Error(ErrorKind::usage, fmt::format("layout {}: '{}' is one word too many", name, arguments_.argument));
    for (const auto& [flag, text] : texts_)
      if (!text.empty()) arguments_.values[flag] = text;
    for (const auto& [flag, is_set] : toggles_)
      if (is_set) arguments_.values[flag] = "yes";
    check_flags();
    const LayoutPage page = action->make(arguments_);
    if (const std::vector<std::string> unused = arguments_.unused(); !unused.empty())
      throw Error(ErrorKind::usage,
                  fmt::format("layout {}: {} has no effect on this page", name, fmt::join(unused, ", ")));
    if (!svg_.empty()) write_file(svg_, layout_svg(page));
    if (!html_.empty()) write_file(html_, layout_html(page));
    if (call.is_json()) {
      call.print_json(layout_json(page));
    } else {
      call.print(layout_text(page));
    }
    for (const std::string& mistake : page.mistakes) call.complain("mistake: " + mistake);
    return page.mistakes.empty() ? kOk : kWrong;
  }

 private:
  void check_flags() const {
    for (const auto& given : arguments_.values) {
      const std::string& name = given.first;
      const auto flag =
          std::find_if(flag_table().begin(), flag_table().end(), [&](const Flag& f) { return f.name == name; });
      const std::vector<std::string_view>& takers = flag->actions;
      if (std::find(takers.begin(), takers.end(), arguments_.action) == takers.end())
        throw Error(ErrorKind::usage, fmt::format("--{} is no flag of layout {}: it goes with {}", name,
                                                  arguments_.action, fmt::join(takers, ", ")));
    }
  }

  LayoutArguments arguments_;
  std::map<std::string, std::string> texts_;
  std::map<std::string, bool> toggles_;
  std::string svg_, html_;
};

}  // namespace

std::int64_t parse_layout_number(std::string_view name, std::string_view text, std::int64_t min, std::int64_t max) {
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = is_hex ? text.substr(2) : text;
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
  if (error != std::errc() || stop != digits.data() + digits.size() || value < min || value > max)
    throw Error(ErrorKind::usage, fmt::format("{} = {}: must be a whole number from {} to {}", name, text, min, max));
  return value;
}

std::uint64_t parse_layout_bits(std::string_view text, int bits) {
  const bool is_hex = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = is_hex ? text.substr(2) : text;
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hex ? 16 : 10);
  if (error != std::errc() || stop != digits.data() + digits.size() || (bits < 64 && value >> bits != 0))
    throw Error(ErrorKind::usage,
                fmt::format("{}: must be a value of {} bits, like 0x{:0{}x}", text, bits, 0x640, bits / 4));
  return value;
}

std::string LayoutArguments::text(const std::string& flag, const std::string& otherwise) const {
  return has(flag) ? values.at(flag) : otherwise;
}

std::vector<std::string> LayoutArguments::unused() const {
  std::vector<std::string> flags;
  for (const auto& given : values)
    if (!asked_.contains(given.first)) flags.push_back("--" + given.first);
  return flags;
}

std::int64_t LayoutArguments::number(const std::string& flag, std::int64_t otherwise, std::int64_t min,
                                     std::int64_t max) const {
  return has(flag) ? parse_layout_number("--" + flag, text(flag), min, max) : otherwise;
}

std::vector<std::int64_t> LayoutArguments::list(const std::string& flag, std::size_t min_count, std::size_t max_count,
                                                std::int64_t min, std::int64_t max) const {
  const std::string all = text(flag);
  std::vector<std::int64_t> numbers;
  for (std::size_t start = 0; start <= all.size();) {
    const std::size_t comma = std::min(all.find(',', start), all.size());
    numbers.push_back(parse_layout_number("--" + flag, std::string_view(all).substr(start, comma - start), min, max));
    start = comma + 1;
  }
  if (numbers.size() < min_count || numbers.size() > max_count)
    throw Error(ErrorKind::usage,
                min_count == max_count
                    ? fmt::format("--{} = {}: {} numbers expected", flag, all, min_count)
                    : fmt::format("--{} = {}: {} to {} numbers expected", flag, all, min_count, max_count));
  return numbers;
}

std::size_t LayoutArguments::word(const std::string& flag, const std::vector<std::string_view>& words,
                                  std::size_t otherwise) const {
  return has(flag) ? index_of_word("--" + flag, text(flag), words) : otherwise;
}

std::size_t LayoutArguments::subject_word(const std::vector<std::string_view>& words) const {
  if (subject.empty())
    throw Error(ErrorKind::usage, fmt::format("layout {}: name one of {}", action, fmt::join(words, ", ")));
  return index_of_word("layout " + action, subject, words);
}

std::unique_ptr<Command> make_layout_command() { return std::make_unique<LayoutCommand>(); }

}  // namespace tessera::cli
