// Verdicts over quantised bytes say where they are wrong and why: planted faults in what a kernel stores.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "reference/block_scale_run.h"
#include "tests/support/has_text.h"

namespace tessera::reference {
namespace {

using testing::has;

BlockRun run_of(BlockFormat format, ScaleForm form) {
  BlockRun run;
  run.format = format;
  run.form = form;
  run.dtype = DType::f32;
  run.l = 2;
  run.rows = 150;
  run.k = 224;
  return run;
}

Tensor bytes_tensor(const std::vector<std::uint8_t>& bytes) {
  Tensor tensor(DType::u8, {static_cast<std::int64_t>(bytes.size())});
  std::memcpy(tensor.bytes.data(), bytes.data(), bytes.size());
  return tensor;
}

/// What a right kernel stores.
struct Stored {
  BlockRun run;
  Tensors inputs, outputs;

  explicit Stored(const BlockRun& of, Range range = Range::normal) : run(of), inputs(quantize_inputs(run, range)) {
    store({run.format, run.form, run.rounding, global_scale()});
  }
  float global_scale() const {
    float g = 1;
    if (const auto found = inputs.find("global_scale"); found != inputs.end())
      std::memcpy(&g, found->second.bytes.data(), 4);
    return g;
  }
  void store(const QuantizeRule& rule) {
    const Quantized q = quantize(inputs.at("x").view(), rule);
    outputs["values"] = bytes_tensor(q.values);
    outputs["scales"] = bytes_tensor(q.scales);
  }
  std::string verdict() const {
    const Comparison result = check_quantize(run, inputs, outputs);
    std::string text;
    for (const std::string& problem : result.problems) text += problem + "\n";
    CHECK(result.pass == text.empty());
    if (!result.pass) CHECK((result.rel_error > 0 || std::isnan(result.rel_error)));
    return text;
  }
};

}  // namespace

TEST_CASE("quantize: wrong bytes are told by their places, with the likely cause") {
  for (const ScaleForm form : {ScaleForm::plain, ScaleForm::tile}) {
    Stored s(run_of(BlockFormat::nvfp4, form));
    CHECK(s.verdict().empty());
    for (std::byte& byte : s.outputs["values"].bytes) byte = byte << 4 | byte >> 4;
    const std::string nibbles = s.verdict();
    has(nibbles, "checked elements wrong; matrix all, row all, k all; first at [0, 0, ");
    has(nibbles, "values: likely cause: nibbles are exchanged");
    s.store({BlockFormat::nvfp4, form, ScaleRounding::up, 1});
    // One element, in row 130 of the second matrix.
    s.outputs["values"].bytes[(150 + 130) * 112 + 3] ^= std::byte{0x10};
    has(s.verdict(), "values: 1 of 67200 checked elements wrong; matrix 1, row 130, k 7; first at [1, 130, 7]");
  }
}

TEST_CASE("quantize, dequantize: fields of six bits that are off, and values of a byte each") {
  for (const BlockFormat format : {BlockFormat::mxfp6_e3m2, BlockFormat::mxfp6_e2m3}) {
    Stored s(run_of(format, ScaleForm::plain));
    CHECK(s.verdict().empty());
    const std::vector<std::byte> right = s.outputs["values"].bytes;
    std::vector<std::byte>& stored = s.outputs["values"].bytes;
    for (std::size_t i = 1; i < right.size(); ++i) stored[i] = right[i] << 2 | right[i - 1] >> 6;
    has(s.verdict(),
        "values: likely cause: values of six bits are stored 2 bits too high: value i of a row is its bits 6 i");
    const auto* const codes = reinterpret_cast<const std::uint8_t*>(right.data());
    for (std::size_t i = 0; i < right.size(); ++i)
      stored[i] = std::byte{load_code({codes, right.size()}, 6, static_cast<std::int64_t>(i))};
    has(s.verdict(), "values: likely cause: values have a byte each: four of them fill three bytes");
  }
  const BlockRun run = run_of(BlockFormat::mxfp6_e3m2, ScaleForm::tile);
  const Tensors inputs = dequantize_inputs(run, Range::normal);
  const auto bytes = [](const Tensor& t) {
    return std::span(reinterpret_cast<const std::uint8_t*>(t.bytes.data()), t.bytes.size());
  };
  const Tensor y = dequantize(bytes(inputs.at("values")), bytes(inputs.at("scales")),
                              {BlockFormat::mxfp6_e2m3, run.form}, run.dtype, run.l, run.rows, run.k);
  const Comparison exchanged = check_dequantize(run, inputs, {{"y", y}});
  REQUIRE(exchanged.problems.size() == 2);
  has(exchanged.problems[1], "likely cause: values of the input of six bits are read as the other type of six bits");
}

TEST_CASE("quantize: scales in a wrong order of a tile, and padding that was left") {
  Stored s(run_of(BlockFormat::nvfp4, ScaleForm::tile));
  const Tensor right = s.outputs["scales"];
  Tensor& scales = s.outputs["scales"];
  for (std::int64_t r = 0; r < 128; ++r)
    for (std::int64_t j = 0; j < 4; ++j)
      for (std::size_t tile = 0; tile < right.bytes.size(); tile += 512)
        scales.bytes[tile + static_cast<std::size_t>(r % 32 * 16 + j * 4 + r / 32)] =
            right
                .bytes[tile + static_cast<std::size_t>(scale_offset_in_tile(static_cast<int>(r), static_cast<int>(j)))];
  has(s.verdict(), "scales: likely cause: within a tile rows 32 apart and blocks have changed places");
  scales = right;
  scales.bytes.back() = std::byte{0xFF};
  CHECK(check_quantize(s.run, s.inputs, s.outputs).problems ==
        std::vector<std::string>{"scales: 1 bytes of padding are not 0"});
}

TEST_CASE("quantize: rules that are not the right ones") {
  BlockRun run = run_of(BlockFormat::mxfp8_e4m3, ScaleForm::plain);
  Stored mx(run);
  mx.store({run.format, run.form, ScaleRounding::floor, 1});
  const std::string floor = mx.verdict();
  has(floor, "scales: likely cause: scales are taken down to a power of two (floor), up is right");
  run = run_of(BlockFormat::nvfp4, ScaleForm::plain);
  run.global_scale = GlobalScale::given;
  run.given_scale = 0.3F;
  Stored with_g(run);
  CHECK(with_g.verdict().empty());
  with_g.store({run.format, run.form, run.rounding, 1});
  has(with_g.verdict(), "scales: likely cause: the global scale does not count");
  // Ties: whole numbers, of which many lie on boundaries.
  Stored ties(run_of(BlockFormat::nvfp4, ScaleForm::plain), Range::integer);
  CHECK(ties.verdict().empty());
}

TEST_CASE("dequantize and convert_scales: places and causes") {
  const BlockRun run = run_of(BlockFormat::nvfp4, ScaleForm::tile);
  const Tensors inputs = dequantize_inputs(run, Range::normal);
  const auto bytes = [](const Tensor& t) {
    return std::span(reinterpret_cast<const std::uint8_t*>(t.bytes.data()), t.bytes.size());
  };
  Tensor y = dequantize(bytes(inputs.at("values")), bytes(inputs.at("scales")), {run.format, run.form}, run.dtype,
                        run.l, run.rows, run.k);
  CHECK(check_dequantize(run, inputs, {{"y", y}}).pass);
  Tensor wrong = y;
  for (std::int64_t i = 0; i < y.elements(); ++i) wrong.set(i, y.at(i ^ 1));
  const Comparison exchanged = check_dequantize(run, inputs, {{"y", wrong}});
  CHECK(!exchanged.pass);
  REQUIRE(exchanged.problems.size() == 2);
  has(exchanged.problems[0], "y: ");
  has(exchanged.problems[1], "likely cause: nibbles of the input are exchanged");

  const Tensors from = convert_scales_inputs(run);
  std::vector<std::uint8_t> to =
      convert_scales(bytes(from.at("from")), ScaleForm::plain, ScaleForm::tile, run.l, run.rows, run.k);
  CHECK(check_convert_scales(run, from, {{"to", bytes_tensor(to)}}).pass);
  for (std::size_t cell = 0; cell < to.size(); cell += 4) {
    std::swap(to[cell], to[cell + 1]);
    std::swap(to[cell + 2], to[cell + 3]);
  }
  const Comparison swapped = check_convert_scales(run, from, {{"to", bytes_tensor(to)}});
  REQUIRE(swapped.problems.size() == 2);
  has(swapped.problems[1], "to: likely cause: blocks 2i and 2i + 1 have changed places");
}

}  // namespace tessera::reference
