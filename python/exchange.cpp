#include "exchange.h"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

namespace nb = nanobind;

namespace exchange {

namespace {

const Table* find_table(PyTypeObject* type) {
  const nb::handle of(reinterpret_cast<PyObject*>(type));  // NOLINT
  if (!nb::hasattr(of, "__dlpack_c_exchange_api__")) return nullptr;
  const nb::object own = of.attr("__dict__");
  const bool is_parameter = nb::cast<std::string>(nb::str(of.attr("__module__"))) == "torch.nn.parameter" &&
                            nb::cast<std::string>(nb::str(of.attr("__name__"))) == "Parameter";
  if (!is_parameter && !nb::cast<bool>(own.attr("__contains__")("__dlpack_c_exchange_api__"))) return nullptr;
  const nb::object capsule = of.attr("__dlpack_c_exchange_api__");
  if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
  const auto* table = static_cast<const Table*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (table != nullptr && table->major != 1) table = table->previous;
  if (table == nullptr || table->tensor_from_object == nullptr || table->current_stream == nullptr) return nullptr;
  return table;
}

template <class T>
void append(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof value);  // NOLINT
}

using Tensors = std::vector<PyObject*>;

/// tensors: those so far. One that is given twice is another call than two of the same kind.
bool append_value(std::string& key, nb::handle value, Tensors& tensors, bool is_within = false) {
  PyObject* const object = value.ptr();
  if (object == Py_None) {
    key += 'N';
  } else if (object == Py_True || object == Py_False) {
    key += object == Py_True ? 'T' : 'F';
  } else if (PyLong_CheckExact(object)) {
    int overflows = 0;
    const long long number = PyLong_AsLongLongAndOverflow(object, &overflows);
    if (overflows != 0) return false;
    key += 'i';
    append(key, number);
  } else if (PyFloat_CheckExact(object)) {
    key += 'f';
    append(key, PyFloat_AsDouble(object));
  } else if (PyUnicode_CheckExact(object)) {
    Py_ssize_t bytes = 0;
    const char* const text = PyUnicode_AsUTF8AndSize(object, &bytes);
    if (text == nullptr) {
      PyErr_Clear();
      return false;
    }
    key += 's';
    append(key, bytes);
    key.append(text, static_cast<std::size_t>(bytes));
  } else if (PyTuple_CheckExact(object)) {
    if (is_within) return false;
    const Py_ssize_t count = PyTuple_Size(object);
    key += 't';
    append(key, count);
    for (Py_ssize_t i = 0; i < count; ++i)
      if (!append_value(key, PyTuple_GetItem(object, i), tensors, true)) return false;
  } else {
    const Table* const table = table_of(Py_TYPE(object));
    nb::dlpack::dltensor tensor;
    if (table == nullptr || !read(*table, value, tensor)) return false;
    const auto earlier = std::find(tensors.begin(), tensors.end(), object);
    key += '[';
    append(key, earlier - tensors.begin());
    if (earlier == tensors.end()) tensors.push_back(object);
    append(key, table);
    append(key, tensor.dtype);
    append(key, tensor.device);
    append(key, tensor.ndim);
    for (int i = 0; i < tensor.ndim; ++i) {
      append(key, tensor.shape[i]);
      append(key, tensor.strides[i]);
    }
  }
  return true;
}

}  // namespace

const Table* table_of(PyTypeObject* type) {
  // Types with a table live as long as their library: they are kept, so that no other takes the place of one.
  static auto* const known = new std::unordered_map<PyTypeObject*, const Table*>();
  static PyTypeObject* last_type = nullptr;
  static const Table* last = nullptr;
  if (type == last_type) return last;
  const auto at = known->find(type);
  const Table* table = nullptr;
  if (at != known->end()) {
    table = at->second;
  } else if ((table = find_table(type)) != nullptr) {
    Py_INCREF(reinterpret_cast<PyObject*>(type));  // NOLINT
    known->emplace(type, table);
  }
  if (table != nullptr) {
    last_type = type;
    last = table;
  }
  return table;
}

bool read(const Table& table, nb::handle object, nb::dlpack::dltensor& out) {
  std::memset(&out, 0, sizeof out);
  if (table.tensor_from_object(object.ptr(), &out) != 0) {
    PyErr_Clear();
    return false;
  }
  return out.ndim == 0 || (out.shape != nullptr && out.strides != nullptr);
}

std::optional<std::string> signature(const nb::args& positional, const nb::kwargs& named) {
  std::string key;
  key.reserve(512);
  Tensors tensors;
  for (const nb::handle value : positional)
    if (!append_value(key, value, tensors)) return std::nullopt;
  for (const auto [name, value] : named) {
    key += '=';
    if (!append_value(key, name, tensors) || !append_value(key, value, tensors)) return std::nullopt;
  }
  return key;
}

}  // namespace exchange
