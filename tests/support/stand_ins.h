// Kernels for sm_120a on a GPU that lacks its instructions: each that Hopper has no form of is one function of
// templates/ptx/, and the files of tests/stand_ins/ have functions of the same names that compute the same bits by
// other means. A compiler that puts them in place of the originals; no build of a user has them.
#pragma once

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/compiler.h"
#include "tessera/error.h"

namespace tessera {

struct StandIn {
  std::string_view file;                    ///< of templates/ptx/ and of tests/stand_ins/
  std::vector<std::string_view> functions;  ///< that are replaced
};

inline const std::vector<StandIn>& stand_ins() {
  static const std::vector<StandIn> list = {{"matrix.cuh", {"ldmatrix_x2_trans_b8"}},
                                            {"mma_block_scale.cuh", {"mma_block_scale"}},
                                            {"narrow.cuh", {"cvt_e2m1x2", "cvt_f16x2_e2m1x2_x4"}}};
  return list;
}

/// Compiles bundles for sm_120a as such for `arch`, with the stand-ins of `folder`.
class StandInCompiler final : public Compiler {
 public:
  StandInCompiler(Compiler& compiler, std::string arch, std::string folder)
      : compiler_(compiler), arch_(std::move(arch)), folder_(std::move(folder)) {}

  const CompilerIdentity& identity() const override { return compiler_.identity(); }
  const std::vector<std::string>& architectures() const override { return compiler_.architectures(); }
  Image compile(const SourceBundle& bundle) override {
    SourceBundle changed = bundle;
    changed.arch = arch_;
    for (SourceFile& header : changed.headers)
      for (const StandIn& stand_in : stand_ins())
        if (header.path == "ptx/" + std::string(stand_in.file)) replace(header.text, stand_in);
    return compiler_.compile(changed);
  }

 private:
  /// The originals get another name, under which nobody calls them.
  void replace(std::string& text, const StandIn& stand_in) const {
    for (const std::string_view function : stand_in.functions) {
      const std::string name = " " + std::string(function) + "(";
      std::size_t at = text.find(name);
      if (at == std::string::npos)
        throw Error(ErrorKind::usage, "ptx/" + std::string(stand_in.file) + " has no " + std::string(function));
      for (; at != std::string::npos; at = text.find(name, at)) {
        text.insert(at + name.size() - 1, "_of_hardware");
        at += name.size();
      }
    }
    const std::string path = folder_ + "/" + std::string(stand_in.file);
    std::ifstream file(path);
    if (!file) throw Error(ErrorKind::io, path + ": cannot be read");
    text.append(std::istreambuf_iterator<char>(file), {});
  }

  Compiler& compiler_;
  std::string arch_, folder_;
};

}  // namespace tessera
