// A module on the emulated device: what EmulatedDevice::load_ptx gives, and what an EntryHandle stands for.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/memory/memory.h"
#include "emulator/parts.h"
#include "emulator/syntax/resolver.h"
#include "tessera/emulator/device.h"
#include "tessera/error.h"

namespace tessera::emulator {

inline constexpr std::int64_t kMaxStaticBytes = 49152;  // without set_max_dynamic_smem

/// An entry, and what a launch needs besides.
struct LoadedEntry {
  const Program* program = nullptr;
  const Entry* entry = nullptr;
  std::int64_t max_dynamic_smem = 0;
  std::uint32_t registers = 0;  ///< of a thread, by machine code; 0: not known
  int spill_bytes = -1;         ///< that machine code stores and loads of them; -1: not known
  mutable std::optional<std::string> speech{};

  /// Into the time of its launch, which is the last one.
  void tell(std::vector<LaunchTime>& times) const {
    if (times.empty() || times.back().entry != entry->name) return;
    times.back().registers = registers;
    times.back().spill_bytes = spill_bytes;
  }
  /// speech_of() the entry. Launches of a device come one after the other.
  const std::string& known_speech() const {
    if (!speech) speech = speech_of(*entry);
    return *speech;
  }
};

class EmulatedImage final : public LoadedImage {
 public:
  EmulatedImage(std::unique_ptr<Program> program, std::weak_ptr<GlobalMemory> memory, std::int64_t max_smem)
      : program_(std::move(program)), memory_(std::move(memory)), max_smem_(max_smem) {
    for (const Entry& entry : program_->entries)
      entries_[entry.name] = {program_.get(), &entry, kMaxStaticBytes - entry.static_smem_bytes, 0, -1, {}};
  }
  ~EmulatedImage() override {
    if (const std::shared_ptr<GlobalMemory> memory = memory_.lock())
      for (const ModuleVariable& variable : program_->variables) memory->free(variable.address);
  }
  EntryHandle entry(std::string_view name) override {
    const auto it = entries_.find(name);
    if (it != entries_.end()) {
      const std::vector<Diagnostic>& problems = it->second.entry->problems;
      if (!problems.empty()) throw_diagnostics(ErrorKind::compile, problems);
      return {reinterpret_cast<std::uintptr_t>(&it->second)};
    }
    if (merge_ != nullptr && static_cast<EmulatedImage&>(*merge_).entries_.contains(name)) return merge_->entry(name);
    std::string names;
    for (const auto& [known, entry] : entries_) names += (names.empty() ? "" : ", ") + known;
    throw Error(ErrorKind::device, fmt::format("emulator: the image has no kernel '{}'; it has: {}", name, names));
  }
  std::vector<ParameterLayout> parameters(EntryHandle handle) override {
    std::vector<ParameterLayout> layouts;
    for (const ParameterSlot& slot : reinterpret_cast<const LoadedEntry*>(handle.handle)->entry->parameters)
      layouts.push_back({slot.offset, slot.bytes});
    return layouts;
  }
  void set_max_dynamic_smem(EntryHandle handle, std::int64_t bytes) override {
    auto& loaded = *reinterpret_cast<LoadedEntry*>(handle.handle);
    const std::int64_t most = max_smem_ - loaded.entry->static_smem_bytes;
    if (bytes < 0 || bytes > most)
      throw Error(ErrorKind::device, fmt::format("emulator: {} bytes of dynamic shared memory for "
                                                 "'{}': at most {}",
                                                 bytes, loaded.entry->name, most));
    loaded.max_dynamic_smem = std::max(loaded.max_dynamic_smem, bytes);
  }
  /// What the assembler said of machine code: for times alone.
  void know(const CompileReport& report) {
    for (const EntryReport& of : report.entries)
      if (const auto it = entries_.find(of.name); it != entries_.end()) {
        it->second.registers = static_cast<std::uint32_t>(std::max(0, of.registers));
        it->second.spill_bytes = of.spill_store_bytes + of.spill_load_bytes;
      }
    if (merge_ != nullptr) static_cast<EmulatedImage&>(*merge_).know(report);
  }
  /// Another image, whose kernels are found behind this one's.
  void set_merge(std::unique_ptr<LoadedImage> merge) { merge_ = std::move(merge); }
  DeviceVariable variable(std::string_view name) const {
    for (const ModuleVariable& known : program_->variables)
      if (known.name == name) return {known.address, known.bytes};
    throw Error(ErrorKind::device, fmt::format("emulator: the image has no variable '{}'", name));
  }

 private:
  std::unique_ptr<Program> program_;
  std::weak_ptr<GlobalMemory> memory_;  // goes with the device: kernels that a host keeps do not hold it
  std::int64_t max_smem_ = 0;
  std::map<std::string, LoadedEntry, std::less<>> entries_;
  std::unique_ptr<LoadedImage> merge_;  // an EmulatedImage
};

/// The image, which knows what the assembler said of it.
inline std::unique_ptr<LoadedImage> knowing(std::unique_ptr<LoadedImage> image, const CompileReport& report) {
  static_cast<EmulatedImage&>(*image).know(report);
  return image;
}

}  // namespace tessera::emulator
