// Pieces of one small kernel through NVRTC: what joining makes of them, and what it refuses.
#include "runtime/kernel_pieces.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cubin_file.h"
#include "runtime/nvrtc.h"

namespace tessera {
namespace {

constexpr std::string_view kEntry = "tessera_two";

/// Null, with a message, where NVRTC is absent or before 13.0.
Compiler* compiler() {
  static const std::unique_ptr<Compiler> shared = find_nvrtc() ? make_nvrtc_compiler() : nullptr;
  if (shared != nullptr && shared->identity().major_version >= 13) return shared.get();
  MESSAGE("not run: no NVRTC from 13.0 on here");
  return nullptr;
}

SourceFile piece(int number) { return {"piece.cuh", fmt::format("#define PIECE {}\n", number)}; }

/// The first warp writes what the second one has left in shared memory. `body`: what the second piece does.
SourceBundle two_warps(const std::string& body = "tile[threadIdx.x] = 2.5f * x[threadIdx.x];\n") {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text =
      "#include \"piece.cuh\"\n"
      "__device__ float variable;\n"
      "__device__ __noinline__ float called(float x) { return x * x + 1.0f; }\n"
      "extern \"C\" __global__ void __launch_bounds__(64) tessera_two(float* x) {\n"
      "  extern __shared__ float tile[];\n"
      "  if (PIECE != 2 && threadIdx.x < 32) {\n"
      "    asm volatile(\"bar.sync 1, 64;\" ::: \"memory\");\n"
      "    x[threadIdx.x] = tile[32 + threadIdx.x];\n"
      "  } else if (PIECE == 1) {\n"
      "    asm volatile(\"nanosleep.u32 98917890;\\n\\texit;\" ::: \"memory\");\n"
      "  } else {\n"
      "    " +
      body +
      "    asm volatile(\"bar.sync 1, 64;\" ::: \"memory\");\n"
      "  }\n"
      "}\n";
  bundle.headers = {piece(0)};
  bundle.arch = "sm_90a";
  bundle.options = {"-lineinfo"};
  bundle.entries = {std::string(kEntry)};
  bundle.pieces = {{piece(1)}, {piece(2)}};
  return bundle;
}

Image compiled(SourceBundle bundle, int number) {
  bundle.pieces.clear();
  bundle.headers = {piece(number)};
  return compiler()->compile(bundle);
}

std::size_t text_bytes(const std::vector<std::byte>& cubin) {
  const auto file = CubinFile::read(cubin);
  REQUIRE(file);
  const CubinSection* text = file->find(".text.tessera_two");
  REQUIRE(text != nullptr);
  return text->data.size();
}

}  // namespace

TEST_CASE("pieces: the code of one stands behind the other's, and a branch in the place of the mark") {
  if (compiler() == nullptr) return;
  SourceBundle bundle = two_warps();
  bundle.is_changed = true;  // so that pieces have lines
  const Image first = compiled(bundle, 1), second = compiled(bundle, 2), joined = compiler()->compile(bundle);
  CHECK(joined.report.log.find("tessera: compiled whole") == std::string::npos);
  INFO(joined.report.log);
  const std::size_t start = text_bytes(first.cubin);
  CHECK(text_bytes(joined.cubin) == start + text_bytes(second.cubin));

  const auto file = CubinFile::read(joined.cubin);
  REQUIRE(file);
  const std::vector<std::byte>& text = file->find(".text.tessera_two")->data;
  int marks = 0, branches = 0;
  for (std::size_t at = 0; at < start; at += 16) {
    std::uint64_t low = 0, high = 0;
    std::memcpy(&low, text.data() + at, sizeof low);
    std::memcpy(&high, text.data() + at + 8, sizeof high);
    marks += low >> 32 == 98917890 ? 1 : 0;
    const bool is_branch = (low & 0xfff) == 0x947;
    const std::uint64_t distance = (low >> 16 & 0xff) | (low >> 34) << 8 | (high & 0x3ffff) << 38;
    branches += is_branch && at + 16 + 4 * distance == start ? 1 : 0;
  }
  CHECK(marks == 0);
  CHECK(branches == 1);
  const auto behind = std::span(text).subspan(start);
  const auto of_second = CubinFile::read(second.cubin);
  CHECK(std::equal(behind.begin(), behind.end(), of_second->find(".text.tessera_two")->data.begin()));

  REQUIRE(joined.report.entries.size() == 1);
  CHECK(joined.report.entries[0].registers ==
        std::max(first.report.entries.at(0).registers, second.report.entries.at(0).registers));
  CHECK(joined.ptx.find("bra.uni $L__piece_2;") != std::string::npos);
  CHECK(joined.ptx.find("\t.loc\t1001 ") != std::string::npos);
  CHECK(joined.ptx.find("\t.file\t1001 ") != std::string::npos);

  // A kernel that is compiled whole keeps what pieces of templates as they are do without.
  bundle.is_changed = false;
  CHECK(compiler()->compile(bundle).ptx.find("\t.loc\t") == std::string::npos);
  CHECK(compiled(bundle, 0).ptx.find("\t.loc\t") != std::string::npos);
}

TEST_CASE("pieces: a cubin that nobody changed is written as one with the same sections") {
  if (compiler() == nullptr) return;
  const Image image = compiled(two_warps(), 0);
  const auto file = CubinFile::read(image.cubin);
  REQUIRE(file);
  const auto bytes = file->write();
  REQUIRE(bytes);
  const auto again = CubinFile::read(*bytes);
  REQUIRE(again);
  REQUIRE(again->sections().size() == file->sections().size());
  for (std::size_t i = 0; i < file->sections().size(); ++i) {
    CHECK(again->sections()[i].name == file->sections()[i].name);
    CHECK(again->sections()[i].data == file->sections()[i].data);
    CHECK(again->sections()[i].size == file->sections()[i].size);
  }
  CHECK(again->flags() == file->flags());
}

TEST_CASE("pieces: cut short, a cubin is none") {
  if (compiler() == nullptr) return;
  const Image image = compiled(two_warps(), 0);
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{63}, image.cubin.size() / 2, image.cubin.size() - 1})
    CHECK(!CubinFile::read(std::span(image.cubin).first(bytes)));
}

TEST_CASE("pieces: what can't be joined is said, and the kernel compiled whole") {
  if (compiler() == nullptr) return;
  const SourceBundle bundle = two_warps();
  const Image first = compiled(bundle, 1), second = compiled(bundle, 2), whole = compiled(bundle, 0);
  const auto refused = [](const std::vector<Image>& pieces) {
    std::string reason;
    CHECK(!join_pieces(pieces, kEntry, reason));
    return reason;
  };
  CHECK(refused({whole, second}) == "the first piece's PTX does not leave for piece 2 at one place");
  CHECK(refused({first, second, second}) == "the first piece's PTX does not leave for piece 3 at one place");
  Image damaged = second;
  damaged.cubin.resize(damaged.cubin.size() / 2);
  CHECK(refused({first, damaged}) == "a piece is no cubin");
  damaged = second;
  damaged.ptx = "no kernel";
  CHECK(refused({first, damaged}) == "PTX without a body of tessera_two");

  const auto whole_as = [&](const std::string& body) {
    const Image image = compiler()->compile(two_warps(body));
    const std::size_t at = image.report.log.find("can't be joined: ");
    return at == std::string::npos ? std::string() : image.report.log.substr(at + 17);
  };
  CHECK(whole_as("__shared__ volatile float own[32]; own[threadIdx.x - 32] = x[0]; tile[threadIdx.x] = own[63 - "
                 "threadIdx.x];\n") == "a piece has shared memory of its own\n");
  CHECK(whole_as("tile[threadIdx.x] = called(x[threadIdx.x]);\n").starts_with("a piece has a function: "));

  // A variable of the module: each piece would have its own.
  const SourceBundle with_variable = two_warps("tile[threadIdx.x] = atomicAdd(&variable, 1.0f);\n");
  const Image image = compiler()->compile(with_variable);
  CHECK(
      image.report.log.ends_with("tessera: compiled whole, as its pieces can't be joined: a piece reads the variable "
                                 "variable\n"));
  CHECK(text_bytes(image.cubin) == text_bytes(compiled(with_variable, 0).cubin));
}

TEST_CASE("pieces: errors are those of the source") {
  if (compiler() == nullptr) return;
  CHECK_THROWS_WITH(compiler()->compile(two_warps("none();\n")), doctest::Contains("identifier \"none\" is undefined"));
}

}  // namespace tessera
