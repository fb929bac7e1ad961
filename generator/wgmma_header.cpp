#include "generator/wgmma_header.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace tessera {
namespace {

using fmha::WgmmaShape;

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

std::string specialisation(const WgmmaShape& shape) {
  const bool is_bf16 = shape.dtype == DType::bf16;
  const std::string type = is_bf16 ? "bf16" : "f16";
  const int accumulators = shape.n / 2;
  const int a_operands = shape.a_in_registers ? 4 : 1;
  const int b = accumulators + a_operands;

  std::vector<std::string> a_values;
  if (shape.a_in_registers) {
    for (int i = 0; i < 4; ++i) a_values.push_back("\"r\"(a[" + std::to_string(i) + "])");
  } else {
    a_values.emplace_back("\"l\"(a)");
  }
  std::vector<std::string> outputs;
  for (int i = 0; i < accumulators; ++i) outputs.push_back("\"+f\"(d[" + std::to_string(i) + "])");
  std::vector<std::string> inputs = a_values;
  inputs.emplace_back("\"l\"(b)");
  inputs.emplace_back("\"r\"(accumulate)");

  const std::string flags =
      std::string("p, 1, 1, ") + (shape.a_in_registers ? "" : "0, ") + (shape.b_is_mn_major ? "1" : "0");
  const std::string a_text = shape.a_in_registers ? "{" + wrap(placeholders(accumulators, 4), "", "", "") + "}"
                                                  : "%" + std::to_string(accumulators);

  std::string text = "template <>\nstruct Wgmma<" + std::to_string(shape.n) + ", DType::" + type + ", " +
                     (shape.a_in_registers ? "true" : "false") + ", " + (shape.b_is_mn_major ? "true" : "false") +
                     "> {\n";
  text += std::string(
              "  // PTX ISA \"wgmma.mma_async\", PTX 8.0, sm_90a. D += A B if accumulate is not 0, else D = A B; ") +
          "A from\n  // " + (shape.a_in_registers ? "registers" : "shared memory, K-major") + ", B " +
          (shape.b_is_mn_major ? "MN-major" : "K-major") + ".\n";
  text += "  static __device__ __forceinline__ void mma(float (&d)[" + std::to_string(accumulators) + "], " +
          (shape.a_in_registers ? "const unsigned (&a)[4]" : "unsigned long long a") +
          ", unsigned long long b,\n                                             int accumulate) {\n";
  text += "    asm volatile(\n        \"{\\n\\t.reg .pred p;\\n\\tsetp.ne.b32 p, %" + std::to_string(b + 1) +
          ", 0;\\n\\t\"\n";
  text += "        \"wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) + "k16.f32." + type + "." + type +
          " {\"\n";
  text += wrap(placeholders(0, accumulators), "        ", "\"", "\"") + "\n";
  text += "        \"}, " + a_text + ", %" + std::to_string(b) + ", " + flags + ";\\n\\t}\"\n";
  text += "        :\n" + wrap(outputs, "        ", "", "") + "\n";
  text += "        : " + wrap(inputs, "", "", "") + "\n        : \"memory\");\n  }\n";
  text += "  // No instruction: what reads or writes the accumulators stays on its side of this line.\n";
  text += "  static __device__ __forceinline__ void hold(float (&d)[" + std::to_string(accumulators) + "]) {\n";
  text += "    asm volatile(\"\" :\n" + wrap(outputs, "        ", "", "") + "\n        :: \"memory\");\n  }\n};\n";
  return text;
}

}  // namespace

std::string wgmma_header(std::span<const WgmmaShape> shapes) {
  std::string text =
      "// Generated: the wgmma instructions of one kernel. ptx/wgmma.cuh says how to use them.\n"
      "#pragma once\n\n#include \"ptx/wgmma.cuh\"\n\nnamespace tessera::ptx {\n\n";
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    if (std::find(shapes.begin(), shapes.begin() + static_cast<std::ptrdiff_t>(i), shapes[i]) !=
        shapes.begin() + static_cast<std::ptrdiff_t>(i)) {
      continue;
    }
    text += specialisation(shapes[i]) + "\n";
  }
  return text + "}  // namespace tessera::ptx\n";
}

}  // namespace tessera
