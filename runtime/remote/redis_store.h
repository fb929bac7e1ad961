// A store that speaks the protocol of Redis (Valkey, KeyDB, ...): redis://HOST[:PORT][/DATABASE[/PREFIX]], keys
// PREFIX:ac/KEY and PREFIX:cas/SHA256, and PREFIX:lock/KEY while a machine compiles that kernel.
#pragma once

#include <memory>
#include <string>

#include "runtime/remote/authority.h"
#include "runtime/remote/store.h"

namespace tessera::remote {

/// `path`: of the URL, /DATABASE[/PREFIX] or empty. By hiredis and, for rediss, OpenSSL; throws Error{unsupported} in a
/// build without hiredis, Error{usage} for a URL of another form.
std::unique_ptr<Store> make_redis_store(const RemoteOptions& options, const Authority& authority,
                                        const std::string& path, bool has_tls);

}  // namespace tessera::remote
