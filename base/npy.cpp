// Header first: type and shape decide how many bytes of data may follow, so that what is read is bounded by what the
// file promises, and what is kept by what it holds.
#include "base/npy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>

#include "base/assert.h"
#include "base/file.h"
#include "tessera/error.h"

namespace tessera {

namespace {

constexpr std::string_view kMagic{"\x93NUMPY", 6};
constexpr std::size_t kMaxRank = 32;
constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxHeaderBytes = std::size_t{1} << 20;  // NumPy writes a few hundred

struct NpyType {
  std::string_view descr;
  std::size_t bytes;
  std::array<std::string_view, 5> dtypes;  // the plan's element types that are stored so
};
constexpr std::array<NpyType, 12> kTypes{{
    {"<f2", 2, {"f16"}},
    {"<f4", 4, {"f32", "tf32"}},
    {"<f8", 8, {"f64"}},
    {"|i1", 1, {"s8", "i8"}},
    {"<i2", 2, {"s16", "i16"}},
    {"<i4", 4, {"s32", "i32"}},
    {"<i8", 8, {"s64", "i64"}},
    {"|u1", 1, {"u8", "e4m3", "e5m2"}},
    {"<u2", 2, {"bf16", "u16"}},
    {"<u4", 4, {"u32"}},
    {"<u8", 8, {"u64"}},
    {"|b1", 1, {"bool"}},
}};

/// Reads the header's dictionary, a Python literal of three keys: {'descr': '<f4', 'fortran_order': False, 'shape': (3,
/// 4), }.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  NpyArray read() {
    NpyArray array;
    bool has_descr = false, has_order = false, has_shape = false;
    expect('{');
    while (!take('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !has_descr) {
        array.descr = string();
        has_descr = true;
      } else if (key == "fortran_order" && !has_order) {
        if (boolean()) fail("is in Fortran order: save it with numpy.ascontiguousarray");
        has_order = true;
      } else if (key == "shape" && !has_shape) {
        array.shape = tuple();
        has_shape = true;
      } else {
        fail(fmt::format("has the unexpected key '{}' in its header", key));
      }
      if (take(',')) continue;
      expect('}');
      break;
    }
    skip_space();
    if (at_ != text_.size() || !has_descr || !has_order || !has_shape) fail_header();
    return array;
  }

  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorKind::usage, fmt::format("{}: {}", name_, what));
  }

 private:
  [[noreturn]] void fail_header() const { fail("has a malformed .npy header"); }

  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) fail_header();
  }
  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  std::string string() {
    skip_space();
    if (at_ >= text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) fail_header();
    const std::size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) fail_header();
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  bool boolean() {
    if (take_word("True")) return true;
    if (!take_word("False")) fail_header();
    return false;
  }

  std::vector<std::int64_t> tuple() {
    std::vector<std::int64_t> values;
    expect('(');
    while (!take(')')) {
      skip_space();
      std::int64_t value = 0;
      const auto [end, code] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (code != std::errc{} || value < 0) fail_header();
      at_ = static_cast<std::size_t>(end - text_.data());
      values.push_back(value);
      if (values.size() > kMaxRank) fail(fmt::format("has more than {} dimensions", kMaxRank));
      if (take(',')) continue;
      expect(')');
      break;
    }
    return values;
  }

  std::string_view text_;
  std::string_view name_;
  std::size_t at_ = 0;
};

/// Bytes of the array, or nothing when they overflow.
std::optional<std::size_t> data_bytes(const NpyArray& array) {
  std::size_t bytes = npy_element_bytes(array.descr);
  for (const std::int64_t extent : array.shape)
    if (extent == 0) return 0;
  for (const std::int64_t extent : array.shape)
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes)) return std::nullopt;
  return bytes <= static_cast<std::size_t>(INT64_MAX) ? std::optional(bytes) : std::nullopt;
}

}  // namespace

std::int64_t NpyArray::count() const noexcept {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::size_t npy_element_bytes(std::string_view descr) noexcept {
  for (const NpyType& type : kTypes)
    if (type.descr == descr) return type.bytes;
  return 0;
}

std::string_view npy_descr_of(std::string_view dtype) noexcept {
  for (const NpyType& type : kTypes)
    for (const std::string_view known : type.dtypes)
      if (!known.empty() && known == dtype) return type.descr;
  return {};
}

namespace {

/// Bytes in turn: from memory or from a file.
using Source = std::function<std::size_t(std::span<std::byte>)>;

/// Header first, then as much data as it says: a file that is no array, or has no end, costs no memory.
NpyArray read_from(const Source& source, std::string_view name) {
  const auto fail = [&](std::string_view what) { throw Error(ErrorKind::usage, fmt::format("{}: {}", name, what)); };
  std::array<std::byte, 12> prefix{};
  if (source(std::span(prefix).first(10)) != 10 || std::memcmp(prefix.data(), kMagic.data(), kMagic.size()) != 0)
    fail("is not a .npy file");
  const int version = static_cast<int>(prefix[6]);
  if (version < 1 || version > 3) fail(fmt::format("has .npy version {}: 1, 2 and 3 are known", version));
  const std::size_t prefix_bytes = version == 1 ? 10 : 12;
  if (version > 1 && source(std::span(prefix).subspan(10)) != 2) fail("is truncated");
  std::size_t header_bytes = 0;
  for (std::size_t i = 8; i < prefix_bytes; ++i) header_bytes |= static_cast<std::size_t>(prefix[i]) << (8 * (i - 8));
  if (header_bytes > kMaxHeaderBytes)
    fail(fmt::format("has a header of {} bytes: at most {} are read", header_bytes, kMaxHeaderBytes));
  std::string header(header_bytes, ' ');
  if (source(std::as_writable_bytes(std::span(header))) != header_bytes) fail("is truncated");
  NpyArray array = HeaderReader(header, name).read();
  if (npy_element_bytes(array.descr) == 0)
    fail(fmt::format("has elements of type '{}': known are little-endian floats, integers and booleans", array.descr));
  const std::optional<std::size_t> bytes = data_bytes(array);
  if (!bytes) fail("has a shape whose bytes overflow");
  // In steps: what the header promises need not be there.
  constexpr std::size_t kStep = std::size_t{16} << 20;
  while (array.data.size() < *bytes) {
    const std::size_t had = array.data.size(), wanted = std::min(kStep, *bytes - had);
    array.data.resize(had + wanted);
    const std::size_t count = source(std::span(array.data).subspan(had));
    if (count == wanted) continue;
    fail(fmt::format("holds {} bytes of data: its shape needs {}", had + count, *bytes));
  }
  std::byte rest{};
  if (source(std::span(&rest, 1)) != 0) fail(fmt::format("goes on after the {} bytes that its shape needs", *bytes));
  return array;
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> file, std::string_view name) {
  const auto take = [&file](std::span<std::byte> to) {
    const std::size_t count = std::min(to.size(), file.size());
    std::copy_n(file.begin(), count, to.begin());
    file = file.subspan(count);
    return count;
  };
  return read_from(take, name);
}

NpyArray read_npy(const std::filesystem::path& path) {
  FileReader in(path);
  return read_from([&in](std::span<std::byte> to) { return in.read(to); }, path.string());
}

std::vector<std::byte> npy_bytes(const NpyArray& array) {
  TESSERA_ASSERT(data_bytes(array) == array.data.size(), fmt::format("{} bytes", array.data.size()));
  std::string shape;
  for (const std::int64_t extent : array.shape) shape += fmt::format("{}, ", extent);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  if (array.shape.size() == 1) shape.pop_back();  // a tuple of one: (3,)
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.descr, shape);
  const std::size_t unpadded = kMagic.size() + 4 + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xff), static_cast<char>(header.size() >> 8)};
  text += header;
  std::vector<std::byte> bytes(text.size() + array.data.size());
  std::memcpy(bytes.data(), text.data(), text.size());
  if (!array.data.empty()) std::memcpy(bytes.data() + text.size(), array.data.data(), array.data.size());
  return bytes;
}

void write_npy(const std::filesystem::path& path, const NpyArray& array) { write_file(path, npy_bytes(array)); }

}  // namespace tessera
