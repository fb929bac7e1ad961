#include "generator/attention/latent_registers.h"

#include <string>

#include "generator/attention/assembly_text.h"
#include "generator/attention/softmax_text.h"
#include "generator/words.h"
#include "spec/matrix_descriptor.h"

namespace tessera::fmha_latent {
namespace {

using fmha::function;
using fmha::name;
using fmha::names;
using fmha::operands;
using fmha::Statement;

constexpr int kScores = kBlockKeys / 2, kOutputs = kHeadDimV / 4, kRegistersOfP = kBlockKeys / 4;
constexpr int kSteps = kBlockKeys / 16;  // of a panel, and of a block of values

/// A product's steps. Descriptors have a low word of their own each, from that of the first, and one high word.
class Product {
 public:
  /// `adds`: whether the first step adds to what is there: "1", "0", or the operand that says it.
  explicit Product(const std::string& adds) {
    statement_ << ".reg .pred t, u"
               << ".reg .b32 x"
               << "mov.pred u, 1" << (adds[0] == '%' ? "setp.ne.b32 t, " + adds + ", 0" : "mov.pred t, " + adds);
  }
  /// Of operand `to`. `first`: at address 0.
  void declare_descriptor(const std::string& to, unsigned long long first) {
    statement_ << ".reg .b64 " + to << ".reg .b32 high_" + to
               << "mov.b32 high_" + to + ", " + std::to_string(first >> 32);
  }
  void make_descriptor(const std::string& to, const std::string& low, int bytes) {
    statement_ << "add.s32 x, " + low + ", " + std::to_string(bytes >> 4) << "mov.b64 " + to + ", {x, high_" + to + "}";
  }
  void step(int i, const std::string& instruction, const std::string& accumulators, const std::string& a,
            const std::string& flags) {
    statement_ << instruction + " {" + accumulators + "}, " + a + ", b, " + (i == 0 ? "t" : "u") + ", 1, 1" + flags;
  }
  std::string text(const std::string& operand_list) const {
    return statement_.text(": " + operand_list + " : \"memory\"");
  }

 private:
  Statement statement_;
};

std::string instruction(const WgmmaShape& shape) {
  const std::string type(to_word(shape.dtype));
  return "wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) + "k16.f32." + type + "." + type;
}

// Over a panel S = Q K^T, or S += Q K^T. Not one function that is told which: that would read S of the pair before,
// registers for all that is between.
std::string multiply_keys(const Config& c, bool adds) {
  Product product(adds ? "1" : "0");
  product.declare_descriptor("a", k_major_descriptor(0, kRows, c.swizzle));
  product.declare_descriptor("b", k_major_descriptor(0, kBlockKeys, c.swizzle));
  for (int i = 0; i < kSteps; ++i) {
    product.make_descriptor("a", "%0", k_major_step_bytes(i, kRows, c.swizzle));
    product.make_descriptor("b", "%1", k_major_step_bytes(i, kBlockKeys, c.swizzle));
    product.step(i, instruction(score_wgmma(c)), names("s", 0, kScores), "a", ", 0, 0");
  }
  return function(std::string(adds ? "add" : "begin") + "_scores(unsigned q_low, unsigned k_low)",
                  product.text("\"r\"(q_low), \"r\"(k_low)"));
}

// O += P V, or O = P V. `p_low`: of P in shared memory; else it lies in registers.
std::string multiply_values(const WgmmaShape& shape, const Config& c) {
  const bool is_own = shape.a_in_registers;
  Product product("%1");
  product.declare_descriptor("b", mn_major_descriptor(0, kBlockKeys, Swizzle::b128));
  if (!is_own) product.declare_descriptor("a", k_major_descriptor(0, kRows, c.swizzle));
  for (int i = 0; i < kSteps; ++i) {
    product.make_descriptor("b", "%0", mn_major_step_bytes(i, Swizzle::b128));
    if (!is_own) product.make_descriptor("a", "%2", k_major_step_bytes(i, kRows, c.swizzle));
    product.step(i, instruction(shape), names("o", 0, kOutputs), is_own ? "{" + names("p", 4 * i, 4) + "}" : "a",
                 is_own ? ", 1" : ", 0, 1");
  }
  const std::string operand_list = "\"r\"(v_low), \"r\"(accumulate)";
  if (is_own) return function("multiply_own(unsigned v_low, int accumulate)", product.text(operand_list));
  return function("multiply_other(unsigned p_low, unsigned v_low, int accumulate)",
                  product.text(operand_list + ", \"r\"(p_low)"));
}

// Scores times a factor, or -inf.
std::string hide(const Config& c) {
  Statement statement;
  statement << ".reg .pred t"
            << ".reg .b32 x, y, z"
            << "mov.b32 z, 0xff800000";
  for (int v = 0; v < kScores; ++v) {
    const int column = 8 * (v / 4) + v % 2;
    if (gathers(c)) {
      statement << "and.b32 y, " + name("%", 1 + column / kKeysOfWarp) + ", " +
                       std::to_string(1u << column % kKeysOfWarp)
                << "setp.ne.u32 t, y, 0";
    } else {
      statement << "setp.gt.s32 t, " + name("%", 1 + v / 2 % 2) + ", " + std::to_string(column);
    }
    statement << "mul.f32 x, " + name("s", v) + ", %0"
              << "selp.b32 " + name("s", v) + ", x, z, t";
  }
  if (gathers(c)) {
    const std::string count = std::to_string(kGatherWarps);
    return function("hide_missing(float factor, const unsigned (&present)[" + count + "])",
                    statement.text(": \"f\"(factor), " + operands("r", "present", kGatherWarps)));
  }
  return function("hide_behind(float factor, const int (&ends)[2])",
                  statement.text(": \"f\"(factor), " + operands("r", "ends", 2)));
}

// P to shared memory, from a swizzled address on.
std::string store_probabilities() {
  Statement statement;
  statement << ".reg .b32 y";
  for (int i = 0; i < kBlockKeys / 16; ++i)
    statement << "xor.b32 y, %0, " + std::to_string(32 * i)
              << "stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [y], {" + names("p", 4 * i, 4) + "}";
  return function("store_probabilities(unsigned address)", statement.text(": \"r\"(address) : \"memory\""));
}

std::string begin_rows() { return "setp.ne.u64 t0, %0, 0; setp.ne.u64 t1, %1, 0"; }

// Rows of 16 bits. Each of two lanes has a word of each of two chunks of 16 bytes, side by side: the first gets both of
// the first chunk, the second both of the other, so that four lanes that hold a row have 32 bytes of it.
std::string store_16_bit_rows(const Config& c) {
  Statement statement;
  statement << ".reg .pred t<2>, q"
            << ".reg .b32 x, y, z" << begin_rows() << "setp.ne.u32 q, %2, 0";
  const std::string type(to_word(c.facts.dtype));
  for (int row = 0; row < 2; ++row) {
    for (int i = 0; i < kHeadDimV / 16; i += 2) {
      const int v = 4 * i + 2 * row;
      statement << "cvt.rn." + type + "x2.f32 x, " + name("o", v + 1) + ", " + name("o", v)
                << "cvt.rn." + type + "x2.f32 y, " + name("o", v + 5) + ", " + name("o", v + 4) << "selp.b32 z, x, y, q"
                << "shfl.sync.bfly.b32 z, z, 1, 31, -1"
                << "selp.b32 x, z, x, q"
                << "selp.b32 y, y, z, q"
                << "@" + name("t", row) + " st.global.v2.b32 [" + name("%", row) + "+" + std::to_string(16 * i) +
                       "], {x, y}";
    }
  }
  return function("store_16_bit_rows(char* const (&of_row)[2], unsigned is_odd)",
                  statement.text(": \"l\"(of_row[0]), \"l\"(of_row[1]), \"r\"(is_odd) : \"memory\""));
}

// Rows of fp32.
std::string store_f32_rows() {
  Statement statement;
  statement << ".reg .pred t<2>" << begin_rows();
  for (int row = 0; row < 2; ++row)
    for (int i = 0; i < kHeadDimV / 16; ++i)
      statement << "@" + name("t", row) + " st.global.v2.b32 [" + name("%", row) + "+" + std::to_string(32 * i) +
                       "], {" + names("o", 4 * i + 2 * row, 2) + "}";
  return function("store_f32_rows(char* const (&of_row)[2])",
                  statement.text(": \"l\"(of_row[0]), \"l\"(of_row[1]) : \"memory\""));
}

// Both rows of fp32 in shared memory.
std::string stage_rows() {
  Statement statement;
  for (int row = 0; row < 2; ++row)
    for (int i = 0; i < kHeadDimV / 16; ++i)
      statement << "st.shared.v2.b32 [" + name("%", row) + "+" + std::to_string(32 * i) + "], {" +
                       names("o", 4 * i + 2 * row, 2) + "}";
  return function("stage_rows(unsigned first, unsigned second)",
                  statement.text(": \"r\"(first), \"r\"(second) : \"memory\""));
}

}  // namespace

std::string latent_registers(const Config& config) {
  std::string functions = fmha::declare_registers(kScores, kOutputs, kRegistersOfP) + multiply_keys(config, false) +
                          multiply_keys(config, true) + multiply_values(own_wgmma(config), config) +
                          multiply_values(other_wgmma(config), config) + hide(config) +
                          fmha::find_maxima_text(kScores) + fmha::exponentiate_text(kScores) +
                          fmha::pack_text(kRegistersOfP, to_word(config.facts.dtype)) + store_probabilities() +
                          fmha::rescale_text(kOutputs) + store_16_bit_rows(config);
  if (is_dealt(config)) functions += store_f32_rows();
  if (joins_tails(config)) functions += stage_rows();
  return "// Generated: the registers of one kernel's consumers, and what is done with them. fmha_latent/registers.cuh "
         "says how\n// to use them.\n#pragma once\n\n#include \"fmha_latent/registers.cuh\"\n\nnamespace "
         "tessera::fmha_latent {\n\ntemplate <>\nstruct Registers<" +
         std::to_string(kRows) + "> {\n" + functions + "};\n\n}  // namespace tessera::fmha_latent\n";
}

}  // namespace tessera::fmha_latent
