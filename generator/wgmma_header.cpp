#include "generator/wgmma_header.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "generator/words.h"

namespace tessera {
namespace {

constexpr std::size_t kLineWidth = 120;

// `items` separated by ", ", broken before kLineWidth, each line indented by `indent` and wrapped in open and close.
std::string wrap(const std::vector<std::string>& items, const std::string& indent, const std::string& open,
                 const std::string& close) {
  std::string text;
  std::string line;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::string item = items[i] + (i + 1 < items.size() ? ", " : "");
    if (!line.empty() && indent.size() + open.size() + line.size() + item.size() + close.size() > kLineWidth) {
      while (open.empty() && line.back() == ' ') line.pop_back();
      text += indent + open + line + close + "\n";
      line.clear();
    }
    line += item;
  }
  return text + indent + open + line + close;
}

std::vector<std::string> placeholders(int first, int count) {
  std::vector<std::string> items;
  for (int i = first; i < first + count; ++i) items.push_back("%" + std::to_string(i));
  return items;
}

std::string type_name(DType dtype) { return std::string(to_word(dtype)); }

// The operands of the steps, in the order of their numbers: d, then A of every step, B of every step; the predicate, if
// there is one, follows.
struct Operands {
  explicit Operands(const WgmmaShape& shape)
      : accumulators(shape.n / 2), b(accumulators + shape.steps * (shape.a_in_registers ? 4 : 1)) {
    for (int step = 0; step < shape.steps; ++step) {
      const std::string of_a = "(a[" + std::to_string(step) + "]";
      if (shape.a_in_registers) {
        for (int i = 0; i < 4; ++i) inputs.push_back("\"r\"" + of_a + "[" + std::to_string(i) + "])");
      } else {
        inputs.push_back("\"l\"" + of_a + ")");
      }
    }
    for (int step = 0; step < shape.steps; ++step) inputs.push_back("\"l\"(b[" + std::to_string(step) + "])");
  }

  // `kind`: '=' if d is only written, '+' if it is read too.
  std::vector<std::string> outputs(char kind) const {
    std::vector<std::string> items;
    for (int i = 0; i < accumulators; ++i)
      items.push_back(std::string("\"") + kind + "f\"(d[" + std::to_string(i) + "])");
    return items;
  }

  int accumulators;
  int b;  // the number of B of the first step
  std::vector<std::string> inputs;
};

// The instruction of one step, which adds to d if `predicate`. 8-bit operands are K-major: their form has no place for
// another layout.
std::string instruction(const WgmmaShape& shape, const Operands& operands, int step, const std::string& predicate) {
  const bool is_8_bit = dtype_bytes(shape.dtype) == 1;
  const std::string types =
      std::string(is_8_bit ? "k32" : "k16") + ".f32." + type_name(shape.dtype) + "." + type_name(shape.b_dtype);
  const int a = operands.accumulators;
  const std::string a_text = shape.a_in_registers ? "{" + wrap(placeholders(a + 4 * step, 4), "", "", "") + "}"
                                                  : "%" + std::to_string(a + step);
  std::string flags = predicate + ", 1, 1";
  if (!is_8_bit && !shape.a_in_registers) flags += shape.a_is_mn_major ? ", 1" : ", 0";
  if (!is_8_bit) flags += shape.b_is_mn_major ? ", 1" : ", 0";
  return "        \"wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) + types + " {\"\n" +
         wrap(placeholders(0, operands.accumulators), "        ", "\"", "\"") + "\n        \"}, " + a_text + ", %" +
         std::to_string(operands.b + step) + ", " + flags + ";\\n\\t\"\n";
}

// "(d, a, b": the parameters of both functions that multiply.
std::string parameters(const WgmmaShape& shape, const Operands& operands, const std::string& name) {
  const std::string steps = "[" + std::to_string(shape.steps) + "]";
  const std::string head = "  static __device__ __forceinline__ void " + name + "(";
  return head + "float (&d)[" + std::to_string(operands.accumulators) + "], " +
         (shape.a_in_registers ? "const unsigned (&a)" + steps + "[4]" : "const unsigned long long (&a)" + steps) +
         ",\n" + std::string(head.size(), ' ') + "const unsigned long long (&b)" + steps;
}

// The statement with all steps. `accumulate`: d is read too, and the first step adds to it if told so.
std::string statement(const WgmmaShape& shape, const Operands& operands, bool accumulate) {
  std::string text = "    asm volatile(\n        \"{\\n\\t.reg .pred p, q;\\n\\t";
  if (accumulate) {
    text += "setp.ne.b32 p, %" + std::to_string(operands.b + shape.steps) + ", 0;\\n\\t";
  } else {
    text += "mov.pred p, 0;\\n\\t";
  }
  text += "mov.pred q, 1;\\n\\t\"\n";
  for (int step = 0; step < shape.steps; ++step) text += instruction(shape, operands, step, step == 0 ? "p" : "q");
  std::vector<std::string> inputs = operands.inputs;
  if (accumulate) inputs.emplace_back("\"r\"(accumulate)");
  return text + "        \"}\"\n        :\n" + wrap(operands.outputs(accumulate ? '+' : '='), "        ", "", "") +
         "\n        :\n" + wrap(inputs, "        ", "", "") + "\n        : \"memory\");\n  }\n";
}

std::string specialisation(const WgmmaShape& shape) {
  // What the template's defaults say is left out.
  std::string more;
  if (shape.a_is_mn_major || shape.b_dtype != shape.dtype) more = shape.a_is_mn_major ? ", true" : ", false";
  if (shape.b_dtype != shape.dtype) more += ", DType::" + type_name(shape.b_dtype);
  const Operands operands(shape);

  std::string text = "template <>\nstruct Wgmma<" + std::to_string(shape.n) + ", DType::" + type_name(shape.dtype) +
                     ", " + (shape.a_in_registers ? "true" : "false") + ", " +
                     (shape.b_is_mn_major ? "true" : "false") + ", " + std::to_string(shape.steps) + more + "> {\n";
  text += std::string(
              "  // PTX ISA \"wgmma.mma_async\", PTX 8.0, sm_90a. D += A B if accumulate is not 0, else D = A B; ") +
          "A from\n  // " +
          (shape.a_in_registers  ? "registers"
           : shape.a_is_mn_major ? "shared memory, M-major"
                                 : "shared memory, K-major") +
          ", B " + (shape.b_is_mn_major ? "MN-major" : "K-major") + ".\n";
  text += parameters(shape, operands, "mma") + ", int accumulate) {\n" + statement(shape, operands, true);
  if (shape.has_begin) {
    text += "  // D = A B. What d held is not read, so it need not live until here.\n";
    text += parameters(shape, operands, "begin") + ") {\n" + statement(shape, operands, false);
  }
  text += "  // No instruction: what reads or writes the accumulators stays on its side of this line.\n";
  text +=
      "  static __device__ __forceinline__ void hold(float (&d)[" + std::to_string(operands.accumulators) + "]) {\n";
  text += "    asm volatile(\"\" :\n" + wrap(operands.outputs('+'), "        ", "", "") +
          "\n        :: \"memory\");\n  }\n};\n";
  return text;
}

}  // namespace

std::string wgmma_header(std::span<const WgmmaShape> shapes) {
  std::string text =
      "// Generated: the wgmma instructions of one kernel. ptx/wgmma.cuh says how to use them.\n"
      "#pragma once\n\n#include \"ptx/wgmma.cuh\"\n\nnamespace tessera::ptx {\n\n";
  // One specialisation for those that differ in has_begin alone.
  std::vector<WgmmaShape> distinct;
  for (const WgmmaShape& shape : shapes) {
    const auto same = std::find_if(distinct.begin(), distinct.end(), [&](WgmmaShape other) {
      other.has_begin = shape.has_begin;
      return other == shape;
    });
    if (same == distinct.end()) {
      distinct.push_back(shape);
    } else {
      same->has_begin = same->has_begin || shape.has_begin;
    }
  }
  for (const WgmmaShape& shape : distinct) text += specialisation(shape) + "\n";
  return text + "}  // namespace tessera::ptx\n";
}

}  // namespace tessera
