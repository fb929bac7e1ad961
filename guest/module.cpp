#include "guest/module.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "guest/device_runtime.h"
#include "guest/link.h"
#include "guest/memory.h"
#include "tessera/error.h"

namespace tessera::guest {
namespace {

std::set<const void*>& handles() {
  static auto* const made = new std::set<const void*>;
  return *made;
}

std::vector<std::string> kernels_of(std::string_view text) {
  std::vector<std::string> names;
  for (std::size_t at = text.find(".entry "); at != std::string_view::npos; at = text.find(".entry ", at + 1)) {
    const std::size_t first = text.find_first_not_of(" \t", at + 7);
    names.emplace_back(text.substr(first, text.find_first_of(" \t\r\n(", first) - first));
  }
  return names;
}

}  // namespace

/// The modules as one, with the device's runtime where one asks for it.
std::string Module::with_device_runtime(std::vector<std::string_view> modules) {
  std::string runtime;
  if (std::any_of(modules.begin(), modules.end(), needs_device_runtime)) {
    std::vector<std::string> kernels;
    for (const std::string_view module : modules)
      for (std::string& name : kernels_of(module)) kernels.push_back(std::move(name));
    runtime = device_runtime(kernels);
    modules.emplace_back(runtime);
    has_device_runtime_ = true;
  }
  return link_ptx(modules);
}

const std::string& Module::ptx() {
  if (ptx_ != nullptr) return *ptx_;
  const std::string& arch = Session::instance().arch();
  std::vector<std::string> missing;
  if (!objects_.empty()) {
    std::vector<std::string_view> modules;
    for (const FatBinary& object : objects_)
      if (const std::string* const chosen = choose_ptx(object, arch)) modules.push_back(*chosen);
    if (!modules.empty()) {
      std::string linked = with_device_runtime(modules);
      // Objects with machine code alone may be left out where nothing of them is asked for: cudadevrt's.
      if (modules.size() != objects_.size()) missing = unresolved(linked);
      std::erase_if(missing, is_of_device_runtime);  // what is not provided is told where a kernel calls it
      if (missing.empty()) binary_.ptx = {std::move(linked)};
    }
  }
  ptx_ = missing.empty() ? choose_ptx(binary_, arch) : nullptr;
  if (ptx_ != nullptr && needs_device_runtime(*ptx_)) {
    with_runtime_ = with_device_runtime({*ptx_});
    ptx_ = &with_runtime_;
  }
  if (ptx_ != nullptr) return *ptx_;
  if (!missing.empty())
    throw Error(
        ErrorKind::unsupported,
        fmt::format("{} of the program's objects have no PTX for {}, and the others ask for {} of them: compile "
                    "those with PTX, too",
                    objects_.size() - 1, arch, fmt::join(missing, ", ")));
  if (!binary_.problems.empty()) throw Error(ErrorKind::unsupported, binary_.problems.front());
  std::vector<std::string> have;
  for (const std::string& ptx : binary_.ptx) have.push_back("PTX for " + target_of(ptx));
  for (const std::string& target : binary_.machine_code) have.push_back("machine code for " + target);
  const std::string number = arch.substr(arch.find('_') + 1);
  throw Error(
      ErrorKind::unsupported,
      fmt::format("the program has no PTX for {} (it has {}), and the emulator runs PTX: compile with -gencode "
                  "arch=compute_{},code=compute_{} besides, or name another --arch",
                  arch, have.empty() ? "no device code" : fmt::format("{}", fmt::join(have, ", ")), number, number));
}

LoadedImage& Module::image() {
  if (!image_) image_ = Session::instance().device().load_ptx(ptx(), "program.ptx");
  return *image_;
}

void Module::learn_registers() {
  if (code_ != nullptr && Session::instance().is_predicting())
    registers_ = registers_in_fat_binary(code_, Session::instance().arch());
  code_ = nullptr;
}

Kernel& Module::kernel(const std::string& name) {
  std::unique_ptr<Kernel>& kernel = kernels_[name];
  if (kernel) return *kernel;
  auto made = std::make_unique<Kernel>();
  made->module = this;
  made->name = name;
  made->entry = image().entry(name);
  made->facts = emulator::EmulatedDevice::facts(made->entry);
  made->parameters = image().parameters(made->entry);
  learn_registers();
  if (const auto known = registers_.find(name); known != registers_.end())
    emulator::EmulatedDevice::set_registers(made->entry, known->second);
  kernel = std::move(made);
  handles().insert(kernel.get());
  return *kernel;
}

Module::~Module() {
  for (const auto& [name, kernel] : kernels_) handles().erase(kernel.get());
}

emulator::DeviceVariable Module::variable(const std::string& name) {
  try {
    return Session::instance().device().variable(image(), name);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::device) return {};
    throw;
  }
}

std::vector<std::string> Module::kernel_names() { return kernels_of(ptx()); }

Registry& Registry::instance() {
  static Registry* const made = new Registry;
  return *made;
}

Module* Registry::add(const void* fat_binary, const std::vector<const void*>& objects) {
  FatBinary binary = read_fat_binary(fat_binary);
  std::vector<FatBinary> parts;
  for (const void* const object : objects) parts.push_back(read_fat_binary(object));
  if (parts.size() == 1) binary.ptx = std::move(parts.front().ptx);
  if (parts.size() < 2) parts.clear();
  const std::lock_guard lock(mutex_);
  modules_.push_back(std::make_unique<Module>(std::move(binary), std::move(parts)));
  modules_.back()->set_code(fat_binary);
  return modules_.back().get();
}

void Registry::remove(Module* module) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kernels_, [&](const auto& entry) { return entry.second.module == module; });
  std::erase_if(variables_, [&](const auto& entry) { return entry.second.module == module; });
  std::erase_if(managed_, [&](const auto& entry) { return entry.second.module == module; });
}

void Registry::add_kernel(const void* host, Module* module, const char* name) {
  const std::lock_guard lock(mutex_);
  kernels_[host] = {module, name};
}
void Registry::add_variable(const void* host, Module* module, const char* name) {
  const std::lock_guard lock(mutex_);
  variables_[host] = {module, name};
}
void Registry::add_managed(void** pointer, Module* module, const char* name) {
  const std::lock_guard lock(mutex_);
  managed_[pointer] = {module, name};
}
bool Registry::has_kernel(const void* host) const {
  const std::lock_guard lock(mutex_);
  return kernels_.contains(host);
}

Kernel* Registry::kernel(const void* host) {
  Name found;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = kernels_.find(host); it != kernels_.end()) found = it->second;
  }
  if (found.module != nullptr) return &found.module->kernel(found.name);
  return handles().contains(host) ? static_cast<Kernel*>(const_cast<void*>(host)) : nullptr;
}

emulator::DeviceVariable Registry::variable(const void* host) {
  Name found;
  {
    const std::lock_guard lock(mutex_);
    if (const auto it = variables_.find(host); it != variables_.end()) found = it->second;
    for (auto it = managed_.begin(); it != managed_.end() && found.module == nullptr; ++it)
      if (it->first == host || *it->first == host) found = it->second;
  }
  return found.module == nullptr ? emulator::DeviceVariable{} : found.module->variable(found.name);
}

void Registry::place_managed() {
  std::unique_lock lock(mutex_);
  const std::map<void**, Name> all = managed_;
  lock.unlock();
  for (const auto& [pointer, name] : all) {
    const emulator::DeviceVariable variable = name.module->variable(name.name);
    if (variable.address == 0 || reinterpret_cast<std::uintptr_t>(*pointer) == variable.address) continue;
    Session::instance().device().share_with_host(variable.address, variable.bytes);
    Blocks::instance().add_shared(reinterpret_cast<void*>(variable.address), variable.bytes);  // NOLINT: an address
    *pointer = reinterpret_cast<void*>(variable.address);  // NOLINT: addresses are numbers
  }
}

}  // namespace tessera::guest
