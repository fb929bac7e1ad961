// The generated header with the wgmma instructions. The default one, checked in beside its config, is the golden.
#include "generator/wgmma_header.h"

#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "spec/fmha.h"
#include "spec/gemm.h"
#include "spec/indexer.h"

namespace tessera {
namespace {

std::string read(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST_CASE("the header of an indexer's scores is the one that is checked in") {
  const indexer::Config c;
  const WgmmaShape shapes[] = {indexer::product_shape(c)};
  CHECK(wgmma_header(shapes) == read(TESSERA_SOURCE_DIR "/templates/indexer/default/wgmma_shapes.cuh"));
}

TEST_CASE("operands are numbered accumulators first, then A, B and the predicate") {
  const fmha::WgmmaShape shared[] = {{16, DType::f16, false, false}};
  const std::string text = wgmma_header(shared);
  CHECK(count(text, "m64n16k16.f32.f16.f16") == 1);
  CHECK(count(text, "setp.ne.b32 p, %10, 0;") == 1);
  CHECK(count(text, "}, %8, %9, p, 1, 1, 0, 0;") == 1);
  CHECK(count(text, "begin(") == 0);
  const fmha::WgmmaShape registers[] = {{16, DType::bf16, true, true}};
  CHECK(count(wgmma_header(registers), "}, {%8, %9, %10, %11}, %12, p, 1, 1, 1;") == 1);
}

TEST_CASE("a statement that begins a product writes D without reading it") {
  const fmha::WgmmaShape shapes[] = {{16, DType::f16, false, false, 2, false, DType::f16, true}};
  const std::string text = wgmma_header(shapes);
  const std::string begin = text.substr(text.find("void begin("), text.find("void hold(") - text.find("void begin("));
  CHECK(count(begin, "accumulate") == 0);
  CHECK(count(begin, "mov.pred p, 0;") == 1);
  CHECK(count(begin, "}, %8, %10, p, 1, 1, 0, 0;") == 1);
  CHECK(count(begin, "}, %9, %11, q, 1, 1, 0, 0;") == 1);
  CHECK(count(begin, "\"=f\"(d[") == 8);
  CHECK(count(begin, "\"+f\"(d[") == 0);
  CHECK(count(text, "\"+f\"(d[") == 16);  // mma and hold
}

TEST_CASE("all steps of a product are one statement, and only the first has a predicate") {
  const fmha::WgmmaShape shared[] = {{16, DType::f16, false, false, 3}};
  const std::string text = wgmma_header(shared);
  CHECK(count(text, "setp.ne.b32 p, %14, 0;") == 1);
  CHECK(count(text, "}, %8, %11, p, 1, 1, 0, 0;") == 1);
  CHECK(count(text, "}, %9, %12, q, 1, 1, 0, 0;") == 1);
  CHECK(count(text, "}, %10, %13, q, 1, 1, 0, 0;") == 1);
  CHECK(count(text, "asm volatile") == 2);  // mma and hold
  CHECK(count(text, "begin(") == 0);
  const fmha::WgmmaShape registers[] = {{16, DType::bf16, true, true, 2}};
  const std::string of_registers = wgmma_header(registers);
  CHECK(count(of_registers, "}, {%8, %9, %10, %11}, %16, p, 1, 1, 1;") == 1);
  CHECK(count(of_registers, "}, {%12, %13, %14, %15}, %17, q, 1, 1, 1;") == 1);
}

TEST_CASE("products of gemm: the default's header, 8-bit operands, other layouts") {
  const WgmmaShape defaults[] = {gemm::wgmma_shape(gemm::Config{})};
  CHECK(wgmma_header(defaults) == read(TESSERA_SOURCE_DIR "/templates/gemm/default/wgmma_shapes.cuh"));
  const WgmmaShape mixed[] = {{16, DType::e4m3, false, false, 1, false, DType::e5m2}};
  const std::string text = wgmma_header(mixed);
  CHECK(count(text, "m64n16k32.f32.e4m3.e5m2") == 1);
  CHECK(count(text, "}, %8, %9, p, 1, 1;") == 1);
  CHECK(count(text, "struct Wgmma<16, DType::e4m3, false, false, 1, false, DType::e5m2> {") == 1);
  const WgmmaShape transposed[] = {{16, DType::f16, false, true, 1, true}};
  CHECK(count(wgmma_header(transposed), "}, %8, %9, p, 1, 1, 1, 1;") == 1);
  CHECK(count(wgmma_header(transposed), "struct Wgmma<16, DType::f16, false, true, 1, true> {") == 1);
}

TEST_CASE("a shape that comes twice is written once") {
  const fmha::WgmmaShape shapes[] = {
      {64, DType::bf16, true, true}, {64, DType::bf16, true, true}, {64, DType::bf16, false, false}};
  CHECK(count(wgmma_header(shapes), "template <>") == 2);
}

TEST_CASE("lines stay within 120 columns") {
  const fmha::WgmmaShape shapes[] = {{256, DType::bf16, true, true}, {256, DType::f16, false, false}};
  std::istringstream text(wgmma_header(shapes));
  for (std::string line; std::getline(text, line);) CHECK(line.size() <= 120);
}

}  // namespace
}  // namespace tessera
