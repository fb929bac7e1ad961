// The files of templates/, as bytes in the library: what a bundle is made of without a file system.
#pragma once

#include <span>
#include <string_view>

namespace tessera {

struct EmbeddedTemplate {
  std::string_view path;  ///< as an #include spells it: "ptx/mbarrier.cuh", "spec/fmha.h", "fmha/kernel.cuh"
  std::string_view text;
};

/// Sorted by path.
std::span<const EmbeddedTemplate> embedded_templates() noexcept;

}  // namespace tessera
