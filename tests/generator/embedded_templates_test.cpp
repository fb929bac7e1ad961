#include "generator/embedded_templates.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"

using namespace tessera;
namespace embedded_templates_test {

TEST_CASE("every device file is embedded, byte for byte, under the name that an #include spells") {
  const std::filesystem::path root = std::filesystem::path(TESSERA_SOURCE_DIR) / "templates";
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cuh" && extension != ".cu" && extension != ".h") continue;
    ++files;
    const std::string path = std::filesystem::relative(entry.path(), root).generic_string();
    CAPTURE(path);
    const auto all = embedded_templates();
    const auto found = std::find_if(all.begin(), all.end(), [&](const EmbeddedTemplate& t) { return t.path == path; });
    REQUIRE(found != all.end());
    CHECK(found->text == read_text(entry.path()));
  }
  CHECK(files == embedded_templates().size());
  CHECK(files >= 10);
}

TEST_CASE("embedded files are sorted by path") {
  const auto all = embedded_templates();
  CHECK(std::is_sorted(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.path < b.path; }));
}

}  // namespace embedded_templates_test
