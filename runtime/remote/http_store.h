// A store that speaks HTTP as Bazel's remote caches do: GET, HEAD and PUT of BASE/ac/KEY and BASE/cas/SHA256.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/remote/store.h"

namespace tessera::remote {

/// Where the blobs lie, and what goes with each request.
struct HttpTarget {
  std::string shown;                   ///< how messages name it
  std::string base;                    ///< URL before /ac and /cas
  std::vector<std::string> headers{};  ///< lines of every request
  std::string ca_file{};
  /// Lines of one request; may be empty.
  std::function<std::vector<std::string>(std::string_view method, const std::string& name, std::string_view sent)>
      signed_headers{};
  /// A word for what an answer's body says of an error; may be empty.
  std::function<std::string(std::string_view body)> error_word{};
};

/// By libcurl; throws Error{unsupported} in a build without it.
std::unique_ptr<Store> make_http_store(HttpTarget target);

}  // namespace tessera::remote
