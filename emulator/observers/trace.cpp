#include "emulator/observers/trace.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

#include "emulator/machine.h"
#include "emulator/memory/access.h"

namespace tessera::emulator {
namespace {

std::uint64_t bits_of(const Warp& warp, const Operand& op, int lane) {
  if (op.is_immediate) return static_cast<std::uint64_t>(op.value);
  std::uint64_t bits = 0;
  const std::size_t bytes = op.bytes;
  std::memcpy(&bits, warp.registers + op.offset + static_cast<std::size_t>(lane) * bytes,
              std::min<std::size_t>(bytes, 8));
  return bits;
}

template <class Value>
bool differs(Mask active, Value value) {
  const std::uint64_t first = value(std::countr_zero(active));
  for (Mask rest = active; rest != 0; rest &= rest - 1)
    if (value(std::countr_zero(rest)) != first) return true;
  return false;
}

}  // namespace

void TraceObserver::started(const Launch& launch) {
  lines_.clear();
  const std::string_view text = *launch.program.module.text;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    lines_.push_back(text.substr(start, end - start));
    start = end + 1;
  }
}

void TraceObserver::append_operand(std::string& line, const Warp& warp, const Operand& op, int lane,
                                   Mask active) const {
  switch (op.kind) {
    case Operand::Kind::none:
      return;
    case Operand::Kind::label:
      line += fmt::format("pc={}", op.value);
      return;
    case Operand::Kind::predicate:
      line +=
          op.is_sink ? std::string("_") : fmt::format("{}{:08x}", op.is_negated ? "!" : "", warp.predicate(op.offset));
      return;
    case Operand::Kind::list:
      line += '{';
      for (std::uint16_t i = 0; i < op.count; ++i) {
        if (i > 0) line += ", ";
        append_operand(line, warp, op.elements[i], lane, active);
      }
      line += '}';
      return;
    case Operand::Kind::address: {
      const auto value = [&](int l) { return lane_address(warp, op, l); };
      line += fmt::format("[0x{:x}]{}", value(lane), differs(active, value) ? "*" : "");
      return;
    }
    case Operand::Kind::reg: {
      if (op.is_sink) {
        line += '_';
        return;
      }
      const auto value = [&](int l) { return bits_of(warp, op, l); };
      line += fmt::format("0x{:x}{}", value(lane), differs(active, value) ? "*" : "");
      return;
    }
  }
}

std::string_view TraceObserver::source_operands(const Instruction& in) const {
  if (in.line < 1 || static_cast<std::size_t>(in.line) > lines_.size()) return {};
  const std::string_view text = lines_[static_cast<std::size_t>(in.line) - 1];
  const std::size_t at = text.find(in.opcode);
  if (at == std::string_view::npos) return {};
  const std::size_t start = text.find_first_not_of(" \t", at + in.opcode.size());
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find(';', start) - start);
}

void TraceObserver::after(Warp& warp, const Instruction& in, Mask active, Step step, std::uint64_t) {
  const int lane = std::countr_zero(active);
  std::string line = fmt::format("cta={},{},{} warp={} pc={} line={} mask={:08x} {}", warp.cta->id[0], warp.cta->id[1],
                                 warp.cta->id[2], warp.index, &in - warp.code, in.line, active, in.opcode);
  const char* separator = " ";
  for (int i = 0; i < in.num_operands; ++i) {
    if (in.op[i].kind == Operand::Kind::none || in.op[i].is_sink) continue;  // `_`, or left out
    line += std::exchange(separator, ", ");
    append_operand(line, warp, in.op[i], lane, active);
  }
  if (const std::string_view operands = source_operands(in); !operands.empty()) line += fmt::format("  # {}", operands);
  if (step == Step::blocked) line += "  waits";
  line += '\n';
  std::fwrite(line.data(), 1, line.size(), file_);
}

}  // namespace tessera::emulator
