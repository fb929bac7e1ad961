#include "generator/attention/consumer_registers.h"

#include <string>

#include "generator/attention/assembly_text.h"
#include "generator/attention/softmax_text.h"
#include "generator/words.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha {
namespace {

// Registers: "s0", a score; "o0", an accumulator of O; "p0", of P as the A operands.
class Emitter {
 public:
  explicit Emitter(const Config& config)
      : c(config),
        scores(config.tile_n / 2),
        outputs(v_columns(config) / 2),
        registers_of_p(4 * output_steps(config)) {}

  std::string all() const {
    std::string text = declare_registers(scores, outputs, registers_of_p) + clear_probabilities() + multiply_keys() +
                       multiply_values() + copies() + mask() + find_maxima_text(scores) + rescale_text(outputs);
    if (alters_scores(c.facts)) text += alter();
    if (has_pools(c) || c.facts.tree_mask != TreeMask::none) text += hide_by_bits();
    text += is_8_bit(c.facts) ? to_exponents() + make_probabilities()
                              : exponentiate_text(scores) + pack_text(registers_of_p, to_word(p_dtype(c)));
    if (c.promote_every > 0) text += add_promoted() + keep_promoted();
    if (has_raw_tiles(c)) text += clear_outputs();
    if (has_fours(c) && c.facts.output == Output::normalized) text += store_rows(false);
    if (is_split(c) || (has_fours(c) && c.facts.output == Output::unnormalized)) text += store_rows(true);
    if (!has_fours(c) && c.facts.output == Output::normalized) text += stage();
    return text;
  }

 private:
  // Warps without rows never write them.
  std::string clear_probabilities() const {
    Statement statement;
    for (int i = 0; i < registers_of_p; ++i) statement << "mov.b32 " + name("p", i) + ", 0";
    return function("clear_probabilities()", statement.text(""));
  }

  // Behind a tile that has its O elsewhere.
  std::string clear_outputs() const {
    Statement statement;
    for (int i = 0; i < outputs; ++i) statement << "mov.b32 " + name("o", i) + ", 0";
    return function("clear_outputs()", statement.text(""));
  }

  static std::string instruction(const WgmmaShape& shape) {
    const std::string type(to_word(shape.dtype));
    return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) +
           (dtype_bytes(shape.dtype) == 1 ? "k32" : "k16") + ".f32." + type + "." + type;
  }

  // A descriptor for each step of a product, from the low word of the first.
  static void make_descriptor(Statement& statement, const std::string& to, const std::string& low, int bytes,
                              const std::string& high) {
    statement << "add.s32 x, " + low + ", " + std::to_string(bytes >> 4) << "mov.b64 " + to + ", {x, " + high + "}";
  }
  static std::string high_word(unsigned long long descriptor) { return std::to_string(descriptor >> 32); }

  // S = Q K^T.
  std::string multiply_keys() const {
    const WgmmaShape shape = score_wgmma(c);
    const std::string flags = dtype_bytes(shape.dtype) == 1 ? ", 1, 1" : ", 1, 1, 0, 0";
    std::string body;
    for (int first = 0; first < score_steps(c); first += shape.steps) {
      Statement statement;
      statement << ".reg .pred t, u"
                << ".reg .b32 x, y, z"
                << ".reg .b64 a, b"
                << "mov.pred u, 1";
      if (first == 0) statement << "mov.pred t, 0";
      statement << "mov.b32 y, " + high_word(k_major_descriptor(0, kRowsPerWarpgroup, c.swizzle))
                << "mov.b32 z, " + high_word(k_major_descriptor(0, c.tile_n, c.swizzle));
      for (int i = first; i < first + shape.steps; ++i) {
        make_descriptor(statement, "a", "%0", k_major_step_bytes(i, kRowsPerWarpgroup, c.swizzle), "y");
        make_descriptor(statement, "b", "%1", k_major_step_bytes(i, c.tile_n, c.swizzle), "z");
        statement << instruction(shape) + " {" + names("s", 0, scores) + "}, a, b, " + (i == 0 ? "t" : "u") + flags;
      }
      body += statement.text(": \"r\"(q_low), \"r\"(k_low) : \"memory\"");
    }
    return function("multiply_keys(unsigned q_low, unsigned k_low)", body);
  }

  // O = P V, or O += P V if told so.
  std::string multiply_values() const {
    const WgmmaShape shape = output_wgmma(c);
    const bool is_mn_major = reads_mn_major_v(c);
    const Swizzle swizzle = is_8_bit(c.facts) ? transposed_swizzle(c) : c.swizzle;
    std::string flags = ", 1, 1";
    if (dtype_bytes(shape.dtype) > 1) flags += is_mn_major ? ", 1" : ", 0";
    std::string body;
    for (int first = 0; first < output_steps(c); first += shape.steps) {
      Statement statement;
      statement << ".reg .pred t, u"
                << ".reg .b32 x, y"
                << ".reg .b64 b"
                << "mov.pred u, 1";
      if (first == 0) statement << "setp.ne.b32 t, %1, 0";
      statement << "mov.b32 y, " + high_word(is_mn_major ? mn_major_descriptor(0, c.tile_n, swizzle)
                                                         : k_major_descriptor(0, v_columns(c), swizzle));
      for (int i = first; i < first + shape.steps; ++i) {
        make_descriptor(statement, "b", "%0",
                        is_mn_major ? mn_major_step_bytes(i, swizzle) : k_major_step_bytes(i, v_columns(c), swizzle),
                        "y");
        statement << instruction(shape) + " {" + names("o", 0, outputs) + "}, {" + names("p", 4 * i, 4) + "}, b, " +
                         (i == 0 ? "t" : "u") + flags;
      }
      body +=
          statement.text(std::string(": \"r\"(v_low)") + (first == 0 ? ", \"r\"(accumulate)" : "") + " : \"memory\"");
    }
    return function("multiply_values(unsigned v_low, int accumulate)", body);
  }

  // For what is written in C++.
  std::string copies() const {
    Statement read, write, output;
    for (int i = 0; i < scores; ++i) {
      read << "mov.b32 " + name("%", i) + ", " + name("s", i);
      write << "mov.b32 " + name("s", i) + ", " + name("%", i);
    }
    for (int i = 0; i < outputs; ++i) output << "mov.b32 " + name("%", i) + ", " + name("o", i);
    const std::string of_scores = "float (&scores)[" + std::to_string(scores) + "])";
    return function("read_scores(" + of_scores, read.text(operands("=f", "scores", scores))) +
           function("write_scores(const " + of_scores, write.text(": " + operands("f", "scores", scores))) +
           function("read_output(float (&output)[" + std::to_string(outputs) + "])",
                    output.text(operands("=f", "output", outputs)));
  }

  // Scores times `factor`, -inf where a column is not in [begin, limit) of its row.
  std::string mask() const {
    const bool has_begins = hides_first_keys(c.facts);
    Statement statement;
    statement << ".reg .pred t"
              << ".reg .f32 x, y"
              << "mov.b32 y, 0xff800000";
    for (int v = 0; v < scores; ++v) {
      const int row = v / 2 % 2, column = 8 * (v / 4) + v % 2;
      statement << "setp.gt.s32 t, " + name("%", 1 + row) + ", " + std::to_string(column);
      if (has_begins) statement << "setp.le.and.s32 t, " + name("%", 3 + row) + ", " + std::to_string(column) + ", t";
      statement << "mul.f32 x, " + name("s", v) + ", %0"
                << "selp.b32 " + name("s", v) + ", x, y, t";
    }
    std::string list = ": \"f\"(factor), \"r\"(limits[0]), \"r\"(limits[1])";
    if (has_begins) list += ", \"r\"(begins[0]), \"r\"(begins[1])";
    return function("mask(float factor, const int (&limits)[2], const int (&begins)[2])", statement.text(list));
  }

  // Scores times `factor`, -inf where a column's bit is not set in its row's words, one for each 32 keys.
  std::string hide_by_bits() const {
    const int words = (c.tile_n + 31) / 32;
    Statement statement;
    statement << ".reg .pred t"
              << ".reg .b32 x, y, z"
              << "mov.b32 z, 0xff800000";
    for (int v = 0; v < scores; ++v) {
      const int word = v / 2 % 2 * words + v / 16, column = 8 * (v % 16 / 4) + v % 2;
      statement << "and.b32 y, " + name("%", 1 + word) + ", " + std::to_string(1u << column) << "setp.ne.u32 t, y, 0"
                << "mul.f32 x, " + name("s", v) + ", %0"
                << "selp.b32 " + name("s", v) + ", x, z, t";
    }
    const std::string of_words = "[" + std::to_string(words) + "]";
    return function("hide_by_bits(float factor, const unsigned (&of_first)" + of_words +
                        ", const unsigned (&of_second)" + of_words + ")",
                    statement.text(": \"f\"(factor), " + operands("r", "of_first", words) + ", " +
                                   operands("r", "of_second", words)));
  }

  // Scores are capped, lowered by their key's distance, or both: see attention/altered_scores.cuh.
  std::string alter() const {
    Statement statement;
    statement << ".reg .f32 x";
    for (int v = 0; v < scores; ++v) {
      const std::string score = name("s", v);
      if (c.facts.softcap != Softcap::none)
        statement << "mul.f32 x, " + score + ", %0"
                  << "ex2.approx.ftz.f32 x, x"
                  << "add.f32 x, x, 0f3F800000"
                  << "rcp.approx.ftz.f32 x, x"
                  << "fma.rn.f32 " + score + ", x, 0fC0000000, 0f3F800000";
      if (c.facts.alibi != Alibi::none)
        statement << "sub.f32 x, " + name("%", 4 + v / 2 % 2) + ", " + float_of(8 * (v / 4) + v % 2) << "abs.f32 x, x"
                  << "mul.f32 x, x, " + name("%", 2 + v / 2 % 2) << "fma.rn.f32 " + score + ", " + score + ", %1, x";
    }
    return function("alter(float inner, float outer, const float (&addend)[2], const float (&distances)[2])",
                    statement.text(": \"f\"(inner), \"f\"(outer), " + operands("f", "addend", 2) + ", " +
                                   operands("f", "distances", 2)));
  }

  // See softmax_8_bit.cuh.
  std::string to_exponents() const {
    Statement statement;
    statement << ".reg .b32 x<4>, y";
    for (int v = 0; v < scores; v += 8) {
      for (int i = v; i < v + 8; ++i)
        statement << "fma.rn.f32 " + name("s", i) + ", " + name("s", i) + ", %2, " + name("%", 3 + i / 2 % 2);
      for (int i = 0; i < 4; ++i) {
        const std::string pair = name("s", v + 2 * i) + ", " + name("s", v + 2 * i + 1), of_row = name("x", i);
        if (v == 0) {
          statement << "max.s32 " + of_row + ", " + pair;
        } else {
          statement << "max.s32 y, " + pair << "max.s32 " + of_row + ", " + of_row + ", y";
        }
      }
    }
    statement << "max.s32 %0, x0, x2"
              << "max.s32 %1, x1, x3";
    return function("to_exponents(float multiplier, const float (&addend)[2], int (&top)[2])",
                    statement.text(operands("=r", "top", 2) + " : \"f\"(multiplier), " + operands("f", "addend", 2)));
  }

  // Exponents become probabilities, are summed and packed: a part while the exponentials of the next are under way.
  std::string make_probabilities() const {
    constexpr int kPart = 16;  // values of a step of P's product
    Statement statement;
    begin_sums(statement) << ".reg .b16 l, h";
    const auto raise = [&](int step) {
      for (int v = kPart * step; v < kPart * (step + 1) && v < scores; ++v)
        statement << "ex2.approx.ftz.f32 " + name("s", v) + ", " + name("s", v);
    };
    raise(0);
    for (int step = 0; step < output_steps(c); ++step) {
      raise(step + 1);
      for (int v = kPart * step; v < kPart * (step + 1); ++v) statement << sum_text(v);
      for (int i = 0; i < 4; ++i) {
        const int first = kPart * step + i / 2 * 8 + i % 2 * 2;
        statement << "cvt.rn.satfinite.e4m3x2.f32 l, " + name("s", first + 1) + ", " + name("s", first)
                  << "cvt.rn.satfinite.e4m3x2.f32 h, " + name("s", first + 5) + ", " + name("s", first + 4)
                  << "mov.b32 " + name("p", 4 * step + i) + ", {l, h}";
      }
    }
    end_sums(statement);
    return function("make_probabilities(float (&sum)[2])", statement.text(operands("+f", "sum", 2)));
  }

  // Of a vector of four words: where it lies, and which values its word i is. See promoted.cuh.
  int words() const { return promoted_sums_bytes(c) / 4 / 128; }
  int word(int vector, int i) const {
    return keeps_sums_in_o(c) ? vector / 2 * 8 + 2 * i + vector % 2 : 4 * vector + i;
  }
  std::string place(int vector) const {
    if (!keeps_sums_in_o(c)) return "[%0+" + std::to_string(vector * 16 * 128) + "]";
    return "[" + name("%", vector % 2) + "+" + std::to_string(vector / 2 * 64) + "]";
  }
  std::string predicate(int vector) const { return keeps_sums_in_o(c) ? "@" + name("t", vector % 2) + " " : ""; }
  std::string space() const { return keeps_sums_in_o(c) ? "global" : "shared"; }
  int first_factor() const { return keeps_sums_in_o(c) ? 2 : 1; }
  std::string places() const {
    return keeps_sums_in_o(c) ? "\"l\"(of_row[0]), \"l\"(of_row[1])" : std::string("\"r\"(address)");
  }
  std::string parameters_of_sums() const {
    return keeps_sums_in_o(c) ? "char* const (&of_row)[2], " : std::string("unsigned address, ");
  }
  void begin_sums_of_rows(Statement& statement) const {
    if (!keeps_sums_in_o(c)) return;
    statement << ".reg .pred t<2>"
              << "setp.ne.u64 t0, %0, 0"
              << "setp.ne.u64 t1, %1, 0";
  }

  std::string add_promoted() const {
    Statement statement;
    statement << ".reg .b32 x<4>, y"
              << ".reg .b16 l, h";
    begin_sums_of_rows(statement);
    for (int vector = 0; vector < words() / 4; ++vector) {
      if (keeps_sums_in_o(c))
        for (int i = 0; i < 4; ++i) statement << "mov.b32 " + name("x", i) + ", 0";
      statement << predicate(vector) + "ld." + space() + ".v4.b32 {x0, x1, x2, x3}, " + place(vector);
      for (int i = 0; i < 4; ++i) {
        const int at = word(vector, i);
        const auto add = [&](const std::string& value, int v, int row) {
          statement << "fma.rn.f32 " + name("o", v) + ", " + value + ", " + name("%", first_factor() + row) + ", " +
                           name("o", v);
        };
        if (!keeps_f16_sums(c)) {
          add(name("x", i), at, i / 2);
          continue;
        }
        statement << "mov.b32 {l, h}, " + name("x", i);
        for (int half = 0; half < 2; ++half) {
          statement << std::string("cvt.f32.f16 y, ") + (half == 0 ? "l" : "h");
          add("y", 2 * at + half, at % 2);
        }
      }
    }
    return function("add_promoted(" + parameters_of_sums() + "const float (&factor)[2])",
                    statement.text(": " + places() + ", " + operands("f", "factor", 2) + " : \"memory\""));
  }

  std::string keep_promoted() const {
    Statement statement;
    statement << ".reg .b32 x<4>, y, z";
    begin_sums_of_rows(statement);
    for (int vector = 0; vector < words() / 4; ++vector) {
      std::string values;
      for (int i = 0; i < 4; ++i) {
        const int at = word(vector, i);
        values += (i > 0 ? ", " : "") + (keeps_f16_sums(c) ? name("x", i) : name("o", at));
        if (!keeps_f16_sums(c)) continue;
        const std::string factor = name("%", first_factor() + at % 2);
        statement << "mul.f32 y, " + name("o", 2 * at) + ", " + factor
                  << "mul.f32 z, " + name("o", 2 * at + 1) + ", " + factor
                  << "cvt.rn.f16x2.f32 " + name("x", i) + ", z, y";
      }
      statement << predicate(vector) + "st." + space() + ".v4.b32 " + place(vector) + ", {" + values + "}";
    }
    return function("keep_promoted(" + parameters_of_sums() + "const float (&factor)[2])",
                    statement.text(": " + places() + ", " + operands("f", "factor", 2) + " : \"memory\""));
  }

  // Rows of O in global memory, which begin there for a thread; null: there is none. See give_columns().
  std::string store_rows(bool is_f32) const {
    Statement statement;
    statement << ".reg .pred t<2>"
              << ".reg .b32 x, y"
              << "setp.ne.u64 t0, %0, 0"
              << "setp.ne.u64 t1, %1, 0";
    const std::string type(to_word(o_dtype(c.facts)));
    for (int row = 0; row < 2; ++row) {
      const std::string store = "@" + name("t", row) + " st.global.";
      const auto place = [&](int bytes) { return " [" + name("%", row) + "+" + std::to_string(bytes) + "], {"; };
      for (int i = 0; i < (has_fours(c) ? o_columns(c) / 16 : o_columns(c) / 8); ++i) {
        if (!has_fours(c)) {
          statement << store + "v2.b32" + place(32 * i) + names("o", 4 * i + 2 * row, 2) + "}";
          continue;
        }
        const int v = 8 * i + 2 * row;
        if (is_f32) {
          statement << store + "v4.b32" + place(64 * i) + name("o", v) + ", " + name("o", v + 4) + ", " +
                           name("o", v + 1) + ", " + name("o", v + 5) + "}";
        } else {
          statement << "cvt.rn." + type + "x2.f32 x, " + name("o", v + 4) + ", " + name("o", v)
                    << "cvt.rn." + type + "x2.f32 y, " + name("o", v + 5) + ", " + name("o", v + 1)
                    << store + "v2.b32" + place(32 * i) + "x, y}";
        }
      }
    }
    return function(std::string(is_f32 ? "store_f32_rows" : "store_16_bit_rows") + "(char* const (&of_row)[2])",
                    statement.text(": \"l\"(of_row[0]), \"l\"(of_row[1]) : \"memory\""));
  }

  // O of 16 bits in shared memory, from a swizzled address on: see stage_normalized().
  std::string stage() const {
    const int span = swizzle_span_bytes(c.swizzle);
    const std::string type(to_word(c.facts.dtype));
    Statement statement;
    statement << ".reg .b32 x<4>, y";
    for (int i = 0; i < v_columns(c) / 16; ++i) {
      for (int j = 0; j < 4; ++j)
        statement << "cvt.rn." + type + "x2.f32 " + name("x", j) + ", " + name("o", 8 * i + 2 * j + 1) + ", " +
                         name("o", 8 * i + 2 * j);
      statement << "xor.b32 y, %0, " + std::to_string(32 * i % span)
                << "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y+" +
                       std::to_string(32 * i / span * kRowsPerWarpgroup * span) + "], {x0, x1, x2, x3}";
    }
    return function("stage(unsigned address)", statement.text(": \"r\"(address) : \"memory\""));
  }

  const Config& c;
  int scores;
  int outputs;
  int registers_of_p;
};

}  // namespace

std::string consumer_registers(const Config& config) {
  const std::string of_scores = std::to_string(config.tile_n / 2), of_output = std::to_string(v_columns(config) / 2);
  return "// Generated: the registers of one kernel's consumers, and what is done with them. fmha/registers.cuh says "
         "how to use\n"
         "// them.\n#pragma once\n\n#include \"fmha/registers.cuh\"\n\nnamespace tessera::fmha {\n\ntemplate <>\n"
         "struct Registers<" +
         of_scores + ", " + of_output + "> {\n" + Emitter(config).all() + "};\n\n}  // namespace tessera::fmha\n";
}

}  // namespace tessera::fmha
