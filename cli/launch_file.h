// A launch file: a plan's launch (base/launch_json.h) plus what its sizes, scalars and buffers are bound to.
//
//   {"launch": {...}, "bindings": {"sizes": {...}, "scalars": {...}, "buffers": {...}, "expect": {...}, "save": {...}}}
//
// So plan.json with a `bindings` beside its `launch` is one (its other keys are left alone). What a plan spells out and
// a person would not may be left out: see complete_launch(). Kernels from elsewhere take parameters that no plan of
// ours has (structs, bytes, other number types), so parameters are read here and not by the plan's reader.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "base/launch_json.h"

namespace tessera::cli {

/// A kernel parameter, or a field of one.
struct FileParameter {
  enum class Kind : std::uint8_t { tensor_map, pointer, integer, floating, bytes, structure };
  std::string name;
  Kind kind = Kind::integer;
  std::string word;  ///< as the file spells the kind: "i32", "f16", ...
  std::size_t bytes = 0;
  std::size_t offset = 0;   ///< of a field in its structure
  Expression value;         ///< integer
  std::string source;       ///< tensor_map, pointer: a name; floating: a scalar's name, or empty
  Expression offset_bytes;  ///< pointer
  double number = 0;        ///< floating without a source
  std::vector<std::byte> raw;
  std::vector<FileParameter> fields;
};

/// What a buffer starts with.
struct BufferBinding {
  enum class Kind : std::uint8_t { none, file, random, fill, poison, null, tensor_maps };
  Kind kind = Kind::none;
  std::filesystem::path file;
  std::string distribution;  ///< normal, uniform, integer, bits
  std::uint64_t seed = 0;
  bool has_seed = false;
  double value = 0;  ///< fill; random: factor
  std::vector<std::string> maps;
};

/// What a buffer must hold afterwards, element by element: |found - expected| <= atol + rtol |expected|. One of the
/// three: an array's elements, those of another buffer after the launch, or one value everywhere.
struct Expectation {
  std::filesystem::path file;
  std::string buffer;
  double value = 0;
  double atol = 0, rtol = 0;
};

struct LaunchFile {
  LaunchPlan plan;                                     ///< the steps' own parameters are empty
  std::vector<std::vector<FileParameter>> parameters;  ///< by step
  std::map<std::string, std::int64_t> sizes;
  std::map<std::string, double> scalars;
  std::vector<BufferBinding> buffers;  ///< in the plan's order
  std::map<std::string, Expectation> expected;
  std::map<std::string, std::filesystem::path> saved;
};

/// What a launch file may leave to its surroundings.
struct LaunchFileDefaults {
  std::string arch;                  ///< the PTX's target
  std::vector<std::string> entries;  ///< of the PTX: what a step that names none takes when there is one
  std::filesystem::path folder;      ///< that file names are relative to
};

/// Throws Error{usage} that names the key by its path for whatever is unknown, missing, of the wrong type or range.
LaunchFile read_launch_file(const OrderedJson& json, const LaunchFileDefaults& defaults);

/// The launch with every key that the plan's reader wants: lists may be objects by name, sizes plain numbers; strides
/// default to dense ones, a tensor map to the whole buffer, grid, block and cluster to 1. What has a wrong type is left
/// for the reader to refuse.
OrderedJson complete_launch(OrderedJson launch, const LaunchFileDefaults& defaults);

}  // namespace tessera::cli
