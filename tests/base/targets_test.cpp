// The table of targets against the rule that it spells out.
#include "tessera/targets.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "base/file.h"

using namespace tessera;

TEST_CASE("a target's code loads on its own capability, a family's on the later ones too") {
  constexpr int kCapabilities[] = {90, 100, 103, 120, 121};
  for (const TargetRow& row : target_rows()) {
    const Arch arch = Arch::parse(row.target);
    std::string expected;
    for (const int capability : kCapabilities) {
      const bool is_own = capability == arch.number;
      const bool is_later = arch.suffix == 'f' && capability / 10 == arch.number / 10 && capability > arch.number;
      if (is_own || is_later)
        expected += fmt::format("{}{}.{}", expected.empty() ? "" : ", ", capability / 10, capability % 10);
    }
    CHECK(row.loads_on == expected);
    CHECK(loads_on(arch) == row.loads_on);
  }
  CHECK(target_rows().size() == 9);
  CHECK(loads_on(Arch::parse("sm_80")).empty());
}

TEST_CASE("the page for pipelines has the table, and no other targets") {
  const std::string page = read_text(TESSERA_SOURCE_DIR "/docs/pipelines.md");
  std::size_t rows = 0;
  for (std::size_t at = page.find("\n| `sm_"); at != std::string::npos; at = page.find("\n| `sm_", at + 1)) ++rows;
  CHECK(rows == target_rows().size());
  for (const TargetRow& row : target_rows()) {
    INFO(row.target);
    CHECK(page.find(fmt::format("\n| `{}` | {} | ", row.target, row.loads_on)) != std::string::npos);
  }
}

TEST_CASE("runs_on, on which families and shared memory stand, agrees with the table") {
  for (const TargetRow& row : target_rows()) {
    const Arch arch = Arch::parse(row.target);
    for (const int capability : {86, 90, 100, 103, 120, 121}) {
      const std::string text = fmt::format("{}.{}", capability / 10, capability % 10);
      INFO(row.target << " on " << text);
      CHECK(runs_on(arch, capability / 10, capability % 10) == (row.loads_on.find(text) != std::string_view::npos));
    }
    CHECK(has_family(arch, MmaFamily::wgmma) == (row.target == "sm_90a"));
    CHECK(has_family(arch, MmaFamily::tcgen05) == row.target.starts_with("sm_10"));
    CHECK(has_family(arch, MmaFamily::mma_sync));
    CHECK(smem_bytes_of(arch) == (row.target.starts_with("sm_12") ? 101376 : 232448));
  }
  CHECK(runs_on(Arch::parse("sm_80"), 8, 9));
  CHECK_FALSE(runs_on(Arch::parse("sm_90"), 10, 0));
  CHECK_FALSE(has_family(Arch::parse("sm_100"), MmaFamily::tcgen05));
  CHECK_FALSE(has_family(Arch::parse("sm_90"), MmaFamily::wgmma));
  for (const char* const text : {"", "sm_", "sm_9", "sm_090", "sm_1000", "sm_90b", "sm_90aa", "SM_90", "90a"})
    CHECK_FALSE(parse_arch(text).has_value());
}

TEST_CASE("which targets a device loads, and which serve where another is asked for") {
  const auto text = [](const std::vector<std::string_view>& list) { return fmt::format("{}", fmt::join(list, " ")); };
  CHECK(text(targets_for("9.0")) == "sm_90a");
  CHECK(text(targets_for("10.0")) == "sm_100a sm_100f");
  CHECK(text(targets_for("10.3")) == "sm_100f sm_103a sm_103f");
  CHECK(text(targets_for("8.6")).empty());
  CHECK(text(targets_instead_of(Arch::parse("sm_100a"))) == "sm_100f");
  CHECK(text(targets_instead_of(Arch::parse("sm_103a"))) == "sm_100f sm_103f");
  CHECK(text(targets_instead_of(Arch::parse("sm_100f"))).empty());
  CHECK(text(targets_instead_of(Arch::parse("sm_80"))).empty());
}
