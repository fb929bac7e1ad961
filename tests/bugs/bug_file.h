// The bug zoo: a file is a kernel or a launch with one planted mistake, what must be said about it, and the mended
// twin.
//
//   # what the mistake is and what it costs
//   target sm_90a                          the default
//   block 128   grid 2 1   cluster 2   smem 16384
//   buffer a bf16 64x32 random             dtype (reference/number.h), extents outermost first; random: whole numbers
//                                          from -4 to 4; random-bytes; iota; zero; poison; nothing: never written;
//                                          null: a null pointer; or values
//   map ta a bf16 dims=32,64 strides=64 box=32,64 swizzle=64B    a tensor map; also address=, element_strides=
//   param map ta | empty-map ta | buffer a | i32 7 | f32 0.5     the kernel's parameters, in order; empty-map: 128
//                                          bytes of zero where an encoded map should be
//   expect out = matmul a b                what the mended twin must compute: bug_reference.cpp
//   tolerance 1e-5                         of each element, relative; 0 when left out
//   axes row:64,16 column:8                names of out's dimensions, and blocks that a pattern may follow
//   schedules fair lazy                    where the mistake shows; all four when left out
//   also smem-race deadlock                what it may raise instead under the other schedules
//   races off                              without the race detector
//   plan fmha tile_n=264                   a planner's problem instead of a kernel
//   == cuda | ptx
//   code                                   one kernel; ptx/... and spec/... of templates/ may be included
//   == finding
//   text that the mistake must raise, exactly (schedule fair, seed 1); texts of PTX lines are left out of CUDA sources
//
// A line that ends in `@bug` (behind // or #) is there only with the mistake, one that ends in `@fix` only without.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/tensor_map.h"

namespace tessera::bugs {

struct BugBuffer {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string fill;  ///< a word, or numbers separated by blanks
};

struct BugMap {
  std::string name;
  std::string buffer;
  TensorMapArguments arguments;
};

struct BugParameter {
  std::string kind;  ///< "map", "buffer", "i32", "f32"
  std::string value;
};

struct BugAxis {
  std::string name;
  std::vector<std::int64_t> blocks;
};

/// One of the two twins.
struct BugCase {
  std::string path;
  std::string target = "sm_90a";
  std::array<std::uint32_t, 3> grid{1, 1, 1};
  std::array<std::uint32_t, 3> block{32, 1, 1};
  std::array<std::uint32_t, 3> cluster{1, 1, 1};
  std::uint32_t smem_bytes = 0;
  std::vector<BugBuffer> buffers;
  std::vector<BugMap> maps;
  std::vector<BugParameter> parameters;
  std::string expect_output;              ///< empty: nothing is compared
  std::vector<std::string> expect_words;  ///< "matmul a b"
  double tolerance = 0;
  std::vector<BugAxis> axes;
  std::vector<std::string> schedules;
  std::vector<std::string> also;
  bool detects_races = true;
  std::string plan_op;  ///< a planner's problem
  std::vector<std::pair<std::string, std::string>> plan_fields;
  std::string language;  ///< "cuda", "ptx", or empty: no kernel
  std::string code;      ///< with empty lines before, so that its line numbers are the file's
};

struct BugFile {
  std::string path;
  BugCase faulty;
  BugCase mended;
  std::string finding;
};

/// Throws std::runtime_error with path and line.
BugFile read_bug(const std::string& path);
/// Writes the text below `== finding`.
void rewrite_finding(const BugFile& file, const std::string& finding);

}  // namespace tessera::bugs
