// A litmus test as PTX, under the emulator's weak schedule.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "tessera/emulator/device.h"
#include "tests/litmus/program.h"

namespace tessera::litmus {
namespace {

constexpr std::uint32_t kLanes = 32;

const char* scope_word(Reach reach) {
  return reach == Reach::cta ? "cta" : reach == Reach::cluster ? "cluster" : "gpu";
}
const char* sem_word(Meaning meaning) {
  constexpr const char* kWords[] = {"weak", "relaxed", "acquire", "release", "acq_rel", "sc"};
  return kWords[static_cast<std::size_t>(meaning)];
}

std::string instruction(const Program& program, const Operation& o, int result) {
  if (o.kind == Kind::fence) return fmt::format("fence.{}.{};\n", sem_word(o.meaning), scope_word(o.scope));
  const char* const space = program.space == Space::global            ? "global"
                            : program.placement == Placement::one_cta ? "shared::cta"
                                                                      : "shared::cluster";
  const std::string address = fmt::format("[{}{}]", program.space == Space::global ? "place" : "near", o.place);
  const std::string sem =
      o.meaning == Meaning::weak ? "weak" : fmt::format("{}.{}", sem_word(o.meaning), scope_word(o.scope));
  switch (o.kind) {
    case Kind::load:
      return fmt::format("ld.{}.{}.b32 result{}, {};\n", sem, space, result, address);
    case Kind::store:
      return fmt::format("st.{}.{}.b32 {}, {};\n", sem, space, address, o.value);
    default:
      return fmt::format("atom.{}.{}.exch.b32 result{}, {}, {};\n", sem, space, result, address, o.value);
  }
}

// Places lie at 128 * place + 4 * lane; results behind them in the buffer, 128 bytes each.
std::string ptx_of(const Program& program, bool start_together) {
  const int places = program.places();
  std::string declarations, bodies, setup, end;
  int results = 0;
  for (std::size_t t = 0; t < program.threads.size(); ++t) {
    std::string body, after;
    for (const Operation& operation : program.threads[t]) {
      body += instruction(program, operation, results);
      if (!operation.reads()) continue;
      after += fmt::format("st.global.b32 [at+{}], result{};\n", 128 * (places + results), results);
      ++results;
    }
    bodies += fmt::format("setp.eq.u32 p, me, {0};\n@!p bra after{0};\n{1}{2}after{0}:\n", t, body, after);
  }
  for (int i = 0; i < results; ++i) declarations += fmt::format(".reg .b32 result{};\n", i);
  const bool is_near = program.space == Space::shared;
  const char* const meet =
      program.placement == Placement::one_cta ? "bar.sync 0;\n" : "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
  for (int i = 0; i < places; ++i) {
    setup += fmt::format("add.u64 place{0}, at, {1};\n", i, 128 * i);
    if (!is_near) continue;
    setup += fmt::format("mov.u32 near{0}, smem;\nadd.u32 near{0}, near{0}, offset;\nadd.u32 near{0}, near{0}, {1};\n",
                         i, 128 * i);
    if (program.placement != Placement::one_cta)
      setup += fmt::format("mapa.shared::cluster.u32 near{0}, near{0}, 0;\n", i);
    setup += fmt::format("@first st.shared::{}.b32 [near{}], 0;\n",
                         program.placement == Placement::one_cta ? "cta" : "cluster", i);
    end += fmt::format("@first ld.shared::{2}.b32 word, [near{0}];\n@first st.global.b32 [place{0}], word;\n", i, 0,
                       program.placement == Placement::one_cta ? "cta" : "cluster");
  }
  if (is_near) setup += meet, end = meet + end;
  if (start_together)
    setup += fmt::format(
        "red.relaxed.gpu.global.add.u32 [at+{0}], 1;\nstart:\nld.relaxed.gpu.global.u32 word, [at+{0}];\n"
        "setp.lt.u32 p, word, {1};\n@p bra start;\n",
        128 * (places + results), program.threads.size());
  return fmt::format(
      ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry test(.param .u64 buffer)\n{{\n"
      ".reg .pred p, first;\n.reg .b32 me, lane, offset, word, near<3>;\n.reg .b64 base, wide, at, place<3>;\n{}"
      ".shared .align 128 .b8 smem[512];\nld.param.u64 base, [buffer];\nmov.u32 me, %tid.x;\nand.b32 lane, me, 31;\n"
      "{}shl.b32 offset, lane, 2;\ncvt.u64.u32 wide, offset;\nadd.u64 at, base, wide;\nsetp.eq.u32 first, me, "
      "0;\n{}{}{}"
      "ret;\n}}\n",
      declarations, program.placement == Placement::one_cta ? "shr.u32 me, me, 5;\n" : "mov.u32 me, %ctaid.x;\n", setup,
      bodies, end);
}

Outcomes launch_once(Device& device, LoadedImage& image, const Program& program) {
  int results = 0;
  for (const auto& thread : program.threads)
    results += static_cast<int>(std::count_if(thread.begin(), thread.end(), [](const auto& o) { return o.reads(); }));
  const int words = program.places() + results;
  const auto threads = static_cast<std::uint32_t>(program.threads.size());
  // One row more: threads that start together count themselves there.
  const std::size_t bytes = static_cast<std::size_t>(words + 1) * 4 * kLanes;
  DevicePointer buffer = device.allocate(bytes);
  device.set_bytes(buffer, 0, bytes);
  void* parameters[] = {&buffer};
  LaunchRequest request;
  request.entry = image.entry("test");
  const bool is_one = program.placement == Placement::one_cta;
  request.block = {is_one ? kLanes * threads : kLanes, 1, 1};
  request.grid = {is_one ? 1 : threads, 1, 1};
  request.cluster = {program.placement == Placement::one_cluster ? threads : 1, 1, 1};
  request.parameters = parameters;
  device.launch(request, {});
  for (const Finding& finding : device.synchronize()) throw std::runtime_error(program.name + ": " + finding.message);
  std::vector<std::int32_t> values(static_cast<std::size_t>(words) * kLanes);
  device.copy_to_host(values.data(), buffer, values.size() * 4);
  device.free(buffer);
  Outcomes found;
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    const auto word = [&](int i) { return values[static_cast<std::size_t>(i) * kLanes + lane]; };
    Outcome outcome;
    for (int i = program.places(); i < words; ++i) outcome.push_back(word(i));
    for (int i = 0; i < program.places(); ++i) outcome.push_back(word(i));
    found.insert(std::move(outcome));
  }
  return found;
}

}  // namespace

Outcomes observed_outcomes(const Program& program, int first_seed, int last_seed) {
  const std::string ptx = ptx_of(program, false);
  Outcomes found;
  for (int seed = first_seed; seed <= last_seed; ++seed) {
    emulator::DeviceOptions options;
    options.schedule = emulator::Schedule::weak;
    options.seed = static_cast<std::uint64_t>(seed);
    emulator::EmulatedDevice device(options);
    found.merge(launch_once(device, *device.load_ptx(ptx, program.name), program));
  }
  return found;
}

Outcomes measured_outcomes(Device& device, const Program& program, int launches) {
  Image image;
  const std::string ptx = ptx_of(program, true);
  image.cubin.resize(ptx.size() + 1);  // the driver takes PTX that ends in a zero byte where it takes code
  std::memcpy(image.cubin.data(), ptx.c_str(), ptx.size() + 1);
  const std::unique_ptr<LoadedImage> loaded = device.load(image);
  Outcomes found;
  for (int i = 0; i < launches; ++i) found.merge(launch_once(device, *loaded, program));
  return found;
}

}  // namespace tessera::litmus
