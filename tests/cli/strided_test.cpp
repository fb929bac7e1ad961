#include "cli/strided.h"

#include <doctest/doctest.h>

#include "reference/poison.h"
#include "reference/random.h"
#include "tessera/error.h"

namespace tessera::cli {
namespace {

using reference::Tensor;

Tensor random_tensor(std::vector<std::int64_t> shape) {
  Tensor tensor(DType::bf16, std::move(shape));
  reference::fill(tensor, reference::Fill::normal, 5, 1);
  return tensor;
}

}  // namespace

TEST_CASE("strided: a tensor that is spread and gathered is itself, and its gaps are poison") {
  const Tensor tensor = random_tensor({2, 3, 5});
  const std::vector<std::int64_t> strides{40, 7, 1};
  std::vector<std::byte> memory = spread(tensor, strides);
  CHECK(memory.size() == 2 * (40 + 2 * 7 + 5));
  CHECK(gather(memory, tensor.dtype, tensor.shape, strides).bytes == tensor.bytes);
  CHECK(gap_problem("d", memory, tensor.dtype, tensor.shape, strides).empty());
  // Rows end after 5 elements; the sixth is a gap.
  memory[2 * 5] = std::byte{0};
  CHECK(gap_problem("d", memory, tensor.dtype, tensor.shape, strides) ==
        "d: 1 byte between its rows was overwritten, the first at byte 10");
  memory[2 * 46 + 1] = std::byte{1};
  CHECK(gap_problem("d", memory, tensor.dtype, tensor.shape, strides) ==
        "d: 2 bytes between its rows were overwritten, the first at byte 10");
}

TEST_CASE("strided: dense strides leave no gap, transposed ones keep every element") {
  const Tensor tensor = random_tensor({3, 4});
  const std::vector<std::int64_t> dense{4, 1}, transposed{1, 3};
  CHECK(spread(tensor, dense) == tensor.bytes);
  const std::vector<std::byte> memory = spread(tensor, transposed);
  CHECK(memory.size() == tensor.bytes.size());
  CHECK(memory != tensor.bytes);
  CHECK(gather(memory, tensor.dtype, tensor.shape, transposed).bytes == tensor.bytes);
}

TEST_CASE("strided: what is dense") {
  const std::vector<std::int64_t> shape{2, 1, 5}, empty{2, 0, 5};
  CHECK(is_laid_out_densely(shape, std::vector<std::int64_t>{5, 77, 1}));
  CHECK_FALSE(is_laid_out_densely(shape, std::vector<std::int64_t>{6, 5, 1}));
  CHECK_FALSE(is_laid_out_densely(shape, std::vector<std::int64_t>{0, 5, 1}));
  CHECK(is_laid_out_densely(empty, std::vector<std::int64_t>{9, 9, 9}));
}

TEST_CASE("strided: rows that share memory hold what the last one holds") {
  const Tensor tensor = random_tensor({3, 4});
  const std::vector<std::int64_t> strides{0, 1};
  const std::vector<std::byte> memory = spread(tensor, strides);
  CHECK(memory.size() == 8);
  const Tensor folded = gather(memory, tensor.dtype, tensor.shape, strides);
  for (std::int64_t i = 0; i < 12; ++i) CHECK(folded.view().bits_at(i) == tensor.view().bits_at(8 + i % 4));
}

TEST_CASE("strided: nothing is nothing, and what no machine holds is refused with its numbers") {
  const Tensor empty(DType::f32, {2, 0, 5});
  CHECK(spread(empty, std::vector<std::int64_t>{1000, 100, 1}).empty());
  const std::vector<std::int64_t> shape{3, 2}, strides{std::int64_t{1} << 36, 1};
  std::string message;
  try {
    strided_elements("a", shape, strides);
  } catch (const Error& error) {
    message = error.what();
  }
  CHECK(message ==
        "a: shape [3, 2] with strides [68719476736, 1] reaches over more than 68719476736 elements of memory");
}

}  // namespace tessera::cli
