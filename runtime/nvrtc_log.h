// What a compiler's log says, as data: resources per kernel, performance notes, diagnostics at places in the templates.
//
// Written against logs of NVRTC 13.0 with `--ptxas-options=-v`; lines that are not understood are left alone, the
// log itself is always kept.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/error.h"
#include "tessera/image.h"
#include "tessera/source_bundle.h"

namespace tessera {

/// Headers are compiled under this folder, which exists nowhere (see nvrtc.cpp): "/tessera/" + "fmha/kernel.cuh".
inline constexpr std::string_view kHeaderRoot = "/tessera/";

/// One report for each "Compiling entry function", in the log's order.
std::vector<EntryReport> parse_entry_reports(std::string_view log);

/// Warnings of the front end and of ptxas, and performance notes of ptxas ("(C7508) Potential Performance Loss: ..."),
/// one a line, without ptxas's prefix, each once.
std::vector<std::string> parse_notes(std::string_view log);

/// Errors of the front end and of ptxas. Where the bundle has the source, the line comes from it and the column counts
/// in it; a header is named as an #include spells it.
std::vector<Diagnostic> parse_errors(std::string_view log, const SourceBundle& bundle);

}  // namespace tessera
