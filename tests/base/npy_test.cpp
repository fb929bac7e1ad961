#include "base/npy.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tessera/error.h"

namespace tessera {
namespace {

NpyArray sample() {
  NpyArray array{"<f4", {2, 3}, std::vector<std::byte>(24)};
  const float values[6] = {1, 2, 3, 4, 5, 6.5f};
  std::memcpy(array.data.data(), values, sizeof values);
  return array;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> bytes_of(std::string_view text) {
  std::vector<std::byte> bytes(text.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  return bytes;
}

/// A version 1 file with this header and so many bytes of data.
std::string failure(std::string_view header, std::size_t data) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  text += header;
  text.append(data, 'x');
  try {
    parse_npy(bytes_of(text), "q.npy");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("an array has the bytes that numpy.save writes") {
  const std::string text = text_of(npy_bytes(sample()));
  REQUIRE(text.size() == 128 + 24);
  CHECK(text.substr(0, 10) == std::string("\x93NUMPY\x01\x00\x76\x00", 10));
  CHECK(text.substr(10, 59) == "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }");
  CHECK(text[127] == '\n');
}

TEST_CASE("arrays survive the way through a file's bytes") {
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, {6}, {2, 3}, {1, 2, 1, 3}, {0, 4}, {5, 0}}) {
    NpyArray array{"<u2", shape, {}};
    array.data.resize(static_cast<std::size_t>(array.count()) * 2, std::byte{7});
    const NpyArray back = parse_npy(npy_bytes(array), "a.npy");
    CHECK(back.descr == "<u2");
    CHECK(back.shape == shape);
    CHECK(back.data == array.data);
  }
}

TEST_CASE("headers of newer versions are read") {
  const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }\n";
  for (const char version : {'\x02', '\x03'}) {
    std::string text("\x93NUMPY", 6);
    text += version;
    text += std::string("\x00", 1) + static_cast<char>(header.size()) + std::string(3, '\0') + header + "abc";
    CHECK(parse_npy(bytes_of(text), "a.npy").shape == std::vector<std::int64_t>{3});
  }
}

TEST_CASE("element types of plans have a type in files") {
  CHECK(npy_descr_of("bf16") == "<u2");
  CHECK(npy_descr_of("f16") == "<f2");
  CHECK(npy_descr_of("f32") == "<f4");
  CHECK(npy_descr_of("s32") == "<i4");
  CHECK(npy_descr_of("e9m9").empty());
  CHECK(npy_descr_of("").empty());
  CHECK(npy_element_bytes("<f8") == 8);
  CHECK(npy_element_bytes(">f8") == 0);
}

TEST_CASE("broken files are refused with the reason") {
  CHECK(failure("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8) == "accepted");
  CHECK(failure("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 7) ==
        "q.npy: holds 7 bytes of data: its shape needs 8");
  CHECK(failure("{'descr': '<f4', 'fortran_order': True, 'shape': (2,), }", 8) ==
        "q.npy: is in Fortran order: save it with numpy.ascontiguousarray");
  CHECK(failure("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8) ==
        "q.npy: has elements of type '>f4': known are little-endian floats, integers and booleans");
  CHECK(failure("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 16), }", 8) ==
        "q.npy: has a shape whose bytes overflow");
  for (const char* header : {"", "{", "{'descr'", "{'descr': '<f4', 'fortran_order': False}", "{'descr': '<f4, }",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
                             "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), } x",
                             "{'descr': '<f4', 'fortran_order': no, 'shape': (2,), }"})
    CHECK(failure(header, 8) == "q.npy: has a malformed .npy header");
  CHECK(failure("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", 8) ==
        "q.npy: has the unexpected key 'descr' in its header");
}

TEST_CASE("every truncation of a file is refused") {
  const std::vector<std::byte> file = npy_bytes(sample());
  for (std::size_t bytes = 0; bytes < file.size(); ++bytes)
    CHECK_THROWS_AS(parse_npy(std::span(file).first(bytes), "a.npy"), Error);
  CHECK_NOTHROW(parse_npy(file, "a.npy"));
}

}  // namespace tessera
