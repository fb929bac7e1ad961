// Tensors of libraries that have DLPack's table of C functions on their type (DLPack 1.3, `__dlpack_c_exchange_api__`;
// PyTorch 2.10 on): read without a call of Python, some ten nanoseconds each.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <string>

namespace exchange {

/// The table as DLPack lays it out.
struct Table {
  std::uint32_t major, minor;
  const Table* previous;
  void* allocator;
  void* managed_from_object;
  void* managed_to_object;
  int (*tensor_from_object)(void* object, nanobind::dlpack::dltensor* out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};

/// That of exactly this type; null where it has none of its own or of PyTorch's Parameter, which is a Tensor. Types
/// derived by others stand for something else (tensors of a traced graph), and have none here.
const Table* table_of(PyTypeObject* type);

/// Reads a tensor whose type has a table. Shape and strides are the tensor's own: valid until control goes back to
/// Python. False where the tensor cannot be told so; no Python error is left.
bool read(const Table& table, nanobind::handle object, nanobind::dlpack::dltensor& out);

/// What a call of a function is, beside the addresses of its tensors: types, devices, shapes and strides of these, and
/// the values of the rest. Nothing where a value is neither a tensor with a table nor None, bool, int, float, str or a
/// tuple of them.
std::optional<std::string> signature(const nanobind::args& positional, const nanobind::kwargs& named);

}  // namespace exchange
