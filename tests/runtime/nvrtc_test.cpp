// NVRTC itself: needs the library, no GPU. Without it the cases say so and pass over.
#include "runtime/nvrtc.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "runtime/compiler_suffix.h"
#include "runtime/nvrtc_library.h"
#include "tessera/error.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

/// Null, with a message, where NVRTC is absent.
Compiler* compiler() {
  static const std::unique_ptr<Compiler> shared = find_nvrtc() ? make_nvrtc_compiler() : nullptr;
  if (shared == nullptr) MESSAGE("not run: no NVRTC here");
  return shared.get();
}

SourceBundle small_bundle() {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text =
      "#include \"scale/factor.h\"\n"
      "extern \"C\" __global__ void tessera_scale(float* x) {\n"
      "  __shared__ float tile[64];\n"
      "  tile[threadIdx.x] = x[threadIdx.x];\n"
      "  __syncthreads();\n"
      "  x[threadIdx.x] = scaled(tile[63 - threadIdx.x]);\n"
      "}\n";
  bundle.headers = {{"scale/factor.h",
                     "inline constexpr float kFactor = 2.0f;\n"
                     "__device__ __forceinline__ float scaled(float x) { return x * kFactor; }\n"}};
  bundle.arch = "sm_90a";
  bundle.options = {"-lineinfo"};
  bundle.entries = {"tessera_scale"};
  return bundle;
}

Error failure(const SourceBundle& bundle) {
  try {
    compiler()->compile(bundle);
  } catch (const Error& error) {
    return error;
  }
  return Error(ErrorKind::usage, "compiled");
}

}  // namespace

TEST_CASE("a library in a Python environment knows its folder of packages") {
  CHECK(packages_around("/venv/lib/python3.11/site-packages/tessera/_core.so") == "/venv/lib/python3.11/site-packages");
  CHECK(packages_around("/usr/lib/python3/dist-packages/tessera/lib/libtessera.so") ==
        "/usr/lib/python3/dist-packages");
  CHECK(packages_around("/opt/tessera/lib/libtessera.so").empty());
  CHECK(packages_around("").empty());
  CHECK(packages_around("build/site-packages.d/x").empty());
}

TEST_CASE("a merge beside a kernel: each as it is alone, in one report") {
  if (compiler() == nullptr) return;
  SourceBundle merge = small_bundle();
  merge.program = "/tessera/test/merge.cu";
  merge.text =
      "#include \"scale/factor.h\"\n"
      "extern \"C\" __global__ void tessera_merge(float* x) { *x = scaled(*x + 1); }\n";
  merge.entries = {"tessera_merge"};
  SourceBundle bundle = small_bundle();
  bundle.merge = std::make_shared<const SourceBundle>(merge);
  const Image image = compiler()->compile(bundle), kernel = compiler()->compile(small_bundle()),
              alone = compiler()->compile(merge);
  CHECK(image.ptx == kernel.ptx);
  CHECK(image.cubin == kernel.cubin);
  CHECK(image.merge.ptx == alone.ptx);
  CHECK(image.merge.cubin == alone.cubin);
  REQUIRE(image.report.entries.size() == 2);
  CHECK(image.report.entries[0].name == "tessera_scale");
  CHECK(image.report.entries[1].name == "tessera_merge");
  CHECK(image.report.log.find("'tessera_scale'") < image.report.log.find("'tessera_merge'"));
  CHECK(image.report.compile_ms > 0);

  merge.text = "#include \"scale/factor.h\"\nint broken = nothing;\n";
  bundle.merge = std::make_shared<const SourceBundle>(merge);
  CHECK(std::string(failure(bundle).what()).find("merge.cu:2:") != std::string::npos);
}

TEST_CASE("PTX alone is the PTX that comes with a cubin") {
  if (compiler() == nullptr) return;
  const auto without = make_nvrtc_compiler({.library = {}, .repro_folder = {}, .makes_cubin = false});
  const Image both = compiler()->compile(small_bundle()), alone = without->compile(small_bundle());
  CHECK(alone.cubin.empty());
  CHECK(!both.cubin.empty());
  CHECK(alone.ptx == both.ptx);
  SourceBundle unknown = small_bundle();
  unknown.arch = "sm_12a";
  CHECK_THROWS_AS(without->compile(unknown), Error);
}

TEST_CASE("one compile gives PTX, cubin and the report") {
  if (compiler() == nullptr) return;
  const Image image = compiler()->compile(small_bundle());
  CHECK(image.ptx.find(".entry tessera_scale") != std::string::npos);
  CHECK(image.ptx.find(".target sm_90a") != std::string::npos);
  REQUIRE(image.cubin.size() > 4);
  CHECK(image.cubin[1] == std::byte{'E'});
  REQUIRE(image.report.entries.size() == 1);
  CHECK(image.report.entries[0].name == "tessera_scale");
  CHECK(image.report.entries[0].registers > 0);
  CHECK(image.report.entries[0].static_smem_bytes == 256);
  CHECK(image.report.entries[0].barriers == 1);
  CHECK(image.report.notes.empty());
  CHECK(image.report.compile_ms > 0);
  CHECK(image.report.compiler == compiler_of(small_bundle(), compiler()->identity()));  // no piece keeps values
}

TEST_CASE("the compiler knows which build it is") {
  if (compiler() == nullptr) return;
  const CompilerIdentity& identity = compiler()->identity();
  CHECK(identity.name == "nvrtc");
  CHECK(identity.major_version >= 12);
  CHECK(identity.build_id.size() >= 16);
}

TEST_CASE("a compile sees no file system: decoys and the working directory change nothing") {
  if (compiler() == nullptr) return;
  const fs::path before = fs::current_path();
  const testing::TemporaryFolder clean, decoy;
  fs::create_directories(decoy.path / "scale");
  write_file(decoy.path / "scale/factor.h", std::string_view("#error decoy\n"));
  write_file(decoy.path / "outside.h", std::string_view("#define FOUND 1\n"));
  SourceBundle lost = small_bundle();
  lost.text = "#include \"outside.h\"\n" + lost.text;

  fs::current_path(clean.path);
  const Image first = compiler()->compile(small_bundle());
  fs::current_path(decoy.path);
  const Image second = compiler()->compile(small_bundle());
  const Error error = failure(lost);
  fs::current_path(before);

  CHECK(first.ptx == second.ptx);
  CHECK(first.cubin == second.cubin);
  // The line tables name the header that a line was inlined from, under a root of its own.
  CHECK(first.ptx.find("\"/tessera/scale/factor.h\"") != std::string::npos);
  CHECK(error.kind() == ErrorKind::compile);
  CHECK(std::string(error.what()).find("could not open source file \"outside.h\"") != std::string::npos);
}

TEST_CASE("a failing compile names the kernel and the place, and leaves a folder that replays it") {
  if (compiler() == nullptr) return;
  const testing::TemporaryFolder folder;
  const auto local = make_nvrtc_compiler({.library = {}, .repro_folder = folder.path});
  SourceBundle bundle = small_bundle();
  const std::string scaled = "__device__ float scaled(float x) { return x * kFactor; }\n";
  bundle.headers = {
      {"scale/config.cuh", "inline constexpr int kTile = 64;\n"},
      {"scale/factor.h", "#include \"scale/config.cuh\"\n  inline constexpr float kFactor = kTyle;\n" + scaled}};
  std::vector<std::string> notes;
  try {
    local->compile(bundle);
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::compile);
    CHECK(std::string(error.what()) ==
          "tessera_scale: does not compile for sm_90a: scale/factor.h:2:36: error: identifier \"kTyle\" is undefined");
    notes = error.notes();
  }
  REQUIRE(notes.size() == 4);
  CHECK(notes[0].find("  inline constexpr float kFactor = kTyle;\n") != std::string::npos);
  CHECK(notes[1] == "scale/config.cuh:\n  inline constexpr int kTile = 64;");
  const CompilerIdentity& nvrtc = local->identity();
  const bool has_cache = nvrtc.major_version > 12 || nvrtc.minor_version >= 9;
  CHECK(notes[2] == fmt::format("options: --gpu-architecture=sm_90a --no-source-include --ptxas-options=-v{}{} "
                                "--std=c++20 -lineinfo",
                                has_cache ? " --no-cache" : "", nvrtc.major_version >= 13 ? " --minimal" : ""));
  const fs::path script = notes[3].substr(std::string("replay: ").size());
  CHECK(script.filename() == "run.sh");
  CHECK(read_text(script.parent_path() / "src/entry.cu") == bundle.text);
  CHECK(read_text(script.parent_path() / "src/scale/factor.h") == bundle.headers[1].text);
  CHECK(
      read_text(script).find("'--gpu-architecture=sm_90a' '--ptxas-options=-v' '--std=c++20' '-lineinfo' 'entry.cu'") !=
      std::string::npos);
  const fs::path nvcc = "/usr/local/cuda/bin/nvcc";
  if (!fs::exists(nvcc)) return;
  const std::string command =
      fmt::format("NVCC={} {} > {} 2>&1", nvcc.string(), script.string(), (folder.path / "out").string());
  CHECK(std::system(command.c_str()) != 0);
  CHECK(read_text(folder.path / "out").find("identifier \"kTyle\" is undefined") != std::string::npos);
  write_file(script.parent_path() / "src/scale/factor.h", "inline constexpr float kFactor = 2;\n" + scaled);
  CHECK(std::system(command.c_str()) == 0);
}

TEST_CASE("an arch that the compiler does not know is refused with the list of those that it knows") {
  if (compiler() == nullptr) return;
  const std::vector<std::string>& known = compiler()->architectures();
  CHECK(std::find(known.begin(), known.end(), "sm_90a") != known.end());
  CHECK(std::find(known.begin(), known.end(), "sm_90f") == known.end());
  for (const char* arch : {"sm_42", "sm_90f", "compute_90a", "", "sm_90a --version"}) {
    SourceBundle bundle = small_bundle();
    bundle.arch = arch;
    const Error error = failure(bundle);
    CHECK(error.kind() == ErrorKind::unsupported);
    CHECK(std::string(error.what()) == fmt::format("arch {}: {} generates code for {}", arch,
                                                   compiler()->identity().to_string(), fmt::join(known, ", ")));
  }
}

TEST_CASE("spills are reported") {
  if (compiler() == nullptr) return;
  SourceBundle bundle = small_bundle();
  bundle.text =
      "extern \"C\" __global__ void __launch_bounds__(1024, 2) tessera_spill(float* x) {\n"
      "  float a[96];\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) a[i] = x[threadIdx.x + 1024 * i];\n"
      "  __syncthreads();\n"
      "#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) x[threadIdx.x + 1024 * i] = a[i] * a[95 - i] + a[(i * 7) % 96];\n"
      "}\n";
  bundle.entries = {"tessera_spill"};
  const Image image = compiler()->compile(bundle);
  REQUIRE(image.report.entries.size() == 1);
  CHECK(image.report.entries[0].registers == 32);
  CHECK(image.report.entries[0].spill_store_bytes > 0);
  CHECK(image.report.entries[0].spill_load_bytes > 0);
}

TEST_CASE("performance notes of the assembler are results") {
  if (compiler() == nullptr) return;
  SourceBundle bundle = small_bundle();
  bundle.text =
      "extern \"C\" __global__ void tessera_note(int* x) {\n"
      "  asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n  x[0] = 1;\n}\n";
  const Image image = compiler()->compile(bundle);
  REQUIRE(image.report.notes.size() == 1);
  CHECK(image.report.notes[0].find("'setmaxnreg' ignored") != std::string::npos);
}

TEST_CASE("threads compile at the same time and get the same bytes") {
  if (compiler() == nullptr) return;
  const Image alone = compiler()->compile(small_bundle());
  std::vector<Image> images(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < images.size(); ++i)
    threads.emplace_back([&, i] { images[i] = compiler()->compile(small_bundle()); });
  for (std::thread& thread : threads) thread.join();
  for (const Image& image : images) {
    CHECK(image.ptx == alone.ptx);
    CHECK(image.cubin == alone.cubin);
  }
}

TEST_CASE("without NVRTC the places that were searched are listed") {
  try {
    make_nvrtc_compiler({.library = "/nonexistent/libnvrtc.so.13", .repro_folder = {}});
    FAIL("opened");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::io);
    CHECK(std::string(error.what()) ==
          "no usable NVRTC was found; install CUDA 12.8 or later, or name its libnvrtc.so");
    CHECK(error.notes() == std::vector<std::string>{"/nonexistent/libnvrtc.so.13: no such file"});
  }
  CHECK_FALSE(find_nvrtc({.library = "/nonexistent/libnvrtc.so.13", .repro_folder = {}}).has_value());
  const testing::TemporaryFolder folder;
  write_file(folder.path / "libnvrtc.so.13", std::string_view("x"));
  try {
    make_nvrtc_compiler({.library = folder.path / "libnvrtc.so.13", .repro_folder = {}});
    FAIL("opened");
  } catch (const Error& error) {
    REQUIRE(error.notes().size() == 1);
    CHECK(error.notes()[0].find("libnvrtc-builtins.so is not beside it") != std::string::npos);
  }
}

TEST_CASE("an NVRTC that is too old is told by its builtins, and passed over") {
  const testing::TemporaryFolder folder;
  write_file(folder.path / "libnvrtc.so.12", std::string_view("x"));
  write_file(folder.path / "libnvrtc-builtins.so.12.6", std::string_view("x"));
  try {
    make_nvrtc_compiler({.library = folder.path / "libnvrtc.so.12", .repro_folder = {}});
    FAIL("opened");
  } catch (const Error& error) {
    REQUIRE(error.notes().size() == 1);
    CHECK(error.notes()[0].ends_with("libnvrtc.so.12: is NVRTC 12.6: 12.8 or later is needed (PTX 8.6)"));
  }
  CHECK_FALSE(find_nvrtc({.library = folder.path / "libnvrtc.so.12", .repro_folder = {}}).has_value());
  write_file(folder.path / "libnvrtc-builtins.so.12.8", std::string_view("x"));
  CHECK(find_nvrtc({.library = folder.path / "libnvrtc.so.12", .repro_folder = {}}).has_value());
}

TEST_CASE("builtins are found beside the library, also where neither it nor the loader has a search path") {
  const fs::path library = fs::path(TESSERA_FAKE_NVRTC);
  const testing::TemporaryFolder folder;
  fs::copy_file(library, folder.path / "libnvrtc.so.99");
  write_file(folder.path / "libnvrtc-builtins.so.99.6", std::string_view("of another version"));
  try {
    make_nvrtc_compiler({.library = folder.path / "libnvrtc.so.99", .repro_folder = {}});
    FAIL("opened");
  } catch (const Error& error) {
    REQUIRE(error.notes().size() == 1);
    CHECK(error.notes()[0].find("libnvrtc-builtins.so.99.7: cannot open shared object file") != std::string::npos);
  }
  const std::unique_ptr<Compiler> fake = make_nvrtc_compiler({.library = library, .repro_folder = {}});
  CHECK(fake->identity().major_version == 99);
  CHECK(fake->compile(small_bundle()).ptx == "// no code\n");
}

TEST_CASE("a compiler without memory is no fault of the source") {
  const std::unique_ptr<Compiler> fake = make_nvrtc_compiler({.library = TESSERA_FAKE_NVRTC, .repro_folder = {}});
  SourceBundle bundle = small_bundle();
  bundle.options.emplace_back("--fake-starvation");
  try {
    fake->compile(bundle);
    FAIL("compiled");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::device);
    CHECK(std::string(error.what()).find("the compiler ran out of memory") != std::string::npos);
    CHECK(error.notes().empty());
  }
}

}  // namespace tessera
