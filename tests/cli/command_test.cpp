// The command as a whole: exit codes, JSON keys, what a cache covers, 100,000 problems, broken pipes.
#include "tests/cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>

#include "cli/call.h"
#include "tessera/error.h"
#include "tests/support/sample.h"

using namespace tessera;
using namespace tessera::cli;
using Json = nlohmann::ordered_json;

namespace {

std::vector<std::string> keys_of(const Json& json) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : json.items()) keys.push_back(key);
  return keys;
}

bool has_keys(const Json& json, const std::vector<std::string>& wanted) {
  const std::vector<std::string> keys = keys_of(json);
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](const std::string& key) { return std::find(keys.begin(), keys.end(), key) != keys.end(); });
}

}  // namespace

TEST_CASE("plan: sizes that no launch takes are told on stderr too, with --quiet as well") {
  Terminal terminal;
  for (const char* const flag : {"--quiet", "--json"}) {
    const Outcome outcome = terminal.run({"plan", "copy2d", "--size", "dim0=-1", flag});
    CHECK(outcome.code == 3);
    CHECK(outcome.err.find("refused: dim0") != std::string::npos);
  }
}

TEST_CASE("a chain of rows, or a word of one, stands for its operator") {
  Terminal terminal;
  for (const auto& [word, chain] :
       {std::pair("swiglu", "gate(silu)+same"), std::pair("quantize(nvfp4)", "nvfp4"),
        std::pair("append_kv(64)", "join(64)+rope(0..63)+same(0..63,paged)+same(64..127,paged)")}) {
    const Outcome outcome = terminal.run({"plan", word, "--columns", "128"});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find(std::string("chain ") + chain) != std::string::npos);
  }
}

TEST_CASE("a chain that tells its columns needs none, in an operator's place") {
  Terminal terminal;
  for (const auto& [word, columns] :
       {std::pair("append_kv", "256"), std::pair("append_kv(64,halves)", "128"), std::pair("rmsnorm+mla_656", "576"),
        std::pair("mhc_mix+f32", "24"), std::pair("rope(448..511)+nvfp4(0..447)+bf16(448..511)", "512"),
        std::pair("rmsnorm", "4096")}) {
    const Outcome outcome = terminal.run({"plan", word});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    CHECK(outcome.out.find(std::string("_c") + columns + "_") != std::string::npos);
  }
}

TEST_CASE("exit codes and messages") {
  Terminal terminal;
  const auto fails = [&](const std::vector<std::string>& arguments, int code, const std::string& message) {
    const Outcome outcome = terminal.run(arguments);
    CAPTURE(outcome.err);
    CHECK(outcome.code == code);
    CHECK(outcome.err.find(message) != std::string::npos);
    CHECK(outcome.out.empty());
  };
  fails({}, 2, "Usage: tessera COMMAND");
  fails({"wram"}, 2, "tessera: unknown command wram, did you mean warm?; there are plan, emit, warm, check");
  fails({"plan"}, 2, "tessera: plan: name an operator, like `tessera plan fmha`");
  fails({"plan", "conv"}, 2,
        "conv: is neither an operator (copy2d, fmha, merge, attention_quantize, gemm, quantize, dequantize, "
        "convert_scales, gemv, pack_weights, quantize_blocks, rows, mhc_product, moe_route, topk, indexer) nor a shape "
        "list");
  fails({"plan", "fmah"}, 2, "did you mean fmha?");
  fails({"plan", "rmsnorm+nvfp5"}, 2, "rmsnorm+nvfp5: nvfp5 (character 9): no such part, did you mean nvfp4?");
  fails({"plan", "rmsnorm", "--chain", "rope"}, 2, "rmsnorm is a chain of rows already: leave --chain out");
  fails({"plan", "fmha", "--hed-dim", "64"}, 2, "unknown flag --hed-dim for plan, did you mean --head-dim?");
  fails({"plan", "fmha", "extra"}, 2, "unexpected argument 'extra' for plan");
  fails({"plan", "fmha", "--head-dim"}, 2, "--head-dim needs a value, N,...: elements of a head of q and k");
  fails({"plan", "fmha", "--head-dim", "x"}, 2, "head_dim = x: must be a whole number");
  fails({"plan", "fmha", "--jobs", "-1"}, 2, "--jobs = -1: must be a whole number of at least 0");
  fails({"plan", "fmha", "--rank", "2"}, 2, "fmha has no field rank");
  fails({"plan", "fmha", "--head-dim", "40"}, 3, "fmha has no kernel for head_dim 40");
  fails({"plan", "fmha", "--tile-m", "128", "--tile-n", "128", "--stages", "4"}, 3, "bytes of shared memory");
  fails({"emit", "fmha", "--head-dim", "64,128"}, 2, "emit writes one kernel: the selectors name 2 problems");
  fails({"emit", "fmha", "-o", "/dev/null/x.cu"}, 5, "/dev/null/x.cu: cannot be opened for writing");
  fails({"warm", "/nonexistent/shapes.json"}, 5, "/nonexistent/shapes.json");
  fails({"warm", "/nonexistent/shapes.json", "--mask", "none"}, 2, "selectors go with an operator");
  fails({"warm", "fmha", "--compile-policy", "never"}, 2,
        "--compile-policy = never: must be one of allow, warn, forbid");
  fails({"run", "fmha", "--device", "gpu"}, 5, "no GPU here: a test without a GPU");
  fails({"run", "copy2d", "--device", "emulator"}, 4, "kernel.ptx:");  // the counting compiler's PTX is none
  fails({"run", "fmha", "--device", "tpu"}, 2, "--device = tpu: must be one of gpu, emulator, auto");
  fails({"run", "fmha", "--heads-q", "3", "--heads-kv", "2"}, 2, "heads_q must be a multiple of heads_kv");
  fails({"run", "fmha", "--input", "q"}, 2, "--input q: must be NAME=FILE.npy");
  fails({"run", "fmha", "--shape", "3,4"}, 2,
        "--shape: is for copy2d; fmha has --batch, --heads-q, --heads-kv and others");
  fails({"run", "copy2d", "--softmax-scale", "2"}, 2, "--softmax-scale: is for fmha");
  fails({"run", "fmha", "--softmax-scale", "1e39"}, 2, "--softmax-scale = 1e39: must be a number that fp32 holds");
  fails({"run", "fmha", "--alpha", "2"}, 2, "--alpha: is for gemm and gemv");
  fails(
      {"run", "gemm", "--arch", "sm_100a", "--dtype", "s8", "--d-dtype", "s32", "--alpha", "2", "--device", "emulator"},
      2, "--alpha 2: sums of integers leave as they are: take --d-dtype f32");
  fails({"run", "gemm", "--alpha", "1e39"}, 2, "--alpha = 1e39: must be a number that fp32 holds");
  fails({"run", "gemm", "--beta", "2"}, 2, "--beta 2: there is no c to multiply: give --c matrix");
  fails({"run", "gemm", "--size", "lda"}, 2, "--size lda: must be NAME=N, like --size lda=136");
  fails({"run", "gemm", "--size", "ldx=8"}, 2, "gemm has no size ldx: its sizes are m, n, k, l, lda,");
  fails({"run", "gemm", "--k", "64", "--size", "lda=65"}, 2, "lda must be a multiple of 8");
  fails({"run", "gemm", "--k", "64", "--l", "3", "--size", "a_stride_l=68719476736"}, 2,
        "a: shape [3, 897, 64] with strides [68719476736, 64, 1] reaches over more than 68719476736 elements");
  fails({"run", "gemm", "--l", "3", "--m", "64", "--n", "64", "--k", "64", "--size", "d_stride_l=640"}, 2,
        "d overlaps itself: d_stride_l = 640 and ldd = 64: elements [1, 0, 0] and [0, 10, 0] lie at one place");
  fails({"run", "fmha", "--heads-q", "4", "--heads-kv", "4", "--size", "o_stride_head=64"}, 2,
        "o overlaps itself: o_stride_head = 64: elements [0, 0, 1, 0] and [0, 0, 0, 64] lie at one place");
  fails({"run", "fmha", "--save", "lse"}, 2, "--save lse: must be NAME=FILE.npy");
  fails({"run", "fmha", "--save", "q=q.npy"}, 2, "--save q: fmha has no output of that name");
  fails({"run", "fmha", "--mask", "none,causal", "--save", "o=o.npy"}, 2, "--save keeps one run's outputs");
  fails({"run", "fmha", "--heads-q", "0"}, 2, "heads_q = 0: must be from 1 to");
  fails({"plan", "fmha", "--head-dim", ""}, 2, "--head-dim has an empty value");
  fails({"run", "copy2d", "--shape", "1,x"}, 2, "--shape = 1,x: must be whole numbers");
  fails({"run", "copy2d", "--shape", "1,3,16"}, 2, "pin --rank 3");
  fails({"cache"}, 2, "cache: say what to do");
  fails({"cache", "lst"}, 2, "cache has no action lst, did you mean list?");
  fails({"cache", "prune", "3f9a12", "--all"}, 2, "cache prune: takes no argument, 3f9a12 given");
  fails({"cache", "show"}, 2, "cache show: give the first characters");
  fails({"cache", "import", "/nonexistent.tar.zst"}, 5, "/nonexistent.tar.zst");
  terminal.compiler->failures_left = 100;
  CHECK(terminal.run({"warm", "fmha"}).code == 4);
  CHECK(terminal.run({"--version"}).code == 0);
}

TEST_CASE("warm, check, cache: a cycle, with the JSON keys that others build on") {
  Terminal terminal;
  const std::vector<std::string> product = {"fmha", "--head-dim", "64,128", "--mask", "none,causal", "--json"};
  const auto with = [&](const std::string& command, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {command};
    arguments.insert(arguments.end(), product.begin(), product.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return terminal.run(arguments);
  };
  Outcome outcome = with("check");
  CHECK(outcome.code == 1);
  CHECK(has_keys(Json::parse(outcome.out), {"covered", "missing"}));
  CHECK(Json::parse(outcome.out)["missing"].size() == 4);

  outcome = with("warm", {"--dry-run"});
  CHECK(outcome.code == 0);
  CHECK(terminal.compiler->calls == 0);
  CHECK(Json::parse(outcome.out)["kernels"] == 4);

  outcome = with("warm");
  CHECK(outcome.code == 0);
  CHECK(terminal.compiler->calls == 4);
  const Json report = Json::parse(outcome.out);
  CHECK(has_keys(report, {"problems", "kernels", "compiled", "hit", "failed", "rejected", "seconds", "entries"}));
  CHECK(report["compiled"] == 4);
  CHECK(has_keys(report["entries"][0],
                 {"key", "op", "arch", "entry", "compile_ms", "registers", "spill_bytes", "smem_bytes", "notes"}));

  outcome = with("warm");
  CHECK(Json::parse(outcome.out)["hit"] == 4);
  CHECK(terminal.compiler->calls == 4);
  outcome = with("check");
  CHECK(outcome.code == 0);
  CHECK(Json::parse(outcome.out)["covered"] == 4);
  CHECK(Json::parse(outcome.out)["missing"].empty());

  const Json list = Json::parse(terminal.run({"cache", "list", "--json"}).out)["entries"];
  REQUIRE(list.size() == 4);
  const std::string key = list[0]["key"];
  CHECK(
      terminal.run({"cache", "show", key.substr(0, 12), "--ptx"}).out.starts_with("// PTX of /tessera/fmha/entry.cu"));
  CHECK(terminal.run({"cache", "show", key.substr(0, 12), "--log"}).out.starts_with("ptxas info"));
  CHECK(terminal.run({"cache", "show", key.substr(0, 12), "--plan"}).out.starts_with("{"));
  CHECK(terminal.run({"cache", "show", key.substr(0, 12), "--source"}).out.starts_with("// nvcc -std=c++20"));
  CHECK(terminal.run({"cache", "show", key.substr(0, 12)}).out.find("registers") != std::string::npos);
  CHECK(terminal.run({"cache", "show", key.substr(0, 12)}).out.find("\"q bf16, tensor map bf16\"") !=
        std::string::npos);
  CHECK(Json::parse(terminal.run({"cache", "stat", "--json"}).out)["entries"] == 4);
  CHECK(terminal.run({"cache", "list", "--op", "copy2d"}).out == "0 entries, 0 bytes\n");

  const std::string archive = (terminal.folder.path / "kernels.archive").string();
  CHECK(terminal.run({"cache", "export", archive}).code == 0);
  const std::string elsewhere = (terminal.folder.path / "elsewhere").string();
  outcome = terminal.run({"cache", "import", archive, "--cache-dir", elsewhere, "--json"});
  CHECK(Json::parse(outcome.out)["imported"] == 4);
  CHECK(with("check", {"--cache-dir", elsewhere}).code == 0);
  CHECK(with("check", {"--system-cache-dirs", elsewhere, "--cache-dir", elsewhere + "2"}).code == 0);

  CHECK(terminal.run({"cache", "verify"}).code == 0);
  const std::filesystem::path first = list[0]["folder"].get<std::string>();
  std::filesystem::resize_file(first / "kernel.cubin", 10);
  Json damaged = Json::parse(terminal.run({"cache", "list", "--json"}).out)["entries"][0];
  CHECK(damaged["damage"].get<std::string>().starts_with("kernel.cubin has 10 bytes"));
  CHECK(damaged["compiler"] == list[0]["compiler"]);  // its record is whole
  std::filesystem::resize_file(first / "compile.json", 10);
  damaged = Json::parse(terminal.run({"cache", "list", "--json"}).out)["entries"][0];
  CHECK(damaged["compiler"] == "unknown");
  outcome = terminal.run({"cache", "verify"});
  CHECK(outcome.code == 1);
  CHECK(outcome.out.find("1 damaged") != std::string::npos);
  CHECK(terminal.run({"cache", "prune", "--all"}).code == 0);
  CHECK(terminal.run({"cache", "list"}).out == "0 entries, 0 bytes\n");
  CHECK(terminal.run({"cache", "prune"}).code == 2);
}

TEST_CASE("an illegal member of a product is reported, an illegal explicit entry fails") {
  Terminal terminal;
  Outcome outcome = terminal.run({"warm", "fmha", "--head-dim", "64,40"});
  CHECK(outcome.code == 0);
  CHECK(outcome.err.find("rejected: fmha --head-dim 40: fmha has no kernel for head_dim 40") != std::string::npos);
  CHECK(terminal.run({"warm", "fmha", "--head-dim", "64,40", "--strict"}).code == 3);
  CHECK(terminal.run({"warm", "fmha", "--head-dim", "48,40"}).code == 3);
  CHECK(terminal.run({"check", "fmha", "--head-dim", "64,40"}).code == 0);
  CHECK(terminal.run({"check", "fmha", "--head-dim", "64,40", "--strict"}).code == 3);
  CHECK(terminal.run({"plan", "fmha", "--head-dim", "64,40"}).code == 0);

  const std::string list = terminal.write(
      "list.json", R"({"kernels": [{"op": "fmha", "head_dim": [64, 40]}, {"op": "fmha", "head_dim": 128}]})");
  CHECK(terminal.run({"warm", list}).code == 0);
  const std::string explicit_list =
      terminal.write("explicit.json", R"({"kernels": [{"op": "fmha"}, {"op": "fmha", "head_dim": 40}]})");
  outcome = terminal.run({"warm", explicit_list});
  CHECK(outcome.code == 3);
  CHECK(outcome.err.find("explicit.json:1:30: fmha --head-dim 40") != std::string::npos);
  CHECK(terminal.run({"check", explicit_list}).code == 3);
  // A failed compile (4) outweighs an unsupported member (3).
  terminal.compiler->failures_left = 1;
  CHECK(terminal.run({"warm", "fmha", "--head-dim", "256,40", "--strict"}).code == 4);
}

TEST_CASE("sizes outside a kernel's domain are found offline") {
  Terminal terminal;
  const Outcome outcome = terminal.run({"warm", "fmha", "--batch", "1", "--heads-q", "3,4", "--heads-kv", "2",
                                        "--seqlen-q", "10", "--seqlen-k", "10", "--json"});
  CHECK(outcome.code == 3);  // hints are no choice of kernels: one kernel, named explicitly, with one bad size
  CHECK(outcome.err.find("heads_q must be a multiple of heads_kv") != std::string::npos);
  CHECK(Json::parse(outcome.out)["rejected"] == 1);
  CHECK(Json::parse(outcome.out)["compiled"] == 1);
}

TEST_CASE("a size of 0 is a size, not an unknown one") {
  Terminal terminal;
  const std::vector<std::string> sizes = {"--batch", "1", "--heads-q", "1", "--seqlen-q", "0", "--seqlen-k", "9"};
  const auto check = [&](const std::string& heads_kv) {
    std::vector<std::string> arguments = {"check", "fmha", "--heads-kv", heads_kv};
    arguments.insert(arguments.end(), sizes.begin(), sizes.end());
    return terminal.run(arguments);
  };
  CHECK(check("1").code == 1);
  CHECK(check("0").code == 3);
  CHECK(check("0").err.find("heads_kv = 0: must be from 1 to 65536") != std::string::npos);
  const Outcome plan = terminal.run({"plan", "fmha", "--seqlen-q", "0"});
  CHECK(plan.out.find("hints: seqlen_q 0") != std::string::npos);
}

TEST_CASE("many problems: distinct kernels are counted first, each compiles once") {
  Terminal terminal;
  const int lengths = testing::takes_all_cases() ? 25'000 : 5000;
  std::string text = R"({"kernels": [{"op": "fmha", "head_dim": [64, 128], "mask": ["none", "causal"], "sizes": [)";
  for (int i = 0; i < lengths; ++i)
    text += (i == 0 ? "" : ",\n") + std::string("{\"seqlen_q\": ") + std::to_string(2000 + i) + "}";
  const std::string list = terminal.write("big.json", text + "]}]}");
  const Json report = Json::parse(terminal.run({"warm", list, "--json"}).out);
  CHECK(report["problems"] == 4 * lengths);
  CHECK(report["kernels"] == terminal.compiler->calls.load());
  CHECK(report["compiled"] == terminal.compiler->calls.load());
  CHECK(terminal.compiler->calls <= 40);
  CHECK(terminal.run({"check", list}).code == 0);
}

TEST_CASE("warm resumes: what is compiled before an interrupt is not compiled again") {
  Terminal terminal;
  std::stop_source source;
  terminal.host.catch_interrupt = [&] { return source.get_token(); };
  terminal.compiler->delay = std::chrono::milliseconds(30);
  std::thread interrupt([&] {
    while (terminal.compiler->calls < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    source.request_stop();
  });
  const std::vector<std::string> arguments = {"warm",   "fmha",        "--head-dim", "64,128,256",
                                              "--mask", "none,causal", "--dtype",    "bf16,f16",
                                              "--jobs", "1",           "--json"};
  const Outcome first = terminal.run(arguments);
  interrupt.join();
  CHECK(first.code == 130);
  const int compiled = terminal.compiler->calls;
  CHECK(compiled < 12);
  CHECK(Json::parse(first.out)["cancelled"] == true);
  terminal.host.catch_interrupt = nullptr;
  const Outcome second = terminal.run(arguments);
  CHECK(second.code == 0);
  CHECK(terminal.compiler->calls == 12);
  CHECK(Json::parse(second.out)["hit"] == compiled);
}

TEST_CASE("warm fails when no folder keeps what it compiles") {
  Terminal terminal;
  const std::string file = terminal.write("file", "in the way");
  const Outcome outcome = terminal.run({"warm", "fmha", "--cache-dir", file + "/cache"});
  CHECK(outcome.code == 5);
  CHECK(outcome.err.find("1 kernel is in no cache folder: none could take it") != std::string::npos);
  CHECK(terminal.run({"warm", "fmha", "--cache-dir", file + "/cache", "--dry-run"}).code == 0);
  CHECK(terminal.run({"warm", "fmha"}).code == 0);
  terminal.host.options.cache_dir.clear();
  const Outcome homeless = terminal.run({"warm", "fmha"});
  CHECK(homeless.code == 5);
  CHECK(homeless.err.find("no absolute XDG_CACHE_HOME and no HOME is set; name one with --cache-dir") !=
        std::string::npos);
}

TEST_CASE("plan and emit print what they are asked for") {
  Terminal terminal;
  const Outcome plan = terminal.run({"plan", "fmha", "--head-dim", "128", "--batch", "2", "--heads-q", "4",
                                     "--heads-kv", "2", "--seqlen-q", "100", "--seqlen-k", "200"});
  CHECK(plan.code == 0);
  for (const char* part : {"wgmma.f16", "tensor map bf16, swizzle 128B", "shared memory: ", "registers a thread",
                           "launch ", "tensor maps", "every rule holds", "other candidates"})
    CHECK(plan.out.find(part) != std::string::npos);
  const Json json = Json::parse(terminal.run({"plan", "fmha", "--json"}).out);
  CHECK(has_keys(json, {"op", "arch", "kernel", "config", "operands", "smem", "launch", "rejected"}));
  CHECK(Json::parse(terminal.run({"plan", "fmha", "--head-dim", "64,128", "--json"}).out)["plans"].size() == 2);
  const std::string file = (terminal.folder.path / "k.cu").string();
  CHECK(terminal.run({"emit", "fmha", "-o", file}).out.empty());
  // The first line compiles the file by its own name.
  const std::string source = terminal.run({"emit", "fmha"}).out, written = read_text(file);
  CHECK(written.substr(written.find('\n')) == source.substr(source.find('\n')));
  CHECK(written.starts_with("// nvcc -std=c++20 -arch=sm_90a -cubin -lineinfo -o " + terminal.folder.path.string() +
                            "/k.cubin " + file + "\n"));
  const std::string odd = (terminal.folder.path / "my kernel.txt").string();
  CHECK(terminal.run({"emit", "fmha", "-o", odd}).code == 0);
  CHECK(read_text(odd).find("my kernel.cubin' -x cu '" + odd + "'\n") < 200);
  const Json emitted = Json::parse(terminal.run({"emit", "fmha", "--json"}).out);
  CHECK(emitted["source"] == source);
  CHECK(emitted["bytes"] == source.size());
  CHECK(Json::parse(terminal.run({"emit", "fmha", "--json", "-o", file}).out)["file"] == file);
}

TEST_CASE("doctor reports compiler, GPU and cache, and exits 0 without them") {
  Terminal terminal;
  const Outcome text = terminal.run({"doctor", "--nvrtc", "/nonexistent/libnvrtc.so"});
  CHECK(text.code == 0);
  CHECK(text.out.find("/nonexistent/libnvrtc.so") != std::string::npos);
  CHECK(text.out.find("none: a test without a GPU") != std::string::npos);
  const Json json = Json::parse(terminal.run({"doctor", "--json"}).out);
  CHECK(has_keys(json, {"tessera", "compiler", "gpu", "cache", "works", "supported"}));
  const Json blind =
      Json::parse(terminal.run({"doctor", "--nvrtc", "/nonexistent/libnvrtc.so", "--json"}).out)["works"];
  const auto works = [&](const std::string& what) {
    for (const Json& one : blind)
      if (one["what"].get<std::string>().starts_with(what)) return one["works"].get<bool>();
    return false;
  };
  // What is enforced, what is reported and what the README promises are one.
  const std::string readme = read_text(TESSERA_SOURCE_DIR "/README.md");
  const std::string nvrtc = json["supported"]["nvrtc"], driver = json["supported"]["driver"];
  CHECK(nvrtc.starts_with("12.8 and later; "));
  CHECK(driver.starts_with("for CUDA 12.4 and later; "));
  CHECK(readme.find("| NVRTC | " + nvrtc.substr(0, nvrtc.find(';'))) != std::string::npos);
  CHECK(readme.find("| driver | " + driver.substr(0, driver.find(';'))) != std::string::npos);
  CHECK(works("emulate"));
  CHECK_FALSE(works("run --device emulator"));
  CHECK_FALSE(works("run --device gpu"));
}

TEST_CASE("a reader that goes away is a success, a full disk is not") {
  std::signal(SIGPIPE, SIG_IGN);
  Terminal terminal;
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  std::FILE* out = fdopen(ends[1], "w");
  std::FILE* err = std::tmpfile();
  terminal.host.out = out;
  terminal.host.err = err;
  CHECK(run_tessera({"emit", "fmha"}, terminal.host) == 0);
  CHECK(run_tessera({"--help"}, terminal.host) == 0);
  // A gate's answer is its code: it goes on.
  const testing::TemporaryFolder folder;
  const std::string cache = (folder.path / "cache").string(), missing = (folder.path / "missing").string();
  CHECK(run_tessera({"check", "fmha", "--cache-dir", cache}, terminal.host) == 1);
  CHECK(run_tessera({"check", "fmha", "--cache-dir", cache, "--json"}, terminal.host) == 1);
  CHECK(run_tessera({"cache", "verify", "--cache-dir", missing}, terminal.host) == 5);
  std::fclose(out);
  if (std::FILE* full = std::fopen("/dev/full", "w")) {
    terminal.host.out = full;
    CHECK(run_tessera({"emit", "fmha"}, terminal.host) == 5);
    std::fclose(full);
  }
  std::fclose(err);
}

TEST_CASE("a long list: checked and counted with progress before the first compile, and interrupted at any time") {
  Terminal terminal;
  std::string sizes;
  for (int batch = 1; batch <= 2048; ++batch)
    sizes += fmt::format("{}{{\"batch\": {}, \"heads_q\": 1, \"heads_kv\": 1, \"seqlen_q\": 9, \"seqlen_k\": 9}}",
                         batch == 1 ? "" : ",", batch);
  const std::string file =
      terminal.write("long.json", fmt::format("{{\"kernels\": [{{\"op\": \"fmha\", \"tile_m\": 64, "
                                              "\"tile_n\": 64, \"stages\": 2, \"sizes\": "
                                              "[{}]}}]}}",
                                              sizes));
  std::stop_source stop;
  stop.request_stop();
  terminal.host.catch_interrupt = [&] { return stop.get_token(); };
  const Outcome interrupted = terminal.run({"warm", file});
  CHECK(interrupted.code == 130);
  CHECK(interrupted.out.find("interrupted, run it again to go on") != std::string::npos);
  CHECK(terminal.compiler->calls == 0);
  terminal.host.catch_interrupt = nullptr;

  CHECK(terminal.run({"check", file}).err.find("looking up") == std::string::npos);
  terminal.host.is_terminal = true;
  const std::string warmed = terminal.run({"warm", file}).err, checked = terminal.run({"check", file}).err;
  const std::size_t counting = warmed.find("counting kernels: 1,024 of 2,048 problems, "),
                    counted = warmed.find("1 distinct kernel for 2,048 problems"), compiling = warmed.find("[1/1]");
  CHECK(compiling != std::string::npos);
  CHECK((counting < counted && counted < compiling));
  const std::size_t looking_up = checked.find("looking up 1 kernel");
  CHECK(looking_up != std::string::npos);
  CHECK(checked.find("counting kernels: 1,024 of 2,048 problems, ") < looking_up);
}

TEST_CASE("check says where in the list stands what it refuses, and how many more there are") {
  Terminal terminal;
  const std::string file = terminal.write(
      "shapes.json", "{\"kernels\": [{\"op\": \"fmha\", \"head_dim\": [64, 40]},\n{\"op\": \"copy2d\", \"rank\": 9}]}");
  for (const char* command : {"warm", "check"}) {
    CAPTURE(command);
    const Outcome outcome = terminal.run({command, file});
    CHECK(outcome.code == 3);
    CHECK(outcome.err.find("rejected: " + file + ":1:14: fmha --head-dim 40: fmha has no kernel for head_dim 40") !=
          std::string::npos);
    CHECK(outcome.err.find("rejected: " + file + ":2:1: copy2d --rank 9: ") != std::string::npos);
    const Json json = Json::parse(terminal.run({command, file, "--json"}).out);
    CHECK(json["rejections"][1]["place"] == file + ":2:1");
  }
  std::string dims = "97";
  for (int i = 98; i <= 119; ++i) dims += fmt::format(",{}", i);
  CHECK(terminal.run({"check", "fmha", "--head-dim", dims}).err.find("... and 3 more\n") != std::string::npos);
}

TEST_CASE("emit and the cache show the sources that --templates replaced") {
  Terminal terminal;
  const auto run_with = [&](const std::vector<std::string>& arguments) { return terminal.run(arguments).out; };
  const std::string plain = run_with({"emit", "copy2d"});
  const std::size_t part = plain.find("// ---- ptx/address.cuh"), end = plain.find("// ---- ", part + 8);
  REQUIRE(part != std::string::npos);
  std::filesystem::create_directories(terminal.folder.path / "mine" / "ptx");
  const std::size_t body = plain.find('\n', part);
  terminal.write("mine/ptx/address.cuh", "// mine\n#pragma once\n" + plain.substr(body, end - body));
  const std::string folder = (terminal.folder.path / "mine").string();
  CHECK(run_with({"emit", "copy2d", "--templates", folder}).find("\n// mine\n") != std::string::npos);
  const Json report = Json::parse(run_with({"warm", "copy2d", "--templates", folder, "--json"}));
  const std::string key = report["entries"][0]["key"];
  CHECK(run_with({"cache", "show", key, "--source"}).find("\n// mine\n") != std::string::npos);
}

TEST_CASE("a terminal sees progress, a file does not") {
  Terminal terminal;
  CHECK(terminal.run({"warm", "fmha"}).err.find("[1/1]") == std::string::npos);
  terminal.host.is_terminal = true;
  CHECK(terminal.run({"warm", "fmha", "--mask", "causal"}).err.find("[1/1]") != std::string::npos);
  CHECK(terminal.run({"warm", "fmha", "--head-dim", "64", "--quiet"}).err.empty());
}
