// A store that speaks HTTP as Bazel's remote caches do: GET, HEAD and PUT of BASE/ac/KEY and BASE/cas/SHA256.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/remote/store.h"

namespace tessera::remote {

/// `headers`: lines that go with every request. By libcurl; throws Error{unsupported} in a build without it.
std::unique_ptr<Store> make_http_store(const std::string& base, std::vector<std::string> headers,
                                       const std::string& ca_file);

}  // namespace tessera::remote
