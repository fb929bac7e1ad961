// A store that speaks S3: s3://BUCKET[/PREFIX], objects PREFIX/ac/KEY and PREFIX/cas/SHA256 by signed GET, HEAD and
// PUT.
#pragma once

#include <memory>
#include <string>

#include "runtime/remote/store.h"

namespace tessera::remote {

/// Where a bucket's objects lie.
struct S3Place {
  std::string base;  ///< URL before /ac and /cas
  std::string host;  ///< as the Host header has it
  std::string path;  ///< of the URL, encoded, before /ac and /cas
};
/// By the bucket's own host name (BUCKET.s3.REGION.amazonaws.com) where AWS is asked and a certificate for it holds, by
/// the path (ENDPOINT/BUCKET) elsewhere, or as the options say. Throws Error{usage}.
S3Place s3_place(const RemoteOptions& options, const std::string& bucket, const std::string& prefix);

/// Credentials: those of the file, else those of the options. Throws Error{usage} where there are none or half of them.
std::unique_ptr<Store> make_s3_store(const RemoteOptions& options, const std::string& bucket,
                                     const std::string& prefix);

}  // namespace tessera::remote
