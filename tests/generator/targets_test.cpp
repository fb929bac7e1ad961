// The table of targets against the rule that it spells out.
#include "generator/targets.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

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
