// PTX ISA, "Texture Instructions": tex, tld4, txq, istypep of texture objects (bindless, unified mode).
//
// Coordinates are f32, or s32: a whole texel, neither normalised nor filtered. In a layered texture the first one is
// the layer, always a whole number. How a coordinate becomes texels: memory/texture.h.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "emulator/findings/race.h"
#include "emulator/instructions/bind.h"
#include "emulator/instructions/texture_access.h"

namespace tessera::emulator {

bool geometry_of(const Decoded& d, TextureGeometry& out) {
  constexpr TextureGeometry kAll[] = {
      TextureGeometry::one,         TextureGeometry::two,  TextureGeometry::three,       TextureGeometry::layered_one,
      TextureGeometry::layered_two, TextureGeometry::cube, TextureGeometry::layered_cube};
  for (const TextureGeometry geometry : kAll) {
    if (!d.has(to_string(geometry))) continue;
    out = geometry;
    return true;
  }
  return false;
}

const TextureDescription* find_object(Warp& w, const Instruction& in, int lane, const Operand& handle,
                                      bool is_surface) {
  const std::uint64_t value = lane_address(w, handle, lane);
  const TextureObject* const object =
      w.launch->options.textures == nullptr ? nullptr : w.launch->options.textures->find(value);
  const char* const wanted = is_surface ? "surface" : "texture";
  if (object == nullptr && value >= kGlobalBase) {
    w.fault(in, "not-supported",
            fmt::format("'{}': not supported: {} references; objects are, whose handles are no addresses", in.opcode,
                        wanted),
            {}, lane);
    return nullptr;
  }
  std::string problem;
  if (object == nullptr)
    problem = fmt::format("0x{:x} is no {} object", value, wanted);
  else if (object->is_destroyed)
    problem =
        fmt::format("the {} object 0x{:x} was destroyed before", object->is_surface ? "surface" : "texture", value);
  else if (object->is_surface != is_surface)
    problem = fmt::format("0x{:x} is a {} object; '{}' takes a {} object", value,
                          object->is_surface ? "surface" : "texture", in.opcode, wanted);
  if (problem.empty()) return &object->description;
  w.fault(in, "texture-handle", problem, "an object that was not created, was destroyed early, or an argument too few",
          lane);
  return nullptr;
}

Step report_geometry(Warp& w, const Instruction& in, int lane, const TextureDescription& object, bool is_surface) {
  const char* const hint = object.geometry == TextureGeometry::linear
                               ? "linear memory is read by tex1Dfetch, which is tex.1d with whole coordinates"
                               : "the array has other dimensions, or other flags (layered, cubemap), than the call";
  return w.fault(in, "texture-geometry",
                 fmt::format("'{}' of a {} object of geometry {}", in.opcode, is_surface ? "surface" : "texture",
                             to_string(object.geometry)),
                 hint, lane);
}

bool locate_texel(Warp& w, const Instruction& in, int lane, const TextureDescription& object, std::uint64_t address,
                  std::size_t bytes, bool is_write, Target& out) {
  if (!locate_global(w, address, bytes, out) || !shadow_has(out.shadow, bytes, kAllocated)) {
    w.fault_at(in, "global-out-of-bounds", lane, address,
               fmt::format("{} of {} bytes through an object of geometry {}: {}", is_write ? "write" : "read", bytes,
                           to_string(object.geometry), w.launch->memory.describe(address)),
               "the memory was freed before the object, or is smaller than its description says");
    return false;
  }
  if (!is_write && !shadow_has(out.shadow, bytes, kReadable)) report_uninitialised(w, in, out, lane, address, bytes);
  if (w.race) [[unlikely]]
    w.launch->race->access(w, in, Mask{1} << lane, out, bytes, {is_write});
  return true;
}

namespace bind {
namespace {

using U32 = std::uint32_t;
using Texel = std::array<U32, 4>;

// Instruction::flags of tex and tld4.
constexpr std::uint16_t kGeometry = 7;
constexpr std::uint16_t kWhole = 8;  // coordinates are s32
constexpr std::uint16_t kLevel = 16;
constexpr std::uint16_t kGradient = 32;

/// One lane's fetch: where on a level of one texel size it lies.
struct Place {
  float at[3] = {0, 0, 0};
  int dimensions = 1;
  std::uint32_t slice = 0;  // of the layer and face; of three dimensions none
};

class Fetch {
 public:
  Fetch(Warp& w, const Instruction& in, int lane, const TextureDescription& texture)
      : w_(w), in_(in), lane_(lane), texture_(texture) {}

  /// False after a report.
  bool find_place();
  bool sample(Texel& out);
  /// One component of the four texels of a linear filter.
  bool gather(Texel& out);

 private:
  float coordinate(int i) const { return read_lane<float>(w_, in_.op[3].elements[i], lane_); }
  bool read(const TextureLevel& level, std::int64_t x, std::int64_t y, std::int64_t z, Texel& out);
  void find_taps(const TextureLevel& level, bool is_linear, Taps (&taps)[3]) const;
  bool sample_level(const TextureLevel& level, double (&sum)[4], Texel& exact);
  Levels levels() const;

  Warp& w_;
  const Instruction& in_;
  int lane_;
  const TextureDescription& texture_;
  Place place_;
};

bool Fetch::find_place() {
  const auto asked = static_cast<TextureGeometry>(in_.flags & kGeometry);
  const bool is_whole = (in_.flags & kWhole) != 0;
  const bool is_linear = texture_.geometry == TextureGeometry::linear;
  if (is_linear ? asked != TextureGeometry::one || !is_whole : asked != texture_.geometry) return false;
  const TextureLevel& level = texture_.levels.front();
  const bool is_layered = asked == TextureGeometry::layered_one || asked == TextureGeometry::layered_two ||
                          asked == TextureGeometry::layered_cube;
  const bool is_cube = asked == TextureGeometry::cube || asked == TextureGeometry::layered_cube;
  const int first = is_layered ? 1 : 0;
  place_.dimensions = asked == TextureGeometry::one || asked == TextureGeometry::layered_one ? 1
                      : asked == TextureGeometry::three                                      ? 3
                                                                                             : 2;
  for (int i = 0; i < (is_cube ? 3 : place_.dimensions); ++i) place_.at[i] = coordinate(first + i);
  std::uint32_t face = 0;
  if (is_cube) {
    const CubePlace cube = cube_place(place_.at[0], place_.at[1], place_.at[2]);
    place_.at[0] = cube.s;
    place_.at[1] = cube.t;
    face = cube.face;
  }
  const std::uint32_t faces = is_cube ? 6 : 1;
  if (is_layered || is_cube) {
    const U32 layer = is_layered ? read_lane<U32>(w_, in_.op[3].elements[0], lane_) : 0;
    place_.slice = std::min(layer, level.depth / faces - 1) * faces + face;
  }
  return true;
}

bool Fetch::read(const TextureLevel& level, std::int64_t x, std::int64_t y, std::int64_t z, Texel& out) {
  if (x < 0 || y < 0 || z < 0) {
    out = border_texel(texture_);
    return true;
  }
  const std::uint64_t address = level.address + static_cast<std::uint64_t>(z) * level.slice_bytes +
                                static_cast<std::uint64_t>(y) * level.pitch_bytes +
                                static_cast<std::uint64_t>(x) * texture_.texel_bytes();
  Target target;
  const std::size_t bytes = texture_.texel_bytes();
  if (!locate_texel(w_, in_, lane_, texture_, address, bytes, false, target)) return false;
  if (w_.launch->written != nullptr && w_.launch->written->may_hold(address, bytes)) [[unlikely]] {
    if (w_.launch->written->find(address, bytes) != WrittenLines::kNobody)
      w_.hazard(in_, "nc-load-of-written", lane_, address,
                "this launch wrote the texel; a fetch may give what was there before",
                "a texture and a surface, or a pointer, of the same memory in one kernel");
  }
  out = decode_texel(texture_, target.data);
  return true;
}

void Fetch::find_taps(const TextureLevel& level, bool is_linear, Taps (&taps)[3]) const {
  const std::uint32_t size[3] = {level.width, level.height, level.depth};
  const bool is_cube = texture_.geometry == TextureGeometry::cube || texture_.geometry == TextureGeometry::layered_cube;
  for (int i = 0; i < place_.dimensions; ++i) {
    const TextureAddress address = is_cube ? TextureAddress::clamp : texture_.address[static_cast<std::size_t>(i)];
    const bool is_normalized = is_cube || texture_.normalizes_coordinates;
    if ((in_.flags & kWhole) != 0)
      taps[i] = whole_tap(std::bit_cast<std::int32_t>(place_.at[i]), size[i],
                          texture_.geometry == TextureGeometry::linear ? TextureAddress::border : address);
    else
      taps[i] = is_linear ? linear_taps(place_.at[i], size[i], address, is_normalized)
                          : nearest_tap(place_.at[i], size[i], address, is_normalized);
  }
  if (place_.dimensions < 3) taps[2] = {{place_.slice, place_.slice}, 0};
}

// exact: the texel where only one counts.
bool Fetch::sample_level(const TextureLevel& level, double (&sum)[4], Texel& exact) {
  const bool is_linear = texture_.filters_linearly && (in_.flags & kWhole) == 0;
  Taps taps[3];
  find_taps(level, is_linear, taps);
  if (!is_linear || (taps[0].weight == 0 && taps[1].weight == 0 && taps[2].weight == 0)) {
    if (texture_.geometry == TextureGeometry::linear && taps[0].index[0] < 0) {
      exact = {};
      return true;
    }
    if (!read(level, taps[0].index[0], taps[1].index[0], taps[2].index[0], exact)) return false;
    for (std::size_t c = 0; c < 4; ++c) sum[c] = static_cast<double>(std::bit_cast<float>(exact[c]));
    return true;
  }
  for (unsigned corner = 0; corner < 8; ++corner) {
    std::int64_t index[3];
    double weight = 1;
    for (unsigned i = 0; i < 3; ++i) {
      const unsigned second = corner >> i & 1;
      index[i] = taps[i].index[second];
      weight *= (second != 0 ? taps[i].weight : 256 - taps[i].weight) / 256.0;
    }
    if (weight == 0) continue;
    Texel texel;
    if (!read(level, index[0], index[1], index[2], texel)) return false;
    for (std::size_t c = 0; c < 4; ++c) sum[c] += weight * static_cast<double>(std::bit_cast<float>(texel[c]));
  }
  for (std::size_t c = 0; c < 4; ++c) exact[c] = std::bit_cast<U32>(static_cast<float>(sum[c]));
  return true;
}

// .grad: how many texels the coordinate moves from one pixel to the next, the longer one of both ways.
Levels Fetch::levels() const {
  if (texture_.levels.size() == 1) return {};
  float level = 0;
  if ((in_.flags & kLevel) != 0) level = read_lane<float>(w_, in_.op[4], lane_);
  if ((in_.flags & kGradient) != 0) {
    const TextureLevel& first = texture_.levels.front();
    const double size[3] = {double(first.width), double(first.height), double(first.depth)};
    double longest = 0;
    for (int way = 0; way < 2; ++way) {
      double length = 0;
      const Operand& list = in_.op[4 + way];
      for (int i = 0; i < place_.dimensions; ++i) {
        const Operand& element = list.kind == Operand::Kind::list ? list.elements[i] : list;
        const double step = static_cast<double>(read_lane<float>(w_, element, lane_)) *
                            (texture_.normalizes_coordinates ? size[i] : 1.0);
        length += step * step;
      }
      longest = std::max(longest, length);
    }
    level = static_cast<float>(std::log2(std::max(longest, 0x1p-100)) / 2);
  }
  return levels_of(texture_, level);
}

bool Fetch::sample(Texel& out) {
  const Levels chosen = levels();
  double sum[4] = {};
  if (!sample_level(texture_.levels[chosen.index[0]], sum, out)) return false;
  if (chosen.weight == 0) return true;
  double second[4] = {};
  Texel unused;
  if (!sample_level(texture_.levels[chosen.index[1]], second, unused)) return false;
  for (std::size_t c = 0; c < 4; ++c) {
    const double mixed = (sum[c] * (256 - chosen.weight) + second[c] * chosen.weight) / 256;
    out[c] = std::bit_cast<U32>(static_cast<float>(mixed));
  }
  return true;
}

bool Fetch::gather(Texel& out) {
  Taps taps[3];
  const TextureLevel& level = texture_.levels.front();
  find_taps(level, true, taps);
  constexpr unsigned kOrder[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
  for (std::size_t i = 0; i < 4; ++i) {
    Texel texel;
    if (!read(level, taps[0].index[kOrder[i][0]], taps[1].index[kOrder[i][1]], taps[2].index[0], texel)) return false;
    out[i] = texel[in_.number];
  }
  return true;
}

// op: list of four, resident?, handle, coordinates, level or two gradients. number: the component of tld4.
template <bool kGather>
Step fetch(Warp& w, const Instruction& in, Mask active) {
  const TextureDescription* texture = nullptr;
  std::uint64_t last = 0;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const std::uint64_t handle = lane_address(w, in.op[2], lane);
    if (texture == nullptr || handle != last) {
      texture = find_object(w, in, lane, in.op[2], false);
      if (texture == nullptr) return Step::fault;
      last = handle;
    }
    Fetch one(w, in, lane, *texture);
    if (!one.find_place()) return report_geometry(w, in, lane, *texture, false);
    Texel texel;
    if (!(kGather ? one.gather(texel) : one.sample(texel))) return Step::fault;
    for (std::size_t c = 0; c < 4; ++c) write_lane<U32>(w, in.op[0].elements[c], lane, texel[c]);
  }
  write_predicate(w, in.op[1], active, kAllLanes);  // no texture is sparse
  return Step::next;
}

enum class Query : std::uint8_t { width, height, depth, array_size, num_mipmap_levels, normalized_coords };

// op: result, handle, level? flags: Query; 16: of a surface.
Step query(Warp& w, const Instruction& in, Mask active) {
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const TextureDescription* const object = find_object(w, in, lane, in.op[1], (in.flags & 16) != 0);
    if (object == nullptr) return Step::fault;
    const U32 asked = in.num_operands > 2 ? read_lane<U32>(w, in.op[2], lane) : 0;
    const TextureLevel& level = object->levels[std::min<std::size_t>(asked, object->levels.size() - 1)];
    const bool is_cube = object->geometry == TextureGeometry::cube || object->geometry == TextureGeometry::layered_cube;
    const bool is_layered =
        is_cube || object->geometry == TextureGeometry::layered_one || object->geometry == TextureGeometry::layered_two;
    const auto value = [&]() -> U32 {
      switch (static_cast<Query>(in.flags & 15)) {
        case Query::width:
          return level.width;
        case Query::height:
          return level.height;
        case Query::depth:
          return is_layered ? 1 : level.depth;
        case Query::array_size:
          return is_layered ? level.depth / (is_cube ? 6 : 1) : 0;
        case Query::num_mipmap_levels:
          return static_cast<U32>(object->levels.size());
        case Query::normalized_coords:
          return object->normalizes_coordinates ? 1 : 0;
      }
      return 0;
    }();
    write_lane<U32>(w, in.op[0], lane, value);
  }
  return Step::next;
}

// flags: 0 textures, 1 samplers, 2 surfaces. An object of the unified mode is texture and sampler.
Step is_object(Warp& w, const Instruction& in, Mask active) {
  Mask result = 0;
  for (Mask rest = active; rest != 0; rest &= rest - 1) {
    const int lane = std::countr_zero(rest);
    const TextureObject* const object =
        w.launch->options.textures == nullptr
            ? nullptr
            : w.launch->options.textures->find(read_lane<std::uint64_t>(w, in.op[1], lane));
    if (object != nullptr && !object->is_destroyed && object->is_surface == (in.flags == 2)) result |= Mask{1} << lane;
  }
  write_predicate(w, in.op[0], active, result);
  return Step::next;
}

int coordinates_of(TextureGeometry geometry) {
  return geometry == TextureGeometry::one                                               ? 1
         : geometry == TextureGeometry::two || geometry == TextureGeometry::layered_one ? 2
                                                                                        : 4;
}

bool bind_fetch(const Decoded& d) {
  auto geometry = TextureGeometry::two;
  if (!geometry_of(d, geometry)) return false;
  const Operand& coordinates = d.in->op[3];
  const int wanted = coordinates_of(geometry);
  // ptxas takes three coordinates where the manual shows four, the last of which means nothing.
  if (d.in->op[0].count != 4 || coordinates.count > wanted || coordinates.count < std::min(wanted, 3)) return false;
  if (geometry == TextureGeometry::layered_cube && coordinates.count != 4) return false;
  d.in->flags = static_cast<std::uint16_t>(static_cast<unsigned>(geometry) | (d.type(1) == Type::s32 ? kWhole : 0) |
                                           (d.has("level") ? kLevel : 0) | (d.has("grad") ? kGradient : 0));
  return true;
}

}  // namespace

Handler tex(const Decoded& d) { return bind_fetch(d) ? fetch<false> : nullptr; }
Handler tld4(const Decoded& d) {
  if (!bind_fetch(d)) return nullptr;
  constexpr std::string_view kComponents[] = {"r", "g", "b", "a"};
  for (U32 i = 0; i < 4; ++i)
    if (d.has(kComponents[i])) d.in->number = i;
  return fetch<true>;
}
Handler texture_query(const Decoded& d) {
  constexpr std::string_view kWords[] = {
      "width", "height", "depth", "array_size", "num_mipmap_levels", "normalized_coords"};
  for (std::uint16_t i = 0; i < 6; ++i)
    if (d.has(kWords[i])) d.in->flags = i;
  if (d.form->mnemonic == "suq") d.in->flags |= 16;
  return query;
}
Handler istypep(const Decoded& d) {
  d.in->flags = d.has("surfref") ? 2 : d.has("samplerref") ? 1 : 0;
  return is_object;
}

}  // namespace bind
}  // namespace tessera::emulator
