// NVRTC several times in one process: which program goes to which, and that none changes another's code. Without NVRTC
// the cases say so and pass over.
#include "runtime/nvrtc_instances.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "runtime/nvrtc.h"
#include "tessera/error.h"
#include "tests/support/temporary_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr const char* kEntry = "tessera_kept";

/// The second piece's loop uses 48 values of which NVVM, left alone, computes each again where it is used. `start`: so
/// that there are several kernels.
SourceBundle kept_bundle(int start, bool keeps_values) {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text = fmt::format(
      "#include \"piece.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__(64) {}(float* x, int n, int m) {{\n"
      "  extern __shared__ float tile[];\n"
      "  if (PIECE != 2 && threadIdx.x < 32) {{\n"
      "    x[threadIdx.x] = tile[threadIdx.x];\n"
      "  }} else if (PIECE == 1) {{\n"
      "    asm volatile(\"nanosleep.u32 98917890;\\n\\texit;\" ::: \"memory\");\n"
      "  }} else {{\n"
      "    unsigned slot = {};\n"
      "    float a[48];\n"
      "#pragma unroll\n"
      "    for (int i = 0; i < 48; ++i) a[i] = x[i * 64 + threadIdx.x];\n"
      "    for (int t = 0; t < n; ++t) {{\n"
      "      slot = slot + 1 == 3 ? 0 : slot + 1;\n"
      "      const unsigned low = (static_cast<unsigned>(__cvta_generic_to_shared(tile)) + slot * 4096) >> 4;\n"
      "      for (int j = 0; j < m; ++j) {{\n"
      "#pragma unroll\n"
      "        for (int i = 0; i < 48; ++i)\n"
      "          asm volatile(\"fma.rn.f32 %0, %0, %1, %1;\" : \"+f\"(a[i]) : \"f\"(__uint_as_float(low + i)));\n"
      "      }}\n"
      "    }}\n"
      "#pragma unroll\n"
      "    for (int i = 0; i < 48; ++i) x[i * 64 + threadIdx.x] = a[i];\n"
      "  }}\n"
      "}}\n",
      kEntry, start);
  const auto piece = [](int number) { return SourceFile{"piece.cuh", fmt::format("#define PIECE {}\n", number)}; };
  bundle.headers = {piece(0)};
  bundle.arch = "sm_90a";
  bundle.entries = {kEntry};
  bundle.pieces = {{piece(1)}, {piece(2), keeps_values}};
  return bundle;
}

/// Null, with a message, where one NVRTC alone is here or it joins no pieces.
std::unique_ptr<Compiler> find_both() {
  if (find_nvrtc()) {
    const NvrtcLibrary first = open_nvrtc({});
    std::string problem;
    if (first.identity.major_version >= 13 && open_alternate(first, problem)) return make_nvrtc_compiler();
  }
  MESSAGE("not run: no two NVRTC from 13.0 on here");
  return nullptr;
}

Image whole(Compiler& compiler, SourceBundle bundle) {
  bundle.pieces.clear();
  return compiler.compile(bundle);
}

void check_same(const Image& one, const Image& other) {
  CHECK(one.ptx == other.ptx);
  CHECK(one.cubin == other.cubin);
}

}  // namespace

TEST_CASE("many programs at a time share two NVRTC, few have one") {
  if (!find_nvrtc()) {
    MESSAGE("not run: no NVRTC here");
    return;
  }
  SharedNvrtc shared(open_nvrtc({}));
  using Lease = SharedNvrtc::Lease;
  std::vector<std::unique_ptr<Lease>> leases;
  const auto begin = [&] { return &leases.emplace_back(std::make_unique<Lease>(shared))->library(); };
  for (int i = 0; i < kManyPrograms; ++i) CHECK(begin() == &shared.library());
  const NvrtcLibrary* const copy = begin();
  REQUIRE(copy != &shared.library());
  const bool is_same_code = copy->api.compile_program == shared.library().api.compile_program;
  CHECK_FALSE(is_same_code);
  CHECK(begin() == copy);
  CHECK(begin() == copy);
  CHECK(begin() == &shared.library());
  leases.clear();
  CHECK(begin() == &shared.library());
  CHECK(begin() == copy);
}

TEST_CASE("each copy of an NVRTC is another one, and leaves no file open") {
  if (!find_nvrtc()) {
    MESSAGE("not run: no NVRTC here");
    return;
  }
  const NvrtcLibrary first = open_nvrtc({});
  const auto next_file = [] {
    const int file = dup(0);
    close(file);
    return file;
  };
  const int before = next_file();
  std::vector<const void*> code{reinterpret_cast<const void*>(first.api.compile_program)};
  for (int i = 0; i < 3; ++i) {
    const std::optional<NvrtcLibrary> copy = open_copy(first);
    REQUIRE(copy);
    code.push_back(reinterpret_cast<const void*>(copy->api.compile_program));
  }
  std::sort(code.begin(), code.end());
  CHECK(std::adjacent_find(code.begin(), code.end()) == code.end());
  CHECK(next_file() == before);
}

TEST_CASE("all compilers of a process share what a library has been opened for") {
  const fs::path library = TESSERA_FAKE_NVRTC;
  NvrtcInstances* const one = &nvrtc_instances({.library = library, .repro_folder = {}});
  CHECK(&nvrtc_instances({.library = library, .repro_folder = {}}) == one);
  const testing::TemporaryFolder folder;
  for (const char* name : {"libnvrtc.so.99", "libnvrtc-builtins.so.99.7"})
    fs::copy_file(library.parent_path() / name, folder.path / name);
  NvrtcInstances* const other = &nvrtc_instances({.library = folder.path / "libnvrtc.so.99", .repro_folder = {}});
  CHECK(other != one);
}

TEST_CASE("there is no copy where the process may not write so large a file") {
  const NvrtcLibrary fake = open_nvrtc({.library = TESSERA_FAKE_NVRTC, .repro_folder = {}});
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit small{1024, before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const bool has_copy = open_copy(fake).has_value();  // or SIGXFSZ
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK_FALSE(has_copy);
  CHECK(open_copy(fake));
}

TEST_CASE("an option of pieces that keep their values reaches nothing else, whatever came before") {
  const std::unique_ptr<Compiler> compiler = find_both();
  if (compiler == nullptr) return;
  const Image whole_before = whole(*compiler, kept_bundle(1, false));
  const Image plain_before = compiler->compile(kept_bundle(1, false));
  const Image kept = compiler->compile(kept_bundle(1, true));
  CHECK(kept.ptx != plain_before.ptx);
  CHECK(kept.report.log.ends_with("tessera: piece 2 with -Xnvvm -disable-nvvm-remat\n"));
  CHECK(plain_before.report.log.find("tessera: ") == std::string::npos);

  check_same(whole(*compiler, kept_bundle(1, false)), whole_before);
  check_same(compiler->compile(kept_bundle(1, false)), plain_before);
  compiler->compile(kept_bundle(2, true));
  check_same(compiler->compile(kept_bundle(1, true)), kept);
}

TEST_CASE("programs of all kinds at a time come out as they do alone") {
  const std::unique_ptr<Compiler> compiler = find_both();
  if (compiler == nullptr) return;
  const Image plain = compiler->compile(kept_bundle(1, false)), kept = compiler->compile(kept_bundle(1, true));
  const Image of_whole = whole(*compiler, kept_bundle(1, false));
  std::vector<std::future<Image>> plains, kepts, wholes;
  for (int i = 0; i < 4; ++i) {
    plains.push_back(std::async(std::launch::async, [&] { return compiler->compile(kept_bundle(1, false)); }));
    kepts.push_back(std::async(std::launch::async, [&] { return compiler->compile(kept_bundle(1, true)); }));
    wholes.push_back(std::async(std::launch::async, [&] { return whole(*compiler, kept_bundle(1, false)); }));
  }
  for (std::future<Image>& one : plains) check_same(one.get(), plain);
  for (std::future<Image>& one : kepts) check_same(one.get(), kept);
  for (std::future<Image>& one : wholes) check_same(one.get(), of_whole);
}

TEST_CASE("without a second NVRTC values are not kept, which the log and the compiler's name say") {
  const std::unique_ptr<Compiler> compiler = find_both();
  if (compiler == nullptr) return;
  const NvrtcLibrary first = open_nvrtc({});
  std::string problem;
  const std::string id = first.identity.build_id, second = alternate_id(first, problem);
  CHECK(compiler->identity().build_id == id + "+" + second);
  const Image kept = compiler->compile(kept_bundle(1, true)), plain = compiler->compile(kept_bundle(1, false));
  CHECK(kept.report.compiler == compiler->identity());
  CHECK(plain.report.compiler == first.identity);

  const std::string version = fmt::format("{}.{}", first.identity.major_version, first.identity.minor_version);
  const std::string name = first.file.filename().string(), builtins = "libnvrtc-builtins.so." + version;
  const std::string alternate = "libnvrtc.alt.so" + name.substr(std::string("libnvrtc.so").size());
  const std::string alternate_builtins = "libnvrtc-builtins.alt.so." + version;
  const fs::path from = first.file.parent_path();
  // Each in a folder of its own: the loader keeps names.
  const auto compile_beside = [&](std::string_view second_bytes, bool has_builtins, const std::string& expected,
                                  const std::string& why) {
    CAPTURE(why);
    const testing::TemporaryFolder folder;
    for (const std::string& file : {name, builtins}) fs::copy_file(from / file, folder.path / file);
    if (!second_bytes.empty()) write_file(folder.path / alternate, second_bytes);
    if (has_builtins) fs::copy_file(from / alternate_builtins, folder.path / alternate_builtins);
    const auto alone = make_nvrtc_compiler({.library = folder.path / name, .repro_folder = {}});
    CHECK(alone->identity().build_id == expected);
    const Image image = alone->compile(kept_bundle(1, true));
    CHECK(image.report.compiler.build_id == id + "-alone");
    CHECK(image.report.log.find(why) != std::string::npos);
    CHECK(image.report.log.ends_with(", -Xnvvm -disable-nvvm-remat\n"));
    check_same(image, plain);
  };
  const std::string bytes = read_text(from / alternate, std::size_t{1} << 30);
  compile_beside({}, true, id + "-alone", "(no libnvrtc.alt.so is beside it)");
  compile_beside("no library", true, id + "-alone", "(" + alternate + " is no library that can be read)");
  compile_beside(bytes, false, id + "-alone", "(no " + alternate_builtins + " is beside it)");
  compile_beside(std::string_view(bytes).substr(0, bytes.size() / 2), true, id + "-alone",
                 "no library that can be read");
  // What is known late: a library that can't be used, one that refuses the option.
  const auto without = [bytes](const std::string& text) {
    std::string changed = bytes;
    for (std::size_t at = 0; (at = changed.find(text, at)) != std::string::npos;) changed[at + text.size() - 2] = '?';
    return changed;
  };
  compile_beside(without("nvrtcGetCUBINSize"), true, id + "+" + second, "lacks nvrtcGetCUBINSize");
  compile_beside(without("disable-nvvm-remat"), true, id + "+" + second, "(libnvrtc.alt.so refuses it)");
}

TEST_CASE("a second NVRTC has the version of the first one") {
  const fs::path library = TESSERA_FAKE_NVRTC;
  const auto open_beside = [&](const fs::path& second, std::string& problem) {
    const testing::TemporaryFolder folder;
    const fs::path builtins = library.parent_path() / "libnvrtc-builtins.so.99.7";
    fs::copy_file(library, folder.path / "libnvrtc.so.99");
    fs::copy_file(builtins, folder.path / builtins.filename());
    fs::copy_file(second, folder.path / "libnvrtc.alt.so.99");
    fs::copy_file(builtins, folder.path / "libnvrtc-builtins.alt.so.99.7");
    const NvrtcLibrary first = open_nvrtc({.library = folder.path / "libnvrtc.so.99", .repro_folder = {}});
    return open_alternate(first, problem).has_value();
  };
  std::string problem;
  CHECK(open_beside(library, problem));
  CHECK_FALSE(open_beside(TESSERA_FAKE_NVRTC_OTHER, problem));
  CHECK(problem == "libnvrtc.alt.so.99 is NVRTC 99.8");
  // Who makes PTX alone compiles no pieces.
  const auto of_ptx = make_nvrtc_compiler({.library = library, .repro_folder = {}, .makes_cubin = false});
  CHECK(of_ptx->identity() == open_nvrtc({.library = library, .repro_folder = {}}).identity);
}

TEST_CASE("what would change the code of later kernels is refused") {
  const testing::TemporaryFolder folder;
  write_file(folder.path / "libnvrtc.alt.so.99", std::string_view("x"));
  try {
    make_nvrtc_compiler({.library = folder.path / "libnvrtc.alt.so.99", .repro_folder = {}});
    FAIL("opened");
  } catch (const Error& error) {
    REQUIRE(error.notes().size() == 1);
    CHECK(error.notes()[0].ends_with("is the second NVRTC, of pieces of kernels: name the libnvrtc.so beside it"));
  }
  const auto fake = make_nvrtc_compiler({.library = TESSERA_FAKE_NVRTC, .repro_folder = {}});
  SourceBundle bundle = kept_bundle(1, false);
  bundle.options = {"-Xnvvm", "-disable-nvvm-remat"};
  CHECK_THROWS_WITH_AS(
      fake->compile(bundle),
      "NVRTC option -Xnvvm: NVRTC would keep what follows it for all kernels that this process compiles later", Error);
}

TEST_CASE("an option that an NVRTC does not know is found out by an empty program") {
  if (!find_nvrtc()) {
    MESSAGE("not run: no NVRTC here");
    return;
  }
  // Of its own: what is told here stays.
  const std::optional<NvrtcLibrary> copy = open_copy(open_nvrtc({}));
  REQUIRE(copy);
  CHECK(compiles_empty_program(*copy, {}));
  constexpr std::array<std::string_view, 2> kUnknown{"-Xnvvm", "-no-such-option"};
  CHECK_FALSE(compiles_empty_program(*copy, kUnknown));
  if (copy->identity.major_version == 13 && copy->identity.minor_version == 0)
    CHECK(compiles_empty_program(*copy, kOptionsOfKept));
}

}  // namespace tessera
