#include "tessera/launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/image.h"

namespace tessera {

std::string_view to_string(BufferRole role) noexcept {
  switch (role) {
    case BufferRole::input:
      return "input";
    case BufferRole::output:
      return "output";
    case BufferRole::in_out:
      return "in_out";
  }
  return "?";
}

std::string_view to_string(Relation relation) noexcept {
  switch (relation) {
    case Relation::at_least:
      return "at_least";
    case Relation::at_most:
      return "at_most";
    case Relation::equal:
      return "equal";
    case Relation::multiple_of:
      return "multiple_of";
  }
  return "?";
}

std::string_view to_string(ParameterKind kind) noexcept {
  switch (kind) {
    case ParameterKind::tensor_map:
      return "tensor_map";
    case ParameterKind::pointer:
      return "pointer";
    case ParameterKind::i32:
      return "i32";
    case ParameterKind::i64:
      return "i64";
    case ParameterKind::f32:
      return "f32";
  }
  return "?";
}

std::size_t parameter_bytes(ParameterKind kind) noexcept {
  switch (kind) {
    case ParameterKind::tensor_map:
      return 128;
    case ParameterKind::pointer:
    case ParameterKind::i64:
      return 8;
    case ParameterKind::i32:
    case ParameterKind::f32:
      return 4;
  }
  return 0;
}

void add_merge(Image& image, Image merge) {
  image.merge = {std::move(merge.ptx), std::move(merge.cubin)};
  CompileReport& report = image.report;
  report.log += merge.report.log;
  report.entries.insert(report.entries.end(), merge.report.entries.begin(), merge.report.entries.end());
  for (std::string& note : merge.report.notes)
    if (std::find(report.notes.begin(), report.notes.end(), note) == report.notes.end())
      report.notes.push_back(std::move(note));
}

std::string CompilerIdentity::to_string() const {
  return fmt::format("{} {}.{} (build id {})", name, major_version, minor_version,
                     build_id.empty() ? "none" : build_id);
}

}  // namespace tessera
