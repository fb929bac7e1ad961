// What `tessera layout` prints against the emulator's own decoding of the PTX manual, cell by cell: every matrix
// product and operand, every move, block scales, swizzles, descriptors, tensor copies. (Its pages come from
// templates/spec; tests/emulator_math/spec_layouts.cpp compares those functions with the emulator.)
#include <fmt/format.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "emulator/math/fragments.h"
#include "emulator/math/instruction_descriptor.h"
#include "emulator/math/matrix_descriptor.h"
#include "emulator/math/swizzle.h"
#include "emulator/math/tile_copy.h"
#include "emulator/math/tmem_layout.h"
#include "tests/cli/command.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;
using namespace tessera::emulator;
using Json = nlohmann::ordered_json;

namespace {

Json page_of(Terminal& terminal, std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "layout");
  arguments.emplace_back("--json");
  const Outcome outcome = terminal.run(arguments);
  CAPTURE(arguments[2]);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  return Json::parse(outcome.out);
}

/// Row and column of element `index` of a register of a thread.
using Map = std::function<math::Place(int lane, int reg, int index)>;

/// Both grids of a fragment page say what `map` says, and every element stands there once.
void compare_fragment(const Json& page, const Map& map) {
  for (std::size_t grid = 0; grid < 2; ++grid) {
    std::size_t cells = 0;
    std::map<std::pair<int, int>, int> seen;
    for (const Json& row : page["grids"][grid]["cells"])
      for (const Json& cell : row) {
        const int bits = cell["bits"];
        const int index = bits >= 32 ? 0 : cell["first_bit"].get<int>() / bits;
        const math::Place place = map(cell["lane"], cell["register"], index);
        REQUIRE(place.row == cell["row"].get<int>());
        REQUIRE(place.column == cell["column"].get<int>());
        ++seen[{place.row, place.column}];
        ++cells;
      }
    REQUIRE(cells == seen.size());
  }
}

struct Product {
  const char* name;
  int bits;
};

constexpr Product kProducts[] = {
    {"mma.m16n8k8.f16", 16},      {"mma.m16n8k16.f16", 16},     {"mma.m16n8k8.bf16", 16},
    {"mma.m16n8k16.bf16", 16},    {"mma.m16n8k4.tf32", 32},     {"mma.m16n8k8.tf32", 32},
    {"mma.m8n8k4.f64", 64},       {"mma.m16n8k4.f64", 64},      {"mma.m16n8k8.f64", 64},
    {"mma.m16n8k16.f64", 64},     {"mma.m16n8k16.e4m3", 8},     {"mma.m16n8k32.e4m3", 8},
    {"mma.m16n8k16.e5m2", 8},     {"mma.m16n8k32.e5m2", 8},     {"mma.m16n8k32.e3m2", 8},
    {"mma.m16n8k32.e2m3", 8},     {"mma.m16n8k32.e2m1", 8},     {"mma.m8n8k16.s8", 8},
    {"mma.m16n8k16.s8", 8},       {"mma.m16n8k32.s8", 8},       {"mma.m8n8k16.u8", 8},
    {"mma.m16n8k16.u8", 8},       {"mma.m16n8k32.u8", 8},       {"mma.m8n8k32.s4", 4},
    {"mma.m16n8k32.s4", 4},       {"mma.m16n8k64.s4", 4},       {"mma.m8n8k32.u4", 4},
    {"mma.m16n8k32.u4", 4},       {"mma.m16n8k64.u4", 4},       {"mma.m8n8k128.b1", 1},
    {"mma.m16n8k128.b1", 1},      {"mma.m16n8k256.b1", 1},      {"mma.m16n8k32.mxf8f6f4", 8},
    {"mma.m16n8k64.mxf4", 4},     {"mma.m16n8k64.mxf4nvf4", 4}, {"mma.sp.m16n8k16.f16", 16},
    {"mma.sp.m16n8k32.bf16", 16}, {"mma.sp.m16n8k16.tf32", 32}, {"mma.sp.m16n8k64.u8", 8},
    {"mma.sp.m16n8k128.u4", 4},   {"mma.sp.m16n8k64.e4m3", 8}};

TEST_CASE("printed maps: fragments of every mma.sync are the emulator's") {
  Terminal terminal;
  for (const Product& product : kProducts) {
    CAPTURE(product.name);
    const int bits = std::min(product.bits, 32), per = 32 / bits;  // f64: as a 32-bit element, in a register of its own
    const int rows = std::string_view(product.name).find("m8n8") != std::string_view::npos ? 2 : 1;
    compare_fragment(page_of(terminal, {"fragment", product.name, "--operand", "A"}),
                     [&](int lane, int reg, int index) { return math::mma_a(bits, lane, rows * reg, index); });
    compare_fragment(page_of(terminal, {"fragment", product.name, "--operand", "B"}),
                     [&](int lane, int reg, int index) { return math::mma_b(bits, lane, reg, index); });
    (void)per;
    for (const char* operand : {"C", "D"})
      compare_fragment(page_of(terminal, {"fragment", product.name, "--operand", operand}),
                       [&](int lane, int reg, int) { return math::mma_d(lane, reg); });
  }
  for (const char* halves : {"mma.m16n8k16.f16", "mma.m16n8k32.e4m3"})
    compare_fragment(page_of(terminal, {"fragment", halves, "--type-d", "f16"}),
                     [](int lane, int reg, int index) { return math::mma_d(lane, 2 * reg + index); });
}

TEST_CASE("printed maps: fragments of wgmma are the emulator's") {
  Terminal terminal;
  testing::Sample wide(16);  // wide pages take seconds to read
  const std::pair<const char*, int> kTypes[] = {{"k16.f16", 16}, {"k16.bf16", 16}, {"k8.tf32", 32}, {"k32.e4m3", 8},
                                                {"k32.e5m2", 8}, {"k32.s8", 8},    {"k32.u8", 8},   {"k256.b1", 1}};
  for (const auto& type : kTypes) {
    const int bits = type.second;
    const bool is_integer = std::string_view(type.first).ends_with("8") && bits == 8;
    for (const int n : {8, 16, 24, 64, 256}) {
      if (n > 24 && !wide.takes()) continue;
      const std::string name = fmt::format("wgmma.m64n{}{}", n, type.first);
      CAPTURE(name);
      compare_fragment(page_of(terminal, {"fragment", name, "--operand", "D"}),
                       [](int lane, int reg, int) { return math::wgmma_d(lane, reg); });
      if (n == 8 && bits > 1)
        compare_fragment(page_of(terminal, {"fragment", name, "--operand", "A"}),
                         [&](int lane, int reg, int index) { return math::wgmma_a(bits, lane, reg, index); });
      if (n == 64 && bits == 16 && std::string_view(type.first) == "k16.f16")
        compare_fragment(page_of(terminal, {"fragment", name, "--type-d", "f16"}),
                         [](int lane, int reg, int index) { return math::wgmma_d(lane, 2 * reg + index); });
    }
    CHECK(is_integer == (type.first[4] == 's' || type.first[4] == 'u'));
  }
}

TEST_CASE("printed maps: ldmatrix, stmatrix, tcgen05.ld and .st are the emulator's") {
  Terminal terminal;
  const auto of_bytes = [](math::MatrixByte (*map)(int, int, int), int bytes) {
    return [map, bytes](int lane, int reg, int index) {
      const math::MatrixByte byte = map(lane, reg, bytes * index);
      return math::Place{byte.address_lane, byte.offset / bytes};
    };
  };
  for (const char* count : {"x1", "x2", "x4"})
    for (const std::string way : {"ldmatrix", "stmatrix"}) {
      compare_fragment(page_of(terminal, {"fragment", way + ".m8n8." + count}), of_bytes(math::m8n8, 2));
      compare_fragment(page_of(terminal, {"fragment", way + ".m8n8." + count + ".trans"}),
                       of_bytes(math::m8n8_trans, 2));
    }
  for (const std::string count : {"x1", "x2", "x4"}) {
    compare_fragment(page_of(terminal, {"fragment", "stmatrix.m16n8." + count + ".trans"}),
                     of_bytes(math::m16n8_trans_b8, 1));
    for (const auto& [format, width] : {std::pair("b6x16_p32", 6), std::pair("b4x16_p64", 4)}) {
      const int bits = width;
      compare_fragment(page_of(terminal, {"fragment", fmt::format("ldmatrix.m8n16.{}.{}", count, format)}),
                       [&](int lane, int reg, int index) {
                         const math::MatrixBits found = math::m8n16_narrow(bits, lane, reg, index);
                         return math::Place{found.address_lane, found.first_bit / bits};
                       });
      if (count == "x4") continue;
      compare_fragment(page_of(terminal, {"fragment", fmt::format("ldmatrix.m16n16.{}.trans.{}", count, format)}),
                       [&](int lane, int reg, int index) {
                         const math::MatrixBits found = math::m16n16_trans_narrow(bits, lane, reg, index);
                         return math::Place{found.address_lane, found.first_bit / bits};
                       });
    }
    if (count != "x4")
      compare_fragment(page_of(terminal, {"fragment", "ldmatrix.m16n16." + count + ".trans"}),
                       of_bytes(math::m16n16_trans_b8, 1));
  }
  const std::tuple<const char*, math::TmemShape, int> kShapes[] = {{"32x32b", math::TmemShape::l32x32b, 128},
                                                                   {"16x64b", math::TmemShape::l16x64b, 128},
                                                                   {"16x128b", math::TmemShape::l16x128b, 64},
                                                                   {"16x256b", math::TmemShape::l16x256b, 32},
                                                                   {"16x32bx2", math::TmemShape::l16x32bx2, 128}};
  for (const auto& shape : kShapes)
    for (int n = 1; n <= std::get<2>(shape); n *= 4)
      for (const char* way : {"ld", "st"})
        compare_fragment(page_of(terminal, {"fragment", fmt::format("tcgen05.{}.{}.x{}", way, std::get<0>(shape), n)}),
                         [&](int lane, int reg, int) {
                           const math::TmemPlace place = math::tmem_register(std::get<1>(shape), lane, reg, n);
                           return math::Place{place.lane, place.column};
                         });
  for (const auto& shape : kShapes)
    for (const char* way : {"ld.{}.x2.pack::16b", "st.{}.x2.unpack::16b"})
      compare_fragment(page_of(terminal, {"fragment", "tcgen05." + fmt::format(fmt::runtime(way), std::get<0>(shape))}),
                       [&](int lane, int reg, int index) {
                         const math::TmemPlace place = math::tmem_register(std::get<1>(shape), lane, reg, 2);
                         return math::Place{place.lane, 2 * place.column + index};
                       });
}

TEST_CASE("printed maps: block scales of mma.sync under every selector are the emulator's") {
  Terminal terminal;
  struct Form {
    const char *name, *vector;
    int count, k;
  };
  for (const Form& form : {Form{"mma.m16n8k32.mxf8f6f4", "1X", 1, 32}, Form{"mma.m16n8k64.mxf4", "2X", 2, 64},
                           Form{"mma.m16n8k64.mxf4nvf4", "2X", 2, 64}, Form{"mma.m16n8k64.mxf4nvf4", "4X", 4, 64}})
    for (const bool is_a : {true, false})
      for (int thread = 0; thread < (is_a ? 2 : 4); ++thread)
        for (int byte = 0; byte + form.count <= 4; byte += form.count) {
          const Json page =
              page_of(terminal, {"fragment", form.name, "--operand", is_a ? "SFA" : "SFB", "--scale-vec", form.vector,
                                 "--thread-id", std::to_string(thread), "--byte-id", std::to_string(byte)});
          for (const std::size_t grid : {0U, 1U})
            for (const Json& row : page["grids"][grid]["cells"])
              for (const Json& cell : row) {
                if (!cell.contains("block")) continue;  // a byte that is not read
                const int index = cell[is_a ? "row" : "column"], block = cell["block"];
                REQUIRE(cell["lane"] ==
                        (is_a ? math::mma_scale_lane_a(index, thread) : math::mma_scale_lane_b(index, thread)));
                REQUIRE(cell["byte"] == math::tmem_scale_byte(form.count, byte, block * (form.k / form.count)));
              }
        }
}

TEST_CASE("printed maps: swizzles, descriptors and scale tiles are the emulator's") {
  Terminal terminal;
  const std::pair<const char*, math::Swizzle> kModes[] = {{"none", math::Swizzle::none},
                                                          {"32B", math::Swizzle::b32},
                                                          {"64B", math::Swizzle::b64},
                                                          {"128B", math::Swizzle::b128},
                                                          {"128B_atom_32B", math::Swizzle::b128_atom_32b}};
  for (const auto& [name, mode] : kModes)
    for (const unsigned base : {0u, 128u, 592u}) {
      const Json page = page_of(terminal, {"swizzle", name, "--rows", "33", "--base", std::to_string(base)});
      const unsigned pitch = mode == math::Swizzle::none ? 128 : math::swizzle_span_bytes(mode);
      for (const std::size_t grid : {0u, 1u})
        for (const Json& row : page["grids"][grid]["cells"])
          for (const Json& cell : row) {
            if (!cell.contains("row")) continue;
            const unsigned plain = base + cell["row"].get<unsigned>() * pitch + cell["chunk"].get<unsigned>() * 16;
            REQUIRE(cell["address"] == math::apply_swizzle(mode, plain));
            REQUIRE(cell["bank"] == math::apply_swizzle(mode, plain) / 4 % 32);
          }
    }
  for (const auto& [name, mode] : kModes)
    for (const char* major : {"k", "mn"})
      for (const char* kind : {"wgmma", "tcgen05"}) {
        if (mode == math::Swizzle::b128_atom_32b && (kind[0] == 'w' || major[0] == 'k')) continue;  // not legal
        const math::MatrixDescriptor d{0x2400, 8192, 1024, 0, mode, false};
        const std::uint64_t bits =
            math::encode_descriptor(kind[0] == 'w' ? math::DescriptorKind::wgmma : math::DescriptorKind::tcgen05, d);
        const Json page = page_of(terminal, {"smem-descriptor", kind, fmt::format("{:#x}", bits), "--major", major});
        const bool is_k = major[0] == 'k';
        for (const Json& row : page["grids"][0]["cells"])
          for (const Json& cell : row)
            REQUIRE(cell["address"] == math::chunk_address(d, is_k ? math::Major::k : math::Major::mn,
                                                           is_k ? cell["row"].get<std::uint32_t>() : 0,
                                                           cell["chunk"].get<std::uint32_t>(),
                                                           is_k ? 0 : cell["k"].get<std::uint32_t>()));
      }
  const Json scales = page_of(terminal, {"scale-factors", "nvfp4", "--rows", "128", "--k", "64"});
  for (const Json& row : scales["grids"][0]["cells"])
    for (const Json& cell : row) {
      const int byte = cell["byte"];
      const math::TmemPlace copied = math::tmem_copy(math::TmemCopy::c32x128b_x4, byte / 16, byte % 16 / 4, 0);
      const math::TmemPlace read = math::tmem_scale(cell["row"]);
      REQUIRE(cell["tmem_lane"] == copied.lane);
      REQUIRE(cell["tmem_column"] == copied.column);
      REQUIRE(cell["tmem_lane"] == read.lane);
      REQUIRE(cell["tmem_column"] == read.column);
      REQUIRE(cell["tmem_byte"] == math::tmem_scale_byte(4, 0, cell["block"].get<int>() * 16));
    }
}

TEST_CASE("printed maps: instruction descriptors from flags decode in the emulator to what was said") {
  Terminal terminal;
  const std::pair<const char*, math::Tcgen05Kind> kKinds[] = {
      {"f16", math::Tcgen05Kind::f16},           {"tf32", math::Tcgen05Kind::tf32},
      {"f8f6f4", math::Tcgen05Kind::f8f6f4},     {"i8", math::Tcgen05Kind::i8},
      {"mxf8f6f4", math::Tcgen05Kind::mxf8f6f4}, {"mxf4", math::Tcgen05Kind::mxf4},
      {"mxf4nvf4", math::Tcgen05Kind::mxf4nvf4}};
  for (const auto& [name, kind] : kKinds)
    for (const int n : {16, 128, 256}) {
      const bool is_four = std::string_view(name).starts_with("mxf4");
      std::vector<std::string> arguments = {"instruction-descriptor", name, "--m", "128", "--n", std::to_string(n)};
      if (!is_four) arguments.insert(arguments.end(), {"--major-b", "mn"});
      const Json page = page_of(terminal, arguments);
      const auto bits = static_cast<std::uint32_t>(std::stoul(page["facts"]["bits"].get<std::string>(), nullptr, 16));
      const math::InstructionDescriptor read = math::decode_instruction(kind, bits);
      REQUIRE(read.issue == math::InstructionIssue::none);
      REQUIRE(read.m == 128);
      REQUIRE(read.n == n);
      REQUIRE(read.a_major == math::Major::k);
      REQUIRE(read.b_major == (is_four ? math::Major::k : math::Major::mn));
    }
}

struct Copy {
  const char *type, *swizzle;
  math::TileType tile;
  math::Swizzle mode;
  std::uint64_t width;
  std::uint32_t box;
  int x;
};

TEST_CASE("printed maps: tensor copies of plain, packed and padded types are the emulator's") {
  using math::Swizzle;
  using math::TileType;
  Terminal terminal;
  for (const Copy& copy :
       {Copy{"bf16", "128B", TileType::bf16, Swizzle::b128, 304, 64, 256},
        Copy{"bf16", "64B", TileType::bf16, Swizzle::b64, 40, 32, -8},
        Copy{"u32", "32B", TileType::u32, Swizzle::b32, 20, 8, 16},
        Copy{"u8", "none", TileType::u8, Swizzle::none, 208, 96, 160},
        Copy{"u4x16_align8b", "128B", TileType::u4x16_align8b, Swizzle::b128, 320, 256, 128},
        Copy{"u4x16_align16b", "128B", TileType::u4x16_align16b, Swizzle::b128, 384, 128, 256},
        Copy{"u4x16_align16b", "none", TileType::u4x16_align16b, Swizzle::none, 384, 128, 384},
        Copy{"u6x16_align16b", "128B", TileType::u6x16_align16b, Swizzle::b128, 512, 128, 128},
        Copy{"u6x16_align16b", "128B_atom_32B", TileType::u6x16_align16b, Swizzle::b128_atom_32b, 512, 128, -128}})
    for (const int y : {0, -3, 17}) {
      CAPTURE(copy.type);
      const Json page = page_of(
          terminal, {"tensor-map", "--dtype", copy.type, "--dims", fmt::format("{},20", copy.width), "--box",
                     fmt::format("{},10", copy.box), "--swizzle", copy.swizzle, fmt::format("--at={},{}", copy.x, y)});
      math::TensorTile tile;
      tile.type = copy.tile;
      tile.rank = 2;
      tile.dims = {copy.width, 20};
      const auto bits = static_cast<std::uint64_t>(math::tile_element_bits(copy.tile));
      tile.stride_bytes = {copy.width * bits / 8};
      tile.box = {copy.box, 10};
      tile.swizzle = copy.mode;
      std::vector<math::TileChunk> chunks;
      math::for_each_chunk(tile, {copy.x, y}, 0, [&](const math::TileChunk& chunk) { chunks.push_back(chunk); });
      std::size_t i = 0;
      for (const Json& row : page["grids"][0]["cells"])
        for (const Json& cell : row) {
          REQUIRE(i < chunks.size());
          const math::TileChunk& chunk = chunks[i++];
          REQUIRE(cell["smem_address"] == chunk.shared);
          REQUIRE(cell["elements_inside"] ==
                  static_cast<int>(static_cast<std::uint64_t>(chunk.valid_bytes) * 8 / bits));
          if (chunk.valid_bytes > 0) REQUIRE(cell["global_byte"] == chunk.global);
          if (math::is_padded(copy.tile)) REQUIRE(cell["data_bytes"] == chunk.data_bytes);
        }
      REQUIRE(i == chunks.size());
      REQUIRE(page["facts"]["credited to the mbarrier"] ==
              fmt::format("{} bytes, whatever lies outside", math::tile_credit_bytes(tile)));
    }
}

}  // namespace
