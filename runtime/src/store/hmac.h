// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hash of FIPS 180-4 and the keyed hash of RFC 2104, with which the ranks
// of a job prove to each other that they belong to it. A cryptography library
// would be a dependency for only two functions. They are for messages of a few
// hundred bytes, not for data.

#pragma once

#include "base/status.h"

#include <cstddef>
#include <string>
#include <string_view>

namespace ddphook {

inline constexpr size_t digestSize = 32;

/// Returns the SHA-256 of `message`: digestSize bytes.
std::string sha256(std::string_view message);

/// Returns the HMAC-SHA-256 of `message` under `key`: digestSize bytes.
std::string hmacSha256(std::string_view key, std::string_view message);

/// Returns true if two secrets of the same size are equal. The time it takes
/// does not reveal where they differ.
bool areEqualSecrets(std::string_view a, std::string_view b);

/// Draws `size` bytes that nobody can guess, or returns RESOURCE_EXHAUSTED.
Status drawSecret(size_t size, std::string *secret);

} // namespace ddphook
