#include "runtime/remote/action_result.h"

#include "runtime/cache_entry.h"

namespace tessera::remote {

namespace {

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) to.push_back(static_cast<char>(static_cast<unsigned char>(value | 0x80)));
  to.push_back(static_cast<char>(value));
}

void put_bytes(std::string& to, std::uint32_t field, std::string_view bytes) {
  put_varint(to, field << 3 | kBytes);
  put_varint(to, bytes.size());
  to.append(bytes);
}

/// One message's fields, in order.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  /// False at the end, and at what is no field.
  bool next() {
    if (rest_.empty()) return false;
    const std::optional<std::uint64_t> tag = varint();
    is_broken_ = true;
    if (!tag || *tag >> 3 == 0 || *tag >> 3 > 0x1fffffff) return false;
    field_ = static_cast<std::uint32_t>(*tag >> 3);
    bytes_ = {};
    has_number_ = false;
    std::uint64_t length = 0;
    switch (static_cast<std::uint32_t>(*tag & 7)) {
      case kVarint: {
        const std::optional<std::uint64_t> given = varint();
        if (!given) return false;
        number_ = *given;
        has_number_ = true;
        is_broken_ = false;
        return true;
      }
      case kFixed64:
        length = 8;
        break;
      case kFixed32:
        length = 4;
        break;
      case kBytes: {
        const std::optional<std::uint64_t> given = varint();
        if (!given) return false;
        length = *given;
        break;
      }
      default:
        return false;
    }
    if (length > rest_.size()) return false;
    bytes_ = rest_.substr(0, length);
    rest_.remove_prefix(length);
    is_broken_ = false;
    return true;
  }

  bool is_broken() const { return is_broken_; }
  std::uint32_t field() const { return field_; }
  std::string_view bytes() const { return bytes_; }
  bool has_number() const { return has_number_; }
  std::uint64_t number() const { return number_; }

 private:
  std::optional<std::uint64_t> varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) return std::nullopt;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return std::nullopt;
  }

  std::string_view rest_, bytes_;
  std::uint64_t number_ = 0;
  std::uint32_t field_ = 0;
  bool has_number_ = false, is_broken_ = false;
};

bool parse_digest(std::string_view bytes, ActionResult& result) {
  Fields fields(bytes);
  while (fields.next()) {
    if (fields.field() == 1) result.sha256 = fields.bytes();
    if (fields.field() == 2 && fields.has_number()) result.bytes = static_cast<std::int64_t>(fields.number());
  }
  return !fields.is_broken() && is_key(result.sha256) && result.bytes > 0;
}

bool parse_file(std::string_view bytes, ActionResult& result) {
  Fields fields(bytes);
  std::string_view path;
  bool has_digest = false;
  while (fields.next()) {
    if (fields.field() == 1) path = fields.bytes();
    if (fields.field() == 2) has_digest = parse_digest(fields.bytes(), result);
  }
  return !fields.is_broken() && path == kBlobName && has_digest;
}

}  // namespace

std::string to_bytes(const ActionResult& result) {
  std::string digest, file, bytes;
  put_bytes(digest, 1, result.sha256);
  put_varint(digest, 2 << 3 | kVarint);
  put_varint(digest, static_cast<std::uint64_t>(result.bytes));
  put_bytes(file, 1, kBlobName);
  put_bytes(file, 2, digest);
  put_bytes(bytes, 2, file);
  if (!result.note.empty()) put_bytes(bytes, 5, result.note);
  return bytes;
}

std::optional<ActionResult> parse_action_result(std::string_view bytes) {
  Fields fields(bytes);
  ActionResult result;
  int files = 0;
  while (fields.next()) {
    if (fields.field() == 2) {
      if (++files > 1 || !parse_file(fields.bytes(), result)) return std::nullopt;
    }
    if (fields.field() == 5) result.note = fields.bytes();
  }
  if (fields.is_broken() || files != 1) return std::nullopt;
  return result;
}

}  // namespace tessera::remote
