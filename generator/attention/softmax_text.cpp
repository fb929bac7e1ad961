#include "generator/attention/softmax_text.h"

namespace tessera::fmha {

std::string declare_registers(int scores, int outputs, int registers_of_p) {
  return function("declare()", "    asm volatile(\".reg .b32 s<" + std::to_string(scores) + ">; .reg .b32 o<" +
                                   std::to_string(outputs) + ">; .reg .b32 p<" + std::to_string(registers_of_p) +
                                   ">;\");\n");
}

std::string find_maxima_text(int scores) {
  Statement statement;
  statement << ".reg .f32 x<4>";
  for (int v = 0; v < scores; v += 2) {
    const std::string of_pair = name("x", v / 2 % 4);
    if (v < 8) {
      statement << "max.f32 " + of_pair + ", " + name("s", v) + ", " + name("s", v + 1);
    } else {
      for (int i = 0; i < 2; ++i) statement << "max.f32 " + of_pair + ", " + of_pair + ", " + name("s", v + i);
    }
  }
  statement << "max.f32 %0, x0, x2"
            << "max.f32 %1, x1, x3";
  return function("find_maxima(float (&max)[2])", statement.text(operands("=f", "max", 2)));
}

std::string sum_text(int score) {
  return "add.f32 " + name("x", score / 2 % 4) + ", " + name("x", score / 2 % 4) + ", " + name("s", score);
}

Statement& begin_sums(Statement& statement) {
  return statement << ".reg .f32 x<4>"
                   << "mov.f32 x0, %0"
                   << "mov.f32 x1, %1"
                   << "mov.f32 x2, 0f00000000"
                   << "mov.f32 x3, 0f00000000";
}

Statement& end_sums(Statement& statement) {
  return statement << "add.f32 %0, x0, x2"
                   << "add.f32 %1, x1, x3";
}

std::string exponentiate_text(int scores) {
  Statement statement;
  begin_sums(statement);
  for (int v = 0; v < scores; ++v) {
    statement << "fma.rn.f32 " + name("s", v) + ", " + name("s", v) + ", %2, " + name("%", 3 + v / 2 % 2)
              << "ex2.approx.ftz.f32 " + name("s", v) + ", " + name("s", v) << sum_text(v);
  }
  end_sums(statement);
  return function("exponentiate(float multiplier, const float (&addend)[2], float (&sum)[2])",
                  statement.text(operands("+f", "sum", 2) + " : \"f\"(multiplier), " + operands("f", "addend", 2)));
}

std::string pack_text(int registers_of_p, std::string_view type) {
  Statement statement;
  for (int i = 0; i < registers_of_p; ++i)
    statement << "cvt.rn." + std::string(type) + "x2.f32 " + name("p", i) + ", " + name("s", 2 * i + 1) + ", " +
                     name("s", 2 * i);
  return function("pack()", statement.text(""));
}

std::string rescale_text(int outputs) {
  Statement statement;
  for (int v = 0; v < outputs; ++v)
    statement << "mul.f32 " + name("o", v) + ", " + name("o", v) + ", " + name("%", v / 2 % 2);
  return function("rescale(const float (&factor)[2])", statement.text(": " + operands("f", "factor", 2)));
}

}  // namespace tessera::fmha
