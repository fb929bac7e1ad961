// One product on tcgen05 or by mma.sync, in the emulator or on a GPU: planned, compiled by NVRTC, fed with operands in
// padded rows, compared with float64. What the tests over kinds, tiles and schedules share.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reference/comparison.h"
#include "reference/gemm_tcgen05.h"
#include "tessera/compiler.h"
#include "tessera/emulator/device.h"
#include "tessera/launcher.h"
#include "tessera/plan.h"

namespace tessera {

struct ProductCase {
  std::string name;
  std::vector<std::pair<std::string, std::string>> fields;  ///< of the Problem; arch is sm_100a unless given
  std::map<std::string, std::int64_t> sizes;
  reference::Fill fill = reference::Fill::integer;  ///< whole numbers are compared exactly
  std::vector<std::int64_t> group_rows{};           ///< of grouped products; none: random ones
};

/// The target that it is for: "sm_100a".
std::string product_arch(const ProductCase& test);

class ProductRun {
 public:
  /// arch: what the compiler makes code for, where that is not the Problem's target.
  ProductRun(const ProductCase& test, Compiler& compiler, Device& device, const std::string& arch = {});
  ~ProductRun();
  ProductRun(const ProductRun&) = delete;
  ProductRun& operator=(const ProductRun&) = delete;

  /// The bytes of d, gaps between its rows included.
  std::vector<std::byte> run(std::vector<Finding>& findings);
  reference::Comparison compare() const;
  /// What lies between the rows of d, which must stay poisoned.
  bool are_gaps_intact() const;
  const Plan& plan() const { return plan_; }

 private:
  struct Buffer {
    reference::Tensor memory;  // with the gaps between rows
    reference::TensorView view;
    DevicePointer pointer = 0;
  };

  std::int64_t evaluate(const Expression& expression) const;
  std::int64_t size(const char* name) const;
  void add_buffer(const BufferSpec& spec, std::uint64_t stream);
  reference::Tensor groups() const;
  void fill_operand(Buffer& buffer, const BufferSpec& spec, std::uint64_t stream) const;

  ProductCase test_;
  Plan plan_;
  Device& device_;
  std::unique_ptr<Launcher> launcher_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<DevicePointer> pointers_;
  std::map<std::string, Buffer> buffers_;
};

/// With the race detector, under each schedule: no finding, right by float64, nothing written between rows, and the
/// same bytes every time.
void check_product(const ProductCase& test, Compiler& compiler, const std::vector<emulator::Schedule>& schedules);

/// Null without NVRTC.
std::unique_ptr<Compiler> find_product_compiler();

}  // namespace tessera
