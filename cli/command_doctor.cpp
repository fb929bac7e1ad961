// tessera doctor: what this machine has, what works with it, and why the rest does not.
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/cache_remote.h"
#include "cli/call.h"
#include "generator/selectors.h"
#include "runtime/nvrtc.h"
#include "tessera/cache_admin.h"
#include "tessera/cuda_device.h"
#include "tessera/error.h"
#include "tessera/targets.h"

namespace tessera::cli {

namespace {

// What was really tried; README.md says the same.
constexpr const char* kNvrtcTried =
    "fmha and copy2d compiled with 12.8, 12.9, 13.0, 13.1, 13.2 and 13.3, run with 13.0";
constexpr const char* kDriverTried = "run with 580.159 (CUDA 13.0)";

std::string version_text(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::string nvrtc_versions() {
  return fmt::format("{}.{} and later; {}", kOldestNvrtcMajor, kOldestNvrtcMinor, kNvrtcTried);
}
std::string driver_versions() {
  return fmt::format("for CUDA {} and later; {}", version_text(kMinDriverVersion), kDriverTried);
}

std::string permissions(const std::filesystem::path& path) {
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    std::filesystem::path nearest = path;
    while (!std::filesystem::exists(nearest, code) && nearest.has_relative_path()) nearest = nearest.parent_path();
    if (std::filesystem::is_directory(nearest, code) && access(nearest.c_str(), W_OK | X_OK) == 0)
      return "not there yet: made by the first compile";
    return fmt::format("not there, and cannot be made: {} is {}", nearest.string(),
                       std::filesystem::is_directory(nearest, code) ? "read-only" : "no folder");
  }
  const auto mode = static_cast<unsigned>(std::filesystem::status(path, code).permissions()) & 0777U;
  return fmt::format("mode {:03o}, {}", mode, access(path.c_str(), W_OK) == 0 ? "writable" : "read-only");
}

class DoctorCommand final : public Command {
 public:
  HelpPage help() const override {
    return {"tessera doctor [--json]",
            "tessera doctor: compiler, driver, devices, cache tiers: what works here and what does not",
            "Looks at everything that the other commands need and changes nothing. Exits 0 also when something is "
            "missing:\n"
            "the report says what works without it.\n",
            {"tessera doctor", "tessera doctor --json | jq .compiler"}};
  }
  void add_flags(FlagSet&) override {}

  ExitCode run(Call& call) override {
    const OrderedJson compiler = compiler_report(call), gpu = gpu_report(call), cache = cache_report(call);
    const std::string no_compiler = why_no_compiler(compiler), no_gpu = why_no_gpu(gpu);
    OrderedJson works = OrderedJson::array();
    const auto add = [&](const std::string& what, const std::string& why_not) {
      works.push_back({{"what", what}, {"works", why_not.empty()}, {"why_not", why_not}});
    };
    const auto or_cached = [&](const char* served) {
      return no_compiler.empty() ? ""
                                 : fmt::format("{}; kernels that a cache holds {} all the same", no_compiler, served);
    };
    add("plan, emit, check, cache", "");
    const Targets known = targets_of(compiler);
    if (no_compiler.empty()) {
      add("warm: compile for " + join(known.yes), "");
    } else {
      add("warm: compile", or_cached("are served"));
    }
    if (no_compiler.empty() && !known.no.empty())
      add("warm: compile for " + join(known.no),
          fmt::format("{} does not know {}", compiler["identity"].get<std::string>(),
                      known.no.size() == 1 ? "it" : "them"));
    const std::vector<std::string> runs = targets_of_devices(gpu);
    add("run --device gpu" + (no_gpu.empty() ? ": code for " + join(runs) : ""), no_gpu);
    add("run --device emulator: on this CPU", or_cached("run"));
    add("emulate: any PTX file, on this CPU", "");
    if (call.is_json()) {
      call.print_json(
          {{"tessera", TESSERA_VERSION},
           {"compiler", compiler},
           {"gpu", gpu},
           {"cache", cache},
           {"remote", remote_report(call)},
           {"works", works},
           {"supported", {{"nvrtc", nvrtc_versions()}, {"driver", driver_versions()}, {"targets", targets()}}}});
      return kOk;
    }
    print_text(call, compiler, gpu, cache, works);
    return kOk;
  }

 private:
  struct Targets {
    std::vector<std::string> yes, no;
  };
  /// Targets that the compiler knows, and those that it doesn't.
  static Targets targets_of(const OrderedJson& compiler) {
    Targets targets;
    const OrderedJson& known = compiler["architectures"];
    for (const TargetRow& row : target_rows()) {
      const bool is_known = std::find(known.begin(), known.end(), row.target) != known.end();
      (is_known ? targets.yes : targets.no).emplace_back(row.target);
    }
    return targets;
  }
  /// Targets whose code some device here loads.
  static std::vector<std::string> targets_of_devices(const OrderedJson& gpu) {
    std::vector<std::string> list;
    for (const TargetRow& row : target_rows())
      for (const OrderedJson& device : gpu["devices"]) {
        const OrderedJson& loads = device["loads"];
        if (std::find(loads.begin(), loads.end(), row.target) == loads.end()) continue;
        list.emplace_back(row.target);
        break;
      }
    return list;
  }
  static std::string join(const std::vector<std::string>& words) { return fmt::format("{}", fmt::join(words, ", ")); }

  /// Why nothing compiles for any target; empty: something does.
  static std::string why_no_compiler(const OrderedJson& compiler) {
    if (!compiler["problem"].get<std::string>().empty()) return "no usable NVRTC";
    return targets_of(compiler).yes.empty()
               ? fmt::format("{} knows none of the targets", compiler["identity"].get<std::string>())
               : "";
  }
  /// Why no GPU here runs any kernel; empty: one does.
  static std::string why_no_gpu(const OrderedJson& gpu) {
    if (const auto problem = gpu["problem"].get<std::string>(); !problem.empty()) return problem;
    if (!targets_of_devices(gpu).empty()) return "";
    std::vector<std::string> found;
    for (const OrderedJson& device : gpu["devices"]) found.push_back(device["compute_capability"]);
    return fmt::format("no kernel's code loads on compute capability {}", join(found));
  }

  static OrderedJson targets() {
    OrderedJson json;
    for (const TargetRow& row : target_rows()) json[std::string(row.target)] = row.loads_on;
    return json;
  }

  static OrderedJson compiler_report(Call& call) {
    OrderedJson json = {{"problem", ""}, {"file", ""}, {"identity", ""}, {"architectures", OrderedJson::array()}};
    const JitOptions options = call.options();
    try {
      NvrtcOptions nvrtc;
      nvrtc.library = options.nvrtc_library;
      const auto file = find_nvrtc(nvrtc);
      if (file) json["file"] = file->string();
      const std::unique_ptr<Compiler> compiler = make_nvrtc_compiler(nvrtc);
      json["identity"] = compiler->identity().to_string();
      json["architectures"] = compiler->architectures();
    } catch (const Error& error) {
      json["problem"] = error.what();
      json["searched"] = error.notes();
    }
    return json;
  }

  static OrderedJson gpu_report(Call& call) {
    OrderedJson json = {{"problem", ""}, {"driver", ""}, {"devices", OrderedJson::array()}};
    if (const int version = cuda_driver_version(); version > 0) json["driver"] = version_text(version);
    std::string reason;
    const std::unique_ptr<Device> device = call.host().open_gpu ? call.host().open_gpu(reason) : nullptr;
    if (!device) {
      json["problem"] = reason.empty() ? "no GPU" : reason;
      return json;
    }
    const auto add = [&](const DeviceInfo& info) {
      const std::string capability = fmt::format("{}.{}", info.compute_major, info.compute_minor);
      json["devices"].push_back({{"name", info.name},
                                 {"compute_capability", capability},
                                 {"loads", targets_for(capability)},
                                 {"num_sms", info.num_sms},
                                 {"memory_bytes", info.memory_bytes},
                                 {"l2_bytes", info.l2_bytes}});
    };
    add(device->info());
    for (int i = 1; i < cuda_device_count(); ++i) add(make_cuda_device(i, true)->info());
    return json;
  }

  static OrderedJson cache_report(Call& call) {
    OrderedJson json = OrderedJson::array();
    for (const CacheUsage::Folder& folder : cache_usage(call.jit().cache().options()).folders)
      json.push_back({{"path", folder.path.string()},
                      {"tier", to_string(folder.tier)},
                      {"refused", folder.refused},
                      {"entries", folder.entries},
                      {"bytes", folder.bytes},
                      {"permissions", permissions(folder.path)}});
    return json;
  }

  static void print_text(Call& call, const OrderedJson& compiler, const OrderedJson& gpu, const OrderedJson& cache,
                         const OrderedJson& works) {
    const auto text = [](const OrderedJson& json, const char* key) { return json[key].get<std::string>(); };
    call.print(fmt::format("tessera {}\n\ncompiler\n", TESSERA_VERSION));
    if (text(compiler, "problem").empty()) {
      call.print(fmt::format("  {}\n  {}\n", text(compiler, "identity"), text(compiler, "file")));
    } else {
      call.print(fmt::format("  none: {}\n", text(compiler, "problem")));
      for (const OrderedJson& place : compiler["searched"])
        call.print(fmt::format("    {}\n", place.get<std::string>()));
    }
    call.print("\ndriver and devices\n");
    if (!text(gpu, "driver").empty()) call.print(fmt::format("  driver for CUDA {}\n", text(gpu, "driver")));
    if (!text(gpu, "problem").empty()) call.print(fmt::format("  none: {}\n", text(gpu, "problem")));
    for (const OrderedJson& device : gpu["devices"])
      call.print(fmt::format("  {}: compute capability {}, {} SMs, {} bytes of memory; loads code for {}\n",
                             text(device, "name"), text(device, "compute_capability"), device["num_sms"].get<int>(),
                             grouped(device["memory_bytes"].get<std::int64_t>()),
                             device["loads"].empty() ? "none of the targets" : join(device["loads"])));
    call.print("\ncache, in the order of the search\n");
    if (cache.empty()) call.print("  memory only: no folder is known\n");
    for (const OrderedJson& folder : cache)
      call.print(fmt::format("  {:<6} {}: {}, {} bytes; {}{}\n", text(folder, "tier"), text(folder, "path"),
                             counted(folder["entries"].get<std::int64_t>(), "entry", "entries"),
                             grouped(folder["bytes"].get<std::int64_t>()), text(folder, "permissions"),
                             text(folder, "refused").empty() ? "" : "; refused: " + text(folder, "refused")));
    if (const OrderedJson remote = remote_report(call); !remote.is_null())
      call.print("  remote " + remote_line(remote) + "\n");
    call.print(fmt::format(
        "\nsupported\n  NVRTC: {}\n  driver: {}\n  targets, and the compute capabilities that load their code; "
        "only sm_90a has run on hardware\n",
        nvrtc_versions(), driver_versions()));
    for (const TargetRow& row : target_rows()) call.print(fmt::format("    {:<8} {}\n", row.target, row.loads_on));
    call.print(
        "    a: that compute capability alone (code for sm_120a does not load on 12.1), f: later ones of its family "
        "too\n"
        "    sm_120f: ptxas 13.0 takes all instructions of sm_120a's and sm_121a's kernels, block-scaled products "
        "too\n\n");
    for (const OrderedJson& one : works)
      call.print(fmt::format("  {:<4} {}{}\n", one["works"].get<bool>() ? "yes" : "no", text(one, "what"),
                             text(one, "why_not").empty() ? "" : ": " + text(one, "why_not")));
  }
};

}  // namespace

std::unique_ptr<Command> make_doctor_command() { return std::make_unique<DoctorCommand>(); }

}  // namespace tessera::cli
