// PTX ISA, "Surface Instructions": suld.b, sust.b of surface objects: bytes as they are, x in bytes, other coordinates
// in rows, slices and layers. Out of range: .trap ends the launch, .clamp takes the nearest place, .zero reads zeros
// and drops what is written.
#include <fmt/format.h>

#include <algorithm>

#include "emulator/instructions/bind.h"
#include "emulator/instructions/texture_access.h"
#include "emulator/memory/weak_memory.h"

namespace tessera::emulator::bind {
namespace {

using U32 = std::uint32_t;

// Instruction::flags.
constexpr std::uint16_t kGeometry = 7;
constexpr std::uint16_t kClamp = 8;
constexpr std::uint16_t kZero = 16;

bool fits(TextureGeometry asked, TextureGeometry has) {
  if (has == TextureGeometry::cube || has == TextureGeometry::layered_cube)
    return asked == TextureGeometry::layered_two;
  return asked == has;
}

struct Place {
  std::int64_t x = 0, y = 0, z = 0;
};

// The address; false after a report, or with is_outside where nothing is to be done.
bool find(Warp& w, const Instruction& in, int lane, const TextureDescription& surface, const Operand& coordinates,
          std::size_t bytes, std::uint64_t& address, bool& is_outside) {
  const auto asked = static_cast<TextureGeometry>(in.flags & kGeometry);
  const auto at = [&](int i) -> std::int64_t { return read_lane<std::int32_t>(w, coordinates.elements[i], lane); };
  const bool is_layered = asked == TextureGeometry::layered_one || asked == TextureGeometry::layered_two;
  const int first = is_layered ? 1 : 0;
  Place place;
  place.x = at(first);
  if (asked != TextureGeometry::one && asked != TextureGeometry::layered_one) place.y = at(first + 1);
  if (is_layered) place.z = at(0);
  if (asked == TextureGeometry::three) place.z = at(2);
  const TextureLevel& level = surface.levels.front();
  const auto width = static_cast<std::int64_t>(level.width) * surface.texel_bytes();
  const auto wide = static_cast<std::int64_t>(bytes);
  if (place.x % wide != 0) {
    w.fault(in, "misaligned-address", fmt::format("x = {} bytes: must be a multiple of {}", place.x, bytes),
            "x of a surface counts bytes, not texels", lane);
    return false;
  }
  const std::int64_t last = (width - wide) / wide * wide;  // negative: a row has not so many bytes
  is_outside =
      place.x < 0 || place.x > last || place.y < 0 || place.y >= level.height || place.z < 0 || place.z >= level.depth;
  if (is_outside && (in.flags & (kClamp | kZero)) == 0) {
    w.fault(in, "surface-out-of-bounds",
            fmt::format("{} bytes at x = {} bytes, y = {}, {} = {} of a surface of {} bytes x {} x {}", bytes, place.x,
                        place.y, is_layered ? "layer" : "z", place.z, width, level.height, level.depth),
            "x of a surface counts bytes, not texels; or a thread too many", lane);
    return false;
  }
  if (is_outside && (in.flags & kClamp) != 0 && last >= 0) {
    place = {std::clamp<std::int64_t>(place.x, 0, last), std::clamp<std::int64_t>(place.y, 0, level.height - 1),
             std::clamp<std::int64_t>(place.z, 0, level.depth - 1)};
    is_outside = false;
  }
  address = level.address + static_cast<std::uint64_t>(place.z) * level.slice_bytes +
            static_cast<std::uint64_t>(place.y) * level.pitch_bytes + static_cast<std::uint64_t>(place.x);
  return true;
}

// op of a load: list, handle, coordinates; of a store: handle, coordinates, list.
template <class T, bool kLoad>
Step access(Warp& w, const Instruction& in, Mask active) {
  const Operand& handle = in.op[kLoad ? 1 : 0];
  const Operand& coordinates = in.op[kLoad ? 2 : 1];
  const Operand& list = in.op[kLoad ? 0 : 2];
  const std::size_t bytes = sizeof(T) * list.count;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const TextureDescription* const surface = find_object(w, in, lane, handle, true);
    if (surface == nullptr) return Step::fault;
    if (!fits(static_cast<TextureGeometry>(in.flags & kGeometry), surface->geometry))
      return report_geometry(w, in, lane, *surface, true);
    std::uint64_t address = 0;
    bool is_outside = false;
    if (!find(w, in, lane, *surface, coordinates, bytes, address, is_outside)) return Step::fault;
    if (is_outside) {
      for (int i = 0; kLoad && i < list.count; ++i) write_lane<T>(w, list.elements[i], lane, T{});
      continue;
    }
    Target target;
    if (!locate_texel(w, in, lane, *surface, address, bytes, !kLoad, target)) return Step::fault;
    for (int i = 0; i < list.count; ++i) {
      Target element = target;
      element.data += static_cast<std::size_t>(i) * sizeof(T);
      T value{};
      if constexpr (kLoad) {
        if (w.launch->weak) [[unlikely]]
          w.launch->weak->load(w, lane, element, sizeof(T), {}, reinterpret_cast<std::byte*>(&value));
        else
          std::memcpy(&value, element.data, sizeof(T));
        write_lane<T>(w, list.elements[i], lane, value);
      } else {
        value = read_lane<T>(w, list.elements[i], lane);
        if (w.launch->weak) [[unlikely]]
          w.launch->weak->store(w, lane, element, sizeof(T), {}, reinterpret_cast<const std::byte*>(&value));
        else
          std::memcpy(element.data, &value, sizeof(T));
      }
    }
    if constexpr (!kLoad) note_written(w, target, bytes);
  }
  return Step::next;
}

template <bool kLoad>
Handler pick(const Decoded& d) {
  auto geometry = TextureGeometry::two;
  if (!geometry_of(d, geometry)) return nullptr;
  const Operand& list = d.in->op[kLoad ? 0 : 2];
  const Operand& coordinates = d.in->op[kLoad ? 2 : 1];
  const int wanted = d.has("v2") ? 2 : d.has("v4") ? 4 : 1;
  const int least = geometry == TextureGeometry::one                                               ? 1
                    : geometry == TextureGeometry::two || geometry == TextureGeometry::layered_one ? 2
                                                                                                   : 3;
  if (list.kind != Operand::Kind::list || list.count != wanted || coordinates.count < least) return nullptr;
  d.in->flags = static_cast<std::uint16_t>(static_cast<unsigned>(geometry) | (d.has("clamp") ? kClamp : 0) |
                                           (d.has("zero") ? kZero : 0));
  switch (bits_of(d.type())) {
    case 8:
      return access<std::uint8_t, kLoad>;
    case 16:
      return access<std::uint16_t, kLoad>;
    case 32:
      return access<U32, kLoad>;
    default:
      return wanted == 4 ? nullptr : access<std::uint64_t, kLoad>;
  }
}

}  // namespace

Handler suld(const Decoded& d) { return pick<true>(d); }
Handler sust(const Decoded& d) { return pick<false>(d); }

}  // namespace tessera::emulator::bind
