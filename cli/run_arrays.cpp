#include "cli/run_arrays.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <utility>

#include "base/npy.h"
#include "tessera/error.h"

namespace tessera::cli {

namespace {

/// fp32 to the nearest values of a 16-bit type.
reference::Tensor rounded(const NpyArray& array, DType dtype) {
  reference::Tensor tensor(dtype, array.shape);
  for (std::size_t i = 0; i < array.data.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, array.data.data() + i * sizeof value, sizeof value);
    tensor.set(static_cast<std::int64_t>(i), static_cast<double>(value));
  }
  return tensor;
}

}  // namespace

reference::Tensor read_array(const Plan& plan, const std::string& name, const std::string& file) {
  for (const BufferSpec& buffer : plan.launch.buffers) {
    if (buffer.name != name || buffer.role == BufferRole::output) continue;
    NpyArray array = read_npy(file);
    const DType dtype = *reference::dtype_from_name(buffer.dtype);
    // numpy has no bf16: reals are rounded to it.
    if (array.descr == "<f4" && (dtype == DType::bf16 || dtype == DType::f16)) return rounded(array, dtype);
    if (array.descr != npy_descr_of(buffer.dtype))
      throw Error(ErrorKind::usage, fmt::format("{}: holds {}, {} is {}: {} expected", file, array.descr, name,
                                                buffer.dtype, npy_descr_of(buffer.dtype)));
    reference::Tensor tensor;
    tensor.dtype = dtype;
    tensor.shape = array.shape;
    tensor.bytes = std::move(array.data);
    return tensor;
  }
  throw Error(ErrorKind::usage, fmt::format("--input {}: {} has no input of that name", name, plan.op));
}

void check_shapes(const Plan& plan, const LaunchSizes& launch, const std::vector<std::int64_t>& sizes,
                  const RunFlags& flags) {
  for (const BufferSpec& buffer : plan.launch.buffers) {
    const auto given = flags.arrays.find(buffer.name);
    if (given == flags.arrays.end()) continue;
    std::vector<std::int64_t> expected;
    for (const Expression& extent : buffer.shape) expected.push_back(launch.evaluate(extent, sizes));
    if (given->second.shape != expected)
      throw Error(ErrorKind::usage, fmt::format("--input {}: shape [{}] given, [{}] expected", buffer.name,
                                                fmt::join(given->second.shape, ", "), fmt::join(expected, ", ")));
  }
}

}  // namespace tessera::cli
