// The launch of a product as data, for every family of kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "spec/product_facts.h"
#include "tessera/launch.h"

namespace tessera {

/// What the launch of a product is made from, whichever templates the kernel has.
struct GemmLaunch {
  ProductFacts facts;
  ProductTiles tiles;
  /// The kernel's a and m are the product's b and n: its entry takes them so.
  bool is_swapped = false;
  int cluster_size = 1;
  int threads = 0;
  std::int64_t smem_bytes = 0;
  /// One of the product's operands as TMA copies it.
  struct Operand {
    std::vector<std::uint32_t> box{};  ///< innermost first
    TensorMapSwizzle swizzle = TensorMapSwizzle::b128;
    bool is_padded = false;  ///< values of 4 or 6 bits, with a byte each in shared memory
    bool is_bytes = false;   ///< values of 4 bits whose map is one of bytes: every target has those
    TensorMapL2Promotion promotion = TensorMapL2Promotion::l2_256b;
  };
  Operand a{}, b{}, d{};
  bool has_d_map = true;  ///< whether d leaves by TMA
  int scale_block = 0;    ///< elements along k that share a scale; 0: neither operand has scales
  ScaleForm scale_form = ScaleForm::tile;
  std::vector<std::uint32_t> sfa_box{}, sfb_box{};
  bool has_tensor_scales = false;  ///< an fp32 factor for each operand
  bool is_gathered = false;        ///< a's rows are copied by a list: facts.gather
  bool has_a_map = true;           ///< whether TMA loads a; else warps copy its rows
  int packed_bytes = 0;            ///< of a block of b, packed weights (spec/packed_weights.h); 0: b is a matrix
  int packed_group = 0;            ///< k that share a scale
  bool has_scale_b = false;        ///< an fp32 factor for packed weights
  bool waits_for_prior = false;    ///< the kernel itself, for the end of the one before it in the stream
  /// What to do about a pitch that no map takes, behind "ldX must be a multiple of N (16 bytes, tensor map): "; {} is
  /// the operand.
  const char* pitch_remedy = "";
};

LaunchPlan gemm_launch(const GemmLaunch& product, const std::string& arch, const std::string& kernel);

// Parts of it: generator/products/gemm_buffers.cpp.

/// One operand in memory.
struct ProductMatrix {
  const char* name;
  const char* rows;
  std::string columns;
  std::string dtype;
  int bits;  ///< of an element
  BufferRole role;
  bool is_one = false;  ///< groups stand one behind the other: there is no other matrix
  std::string matrices() const { return is_one ? "1" : "l"; }
  std::string pitch() const;
  std::string stride_l() const;
  /// Elements of the buffer in so many of the operand: bytes of packed values.
  std::string stored(const std::string& elements) const;
  std::string bytes(const std::string& elements) const;
  /// Whether the columns are k rounded up to 128, which a tensor map of padded values wants.
  bool has_padded_columns() const;
};
ProductMatrix matrix_a(const GemmLaunch& product);
ProductMatrix matrix_b(const GemmLaunch& product);
ProductMatrix matrix_b2(const GemmLaunch& product);
/// In the order of the sizes.
std::vector<ProductMatrix> product_matrices(const GemmLaunch& product);

std::string columns_of_d(const GemmLaunch& product);
bool is_quantized(const GemmLaunch& product);
/// Scales of contiguous groups begin with a tile each: how many there are, the host does not know.
bool has_group_tiles(const GemmLaunch& product);
/// fp32 factors of an operand's blocks, whose strides are sizes.
struct ScaleBlocks {
  const char* name;    ///< sfa
  const char* rows;    ///< of the operand in names: m
  const char* extent;  ///< how many
  ScaleBlock block;
  bool is_one = false;        ///< of groups that stand one behind the other: there is no other matrix
  const char* along = "k";    ///< the other dimension in names
  std::string columns = "k";  ///< its extent
  bool is_output = false;
  std::string blocks() const;  ///< along it
  std::string count() const;   ///< of rows that have factors of their own
  std::string stride(std::string_view dimension) const;
  std::string elements() const;  ///< of a matrix, with what lies between
};
/// Of a and of b; and of d.
std::vector<ScaleBlocks> scale_blocks(const GemmLaunch& product);
std::vector<ScaleBlocks> d_scale_blocks(const GemmLaunch& product);

void add_product_buffers(const GemmLaunch& product, LaunchPlan& launch);
void add_product_maps(const GemmLaunch& product, LaunchPlan& launch);

}  // namespace tessera
