// Every function of ptx/tcgen05.cuh and ptx/tmem.cuh, for every target that has it: what ptxas takes, and what PTX it
// becomes. A kind that a target lacks is refused by name.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "generator/include_scan.h"
#include "runtime/nvrtc.h"
#include "tessera/error.h"

using namespace tessera;

namespace {

std::unique_ptr<Compiler> nvrtc_or_skip() {
  if (!find_nvrtc()) {
    fmt::print(stderr, "skipped: no NVRTC on this machine\n");
    std::exit(77);
  }
  return make_nvrtc_compiler();
}

SourceBundle bundle_of(const std::string& arch, const std::string& body) {
  SourceBundle bundle;
  bundle.program = "/tessera/test/entry.cu";
  bundle.text =
      "#include \"ptx/tcgen05.cuh\"\n"
      "using namespace tessera::ptx;\n"
      "using tessera::layout::Tcgen05Kind;\n"
      "extern \"C\" __global__ void test(unsigned* out, unsigned address, unsigned long long descriptor) {\n" +
      body + "}\n";
  bundle.headers = transitive_headers(bundle.program, bundle.text, {});
  bundle.arch = arch;
  bundle.options = {"--std=c++20", "--no-source-include", "--ptxas-options=-v"};
  bundle.entries = {"test"};
  return bundle;
}

/// The PTX, or what the compiler said.
std::string compiled(Compiler& compiler, const std::string& arch, const std::string& body) {
  try {
    const Image image = compiler.compile(bundle_of(arch, body));
    if (image.report.log.find("warning") != std::string::npos) return image.report.log;
    return image.ptx;
  } catch (const Error& error) {
    std::string text = error.what();
    for (const std::string& note : error.notes()) text += "\n" + note;
    return text;
  }
}

std::string moves() {
  std::string body;
  for (const int columns : {1, 2, 4, 8, 16, 32})
    body += fmt::format(
        "  {{\n    unsigned r[{0}];\n    tcgen05_ld_32x32b(r, address);\n    tcgen05_wait_ld(r);\n"
        "    for (int i = 0; i < {0}; ++i) r[i] = r[i] * 3 + 1;\n    tcgen05_st_32x32b(address, r);\n"
        "    tcgen05_wait_st();\n  }}\n",
        columns);
  return body;
}

std::string group(int ctas) {
  return fmt::format(
      "  tcgen05_alloc<{0}>(address, 64);\n  tcgen05_relinquish_alloc_permit<{0}>();\n"
      "  tcgen05_fence_after_thread_sync();\n  tcgen05_fence_before_thread_sync();\n"
      "  tcgen05_cp_32x128b_warpx4<{0}>(address, descriptor);\n  tcgen05_commit<{0}>(address);\n"
      "  tcgen05_commit_multicast<{0}>(address, 3);\n  tcgen05_dealloc<{0}>(address, 64);\n",
      ctas);
}

std::string plain(const std::string& kind, int ctas) {
  return fmt::format(
      "  tcgen05_mma<Tcgen05Kind::{0}, {1}>(address, descriptor, descriptor, 7, true);\n"
      "  tcgen05_mma_from_tmem<Tcgen05Kind::{0}, {1}>(address, address + 64, descriptor, 7, address != 0);\n",
      kind, ctas);
}

std::string scaled(const std::string& kind, int block, int ctas) {
  return fmt::format(
      "  tcgen05_mma_block_scale<Tcgen05Kind::{}, {}, {}>(address, descriptor, descriptor, 7, address + 64, "
      "address + 68, false);\n",
      kind, block, ctas);
}

}  // namespace

TEST_CASE("nvrtc: tcgen05 instructions assemble for the data-centre targets of Blackwell") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  for (const char* const arch : {"sm_100a", "sm_103a", "sm_100f", "sm_103f"}) {
    for (const int ctas : {1, 2}) {
      CAPTURE(arch);
      CAPTURE(ctas);
      std::string body = group(ctas) + moves();
      for (const char* const kind : {"f16", "tf32", "f8f6f4"}) body += plain(kind, ctas);
      body += scaled("mxf8f6f4", 32, ctas) + scaled("mxf4", 32, ctas) + scaled("mxf4nvf4", 32, ctas) +
              scaled("mxf4nvf4", 16, ctas);
      const std::string ptx = compiled(*compiler, arch, body);
      for (const std::string& wanted :
           {fmt::format("tcgen05.mma.cta_group::{}.kind::f16 [", ctas),
            fmt::format("tcgen05.mma.cta_group::{}.kind::mxf4nvf4.block_scale.block16 [", ctas),
            fmt::format("tcgen05.mma.cta_group::{}.kind::mxf8f6f4.block_scale.block32 [", ctas),
            fmt::format("tcgen05.cp.cta_group::{}.32x128b.warpx4 [", ctas),
            std::string("tcgen05.ld.sync.aligned.32x32b.x32.b32"),
            std::string("tcgen05.st.sync.aligned.32x32b.x32.b32")}) {
        CAPTURE(ptx);
        CHECK(ptx.find(wanted) != std::string::npos);
      }
    }
  }
}

TEST_CASE("nvrtc: integer products exist for sm_100a, and are refused by name for sm_103a and the family") {
  const std::unique_ptr<Compiler> compiler = nvrtc_or_skip();
  CHECK(compiled(*compiler, "sm_100a", plain("i8", 1)).find("tcgen05.mma.cta_group::1.kind::i8 [") !=
        std::string::npos);
  for (const char* const arch : {"sm_103a", "sm_100f"}) {
    const std::string refusal = compiled(*compiler, arch, plain("i8", 1));
    CAPTURE(refusal);
    CHECK(refusal.find(".kind::i8") != std::string::npos);
    CHECK(refusal.find("not supported on .target") != std::string::npos);
  }
}
