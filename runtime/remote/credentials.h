// Files of credentials: lines of text that their owner alone may read. Nothing of them is in a message.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "runtime/remote/aws_signature.h"

namespace tessera::remote {

/// The lines but empty ones and comments (#), with their numbers. Throws Error{io} where the file cannot be read,
/// Error{usage} where others than its owner may read or write it.
std::vector<std::pair<int, std::string>> read_credential_lines(const std::filesystem::path& path);

/// Lines "Name: value", as they are. Throws Error{usage} for another.
std::vector<std::string> read_header_lines(const std::filesystem::path& path);

struct RedisCredentials {
  std::string username, password;
};
/// Lines "username: NAME" and "password: SECRET".
RedisCredentials read_redis_credentials(const std::filesystem::path& path);

/// As ~/.aws/credentials has them: "aws_access_key_id = ID" and its like; of several sections [default] alone.
AwsCredentials read_aws_credentials(const std::filesystem::path& path);

}  // namespace tessera::remote
