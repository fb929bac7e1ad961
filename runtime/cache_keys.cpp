// Keys hold content only: what the compiler reads (sources, their names, options, target), the plan that is stored
// beside the result, the schema, and in the entry key who compiled. No path of this machine, no time, no order of
// building.
#include <algorithm>
#include <string>
#include <vector>

#include "base/hash.h"
#include "tessera/cache.h"

namespace tessera {

namespace {
void add_list(Sha256& hash, const std::vector<std::string>& items) {
  hash.part(std::to_string(items.size()));
  for (const std::string& item : items) hash.part(item);
}
}  // namespace

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
  if (compiler != nullptr) {
    keys.entry = Sha256()
                     .part("tessera entry key")
                     .part(keys.source)
                     .part(compiler->name)
                     .part(std::to_string(compiler->major_version))
                     .part(std::to_string(compiler->minor_version))
                     .part(compiler->build_id)
                     .hex();
  }
  return keys;
}

}  // namespace tessera
