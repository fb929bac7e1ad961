#include "emulator/findings/finding_json.h"

#include <nlohmann/json.hpp>

namespace tessera::emulator {

OrderedJson finding_json(const EmulatorFinding& finding) {
  OrderedJson json{{"name", finding.name}, {"is_failure", finding.is_failure}, {"message", finding.message}};
  if (!finding.cause.empty()) json["cause"] = finding.cause;
  if (!finding.entry.empty()) json["entry"] = finding.entry;
  if (finding.ptx_line > 0) json["ptx_line"] = finding.ptx_line;
  if (!finding.instruction.empty()) json["instruction"] = finding.instruction;
  if (finding.source_line > 0) {
    json["source_file"] = finding.source_file;
    json["source_line"] = finding.source_line;
    json["source_place"] = finding.source_place;
  }
  if (finding.warp >= 0) {
    json["cta"] = finding.cta;
    json["warp"] = finding.warp;
  }
  if (finding.lane >= 0) json["lane"] = finding.lane;
  if (finding.has_address) json["address"] = finding.address;
  json["count"] = finding.count;
  return json;
}

}  // namespace tessera::emulator
