// Keys hold content only: what the compiler reads (sources, their names, options, target), the plan that is stored
// beside the result, the schema, and in the entry key who compiled. No path of this machine, no time, no order of
// building.
#include <algorithm>
#include <string>
#include <vector>

#include "base/hash.h"
#include "runtime/compiler_suffix.h"
#include "tessera/cache.h"

namespace tessera {

namespace {
void add_list(Sha256& hash, const std::vector<std::string>& items) {
  hash.part(std::to_string(items.size()));
  for (const std::string& item : items) hash.part(item);
}
}  // namespace

bool is_lesser(const CompilerIdentity& compiler) {
  return compiler.build_id.ends_with(kAlone) || compiler.build_id.ends_with(kWhole);
}

CompilerIdentity compiler_of(const SourceBundle& bundle, CompilerIdentity compiler) {
  const auto keeps = [](const SourcePiece& piece) { return piece.keeps_values; };
  if (std::any_of(bundle.pieces.begin(), bundle.pieces.end(), keeps)) return compiler;
  std::string& id = compiler.build_id;
  id.resize(std::min(id.size(), id.find('+')));
  if (id.ends_with(kAlone)) id.resize(id.size() - kAlone.size());
  return compiler;
}

std::string entry_key(const std::string& source_key, const CompilerIdentity& compiler) {
  return Sha256()
      .part("tessera entry key")
      .part(source_key)
      .part(compiler.name)
      .part(std::to_string(compiler.major_version))
      .part(std::to_string(compiler.minor_version))
      .part(compiler.build_id)
      .hex();
}

EntryKeys make_keys(const SourceBundle& bundle, const std::string& plan_json, const CompilerIdentity* compiler) {
  std::vector<const SourceFile*> headers;
  headers.reserve(bundle.headers.size());
  for (const SourceFile& header : bundle.headers) headers.push_back(&header);
  std::sort(headers.begin(), headers.end(), [](const SourceFile* a, const SourceFile* b) { return a->path < b->path; });

  Sha256 source;
  source.part("tessera source key").part(std::to_string(kCacheSchema)).part(bundle.arch);
  add_list(source, bundle.options);
  source.part(bundle.program).part(bundle.text).part(std::to_string(headers.size()));
  for (const SourceFile* header : headers) source.part(header->path).part(header->text);
  add_list(source, bundle.entries);
  for (const SourcePiece& piece : bundle.pieces)
    source.part(piece.header.path).part(piece.header.text).part(piece.keeps_values ? "keeps values" : "");
  source.part(plan_json);
  if (bundle.merge != nullptr) source.part(make_keys(*bundle.merge, {}, nullptr).source);

  EntryKeys keys;
  keys.source = source.hex();
  if (compiler != nullptr) keys.entry = entry_key(keys.source, compiler_of(bundle, *compiler));
  return keys;
}

}  // namespace tessera
