#include "generator/selectors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <type_traits>

#include "base/error.h"
#include "base/shown.h"
#include "base/suggestion.h"
#include "generator/words.h"

namespace tessera {

namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<int>::max();
constexpr std::int64_t kMaxHint = std::int64_t{1} << 40;
constexpr std::int64_t kWholeWindow = 2147418112;  // no sequence is longer
constexpr std::string_view kAuto = "auto", kUnknown = "unknown";

[[noreturn]] void refuse(const Selector& selector, std::string_view text, const std::string& demand,
                         const std::string& hint = {}) {
  const std::string_view or_auto = selector.kind == SelectorKind::pin ? ", or auto" : "";
  throw Error(ErrorKind::usage,
              fmt::format("{} = {}: must be {}{}{}", selector.key, shown(text), demand, or_auto, hint));
}

/// A word that the field does not have, and what was meant: a word of its own, or a field that has this one.
[[noreturn]] void refuse_word(const Problem& problem, const Selector& selector, std::string_view text) {
  std::string hint = suggestion(text, selector.words);
  for (const Selector& other : selectors(operator_name(problem)))
    if (hint.empty() && std::find(other.words.begin(), other.words.end(), text) != other.words.end())
      hint = fmt::format("; {} is a value of {}", text, other.key);
  refuse(selector, text, fmt::format("one of {}", fmt::join(selector.words, ", ")), hint);
}

std::int64_t parse_number(const Selector& selector, std::string_view text) {
  std::int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::invalid_argument || stop != text.data() + text.size()) {
    refuse(selector, text, "a whole number");
  }
  if (error == std::errc::result_out_of_range || value < selector.min || value > selector.max) {
    // The largest int is no bound that anybody chose; what a kernel exists for, make_plan tells.
    const bool is_low = error == std::errc::result_out_of_range ? text.front() == '-' : value < selector.min;
    refuse(selector, text,
           is_low && selector.max == kMaxInt ? fmt::format("at least {}", selector.min)
           : selector.max == kMaxInt         ? fmt::format("at most {}", selector.max)
                                             : fmt::format("from {} to {}", selector.min, selector.max));
  }
  return value;
}

// Setter and getter of one field, by pointer to member: int, Hint, Arch, an enumeration, or an optional of these.
template <auto Member>
struct Field;

template <class Op, class T, T Op::*Member>
struct Field<Member> {
  template <class U>
  struct Strip {
    using type = U;
  };
  template <class U>
  struct Strip<std::optional<U>> {
    using type = U;
  };
  using Value = typename Strip<T>::type;
  static constexpr bool kIsPin = !std::is_same_v<T, Value>;

  static void set(Problem& problem, const Selector& selector, std::string_view text) {
    T& field = std::get<Op>(problem).*Member;
    if constexpr (kIsPin) {
      if (text == kAuto) {
        field.reset();
        return;
      }
    }
    if constexpr (std::is_same_v<Value, Hint>) {
      if (text == kUnknown) {
        field = kUnknownHint;
        return;
      }
    }
    if constexpr (std::is_same_v<Value, Arch>) {
      field = Arch::parse(text);
    } else if constexpr (std::is_enum_v<Value>) {
      Value value{};
      if (!from_word(text, value)) refuse_word(problem, selector, text);
      field = value;
    } else {
      field = static_cast<Value>(parse_number(selector, text));
    }
  }

  static std::string text(const Problem& problem) {
    const T& field = std::get<Op>(problem).*Member;
    if constexpr (kIsPin) {
      return field.has_value() ? value_text(*field) : std::string(kAuto);
    } else {
      return value_text(field);
    }
  }

  static std::string value_text(const Value& value) {
    if constexpr (std::is_same_v<Value, Arch>) {
      return value.to_string();
    } else if constexpr (std::is_enum_v<Value>) {
      return std::string(to_word(value));
    } else if (std::is_same_v<Value, Hint> && value == Value{kUnknownHint}) {
      return std::string(kUnknown);
    } else {
      return std::to_string(value);
    }
  }
};

template <auto Member>
Selector field(std::string_view flag, std::string_view key, std::string_view help) {
  using F = Field<Member>;
  using Value = typename F::Value;
  Selector selector;
  selector.flag = flag;
  selector.key = key;
  selector.kind = F::kIsPin ? SelectorKind::pin : std::is_same_v<Value, Hint> ? SelectorKind::hint : SelectorKind::fact;
  if constexpr (std::is_enum_v<Value>) {
    for (const Word<Value>& word : words_of(Value{})) selector.words.push_back(word.text);
  }
  if constexpr (std::is_integral_v<Value>) {
    selector.is_number = true;
    selector.min = selector.kind == SelectorKind::hint ? 0 : 1;
    selector.max = selector.kind == SelectorKind::hint ? kMaxHint : kMaxInt;
  }
  selector.help = help;
  selector.set = F::set;
  selector.text = F::text;
  return selector;
}

/// Of the words that a field can spell those that the operator has kernels for: what help, messages and documentation
/// offer. The others are told by make_plan.
Selector offer(Selector selector, std::vector<std::string_view> words) {
  selector.words = std::move(words);
  return selector;
}

std::vector<std::string_view> reals() { return {"f32", "f16", "bf16"}; }
std::vector<std::string_view> product_types() { return {"bf16", "f16", "tf32", "e4m3", "e5m2", "s8", "u8"}; }

// Keys of a window on one side: -1 says, as at launch, that there is no bound. In the Problem -1 is what nobody knows,
// so the largest size of a launch, which hides nothing either, stands for it there.
template <auto Member>
Selector window_field(std::string_view flag, std::string_view key, std::string_view help) {
  Selector selector = field<Member>(flag, key, help);
  selector.min = -1;
  selector.max = kWholeWindow;
  selector.set = [](Problem& problem, const Selector& of, std::string_view text) {
    Hint& field = std::get<Fmha>(problem).*Member;
    if (text == kUnknown) {
      field = kUnknownHint;
      return;
    }
    const std::int64_t keys = parse_number(of, text);
    field = keys < 0 ? kWholeWindow : keys;
  };
  selector.text = [](const Problem& problem) {
    const Hint keys = std::get<Fmha>(problem).*Member;
    return keys == kWholeWindow ? std::string("-1") : Field<Member>::value_text(keys);
  };
  return selector;
}

// The type of a product's operand: an element type or a block-scaled format, two members of the Problem behind one
// field. b's may be "auto".
template <auto DTypeMember, auto FormatMember>
struct OperandField {
  static constexpr bool kIsPin = Field<DTypeMember>::kIsPin;

  static void set(Problem& problem, const Selector& selector, std::string_view text) {
    auto& dtype = std::get<Gemm>(problem).*DTypeMember;
    auto& format = std::get<Gemm>(problem).*FormatMember;
    DType element{};
    BlockFormat block{};
    if (from_word(text, element)) {
      dtype = element;
      format.reset();
    } else if (from_word(text, block)) {
      format = block;
      if constexpr (kIsPin) dtype.reset();
    } else if (kIsPin && text == kAuto) {
      if constexpr (kIsPin) dtype.reset();
      format.reset();
    } else {
      refuse_word(problem, selector, text);
    }
  }

  static std::string text(const Problem& problem) {
    const auto& format = std::get<Gemm>(problem).*FormatMember;
    return format ? std::string(to_word(*format)) : Field<DTypeMember>::text(problem);
  }
};

/// words: of element types; every block-scaled format is offered beside them.
template <auto DTypeMember, auto FormatMember>
Selector operand_field(std::string_view flag, std::string_view key, std::string_view help,
                       const std::vector<std::string_view>& words) {
  Selector selector = field<DTypeMember>(flag, key, help);
  selector.words = words;
  for (const Word<BlockFormat>& word : kBlockFormatWords) selector.words.push_back(word.text);
  selector.set = OperandField<DTypeMember, FormatMember>::set;
  selector.text = OperandField<DTypeMember, FormatMember>::text;
  return selector;
}

constexpr std::string_view kBlockArchHelp = "target: sm_90a, or sm_100, sm_103, sm_120, sm_121 with a or f";

const std::vector<Selector>& quantize_selectors() {
  static const std::vector<Selector> table = {
      field<&Quantize::arch>("arch", "arch", kBlockArchHelp),
      offer(field<&Quantize::dtype>("dtype", "dtype", "type of x"), reals()),
      field<&Quantize::format>("format", "format", "block-scaled format"),
      field<&Quantize::scale_form>("scale-form", "scale_form", "where scales lie"),
      field<&Quantize::scale_rounding>("scale-rounding", "scale_rounding",
                                       "how ue8m0 scales are taken; floor is the OCP rule"),
      field<&Quantize::global_scale>("global-scale", "global_scale", "nvfp4's fp32 factor of all scales"),
      field<&Quantize::threads>("threads", "threads", "threads of a CTA"),
      field<&Quantize::l>("l", "l", "expected number of matrices"),
      field<&Quantize::rows>("rows", "rows", "expected number of rows"),
      field<&Quantize::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

const std::vector<Selector>& dequantize_selectors() {
  static const std::vector<Selector> table = {
      field<&Dequantize::arch>("arch", "arch", kBlockArchHelp),
      offer(field<&Dequantize::dtype>("dtype", "dtype", "type of y"), reals()),
      field<&Dequantize::format>("format", "format", "block-scaled format"),
      field<&Dequantize::scale_form>("scale-form", "scale_form", "where scales lie"),
      offer(field<&Dequantize::global_scale>("global-scale", "global_scale", "nvfp4's fp32 factor of all scales"),
            {"none", "given"}),
      field<&Dequantize::threads>("threads", "threads", "threads of a CTA"),
      field<&Dequantize::l>("l", "l", "expected number of matrices"),
      field<&Dequantize::rows>("rows", "rows", "expected number of rows"),
      field<&Dequantize::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

const std::vector<Selector>& convert_scales_selectors() {
  static const std::vector<Selector> table = {
      field<&ConvertScales::arch>("arch", "arch", kBlockArchHelp),
      field<&ConvertScales::to>("to", "to", "the form that is written"),
      field<&ConvertScales::l>("l", "l", "expected number of matrices"),
      field<&ConvertScales::rows>("rows", "rows", "expected number of rows"),
      field<&ConvertScales::blocks>("blocks", "blocks", "expected scales of a row"),
  };
  return table;
}

const std::vector<Selector>& gemv_selectors() {
  static const std::vector<Selector> table = {
      field<&Gemv::arch>("arch", "arch", kBlockArchHelp),
      offer(field<&Gemv::dtype>("dtype", "dtype", "type of c"), reals()),
      offer(field<&Gemv::format>("format", "format", "block-scaled format of a and b, nvfp4"), {"nvfp4"}),
      field<&Gemv::scale_form>("scale-form", "scale_form", "where scales lie"),
      field<&Gemv::warp_rows>("warp-rows", "warp_rows", "rows of a warp: 1, 2 or 4"),
      field<&Gemv::k_warps>("k-warps", "k_warps", "warps that share a row: 1, 2, 4 or 8"),
      field<&Gemv::l>("l", "l", "expected number of matrices"),
      field<&Gemv::m>("m", "m", "expected number of rows"),
      field<&Gemv::k>("k", "k", "expected elements of a row"),
  };
  return table;
}

const std::vector<Selector>& copy2d_selectors() {
  static const std::vector<Selector> table = {
      field<&Copy2d::arch>("arch", "arch", "target: sm_90a"),
      field<&Copy2d::dtype>("dtype", "dtype", "element type"),
      field<&Copy2d::rank>("rank", "rank", "dimensions of the tensor: 1 to 5"),
      field<&Copy2d::tile_inner>("tile-inner", "tile_inner", "elements of a tile along dimension 0"),
      field<&Copy2d::tile_outer>("tile-outer", "tile_outer", "rows of a tile along dimension 1"),
      field<&Copy2d::swizzle>("swizzle", "swizzle", "how TMA permutes a tile in shared memory"),
  };
  return table;
}

const std::vector<Selector>& fmha_selectors() {
  static const std::vector<Selector> table = {
      field<&Fmha::arch>("arch", "arch", "target: sm_90a, or sm_100, sm_103 with a or f"),
      field<&Fmha::head_dim>("head-dim", "head_dim",
                             "elements of a head of q and k: 64, 96, 128, 192, 256 or 512; with tcgen05 16 and 32 too"),
      field<&Fmha::head_dim_v>("head-dim-v", "head_dim_v", "elements of a head of v and o (auto: head_dim)"),
      offer(field<&Fmha::dtype>("dtype", "dtype", "type of q, k, v and of a normalised o"), {"bf16", "f16"}),
      field<&Fmha::mask>("mask", "mask", "which keys a query sees; causal is bottom-right aligned"),
      field<&Fmha::window>("window", "window", "whether keys further away than a window are hidden (tcgen05 only)"),
      field<&Fmha::seqused>("seqused", "seqused",
                            "valid lengths of each sequence in memory: of keys (k), of both (qk; tcgen05 only)"),
      field<&Fmha::kv_pools>("kv-pools", "kv_pools",
                             "where keys lie: dense, or by a list of rows beside a window's (tcgen05 only)"),
      field<&Fmha::output>("output", "output", "rows divided by their sums, or fp32 rows with maximum and sum"),
      field<&Fmha::v_layout>("v-layout", "v_layout",
                             "contiguous dimension of v: mn, the head's; k, the keys' (tcgen05 only)"),
      field<&Fmha::tile_m>("tile-m", "tile_m", "query rows of one CTA"),
      field<&Fmha::tile_n>("tile-n", "tile_n", "keys of one step"),
      field<&Fmha::stages>("stages", "stages", "slots of the ring of key and value tiles"),
      field<&Fmha::swizzle>("swizzle", "swizzle", "how TMA permutes a tile in shared memory"),
      field<&Fmha::mma_kind>("mma-kind", "mma_kind", "matrix instruction"),
      field<&Fmha::p_path>("p-path", "p_path", "how probabilities reach the second product (tcgen05 only)"),
      field<&Fmha::cta_group>("cta-group", "cta_group", "CTAs that share a tile: 1 or 2 (tcgen05 only)"),
      field<&Fmha::pack_gqa>("pack-gqa", "pack_gqa", "query heads of a key head that share a tile's rows; 1: none"),
      field<&Fmha::split_kv>("split-kv", "split_kv",
                             "whether CTAs share a tile's keys, for a second kernel to merge (tcgen05 only)"),
      field<&Fmha::batch>("batch", "batch", "expected number of sequences"),
      field<&Fmha::heads_q>("heads-q", "heads_q", "expected number of query heads"),
      field<&Fmha::heads_kv>("heads-kv", "heads_kv", "expected number of key and value heads"),
      field<&Fmha::seqlen_q>("seqlen-q", "seqlen_q", "expected number of queries"),
      field<&Fmha::seqlen_k>("seqlen-k", "seqlen_k", "expected number of keys"),
      field<&Fmha::num_splits>("num-splits", "num_splits", "expected parts of split keys"),
      field<&Fmha::topk>("topk", "topk", "expected rows that a query lists"),
      field<&Fmha::seqlen_swa>("seqlen-swa", "seqlen_swa", "expected keys of the window beside a list"),
      window_field<&Fmha::window_size_left>("window-size-left", "window_size_left",
                                            "expected keys of a window before a query; -1: no bound"),
      window_field<&Fmha::window_size_right>("window-size-right", "window_size_right",
                                             "expected keys of a window behind a query; -1: no bound"),
  };
  return table;
}

const std::vector<Selector>& gemm_selectors() {
  static const std::vector<Selector> table = {
      field<&Gemm::arch>("arch", "arch", "target: sm_90a, or sm_100, sm_103 with a or f"),
      operand_field<&Gemm::dtype, &Gemm::format>("dtype", "dtype",
                                                 "type of a and b: bf16, f16, e4m3, e5m2; with tcgen05 tf32 and "
                                                 "block-scaled formats, on sm_100a s8 and u8 too",
                                                 product_types()),
      operand_field<&Gemm::b_dtype, &Gemm::b_format>(
          "b-dtype", "b_dtype", "type of b where it is not a's: e4m3 beside e5m2, s8 beside u8, mxfp8 beside mxfp4",
          product_types()),
      field<&Gemm::scale_form>("scale-form", "scale_form", "where scales of block-scaled operands lie"),
      operand_field<&Gemm::d_dtype, &Gemm::d_format>(
          "d-dtype", "d_dtype",
          "type of d: f32, bf16, f16; on sm_90a e4m3 and e5m2, with tcgen05 block-scaled formats, of integers s32 too",
          {"bf16", "f16", "f32", "e4m3", "e5m2", "s32"}),
      field<&Gemm::a_layout>("a-layout", "a_layout", "contiguous dimension of a: k, or mn (16-bit types)"),
      field<&Gemm::b_layout>("b-layout", "b_layout", "contiguous dimension of b: k, or mn (16-bit types)"),
      field<&Gemm::accumulation>("accumulation", "accumulation",
                                 "sums of 8-bit types: 13 fraction bits, or promoted to fp32 every 128 of k (auto)"),
      field<&Gemm::c>("c", "c", "whether beta * c is added"),
      field<&Gemm::bias>("bias", "bias", "whether a bias for each column is added"),
      field<&Gemm::activation>("activation", "activation", "what is applied to the sums"),
      field<&Gemm::grouping>("grouping", "grouping",
                             "l groups of rows, each with a b of its own: one behind the other, or masked"),
      field<&Gemm::gate>("gate", "gate",
                         "silu(gate) * up of two products (a by b, a by b2), or of b's columns in turn"),
      field<&Gemm::interleave>("interleave", "interleave", "columns of the gate that stand together (auto: 1)"),
      field<&Gemm::tile_m>("tile-m", "tile_m", "rows of d that one CTA works on at a time"),
      field<&Gemm::tile_n>("tile-n", "tile_n", "columns of d that one CTA works on at a time"),
      field<&Gemm::stages>("stages", "stages", "slots of the ring of a and b"),
      field<&Gemm::accumulators>("accumulators", "accumulators", "tiles in Tensor Memory: 1 or 2 (tcgen05)"),
      field<&Gemm::cluster_m>("cluster-m", "cluster_m", "CTAs along m that share b"),
      field<&Gemm::cluster_n>("cluster-n", "cluster_n", "CTAs along n that share a"),
      field<&Gemm::split_k>("split-k", "split_k", "CTAs that share the k of a tile"),
      field<&Gemm::kernel_schedule>("kernel-schedule", "kernel_schedule",
                                    "whether warpgroups share tiles or take turns"),
      field<&Gemm::swap_ab>("swap-ab", "swap_ab", "whether b gives wgmma its 64 rows, and a its columns (sm_90a)"),
      field<&Gemm::raster>("raster", "raster", "tiles of clusters along m walked before the next along n"),
      field<&Gemm::m>("m", "m", "expected rows of d"),
      field<&Gemm::n>("n", "n", "expected columns of d"),
      field<&Gemm::k>("k", "k", "expected products of a sum"),
      field<&Gemm::l>("l", "l", "expected number of matrices"),
  };
  return table;
}

const Selector& selector_of(const Problem& problem, std::string_view key) {
  const std::span<const Selector> table = selectors(operator_name(problem));
  for (const Selector& selector : table)
    if (selector.key == key) return selector;
  std::vector<std::string_view> keys;
  for (const Selector& selector : table) keys.push_back(selector.key);
  throw Error(ErrorKind::usage, fmt::format("{} has no field {}: its fields are {}{}", operator_name(problem),
                                            shown(key), fmt::join(keys, ", "), suggestion(key, keys)));
}

[[noreturn]] void refuse_operator(std::string_view op) {
  throw Error(ErrorKind::usage, fmt::format("op = {}: must be one of {}{}", shown(op),
                                            fmt::join(operator_names(), ", "), suggestion(op, operator_names())));
}

}  // namespace

std::string_view to_string(SelectorKind kind) noexcept {
  switch (kind) {
    case SelectorKind::fact:
      return "fact";
    case SelectorKind::pin:
      return "pin";
    case SelectorKind::hint:
      return "hint";
  }
  return "?";
}

std::vector<std::string_view> operator_names() {
  return {"copy2d", "fmha", "gemm", "quantize", "dequantize", "convert_scales", "gemv"};
}

std::span<const Selector> selectors(std::string_view op) {
  if (op == "copy2d") return copy2d_selectors();
  if (op == "fmha") return fmha_selectors();
  if (op == "gemm") return gemm_selectors();
  if (op == "quantize") return quantize_selectors();
  if (op == "dequantize") return dequantize_selectors();
  if (op == "convert_scales") return convert_scales_selectors();
  if (op == "gemv") return gemv_selectors();
  refuse_operator(op);
}

Problem default_problem(std::string_view op) {
  if (op == "copy2d") return Copy2d{};
  if (op == "fmha") return Fmha{};
  if (op == "gemm") return Gemm{};
  if (op == "quantize") return Quantize{};
  if (op == "dequantize") return Dequantize{};
  if (op == "convert_scales") return ConvertScales{};
  if (op == "gemv") return Gemv{};
  refuse_operator(op);
}

void set_field(Problem& problem, std::string_view key, std::string_view text) {
  const Selector& selector = selector_of(problem, key);
  selector.set(problem, selector, text);
}

std::string field_text(const Problem& problem, std::string_view key) { return selector_of(problem, key).text(problem); }

}  // namespace tessera
