// What a store keeps under /ac/<key>: an ActionResult of the Remote Execution API (build.bazel.remote.execution.v2), in
// the wire format of Protocol Buffers, with one output file and a note in stdout_raw. A store may check that it is one,
// and that the file's blob exists (bazel-remote does both).
//
//   ActionResult  2 output_files (OutputFile)  5 stdout_raw (bytes)
//   OutputFile    1 path (string)  2 digest (Digest)
//   Digest        1 hash (string)  2 size_bytes (int64)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::remote {

inline constexpr const char* kBlobName = "entry.tar.zst";

struct ActionResult {
  std::string sha256;      ///< of the blob, under which it lies in /cas
  std::int64_t bytes = 0;  ///< of the blob
  std::string note;        ///< text of ours: see note.h
  friend bool operator==(const ActionResult&, const ActionResult&) = default;
};

std::string to_bytes(const ActionResult& result);
/// Nothing where the bytes are no ActionResult with one output file of that name. Fields that it does not know are
/// passed over: a store may add some.
std::optional<ActionResult> parse_action_result(std::string_view bytes);

}  // namespace tessera::remote
