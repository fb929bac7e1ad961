// What products of tensor cores take: wgmma and tcgen05, each a queue of the multiprocessor.
#include <algorithm>
#include <charconv>

#include "emulator/memory/async.h"
#include "emulator/time/clock.h"

namespace tessera::emulator {
namespace {

constexpr double kStepBytes = 32, kWgmmaRows = 64;  // of a wgmma: bytes of a row along K, rows of A

}  // namespace

bool Clock::is_of_8_bit(const Instruction& in) {
  for (const char* type : {".e4m3", ".e5m2", ".s8", ".u8"})
    if (in.opcode.find(type) != std::string_view::npos) return true;
  return false;
}

Clock::WgmmaTime Clock::wgmma_time(const Instruction& in) const {
  // "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16": N, then the types of D, A and B.
  const std::size_t shape = in.opcode.find(".m64n");
  if (shape == std::string_view::npos) return {};
  double n = 0;
  unsigned number = 0;
  std::from_chars(in.opcode.data() + shape + 5, in.opcode.data() + in.opcode.size(), number);
  n = number;
  std::string_view type = in.opcode.substr(in.opcode.rfind('.', in.opcode.rfind('.') - 1) + 1);
  type = type.substr(0, type.find('.'));
  const bool in_registers = in.op[1].kind == Operand::Kind::list;
  const auto find = [&](std::string_view name) {
    return gpu_.wgmma.find(std::string(name) + (in_registers ? " RS" : " SS"));
  };
  auto found = find(type == "f16" ? "bf16" : type == "e5m2" || type == "u8" || type == "s8" ? "e4m3" : type);
  if (found == gpu_.wgmma.end()) found = find("bf16");
  if (found == gpu_.wgmma.end()) return {n / 2, 0};
  // A step of K is 32 bytes of each row: 64 of A, unless they are in registers, and N of B. Of a narrow one these take
  // longer than its products, which have the same part of the widest one's.
  const auto& points = found->second.points;
  const double products = n * points.back().second / points.back().first;
  const double operands = kStepBytes * (n + (in_registers ? 0 : kWgmmaRows)) / gpu_.smem_bytes_per_clock;
  return {std::min(found->second.at(n), products), operands};
}

// Operands of one come while the one before it multiplies: a narrow one whose operands take longer than its products
// loses less where others stand beside it (mix.cu).
double Clock::multiply(const WgmmaTime& wgmma, bool is_of_8_bit, SmClock& sm) const {
  const double fetch = std::max({time_, sm.operands, sm.tensor_began});
  sm.operands = fetch + wgmma.operands;
  sm.tensor_began = std::max(fetch, sm.tensor);
  sm.tensor = std::max(sm.tensor_began + wgmma.interval, sm.operands);
  sm.tensor_busy += wgmma.interval;
  if (is_of_8_bit) sm.tensor_8_bit += wgmma.interval;
  return sm.tensor;
}

double Clock::part_of_8_bit() const {
  double all = 0, of_8_bit = 0;
  for (const SmClock& sm : sms_) all += sm.tensor_busy, of_8_bit += sm.tensor_8_bit;
  return all > 0 ? of_8_bit / all : 0;
}

double Clock::tensor_load() const {
  double load = 0, cycles = 0;
  for (const SmClock& sm : sms_)
    if (sm.first >= 0) {
      load += sm.tensor_busy + sm.pipe_busy[static_cast<std::size_t>(Pipe::tensor)] * gpu_.part_of_mma();
      cycles += std::max(1.0, sm.last - sm.first);
    }
  return cycles > 0 ? std::min(1.0, load / cycles) : 0;
}

// A pair of CTAs works on both multiprocessors at the same time.
double Clock::tensor_operation(const AsyncWork& work, SmClock& sm) {
  SmClock* peer = nullptr;
  if (work.cta_group == 2 && work.cta != nullptr && work.cta->cluster->ctas.size() > 1)
    if (const auto found = sm_of_.find(work.cta->cluster->ctas[work.cta->rank ^ 1].get()); found != sm_of_.end())
      peer = &sms_[static_cast<std::size_t>(found->second)];
  const TensorForm form =
      work.n != 0 ? gpu_.tcgen05_form(work.cta_group, work.m, work.a_in_tmem) : TensorForm{0, gpu_.tcgen05_copy, 0, 0};
  const double took = form.interval(work.n);
  // Copies to Tensor Memory have a way of their own; products begin when those that were issued before are over.
  const double copied = std::max(sm.tensor_copy, peer != nullptr ? peer->tensor_copy : 0);
  if (work.n == 0) {
    const double over = std::max(time_, copied) + took;
    for (SmClock* one : {&sm, peer}) {
      if (one == nullptr) continue;
      one->tensor_copy = over;
      one->tensor_copy_busy += took;
    }
    sm.tensor_done = std::max(sm.tensor_done, over);
    return over;
  }
  const double start = std::max({time_, copied, sm.tensor, peer != nullptr ? peer->tensor : 0});
  for (SmClock* one : {&sm, peer}) {
    if (one == nullptr) continue;
    one->tensor = start + took;
    one->tensor_busy += took;
  }
  sm.tensor_done = start + took + std::max(0.0, form.latency - gpu_.class_of("mbarrier_wait").latency);
  return sm.tensor_done;
}

}  // namespace tessera::emulator
