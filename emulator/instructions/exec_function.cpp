// Calls of functions that are not expanded, by name or by address, their returns, and alloca. See call_stack.h.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/call_stack.h"
#include "emulator/instructions/bind.h"
#include "emulator/memory/access.h"

namespace tessera::emulator {

namespace {

// The stacks begin behind what the kernel declares.
std::uint64_t stack_base(const Warp& w) { return (std::uint64_t{w.launch->entry.local_bytes} + 15) / 16 * 16; }

}  // namespace

CallStack& call_stack(Warp& w) {
  if (!w.calls) w.calls = std::make_shared<CallStack>(stack_base(w));
  return *w.calls;
}

bool take_stack(Warp& w, int lane, std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& address) {
  std::uint64_t& top = call_stack(w).top[static_cast<std::size_t>(lane)];
  const std::uint64_t limit = w.launch->local_bytes;
  address = (top + alignment - 1) / alignment * alignment;
  if (address > limit || bytes > limit - address) return false;
  top = address + bytes;
  // Nobody has written what an earlier call left there.
  Target target;
  if (bytes > 0 && locate_local(w, lane, address, bytes, target)) std::memset(target.shadow, kAllocated, bytes);
  return true;
}

std::uint64_t stack_bytes(const LaunchShape& shape, int num_sms) {
  const auto product = [](const std::array<std::uint32_t, 3>& v) { return std::uint64_t{v[0]} * v[1] * v[2]; };
  const std::uint64_t ctas = std::min(
      product(shape.grid), std::max<std::uint64_t>(static_cast<std::uint64_t>(num_sms), product(shape.cluster)));
  const std::uint64_t threads = std::max<std::uint64_t>(1, ctas * product(shape.block));
  return std::clamp<std::uint64_t>((std::uint64_t{64} << 20) / threads / 1024 * 1024, 2048, 65536);
}

namespace bind {
namespace {

constexpr std::uint64_t kLinkBytes = 32;  // of every frame: what a call keeps besides its variables

std::byte* place_of(const Warp& w, const RegisterPlace& place, int lane) {
  return w.registers + place.offset + static_cast<std::size_t>(lane) * place.bytes;
}

std::vector<std::byte> save_registers(const Warp& w, const OutOfLine& function, int lane) {
  std::vector<std::byte> saved;
  const auto save = [&](const RegisterPlace& place) {
    if (place.bytes == 0) {
      saved.push_back(std::byte((w.predicate(place.offset) >> lane & 1) != 0));
      return;
    }
    const std::byte* const from = place_of(w, place, lane);
    saved.insert(saved.end(), from, from + place.bytes);
  };
  for (const RegisterPlace& place : function.registers) save(place);
  for (const OutOfLine::Address& address : function.addresses) save(address.place);
  return saved;
}

void restore_registers(const Warp& w, const OutOfLine& function, int lane, const std::vector<std::byte>& saved) {
  const std::byte* from = saved.data();
  const auto restore = [&](const RegisterPlace& place) {
    if (place.bytes == 0) {
      Mask& mask = w.predicate(place.offset);
      mask = (mask & ~(Mask{1} << lane)) | (*from != std::byte{0} ? Mask{1} << lane : 0);
      ++from;
      return;
    }
    std::memcpy(place_of(w, place, lane), from, place.bytes);
    from += place.bytes;
  };
  for (const RegisterPlace& place : function.registers) restore(place);
  for (const OutOfLine::Address& address : function.addresses) restore(address.place);
}

void copy_local(const Warp& w, int lane, std::uint64_t to, std::uint64_t from, std::size_t bytes) {
  Target source, target;
  if (bytes == 0 || !locate_local(w, lane, from, bytes, source) || !locate_local(w, lane, to, bytes, target)) return;
  std::memmove(target.data, source.data, bytes);
  std::memmove(target.shadow, source.shadow, bytes);
}

// op: target, results, arguments. flags: how many results.
int first_argument(const Instruction& call) { return 1 + call.flags; }

Step overflow(Warp& w, const Instruction& in, int lane) {
  const CallStack& stack = call_stack(w);
  return w.fault(
      in, "stack-overflow",
      fmt::format("{} calls deep, {} of {} bytes of stack are used",
                  stack.frames[static_cast<std::size_t>(lane)].size(),
                  stack.top[static_cast<std::size_t>(lane)] - stack_base(w), w.launch->local_bytes - stack_base(w)),
      "a recursion that does not end; a GPU gives 1024 bytes unless cudaLimitStackSize is raised", lane);
}

/// One lane calls a function. False: its stack has no room.
bool enter(Warp& w, const Instruction& in, int lane, std::uint32_t index) {
  const OutOfLine& function = w.launch->entry.functions[index];
  CallStack& stack = call_stack(w);
  CallFrame frame;
  frame.caller_top = stack.top[static_cast<std::size_t>(lane)];
  if (!take_stack(w, lane, function.frame_bytes + kLinkBytes, function.alignment, frame.base)) return false;
  for (std::size_t i = 0; i < function.parameters.size(); ++i)
    copy_local(w, lane, frame.base + function.parameters[i].offset,
               lane_address(w, in.op[static_cast<std::size_t>(first_argument(in)) + i], lane),
               function.parameters[i].bytes);
  frame.return_pc = w.pc + 1;
  frame.function = index;
  // The first call of a lane finds nothing to keep.
  std::vector<CallFrame>& frames = stack.frames[static_cast<std::size_t>(lane)];
  if (!frames.empty()) frame.saved = save_registers(w, function, lane);
  for (const OutOfLine::Address& address : function.addresses) {
    const std::uint64_t value = frame.base + address.offset;
    std::memcpy(place_of(w, address.place, lane), &value, address.place.bytes);
  }
  frames.push_back(std::move(frame));
  return true;
}

void add_lane(std::vector<Group>& groups, std::uint32_t pc, int lane) {
  for (Group& group : groups)
    if (group.pc == pc) {
      group.mask |= Mask{1} << lane;
      return;
    }
  Group made;
  made.pc = pc;
  made.mask = Mask{1} << lane;
  groups.push_back(made);
}

Step call_all(Warp& w, const Instruction& in, Mask active, const std::array<std::uint32_t, kLanes>& targets) {
  std::vector<Group> groups;
  for (Mask rest = w.mask & ~active; rest != 0; rest &= rest - 1) add_lane(groups, w.pc + 1, std::countr_zero(rest));
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint32_t index = targets[static_cast<std::size_t>(lane)];
    if (!enter(w, in, lane, index)) return overflow(w, in, lane);
    add_lane(groups, w.launch->entry.functions[index].pc, lane);
  }
  w.split(std::move(groups));
  return Step::jumped;
}

// number: the function.
Step call_named(Warp& w, const Instruction& in, Mask active) {
  std::array<std::uint32_t, kLanes> targets{};
  targets.fill(in.number);
  return call_all(w, in, active, targets);
}

Step call_address(Warp& w, const Instruction& in, Mask active) {
  const Launch& launch = *w.launch;
  std::array<std::uint32_t, kLanes> targets{};
  const auto given = static_cast<std::size_t>(in.num_operands - first_argument(in));
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const auto address = read_lane<std::uint64_t>(w, in.op[0], lane);
    const syntax::Function* const function = launch.program.function_at(address);
    const auto& known = launch.entry.functions;
    const auto it =
        std::find_if(known.begin(), known.end(), [&](const OutOfLine& f) { return f.function == function; });
    if (function == nullptr)
      return w.fault_at(in, "call-target", lane, address, "the address is no function's of this module",
                        "a function pointer that was never set, or one that the host took");
    if (function->is_entry)
      return w.fault_at(in, "call-target", lane, address,
                        fmt::format("'{}' is a kernel, which only a launch starts", function->name));
    if (it == known.end())
      return w.fault_at(in, "call-target", lane, address,
                        fmt::format("'{}' has no body in this module, or nobody took its address", function->name));
    if (it->parameters.size() != given || it->results.size() != in.flags)
      return w.fault_at(in, "call-target", lane, address,
                        fmt::format("'{}' has {} parameters and {} results; the call gives {} and takes {}",
                                    function->name, it->parameters.size(), it->results.size(), given, in.flags),
                        "a function pointer that was cast to another type");
    targets[static_cast<std::size_t>(lane)] = static_cast<std::uint32_t>(it - known.begin());
  }
  return call_all(w, in, active, targets);
}

Step return_from(Warp& w, const Instruction&, Mask active) {
  CallStack& stack = call_stack(w);
  std::vector<Group> groups;
  for (Mask rest = w.mask & ~active; rest != 0; rest &= rest - 1) add_lane(groups, w.pc + 1, std::countr_zero(rest));
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    std::vector<CallFrame>& frames = stack.frames[static_cast<std::size_t>(lane)];
    const CallFrame frame = std::move(frames.back());
    frames.pop_back();
    const OutOfLine& function = w.launch->entry.functions[frame.function];
    // The caller's own registers come first: where its results go is in them.
    if (!frame.saved.empty()) restore_registers(w, function, lane, frame.saved);
    const Instruction& call = w.code[frame.return_pc - 1];
    for (std::size_t i = 0; i < function.results.size(); ++i)
      copy_local(w, lane, lane_address(w, call.op[1 + i], lane), frame.base + function.results[i].offset,
                 function.results[i].bytes);
    stack.top[static_cast<std::size_t>(lane)] = frame.caller_top;
    add_lane(groups, frame.return_pc, lane);
  }
  w.split(std::move(groups));
  return Step::jumped;
}

// op: address, bytes, alignment.
template <class T>
Step allocate_stack(Warp& w, const Instruction& in, Mask active) {
  const std::uint64_t alignment = in.op[2].kind == Operand::Kind::none
                                      ? 16
                                      : std::max<std::uint64_t>(16, static_cast<std::uint64_t>(in.op[2].value));
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t bytes = read_lane<T>(w, in.op[1], lane);
    std::uint64_t address = 0;
    if (bytes > kWindowBytes || !take_stack(w, lane, bytes, alignment, address))
      return w.fault(in, "stack-overflow",
                     fmt::format("alloca of {} bytes; {} of {} bytes of stack are used", bytes,
                                 call_stack(w).top[static_cast<std::size_t>(lane)] - stack_base(w),
                                 w.launch->local_bytes - stack_base(w)),
                     "a GPU gives 1024 bytes unless cudaLimitStackSize is raised", lane);
    write_lane<T>(w, in.op[0], lane, static_cast<T>(address));
  }
  return Step::next;
}

template <class T>
Step save_stack(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    write_lane<T>(w, in.op[0], lane, static_cast<T>(call_stack(w).top[static_cast<std::size_t>(lane)]));
  }
  return Step::next;
}

template <class T>
Step restore_stack(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    std::uint64_t& top = call_stack(w).top[static_cast<std::size_t>(lane)];
    const std::uint64_t saved = read_lane<T>(w, in.op[0], lane);
    if (saved > top || saved < stack_base(w))
      return w.fault(in, "stack-overflow",
                     fmt::format("stackrestore to {}: stacksave gives {} to {} here", saved, stack_base(w), top),
                     "a value that is not of a stacksave of the same function", lane);
    top = saved;
  }
  return Step::next;
}

}  // namespace

// The resolver has put the operands in place: without a register as target, `number` is the function.
Handler call(const Decoded& d) { return d.in->op[0].kind == Operand::Kind::reg ? call_address : call_named; }
Handler return_from_function(const Decoded&) { return return_from; }
Handler alloca_(const Decoded& d) {
  return d.type() == Type::u32 ? allocate_stack<std::uint32_t> : allocate_stack<std::uint64_t>;
}
Handler stacksave(const Decoded& d) {
  return d.type() == Type::u32 ? save_stack<std::uint32_t> : save_stack<std::uint64_t>;
}
Handler stackrestore(const Decoded& d) {
  return d.type() == Type::u32 ? restore_stack<std::uint32_t> : restore_stack<std::uint64_t>;
}

}  // namespace bind
}  // namespace tessera::emulator
