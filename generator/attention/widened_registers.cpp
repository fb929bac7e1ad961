#include "generator/attention/widened_registers.h"

#include <string>

#include "generator/attention/assembly_text.h"
#include "generator/words.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha_latent {
namespace {

using fmha::function;
using fmha::name;
using fmha::names;
using fmha::operands;
using fmha::Statement;

constexpr int kTiles = kHeadDimV / 2 / 64;         // of a warpgroup's columns, of O^T
constexpr int kStepsOfPanel = kSpanElements / 16;  // of S^T
constexpr int kStepsOfKeys = kBlockKeys / 16;      // of O^T
constexpr int kHalfOfA = 8;                        // registers of A: one half is widened while the other is read

/// Of a Config: a thread has two rows of each group of eight.
int groups(const Config& c) { return c.tile_m / 8; }
int scores(const Config& c) { return 4 * groups(c); }  // [group][key, and that 8 further][row of two]
std::string score(int group, int key, int row) { return name("s", 4 * group + 2 * key + row); }
/// Of O^T: [tile][group][column of two][row of two].
std::string output(const Config& c, int tile, int group, int column, int row) {
  return name("o", tile * scores(c) + 4 * group + 2 * column + row);
}

/// Two values of f16 of two bytes each.
void widen(Statement& statement, const std::string& from, int low, int high) {
  statement << "mov.b32 {l, h}, " + from << "cvt.rn.f16x2.e4m3x2 " + name("a", low) + ", l"
            << "cvt.rn.f16x2.e4m3x2 " + name("a", high) + ", h";
}

void declare_b(Statement& statement, unsigned long long at_0) {
  statement << ".reg .b16 l, h"
            << ".reg .b32 x<4>, y"
            << ".reg .b64 b<4>, high"
            << "mov.b64 high, " + std::to_string(at_0 >> 32 << 32);
}
void make_b(Statement& statement, int i, const std::string& low, int bytes) {
  statement << "add.s32 " + name("x", i) + ", " + low + ", " + std::to_string(bytes >> 4)
            << "cvt.u64.u32 " + name("b", i) + ", " + name("x", i)
            << "or.b64 " + name("b", i) + ", " + name("b", i) + ", high";
}
void multiply(Statement& statement, const WgmmaShape& shape, const std::string& accumulators, int a, int b,
              const std::string& adds) {
  statement << "wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) + "k16.f32.f16.f16 {" + accumulators +
                   "}, {" + names("a", a, 4) + "}, " + name("b", b) + ", " + adds + ", 1, 1, " +
                   (shape.b_is_mn_major ? "1" : "0");
}

// S^T = K Q^T over a panel, or S^T +=: a half of it at a time. The widened half's registers are free when all products
// but the newest are done.
std::string multiply_panel(const Config& c, bool adds) {
  Statement statement;
  declare_b(statement, k_major_descriptor(0, c.tile_m, c.swizzle));
  statement << ".reg .b32 k<8>"
            << ".reg .pred t, u"
            << "mov.pred t, " + std::string(adds ? "1" : "0") << "mov.pred u, 1";
  for (int rows = 0; rows < 2; ++rows)
    statement << "ld.shared.v4.b32 {" + names("k", 4 * rows, 4) + "}, [%0+" + std::to_string(8 * rows * kRawSpanBytes) +
                     "]";
  for (int half = 0; half < 2; ++half) {
    if (adds) statement << "wgmma.wait_group.sync.aligned 1";
    for (int i = 0; i < kStepsOfPanel / 2; ++i) {
      const int step = half * kStepsOfPanel / 2 + i, a = half * kHalfOfA + 4 * i;
      make_b(statement, step, "%1", k_major_step_bytes(step, c.tile_m, c.swizzle));
      widen(statement, name("k", step), a, a + 2);
      widen(statement, name("k", 4 + step), a + 1, a + 3);
    }
    statement << "wgmma.fence.sync.aligned";
    for (int i = 0; i < kStepsOfPanel / 2; ++i) {
      const int step = half * kStepsOfPanel / 2 + i;
      multiply(statement, score_wgmma(c), names("s", 0, scores(c)), half * kHalfOfA + 4 * i, step,
               step == 0 ? "t" : "u");
    }
    statement << "wgmma.commit_group.sync.aligned";
  }
  return function(std::string(adds ? "add" : "begin") + "_scores(unsigned keys, unsigned q_low)",
                  statement.text(": \"r\"(keys), \"r\"(q_low) : \"memory\""));
}

// O^T += V^T P^T, or O^T = V^T P^T, of a block, likewise half of the columns at a time.
std::string multiply_block(const Config& c) {
  Statement statement;
  declare_b(statement, mn_major_descriptor(0, kBlockKeys, p_swizzle(c)));
  statement << ".reg .b32 k<8>"
            << ".reg .pred t, u"
            << "setp.ne.b32 t, %5, 0"
            << "mov.pred u, 1";
  for (int step = 0; step < kStepsOfKeys; ++step) {
    for (int i = 0; i < 2; ++i)
      for (int key = 0; key < 2; ++key)
        statement << "ld.shared.v2.b32 {" + names("k", 4 * i + 2 * key, 2) + "}, [" + name("%", key) + "+" +
                         std::to_string((16 * step + 8 * i) * kRawSpanBytes) + "]";
    make_b(statement, step, "%4", mn_major_step_bytes(step, p_swizzle(c)));
    for (int half = 0; half < 2; ++half) {
      if (step > 0) statement << "wgmma.wait_group.sync.aligned 1";
      for (int j = 0; j < kTiles / 2; ++j) {
        for (int i = 0; i < 2; ++i) {
          statement << "prmt.b32 y, " + name("k", 4 * i + half) + ", " + name("k", 4 * i + 2 + half) + ", " +
                           name("%", 2 + j);
          widen(statement, "y", half * kHalfOfA + 4 * j + 2 * i, half * kHalfOfA + 4 * j + 2 * i + 1);
        }
      }
      statement << "wgmma.fence.sync.aligned";
      for (int j = 0; j < kTiles / 2; ++j)
        multiply(statement, own_wgmma(c), names("o", (half * kTiles / 2 + j) * scores(c), scores(c)),
                 half * kHalfOfA + 4 * j, step, step == 0 ? "t" : "u");
      statement << "wgmma.commit_group.sync.aligned";
    }
  }
  return function(
      "add_values(unsigned first, unsigned second, unsigned low_half, unsigned high_half, unsigned p_low, "
      "int accumulate)",
      statement.text(": \"r\"(first), \"r\"(second), \"r\"(low_half), \"r\"(high_half), \"r\"(p_low), "
                     "\"r\"(accumulate) : \"memory\""));
}

// Scores times a factor, or -inf behind a row's end: one for each row of a thread.
std::string hide_rows(const Config& c) {
  Statement statement;
  statement << ".reg .pred t"
            << ".reg .b32 x, z"
            << "mov.b32 z, 0xff800000";
  const bool is_one = c.facts.mask == Mask::none;
  for (int i = 0; i < groups(c); ++i)
    for (int row = 0; row < 2; ++row)
      for (int key = 0; key < 2; ++key)
        statement << "setp.gt.s32 t, " + name("%", 1 + (is_one ? 0 : 2 * i + row)) + ", " + std::to_string(8 * key)
                  << "mul.f32 x, " + score(i, key, row) + ", %0"
                  << "selp.b32 " + score(i, key, row) + ", x, z, t";
  const int ends = is_one ? 1 : 2 * groups(c);
  return function("hide_behind(float factor, const int (&ends)[" + std::to_string(ends) + "])",
                  statement.text(": \"f\"(factor), " + operands("r", "ends", ends)));
}

// Two rows of a thread, of what a region of shared memory has of each row. `from`: the operand that is the thread's
// place in such a region at address 0.
std::string load_two(const std::string& to, const std::string& from, int region, int group) {
  return "ld.shared.v2.b32 {" + to + "0, " + to + "1}, [" + from + "+" + std::to_string(region + 32 * group) + "]";
}
int limits(const Config& c) { return smem_layout(c).references.offset; }
int subtrahends(const Config& c) { return limits(c) + 4 * kRows; }
int scales(const Config& c) { return limits(c) + 8 * kRows; }

// Whether a score is beyond its row's limit.
std::string find_exceeded(const Config& c) {
  Statement statement;
  statement << ".reg .pred t"
            << ".reg .b32 x, l<2>"
            << "mov.pred t, 0";
  for (int i = 0; i < groups(c); ++i) {
    statement << load_two("l", "%1", limits(c), i);
    for (int row = 0; row < 2; ++row)
      statement << "max.f32 x, " + score(i, 0, row) + ", " + score(i, 1, row)
                << "setp.gt.or.f32 t, x, " + name("l", row) + ", t";
  }
  statement << "selp.u32 %0, 1, 0, t";
  return function("find_exceeded(unsigned& is_exceeded, unsigned at)",
                  statement.text("\"=r\"(is_exceeded) : \"r\"(at) : \"memory\""));
}

// Of what each lane has of each row, in w, the whole over a warp's keys comes to the lanes that have the row: lanes
// exchange halves of what they have, and what is left whole. `%octet`: the operand with the lane's octet.
void reduce_rows(Statement& statement, const Config& c, const std::string& octet, const std::string& add) {
  statement << ".reg .pred t"
            << ".reg .b32 x";
  for (int half = groups(c) / 2; half > 0; half /= 2) {
    statement << "and.b32 x, " + octet + ", " + std::to_string(half) << "setp.ne.u32 t, x, 0";
    for (int i = 0; i < 2 * half; ++i) {
      const std::string lower = name("w", i), upper = name("w", 2 * half + i);
      statement << "selp.b32 x, " + lower + ", " + upper + ", t"
                << "shfl.sync.bfly.b32 x, x, " + std::to_string(4 * half) + ", 31, -1"
                << "selp.b32 " + lower + ", " + upper + ", " + lower + ", t"
                << add + " " + lower + ", " + lower + ", x";
    }
  }
  for (int lanes = 4 * groups(c); lanes < 32; lanes *= 2)
    for (int i = 0; i < 2; ++i)
      statement << "shfl.sync.bfly.b32 x, " + name("w", i) + ", " + std::to_string(lanes) + ", 31, -1"
                << add + " " + name("w", i) + ", " + name("w", i) + ", x";
}

// The largest score of the rows that a lane has in the end, times their scales.
std::string find_row_maxima(const Config& c) {
  Statement statement;
  statement << ".reg .b32 f<2>";
  for (int i = 0; i < groups(c); ++i) {
    statement << load_two("f", "%3", scales(c), i);
    for (int row = 0; row < 2; ++row) {
      const std::string to = name("w", 2 * i + row);
      statement << "max.f32 " + to + ", " + score(i, 0, row) + ", " + score(i, 1, row)
                << "mul.f32 " + to + ", " + to + ", " + name("f", row);
    }
  }
  reduce_rows(statement, c, "%2", "max.f32");
  statement << "mov.b32 %0, w0"
            << "mov.b32 %1, w1";
  return function("find_maxima(float (&max)[2], int octet, unsigned at)",
                  statement.text(operands("=f", "max", 2) + " : \"r\"(octet), \"r\"(at) : \"memory\""));
}

// Scores to P in shared memory, from a swizzled address on, and sums of each row's two in w.
std::string make_probabilities(const Config& c) {
  Statement statement;
  statement << ".reg .b32 m<2>, f<2>, p<" + std::to_string(2 * groups(c)) + ">, x";
  for (int i = 0; i < groups(c); ++i) {
    statement << load_two("m", "%0", subtrahends(c), i) << load_two("f", "%0", scales(c), i);
    for (int row = 0; row < 2; ++row) {
      statement << "neg.f32 " + name("m", row) + ", " + name("m", row);
      for (int key = 0; key < 2; ++key)
        statement << "fma.rn.f32 " + score(i, key, row) + ", " + score(i, key, row) + ", " + name("f", row) + ", " +
                         name("m", row)
                  << "ex2.approx.ftz.f32 " + score(i, key, row) + ", " + score(i, key, row);
      statement << "add.f32 " + name("w", 2 * i + row) + ", " + score(i, 0, row) + ", " + score(i, 1, row);
    }
    for (int key = 0; key < 2; ++key)
      statement << "cvt.rn.f16x2.f32 " + name("p", 2 * i + key) + ", " + score(i, key, 1) + ", " + score(i, key, 0);
  }
  for (int i = 0; i < groups(c); i += 2)
    statement << "xor.b32 x, %1, " + std::to_string(16 * i)
              << "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [x], {" + names("p", 2 * i, 4) + "}";
  return function("exponentiate(unsigned at, unsigned address)",
                  statement.text(": \"r\"(at), \"r\"(address) : \"memory\""));
}

std::string add_row_sums(const Config& c) {
  Statement statement;
  reduce_rows(statement, c, "%2", "add.f32");
  statement << "add.f32 %0, %0, w0"
            << "add.f32 %1, %1, w1";
  return function("add_sums(float (&sum)[2], int octet)", statement.text(operands("+f", "sum", 2) + " : \"r\"(octet)"));
}

std::string rescale_columns(const Config& c) {
  Statement statement;
  statement << ".reg .b32 f<2>";
  for (int i = 0; i < groups(c); ++i) {
    statement << load_two("f", "%0", smem_layout(c).factors.offset, i);
    for (int row = 0; row < 2; ++row)
      for (int tile = 0; tile < kTiles; ++tile)
        for (int column = 0; column < 2; ++column) {
          const std::string of = output(c, tile, i, column, row);
          statement << "mul.f32 " + of + ", " + of + ", " + name("f", row);
        }
  }
  return function("rescale(unsigned at)", statement.text(": \"r\"(at) : \"memory\""));
}

// Rows of eight columns a lane. `places`: of one or two rows of the tile's each, 0 where it is none of the sequence's;
// a lane asks those that have its rows.
std::string store_rows(const Config& c, bool is_part) {
  constexpr int kColumns = 2 * kTiles;
  const int lanes = (c.tile_m + 31) / 32;
  Statement statement;
  statement << ".reg .pred t"
            << ".reg .b32 x, y, z, v<8>"
            << ".reg .b64 a";
  const std::string first = name("%", lanes), offset = name("%", lanes + 1), type(to_word(c.facts.dtype));
  for (int i = 0; i < groups(c); ++i) {
    for (int row = 0; row < 2; ++row) {
      statement << "mov.b64 {x, y}, " + name("%", i / 4)
                << "add.s32 z, " + first + ", " + std::to_string(8 * (i % 4) + row)
                << "shfl.sync.idx.b32 x, x, z, 31, -1"
                << "shfl.sync.idx.b32 y, y, z, 31, -1"
                << "mov.b64 a, {x, y}"
                << "setp.ne.u64 t, a, 0"
                << "add.u64 a, a, " + offset;
      if (is_part) {
        for (int tile = 0; tile < kTiles; tile += 2)
          statement << "@t st.global.v4.b32 [a+" + std::to_string(8 * tile) + "], {" + output(c, tile, i, 0, row) +
                           ", " + output(c, tile, i, 1, row) + ", " + output(c, tile + 1, i, 0, row) + ", " +
                           output(c, tile + 1, i, 1, row) + "}";
        continue;
      }
      for (int j = 0; j < kColumns / 2; ++j)
        statement << "cvt.rn." + type + "x2.f32 " + name("v", j) + ", " + output(c, j, i, 1, row) + ", " +
                         output(c, j, i, 0, row);
      statement << "@t st.global.v4.b32 [a], {" + names("v", 0, 4) + "}";
    }
  }
  return function(std::string(is_part ? "store_f32_rows" : "store_16_bit_rows") +
                      "(const unsigned long long (&places)[" + std::to_string(lanes) +
                      "], int first, unsigned long long offset)",
                  statement.text(": " + operands("l", "places", lanes) + ", \"r\"(first), \"l\"(offset) : \"memory\""));
}

}  // namespace

std::string widened_registers(const Config& config) {
  const std::string declaration = function(
      "declare()", "    asm volatile(\".reg .b32 s<" + std::to_string(scores(config)) + ">; .reg .b32 o<" +
                       std::to_string(kTiles * scores(config)) + ">; .reg .b32 a<" + std::to_string(2 * kHalfOfA) +
                       ">; .reg .b32 w<" + std::to_string(2 * groups(config)) + ">;\");\n");
  std::string functions = declaration + multiply_panel(config, false) + multiply_panel(config, true) +
                          multiply_block(config) + hide_rows(config) + find_exceeded(config) + find_row_maxima(config) +
                          make_probabilities(config) + add_row_sums(config) + rescale_columns(config) +
                          store_rows(config, false);
  if (is_dealt(config)) functions += store_rows(config, true);
  return "// Generated: the registers of one kernel's consumers, and what is done with them. fmha_latent/registers.cuh "
         "says how\n// to use them.\n#pragma once\n\n#include \"fmha_latent/registers.cuh\"\n\nnamespace "
         "tessera::fmha_latent {\n\ntemplate <>\nstruct Registers<" +
         std::to_string(config.tile_m) + "> {\n" + functions + "};\n\n}  // namespace tessera::fmha_latent\n";
}

}  // namespace tessera::fmha_latent
