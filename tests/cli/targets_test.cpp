// Which target's code loads where, as doctor and check tell it.
#include <nlohmann/json.hpp>

#include "runtime/nvrtc.h"
#include "tests/cli/command.h"
#include "tests/support/fake_device.h"

namespace tessera::cli {
namespace {

using Json = nlohmann::ordered_json;

Json doctor_of(Terminal& terminal, int major, int minor) {
  terminal.host.open_gpu = [=](std::string&) {
    auto device = std::make_unique<FakeDevice>();
    device->info_.compute_major = major;
    device->info_.compute_minor = minor;
    return device;
  };
  return Json::parse(terminal.run({"doctor", "--json"}).out);
}

Json about(const Json& doctor, std::string_view what) {
  for (const Json& one : doctor["works"])
    if (one["what"].get<std::string>().starts_with(what)) return one;
  return nullptr;
}

TEST_CASE("doctor says whose code each device loads, Blackwell's too") {
  Terminal terminal;
  const Json blackwell = doctor_of(terminal, 10, 3);
  CHECK(blackwell["gpu"]["devices"][0]["loads"] == Json{"sm_100f", "sm_103a", "sm_103f"});
  CHECK(about(blackwell, "run --device gpu")["works"] == true);
  CHECK(about(blackwell, "run --device gpu")["what"] == "run --device gpu: code for sm_100f, sm_103a, sm_103f");
  CHECK(terminal.run({"doctor"}).out.find("; loads code for sm_100f, sm_103a, sm_103f\n") != std::string::npos);
  CHECK(about(doctor_of(terminal, 9, 0), "run --device gpu")["what"] == "run --device gpu: code for sm_90a");
  const Json older = doctor_of(terminal, 8, 6);
  CHECK(about(older, "run --device gpu")["works"] == false);
  CHECK(about(older, "run --device gpu")["why_not"] == "no kernel's code loads on compute capability 8.6");
  CHECK(terminal.run({"doctor"}).out.find("; loads code for none of the targets\n") != std::string::npos);
}

TEST_CASE("doctor says for which targets the compiler compiles") {
  Terminal terminal;
  std::vector<std::string> known;
  try {
    known = make_nvrtc_compiler()->architectures();
  } catch (const Error&) {
    MESSAGE("skipped: no NVRTC");
    return;
  }
  const std::string what = about(doctor_of(terminal, 9, 0), "warm: compile for ")["what"];
  for (const char* const target : {"sm_90a", "sm_100a", "sm_103a", "sm_100f"}) {
    const bool is_known = std::find(known.begin(), known.end(), target) != known.end();
    CHECK((what.find(target) != std::string::npos) == is_known);
  }
}

TEST_CASE("check names targets whose kernel is there and loads on the same devices") {
  Terminal terminal;
  CHECK(terminal.run({"warm", "fmha", "--arch", "sm_100f", "--head-dim", "64"}).code == 0);
  const Outcome text = terminal.run({"check", "fmha", "--arch", "sm_103a", "--head-dim", "64"});
  CHECK(text.code == 1);
  CHECK(text.out.find("\n           there is the kernel for sm_100f, which loads on 10.3 too\n") != std::string::npos);
  const auto instead = [&](const char* arch, const char* head_dim) {
    const Outcome outcome = terminal.run({"check", "fmha", "--arch", arch, "--head-dim", head_dim, "--json"});
    return Json::parse(outcome.out)["missing"][0]["instead"];
  };
  CHECK(instead("sm_100a", "64") == Json{"sm_100f"});
  CHECK(instead("sm_103f", "64") == Json{"sm_100f"});
  CHECK(instead("sm_103a", "128") == Json::array());
  CHECK(instead("sm_90a", "64") == Json::array());
}

TEST_CASE("check and plan say which code of a family does not load on its other devices, doctor why") {
  Terminal terminal;
  CHECK(terminal.run({"warm", "fmha", "--arch", "sm_120a", "--head-dim", "64"}).code == 0);
  const auto missing = [&](const char* arch) {
    const Outcome outcome = terminal.run({"check", "fmha", "--arch", arch, "--head-dim", "64"});
    CHECK(outcome.code == 1);
    return outcome.out;
  };
  CHECK(missing("sm_121a").find("\n           there is the kernel for sm_120a, which loads on 12.0 alone (wanted: "
                                "12.1)\n") != std::string::npos);
  CHECK(missing("sm_120f").find("there is the kernel for sm_120a, which loads on 12.0 alone (wanted: 12.0, 12.1)\n") !=
        std::string::npos);
  CHECK(missing("sm_100a").find("there is the kernel for") == std::string::npos);
  const auto where = [&](const char* arch) {
    const std::string text = terminal.run({"plan", "fmha", "--arch", arch, "--head-dim", "64"}).out;
    const std::size_t begin = text.find("(loads on ");
    return text.substr(begin, text.find(')', begin) + 1 - begin);
  };
  CHECK(where("sm_90a") == "(loads on compute capability 9.0)");
  CHECK(where("sm_120a") == "(loads on compute capability 12.0 alone; code for sm_120f on 12.0, 12.1)");
  CHECK(where("sm_121a") == "(loads on compute capability 12.1 alone; code for sm_120f on 12.0, 12.1)");
  CHECK(where("sm_120f") == "(loads on compute capability 12.0, 12.1)");
  CHECK(terminal.run({"doctor"}).out.find("code for sm_120a does not load on 12.1") != std::string::npos);
}

}  // namespace
}  // namespace tessera::cli
