// The error that predictions for Blackwell are told with: one place has it, the recorded points.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "emulator/time/gpu_time.h"

namespace tessera::emulator::time_judged_test {

std::string text_of(const std::string& path) {
  std::ifstream file(TESSERA_SOURCE_DIR "/" + path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("time: descriptions and their page tell the median error of the points that are recorded") {
  std::vector<double> errors;
  std::string model;
  std::istringstream points(text_of("bench/time/blackwell-points.jsonl"));
  for (std::string line; std::getline(points, line);) {
    const nlohmann::json row = nlohmann::json::parse(line);
    if (row["half"] != "judge" || !row.contains("predicted_us")) continue;
    errors.push_back(std::abs(row["time_us"].get<double>() / row["predicted_us"].get<double>() - 1));
    model = row["model"];
  }
  REQUIRE(errors.size() == 25);
  std::sort(errors.begin(), errors.end());
  const std::string median = fmt::format("{:.1f}", 100 * errors[12]);
  for (const char* const name : {"b200", "rtx5090"}) {
    const PredictionError error = error_of(*find_gpu_time(name));
    CHECK(fmt::format("{:.1f}", error.median_percent) == median);
    CHECK(error.source.find("by the model of " + model) != std::string::npos);
  }
  const std::string said = fmt::format("25 points of the half that judges: median error {} %", median);
  CHECK(text_of("docs/time.md").find(said) != std::string::npos);
}

}  // namespace tessera::emulator::time_judged_test
