// What the CUDA runtime provides to kernels: vprintf, __assertfail, malloc and free. Their parameters lie in the
// thread's local memory.
#include <fmt/format.h>

#include <cstdio>

#include "emulator/instructions/bind.h"
#include "emulator/memory/access.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;
using U64 = std::uint64_t;

constexpr std::size_t kMaxText = 4096;  ///< of a string that a kernel names

// A value of `T` at an address of the lane. False: there is no such memory.
template <class T>
bool read_value(const Warp& w, Space space, int lane, U64 address, T& value) {
  Target target;
  if (!locate_any(space, w, lane, address, sizeof(T), target)) return false;
  std::memcpy(&value, target.data, sizeof(T));
  return true;
}

std::string read_text(const Warp& w, int lane, U64 address) {
  std::string text;
  char c = 0;
  while (text.size() < kMaxText && read_value(w, Space::generic, lane, address + text.size(), c) && c != 0) text += c;
  return text;
}

/// The arguments of a printf, one after the other: 4 or 8 bytes each, aligned
/// to their size.
class Arguments {
 public:
  Arguments(const Warp& w, int lane, U64 address) : warp_(w), lane_(lane), address_(address) {}
  template <class T>
  T next() {
    address_ = (address_ + sizeof(T) - 1) / sizeof(T) * sizeof(T);
    T value{};
    read_value(warp_, Space::generic, lane_, address_, value);
    address_ += sizeof(T);
    ++count_;
    return value;
  }
  U32 count() const { return count_; }

 private:
  const Warp& warp_;
  int lane_;
  U64 address_;
  U32 count_ = 0;
};

// One conversion, from its % to its letter; the host's own printf formats it.
std::string format_one(const Warp& w, int lane, std::string specification, Arguments& arguments) {
  char buffer[512];
  const char letter = specification.back();
  const bool is_long = specification.find_first_of("ljzt") != std::string::npos;
  // Length words go: the value below is of one known type.
  std::erase_if(specification,
                [](char c) { return c == 'h' || c == 'l' || c == 'j' || c == 'z' || c == 't' || c == 'L'; });
  for (std::size_t star = specification.find('*'); star != std::string::npos; star = specification.find('*'))
    specification.replace(star, 1, std::to_string(arguments.next<std::int32_t>() % 400));
  const auto print = [&](auto value) {
    std::snprintf(buffer, sizeof(buffer), specification.c_str(), value);
    return std::string(buffer);
  };
  const std::string stem = specification.substr(0, specification.size() - 1);
  switch (letter) {
    case 'd':
    case 'i': {
      const auto value = is_long ? arguments.next<std::int64_t>() : arguments.next<std::int32_t>();
      specification = stem + "ll" + letter;
      return print(static_cast<long long>(value));
    }
    case 'u':
    case 'o':
    case 'x':
    case 'X': {
      const U64 value = is_long ? arguments.next<U64>() : arguments.next<U32>();
      specification = stem + "ll" + letter;
      return print(static_cast<unsigned long long>(value));
    }
    case 'c':
      return print(static_cast<int>(arguments.next<U32>() & 0xFF));
    case 'p':
      return fmt::format("0x{:x}", arguments.next<U64>());
    case 's': {
      const U64 address = arguments.next<U64>();
      const std::string text = address == 0 ? "(null)" : read_text(w, lane, address);
      return print(text.c_str());
    }
    case 'a':
    case 'A':
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      return print(arguments.next<double>());
    default:
      return specification;
  }
}

// The host's printf gets flags, widths below 1000 and length words; anything
// else is printed as it stands.
bool is_harmless(const std::string& specification) {
  std::size_t digits = 0;
  for (const char c : specification.substr(1)) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > 3 || std::string_view("0123456789-+ #.*hljztL").find(c) == std::string_view::npos) return false;
  }
  return specification.size() < 16;
}

std::string format_text(const Warp& w, int lane, const std::string& format, Arguments& arguments) {
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out += format[i];
      continue;
    }
    if (i + 1 < format.size() && format[i + 1] == '%') {
      out += '%';
      ++i;
      continue;
    }
    const std::size_t end = format.find_first_of("%diuoxXcpsaAeEfFgGn", i + 1);
    if (end == std::string::npos || !is_harmless(format.substr(i, end - i))) return out + format.substr(i);
    out += format[end] == '%' ? "%" : format_one(w, lane, format.substr(i, end - i + 1), arguments);
    i = end;
  }
  return out;
}

// op: result, format, arguments. The result is the number of arguments, as the programming guide has it.
Step print(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    U64 format = 0;
    U64 arguments = 0;
    read_value(w, Space::local, lane, lane_address(w, in.op[1], lane), format);
    read_value(w, Space::local, lane, lane_address(w, in.op[2], lane), arguments);
    Arguments list(w, lane, arguments);
    const std::string text = format_text(w, lane, read_text(w, lane, format), list);
    if (w.launch->options.print)
      w.launch->options.print(text);
    else
      std::fwrite(text.data(), 1, text.size(), stdout);
    Target result;
    if (in.op[0].kind == Operand::Kind::none ||
        !locate_any(Space::local, w, lane, lane_address(w, in.op[0], lane), 4, result))
      continue;
    const U32 count = format == 0 ? ~0u : list.count();
    std::memcpy(result.data, &count, 4);
    note_written(w, result, 4);
  }
  return Step::next;
}

// op: none, message, file, line, function, character size.
Step fail_assertion(Warp& w, const Instruction& in, Mask active) {
  const int lane = first_lane(active);
  const auto text = [&](int i) {
    U64 address = 0;
    read_value(w, Space::local, lane, lane_address(w, in.op[i], lane), address);
    return read_text(w, lane, address);
  };
  U32 line = 0;
  read_value(w, Space::local, lane, lane_address(w, in.op[3], lane), line);
  return w.fault(in, "assert", fmt::format("{}:{}: {}: assertion `{}' failed", text(2), line, text(4), text(1)),
                 "an assertion of the kernel's own failed", lane);
}

// op: result, bytes. A null pointer where the heap has no room, as on a GPU.
Step allocate_heap(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    U64 bytes = 0;
    read_value(w, Space::local, lane, lane_address(w, in.op[1], lane), bytes);
    const U64 address = w.launch->memory.heap_allocate(bytes);
    Target result;
    if (!locate_any(Space::local, w, lane, lane_address(w, in.op[0], lane), sizeof(U64), result)) continue;
    std::memcpy(result.data, &address, sizeof(U64));
    note_written(w, result, sizeof(U64));
  }
  return Step::next;
}

// op: none, address.
Step free_heap(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    U64 address = 0;
    read_value(w, Space::local, lane, lane_address(w, in.op[1], lane), address);
    if (address == 0 || w.launch->memory.heap_free(address)) continue;
    return w.fault_at(in, "heap-free", lane, address,
                      fmt::format("free of what malloc did not give: {}", w.launch->memory.describe(address)),
                      "memory freed twice, or a pointer into the middle of an allocation");
  }
  return Step::next;
}

}  // namespace

Handler call_builtin(const Decoded& d) {
  if (d.has("vprintf")) return d.in->num_operands == 3 ? print : nullptr;
  if (d.has("malloc")) return d.in->num_operands == 2 ? allocate_heap : nullptr;
  if (d.has("free")) return d.in->num_operands == 2 ? free_heap : nullptr;
  return d.in->num_operands == 6 ? fail_assertion : nullptr;
}

}  // namespace tessera::emulator::bind
