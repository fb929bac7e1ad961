// One launch file against one PTX module: buffers made and bound, tensor maps resolved and checked, the steps launched
// under each schedule, outputs compared and saved.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/element_type.h"
#include "cli/emulation.h"
#include "cli/launch_file.h"
#include "tessera/internal/launch_sizes.h"

namespace tessera::cli {

/// Where the item of this name stands; size() when there is none.
template <class List>
std::size_t index_of(const List& list, const std::string& name) {
  std::size_t i = 0;
  while (i < list.size() && list[i].name != name) ++i;
  return i;
}

struct EmulateOptions {
  std::uint64_t seed = 1;
  int num_sms = emulator::DeviceOptions{}.num_sms;  ///< the size of that name, where the launch has one
  bool checks_map_rules = true;
  std::uint64_t max_buffer_bytes = std::uint64_t{4} << 30;
};

struct EmulateReport {
  std::vector<emulator::EmulatorFinding> findings;
  std::vector<std::string> problems;  ///< outputs that are not as expected
  std::vector<std::string> notes;     ///< outputs with elements that nobody wrote
  OrderedJson outputs = OrderedJson::array();
  OrderedJson schedules = OrderedJson::array();
  bool is_stopped = false;  ///< by a failure: outputs are unfinished
};

class EmulateRun {
 public:
  /// Reads every file and makes every buffer. Throws Error{usage} or Error{io} for what does not fit together.
  EmulateRun(LaunchFile file, std::string ptx, std::string ptx_name, const EmulateOptions& options);

  /// Loads the module anew, so that runs do not depend on each other; stops at the first failure.
  EmulateReport run(emulator::EmulatedDevice& device, const std::vector<emulator::Schedule>& schedules);

 private:
  struct Buffer {
    const BufferSpec* spec = nullptr;
    const ElementType* type = nullptr;
    std::vector<std::int64_t> shape, strides;
    std::uint64_t elements = 0;      ///< of the shape
    std::vector<std::byte> initial;  ///< as memory holds it; empty: poisoned, or null
    std::uint64_t bytes = 0;         ///< in memory
    bool is_null = false;
    std::vector<std::size_t> maps;  ///< tensor maps that it holds
    DevicePointer pointer = 0;
    std::vector<std::byte> first;  ///< what the first schedule left in it
  };
  void resolve_sizes();
  void resolve_scalars();
  void make_buffer(std::size_t index, std::uint64_t& total);
  void fill_buffer(Buffer& buffer, const BufferBinding& binding, std::size_t index) const;
  void load_file(Buffer& buffer, const std::filesystem::path& path) const;
  void check_maps(const DeviceInfo& info) const;
  void upload(emulator::EmulatedDevice& device);
  void launch_steps(emulator::EmulatedDevice& device, LoadedImage& image);
  bool launch_step(emulator::EmulatedDevice& device, LoadedImage& image, std::size_t index);
  void write_parameter(const FileParameter& parameter, std::byte* to, emulator::EmulatedDevice& device) const;
  std::vector<std::byte> read_dense(emulator::EmulatedDevice& device, const Buffer& buffer) const;
  std::vector<std::byte> expected_elements(emulator::EmulatedDevice& device, const Buffer& buffer,
                                           const Expectation& expectation) const;
  void judge(emulator::EmulatedDevice& device, const char* schedule, EmulateReport& report);
  void compare(const Buffer& buffer, const std::vector<std::byte>& found, const std::vector<std::byte>& expected,
               const Expectation& expectation, OrderedJson& json, EmulateReport& report) const;
  std::int64_t evaluate(const Expression& expression) const;
  DevicePointer pointer_of(const std::string& name) const;
  TensorMapObject encode(const std::string& name, emulator::EmulatedDevice& device) const;

  LaunchFile file_;
  std::string ptx_, ptx_name_;
  EmulateOptions options_;
  std::vector<std::string> names_;
  std::vector<std::int64_t> sizes_;
  std::vector<double> scalars_;
  std::vector<Buffer> buffers_;
  DevicePointer workspace_ = 0;
  std::uint64_t workspace_bytes_ = 0;
};

/// Throws Error{unsupported} when the bytes are a cubin, a fat binary, an archive or a SASS listing: the emulator runs
/// PTX. What is none of them passes, for the parser to judge.
void refuse_other_code(std::string_view text, const std::string& name);

/// The word after .target; empty without one.
std::string ptx_target(std::string_view text);

}  // namespace tessera::cli
