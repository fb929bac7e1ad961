// The devices of the probes, and main.
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/layout_probes/probe.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstring>

#include "tessera/cuda_device.h"
#include "tessera/emulator/device.h"

namespace tessera::probes {

namespace {

bool g_is_on_gpu = false;

Device& gpu() {
  static const std::unique_ptr<Device> device = make_cuda_device();
  return *device;
}

std::string ptx_of(const Probe& probe) {
  return fmt::format(
      ".version 8.7\n.target {}\n.address_size 64\n.visible .entry test(.param .u64 in, .param .u64 out{})\n{{\n"
      ".reg .pred p;\n.reg .b32 r<160>;\n.reg .b64 d<32>;\n.reg .f32 f<160>;\n.reg .f64 e<32>;\n.reg .b16 h<4>;\n"
      ".shared .align 1024 .b8 smem[{}];\nld.param.u64 d0, [in];\nld.param.u64 d1, [out];\n{}"
      "mov.u32 r0, %tid.x;\nmov.u32 r159, smem;\n{}\nret;\n}}\n",
      probe.arch, probe.make_map ? ", .param .align 128 .b8 map[128]" : "", probe.smem_bytes,
      probe.make_map ? "mov.b64 d2, map;\ncvta.param.u64 d2, d2;\n" : "", probe.body);
}

std::unique_ptr<LoadedImage> load_on_gpu(const std::string& ptx) {
  Image image;
  image.cubin.resize(ptx.size() + 1);  // the driver takes PTX that ends in a zero byte where it takes code
  std::memcpy(image.cubin.data(), ptx.c_str(), ptx.size() + 1);
  return gpu().load(image);
}

emulator::EmulatedDevice& emulated(const std::string& arch) {
  static std::unique_ptr<emulator::EmulatedDevice> device;
  static std::string arch_of_device;
  if (arch != arch_of_device) {
    emulator::DeviceOptions options;
    options.arch = arch;
    device = std::make_unique<emulator::EmulatedDevice>(options);
    arch_of_device = arch;
  }
  return *device;
}

}  // namespace

bool is_on_gpu() { return g_is_on_gpu; }

bool runs(const std::string& arch) {
  if (!g_is_on_gpu) return true;
  const DeviceInfo& info = gpu().info();
  return arch == fmt::format("sm_{}{}a", info.compute_major, info.compute_minor) ||
         (arch.back() != 'a' && std::stoi(arch.substr(3)) <= info.compute_major * 10 + info.compute_minor);
}

std::vector<std::uint32_t> run(const Probe& probe, const std::vector<std::uint32_t>& input, std::size_t outputs) {
  const std::string ptx = ptx_of(probe);
  Device& device = g_is_on_gpu ? gpu() : emulated(probe.arch);
  const std::unique_ptr<LoadedImage> image =
      g_is_on_gpu ? load_on_gpu(ptx) : emulated(probe.arch).load_ptx(ptx, "probe.ptx");
  DevicePointer in = device.allocate(input.size() * 4), out = device.allocate(outputs * 4);
  device.copy_to_device(in, input.data(), input.size() * 4);
  device.set_bytes(out, 0xEE, outputs * 4);
  TensorMapObject map{};
  if (probe.make_map) map = probe.make_map(device, in);
  void* parameters[] = {&in, &out, &map};
  LaunchRequest request;
  request.entry = image->entry("test");
  request.block = {probe.threads, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  for (const Finding& finding : device.synchronize()) FAIL_CHECK(finding.name << ": " << finding.message);
  std::vector<std::uint32_t> result(outputs);
  device.copy_to_host(result.data(), out, outputs * 4);
  device.free(in);
  device.free(out);
  return result;
}

std::vector<std::uint32_t> run(const std::string& body, std::uint32_t threads, const std::vector<std::uint32_t>& input,
                               std::size_t outputs, const std::string& arch) {
  Probe probe;
  probe.body = body;
  probe.threads = threads;
  probe.arch = arch;
  return run(probe, input, outputs);
}

std::vector<std::uint32_t> load_tile(Probe probe, const std::string& copy, int bytes,
                                     const std::vector<std::uint32_t>& tensor, int credit) {
  const int rounded = (bytes + 511) / 512 * 512;
  probe.threads = 128;
  probe.smem_bytes = rounded + 16;
  probe.body += fmt::format(
      "add.u32 r10, r159, {0};\nshl.b32 r1, r0, 2;\nadd.u32 r2, r159, r1;\nmov.b32 r4, 0xEEEEEEEE;\n", rounded);
  for (int at = 0; at < rounded; at += 512) probe.body += fmt::format("st.shared.b32 [r2+{}], r4;\n", at);
  probe.body += fmt::format(
      "setp.eq.u32 p, r0, 0;\n@p mbarrier.init.shared::cta.b64 [r10], 1;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
      "@p mbarrier.arrive.expect_tx.shared::cta.b64 d9, [r10], {};\n@p {};\nWAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [r10], 0;\n@!p bra WAIT;\nmul.wide.u32 d3, r0, 4;\n"
      "add.s64 d3, d1, d3;\n",
      credit < 0 ? bytes : credit, copy);
  for (int at = 0; at < rounded; at += 512)
    probe.body += fmt::format("ld.shared.b32 r4, [r2+{0}];\nst.global.b32 [d3+{0}], r4;\n", at);
  return run(probe, tensor, static_cast<std::size_t>(rounded) / 4);
}

std::string registers(char bank, int first, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}{}{}", i == 0 ? "" : ", ", bank, first + i);
  return text;
}

}  // namespace tessera::probes

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "--gpu") == 0) tessera::probes::g_is_on_gpu = true;
  const std::string reason = tessera::probes::is_on_gpu() ? tessera::cuda_unavailable_reason() : std::string();
  if (!reason.empty()) {
    fmt::print("not run: {}\n", reason);
    return 77;
  }
  return context.run();
}
