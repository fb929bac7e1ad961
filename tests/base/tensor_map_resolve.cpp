#include "base/tensor_map_resolve.h"

#include <doctest/doctest.h>

#include "tessera/error.h"

using namespace tessera;  // NOLINT: a test of one header

namespace {

const std::vector<std::string> kNames{"batch", "seqlen_q", "heads_q"};

TensorMapRecipe recipe() {
  TensorMapRecipe r;
  r.name = "q_map";
  r.buffer = "q";
  r.type = TensorMapType::f16;
  r.dims = {Expression(128), Expression::parse("seqlen_q - 1"), Expression::parse("heads_q")};
  r.strides_bytes = {Expression::parse("heads_q * 128 * 2"), Expression(256)};
  r.box = {64, 128, 1};
  r.element_strides = {1, 2, 1};
  r.swizzle = TensorMapSwizzle::b64;
  r.l2_promotion = TensorMapL2Promotion::l2_128b;
  r.fill = TensorMapFill::nan_request_zero_fma;
  return r;
}

template <class F>
std::string refusal(F change, std::vector<std::int64_t> values = {2, 4097, 8}) {
  TensorMapRecipe r = recipe();
  change(r);
  try {
    resolve(r, kNames, values, 0);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("resolve: every argument arrives") {
  const ResolvedTensorMap map = resolve(recipe(), kNames, std::vector<std::int64_t>{2, 4097, 8}, 0x7f0000000100);
  CHECK(map.type == TensorMapType::f16);
  CHECK(map.rank == 3);
  CHECK(map.address == 0x7f0000000100);
  CHECK(map.dims == std::array<std::uint64_t, 5>{128, 4096, 8, 0, 0});
  CHECK(map.strides_bytes == std::array<std::uint64_t, 5>{2048, 256, 0, 0, 0});
  CHECK(map.box == std::array<std::uint32_t, 5>{64, 128, 1, 0, 0});
  CHECK(map.element_strides == std::array<std::uint32_t, 5>{1, 2, 1, 1, 1});
  CHECK(map.interleave == TensorMapInterleave::none);
  CHECK(map.swizzle == TensorMapSwizzle::b64);
  CHECK(map.l2_promotion == TensorMapL2Promotion::l2_128b);
  CHECK(map.fill == TensorMapFill::nan_request_zero_fma);
  const BoundTensorMap bound(recipe(), kNames);
  CHECK(bound.name() == "q_map");
  CHECK(bound.buffer() == "q");
  CHECK(bound.resolve(std::vector<std::int64_t>{2, 1, 8}, 0).dims[1] == 0);  // for the rules to refuse
}

TEST_CASE("resolve: negative and overflowing values name dimension and expression") {
  const auto same = [](TensorMapRecipe&) {};
  CHECK(refusal(same, {2, -2, 8}) == "tensor map 'q_map': dims[1] = 'seqlen_q - 1' is -3: must be at least 0");
  CHECK(refusal(same, {2, 5, -1}) == "tensor map 'q_map': dims[2] = 'heads_q' is -1: must be at least 0");
  CHECK(
      refusal(same, {2, 5, INT64_MAX}) ==
      "tensor map 'q_map': strides_bytes[0]: expression 'heads_q * 128 * 2': 9223372036854775807 * 128 does not fit 64 "
      "bits");
  CHECK(refusal([](TensorMapRecipe& r) { r.strides_bytes[1] = Expression::parse("-batch"); }) ==
        "tensor map 'q_map': strides_bytes[1] = '-batch' is -2: must be at least 0");
}

TEST_CASE("resolve: a malformed recipe is refused") {
  CHECK(refusal([](TensorMapRecipe& r) { r.dims.clear(); }) ==
        "tensor map 'q_map': dims has 0 entries: must have 1 to 5");
  CHECK(refusal([](TensorMapRecipe& r) { r.dims.assign(6, Expression(1)); }) ==
        "tensor map 'q_map': dims has 6 entries: must have 1 to 5");
  CHECK(refusal([](TensorMapRecipe& r) { r.strides_bytes.emplace_back(16); }) ==
        "tensor map 'q_map': strides_bytes has 3 entries: rank 3 needs 2");
  CHECK(refusal([](TensorMapRecipe& r) { r.box = {1}; }) == "tensor map 'q_map': box has 1 entry: rank 3 needs 3");
  CHECK(refusal([](TensorMapRecipe& r) { r.element_strides.clear(); }) ==
        "tensor map 'q_map': element_strides has 0 entries: rank 3 needs 3");
  CHECK(refusal([](TensorMapRecipe& r) { r.dims[2] = Expression::parse("heads_kv"); }) ==
        "tensor map 'q_map': dims[2]: plan: expression 'heads_kv' uses 'heads_kv', which is not a size");
}
