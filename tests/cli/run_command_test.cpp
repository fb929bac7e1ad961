// `tessera run` as a command: problems and arrays that do not fit, and what it says of what a device wrote.
#include <nlohmann/json.hpp>

#include "base/npy.h"
#include "tests/cli/command.h"
#include "tests/support/fake_device.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

TEST_CASE("run: a member of a product that no launch takes is left out, alone it is an error") {
  Terminal terminal;
  const std::vector<std::string> sizes{"--heads-q", "3", "--heads-kv", "2", "--seqlen-q", "5", "--seqlen-k", "5"};
  std::vector<std::string> one{"run", "fmha", "--head-dim", "64"},
      several{"run", "fmha", "--head-dim", "64,128", "--json"};
  one.insert(one.end(), sizes.begin(), sizes.end());
  several.insert(several.end(), sizes.begin(), sizes.end());
  CHECK(terminal.run(one).code == 2);
  const Outcome outcome = terminal.run(several);
  CHECK(outcome.code == 3);
  CHECK(Json::parse(outcome.out)["rejected"] == 2);
  CHECK(
      outcome.err.find("rejected: fmha --head-dim 64 --heads-q 3 --heads-kv 2 --seqlen-q 5 --seqlen-k 5: heads_q must "
                       "be a multiple of heads_kv: heads_q = 3, heads_kv = 2\n") != std::string::npos);
  CHECK(terminal.compiler->calls == 0);
}

TEST_CASE("run: arrays must fit the sizes") {
  Terminal terminal;
  const std::string file = (terminal.folder.path / "q.npy").string();
  write_npy(file, {"<u2", {1, 16, 8, 64}, std::vector<std::byte>(16384)});
  const Outcome outcome = terminal.run({"run", "fmha", "--input", "q=" + file});
  CHECK(outcome.code == 2);
  CHECK(outcome.err == "tessera: --input q: shape [1, 16, 8, 64] given, [1, 16, 8, 128] expected\n");
  CHECK(terminal.compiler->calls == 0);
  CHECK(terminal.run({"run", "fmha", "--head-dim", "64", "--input", "q=" + file, "--seqlen-q", "0"}).code == 2);
}

TEST_CASE("run: what a device leaves unwritten or writes wrong fails with its place, what it writes right passes") {
  Terminal terminal;
  enum class Does { nothing, copy, copy_and_overrun } does = Does::nothing;
  terminal.host.open_gpu = [&](std::string&) {
    auto device = std::make_unique<FakeDevice>();
    device->entries["tessera_copy2d_sm90a_r2_f32_32x128_sw128"] = {128, 128, 4, 4, 4, 4};
    FakeDevice* fake = device.get();
    device->on_launch = [fake, &does] {
      if (does == Does::nothing) return;
      const ResolvedTensorMap& x = fake->encoded[fake->encoded.size() - 2];
      const ResolvedTensorMap& y = fake->encoded.back();
      std::vector<std::byte> bytes(x.dims[0] * x.dims[1] * 4 + (does == Does::copy ? 0 : 8));
      fake->copy_to_host(bytes.data(), x.address, bytes.size(), {});
      fake->copy_to_device(y.address, bytes.data(), bytes.size(), {});
      if (does == Does::copy) return;
      bytes.assign(8, std::byte{0});
      fake->copy_to_device(y.address + x.dims[0] * x.dims[1] * 4, bytes.data(), 8, {});
    };
    return device;
  };
  const std::vector<std::string> arguments = {"run", "copy2d", "--shape", "30,64", "--repeat", "3"};
  Outcome outcome = terminal.run(arguments);
  CHECK(outcome.code == 1);
  CHECK(outcome.out.find("FAIL") != std::string::npos);
  CHECK(outcome.out.find("y: 1920 of 1920 checked elements wrong; dim1 all, dim0 all") != std::string::npos);
  does = Does::copy;
  outcome = terminal.run(arguments);
  CAPTURE(outcome.out);
  CHECK(outcome.code == 0);
  CHECK(outcome.out.find("pass: relative error 0") != std::string::npos);
  const std::string saved = (terminal.folder.path / "y.npy").string();
  outcome = terminal.run({"run", "copy2d", "--shape", "30,64", "--repeat", "0", "--save", "y=" + saved, "--json"});
  CHECK(Json::parse(outcome.out)["pass"] == true);
  CHECK(Json::parse(outcome.out)["device"] == "Fake GPU");
  CHECK(terminal.run({"run", "copy2d", "--input", "x=" + saved, "--json"}).code == 0);
  CHECK(terminal.run({"run", "copy2d", "--input", "y=" + saved}).err.find("has no input of that name") !=
        std::string::npos);
  does = Does::copy_and_overrun;
  outcome = terminal.run(arguments);
  CHECK(outcome.code == 1);
  CHECK(outcome.out.find("y: 8 bytes after it overwritten, the nearest 1 away") != std::string::npos);
}
